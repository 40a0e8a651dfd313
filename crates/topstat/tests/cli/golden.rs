// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The output of commands, byte by byte.
//!
//! `UPDATE_GOLDEN=1 cargo test -p topstat golden` writes the files anew. Read the diff before you commit it.

use std::env;
use std::fs;
use std::path::Path;

use topstat::Exit;
use topstat_kernel::Outcome;

use crate::console::FakeConsole;
use crate::fake::{Fake, check};

/// Compares with a file in `tests/golden`.
pub fn compare(name: &str, printed: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}"));
    if env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        fs::write(&path, printed).unwrap();
        return;
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        golden == printed,
        "(UPDATE_GOLDEN=1 accepts) {}\n--- golden\n{golden}--- printed\n{printed}",
        path.display()
    );
}

/// Command lines with all their output, as on a terminal.
fn session(console: fn() -> FakeConsole, backend: fn() -> Fake, lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines {
        let mut console = console();
        let exit = console.run(line, &mut backend());
        text += &format!("$ topstat {line}\n{}{}", console.written(), console.notes);
        text += &format!("[{}]\n\n", exit as u8);
    }
    text
}

pub fn checked() -> Fake {
    Fake {
        checks: vec![
            check("BTF", Outcome::Ok, "/sys/kernel/btf/vmlinux", ""),
            check(
                "cgroup v2",
                Outcome::Degraded,
                "mounted at /sys/fs/cgroup/unified (hybrid)",
                "paths of v1 are not shown",
            ),
            check(
                "sample tcp_v4",
                Outcome::Missing,
                "no permission to load programs",
                "run as root or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN",
            ),
            check(
                "counting of TCP",
                Outcome::Unknown,
                "can't be tried: loading eBPF programs is not permitted",
                "the lines above say what is missing",
            ),
            check("weird \x1b[31mname", Outcome::Ok, "", ""),
        ],
        ..Fake::default()
    }
}

#[test]
fn ls() {
    let lines = ["ls", "ls udp_v4", "ls tcp -o json", "ls tpc", "ls --color always udp_v6"];
    compare("ls.txt", &session(FakeConsole::pipe, Fake::default, &lines));
}

#[test]
fn checks() {
    let lines = ["check", "check -o json", "check --color always", "check udp", "check udp_v6 tcp", "check tpc"];
    compare("check.txt", &session(FakeConsole::pipe, checked, &lines));
}

#[test]
fn a_check_says_what_configured_tables_take() {
    let file = std::env::temp_dir().join(format!("topstat-check-{}.toml", std::process::id()));
    let small = r#""few/opens" = "syscalls:sys_enter_openat by comm""#;
    let large = r#""many/opens" = "syscalls:sys_enter_openat by str.filename keys 1000000""#;
    std::fs::write(&file, format!("[tables]\n{small}\n{large}\n")).unwrap();
    let mut console = FakeConsole::pipe();
    let exit = console.run(&format!("check --config {}", file.display()), &mut Fake::default());
    let text = console.written();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(exit, Exit::Failed, "{text}");
    let lines: Vec<_> = text.lines().collect();
    let [few, many] = lines[..] else { panic!("{text}") };
    assert!(
        few.starts_with("ok       table few/opens   takes ") && few.ends_with("MiB of the kernel's memory"),
        "{few}"
    );
    assert!(many.starts_with("missing  table many/opens  takes ") && many.contains("give a smaller number"), "{many}");
    let exit = FakeConsole::pipe().run("check --config /none/of/this", &mut Fake::default());
    assert_eq!(exit, Exit::Failed);
}

#[test]
fn wrong_usage() {
    let lines = [
        "frobnicate",
        "tcp_v4/conns_pps",
        "--frobnicate",
        "top -n 5",
        "top tcp_v4/conn_pps",
        "top tcpv4/conns_pps",
        "top tcp_v4",
        "top conns_retrans",
        "top sctp/conns_pps",
        "top udp/conns_retrans",
        "top tcp/conns_pps abc",
        "top tcp/conns_pps 0",
        "top tcp/conns_pps 1 0",
        "top tcp/conns_pps 1 two",
        "top tcp/conns_pps -1",
        "top tcp/conns_pps -n 0",
        "top tcp/conns_pps -n 1025",
        "top tcp/conns_pps -n x",
        "top tcp/conns_pps --top 1025",
        "top tcp/conns_pps -n 200 --top 100",
        "top tcp/conns_pps -4 -6",
        "top tcp_v4/conns_pps -6",
        "top tcp/conns_pps --port 65536",
        "top tcp/conns_pps --period 0",
        "top tcp/conns_pps --delay 2h",
        "top tcp/conns_pps --threads",
        "top cgroups/cpu --threads",
        "top tcp/conns_pps -o xml",
        "top tcp/conns_pps --filter port:",
        "top tcp_v4/conns_pps --filter prot:1",
        "top tcp_v4/conns_pps --filter closed:1",
        "top tcp_v4/conns_pps --closed maybe",
        "tasks abc",
        "tasks 1 0",
        "tasks -n 0",
        "tasks --sort cpu",
        "tasks --tree -o json",
        "tasks --wide -o csv",
        "tasks --pid x",
        "snmp tcp abc",
        "snmp 1 0",
        "snmp 1 1 1",
        "snmp -n 0",
        "netstack symbol",
        "lab",
        "lab single",
        "lab loss --loss 101",
        "lab incast --config tso+gro",
        "lab all-to-all --flows 1000",
        "lab single-flow --peer other",
        "lab single-flow --reverse",
        "lab loss --loss 1,30 --peer other --interface eth1 --key lab.key",
        "lab serve --interface eth1",
        "lab serve --interface eth1 --key lab.key --listen eth1",
        "lab serve --interface eth1 --key /nosuch/lab.key",
        "lab key /nosuch/lab.key",
        "netstack --hz 0",
        "netstack --histogram skb sides",
        "netstack --histogram skb --side send",
        "netstack --port 80",
        "netstack 1 1 1",
        "completions tcsh",
    ];
    compare("usage.txt", &session(FakeConsole::pipe, Fake::default, &lines));
}

