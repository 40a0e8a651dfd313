// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facts about one process and one control group, from their files. The files describe the present only.

use std::fs;
use std::path::{Path, PathBuf};

use topstat_model::Unit;
use topstat_model::typeset::escape;

use crate::signal::{same_pids, words_of_stat};

/// The name of a fact, and its text.
pub type Detail = (&'static str, String);

/// The process with this pid: its command line, its state, its time, memory, disk use and open files, as far as this user may see
/// them.
pub fn process(pid: u64) -> Vec<Detail> {
    if let Err(why) = same_pids() {
        return vec![("process", why)];
    }
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let Ok(line) = fs::read(folder.join("cmdline")) else {
        return vec![("process", "has ended, or is not visible here".to_owned())];
    };
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let mut details = vec![("command", escape(words.join(" ").trim()).into_owned())];
    let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
    let mut said: Vec<_> = ["State", "PPid", "Uid", "Threads"]
        .iter()
        .filter_map(|name| Some(format!("{name} {}", value(&status, name)?)))
        .collect();
    if let Ok(open) = fs::read_dir(folder.join("fd")) {
        said.push(format!("files {}", open.count()));
    }
    details.push(("process", said.join("  ")));
    if let Some((user, system)) = fs::read_to_string(folder.join("stat")).ok().and_then(|stat| times(&stat)) {
        details.push(("cpu", format!("user {user:.2}s  system {system:.2}s, since it began")));
    }
    let memory = [("VmRSS", "resident"), ("VmSwap", "swap"), ("VmSize", "mapped")];
    let memory: Vec<_> = memory.iter().filter_map(|(name, is)| Some(format!("{is} {}", kib(&status, name)?))).collect();
    if !memory.is_empty() {
        details.push(("memory", memory.join("  ")));
    }
    let io = fs::read_to_string(folder.join("io")).unwrap_or_default();
    let io: Vec<_> = [("read_bytes", "read"), ("write_bytes", "written")]
        .iter()
        .filter_map(|(name, is)| Some(format!("{is} {}", Unit::Bytes.human(value(&io, name)?.parse().ok()?))))
        .collect();
    if !io.is_empty() {
        details.push(("disk", format!("{}, since it began", io.join("  "))));
    }
    details
}

/// The first two words after a name and a colon.
fn value(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.lines().filter_map(|line| line.split_once(':')).find(|(found, _)| *found == name)?;
    let words: Vec<_> = rest.split_whitespace().take(if name == "State" { 2 } else { 1 }).collect();
    Some(words.join(" "))
}

fn kib(text: &str, name: &str) -> Option<String> {
    Some(Unit::Bytes.human(value(text, name)?.parse::<u64>().ok()? * 1024))
}

/// The seconds in user mode and in the kernel, from /proc/PID/stat.
#[allow(clippy::cast_precision_loss)] // figures for people
fn times(stat: &str) -> Option<(f64, f64)> {
    let (_, words) = words_of_stat(stat)?;
    let mut ticks = words.skip(11).map(|word| word.parse::<u64>().ok());
    let per_second = rustix::param::clock_ticks_per_second().max(1) as f64;
    Some((ticks.next()?? as f64 / per_second, ticks.next()?? as f64 / per_second))
}

/// The control group of this path in the hierarchy of version 2: limits, throttling, memory and pressure. Empty where it has no
/// such files.
pub fn group(path: &str) -> Vec<Detail> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let of_v2 = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let folder = words.next()?;
        (words.next()? == "cgroup2").then(|| PathBuf::from(folder))
    };
    let below = Path::new(path.trim_start_matches('/'));
    let is_safe = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    match mounts.lines().find_map(of_v2) {
        Some(root) if is_safe => group_in(&root.join(below)),
        _ => Vec::new(),
    }
}

