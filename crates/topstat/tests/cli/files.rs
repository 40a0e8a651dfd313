// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands on another tree (`--root`), such as the kernel module's: their output is the same as for the daemon's tree.

use std::fs;
use std::path::{Path, PathBuf};

use topstat::Exit;

use crate::console::FakeConsole;
use crate::fake::Fake;
use crate::golden::compare;

/// The number of rows that the tables of the tree keep.
const TOP: u32 = 7;

/// A tree of plain files: the files of a daemon's tree, and a sample that topstat doesn't know, as any module may have.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Self {
        let root = Self(std::env::temp_dir().join(format!("topstat-root-{}-{name}", std::process::id())));
        root.write("enabled", "1\n");
        for sample in topstat_families::catalogue().samples().iter().filter(|sample| sample.name.starts_with("tcp_")) {
            root.write(&format!("{}/enabled", sample.name), "1\n");
            for table in &sample.tables {
                root.copy(&table.path());
            }
        }
        root.write("queues/enabled", "1\n");
        for file in ["type", "period", "delay", "enabled", "sync"] {
            root.write(&format!("queues/requests/{file}"), if file == "period" { "1000\n" } else { "1\n" });
        }
        root.write("queues/requests/stat", "name\trequests\n\nall:\nqueue\tname\trps\n7\ta\t5\n\ntotal\t9\nother\t4\n");
        root.write(
            "queues/requests/json",
            "{\"time\":\"2026-11-21T08:00:00.000Z\",\"sample\":\"queues\",\"table\":\"requests\",\"type\":\"dynamic\",\
             \"unit\":\"count\",\"period_ms\":1000,\"delay_ms\":1,\"top\":16,\"objects\":2,\"total\":9,\"other\":4,\
             \"proven\":1,\"lost\":{\"contended\":0,\"no_memory\":0},\"lost_now\":{\"contended\":0,\"no_memory\":0},\
             \"rows\":[{\"rank\":1,\"value\":5,\"object\":{\"queue\":7,\"name\":\"a\"},\"cpus\":[0]}],\
             \"cpu_totals\":{\"0\":9}}\n",
        );
        root
    }

    /// Copies the files of the daemon's table.
    fn copy(&self, table: &str) {
        for file in ["type", "period", "delay", "enabled", "sync", "stat", "json"] {
            let mut console = FakeConsole::pipe();
            let line = format!("get {table}/{file} --mount /nonexistent/topstat");
            assert_eq!(console.run(&line, &mut Fake::pinned(TOP)), Exit::Done, "{}", console.notes);
            self.write(&format!("{table}/{file}"), &console.written());
        }
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.0.join(path)).unwrap()
    }

    /// The exit code, the output and the notes of a command. `DIR` replaces the path of the tree.
    fn run(&self, line: &str) -> (Exit, String, String) {
        let mut console = FakeConsole::pipe();
        let mut nothing = Fake::default();
        let exit = console.run(&format!("{line} --root {}", self.0.display()), &mut nothing);
        assert!(nothing.options.is_none(), "nothing is loaded");
        let told = |text: String| text.replace(self.0.to_str().unwrap(), "DIR");
        (exit, told(console.written()), told(console.notes))
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn top_shows_what_it_shows_of_the_daemons() {
    let root = Root::new("top");
    for line in [
        "top tcp_v4/conns_pps",
        "top tcp_v6/conns_bytes -o json",
        "top tcp_v4/conns_retrans -o csv",
        "top tcp_v4/conns_bps -n 1 -o json",
        "top tcp_v4/conns_pps --sport 80 --ip 10.0.0.1",
    ] {
        let mut daemons = FakeConsole::pipe();
        let exit = daemons.run(line, &mut Fake::pinned(TOP));
        assert_eq!(root.run(line), (exit, daemons.written(), daemons.notes), "{line}");
    }
}

#[test]
fn get_and_set_work_on_its_files() {
    let root = Root::new("set");
    let mut daemons = FakeConsole::pipe();
    daemons.run("get tcp_v4 --mount /nonexistent/topstat", &mut Fake::pinned(TOP));
    assert_eq!(root.run("get tcp_v4").1, daemons.written());
    let done = (Exit::Done, String::new(), String::new());
    assert_eq!(root.run("set tcp_v4/conns_pps/period 5s"), done);
    assert_eq!(root.read("tcp_v4/conns_pps/period"), "5000\n");
    assert_eq!(root.run(&format!("set {}/queues/enabled 0", root.0.display())), done);
    assert_eq!(root.run("get queues/enabled").1, "0\n");
}

#[test]
fn what_is_said_of_another_tree() {
    let root = Root::new("said");
    let mut text = String::new();
    for line in [
        "ls",
        "ls queues -o json",
        "top queues/requests -o json",
        "top queues/requests",
        "top tcp/conns_retrans -n 2",
        "top queues/requests -n 17",
        "top queues/request",
        "top udp_v4/conns_pps",
        "top queues/requests --period 5s",
        "get queues",
        "get udp_v4/enabled",
        "get self",
        "set queues/requests/period 0",
        "set queues/requests/stat 1",
        "get enabled --mount /run/topstat",
    ] {
        let (exit, written, notes) = root.run(line);
        text += &format!("$ topstat {line} --root DIR\n{written}{notes}[{}]\n\n", exit as u8);
    }
    root.write("queues/enabled", "0\n");
    root.write("queues/requests/json", "{}\n");
    let (exit, written, notes) = root.run("top queues/requests");
    text += &format!("$ topstat top queues/requests --root DIR\n{written}{notes}[{}]\n", exit as u8);
    compare("files-root.txt", &text);
}

#[test]
fn where_there_is_no_tree_that_is_said() {
    for line in ["ls", "get enabled", "set enabled 0", "top tcp_v4/conns_pps"] {
        let mut console = FakeConsole::pipe();
        assert_eq!(console.run(&format!("{line} --root /nonexistent"), &mut Fake::pinned(TOP)), Exit::Failed);
        assert_eq!(
            (console.written().as_str(), console.notes.as_str()),
            ("", "topstat: no tree of topstat at /nonexistent: No such file or directory (os error 2)\n")
        );
    }
    if Path::new("/proc/topstat").exists() {
        return;
    }
    let mut console = FakeConsole::pipe();
    assert_eq!(console.run("ls --root /proc/topstat", &mut Fake::default()), Exit::Failed);
    assert!(console.notes.contains("load the kernel module"), "{}", console.notes);
}
