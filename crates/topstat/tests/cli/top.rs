// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat top`: the times of snapshots, the rows that are shown, and the end of the command.

use std::io::ErrorKind;
use std::time::Duration;

use topstat::{Exit, Facts, Size, Wake};

use crate::console::FakeConsole;
use crate::fake::Fake;

const SHOW_CURSOR: &str = "\x1b[?25h";
const HIDE_CURSOR: &str = "\x1b[?25l";

fn ms(times: &[u64]) -> Vec<Duration> {
    times.iter().copied().map(Duration::from_millis).collect()
}

/// The lines with a row: they begin with a rank.
fn rows(text: &str) -> Vec<&str> {
    let is_row = |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
    text.lines().filter(is_row).collect()
}

/// The text of a frame, without sequences that move the cursor or clear the screen.
fn plain(frame: &str) -> String {
    let mut text = frame.to_owned();
    for sequence in ["\x1b[H", "\x1b[K", "\x1b[J", "\x1b[?7l", "\x1b[?7h", "\x1b[1m", "\x1b[2m", "\x1b[0m", HIDE_CURSOR]
    {
        text = text.replace(sequence, "");
    }
    text.trim_start_matches('\n').to_owned()
}

#[test]
fn snapshots_are_on_time_however_slow_the_output() {
    let mut console = FakeConsole::pipe();
    console.slow = Duration::from_millis(90);
    let exit = console.run("top tcp_v4/conns_pps 0.5 4 -o json", &mut Fake::default());
    assert_eq!(exit, Exit::Done);
    // The first snapshot comes after a full period, the others after an interval each.
    assert_eq!(console.waited, ms(&[1000, 1500, 2000, 2500]));

    // Writing takes longer than the interval: missed snapshots are left out, and the schedule is kept.
    let mut console = FakeConsole::pipe();
    console.slow = Duration::from_millis(1200);
    console.run("top tcp_v4/conns_pps 0.5 3 -o json", &mut Fake::default());
    assert_eq!(console.waited, ms(&[1000, 2500, 4000]));
}

#[test]
fn threads_are_ranked_where_objects_are_processes() {
    for (line, threads) in [("top tasks/cpu", false), ("top tasks/cpu --threads", true), ("top delays/blkio -H", true)]
    {
        let mut fake = Fake::default();
        assert_eq!(FakeConsole::pipe().run(line, &mut fake), Exit::Done, "{line}");
        assert_eq!(fake.options.map(|options| options.threads), Some(threads), "{line}");
    }
}

#[test]
fn a_period_passes_before_the_first_rows_and_somebody_is_told() {
    let mut console = FakeConsole::terminal(24, 80);
    console.run("top udp_v4/conns_pps 1 1 --period 10s", &mut Fake::default());
    assert_eq!(console.waited, ms(&[10_000]));
    assert_eq!(console.notes, "topstat: counting; the first rows come in 10s\n");

    let mut console = FakeConsole::pipe();
    console.run("top udp_v4/conns_bytes 5 2", &mut Fake::default());
    assert_eq!(console.waited, ms(&[5000, 10_000]));
    assert_eq!(console.notes, "", "nobody waits in front of a pipe");
}

#[test]
fn a_pipe_gets_raw_numbers_and_all_rows() {
    let mut console = FakeConsole::pipe();
    let mut fake = Fake::default();
    assert_eq!(console.run("top tcp_v4/conns_bps", &mut fake), Exit::Done);
    let text = console.written();
    assert!(!text.contains('\x1b'));
    assert!(text.contains("1000001"), "{text}");
    assert_eq!(rows(&text).len(), 128);
    assert_eq!(fake.options.unwrap().top, 128);
    assert_eq!(fake.loaded.load(std::sync::atomic::Ordering::SeqCst), 0, "nothing is left loaded");
}

#[test]
fn without_a_table_a_pipe_gets_one_summary() {
    for line in ["", "top"] {
        let mut console = FakeConsole::pipe();
        assert_eq!(console.run(line, &mut Fake::default()), Exit::Done);
        let text = console.written();
        for title in ["CPU, % of all CPUs", "network, bit/s", "disk, byte/s", "ended in the last 10 s"] {
            assert!(text.contains(&format!("\n\n{title}")), "{title}: {text}");
        }
        assert_eq!(console.waited, ms(&[1000]));
    }
}

