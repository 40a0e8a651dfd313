// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The real `topstat record` on a tree that is a directory of files, and `topstat top` on its records.

mod past;

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use topstat_history::layout::{File, Kind};
use topstat_history::log::Writer;
use topstat_history::{Place, Root};

pub const TOPSTAT: &str = env!("CARGO_BIN_EXE_topstat");
/// The longest wait: every step takes far less.
pub const PATIENCE: Duration = Duration::from_secs(30);
pub const TABLE: &str = "tcp_v4/conns_pps";

pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("topstat-record-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn history(&self) -> PathBuf {
        self.0.join("history")
    }

    /// Writes the document that the daemon would show now: a table of one row with this value.
    fn show(&self, table: &str, value: u64) {
        let dir = self.0.join("tree").join(table);
        fs::create_dir_all(&dir).unwrap();
        let (sample, _) = table.split_once('/').unwrap();
        for dir in [&dir, &self.0.join("tree").join(sample), &self.0.join("tree")] {
            if !dir.join("enabled").exists() {
                fs::write(dir.join("enabled"), "1\n").unwrap();
            }
        }
        // The file is replaced at once, as in the tree.
        fs::write(dir.join("json.new"), document(SystemTime::now(), table, value)).unwrap();
        fs::rename(dir.join("json.new"), dir.join("json")).unwrap();
    }

    /// Writes a log with these lines, as a recorder on another host would write it.
    fn log(&self, kind: Kind, table: &str, time: SystemTime, lines: &[String]) {
        self.log_of("elsewhere", kind, table, time, lines);
    }

    /// As [`Scratch::log`], of this host.
    pub fn log_of(&self, host: &str, kind: Kind, table: &str, time: SystemTime, lines: &[String]) {
        fs::create_dir_all(self.history()).unwrap();
        let (sample, name) = table.split_once('/').unwrap();
        let place = Place { host: host.into(), sample: sample.into(), table: name.into() };
        let path = File::of(&self.history(), &place, kind, time).path;
        let file = Root::guarded(&self.history()).unwrap().write(&path).unwrap();
        let mut writer = Writer::open(file, &path).unwrap();
        lines.iter().for_each(|line| writer.append(line.as_bytes()).unwrap());
        writer.sync().unwrap();
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

    /// Waits until a record of the table has this value. A value that is shown afterwards is in another step, however short steps
    /// are.
    fn wait_for(&self, table: &str, value: u64) {
        let begin = Instant::now();
        while !self.top(&[table, "--at", "now", "-o", "json"]).1.contains(&format!("\"value\":{value},")) {
            assert!(begin.elapsed() < PATIENCE, "{value} is not recorded");
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A document of a table with one row of this value.
pub fn document(time: SystemTime, table: &str, value: u64) -> String {
    let (sample, name) = table.split_once('/').unwrap();
    let time = humantime::format_rfc3339_millis(time);
    format!(
        "{{\"time\":\"{time}\",\"sample\":\"{sample}\",\"table\":\"{name}\",\"type\":\"dynamic\",\"unit\":\"packets\",\
             \"period_ms\":1000,\"delay_ms\":0,\"top\":128,\"objects\":2,\"total\":{},\"other\":7,\"proven\":1,\
             \"lost\":{{\"contended\":0,\"no_memory\":0}},\"lost_now\":{{\"contended\":0,\"no_memory\":0}},\
             \"rows\":[{{\"rank\":1,\"value\":{value},\"object\":{{\"sip\":\"10.0.0.1\",\"sport\":80,\"dip\":\"10.0.0.2\",\
             \"dport\":4242,\"pid\":77,\"comm\":\"nginx\",\"cgroup\":\"/a\",\"netns\":1}},\"rx\":1,\"tx\":{},\
             \"cpus\":[0]}}],\"cpu_totals\":{{\"0\":{}}}}}\n",
        value + 7,
        value - 1,
        value + 7
    )
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Recorder(Child);

impl Recorder {
    /// Reads the recorder's messages until one of them has this text.
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
    // The recorder is killed and started again. No record is lost, and the time between is a gap.
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
    // Text output of one instant.
    let (output, text) = scratch.top(&["tcp/conns_pps", "--at", "now"]);
    assert!(output.status.success() && text.contains("10.0.0.2") && text.contains("77"), "{text}");
    // Every tool can read the files on the disk, also the files of the killed recorder.
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

/// A pipe without a writer blocks a reader, as the tree of a stopped daemon does.
#[test]
fn a_tree_that_does_not_answer_keeps_no_recorder_from_its_end() {
    const SOON: Duration = Duration::from_secs(2);
    let scratch = Scratch::new("silent");
    let table = "tcp_v4/conns_pps";
    for signal in [Signal::INT, Signal::TERM] {
        scratch.show(table, 41);
        let mut recorder = scratch.record(&[]);
        scratch.wait_for(table, 41);
        scratch.show(table, 42);
        scratch.wait_for(table, 42);
        let pipe = scratch.0.join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        fs::rename(&pipe, scratch.0.join("tree").join(table).join("json")).unwrap();
        // The recorder reads every 50 ms.
        std::thread::sleep(Duration::from_millis(500));
        assert!(recorder.0.try_wait().unwrap().is_none());
        kill_process(Pid::from_child(&recorder.0), signal).unwrap();
        let asked = Instant::now();
        let ended = loop {
            match recorder.0.try_wait().unwrap() {
                None if asked.elapsed() < SOON => std::thread::sleep(Duration::from_millis(10)),
                ended => break ended,
            }
        };
        assert!(ended.is_some_and(|status| status.success()), "{signal:?}: {ended:?} after {:?}", asked.elapsed());
        let (_, text) = scratch.top(&[table, "--at", "now", "-o", "json"]);
        assert!(text.contains("\"value\":42,"), "the last record is there: {text}");
    }
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
        (&["record", "--private", "comn=drop"], 2, "no table has a column comn: did you mean comm?"),
        (&["record", "--private", "comm"], 2, "not a rule: give COLUMN=HOW"),
        (&["record", "--private", "comm=hash"], 2, "give --private-key FILE"),
        (&["record", "--private", "comm=hash", "--private-key", "/nonexistent"], 2, "cannot use the key /nonexistent"),
    ] {
        let output = Command::new(TOPSTAT).args(arguments).arg("--history").arg(scratch.history()).output().unwrap();
        let said = String::from_utf8(output.stderr.clone()).unwrap();
        assert!(output.status.code() == Some(code) && said.contains(expected), "{arguments:?} {output:?} {said}");
    }
}

/// 2026-11-21T08:00:00Z
pub fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_248_000 + seconds)
}
