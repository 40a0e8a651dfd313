// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Boots real guests, and checks that their events are detected. These tests run with `make vm-test` only: they fail on a
//! host that can't run guests, and say why.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use topstat_vm::cache::Cache;
use topstat_vm::guest::Job;
use topstat_vm::kernel::{self, Series};
use topstat_vm::klog::AllowList;
use topstat_vm::qemu::{Cgroup, Flavour, Machine, Tier};
use topstat_vm::session::{self, Outcome, Plan, Session};
use topstat_vm::watch::Stream;
use topstat_vm::{EXIT_GUEST, EXIT_SKIPPED, Unavailable, debug, deps};

/// The time limit of a command: enough for all commands here, and short for the one that hangs.
const LIMIT: Duration = Duration::from_secs(8);

fn topstat_vm(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_topstat-vm"));
    command.args(arguments);
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs shell command lines on one kernel; returns the results and the output.
fn run(lines: &[&str], out: Option<&Path>) -> (Session, Vec<String>) {
    run_on(lines, out, Tier::Stock)
}

fn run_on(lines: &[&str], out: Option<&Path>, tier: Tier) -> (Session, Vec<String>) {
    let run = || -> anyhow::Result<(Session, Vec<String>)> {
        let tools = deps::tools()?;
        let cache = Cache::from_env();
        let kernel = match tier {
            Tier::Debug => debug::cached(&cache)
                .ok_or_else(|| Unavailable("the debug kernel is not built: topstat-vm fetch --debug".into()))?,
            _ => kernel::fetch(&cache, Series::V6_1, Flavour::CloudAmd64, false)?,
        };
        // The debug kernel boots like any other.
        let booted = if tier == Tier::Debug { Tier::Stock } else { tier };
        let machine = Machine { tier: booted, cpus: 2, memory_mib: 1024, append: vec![] };
        let job = |line: &&str| Job::new(["/bin/sh", "-c", line].map(str::to_owned).to_vec(), &[]);
        let jobs = lines.iter().map(job).collect::<anyhow::Result<Vec<_>>>()?;
        let plan = Plan {
            tools: &tools,
            kernel: &kernel,
            machine: &machine,
            cgroup: Cgroup::V2,
            jobs: &jobs,
            limit: LIMIT * tier.patience(),
            allow: &AllowList::built_in()?,
            out: out.map(Path::to_owned),
        };
        let mut printed = vec![String::new(); lines.len()];
        let session = session::run(&plan, &mut |index, stream, bytes| {
            if stream == Stream::Out {
                printed[index] += &String::from_utf8_lossy(bytes);
            }
        })?;
        Ok((session, printed))
    };
    run().unwrap_or_else(|error| panic!("{error:#}"))
}

#[test]
#[ignore = "boots virtual machines, and fetches kernels for them: make vm-test"]
fn what_happens_in_a_guest_is_seen() {
    let marker = "/etc/topstat-vm-wrote-this";
    let write = format!("echo kept > {marker} && cat {marker} && mount -o remount,rw / && nproc");
    let left = format!("test ! -e {marker}");
    let out = tempfile::tempdir().unwrap();
    let lines = [
        "true",
        "false",
        &write,
        "echo more memory wanted; exit 77",
        // The command is reported, though it succeeds.
        "echo 'WARNING: this is only a test' > /dev/kmsg",
        "echo c > /proc/sysrq-trigger",
        &left,
        "ls /sys/fs/bpf /sys/kernel/tracing/events /sys/fs/cgroup/cgroup.procs /dev/shm >/dev/null && ip addr show lo | grep -q ,UP",
        "echo result > $TOPSTAT_VM_OUT/file",
        "echo begun; sleep 1000",
        "true",
    ];
    let (session, printed) = run(&lines, Some(out.path()));
    let outcomes: Vec<&Outcome> = session.judged.iter().map(|judged| &judged.outcome).collect();
    // A crash is named with the functions that called it, which differ from kernel to kernel.
    let crash = &session.judged[5].outcome;
    let is_panic = |text: &String| {
        text.starts_with("Kernel panic - not syncing: sysrq triggered crash by ") && text.ends_with(" while sh ran")
    };
    assert!(matches!(crash, Outcome::Crashed(text) if is_panic(text)), "{crash:?}");
    let expected = [
        &Outcome::Passed,
        &Outcome::Failed(1),
        &Outcome::Passed,
        &Outcome::Skipped("more memory wanted".to_owned()),
        &Outcome::Reported("WARNING: this is only a test".to_owned()),
        crash,
        &Outcome::Passed,
        &Outcome::Passed,
        &Outcome::Passed,
        &Outcome::TimedOut,
        &Outcome::Passed,
    ];
    assert_eq!(outcomes, expected, "{}", session.log);
    assert_eq!(printed[2], "kept\n2\n");
    assert_eq!(printed[9], "begun\n");
    assert_eq!(session.guests, 3, "one, one after the crash, one after the hang");
    assert!(!Path::new(marker).exists(), "a guest wrote to the host");
    assert_eq!(std::fs::read_to_string(out.path().join("file")).unwrap(), "result\n");
    assert!(session.log.contains("NMI"), "a hanging guest is asked where it is");
}

#[test]
#[ignore = "boots virtual machines, and fetches kernels for them: make vm-test"]
fn the_debug_kernel_finds_what_others_do_not() {
    let provoke = |what| format!("echo {what} > /sys/kernel/debug/provoke-crash/DIRECT");
    let lines = [provoke("READ_AFTER_FREE"), provoke("SPINLOCKUP"), "true".to_owned()];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let (session, _) = run_on(&lines, None, Tier::Debug);
    let said = |index: usize| {
        let reports = session.judged[index].reports.iter();
        reports.map(|report| report.text.as_str()).collect::<String>()
    };
    assert!(said(0).contains("KASAN: use-after-free"), "{}", session.log);
    assert!(said(1).contains("lock held when returning to user space"), "{}", session.log);
    assert!(session.judged[0].outcome.is_failure() && session.judged[1].outcome.is_failure());
    assert_eq!(session.judged[2].outcome, Outcome::Passed);
}

#[test]
#[ignore = "boots virtual machines, and fetches kernels for them: make vm-test"]
fn systemd_is_process_1_of_its_tier() {
    let lines = [
        "cat /proc/1/comm && systemctl is-system-running && journalctl --boot --quiet >/dev/null",
        "sleep 1000 & exit 3",
        "! cat /proc/[0-9]*/comm | grep -x sleep",
    ];
    let (session, printed) = run_on(&lines, None, Tier::Systemd);
    let outcomes: Vec<&Outcome> = session.judged.iter().map(|judged| &judged.outcome).collect();
    assert_eq!(outcomes, [&Outcome::Passed, &Outcome::Failed(3), &Outcome::Passed], "{printed:?} {}", session.log);
    assert_eq!(printed[0], "systemd\nrunning\n");
}

#[test]
#[ignore = "boots virtual machines, and fetches kernels for them: make vm-test"]
fn output_and_exit_code_are_the_commands_own() {
    let output = topstat_vm(&["run", "--kernel", "6.1", "--", "sh", "-c", "echo out; echo err >&2; pwd; exit 3"]);
    let output = { output }.output().unwrap();
    let here = std::env::current_dir().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("out\n{}\n", here.display()));
    // The runner's own messages (a download, a wait for another runner) use this stream, too.
    let stderr = stderr(&output);
    let said: Vec<&str> = stderr.lines().filter(|line| !line.starts_with("topstat-vm: ")).collect();
    assert_eq!(said, ["err"]);
}