#[test]
fn a_summary_is_no_csv() {
    let mut console = FakeConsole::pipe();
    assert_eq!(console.run("top -o csv", &mut Fake::default()), Exit::Usage);
    assert!(console.notes.contains("name a table, or write it by -o json"), "{}", console.notes);
}

#[test]
fn a_larger_n_makes_a_larger_table() {
    let mut console = FakeConsole::pipe();
    let mut fake = Fake::default();
    console.run("top tcp_v4/conns_pps -n 150 --delay 5 --period 2000", &mut fake);
    let options = fake.options.unwrap();
    assert_eq!((options.top, options.period_ms, options.delay_ms), (150, 2000, 5));
    assert_eq!(rows(&console.written()).len(), 150);
}

#[test]
fn a_terminal_is_refreshed_in_place_until_ctrl_c() {
    for line in ["top tcp_v4/conns_pps", "top tcp_v4/conns_pps 1"] {
        let mut console = FakeConsole::terminal(24, 120);
        console.wakes = [Wake::Deadline, Wake::Deadline, Wake::Stop].into();
        let mut fake = Fake::default();
        assert_eq!(console.run(line, &mut fake), Exit::Done);
        assert_eq!(console.waited, ms(&[1000, 2000]));
        let [first, second, last] = &console.writes[..] else { panic!("{:?}", console.writes) };
        assert!(first.starts_with(HIDE_CURSOR) && first.contains("\x1b[H"));
        assert!(second.starts_with("\x1b[H"));
        assert!(last.ends_with(SHOW_CURSOR));
        assert!(!console.written().contains("\x1b[?1049h"), "no alternate screen");
        // The lines are: title, names, 19 rows, other, total, and the cursor's line.
        assert_eq!(rows(&plain(second)).len(), 19);
        assert_eq!(plain(second).lines().count(), 23);
        assert!(second.contains("1.00M"), "human units");
        assert!(second.contains("\x1b[1m"), "colours");
        assert_eq!(fake.loaded.load(std::sync::atomic::Ordering::SeqCst), 0);
    }
}

#[test]
fn tables_of_a_common_name_are_one_ranking() {
    let mut console = FakeConsole::terminal(24, 200);
    console.run("top tcp/conns_pps 1 1", &mut Fake::default());
    let text = plain(&console.writes[0]);
    assert!(text.starts_with("tcp/conns_pps  ") && !text.contains("tcp_v"), "{text}");
    assert!(text.contains("10.0.0.0") && text.contains("2001:db8::"), "{text}");
    assert_eq!((text.lines().count(), rows(&text).len()), (23, 19), "{text}");
    let mut console = FakeConsole::terminal(24, 200);
    console.run("top tcp/conns_pps 1 1 -6", &mut Fake::default());
    assert!(plain(&console.writes[0]).starts_with("tcp_v6/conns_pps  "), "{text}");
}

#[test]
fn rows_are_cut_off_after_they_are_sorted() {
    let mut console = FakeConsole::pipe();
    console.run("top tcp_v4/conns_pps --sort comm -n 130 --top 130", &mut Fake::default());
    let shown = console.written();
    let names: Vec<_> = rows(&shown).iter().map(|row| row.contains("nginx")).collect();
    assert_eq!(names, [vec![true; 65], vec![false; 65]].concat(), "{shown}");
    assert!(rows(&shown)[64].trim_start().starts_with("129 "), "ranks stay: {shown}");
}

#[test]
fn orders_and_folds_that_do_not_apply_are_refused() {
    for (line, why) in [
        (
            "top tcp_v4/conns_pps --sort nothing",
            "--sort 'nothing': tcp_v4/conns_pps has no such column: it has rx, tx, sip, ",
        ),
        ("top tcp_v4/conns_pps --sort dport -o json", "--sort is for text and CSV"),
        ("top tasks/cpu --fold", "--fold is for tables of connections, and tasks/cpu has no two ends of one"),
    ] {
        let mut console = FakeConsole::pipe();
        assert_eq!(console.run(line, &mut Fake::default()), Exit::Usage, "{line}");
        assert!(console.notes.contains(why), "{line}: {}", console.notes);
    }
    assert_eq!(FakeConsole::pipe().run("top tcp/conns_pps --fold", &mut Fake::default()), Exit::Done);
}

