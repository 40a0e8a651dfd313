// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat tasks`: sums that hold whatever is hidden, the choice of tasks, the times of readings, and the end of the command.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;
use topstat::{Exit, Size, Wake};

use crate::console::FakeConsole;
use crate::fake::Fake;
use crate::fake::account::WALL_NS;

/// The time of all CPUs in an interval.
const ALL_NS: i128 = 2 * WALL_NS as i128;

/// The output of `topstat tasks` with these arguments on a pipe.
fn written(arguments: &str, fake: &mut Fake) -> String {
    let mut console = FakeConsole::pipe();
    assert_eq!(console.run(&format!("tasks {arguments}"), fake), Exit::Done, "{arguments}: {}", console.notes);
    console.written()
}

fn document(arguments: &str, fake: &mut Fake) -> Value {
    serde_json::from_str(&written(&format!("{arguments} -o json"), fake)).unwrap()
}

fn number(value: &Value) -> i128 {
    value.as_i64().unwrap_or_else(|| panic!("{value}")).into()
}

fn tasks(document: &Value) -> &Vec<Value> {
    document["tasks"].as_array().unwrap()
}

fn find<'a>(document: &'a Value, comm: &str) -> &'a Value {
    tasks(document).iter().find(|task| task["comm"] == comm).unwrap()
}

/// The time that belongs to no task.
fn rest(totals: &Value) -> i128 {
    ["idle_ns", "idle_irq_ns", "idle_softirq_ns", "idle_steal_ns", "unowned_ns", "unseen_ns"]
        .iter()
        .map(|key| number(&totals[key]))
        .sum()
}

const CUTS: [&str; 8] =
    ["", "-n 1", "-n 3", "-n 100", "--pid 200", "--comm nobody", "--pid 200,300 -n 1 --reverse", "--sort name -n 2"];

#[test]
fn json_adds_up_to_the_nanosecond_whatever_is_hidden() {
    for lossy in [false, true] {
        for mode in ["", "--dead", "--threads", "--threads --dead"] {
            for cut in CUTS {
                let document = document(&format!("{mode} {cut}"), &mut Fake { lossy, ..Fake::default() });
                let (other, totals) = (&document["other"], &document["totals"]);
                let shown: i128 = tasks(&document).iter().map(|task| number(&task["own"]["run_ns"])).sum();
                let sum = shown + number(&other["own"]["run_ns"]) + rest(totals);
                assert_eq!((sum, number(&totals["wall_ns"])), (ALL_NS, ALL_NS), "{mode} {cut}");
                // The sums of all other keys of tasks hold, too.
                for key in other["own"].as_object().unwrap().keys() {
                    let shown: i128 = tasks(&document).iter().map(|task| number(&task["own"][key])).sum();
                    let all = number(&totals["live"][key]) + number(&totals["ended"][key]);
                    assert_eq!(shown + number(&other["own"][key]), all, "{mode} {cut} {key}");
                }
                let cpus = document["cpus"].as_array().unwrap();
                assert_eq!(cpus.iter().map(|cpu| number(&cpu["wall_ns"])).sum::<i128>(), ALL_NS);
            }
        }
    }
}

#[test]
fn in_json_the_way_of_ptop_adds_up_too() {
    let document = document("", &mut Fake::default());
    let both = |task: &Value| number(&task["own"]["run_ns"]) + number(&task["children"]["run_ns"]);
    let counting: i128 = tasks(&document).iter().filter(|task| task["moved_to"].is_null()).map(both).sum();
    assert_eq!(counting + rest(&document["totals"]), ALL_NS);
}

