// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat lab` on the running kernel: its measurements, and that it leaves nothing behind, however it ends.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use topstat_families::snmp::{Netns as InNetns, Reader, Select, Which};
use topstat_live::role::command;
use topstat_live::{Case, alone, eventually, harness, note, pace};

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Cpu: one_flow_is_carried_and_sampled, Root, Netns; EveryKernel, Slow),
        alone!(Cpu: what_the_device_cannot_is_unavailable, Root, Netns),
        alone!(Cpu: flows_are_received_on_either_node, Root, Netns, TwoNodes; Numa),
        alone!(Cpu: as_many_packets_are_lost_as_asked_for, Root, Netns; Slow),
        alone!(Cpu: histograms_and_the_congestion_control_are_in_the_documents, Root, Netns),
        alone!(Cpu: nothing_stays_however_it_ends, Root, Netns; Slow),
    ]
}

/// The least number of samples for a share; fewer give random results.
const ENOUGH_SAMPLES: f64 = 600.0;
/// The least number of bytes for the CPU time of a byte: threads report their bytes every 16 calls of 128 KiB. Small packets are
/// read by smaller calls.
const ENOUGH_BYTES: [f64; 2] = [2e6, 32e6];
/// The least number of packets for a rate of loss.
const ENOUGH_PACKETS: f64 = 1000.0;
/// Attempts at an experiment until it has enough of everything: on a busy host a flow may carry little within a second.
const ATTEMPTS: usize = 5;

/// How long the kernel may take to remove a network namespace: it removes the namespaces of all tests one after the other.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A directory; dropping it removes it.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
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

/// As many samples a second, or what the kernel allows: it allows less where samples take long, as on an emulated CPU.
fn allowed(hz: u32) -> u32 {
    let most = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").ok();
    most.and_then(|most| most.trim().parse().ok()).unwrap_or(hz).min(hz)
}

