// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat check` where it may not try something, and a user namespace.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::process::Command;

use topstat_live::{Case, case, note};

pub fn cases() -> Vec<Case> {
    vec![
        case!(a_user_namespace_is_no_host, UserNamespace),
        case!(what_a_user_can_not_try_is_unknown, Root),
        case!(what_can_not_be_tried_without_types_is_unknown, Root),
    ]
}

/// Root of a user namespace has all capabilities, but none of them counts on the host.
fn a_user_namespace_is_no_host() {
    let topstat = topstat_live::role::command("topstat");
    let mut command = std::process::Command::new("unshare");
    command.arg("-Ur").arg(topstat.get_program()).args(["check", "tcp"]);
    command.envs(topstat.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let line = said.lines().find(|line| line.contains("  capabilities  ")).expect("a line on capabilities");
    assert!(line.starts_with("missing ") && line.contains("user namespace") && line.contains("on the host"), "{line}");
    assert_eq!(output.status.code(), Some(1));
    note(line.trim_end().to_owned());
}

/// The outcome and the findings of each check, by its name. `command` runs `check`.
fn checked(mut command: Command) -> BTreeMap<String, (String, String)> {
    let topstat = topstat_live::role::command("topstat");
    // Another user may not enter the directory of the program.
    let program = fs::File::open(topstat.get_program()).expect("open this program");
    rustix::io::fcntl_setfd(&program, rustix::io::FdFlags::empty()).expect("hand it down");
    command.arg(format!("/proc/self/fd/{}", program.as_raw_fd())).args(["check", "-o", "json"]);
    command.envs(topstat.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.output().expect("a command");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let line = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let of = |name: &str| line[name].as_str().expect("a text").to_owned();
        (of("name"), (of("outcome"), of("found") + "; " + &of("advice")))
    };
    text.lines().map(line).collect()
}

/// The checks must claim nothing about the kernel that only loading can show.
fn all_is_unknown(checks: &BTreeMap<String, (String, String)>) {
    for (name, (outcome, said)) in checks {
        let of_the_kernel = ["the kernel has no", "the kernel lacks", "a kernel of", "this kernel has no"];
        assert!(!of_the_kernel.iter().any(|claim| said.contains(claim)), "{name}: {said}");
        let loaded = ["sample", "events ", "counting of ", "stacks "].iter().any(|kind| name.starts_with(kind));
        assert!(!loaded || outcome == "unknown" && said.starts_with("can't be tried: "), "{name}: {outcome}  {said}");
    }
    assert!(checks.keys().any(|name| name == "counting of UDP"), "{checks:?}");
}

fn what_a_user_can_not_try_is_unknown() {
    const NOBODY: &str = "65534";
    let mut user = Command::new("setpriv");
    user.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
    let checks = checked(user);
    assert_eq!(checks["capabilities"].0, "missing");
    all_is_unknown(&checks);
}

fn what_can_not_be_tried_without_types_is_unknown() {
    let mut hidden = Command::new("unshare");
    hidden.args(["--mount", "sh", "-c", "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"", "hidden"]);
    let checks = checked(hidden);
    assert_eq!(checks["BTF"].0, "missing");
    assert!(checks["BTF"].1.contains("hidden"), "{:?}", checks["BTF"]);
    all_is_unknown(&checks);
}