#[test]
fn csv_adds_up_to_the_nanosecond_whatever_is_hidden() {
    for lossy in [false, true] {
        for mode in ["", "--dead", "--threads", "--cmdline"] {
            for cut in CUTS {
                let text = written(&format!("-o csv {mode} {cut}"), &mut Fake { lossy, ..Fake::default() });
                let mut reader = csv::Reader::from_reader(text.as_bytes());
                let records: Vec<HashMap<String, String>> = reader.deserialize().map(Result::unwrap).collect();
                let (sums, records): (Vec<_>, Vec<_>) = records.into_iter().partition(|record| record["row"] == "sum");
                let [sum] = &sums[..] else { panic!("{sums:?}") };
                let value = |record: &HashMap<String, String>, key: &str| record[key].parse::<i128>().unwrap();
                let records: Vec<_> = records.iter().filter(|record| !record["row"].starts_with("lost ")).collect();
                let all: i128 = records.iter().map(|record| value(record, "total_ns")).sum();
                assert_eq!((all, value(sum, "total_ns")), (ALL_NS, ALL_NS), "{mode} {cut}");
                for key in
                    sum.keys().filter(|key| key.ends_with("_ns") && !["elapsed_ns", "ended_ns"].contains(&key.as_str()))
                {
                    let all: i128 = records.iter().map(|record| value(record, key)).sum();
                    assert_eq!(all, value(sum, key), "{mode} {cut} {key}");
                }
                // In a record of tasks, the parts add up to the total.
                for record in records.iter().filter(|record| ["task", "other"].contains(&record["row"].as_str())) {
                    let parts = ["user_ns", "system_ns", "irq_ns", "softirq_ns", "steal_ns"];
                    let sum: i128 =
                        parts.iter().map(|part| value(record, part) + value(record, &format!("children_{part}"))).sum();
                    assert_eq!(sum, value(record, "total_ns"), "{mode} {cut}");
                }
            }
        }
    }
}

#[test]
fn the_last_line_is_the_sum_and_all_of_it() {
    for mode in ["", "--dead", "--tree", "--threads", "--wide", "--tree --threads --dead --wide --cmdline"] {
        for cut in CUTS {
            let text = written(&format!("{mode} {cut}"), &mut Fake::default());
            let sum = text.lines().last().unwrap();
            assert!(sum.trim_start().starts_with("sum ") && sum.contains(" 200.00"), "{mode} {cut}: {sum}");
        }
    }
}

#[test]
fn what_lived_for_2_ms_is_seen_with_name_parent_and_time() {
    let document = document("", &mut Fake::default());
    let blink = find(&document, "blink");
    assert_eq!((number(&blink["own"]["run_ns"]), number(&blink["elapsed_ns"])), (1_821_987, 2_000_000));
    assert_eq!(blink["moved_to"], find(&document, "make")["id"]);
    let text = written("--dead", &mut Fake::default());
    let line = text.lines().find(|line| line.contains("blink")).unwrap();
    let cells: Vec<_> = line.split_whitespace().collect();
    assert_eq!(cells, ["220", "200", "0.15", "0.03", "0.00", "0.18", "00:00", "blink", "(ended)"]);
    // Without `--dead` the task's time is in its parent's.
    assert!(!written("", &mut Fake::default()).contains("blink"));
}

#[test]
fn no_output_obeys_a_name() {
    for format in ["text", "csv", "json"] {
        for mode in ["", "--dead --cmdline", "--threads"] {
            let text = written(&format!("-o {format} {mode}"), &mut Fake::default());
            assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{format} {mode}: {text}");
            assert!(text.contains("31mb"), "{format}");
        }
    }
    assert!(written("", &mut Fake::default()).contains("a\\x1b[31mb\\x0ac"));
}

#[test]
fn command_lines_are_read_of_rows_that_are_shown_and_live() {
    let mut fake = Fake::default();
    let text = written("--cmdline --dead -n 2", &mut fake);
    assert!(text.contains("postgres: writer\\x1b]0;title\\x07") && text.contains("[cc1] (ended)"), "{text}");
    assert_eq!(fake.asked.lock().unwrap().command_lines, [300]);
    // A task that has vanished keeps its name.
    assert!(written("--cmdline", &mut Fake::default()).contains("[kworker/0:1]"));
    let mut fake = Fake::default();
    written("", &mut fake);
    assert_eq!(fake.asked.lock().unwrap().command_lines, [0; 0]);
}

