// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every output of every kind of snapshot, byte by byte.
//!
//! `UPDATE_GOLDEN=1 cargo test -p topstat-model golden` writes the files anew; look at the diff before it is
//! committed.

use std::env;
use std::fs;
use std::path::Path;

use topstat_model::text::TextOptions;
use topstat_model::{Format, Sink, Snapshot, Space, stat};

use crate::fixtures;

/// The outputs, each with the ending of its golden file.
fn outputs(snapshot: &Snapshot) -> Vec<(&'static str, Vec<u8>)> {
    let plain = TextOptions::default();
    let terminal = TextOptions { human: true, color: true, width: None };
    let narrow = Space { cells: Some(100), lines: None };
    let sink = |format, options, space| Sink::new(format, options).write(&[snapshot], space).unwrap();
    let mut stat = Vec::new();
    stat::write(snapshot, &mut stat).unwrap();
    vec![
        ("json", sink(Format::Json, plain, Space::default())),
        ("csv", sink(Format::Csv, plain, Space::default())),
        ("stat", stat),
        ("txt", sink(Format::Text, plain, Space::default())),
        ("terminal", sink(Format::Text, terminal, narrow)),
    ]
}

fn compare(name: &str, snapshot: &Snapshot) {
    assert_eq!(snapshot.check(), Ok(()));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let update = env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1");
    let mut differ = Vec::new();
    for (ending, written) in outputs(snapshot) {
        let path = folder.join(format!("{name}.{ending}"));
        if update {
            fs::write(&path, &written).unwrap();
            continue;
        }
        let golden = fs::read(&path).unwrap_or_default();
        if golden != written {
            differ.push(format!(
                "{}\n--- golden\n{}--- written\n{}",
                path.display(),
                String::from_utf8_lossy(&golden),
                String::from_utf8_lossy(&written)
            ));
        }
    }
    assert!(differ.is_empty(), "(UPDATE_GOLDEN=1 accepts) {}", differ.join("\n"));
}

#[test]
fn v4() {
    compare("v4", &fixtures::v4());
}

#[test]
fn v6() {
    compare("v6", &fixtures::v6());
}

#[test]
fn empty() {
    compare("empty", &fixtures::empty());
}

#[test]
fn weird() {
    compare("weird", &fixtures::weird());
}

#[test]
fn troubled() {
    compare("troubled", &fixtures::troubled());
}

#[test]
fn closed() {
    compare("closed", &fixtures::closed());
}

#[test]
fn filtered() {
    compare("filtered", &fixtures::filtered());
}

#[test]
fn tasks() {
    compare("tasks", &fixtures::tasks());
}
