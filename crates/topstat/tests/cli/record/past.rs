// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat top --at` and the view show records of the past, and refuse times without a record.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use topstat_history::layout::Kind;
use topstat_history::{Gap, log};

use super::{PATIENCE, Scratch, TABLE, TOPSTAT, at, document, logs};
use crate::emulated::Terminal;

/// Whether one of the coarse records, which are kept for days, has this text.
fn is_kept(scratch: &Scratch, text: &str) -> bool {
    let mut kept = false;
    for path in logs(&scratch.history()).iter().filter(|path| !path.to_string_lossy().contains(".fine.")) {
        let mut look = |line: &[u8]| {
            kept |= String::from_utf8_lossy(line).contains(text);
            !kept
        };
        if path.to_string_lossy().ends_with(".zst") {
            log::lines(&fs::File::open(path).unwrap(), &mut look).unwrap();
        }
    }
    kept
}

#[test]
fn a_history_alone_is_viewed() {
    let scratch = Scratch::new("viewed");
    scratch.show("tcp_v4/conns_pps", 4711);
    scratch.show("tasks/cpu", 5);
    let recorder = scratch.record(&[]);
    scratch.wait_for("tcp_v4/conns_pps", 4711);
    let begin = Instant::now();
    while !is_kept(&scratch, "\"value\":4711,") {
        assert!(begin.elapsed() < PATIENCE, "it is not recorded");
        std::thread::sleep(Duration::from_millis(20));
    }
    scratch.show("tcp_v4/conns_pps", 815);
    scratch.wait_for("tcp_v4/conns_pps", 815);
    recorder.end(Signal::TERM);
    let view = |history: &Path| {
        let mut view = Command::new(TOPSTAT);
        view.args(["view", "0.1", "--mount", "/nonexistent", "--pins", "/nonexistent", "--history"]).arg(history);
        view.env("TZ", "UTC");
        Terminal::start(view, (24, 200))
    };
    let mut terminal = view(&scratch.history());
    // The last record, which is marked as not live.
    terminal.wait_for(" LAST ");
    terminal.wait_for("topstat · history");
    terminal.press("0\tx\r");
    terminal.wait_for("tcp_v4/conns_pps  total 822  other 7");
    terminal.wait_for("all 1 rows proven");
    terminal.wait_for("kept since ");
    // The bar begins with the largest record: a click goes to it.
    let text = terminal.text();
    let (y, bar) = text.lines().enumerate().find(|(_, line)| line.starts_with("kept since ")).unwrap();
    let x = bar.find("Z ").unwrap() + 2;
    terminal.press(&format!("\x1b[<0;{};{}M", x + 1, y + 1));
    terminal.wait_for(" PAST ");
    terminal.wait_for("tcp_v4/conns_pps  total 4718  other 7");
    terminal.press("(");
    terminal.wait_for("there are no records as old as");
    terminal.press("l");
    terminal.wait_for("total 822");
    terminal.press("y");
    terminal.wait_for(&format!("--history '{}'", scratch.history().display()));
    terminal.press("p5s\r");
    terminal.wait_for("these are records: nothing can be set");
    terminal.press("q");
    assert_eq!(terminal.end(), Some(0));
    terminal.assert_given_back();
    let mut terminal = view(&scratch.0.join("nothing"));
    terminal.wait_for("topstat record makes records; and ");
    assert_eq!(terminal.end(), Some(1));
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn an_instant_without_a_record_is_a_failure_that_names_the_nearest() {
    let scratch = Scratch::new("nearest");
    // Records every ten seconds from 08:10 on, with a gap from 08:11 to 08:20.
    let mut lines: Vec<_> = (600..=660).step_by(10).map(|second| document(at(second), TABLE, second)).collect();
    let gap = Gap { time: at(1200), from: at(660), reason: "the disk was full".into(), unread: None };
    lines.push(String::from_utf8(gap.line("tcp_v4", "conns_pps")).unwrap());
    lines.extend((1200..=1210).step_by(10).map(|second| document(at(second), TABLE, second)));
    scratch.log(Kind::Log, TABLE, at(0), &lines);
    let top = |time: &str| scratch.top(&[TABLE, "--at", &format!("2026-11-21T{time}Z"), "-o", "json"]);
    for (time, value) in [("08:10:09", 600), ("08:11:00", 660), ("08:20:00", 1200), ("08:20:35", 1210)] {
        let (output, text) = top(time);
        assert!(output.status.success() && text.contains(&format!("\"value\":{value},")), "{time} {output:?}");
    }
    for (time, expected) in [
        ("08:15:00", "from 2026-11-21T08:11:00.000Z to 2026-11-21T08:20:00.000Z: the disk was full"),
        ("08:15:00", "the nearest records are of 2026-11-21T08:11:00.000Z and 2026-11-21T08:20:00.000Z"),
        ("08:20:45", "the nearest record is of 2026-11-21T08:20:10.000Z, 35 s before"),
        // The error names the first record, and not the hour that the file begins with.
        ("08:05:00", ", which begin at 2026-11-21T08:10:00.000Z"),
    ] {
        let (output, text) = top(time);
        assert!(output.status.code() == Some(1) && text.is_empty(), "{time} {output:?}");
        assert!(said(&output).contains(expected), "{time} {}", said(&output));
    }
}

#[test]
fn records_of_another_host_are_shown_with_its_name() {
    let scratch = Scratch::new("elsewhere");
    scratch.log(Kind::Log, TABLE, at(0), &[document(at(0), TABLE, 7)]);
    for (arguments, covered) in [
        (&["--at", "2026-11-21T08:00:00Z"][..], ""),
        (
            &["--from", "2026-11-21T07:00:00Z", "--utc"],
            "topstat: one record of tcp_v4/conns_pps, of 2026-11-21T08:00:00.000Z\n",
        ),
    ] {
        let (output, _) = scratch.top(&[&[TABLE], arguments].concat());
        assert!(output.status.success());
        let expected = format!("topstat: these are records of tcp_v4/conns_pps of elsewhere\n{covered}");
        assert_eq!(said(&output), expected);
    }
}

#[test]
fn some_seconds_of_the_past_have_the_fine_records() {
    let scratch = Scratch::new("seconds");
    let document = |seconds: u64| document(at(seconds), TABLE, 100 + seconds);
    let lines = |step| (0..1200).step_by(step).map(document).collect::<Vec<_>>();
    scratch.log(Kind::Log, TABLE, at(0), &lines(10));
    let (first, second) = (lines(1)[..600].to_vec(), lines(1)[600..].to_vec());
    scratch.log(Kind::Fine, TABLE, at(0), &first);
    scratch.log(Kind::Fine, TABLE, at(600), &second);
    for (arguments, number, first, last) in [
        // No coarse record is within these four seconds.
        (&["--to", "2026-11-21T08:00:06Z"][..], 4, 3, 6),
        (&["--to", "2026-11-21T08:10:03Z"], 601, 3, 603),
        // A longer time has the coarse records, and with a short INTERVAL the fine ones.
        (&["--to", "2026-11-21T08:19:00Z"], 114, 10, 1140),
        (&["2s", "--to", "2026-11-21T08:19:00Z"], 569, 3, 1139),
        (&["20s", "--to", "2026-11-21T08:00:06Z"], 1, 3, 3),
    ] {
        let (output, text) =
            scratch.top(&[&[TABLE, "-o", "json", "--utc", "--from", "2026-11-21T08:00:03Z"], arguments].concat());
        let values: Vec<_> =
            text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()).collect();
        let value =
            |document: Option<&serde_json::Value>| document.unwrap()["rows"][0]["value"].as_u64().unwrap() - 100;
        let found = (values.len(), value(values.first()), value(values.last()));
        assert_eq!(found, (number, first, last), "{arguments:?} {}", said(&output));
        let time = |seconds| humantime::format_rfc3339_millis(at(seconds));
        let covered = match number {
            1 => format!("topstat: one record of {TABLE}, of {}\n", time(first)),
            _ => format!("topstat: {number} records of {TABLE}, from {} to {}\n", time(first), time(last)),
        };
        assert!(said(&output).ends_with(&covered), "{}", said(&output));
    }
}

