// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program itself: its outputs and its exit codes. No test here needs privileges.

use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn topstat(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_topstat"));
    // These variables set the width of help texts.
    command.args(line.split_whitespace()).env_remove("COLUMNS").env_remove("LINES");
    command
}

/// The program with made-up numbers. `cargo test` builds it beside the tests. With a choice of targets (`--test cli`) it is not
/// rebuilt: run `cargo build --example demo` first.
pub fn demo() -> PathBuf {
    let tests = env::current_exe().unwrap();
    let built = tests.parent().and_then(Path::parent).unwrap();
    let demo = built.join("examples/demo");
    assert!(demo.exists(), "{} is missing: cargo build --example demo", demo.display());
    demo
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Commands that write output and need no kernel.
const WRITERS: [&str; 6] = ["ls", "ls -o json", "--help", "top --help", "--version", "completions bash"];

#[test]
fn data_goes_to_stdout_and_exits_with_0() {
    for line in WRITERS {
        let output = topstat(line).output().unwrap();
        assert_eq!(code(&output), Some(0), "{line}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{line}");
        assert!(!text(&output.stdout).contains('\x1b'), "{line}");
    }
    let version = topstat("--version").output().unwrap();
    assert_eq!(text(&version.stdout), format!("topstat {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_goes_to_stderr_and_exits_with_2() {
    for line in ["frobnicate", "top -n 5", "top tcp/conns_pps abc", "top tcp_v4/conn_pps", "ls nothing", "tasks -n 0"] {
        let output = topstat(line).output().unwrap();
        assert_eq!(code(&output), Some(2), "{line}");
        assert!(output.stdout.is_empty(), "{line}");
        assert!(text(&output.stderr).starts_with("topstat: "), "{line}");
    }
}

#[test]
fn help_is_as_it_was() {
    for (line, name) in [
        ("--help", "help.txt"),
        ("-h", "help-short.txt"),
        ("top --help", "help-top.txt"),
        ("get --help", "help-get.txt"),
        ("set --help", "help-set.txt"),
        ("daemon --help", "help-daemon.txt"),
        ("record --help", "help-record.txt"),
        ("fleet --help", "help-fleet.txt"),
        ("fleet top --help", "help-fleet-top.txt"),
        ("serve --help", "help-serve.txt"),
        ("watch --help", "help-watch.txt"),
        ("view --help", "help-view.txt"),
        ("unload --help", "help-unload.txt"),
        ("tasks --help", "help-tasks.txt"),
        ("snmp --help", "help-snmp.txt"),
        ("events --help", "help-events.txt"),
        ("replay --help", "help-replay.txt"),
        ("netstack --help", "help-netstack.txt"),
        ("lab --help", "help-lab.txt"),
    ] {
        let output = topstat(line).output().unwrap();
        crate::golden::compare(name, &text(&output.stdout));
    }
}

#[test]
fn a_full_disk_is_an_error_that_names_it() {
    let mut lines = Vec::from(WRITERS.map(topstat));
    let mut top = Command::new(demo());
    top.args(["top", "tcp_v4/conns_pps", "--period", "10"]);
    lines.push(top);
    for mut command in lines {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = command.stdout(full).output().unwrap();
        assert_eq!(code(&output), Some(1), "{command:?}");
        assert_eq!(
            text(&output.stderr),
            "topstat: cannot write the output: No space left on device (os error 28)\n",
            "{command:?}"
        );
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    for line in WRITERS {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        let output = topstat(line).stdout(Stdio::from(writer)).output().unwrap();
        assert_eq!(code(&output), Some(0), "{line}");
        assert!(output.stderr.is_empty(), "{line}");
    }
}

#[test]
fn times_are_in_the_time_zone_of_their_reader_with_its_offset() {
    const SUMMER_AND_WINTER: &str = "CET-1CEST,M3.5.0,M10.5.0/3";
    for (zone, options, begin, offset) in [
        (SUMMER_AND_WINTER, "", "2026-11-21T09:00:", "+01:00"),
        (SUMMER_AND_WINTER, " -o json", "2026-11-21T09:00:", "+01:00"),
        (SUMMER_AND_WINTER, " -o csv", "2026-11-21T09:00:", "+01:00"),
        (SUMMER_AND_WINTER, " --utc", "2026-11-21T08:00:", "Z"),
        ("NST3:30", "", "2026-11-21T04:30:", "-03:30"),
        ("UTC", "", "2026-11-21T08:00:", "Z"),
    ] {
        let line = format!("top tcp_v4/conns_pps --period 10 -n 1{options}");
        let output = Command::new(demo()).args(line.split_whitespace()).env("TZ", zone).output().unwrap();
        let said = text(&output.stdout);
        let is_time = |word: &&str| word.starts_with("2026-");
        let time = said.split([' ', ',', '"', '\n']).find(is_time).unwrap_or_else(|| panic!("{zone}{options}: {said}"));
        assert!(time.starts_with(begin) && time.ends_with(offset), "{zone}{options}: {time}");
    }
}
