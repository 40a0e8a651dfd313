// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A compacted hour has all rows of its hosts.

use std::fs;
use std::time::Duration;

use topstat_fleet::Root;
use topstat_fleet::compact;
use topstat_fleet::scan::Table;
use topstat_history::sealed::Sealed;

use crate::fixtures::{Scratch, TABLES, hour, record};
use crate::scanning::{by_host, window};

#[test]
fn a_compacted_hour_has_what_its_hosts_had() {
    let scratch = Scratch::new("compact");
    (0..9).for_each(|host| record(&scratch.fleet(), host, 6));
    let compacted = scratch.0.join("compacted");
    let to = Root::make(&compacted).unwrap();
    let roots = [Root::open(&scratch.fleet()).unwrap()];
    let all = [Root::open(&compacted).unwrap()];
    let over = hour() + Duration::from_secs(3600);
    let early = compact::run(&roots, &to, over - Duration::from_secs(1)).unwrap();
    assert!(early.written.is_empty(), "the hour is not over: {early:?}");
    let report = compact::run(&roots, &to, over).unwrap();
    assert_eq!((report.written.len(), report.faults.len()), (3, 0));
    // Eight snapshots of six rows; one without rows is a row, too.
    assert!(report.written.iter().all(|file| file.hosts == 9 && file.rows == 9 * 8 * 6 - 5), "{report:?}");
    let whole = |roots: &[Root]| {
        TABLES.map(|(sample, table)| {
            let table = Table::find(roots, &format!("{sample}.{table}"), None).unwrap();
            [30, 3, 600].map(|within| by_host(&table.scan(table.key(&[]), window(within))))
        })
    };
    let expected = whole(&roots);
    assert_eq!(whole(&all), expected);
    let files = report.written.iter().map(|file| file.path.clone()).collect::<Vec<_>>();
    let bytes = || files.iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>();
    let before = bytes();
    // Sorted by time, host and rank.
    for path in &files {
        let sealed = Sealed::open(fs::File::open(path).unwrap()).unwrap();
        let columns = sealed.columns(0, &|_| true).unwrap();
        let cells = ["time", "host", "rank"].map(|name| columns.cells(name).unwrap());
        let keys: Vec<_> =
            (0..columns.rows()).map(|row| (cells[0].micros(row), cells[1].text(row), cells[2].number(row))).collect();
        assert!(keys.is_sorted() && keys.len() == 9 * 8 * 6 - 5);
        assert!(sealed.schema()[..3].iter().map(|(name, _)| name).eq(["time", "host", "rank"]));
    }
    // Again: nothing changes.
    compact::run(&roots, &to, over).unwrap();
    assert!(bytes() == before, "a second run writes equal files");
    // A host whose files are gone keeps its rows, and one that is late joins.
    fs::remove_dir_all(scratch.fleet().join("host=h0003")).unwrap();
    record(&scratch.fleet(), 20, 6);
    let report = compact::run(&roots, &to, over).unwrap();
    assert!(report.written.iter().all(|file| file.hosts == 10), "{report:?}");
    let found = whole(&all);
    for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
        assert!(expected.iter().all(|(host, top)| found.get(host) == Some(top)));
        assert!(found.contains_key("h0020"));
    }
    let names = fs::read_dir(files[0].parent().unwrap()).unwrap().count();
    assert_eq!(names, 1, "nothing unfinished is left");
}

#[test]
fn a_damaged_file_is_left_out_and_named() {
    let scratch = Scratch::new("damaged");
    (0..3).for_each(|host| record(&scratch.fleet(), host, 6));
    let damaged = scratch.fleet().join("host=h0001/table=tasks.cpu/date=2026-11-25/03.parquet");
    let mut bytes = fs::read(&damaged).unwrap();
    // The metadata at the end is whole, and the data is not.
    bytes[4..2000].fill(0xff);
    fs::write(&damaged, bytes).unwrap();
    let to = Root::make(&scratch.0.join("compacted")).unwrap();
    let roots = [Root::open(&scratch.fleet()).unwrap()];
    let report = compact::run(&roots, &to, hour() + Duration::from_secs(7200)).unwrap();
    assert_eq!(report.faults.iter().map(|(path, _)| path).collect::<Vec<_>>(), [&damaged]);
    let hosts: Vec<_> = report.written.iter().map(|file| file.hosts).collect();
    assert_eq!(hosts, [3, 3, 2]);
}