/// Runs a lab to its end, and returns its documents and its output.
fn done(words: &str, out: &Path) -> (Vec<Value>, String) {
    let output = lab(words, out).output().expect("topstat runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "lab {words}: {said}");
    (documents(out), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// All documents of a directory of results. Each must be complete JSON.
pub fn documents(out: &Path) -> Vec<Value> {
    let entries = std::fs::read_dir(out).expect("results").flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("run-")).collect();
    files.sort();
    let read = |path: &PathBuf| std::fs::read_to_string(path).expect("a document");
    files.iter().map(|path| serde_json::from_str(&read(path)).expect("JSON")).collect()
}

/// Sums over the receivers of all runs of a configuration.
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
        // By CPU time: the flow's share of the CPU depends on other processes.
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

    /// Percentages of `data_copy` and `tcp/ip` in the receiver's samples.
    fn shares(&self) -> [f64; 2] {
        [self.copied, self.tcp_ip].map(|part| part * 100.0 / self.samples.max(1.0))
    }
}

/// Whether the shares of `data_copy` and `tcp/ip` have the study's shape.
fn have_shapes([plain, large]: &[Carried; 2]) -> bool {
    let ([copied, tcp_ip], [copied_large, tcp_ip_large]) = (plain.shares(), large.shares());
    copied_large > copied && tcp_ip_large * copied < tcp_ip * copied_large
}

/// Checks the shapes of the study. `tcp/ip` is compared with `data_copy`, not with all samples: the clock and interrupts of a
/// virtual machine are in all shares, and differ from host to host. The throughput of an emulated CPU has no shape.
fn one_flow_is_carried_and_sampled() {
    let mut both = [Carried::default(), Carried::default()];
    let emulated = pace::slowdown() > 1;
    for attempt in 1..=ATTEMPTS {
        let folder = Folder::new(&format!("one-{attempt}"));
        let words = format!("single-flow --config no-opts,tsogro+jumbo --runs 1 --time 1s --hz {}", allowed(4999));
        let (runs, text) = done(&words, &folder.0);
        assert_eq!(runs.len(), 2);
        both.iter_mut().zip(&runs).for_each(|(carried, run)| carried.add(run));
        assert!(folder.0.join("throughput.svg").exists() && folder.0.join("receiver.svg").exists(), "{text}");
        assert!(text.contains("Gbit/s per core") && text.contains("receiver, percent of samples"), "{text}");
        let enough = |(carried, bytes): (&Carried, f64)| {
            carried.samples >= ENOUGH_SAMPLES && (emulated || carried.bytes >= bytes)
        };
        let enough = both.iter().zip(ENOUGH_BYTES).all(enough);
        // In some runs on a virtual machine hardly any timer interrupt hits the copying of large packets, so the runs are added
        // up.
        if enough && (have_shapes(&both) || attempt == ATTEMPTS) {
            break;
        }
        if attempt == ATTEMPTS {
            harness::skip("the host is too busy: the flow carries next to nothing");
        }
    }
    let gbps = both.each_ref().map(Carried::gbps_per_core);
    let samples = both.each_ref().map(|carried| carried.samples);
    let shares = both.each_ref().map(Carried::shares);
    let text = format!("{gbps:.2?} Gbit/s per core; of {samples:.0?} samples data_copy and tcp/ip {shares:.1?}%");
    note(text.clone());
    assert!(emulated || gbps[1] > 5.0 * gbps[0], "{text}");
    let [[_, tcp_ip], [_, tcp_ip_large]] = shares;
    if !have_shapes(&both) && !emulated && tcp_ip_large < tcp_ip {
        harness::skip(format!("timer interrupts of this host find hardly any copying: {text}"));
    }
    assert!(have_shapes(&both), "{text}");
}

fn what_the_device_cannot_is_unavailable() {
    let folder = Folder::new("cannot");
    let (runs, text) = done("single-flow --config all-opts --runs 2 --time 1s --hz 0", &folder.0);
    assert_eq!(runs.len(), 1, "it is tried once");
    let why = runs[0]["unavailable"].as_str().unwrap_or_else(|| panic!("{text}"));
    assert!(why.contains("ntuple") && text.contains(why), "{text}");
}

/// A flow is received on the sender's node, and on the other one. An emulated machine has one kind of memory, so the test does
/// not compare their speed.
fn flows_are_received_on_either_node() {
    let folder = Folder::new("numa");
    let (runs, text) = done("numa --config no-opts,tsogro --runs 1 --time 2s --hz 99", &folder.0);
    let variants: Vec<_> = runs.iter().map(|run| run["variant"].as_str().unwrap_or_default()).collect();
    assert_eq!(variants, ["same node", "other node", "same node", "other node"], "{text}");
    for run in &runs {
        assert!(run["unavailable"].is_null(), "{run}");
        assert!(run["bytes"].as_f64().is_some_and(|bytes| bytes > 0.0), "{run}");
    }
    note(text);
}

fn histograms_and_the_congestion_control_are_in_the_documents() {
    let folder = Folder::new("histograms");
    let words = "single-flow --config no-opts --congestion reno --runs 1 --time 1s --hz 0 --histograms";
    let (runs, text) = done(words, &folder.0);
    assert_eq!(runs[0]["congestion"], "reno");
    let count = |name: &str| {
        runs[0]["histograms"][name]["buckets"]
            .as_array()
            .map_or(0, |buckets| buckets.iter().filter_map(Value::as_u64).sum::<u64>())
    };
    let (before, after, latency) = (count("before_gro"), count("after_gro"), count("latency"));
    note(format!("{before} packets, {after} after GRO, {latency} copies"));
    // Packets in flight when the histogram begins or ends are in only one of the two histograms.
    assert!(before > 0 && before.abs_diff(after) < 1000 && latency > 0, "{}", runs[0]);
    let unsplit = runs[0]["besides"]["unsplit"].as_u64().expect("a count");
    assert_eq!(count("scheduling") + unsplit, latency, "{}", runs[0]);
    for picture in ["skb.svg", "latency.svg"] {
        assert!(folder.0.join(picture).exists() && text.contains(picture), "{text}");
    }
    let other = Folder::new("congestion");
    let output =
        lab("single-flow --config no-opts --congestion nosuch --runs 1", &other.0).output().expect("topstat runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("there are reno"), "{said}");
}

fn as_many_packets_are_lost_as_asked_for() {
    let (mut arrived, mut dropped) = (0.0, 0.0);
    for attempt in 1..=ATTEMPTS {
        let folder = Folder::new(&format!("loss-{attempt}"));
        let (runs, _) = done("loss --config no-opts,tsogro --loss 0,2 --runs 1 --time 1s --hz 0", &folder.0);
        let count = |run: &Value, name: &str| run[name].as_f64().unwrap_or_else(|| panic!("{name}: {run}"));
        // Without loss and with it, in both configurations: the program does not prevent changes to the device's settings.
        assert_eq!(runs.len(), 4, "{runs:#?}");
        for [whole, lossy] in runs.as_chunks().0 {
            assert!(whole["unavailable"].is_null() && lossy["unavailable"].is_null(), "{runs:#?}");
            assert_eq!(whole["dropped"].as_u64(), Some(0));
            arrived += count(lossy, "arrived");
            dropped += count(lossy, "dropped");
        }
        if arrived >= ENOUGH_PACKETS {
            break;
        }
        if attempt == ATTEMPTS {
            harness::skip("the host is too busy: the flow carries next to nothing");
        }
    }
    note(format!("{dropped} of {arrived} packets"));
    // Six standard deviations: chance exceeds them once in 500 million runs.
    let (expected, chance) = (arrived * 0.02, 6.0 * (arrived * 0.02 * 0.98).sqrt());
    assert!((dropped - expected).abs() <= chance, "{dropped} of {arrived}");
}

/// State that an experiment could leave behind or change: names of network namespaces, settings of the network and of sampling,
/// this host's devices, and pinned objects.
fn left_behind() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for folder in ["/proc/sys/net/core", "/proc/sys/net/ipv4", "/run/netns", "/sys/fs/bpf"] {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.to_string_lossy().into_owned();
            // Namespaces and pins of other tests are left out.
            if folder == "/run/netns" && !name.contains("lab") || name.contains("/topstat-live-") {
                continue;
            }
            let is_setting = folder.starts_with("/proc/sys") && path.is_file();
            found.insert(
                name,
                if is_setting { std::fs::read_to_string(&path).unwrap_or_default() } else { String::new() },
            );
        }
    }
    for name in ["perf_event_paranoid", "perf_event_max_stack", "kptr_restrict"] {
        let path = format!("/proc/sys/kernel/{name}");
        found.insert(path.clone(), std::fs::read_to_string(path).unwrap_or_default());
    }
    for device in std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
        for what in ["mtu", "flags", "tx_queue_len", "gro_flush_timeout", "threaded"] {
            let path = device.path().join(what);
            let value = std::fs::read_to_string(&path).unwrap_or_default();
            found.insert(path.to_string_lossy().into_owned(), value);
        }
    }
    found
}