#[test]
fn tables_that_can_not_be_compared_share_the_terminal() {
    let mut console = FakeConsole::terminal(24, 200);
    console.wakes = [Wake::Deadline, Wake::Stop].into();
    console.run("top tcp/conns_pps", &mut Fake { apart: true, ..Fake::default() });
    let text = plain(&console.writes[0]);
    assert_eq!(text.lines().count(), 23, "{text}");
    assert_eq!(rows(&text).len(), 14, "{text}");
    assert!(text.starts_with("tcp_v4/conns_pps  "), "{text}");
    assert!(text.contains("\n\ntcp_v6/conns_pps  "), "{text}");
}

#[test]
fn a_new_size_is_used_at_once() {
    let mut console = FakeConsole::terminal(24, 120);
    console.resized = Some(Size { rows: 10, columns: 120 });
    // The first change of the size comes before there is a snapshot.
    console.wakes = [Wake::Resized, Wake::Deadline, Wake::Resized, Wake::Stop].into();
    console.size = Some(Size { rows: 24, columns: 120 });
    console.run("top tcp_v4/conns_pps", &mut Fake::default());
    assert_eq!(console.waited.len(), 1, "no snapshot is taken for it");
    assert_eq!(plain(&console.writes[1]).lines().count(), 9);
    assert_eq!(console.writes[0].matches(HIDE_CURSOR).count(), 1);
    assert!(!console.writes[1].contains(HIDE_CURSOR));
}

#[test]
fn the_tiniest_terminal_shows_something() {
    for size in [(1, 1), (2, 5), (4, 10)] {
        let mut console = FakeConsole::terminal(size.0, size.1);
        console.wakes = [Wake::Deadline, Wake::Stop].into();
        assert_eq!(console.run("top tcp/conns_pps", &mut Fake::default()), Exit::Done);
        let lines = plain(&console.writes[0]).lines().count();
        assert_eq!(lines, usize::from(size.0).saturating_sub(1).max(1));
    }
}

#[test]
fn ctrl_z_gives_the_terminal_back_for_a_while() {
    let mut console = FakeConsole::terminal(24, 120);
    console.wakes = [Wake::Deadline, Wake::Suspend, Wake::Stop].into();
    console.run("top tcp_v4/conns_pps", &mut Fake::default());
    assert_eq!(console.suspended, 1);
    let [first, left, again, last] = &console.writes[..] else { panic!("{:?}", console.writes) };
    assert!(first.starts_with(HIDE_CURSOR) && again.starts_with(HIDE_CURSOR));
    assert!(left.ends_with(SHOW_CURSOR) && last.ends_with(SHOW_CURSOR));
    assert_eq!(plain(first), plain(again));
}

#[test]
fn a_dumb_terminal_gets_one_after_the_other() {
    let mut console = FakeConsole::terminal(10, 120);
    console.facts.dumb = true;
    console.wakes = [Wake::Deadline, Wake::Deadline, Wake::Stop].into();
    console.run("top tcp_v4/conns_pps", &mut Fake::default());
    assert_eq!(console.writes.len(), 2);
    assert!(!console.written().contains('\x1b'));
    assert!(console.writes[1].starts_with("\ntcp_v4/conns_pps"));
    assert_eq!(rows(&console.writes[1]).len(), 5);
}

#[test]
fn no_color_leaves_what_moves_the_cursor() {
    let no_color = Facts { no_color: true, ..FakeConsole::terminal(1, 1).facts };
    for (line, facts) in
        [("--color never top tcp_v4/conns_pps", FakeConsole::terminal(1, 1).facts), ("top tcp_v4/conns_pps", no_color)]
    {
        let mut console = FakeConsole::terminal(24, 120);
        console.facts = facts;
        console.wakes = [Wake::Deadline, Wake::Stop].into();
        console.run(line, &mut Fake::default());
        assert!(!console.writes[0].contains("\x1b[1m"));
        assert!(console.writes[0].contains("\x1b[H"));
    }
}

