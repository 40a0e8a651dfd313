// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The input is pinned state: banks, settings, constants, and the snapshot that the kernel's program makes of them. A read
//! returns an error, or a snapshot that adds up and that every format can write.

use topstat_kernel::{MAX_TOP, fuzz};
use topstat_model::{Snapshot, json, stat};

use crate::bytes::Bytes;

/// Runs the target: see the module.
pub fn run(bytes: &[u8]) {
    if let Some(top) = fuzz::top_of(bytes) {
        assert!((1..=MAX_TOP).contains(&top), "{top} rows");
    }
    let mut bytes = Bytes::new(bytes);
    let (family, length) = (bytes.byte(), bytes.byte());
    let banks = bytes.take(usize::from(length));
    let length = bytes.byte();
    let settings = bytes.take(usize::from(length));
    let sections = bytes.take(usize::MAX);
    for read in fuzz::read(topstat_families::catalogue(), family, banks, settings, sections) {
        match read {
            Ok(snapshot) => added_up(&snapshot),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn added_up(snapshot: &Snapshot) {
    let name = format!("{}/{}", snapshot.sample, snapshot.table);
    snapshot.check().unwrap_or_else(|fault| panic!("{name}: {fault}"));
    assert!(snapshot.rows.len() <= snapshot.top as usize && snapshot.proven as usize <= snapshot.rows.len(), "{name}");
    let mut written = Vec::new();
    json::write(snapshot, &mut written).expect("memory takes everything");
    assert!(written.ends_with(b"}\n") && written.iter().filter(|byte| **byte == b'\n').count() == 1, "{name}");
    written.clear();
    stat::write(snapshot, &mut written).expect("memory takes everything");
    // The name of a process must not contain an order to a terminal, or the end of a line.
    assert!(!written.iter().any(|byte| byte.is_ascii_control() && !matches!(byte, b'\n' | b'\t')), "{name}");
    let mut shown = snapshot.clone();
    shown.truncate(1);
    shown.check().unwrap_or_else(|fault| panic!("{name}, one row of it: {fault}"));
}