#[test]
fn failures() {
    let refusing = || Fake { refuse: true, ..Fake::default() };
    let failing = || Fake { fail_at: Some(2), ..Fake::default() };
    let line = ["top tcp/conns_pps -n 1"];
    let text = session(FakeConsole::pipe, refusing, &line) + &session(FakeConsole::pipe, failing, &line);
    let line = ["tasks 1 2 -n 1"];
    let text = text + &session(FakeConsole::pipe, refusing, &line) + &session(FakeConsole::pipe, failing, &line);
    compare("failures.txt", &text);
}

#[test]
fn top() {
    let lines = [
        "top tcp/conns_pps -n 2",
        "top tcp_v4/conns_bytes 10 2 -n 1",
        "top tcp/conns_bps -n 2 -o json",
        "top tcp/conns_bps 0.5 2 -n 1 -o csv",
        "top tcp_v6/conns_pps --port 443 --comm nginx -n 2",
        "top tcp_v6/conns_pps --pid 1,2 --cgroup /no",
        "top tcp_v4/conns_pps --filter dport:40003,40004 -n 2",
        "top tcp_v4/conns_pps --closed yes -n 3",
        "top tcp_v4/conns_pps --filter closed:no -n 5",
        "top tcp_v4/conns_pps --period 5s --delay 10 -n 1",
        "top tcp_v4/conns_pps --color always -n 1",
    ];
    compare("top.txt", &session(FakeConsole::pipe, Fake::default, &lines));
}

#[test]
fn tasks() {
    let lines = [
        "tasks",
        "tasks 1 2 -n 2",
        "tasks --dead",
        "tasks --dead --sort name --reverse -n 4",
        "tasks --wide -n 3",
        "tasks --tree",
        "tasks --tree --dead --pid 200",
        "tasks --threads --comm writer",
        "tasks --threads --tree -n 6",
        "tasks --cmdline --sort pid",
        "tasks --exact 200 -n 1",
        "tasks --color always -n 1",
        "tasks 1 2 -o csv",
        "tasks -o csv --dead --cmdline -n 4",
        "tasks -o json -n 3",
        "tasks -o json --dead --cmdline --pid 200,220",
    ];
    compare("tasks.txt", &session(FakeConsole::pipe, Fake::default, &lines));
    let lossy = || Fake { lossy: true, ..Fake::default() };
    let lines = ["tasks -n 1", "tasks -n 1 -o csv", "tasks -n 1 -o json"];
    compare("tasks-lossy.txt", &session(FakeConsole::pipe, lossy, &lines));
}

#[test]
fn snmp() {
    let lines = [
        "snmp",
        "snmp 1 3 -n 1",
        "snmp --cpus --sort imbalance",
        "snmp --total --all --cpus",
        "snmp tcp --color always -n 1",
        "snmp 1 2 -o csv -n 2",
        "snmp --total -o csv --cpus",
        "snmp -o json -n 2",
        "snmp --total -o json --cpus",
    ];
    compare("snmp.txt", &session(FakeConsole::pipe, Fake::default, &lines));
    let lossy = || Fake { lossy: true, ..Fake::default() };
    let lines = ["snmp --cpus -n 1", "snmp --cpus -n 1 -o csv", "snmp --cpus -n 1 -o json"];
    compare("snmp-lossy.txt", &session(FakeConsole::pipe, lossy, &lines));
}

#[test]
fn netstack() {
    let lines = [
        "netstack",
        "netstack --view leaf",
        "netstack symbols 1 2 -n 2",
        "netstack sides",
        "netstack processes --color always",
        "netstack stacks --side receive",
        "netstack cgroups -o csv",
        "netstack symbols -o csv --side receive",
        "netstack -o json",
        "netstack cpus -o json -n 1",
        "netstack --histogram skb",
        "netstack --histogram latency --color always",
        "netstack --histogram latency -o json",
        "netstack --histogram skb 1 2 -o csv",
    ];
    compare("netstack.txt", &session(FakeConsole::pipe, Fake::default, &lines));
    let lossy = || Fake { lossy: true, ..Fake::default() };
    compare(
        "netstack-lossy.txt",
        &session(FakeConsole::pipe, lossy, &["netstack", "netstack -o json", "netstack -o csv"]),
    );
}
