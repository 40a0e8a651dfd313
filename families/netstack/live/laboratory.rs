// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat lab` on the running kernel: what it measures, and that nothing of it stays, however it ends.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use topstat_kernel::snmp::{Netns as InNetns, Reader, Select, Which};
use topstat_live::role::command;
use topstat_live::{Case, case, eventually, harness, note, pace};

pub fn cases() -> Vec<Case> {
    vec![
        case!(one_flow_is_carried_and_sampled, Root, Netns; EveryKernel),
        case!(what_the_device_cannot_is_unavailable, Root, Netns),
        case!(as_many_packets_are_lost_as_asked_for, Root, Netns),
        case!(nothing_stays_however_it_ends, Root, Netns),
    ]
}

/// Samples that a share is taken of, at least: fewer are chance.
const ENOUGH_SAMPLES: f64 = 600.0;
/// Bytes that the CPU time of a byte is taken of, at least: threads tell theirs every 16 calls of 128 KiB. Small packets
/// are read by smaller calls.
const ENOUGH_BYTES: [f64; 2] = [2e6, 32e6];
/// Packets that a rate of loss is taken of, at least.
const ENOUGH_PACKETS: f64 = 1000.0;
/// How often an experiment is made until it has enough of all: on a host that is busy with something else a flow may carry
/// little within a second.
const ATTEMPTS: usize = 5;

/// How long the kernel may take to remove a network namespace: it removes those of all tests one after the other.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("topstat-lab-live-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn lab(words: &str, out: &Path) -> Command {
    let mut command = command("topstat");
    command.arg("lab").args(words.split_whitespace()).arg("--out").arg(out);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs it to its end, and gives its documents and what it has printed.
