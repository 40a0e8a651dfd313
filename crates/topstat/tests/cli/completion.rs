// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Completions, as bash asks for them.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::record::{Scratch, TOPSTAT};

/// The candidates that bash gets for the last word of a command line, with a script for completions.
pub fn offered(script: &str, line: &str) -> Vec<String> {
    let words: Vec<_> = line.split(' ').collect();
    let before = words.len().checked_sub(2).map_or("", |before| words[before]);
    let last = words.last().unwrap();
    let asks = format!(
        "eval \"$SCRIPT\"\nCOMP_WORDS=({}) COMP_CWORD={} COMP_TYPE=9\n_clap_complete_topstat topstat '{last}' '{before}'\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
        words.len() - 1
    );
    // The script runs the program that the user's PATH has.
    let path = format!("{}:/usr/bin:/bin", Path::new(TOPSTAT).parent().unwrap().display());
    let output =
        Command::new("bash").args(["-c", &asks]).env("PATH", path).env("SCRIPT", script).output().expect("bash");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn script() -> String {
    let output = Command::new(TOPSTAT).args(["completions", "bash"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn names_that_there_are_without_a_daemon() {
    for (line, wanted) in [
        ("topstat wh", &["why"][..]),
        ("topstat top --fol", &["--fold"]),
        ("topstat top tcp/conns_r", &["tcp/conns_retrans"]),
        ("topstat view --table tasks/cp", &["tasks/cpu", "tasks/cpu_total"]),
        ("topstat top @run-queue-latency-", &["@run-queue-latency-by-cgroup"]),
        ("topstat top tcp/conns_pps --sort dp", &["dport"]),
        ("topstat why tcp/conns_pps po", &["port:"]),
        ("topstat ls udp_", &["udp_v4", "udp_v6"]),
        ("topstat completions z", &["zsh"]),
        ("topstat top nothing/of", &[]),
    ] {
        assert_eq!(offered(&script(), line), wanted, "{line}");
    }
}

#[test]
fn what_the_daemon_s_tree_has() {
    let tree = Scratch::new("completion");
    let table = tree.0.join("tcp_v4/conns_pps");
    fs::create_dir_all(&table).unwrap();
    let row = |pid: u32, comm: &str| format!("{{\"object\":{{\"pid\":{pid},\"comm\":\"{comm}\"}}}}");
    let rows = [row(4711, "nginx"), row(12, "nginx"), row(4712, "$(reboot)"), row(7, "a b")];
    fs::write(table.join("json"), format!("{{\"rows\":[{}]}}", rows.join(","))).unwrap();
    fs::write(table.join("period"), "1000\n").unwrap();
    fs::write(tree.0.join("enabled"), "1\n").unwrap();
    fs::create_dir_all(tree.0.join("own/slow")).unwrap();
    fs::write(tree.0.join("own/slow/json"), "{}").unwrap();
    let mount = format!("--mount {}", tree.0.display());
    for (line, wanted) in [
        ("top MOUNT tcp/conns_pps --pid 47", &["4711", "4712"][..]),
        ("top tcp_v4/conns_pps MOUNT --comm ", &["nginx"]),
        ("top MOUNT own/", &["own/slow"]),
        ("set MOUNT ", &["enabled", "own/", "tcp_v4/"]),
        ("set MOUNT tcp_v4/conns_pps/p", &["tcp_v4/conns_pps/period"]),
        ("set MOUNT ../", &[]),
    ] {
        let line = format!("topstat {}", line.replace("MOUNT", &mount));
        let mut offered = offered(&script(), &line);
        // Options are offered, too, where no word has begun.
        offered.retain(|candidate| !candidate.starts_with('-'));
        assert_eq!(offered, wanted, "{line}");
    }
}