fn group_in(folder: &Path) -> Vec<Detail> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let number = |text: &str, name: &str| {
        let (_, value) = text.lines().filter_map(|line| line.split_once(' ')).find(|(found, _)| *found == name)?;
        value.trim().parse::<u64>().ok()
    };
    let mut details = Vec::new();
    if let Some(stat) = read("cpu.stat") {
        let us = |name| number(&stat, name).map(|us| Unit::Nanoseconds.human(us.saturating_mul(1000)));
        let limit = read("cpu.max").map(|max| max.trim().to_owned()).filter(|max| !max.starts_with("max"));
        let mut said = vec![format!("used {}", us("usage_usec").unwrap_or_default())];
        said.extend(limit.map(|limit| format!("limit {limit} µs")));
        if let (Some(times @ 1..), Some(time)) = (number(&stat, "nr_throttled"), us("throttled_usec")) {
            said.push(format!("throttled {times} times, {time}"));
        }
        details.push(("group cpu", said.join("  ")));
    }
    if let Some(bytes) = read("memory.current").and_then(|text| text.trim().parse().ok()) {
        let mut said = vec![Unit::Bytes.human(bytes)];
        if let Some(limit) = read("memory.max").and_then(|text| text.trim().parse().ok()) {
            said.push(format!("of {}", Unit::Bytes.human(limit)));
        }
        let events = read("memory.events").unwrap_or_default();
        let events = ["high", "max", "oom_kill"].into_iter().filter_map(|name| Some((name, number(&events, name)?)));
        said.extend(events.filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name} {count}")));
        details.push(("group memory", said.join("  ")));
    }
    let pressure = |name: &'static str| {
        let text = read(&format!("{name}.pressure"))?;
        let average = text.lines().next()?.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?.to_owned();
        Some(format!("{name} {average}%"))
    };
    let pressures: Vec<_> = ["cpu", "memory", "io"].into_iter().filter_map(pressure).collect();
    if !pressures.is_empty() {
        details.push(("group waits", format!("{}, of the last 10 s", pressures.join("  "))));
    }
    details
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_described() {
        let details = process(std::process::id().into());
        let names: Vec<_> = details.iter().map(|(name, _)| *name).collect();
        assert_eq!(names[..4], ["command", "process", "cpu", "memory"], "{details:?}");
        assert!(details[1].1.contains("Threads ") && details[1].1.contains("files "), "{details:?}");
        assert_eq!(process(u64::MAX), [("process", "has ended, or is not visible here".to_owned())]);
    }

    #[test]
    fn a_name_with_spaces_and_parentheses_moves_no_figure() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 5 0 0";
        let per_second = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(times(stat), Some((250.0 / per_second, 50.0 / per_second)));
        assert_eq!(times("7 (a"), None);
    }

    #[test]
    fn a_group_s_files_are_read_as_the_kernel_writes_them() {
        let folder = std::env::temp_dir().join(format!("topstat-group-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        assert_eq!(group_in(&folder), []);
        for (name, text) in [
            ("cpu.stat", "usage_usec 2500000\nnr_throttled 3\nthrottled_usec 1500\n"),
            ("cpu.max", "50000 100000\n"),
            ("memory.current", "1048576\n"),
            ("memory.max", "max\n"),
            ("memory.events", "low 0\nhigh 0\nmax 0\noom 1\noom_kill 1\n"),
            ("io.pressure", "some avg10=1.50 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.00\n"),
        ] {
            fs::write(folder.join(name), text).unwrap();
        }
        let details = group_in(&folder);
        fs::remove_dir_all(&folder).unwrap();
        let wanted = [
            ("group cpu", "used 2.50s  limit 50000 100000 µs  throttled 3 times, 1.50ms".to_owned()),
            ("group memory", "1.00MiB  oom_kill 1".to_owned()),
            ("group waits", "io 1.50%, of the last 10 s".to_owned()),
        ];
        assert_eq!(details, wanted);
        assert_eq!(group("/../../etc"), []);
    }
}