#[test]
fn a_file_that_can_not_be_read_is_named_and_the_others_are_shown() {
    let scratch = Scratch::new("corrupt");
    for hour in 0..3 {
        scratch.log(Kind::Log, TABLE, at(hour * 3600), &[document(at(hour * 3600), TABLE, 100 + hour)]);
    }
    let logs = logs(&scratch.history());
    let second = logs.iter().find(|log| log.ends_with("09.jsonl.zst")).unwrap();
    let corrupt = second.with_file_name("09.parquet");
    fs::rename(second, &corrupt).unwrap();
    let (output, text) =
        scratch.top(&[TABLE, "--from", "2026-11-21T07:00:00Z", "--to", "2026-11-21T12:00:00Z", "-o", "json"]);
    assert!(output.status.code() == Some(1), "{output:?}");
    assert!(["\"value\":100,", "\"value\":102,"].iter().all(|value| text.contains(value)), "{text}");
    let expected = format!(
        "nothing of {TABLE} can be read from 2026-11-21T09:00:00.000Z to 2026-11-21T09:59:59.999Z: cannot read {}: ",
        corrupt.display()
    );
    assert!(said(&output).contains(&expected), "{}", said(&output));
}

#[test]
fn nothing_in_a_file_reaches_the_terminal() {
    let scratch = Scratch::new("escapes");
    let hostile = document(at(0), TABLE, 7)
        .replace("\"pid\":77", "\"pid\":77,\"\\u001b[31mkey\":\"\\u001b[31mvalue\",\"=1+1\":\"@SUM(A1)\"")
        .replace("\"rx\":1", "\"\\u009bpart\":1");
    let gap = Gap { time: at(0), from: at(0), reason: "\u{1b}[31mreason".into(), unread: None };
    let gap = String::from_utf8(gap.line("tcp_v4", "conns_pps")).unwrap();
    scratch.log(Kind::Log, TABLE, at(0), &[gap, hostile]);
    let recording = scratch.0.join("recording");
    let header = r#"{"topstat_events":1,"begun":"2026-11-21T08:00:00Z","kinds":[{"source":"\u001b[31msource","event":"\u001b[31mevent","columns":[{"name":"\u001b[31mcolumn","kind":"id"}],"payload":{"name":"\u001b[31mpayload","list":false}}]}"#;
    let known = r#"{"time":"2026-11-21T08:00:00Z","cpu":0,"seq":0,"source":"\u001b[31msource","event":"\u001b[31mevent","\u001b[31mcolumn":7,"\u001b[31mpayload":"x"}"#;
    let account = r#"{"time":"2026-11-21T08:00:00Z","source":"\u001b[31maccount","event":"account","produced":0,"delivered":0,"cut":0,"dropped":0,"skipped":0,"shown":0,"late":0}"#;
    let unknown = r#"{"time":"2026-11-21T08:00:00Z","source":"\u001b[31munknown","event":"\u001b[31munknown"}"#;
    let lines = format!("{header}\n{known}\n{account}\n{unknown}\n");
    fs::write(&recording, zstd::stream::encode_all(lines.as_bytes(), 1).unwrap()).unwrap();
    let rules = scratch.0.join("rules");
    fs::write(&rules, "\u{1b}[31mrules: x\n").unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(TOPSTAT);
        command.args(arguments).stdin(Stdio::null()).output().unwrap()
    };
    let history = scratch.history();
    let (history, recording, rules) = (history.to_str().unwrap(), recording.to_str().unwrap(), rules.to_str().unwrap());
    let from = "2026-11-21T07:00:00Z";
    for (arguments, shown) in [
        (
            &["top", TABLE, "--from", from, "--history", history][..],
            &["\\x1b[31mkey", "\\x1b[31mvalue", "\\xc2\\x9bpart"][..],
        ),
        (
            &["top", TABLE, "--from", from, "--history", history, "-o", "csv"],
            &[",\\x1b[31mkey", ",'=1+1", ",'@SUM(A1)", ",\\x1b[31mvalue"],
        ),
        (&["top", TABLE, "--from", from, "--history", history, "-o", "json"], &["\\u001b[31mkey"]),
        (
            &["replay", recording],
            &[
                "\\x1b[31msource \\x1b[31mevent \\x1b[31mcolumn=7 \\x1b[31mpayload=",
                "\\x1b[31maccount: ",
                "no event \\x1b[31munknown \\x1b[31munknown",
            ],
        ),
        (&["netstack", "classify", "--rules", rules], &["\\x1b[31m"]),
    ] {
        let output = run(arguments);
        let all = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(!all.chars().any(|c| c.is_control() && c != '\n'), "{arguments:?} {all:?}");
        for part in shown {
            assert!(all.contains(part), "{arguments:?} {part} {all}");
        }
    }
}

#[test]
fn a_directory_that_others_can_write_is_refused() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let scratch = Scratch::new("refused-dir");
    scratch.show(TABLE, 1);
    fs::create_dir(scratch.history()).unwrap();
    let precious = scratch.0.join("precious");
    let refused = || {
        let mut recorder = scratch.record(&[]);
        let begin = Instant::now();
        while recorder.0.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < PATIENCE, "it records");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut said = String::new();
        recorder.0.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
        (recorder.0.wait().unwrap().code(), said)
    };
    fs::set_permissions(scratch.history(), fs::Permissions::from_mode(0o777)).unwrap();
    let (code, said) = refused();
    assert!(code == Some(1) && said.contains("others than its owner may write to it (mode 0777)"), "{code:?} {said}");
    fs::set_permissions(scratch.history(), fs::Permissions::from_mode(0o700)).unwrap();
    symlink(&precious, scratch.history().join("recorder.lock")).unwrap();
    let (code, said) = refused();
    assert!(code == Some(1) && said.contains("it is a symbolic link, and none is followed"), "{code:?} {said}");
    assert!(!precious.exists());
}
