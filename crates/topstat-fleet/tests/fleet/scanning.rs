// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The last snapshot of each host is found, in either layout.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use topstat_fleet::Root;
use topstat_fleet::bounds::HostTop;
use topstat_fleet::compact;
use topstat_fleet::hosts::Hosts;
use topstat_fleet::scan::{Scan, Table, Window};
use topstat_history::Privacy;
use topstat_history::private::{Hide, Which};
use topstat_model::Reach;

use crate::fixtures::{Scratch, TABLES, hour, name, record, record_without, snapshot};

/// The time of the question: 03:12:00.
pub fn window(within: u64) -> Window {
    let at = hour() + Duration::from_secs(720);
    Window { from: at - Duration::from_secs(within), at }
}

/// The rows of each host by the names of objects, whatever the order in which hosts and objects were found.
pub fn by_host(scan: &Scan) -> BTreeMap<String, (HostTop, Vec<String>)> {
    let of = |host: &HostTop| {
        let mut host = host.clone();
        let names = host.rows.iter().map(|row| scan.objects[row.object as usize].to_string()).collect();
        host.rows.iter_mut().for_each(|row| row.object = 0);
        (host, names)
    };
    scan.names.iter().cloned().zip(scan.hosts.iter().map(of)).collect()
}

#[test]
fn the_last_snapshot_of_each_host_counts() {
    let scratch = Scratch::new("scan");
    (0..12).for_each(|host| record(&scratch.fleet(), host, 8));
    let roots = [Root::open(&scratch.fleet()).unwrap()];
    for (sample, table) in TABLES {
        let files = Table::find(&roots, &format!("{sample}.{table}"), None).unwrap();
        let scan = files.scan(files.key(&[]), window(30));
        assert_eq!((scan.faults.len(), scan.names.len()), (0, 12));
        for (host, (top, names)) in by_host(&scan) {
            let host = (0..12).find(|number| name(*number) == host).unwrap();
            // 03:12:00 less the host's offset in the ten seconds.
            let second = 720 - if host % 10 == 0 { 0 } else { 10 - host % 10 };
            let rows = if host == 5 && second == 715 { 0 } else { 16 };
            let mut truth = snapshot(sample, table, hour() + Duration::from_secs(second), host, rows);
            truth.truncate(8);
            assert_eq!((top.total, top.other, top.proven), (truth.total, truth.other, truth.proven.into()), "{host}");
            assert_eq!(top.doubt, host % 11 == 4);
            let values: Vec<_> = truth.rows.iter().map(|row| row.value).collect();
            assert_eq!(top.rows.iter().map(|row| row.value).collect::<Vec<_>>(), values);
            let shown = |row: &topstat_model::Row| match sample {
                "net_cgroups" => row.object[0].to_string(),
                "net_ports" => format!("{}\t{}", row.object[0], row.object[1]),
                _ => format!("{}\t{}\t{}", name(host), row.object[0], row.object[1]),
            };
            assert_eq!(names, truth.rows.iter().map(shown).collect::<Vec<_>>());
            let spans = |row: &topstat_model::Row| match scan.key.reach {
                Reach::Local => false,
                Reach::Spanning => row.object[1].is_none(),
                Reach::Part => true,
            };
            let found: Vec<_> = top.rows.iter().map(|row| row.spans).collect();
            assert_eq!(found, truth.rows.iter().map(spans).collect::<Vec<_>>());
        }
    }
    let files = Table::find(&roots, "tasks.cpu", None).unwrap();
    let by = |columns: &[&str]| files.key(&columns.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).reach;
    assert_eq!((by(&["comm"]), by(&["comm", "pid"]), by(&[])), (Reach::Part, Reach::Local, Reach::Local));
    assert_eq!(files.last(), Some(hour() + Duration::from_secs(739)));
}

#[test]
fn hosts_that_do_not_report_are_missing_and_damaged_files_are_named() {
    let scratch = Scratch::new("missing");
    (0..4).for_each(|host| record(&scratch.fleet(), host, 4));
    let damaged = scratch.fleet().join("host=h0002/table=tasks.cpu/date=2026-11-25/03.parquet");
    let mut bytes = fs::read(&damaged).unwrap();
    bytes.truncate(bytes.len() / 2);
    fs::write(&damaged, bytes).unwrap();
    let roots = [Root::open(&scratch.fleet()).unwrap()];
    let files = Table::find(&roots, "tasks.cpu", None).unwrap();
    let scan = files.scan(files.key(&[]), window(30));
    assert_eq!(scan.faults.iter().map(|(path, _)| path).collect::<Vec<_>>(), [&damaged]);
    assert_eq!(by_host(&scan).into_keys().collect::<Vec<_>>(), ["007", "h0001", "h0003"]);
    // Each host's snapshots begin at an offset: one of them is in these two seconds.
    let scan = files.scan(files.key(&[]), window(2));
    assert_eq!(by_host(&scan).into_keys().collect::<Vec<_>>(), ["007"]);
    let hosts = Hosts::find(&roots, Some("tasks.cpu"), window(30)).unwrap();
    assert_eq!(hosts.faults.len(), 1);
    let inventory = ["007", "h0002", "h0003"].map(str::to_owned);
    assert_eq!((hosts.missing(&inventory), hosts.unknown(&inventory)), (vec!["h0002"], vec!["h0001"]));
    let all = Hosts::find(&roots, None, window(30)).unwrap();
    assert_eq!((all.reported.len(), all.reported["h0002"].tables.len(), all.reported["007"].tables.len()), (4, 2, 3));
    assert_eq!(all.reported["007"].last, window(30).at);
}

#[test]
fn one_host_that_hides_a_column_widens_the_bounds_of_all() {
    let scratch = Scratch::new("hidden");
    let column = |name: &str| Which::Named(name.to_owned());
    let hides = |name, hide| Privacy::new(vec![(column(name), hide)], b"key");
    record_without(&scratch.fleet(), 1, 4, &hides("pid", Hide::Drop));
    record_without(&scratch.fleet(), 2, 4, &hides("cgroup", Hide::Hash));
    record(&scratch.fleet(), 3, 4);
    let roots = [Root::open(&scratch.fleet()).unwrap()];
    let to = scratch.0.join("compacted");
    compact::run(&roots, &Root::make(&to).unwrap(), hour() + Duration::from_secs(7200)).unwrap();
    let compacted = [Root::open(&to).unwrap()];
    // The newest file of the hosts' directories is the third host's, which hides nothing.
    for (roots, newest) in [(&roots, Reach::Local), (&compacted, Reach::Part)] {
        let files = Table::find(roots, "tasks.cpu", None).unwrap();
        assert_eq!((files.key(&[]).reach, files.hides_columns(window(30))), (newest, true));
        let scan = files.scan(files.key(&[]), window(30));
        assert_eq!((scan.key.reach, scan.faults.len(), scan.names.len()), (Reach::Part, 0, 3));
        let found = by_host(&scan);
        assert!(found["h0001"].1.iter().all(|name| name.starts_with("-\tworker ")), "{found:?}");
        // A hash names the object of a host as its value does.
        let files = Table::find(roots, "net_cgroups.bps", None).unwrap();
        assert!(!files.hides_columns(window(30)));
        let found = by_host(&files.scan(files.key(&[]), window(30)));
        assert!(
            found["h0002"].1.iter().all(|name| name.len() == 16) && found["h0003"].1[0].starts_with('/'),
            "{found:?}"
        );
    }
}
