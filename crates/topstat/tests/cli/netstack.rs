// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat netstack`: tables, views and filters of samples, files of all intervals, and the end of the command.

use serde_json::Value;
use topstat::Exit;

use crate::console::FakeConsole;
use crate::fake::Fake;

/// The output of `topstat netstack` with these arguments on a pipe.
fn written(arguments: &str, fake: &mut Fake) -> String {
    let mut console = FakeConsole::pipe();
    assert_eq!(console.run(&format!("netstack {arguments}"), fake), Exit::Done, "{arguments}: {}", console.notes);
    console.written()
}

fn document(arguments: &str) -> Value {
    serde_json::from_str(&written(&format!("{arguments} -o json"), &mut Fake::default())).unwrap()
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// Each sample is in a row, among the samples that are not shown, or among the samples outside the kernel's work.
#[test]
fn samples_add_up() {
    for table in ["categories", "symbols", "stacks", "cpus", "sides", "processes", "cgroups"] {
        for options in ["", "--view leaf", "-n 1", "--side send", "--pid 54", "--cpu 1 -n 1", "--comm nobody"] {
            let document = document(&format!("{table} {options}"));
            let samples = &document["samples"];
            let sum = |names: &[&str]| names.iter().map(|name| count(&samples[*name])).sum::<u64>();
            assert_eq!(count(&samples["total"]), sum(&["kernel", "idle", "user", "lost"]), "{table} {options}");
            assert_eq!(count(&samples["kernel"]), sum(&["shown", "filtered"]), "{table} {options}");
            assert_eq!(count(&samples["shown"]), sum(&["by_name", "by_caller", "unclassified"]), "{table} {options}");
            let rows = document["rows"].as_array().unwrap();
            let in_rows: u64 = rows.iter().map(|row| count(&row["samples"])).sum();
            assert_eq!(in_rows + count(&document["other"]), count(&samples["shown"]), "{table} {options}");
            let unclassified = document["unclassified"].as_array().unwrap();
            let named: u64 = unclassified.iter().map(|symbol| count(&symbol["samples"])).sum();
            assert_eq!(named, count(&samples["unclassified"]), "{table} {options}");
        }
    }
}

#[test]
fn the_corrected_view_gives_unlocking_to_its_caller() {
    let share = |view: &str, category: &str| {
        let document = document(&format!("--view {view}"));
        let rows = document["rows"].as_array().unwrap().clone();
        rows.iter().find(|row| row["category"] == category).map_or(0, |row| count(&row["samples"]))
    };
    assert_eq!((share("leaf", "lock"), share("leaf", "skb")), (15, 0));
    assert_eq!((share("corrected", "lock"), share("corrected", "skb")), (0, 15));
}

#[test]
fn filters_choose_and_cgroups_have_those_below() {
    let shown = |options: &str| count(&document(options)["samples"]["shown"]);
    assert_eq!(shown("--side receive"), 19);
    assert_eq!(shown("--side receive,other"), 20);
    assert_eq!(shown("--comm nginx"), 50);
    assert_eq!(shown("--cgroup /system.slice"), 69);
    assert_eq!(shown("--cgroup /system.slice/80.service/"), 50);
    assert_eq!(shown("--cgroup /system.slice/80"), 0);
}

#[test]
fn files_have_all_intervals() {
    let folder = std::env::temp_dir().join(format!("topstat-netstack-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (flame, folded) = (folder.join("flame.svg"), folder.join("folded"));
    let files = format!("--flame {} --folded {}", flame.display(), folded.display());
    written(&format!("1 2 --side receive {files}"), &mut Fake::default());
    let text = std::fs::read_to_string(&folded).unwrap();
    // The samples of the first interval count once. The second interval has twice as many.
    assert!(text.contains(";tcp_recvmsg;skb_clone;_raw_spin_unlock_irqrestore 45\n"), "{text}");
    assert!(text.lines().count() == 2 && !text.contains("odd \x1b[31m;"), "{text}");
    let svg = std::fs::read_to_string(&flame).unwrap();
    assert!(svg.contains("</svg>") && svg.contains("tcp_recvmsg (45 samples"), "{svg}");
    std::fs::remove_dir_all(&folder).unwrap();
    let mut console = FakeConsole::pipe();
    assert_eq!(console.run("netstack --flame /nowhere/flame.svg", &mut Fake::default()), Exit::Failed);
    assert!(console.notes.contains("cannot write /nowhere/flame.svg: No such file"), "{}", console.notes);
}

#[test]
fn rules_that_match_nothing_are_told() {
    let mut console = FakeConsole::pipe();
    console.run("netstack", &mut Fake { lossy: true, ..Fake::default() });
    assert!(console.notes.contains("rule 'gone_*' in line 3 matches no function"), "{}", console.notes);
}

#[test]
fn functions_are_classified_by_their_names() {
    let lines = written("classify tcp_ack __kmalloc_noprof.isra.0+0x12", &mut Fake::default());
    assert_eq!(lines, "tcp_ack\ttcp/ip\ttcp_*\n__kmalloc_noprof.isra.0+0x12\tmm\tkmalloc*\n");
    let mut console = FakeConsole::pipe();
    assert_eq!(console.run("netstack classify x --rules /nowhere/rules", &mut Fake::default()), Exit::Usage);
    assert!(console.notes.contains("cannot use the rules of /nowhere/rules"), "{}", console.notes);
}
