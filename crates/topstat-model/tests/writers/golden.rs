// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every output of every kind of snapshot, byte by byte.
//!
//! `UPDATE_GOLDEN=1 cargo test -p topstat-model golden` writes the files anew; look at the diff before it is
//! committed.

use std::env;
use std::fs;
use std::path::Path;

use topstat_model::csv::{self, CsvOptions};
use topstat_model::text::{self, TextOptions};
use topstat_model::{Snapshot, json, stat};

use crate::fixtures;

/// What an output wrote, by the ending of its golden file.
fn outputs(snapshot: &Snapshot) -> Vec<(&'static str, Vec<u8>)> {
    let plain = TextOptions::default();
    let narrow = TextOptions { human: true, color: true, width: Some(100) };
    let mut outputs = ["json", "csv", "stat", "txt", "terminal"].map(|ending| (ending, Vec::new()));
    let [json, csv, stat, txt, terminal] = outputs.each_mut().map(|(_, written)| written);
    json::write(snapshot, json).unwrap();
    csv::write(snapshot, CsvOptions { header: true }, csv).unwrap();
    stat::write(snapshot, stat).unwrap();
    text::write(snapshot, plain, txt).unwrap();
    text::write(snapshot, narrow, terminal).unwrap();
    outputs.into()
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
fn filtered() {
    compare("filtered", &fixtures::filtered());
}

#[test]
fn tasks() {
    compare("tasks", &fixtures::tasks());
}