/// The number of the family's programs in the kernel. They disappear some time after their process has ended.
pub fn programs() -> usize {
    let names = ["netstack_sample", "netstack_lose", "netstack_copy", "netstack_switch", "napi_gro_receiv"];
    let is_one = |name: &str| names.contains(&name);
    libbpf_rs::query::ProgInfoIter::default().filter(|program| program.name.to_str().is_some_and(is_one)).count()
}

/// The number of processes in the process group of this id.
fn children_of(pid: i32) -> usize {
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    processes.filter_map(|process| process.stat().ok()).filter(|stat| stat.pgrp == pid).count()
}

/// The number of network devices with the experiment's name, in all network namespaces, with or without names.
fn devices() -> usize {
    let which = Which { netns: InNetns::All, devices: true, device: Some("lab0".to_owned()) };
    let mut reader = Reader::open(&Select { which, ..Select::default() }).expect("a reader of all devices");
    reader.touch().expect("the devices")
}

/// How often an experiment is ended, unless TOPSTAT_LAB_KILLS sets the number. Each time takes some seconds.
const KILLS: usize = 10;

/// Interrupts and kills the lab at moments all over a run: of throughput, of samples, of histograms, while namespaces are made.
fn nothing_stays_however_it_ends() {
    let before = (left_behind(), programs());
    let times: usize = std::env::var("TOPSTAT_LAB_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let mut finished = 0;
    for number in 0..times {
        let folder = Folder::new(&format!("killed-{number}"));
        let words = "loss --loss 1 --config no-opts,tsogro --runs 5 --time 500ms --histograms";
        let mut child = lab(words, &folder.0).process_group(0).spawn().expect("topstat runs");
        let pid = Pid::from_child(&child);
        if number == 0 {
            assert!(eventually(PATIENCE, || devices() == 2), "the experiment has made no devices");
        } else {
            // Spread over the first runs, but not random: a failure can be repeated.
            std::thread::sleep(Duration::from_millis(20 + (number as u64 * 1733) % 8000));
        }
        let signal = if number % 2 == 0 { Signal::INT } else { Signal::KILL };
        kill_process(pid, signal).expect("a signal");
        let status = child.wait().expect("it ends");
        if signal == Signal::INT {
            assert!(status.code() == Some(0) || status.code().is_none(), "{status}");
            finished += usize::from(status.success());
        }
        // Each existing document is complete.
        if folder.0.exists() {
            documents(&folder.0);
        }
        let ended = || format!("{number}, which ended by {signal:?}");
        // Processes that the lab had started at that moment, such as `ip`, end by themselves.
        assert!(
            eventually(PATIENCE, || children_of(pid.as_raw_nonzero().get()) == 0),
            "processes stay after {}",
            ended()
        );
        // The kernel removes namespaces after the process has ended, one after the other.
        assert!(eventually(PATIENCE, || devices() == 0), "devices stay after {}", ended());
        assert!(eventually(PATIENCE, || programs() <= before.1), "programs stay after {}", ended());
        let now = left_behind();
        let differs = |name: &&String| now.get(*name) != before.0.get(*name);
        let changed: Vec<&String> = now.keys().chain(before.0.keys()).filter(differs).collect();
        assert!(changed.is_empty(), "after {}: {changed:?}", ended());
    }
    note(format!("{times} runs, {finished} of {} ended by themselves after Ctrl-C", times.div_ceil(2)));
}
