// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program: its JSON, its exit codes, and how it ends.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_topstat-load"))
}

fn run(line: &str) -> Output {
    program().args(line.split_whitespace()).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn the_result_is_one_json_document() {
    let output = run("-c 10 -d flat:1..10 --per-connection");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let result = json(&output);
    assert_eq!(result["totals"]["transactions"], 55);
    assert_eq!(result["totals"]["ended_by"], "plan");
    assert_eq!(result["connections"][9]["server_bytes_received"], 640);
    assert_eq!(result["config"]["proto"], "tcp");
    assert!(String::from_utf8_lossy(&output.stderr).contains("55 transactions in"));
    assert_eq!(json(&run("-c 2 -n 10"))["connections"], Value::Null);
}

#[test]
fn wrong_usage_is_2_and_failure_is_1() {
    for (line, code, message) in [
        ("--no-such-option", 2, "unexpected argument"),
        ("-d uniform:x", 2, "is none of uniform:K"),
        ("-s 0", 2, "the request has 0 bytes"),
        ("--destinations 192.0.2.1", 2, "is not a loopback address"),
        ("--rate 0", 2, "a rate of 0"),
        ("--destinations 192.0.2.1 --allow-address 192.0.2.1", 1, "no such address on this host"),
        ("--client-netns /no/such/file", 1, "cannot open network namespace /no/such/file"),
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(message), "{line}: {output:?}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn an_interrupted_run_says_what_it_did() {
    let child = program().args(["-c", "5", "-t", "30"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let result = json(&output);
    assert_eq!(result["totals"]["ended_by"], "stop");
    assert!(result["totals"]["transactions"].as_u64().unwrap() > 0);
}

#[test]
fn a_low_limit_of_open_files_is_explained() {
    use std::os::unix::process::CommandExt;
    let mut command = program();
    command.args(["-c", "1000"]);
    // SAFETY: between fork and exec only async-signal-safe system calls are made: setrlimit, and prctl for root, which could
    // raise a hard limit again.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 200, rlim_max: 200 };
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
            // CAP_SYS_RESOURCE is number 24.
            libc::prctl(libc::PR_CAPBSET_DROP, 24, 0, 0, 0);
            Ok(())
        });
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("cannot open 1000 connections: they need 2"), "{message}");
    assert!(message.contains("the hard limit is 200; raise it (ulimit -Hn"), "{message}");
}

#[test]
fn help_says_how_to_use_it() {
    let output = run("--help");
    let help = String::from_utf8_lossy(&output.stdout);
    for word in ["--dist", "--churn", "--allow-address", "Examples:", "Exit codes:"] {
        assert!(help.contains(word), "{word}");
    }
}