#[test]
fn a_single_snapshot_leaves_the_terminal_alone() {
    let mut console = FakeConsole::terminal(24, 120);
    console.facts.no_color = true;
    console.run("top tcp_v4/conns_pps 1 1", &mut Fake::default());
    assert!(!console.written().contains('\x1b'));
    assert_eq!(rows(&console.written()).len(), 19);
    let mut console = FakeConsole::terminal(24, 120);
    console.run("top tcp_v4/conns_pps 1 1 -n 40", &mut Fake::default());
    assert_eq!(rows(&console.written()).len(), 40, "who asks for more gets it");
}

#[test]
fn machine_formats_are_the_same_on_a_terminal() {
    for line in ["top tcp/conns_pps -o json", "top tcp/conns_pps 1 2 -o csv"] {
        let (mut pipe, mut terminal) = (FakeConsole::pipe(), FakeConsole::terminal(24, 80));
        pipe.run(line, &mut Fake::default());
        terminal.run(line, &mut Fake::default());
        assert_eq!(pipe.written(), terminal.written());
    }
}

#[test]
fn json_is_one_document_per_ranking_and_snapshot() {
    let mut console = FakeConsole::pipe();
    console.run("top tcp/conns_pps 1 2 -o json -n 3 --comm nginx", &mut Fake::default());
    let text = console.written();
    let documents: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let samples: Vec<_> = documents.iter().map(|d| d["sample"].as_str().unwrap()).collect();
    assert_eq!(samples, ["tcp", "tcp"]);
    for document in documents {
        let rows = document["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 3);
        let sum: u64 = rows.iter().map(|row| row["value"].as_u64().unwrap()).sum();
        assert_eq!(sum + document["other"].as_u64().unwrap(), document["total"].as_u64().unwrap());
        assert_eq!(document["filter"]["text"], "comm=nginx");
        // Half of the 128 rows.
        assert_eq!(document["filter"]["matched"], 64);
    }
}

#[test]
fn csv_names_its_columns_once() {
    let mut console = FakeConsole::pipe();
    console.run("top tcp/conns_pps 1 3 -o csv -n 1", &mut Fake::default());
    let text = console.written();
    assert_eq!(text.matches("time,sample,table").count(), 1);
    assert_eq!(text.lines().count(), 1 + 3 * 3);
}

#[test]
fn a_stop_before_the_first_rows_is_a_normal_end() {
    for wake in [Wake::Stop, Wake::Closed] {
        let mut console = FakeConsole::terminal(24, 80);
        console.wakes = [wake].into();
        let mut fake = Fake::default();
        assert_eq!(console.run("", &mut fake), Exit::Done);
        assert_eq!(console.written(), "");
        assert_eq!(fake.loaded.load(std::sync::atomic::Ordering::SeqCst), 0);
    }
}

#[test]
fn a_broken_output_ends_it() {
    for (kind, exit, note) in [
        (ErrorKind::BrokenPipe, Exit::Done, ""),
        (ErrorKind::Interrupted, Exit::Done, ""),
        (ErrorKind::StorageFull, Exit::Failed, "topstat: cannot write the output: no storage space\n"),
    ] {
        let mut console = FakeConsole::pipe();
        console.broken = Some((1, kind));
        let mut fake = Fake::default();
        assert_eq!(console.run("top tcp_v4/conns_pps 1", &mut fake), exit);
        assert_eq!(console.notes, note);
        assert_eq!(console.waited.len(), 2);
        assert_eq!(fake.loaded.load(std::sync::atomic::Ordering::SeqCst), 0);
    }
}

#[test]
fn a_failed_snapshot_gives_the_terminal_back() {
    let mut console = FakeConsole::terminal(24, 80);
    let mut fake = Fake { fail_at: Some(2), ..Fake::default() };
    assert_eq!(console.run("top tcp_v4/conns_pps", &mut fake), Exit::Failed);
    assert!(console.written().ends_with(SHOW_CURSOR));
    assert!(
        console.notes.ends_with("topstat: cannot take a snapshot of tcp_v4/conns_pps: Invalid argument (EINVAL)\n")
    );
    assert_eq!(fake.loaded.load(std::sync::atomic::Ordering::SeqCst), 0);
}
