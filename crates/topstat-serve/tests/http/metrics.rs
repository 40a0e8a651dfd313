// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Prometheus gets.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::model::{ROWS, Server, tables};

/// The samples of a text: the line before the number, and the number.
fn samples(text: &str) -> Vec<(&str, f64)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').map(|(name, number)| (name, number.parse().unwrap())).unwrap()).collect()
}

#[test]
fn the_ranks_and_other_add_up_to_the_total() {
    let server = Server::start();
    let text = server.get("/metrics").body;
    let samples = samples(&text);
    for (table, unit, factor) in [
        ("sample=\"net_procs\",table=\"bps\"", "bytes", 0.125),
        ("sample=\"net_procs\",table=\"pps\"", "packets", 1.0),
        ("sample=\"net_procs\",table=\"retrans\"", "segments", 1.0),
        ("sample=\"tasks\",table=\"cpu\"", "seconds", 1e-9),
        ("sample=\"tasks\",table=\"switches\"", "events", 1.0),
    ] {
        let prefix = format!("topstat_rank_{unit}_per_second{{{table},rank=");
        let ranks: Vec<_> = samples.iter().filter(|(name, _)| name.starts_with(&prefix)).collect();
        assert_eq!(ranks.len(), 11, "{prefix}");
        // The model's values grow by 8 with each read, in steps of 8000 from rank to rank.
        let sum: f64 = ranks.iter().map(|(_, number)| number).sum::<f64>() / factor;
        let least = (1..=ROWS).map(|rank| rank * 8000).sum::<u64>() + 1000;
        let reads = (sum - least as f64) / (8 * ROWS) as f64;
        assert!((reads - reads.round()).abs() < 1e-3 && (0.0..1000.0).contains(&reads), "{table}: {sum} {reads}");
        assert!(ranks[0].1 > ranks[9].1 && ranks[10].1 > ranks[9].1);
    }
    let pushed = "topstat_pushed_bytes_total{sample=\"net_procs\",table=\"bps\"}";
    let number = |name: &str| samples.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name}")).1;
    assert!((number(pushed) - 123_456_789.0 / 8.0).abs() < 1e-6);
    assert_eq!(number("topstat_lost_total{sample=\"tasks\",table=\"cpu\",cause=\"contended\"}"), 3.0);
    assert_eq!(number("topstat_daemon_cpu_seconds_total"), 1.5);
    assert_eq!(number("topstat_up"), 1.0);
    assert!(!text.contains("topstat_object_bytes_total"), "objects have no series unless asked for");
}

#[test]
fn promtool_has_no_complaint() {
    let server = Server::with(false, |config| config.objects = vec!["net_procs/bytes".into()]);
    for _ in 0..4 {
        server.get("/metrics");
        std::thread::sleep(Duration::from_millis(1010));
    }
    let text = server.get("/metrics").body;
    let objects = text.lines().filter(|line| line.starts_with("topstat_object_bytes_total{")).count();
    assert_eq!(objects, 20, "K series of a table");
    let open = server.get_with("/metrics", "Accept: application/openmetrics-text; version=1.0.0,text/plain;q=0.5\r\n");
    assert_eq!(open.header("content-type"), Some("application/openmetrics-text; version=1.0.0; charset=utf-8"));
    assert!(open.body.ends_with("\n# EOF\n") && !open.body.contains("# TYPE topstat_lost_total"));
    let promtool = std::env::var_os("PROMTOOL").unwrap_or_else(|| "promtool".into());
    let spawned = Command::new(&promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            eprintln!(
                "skipped: promtool ({}) is not there: {error}; Debian's package prometheus has it",
                promtool.display()
            );
            return;
        }
    };
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
}

#[test]
fn only_chosen_tables_are_read_and_all_sums_are_there() {
    let server = Server::with(false, |config| config.metrics = vec!["tasks".into(), "net_procs/pps".into()]);
    let text = server.get("/metrics").body;
    assert_eq!(server.model.reads.load(std::sync::atomic::Ordering::SeqCst), 3);
    let ranks = |table: &str| text.lines().filter(|l| l.starts_with("topstat_rank_") && l.contains(table)).count();
    assert_eq!(["cpu", "switches", "pps", "bps"].map(|table| ranks(&format!("table=\"{table}\""))), [11, 11, 11, 0]);
    assert!(text.contains("topstat_pushed_bytes_total{sample=\"net_procs\",table=\"bps\"}"), "{text}");
}

#[test]
fn the_number_of_series_depends_on_tables_alone() {
    let server = Server::start();
    let names = || {
        let text = server.get("/metrics").body;
        let mut names: Vec<_> = samples(&text).into_iter().map(|(name, _)| name.to_owned()).collect();
        names.sort();
        names
    };
    let first = names();
    std::thread::sleep(Duration::from_millis(120));
    assert_eq!(names(), first);
    assert!(first.windows(2).all(|two| two[0] != two[1]), "a series stands twice");
    assert!(first.len() < tables().len() * 20 + 20, "{}", first.len());
}
