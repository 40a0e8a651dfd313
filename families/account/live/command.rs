// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat tasks` on the running kernel: the sum holds under forks, and short-lived tasks are seen.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use topstat::{Exit, Kernel, SystemConsole};
use topstat_live::{Case, case, note, pace};

pub fn cases() -> Vec<Case> {
    vec![
        case!(the_sum_is_all_of_the_cpus_under_forks, Root, TaskStorage),
        case!(what_lived_shortly_is_seen_with_its_parent_and_its_time, Root, TaskStorage; Daemon),
    ]
}

/// Forks are bounded in time and count: other tests may run elsewhere on this host.
const MOST_FORKS: u32 = 2000;
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `topstat` with these arguments in a thread, and passes each line of its output to `take` until it ends.
fn run(arguments: &str, mut take: impl FnMut(Value)) {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let line: Vec<_> = format!("topstat {arguments}").split_whitespace().map(Into::into).collect();
    let program =
        thread::spawn(move || topstat::run(line, &mut Kernel, &mut SystemConsole::with_output(File::from(writer))));
    for line in BufReader::new(File::from(reader)).lines() {
        take(serde_json::from_str(&line.unwrap()).unwrap());
    }
    assert_eq!(program.join().unwrap(), Exit::Done, "topstat {arguments}");
}

fn number(value: &Value) -> i128 {
    value.as_i64().unwrap_or_else(|| panic!("{value} is no number")).into()
}

fn tasks(document: &Value) -> impl Iterator<Item = &Value> {
    document["tasks"].as_array().unwrap().iter()
}

/// The sum of all rows and of all time outside rows.
fn sum(document: &Value) -> i128 {
    let rest = ["idle_ns", "idle_irq_ns", "idle_softirq_ns", "idle_steal_ns", "unowned_ns", "unseen_ns"];
    let rest: i128 = rest.iter().map(|key| number(&document["totals"][key])).sum();
    let shown: i128 = tasks(document).map(|task| number(&task["own"]["run_ns"])).sum();
    shown + number(&document["other"]["own"]["run_ns"]) + rest
}

/// The number of online CPUs, by /proc/stat.
fn online_cpus() -> usize {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count()
}

fn the_sum_is_all_of_the_cpus_under_forks() {
    let stop = AtomicBool::new(false);
    let (mut intervals, mut ended) = (0, 0);
    let forks = thread::scope(|scope| {
        let load = scope.spawn(|| {
            let begun = Instant::now();
            let mut forks = 0;
            while !stop.load(Ordering::Relaxed) && forks < MOST_FORKS && begun.elapsed() < PATIENCE {
                assert!(Command::new("true").status().unwrap().success());
                forks += 1;
            }
            forks
        });
        let mut check = |document: Value| {
            intervals += 1;
            ended += tasks(&document).filter(|task| !task["ended_ns"].is_null()).count();
            let totals = &document["totals"];
            let wall = number(&document["wall_ns"]) * online_cpus() as i128;
            assert_eq!((sum(&document), number(&totals["wall_ns"])), (wall, wall), "{document}");
            if number(&document["lost"]["ended_unseen"]) == 0 {
                assert_eq!(number(&totals["unseen_ns"]), 0, "{document}");
            }
            // If no row is hidden, the sum as ptop forms it is equal.
            if number(&document["other"]["tasks"]) == 0 {
                let total = |task: &Value| number(&task["own"]["run_ns"]) + number(&task["children"]["run_ns"]);
                let counting: i128 = tasks(&document).filter(|task| task["moved_to"].is_null()).map(total).sum();
                assert_eq!(counting, number(&totals["live"]["run_ns"]) + number(&totals["ended"]["run_ns"]));
            }
        };
        for arguments in ["tasks 0.3 3 -o json", "tasks 0.3 2 -o json -n 2", "tasks 0.3 2 -o json --threads"] {
            run(arguments, &mut check);
        }
        stop.store(true, Ordering::Relaxed);
        load.join().unwrap()
    });
    assert_eq!(intervals, 7);
    assert!(ended > 10 && forks > 10, "{ended} ended, {forks} forks: there was no load");
    note(format!("{forks} forks, {ended} of them listed in {intervals} intervals"));
}

/// A unique name for `true`; dropping it removes the name.
struct Name(PathBuf);

impl Name {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("blink{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let found = ["/bin/true", "/usr/bin/true"].into_iter().find(|path| std::fs::exists(path).unwrap_or(false));
        symlink(found.expect("no true(1)"), &path).unwrap();
        Self(path)
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs a child until it has ended. Returns its pid, its CPU time by wait4(2), and the time from its start to its end for the
/// parent, both in ns.
#[expect(clippy::zombie_processes, reason = "wait4(2) waits for it, and says what it used")]
fn blink(name: &Name) -> (u32, i128, i128) {
    let begun = Instant::now();
    let child = Command::new(&name.0).spawn().unwrap();
    let pid = child.id();
    // SAFETY: zeros are a value of it, and the call writes it; no other thread waits for this child.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::wait4(pid.cast_signed(), std::ptr::null_mut(), 0, &raw mut used), pid.cast_signed());
        used
    };
    let ns = |time: libc::timeval| i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_usec) * 1000;
    (pid, ns(used.ru_utime) + ns(used.ru_stime), begun.elapsed().as_nanos().cast_signed())
}

fn what_lived_shortly_is_seen_with_its_parent_and_its_time() {
    let name = Name::new();
    let comm = name.0.file_name().unwrap().to_str().unwrap().to_owned();
    let mut truth = None;
    let mut seen = Vec::new();
    run("tasks 0.5 3 -o json --dead", |document| {
        // After the first interval, so that the child lives between two.
        let truth = truth.get_or_insert_with(|| blink(&name));
        let found = tasks(&document).filter(|task| task["comm"] == *comm && task["pid"] == truth.0);
        seen.extend(found.cloned());
    });
    let (pid, used_ns, lived_ns) = truth.unwrap();
    let [task] = &seen[..] else { panic!("{pid} was seen {} times: {seen:?}", seen.len()) };
    assert_eq!(task["ppid"], std::process::id(), "{task}");
    assert!(!task["ended_ns"].is_null(), "{task}");
    let (run_ns, elapsed_ns) = (number(&task["own"]["run_ns"]), number(&task["elapsed_ns"]));
    assert!(elapsed_ns <= lived_ns && run_ns <= elapsed_ns, "lived {lived_ns}: {task}");
    // The kernel stops the child's clock for wait4(2) at the exit, before the last switch, and leaves out interrupts.
    assert!(run_ns >= used_ns * 95 / 100 - i128::from(pace::tick_ns()), "{used_ns} ns by wait4(2): {task}");
    note(format!("lived {elapsed_ns} ns, ran {run_ns} ns; by wait4(2) {used_ns} ns"));
}
