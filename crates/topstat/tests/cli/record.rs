// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat record`, the real program, on a tree that is a directory of files; and what `topstat top` shows of it.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use topstat_history::log;

use crate::emulated::Terminal;

const TOPSTAT: &str = env!("CARGO_BIN_EXE_topstat");
/// Whatever is waited for takes far less.
const PATIENCE: Duration = Duration::from_secs(30);

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("topstat-record-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn history(&self) -> PathBuf {
        self.0.join("history")
    }

    /// What the daemon would show: a table of one row with this value, as of now.
    fn show(&self, table: &str, value: u64) {
        let dir = self.0.join("tree").join(table);
        fs::create_dir_all(&dir).unwrap();
        let (sample, name) = table.split_once('/').unwrap();
        for dir in [&dir, &self.0.join("tree").join(sample), &self.0.join("tree")] {
            if !dir.join("enabled").exists() {
                fs::write(dir.join("enabled"), "1\n").unwrap();
            }
        }
        let time = humantime::format_rfc3339_millis(SystemTime::now());
        let document = format!(
            "{{\"time\":\"{time}\",\"sample\":\"{sample}\",\"table\":\"{name}\",\"type\":\"dynamic\",\"unit\":\"packets\",\
             \"period_ms\":1000,\"delay_ms\":0,\"top\":128,\"objects\":2,\"total\":{},\"other\":7,\"proven\":1,\
             \"lost\":{{\"contended\":0,\"no_memory\":0}},\"lost_now\":{{\"contended\":0,\"no_memory\":0}},\
             \"rows\":[{{\"rank\":1,\"value\":{value},\"object\":{{\"sip\":\"10.0.0.1\",\"sport\":80,\"dip\":\"10.0.0.2\",\
             \"dport\":4242,\"pid\":77,\"comm\":\"nginx\",\"cgroup\":\"/a\",\"netns\":1}},\"rx\":1,\"tx\":{},\
             \"cpus\":[0]}}],\"cpu_totals\":{{\"0\":{}}}}}\n",
            value + 7,
            value - 1,
            value + 7
        );
        // At once, as in the tree.
        fs::write(dir.join("json.new"), document).unwrap();
        fs::rename(dir.join("json.new"), dir.join("json")).unwrap();
    }

    fn record(&self, arguments: &[&str]) -> Recorder {
        let mut command = Command::new(TOPSTAT);
        command.args(["record", "--interval", "200ms", "--fine-interval", "50ms", "--history"]).arg(self.history());
        command.arg("--mount").arg(self.0.join("tree")).args(arguments).stderr(Stdio::piped());
        Recorder(command.spawn().unwrap())
    }

    fn top(&self, arguments: &[&str]) -> (Output, String) {
        let output = Command::new(TOPSTAT).arg("top").args(arguments).arg("--history").arg(self.history()).output();
        let output = output.unwrap();
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        (output, text)
    }

    /// Waits until a record of the table has this value. What is shown after it is of another step, however short steps are.
    fn wait_for(&self, table: &str, value: u64) {
        let begin = Instant::now();
        while !self.top(&[table, "--at", "now", "-o", "json"]).1.contains(&format!("\"value\":{value},")) {
            assert!(begin.elapsed() < PATIENCE, "{value} is not recorded");
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Recorder(Child);

impl Recorder {
    /// Reads what it says, until it has said this.
    fn wait_until_said(&mut self, text: &str) {
        let (mut said, mut byte) = (Vec::new(), [0]);
        while !String::from_utf8_lossy(&said).contains(text) {
            let read = self.0.stderr.as_mut().unwrap().read(&mut byte).unwrap();
            assert!(read > 0, "it has ended: {}", String::from_utf8_lossy(&said));
            said.push(byte[0]);
        }
    }

    fn end(mut self, signal: Signal) -> String {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
        let mut said = String::new();
        self.0.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
        let status = self.0.wait().unwrap();
        assert!(signal == Signal::KILL || status.success(), "{status}: {said}");
        said
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn logs(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() { found.extend(logs(&entry)) } else { found.push(entry) }
    }
    found
}

#[test]
fn what_the_tree_shows_is_recorded_and_shown_again() {
    let scratch = Scratch::new("shown");
    scratch.show("tcp_v4/conns_pps", 990);
    scratch.show("tasks/cpu", 5);
    let recorder = scratch.record(&[]);
    scratch.wait_for("tcp_v4/conns_pps", 990);
    scratch.show("tcp_v4/conns_pps", 1234);
    scratch.wait_for("tcp_v4/conns_pps", 1234);
    // Ended without any warning, and begun again: nothing is lost, and what is missing is a gap.
    recorder.end(Signal::KILL);
    std::thread::sleep(Duration::from_millis(600));
    scratch.show("tcp_v4/conns_pps", 77);
    let recorder = scratch.record(&[]);
    scratch.wait_for("tcp_v4/conns_pps", 77);
    let second = Command::new(TOPSTAT).args(["record", "--history"]).arg(scratch.history()).output().unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(second.status.code() == Some(1) && said.contains("a recorder writes to"), "{said}");
    let said = recorder.end(Signal::TERM);
    assert!(!said.contains("error"), "{said}");
    let (output, text) = scratch.top(&["tcp_v4/conns_pps", "10ms", "--from", "-10m", "-o", "csv", "--comm", "nginx"]);
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!([",990,", ",1234,", ",77,"].iter().all(|value| text.contains(value)), "{text}{notes}");
    assert!(notes.contains("nothing of tcp_v4/conns_pps was recorded from"), "{notes}");
    assert!(notes.contains(": the recorder did not run"), "{notes}");
    // Text for eyes, of one instant.
    let (output, text) = scratch.top(&["tcp/conns_pps", "--at", "now"]);
    assert!(output.status.success() && text.contains("10.0.0.2") && text.contains("77"), "{text}");
    // What lies on the disk is as every tool expects it, also what was killed.
    for log in logs(&scratch.history()).iter().filter(|log| log.to_string_lossy().ends_with(".zst")) {
        let text = zstd::stream::decode_all(fs::File::open(log).unwrap()).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{}", log.display());
    }
}

#[test]
fn what_is_off_or_not_wanted_is_not_recorded() {
    let scratch = Scratch::new("off");
    for table in ["tcp_v4/conns_pps", "tcp_v4/conns_bps", "tasks/cpu"] {
        scratch.show(table, 10);
    }
    fs::write(scratch.0.join("tree/tcp_v4/conns_bps/enabled"), "0\n").unwrap();
    let recorder = scratch.record(&["tcp/conns_pps", "tcp/conns_bps"]);
    scratch.wait_for("tcp_v4/conns_pps", 10);
    recorder.end(Signal::TERM);
    for table in ["tcp_v4/conns_bps", "tasks/cpu"] {
        let (output, _) = scratch.top(&[table, "--at", "now"]);
        let said = String::from_utf8(output.stderr).unwrap();
        let expected = format!("topstat: there are no records of {table} in {}\n", scratch.history().display());
        assert_eq!((output.status.code(), said), (Some(1), expected));
    }
}

#[test]
fn it_waits_for_a_tree_and_says_so() {
    let scratch = Scratch::new("waits");
    let mut recorder = scratch.record(&[]);
    recorder.wait_until_said("there is no tree of a daemon: No such file or directory");
    scratch.show("tasks/cpu", 3);
    scratch.wait_for("tasks/cpu", 3);
    let said = recorder.end(Signal::TERM);
    assert!(said.contains("the tree is there again"), "{said}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let scratch = Scratch::new("refused");
    for (arguments, code, expected) in [
        (
            &["top", "tasks/cpu", "--at", "yesterday"][..],
            2,
            "--at \"yesterday\": not a time: give a clock time (03:12)",
        ),
        (&["top", "tasks/cpu", "--from", "-1m", "--to", "-2m"], 2, ", which is before it"),
        (&["top", "tasks/cpu", "--to", "-2m"], 2, "--from <TIME>"),
        (&["top", "tasks/cpu", "1", "--at", "-2m"], 2, "--at shows one instant: use --from with an INTERVAL"),
        (&["top", "tasks/cpu", "--period", "1s", "--at", "-2m"], 2, "--period is for what is counted now"),
        (&["top", "tasks/cpu", "--at", "-2m"], 1, "topstat record makes records, and --history says where they are"),
        (&["record", "tasks/cpus"], 2, "did you mean cpu?"),
        (&["record", "--size", "12"], 2, "at least 1MiB is needed"),
        (&["record", "--fine-interval", "1m"], 2, "--fine-interval is longer than --interval"),
    ] {
        let output = Command::new(TOPSTAT).args(arguments).arg("--history").arg(scratch.history()).output().unwrap();
        let said = String::from_utf8(output.stderr.clone()).unwrap();
        assert!(output.status.code() == Some(code) && said.contains(expected), "{arguments:?} {output:?} {said}");
    }
}

/// Whether a record of the kind that is kept for days has this in it.
fn is_kept(scratch: &Scratch, text: &str) -> bool {
    let mut kept = false;
    for path in logs(&scratch.history()).iter().filter(|path| !path.to_string_lossy().contains(".fine.")) {
        let mut look = |line: &[u8]| {
            kept |= String::from_utf8_lossy(line).contains(text);
            !kept
        };
        if path.to_string_lossy().ends_with(".zst") {
            log::lines(path, &mut look).unwrap();
        }
    }
    kept
}

#[test]
fn a_history_alone_is_viewed() {
    let scratch = Scratch::new("viewed");
    scratch.show("tcp_v4/conns_pps", 4711);
    scratch.show("tasks/cpu", 5);
    let recorder = scratch.record(&[]);
    scratch.wait_for("tcp_v4/conns_pps", 4711);
    let begin = Instant::now();
    while !is_kept(&scratch, "\"value\":4711,") {
        assert!(begin.elapsed() < PATIENCE, "it is not recorded");
        std::thread::sleep(Duration::from_millis(20));
    }
    scratch.show("tcp_v4/conns_pps", 815);
    scratch.wait_for("tcp_v4/conns_pps", 815);
    recorder.end(Signal::TERM);
    let view = |history: &Path| {
        let mut view = Command::new(TOPSTAT);
        view.args(["view", "0.1", "--mount", "/nonexistent", "--pins", "/nonexistent", "--history"]).arg(history);
        view.env("TZ", "UTC");
        Terminal::start(view, (24, 200))
    };
    let mut terminal = view(&scratch.history());
    // The last record, which nobody takes for what is there now.
    terminal.wait_for(" LAST ");
    terminal.wait_for("topstat · history");
    terminal.press("\tx\r");
    terminal.wait_for("tcp_v4/conns_pps  total 822  other 7");
    terminal.wait_for("all 1 rows proven");
    terminal.wait_for("kept since ");
    // The bar begins with the largest record: a click goes there.
    let text = terminal.text();
    let (y, bar) = text.lines().enumerate().find(|(_, line)| line.starts_with("kept since ")).unwrap();
    let x = bar.find("Z ").unwrap() + 2;
    terminal.press(&format!("\x1b[<0;{};{}M", x + 1, y + 1));
    terminal.wait_for(" PAST ");
    terminal.wait_for("tcp_v4/conns_pps  total 4718  other 7");
    terminal.press("(");
    terminal.wait_for("there are no records as old as");
    terminal.press("l");
    terminal.wait_for("total 822");
    terminal.press("y");
    terminal.wait_for(&format!("--history '{}'", scratch.history().display()));
    terminal.press("p5s\r");
    terminal.wait_for("these are records: nothing can be set");
    terminal.press("q");
    assert_eq!(terminal.end(), Some(0));
    terminal.assert_given_back();
    let mut terminal = view(&scratch.0.join("nothing"));
    terminal.wait_for("topstat record makes records; and ");
    assert_eq!(terminal.end(), Some(1));
}