#[test]
#[ignore = "boots virtual machines, and fetches kernels for them: make vm-test"]
fn where_nothing_can_be_run_it_is_skipped_unless_required() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| topstat_vm(arguments).env("PATH", folder.path()).output().unwrap();
    let output = run(&["run", "--", "true"]);
    assert_eq!(output.status.code(), Some(EXIT_SKIPPED));
    assert!(stderr(&output).contains("SKIPPED, no guest was run: programs are missing: qemu"), "{}", stderr(&output));
    assert_eq!(run(&["--require", "run", "--", "true"]).status.code(), Some(EXIT_GUEST));
    assert_eq!(run(&["matrix", "--", "true"]).status.code(), Some(EXIT_SKIPPED));
    assert_eq!(run(&["matrix", "--require", "--", "true"]).status.code(), Some(1));
}

#[test]
#[ignore = "boots virtual machines, and fetches kernels for them: make vm-test"]
fn wrong_usage_is_told_apart() {
    for arguments in [&["run"][..], &["run", "--kernel", "2.6", "--", "true"], &["frobnicate"]] {
        assert_eq!(topstat_vm(arguments).output().unwrap().status.code(), Some(2), "{arguments:?}");
    }
    let output = topstat_vm(&["run", "--kernel", "6.12", "--tier", "debug", "--", "true"]).output().unwrap();
    assert!(stderr(&output).contains("the debug tier has no kernel 6.12"), "{}", stderr(&output));
}

#[test]
#[ignore = "boots virtual machines, and fetches kernels for them: make vm-test"]
fn what_is_needed_is_printed_for_apt() {
    let output = topstat_vm(&["deps", "--debug"]).output().unwrap();
    let packages = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(packages.contains("qemu-system-x86 ") && packages.contains(" dwarves"), "{packages}");
    assert_eq!(packages.lines().count(), 1);
}