fn done(words: &str, out: &Path) -> (Vec<Value>, String) {
    let output = lab(words, out).output().expect("topstat runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "lab {words}: {said}");
    (documents(out), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn documents(out: &Path) -> Vec<Value> {
    let entries = std::fs::read_dir(out).expect("results").flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("run-")).collect();
    files.sort();
    let read = |path: &PathBuf| std::fs::read_to_string(path).expect("a document");
    files.iter().map(|path| serde_json::from_str(&read(path)).expect("JSON")).collect()
}

/// Of the receiver of all runs of a configuration.
#[derive(Default)]
struct Carried {
    bytes: f64,
    cpu_seconds: f64,
    samples: f64,
    copied: f64,
    tcp_ip: f64,
}

impl Carried {
    fn add(&mut self, run: &Value) {
        let number = |name: &str| run[name].as_f64().unwrap_or_else(|| panic!("{name}: {run}"));
        self.bytes += number("bytes");
        // By CPU time: how much of it the flow gets depends on who else runs.
        let parts = ["sender_seconds", "receiver_seconds", "ksoftirqd_seconds"];
        self.cpu_seconds += parts.map(number).iter().sum::<f64>();
        for side in ["receive", "softirq_receive"].into_iter().filter_map(|side| run["sides"][side].as_object()) {
            let of = |name: &str| side.get(name).and_then(Value::as_f64).unwrap_or(0.0);
            self.samples += side.values().filter_map(Value::as_f64).sum::<f64>();
            self.copied += of("data_copy");
            self.tcp_ip += of("tcp/ip");
        }
    }

    fn gbps_per_core(&self) -> f64 {
        self.bytes * 8e-9 / self.cpu_seconds.max(1e-9)
    }
}

/// The shapes of the study. `tcp/ip` is compared with `data_copy`, not with all: what the clock and interrupts of a virtual
/// machine take is in all shares, and differs from host to host. What an emulated CPU carries has no shape.
fn one_flow_is_carried_and_sampled() {
    let mut both = [Carried::default(), Carried::default()];
    let emulated = pace::slowdown() > 1;
    for attempt in 1..=ATTEMPTS {
        let folder = Folder::new(&format!("one-{attempt}"));
        let (runs, text) = done("single-flow --config no-opts,tsogro+jumbo --runs 1 --time 1s --hz 4999", &folder.0);
        assert_eq!(runs.len(), 2);
        both.iter_mut().zip(&runs).for_each(|(carried, run)| carried.add(run));
        assert!(folder.0.join("throughput.svg").exists() && folder.0.join("receiver.svg").exists(), "{text}");
        assert!(text.contains("Gbit/s per core") && text.contains("receiver, percent of samples"), "{text}");
        let enough = |(carried, bytes): (&Carried, f64)| {
            carried.samples >= ENOUGH_SAMPLES && (emulated || carried.bytes >= bytes)
        };
        if both.iter().zip(ENOUGH_BYTES).all(enough) {
            break;
        }
        if attempt == ATTEMPTS {
            harness::skip("the host is too busy: the flow carries next to nothing");
        }
    }
    let [plain, large] = both;
    let gbps = [&plain, &large].map(Carried::gbps_per_core);
    let share = |part: fn(&Carried) -> f64| [&plain, &large].map(|carried| part(carried) * 100.0 / carried.samples);
    let (copied, tcp_ip) = (share(|carried| carried.copied), share(|carried| carried.tcp_ip));
    let samples = [plain.samples, large.samples];
    let text =
        format!("{gbps:.2?} Gbit/s per core; of {samples:.0?} samples data_copy {copied:.1?}%, tcp/ip {tcp_ip:.1?}%");
    note(text.clone());
    assert!(emulated || gbps[1] > 5.0 * gbps[0], "{text}");
    assert!(copied[1] > copied[0] && tcp_ip[1] * copied[0] < tcp_ip[0] * copied[1], "{text}");
}

fn what_the_device_cannot_is_unavailable() {
    let folder = Folder::new("cannot");
    let (runs, text) = done("single-flow --config all-opts --runs 2 --time 1s --hz 0", &folder.0);
    assert_eq!(runs.len(), 1, "it is tried once");
    let why = runs[0]["unavailable"].as_str().unwrap_or_else(|| panic!("{text}"));
    assert!(why.contains("ntuple") && text.contains(why), "{text}");
}

fn as_many_packets_are_lost_as_asked_for() {
    let (mut arrived, mut dropped) = (0.0, 0.0);
    for attempt in 1..=ATTEMPTS {
        let folder = Folder::new(&format!("loss-{attempt}"));
        let (runs, _) = done("loss --config no-opts --loss 0,2 --runs 1 --time 1s --hz 0", &folder.0);
        let count = |run: &Value, name: &str| run[name].as_f64().unwrap_or_else(|| panic!("{name}: {run}"));
        assert_eq!(runs[0]["dropped"].as_u64(), Some(0));
        arrived += count(&runs[1], "arrived");
        dropped += count(&runs[1], "dropped");
        if arrived >= ENOUGH_PACKETS {
            break;
        }
        if attempt == ATTEMPTS {
            harness::skip("the host is too busy: the flow carries next to nothing");
        }
    }
    note(format!("{dropped} of {arrived} packets"));
    // Six standard deviations of what is drawn by chance: once in 500 million runs it is more.
    let (expected, chance) = (arrived * 0.02, 6.0 * (arrived * 0.02 * 0.98).sqrt());
    assert!((dropped - expected).abs() <= chance, "{dropped} of {arrived}");
}

/// What an experiment could leave behind that it may not have changed: names of network namespaces, and settings.
fn left_behind() -> (BTreeSet<String>, Vec<String>) {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let settings = ["core/rmem_max", "core/wmem_max", "ipv4/tcp_rmem", "ipv4/tcp_congestion_control"];
    let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/net/{name}")).unwrap_or_default();
    // Other tests have namespaces of their own.
    (names.filter(|name| name.contains("lab")).collect(), settings.map(read).into())
}

/// How many network devices of the experiment's name there are, in any network namespace, also in one without a name.
fn devices() -> usize {
    let which = Which { netns: InNetns::All, devices: true, device: Some("lab0".to_owned()) };
    let mut reader = Reader::open(&Select { which, ..Select::default() }).expect("a reader of all devices");
    reader.touch().expect("the devices")
}

/// Interrupted or killed at moments all over a run.
fn nothing_stays_however_it_ends() {
    let before = left_behind();
    let times: usize = std::env::var("TOPSTAT_LAB_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let mut finished = 0;
    for number in 0..times {
        let folder = Folder::new(&format!("killed-{number}"));
        let words = "single-flow --config no-opts,tsogro+jumbo --runs 5 --time 1s";
        let mut child = lab(words, &folder.0).spawn().expect("topstat runs");
        if number == 0 {
            assert!(eventually(PATIENCE, || devices() == 2), "the experiment has made no devices");
        } else {
            // Spread over the first runs, without chance: a failure can be repeated.
            std::thread::sleep(Duration::from_millis(50 + (number as u64 * 733) % 4000));
        }
        let signal = if number % 2 == 0 { Signal::INT } else { Signal::KILL };
        let pid = Pid::from_child(&child);
        kill_process(pid, signal).expect("a signal");
        let status = child.wait().expect("it ends");
        if signal == Signal::INT {
            assert!(status.code() == Some(0) || status.code().is_none(), "{status}");
            finished += usize::from(status.success());
        }
        // Each document that is there is whole.
        if folder.0.exists() {
            documents(&folder.0);
        }
        assert_eq!(left_behind(), before, "after {number}, which ended by {signal:?}");
        // The kernel takes namespaces apart after the process has ended, one after the other.
        assert!(eventually(PATIENCE, || devices() == 0), "devices stay after {number}, which ended by {signal:?}");
    }
    note(format!("{times} runs, {finished} of {} ended by themselves after Ctrl-C", times.div_ceil(2)));
}