#[test]
fn in_a_tree_parents_are_there_that_slept() {
    let mut fake = Fake::default();
    let text = written("--tree", &mut fake);
    let line =
        |name: &str| text.lines().position(|line| line.ends_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    assert!(line("init") < line("bash") && line("bash") < line("make") && line("kthreadd") < line("kworker/0:1"));
    let mut asked = std::mem::take(&mut fake.asked.lock().unwrap().looked_up);
    asked.sort_unstable();
    assert_eq!(asked, [1, 2, 100], "each once, and nobody else");
    // The sums include descendants: init has all tasks except kthreadd's.
    let cells = |at: usize| text.lines().nth(at).unwrap().split_whitespace().nth(1).unwrap().parse::<f64>().unwrap();
    assert!((cells(line("bash")) + cells(line("postgres")) - cells(line("init"))).abs() < 0.02, "{text}");
    written("", &mut fake);
    assert_eq!(fake.asked.lock().unwrap().looked_up, [0; 0], "only a tree asks");
}

#[test]
fn long_intervals_look_every_second_who_has_ended() {
    for (line, polls, waits) in [("1 3", 0, 3), ("0.2 2", 0, 2), ("5 2", 8, 10), ("2.5 1", 2, 3)] {
        let (mut fake, mut console) = (Fake::default(), FakeConsole::pipe());
        console.run(&format!("tasks {line}"), &mut fake);
        assert_eq!((fake.asked.lock().unwrap().polls, console.waited.len()), (polls, waits), "{line}");
    }
    let (mut fake, mut console) = (Fake::default(), FakeConsole::pipe());
    console.run("tasks 5 2", &mut fake);
    assert_eq!(console.waited.last(), Some(&Duration::from_secs(10)), "and don't drift");
}

#[test]
fn interrupts_are_left_alone_where_nobody_wants_them() {
    for (line, interrupts) in [("tasks", true), ("tasks --no-interrupts", false)] {
        let mut fake = Fake::default();
        FakeConsole::pipe().run(line, &mut fake);
        assert_eq!(fake.account_options.unwrap().interrupts, interrupts);
    }
}

#[test]
fn what_was_lost_is_shown() {
    let mut fake = Fake { lossy: true, ..Fake::default() };
    let text = written("", &mut fake);
    assert!(text.contains("lost: 3 no_memory, 2 ended_unseen, 1 overruns, 4 misplaced_ns"), "{text}");
    assert!(text.contains("unowned ") && text.contains("unseen "), "{text}");
    assert!(!written("", &mut Fake::default()).contains("lost"));
}

#[test]
fn a_terminal_is_refreshed_in_place_until_ctrl_c() {
    let mut console = FakeConsole::terminal(8, 60);
    console.resized = Some(Size { rows: 30, columns: 200 });
    console.wakes = [Wake::Deadline, Wake::Resized, Wake::Suspend, Wake::Stop].into();
    let mut fake = Fake::default();
    assert_eq!(console.run("tasks", &mut fake), Exit::Done);
    assert_eq!(console.notes, "topstat: counting; the first rows come in 1s\n");
    assert_eq!((fake.asked.lock().unwrap().intervals, console.suspended), (1, 1), "nothing is taken for a new size");
    let [small, large, left, again, last] = &console.writes[..] else { panic!("{:?}", console.writes) };
    let lines = |frame: &str| frame.matches("\x1b[K").count();
    assert_eq!((lines(small), lines(large)), (7, 2 + 4 + 3));
    // The row of sums is shown in the smallest terminal, too.
    assert!(small.contains("200.00") && small.contains("more"), "{small}");
    assert!(large.contains("kworker") && !large.contains("more"), "{large}");
    assert!(left.ends_with("\x1b[?25h") && last.ends_with("\x1b[?25h"));
    assert!(again.starts_with("\x1b[?25l"));
    assert_eq!(fake.loaded.load(Ordering::SeqCst), 0, "nothing is left loaded");
}

#[test]
fn the_tiniest_terminal_shows_something() {
    for (rows, columns) in [(1, 1), (2, 5), (5, 10)] {
        for line in ["tasks", "tasks --tree --wide --cmdline", "tasks 1 1"] {
            let mut console = FakeConsole::terminal(rows, columns);
            console.wakes = [Wake::Deadline, Wake::Stop].into();
            assert_eq!(console.run(line, &mut Fake::default()), Exit::Done);
            assert!(!console.written().is_empty());
        }
    }
}

#[test]
fn failures_give_all_back() {
    let mut console = FakeConsole::terminal(24, 80);
    let mut fake = Fake { fail_at: Some(2), ..Fake::default() };
    assert_eq!(console.run("tasks", &mut fake), Exit::Failed);
    assert!(console.written().ends_with("\x1b[?25h"));
    assert_eq!(fake.loaded.load(Ordering::SeqCst), 0);
    for (kind, exit) in [(ErrorKind::BrokenPipe, Exit::Done), (ErrorKind::StorageFull, Exit::Failed)] {
        let mut console = FakeConsole::pipe();
        console.broken = Some((1, kind));
        assert_eq!(console.run("tasks 1", &mut fake), exit);
    }
}

#[test]
fn each_interval_is_a_single_write() {
    for format in ["text", "json", "csv"] {
        let mut console = FakeConsole::pipe();
        console.run(&format!("tasks 1 3 -o {format}"), &mut Fake::default());
        assert_eq!(console.writes.len(), 3, "{format}");
    }
}
