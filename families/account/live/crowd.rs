// SPDX-License-Identifier: Apache-2.0 OR MIT
//! As many tasks as the host allows sleep, wake all at once, and end. The account, the tables and `topstat tasks` stay right, and
//! sleeping tasks do not make a refresh longer.

use std::fs;
use std::time::{Duration, Instant};

use topstat::{Exit, Kernel, SystemConsole};
use topstat_families::account::Precise;
use topstat_live::watch::{endless, table};
use topstat_live::{Case, Role, alone, note, own_cpu_time, pace};
use topstat_model::interval::{Each, Interval};

use super::intervals::{account, interval};

pub fn cases() -> Vec<Case> {
    vec![alone!(Shared: a_crowd_is_accounted_for, Root, TaskStorage; Slow)]
}

/// The number of tasks unless `TOPSTAT_CROWD` sets it; the host may allow fewer.
const CROWD: u64 = 20_000;
/// The share of tasks that the account may miss. Some kernels don't trace all switches (see the limits in the README of tasks): a
/// task that leaves a CPU unseen is not known to have run. Its time is in the row `unowned`.
const UNTRACED: f64 = 0.005;
/// Pids that are left to other processes.
const OTHERS: u64 = 4000;
/// The memory of a task at most: its stacks, the kernel's structures, its accounts and objects.
const TASK_BYTES: u64 = 64 << 10;
const PID_MAX: &str = "/proc/sys/kernel/pid_max";

fn number(path: &str) -> u64 {
    fs::read_to_string(path).expect(path).trim().parse().expect("a number")
}

/// Makes room for more pids; dropping it restores the limit.
struct Pids(u64);

impl Pids {
    fn for_so_many(count: u64) -> Self {
        let before = number(PID_MAX);
        if before < count + OTHERS {
            fs::write(PID_MAX, (count + 2 * OTHERS).to_string()).expect(PID_MAX);
        }
        Self(before)
    }
}

impl Drop for Pids {
    fn drop(&mut self) {
        let _ = fs::write(PID_MAX, self.0.to_string());
    }
}

/// The number of tasks asked for, limited by the host's memory and threads.
fn how_many() -> u64 {
    let wanted = std::env::var("TOPSTAT_CROWD").ok();
    let wanted = wanted.map_or(pace::work(CROWD, 1000), |text| text.parse().expect("TOPSTAT_CROWD is a number"));
    let free = fs::read_to_string("/proc/meminfo").expect("meminfo");
    let free =
        free.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.split_whitespace().next()?.parse().ok());
    let free_kib: u64 = free.expect("MemAvailable");
    let count = wanted
        .min(free_kib * 1024 / 2 / TASK_BYTES)
        .min(number("/proc/sys/kernel/threads-max").saturating_sub(2 * OTHERS));
    if count < wanted {
        note(format!("{wanted} tasks were asked for, and there is room for {count}"));
    }
    count
}

fn children(interval: &Interval, of: u32, ended: bool) -> u64 {
    interval.tasks.iter().filter(|t| t.ppid == of && t.ended_ns.is_some() == ended).count() as u64
}

/// The median CPU time of several refreshes while hardly any task runs, and the number of tasks that the median refresh reported.
fn refresh(reader: &mut Precise) -> (Duration, usize) {
    let mut times: Vec<_> = (0..20)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(20));
            let begun = own_cpu_time();
            let interval = reader.interval(Each::Process).unwrap_or_else(|e| panic!("{e}"));
            (own_cpu_time() - begun, interval.tasks.len())
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn a_crowd_is_accounted_for() {
    let count = how_many();
    let _pids = Pids::for_so_many(count);
    let mut reader = account();
    let tables = ["tasks/cpu", "tasks/switches"].map(table);
    let mut source = topstat_kernel::load(&tables, &endless()).unwrap_or_else(|e| panic!("{e}"));
    let alone = refresh(&mut reader);
    let mut crowd = Role::start("crowd", &[&count.to_string()]);
    crowd.expect("ready");
    // The crowd may take longer to answer than the harness waits, so intervals are read until it answers.
    let until_done = |crowd: &mut Role, reader: &mut Precise, line: &str, ended: bool| {
        crowd.tell(line);
        let begun = Instant::now();
        let mut new = 0;
        loop {
            new += children(&interval(reader), crowd.pid(), ended);
            if let Some(done) = crowd.heard() {
                assert_eq!(done, "done");
                break;
            }
            assert!(begun.elapsed() < pace::patience(Duration::from_secs(120)), "{line} takes for ever");
            // The pause is long enough to keep the time of a switch that was not traced small against the interval; the next
            // switch corrects that time.
            wait(reader, Duration::from_millis(250));
        }
        // Tasks that the crowd told last.
        wait(reader, pace::patience(Duration::from_millis(500)));
        new += children(&interval(reader), crowd.pid(), ended);
        (new, begun.elapsed())
    };
    // Each task is in at least one interval.
    let (came, took) = until_done(&mut crowd, &mut reader, "come", false);
    let nearly_all = |seen: u64| seen as f64 >= count as f64 * (1.0 - UNTRACED);
    assert!(nearly_all(came), "{came} of {count} were seen");
    note(format!("{count} tasks came in {took:?}; {came} were seen"));
    let (asleep, told) = refresh(&mut reader);
    note(format!("a refresh takes {asleep:?} beside {count} that sleep, and tells {told} tasks; before {alone:?}"));
    // The time must not grow with the number of sleeping tasks. Listing /proc is the cheapest walk over all tasks, and would cost
    // more.
    let begun = own_cpu_time();
    assert!(fs::read_dir("/proc").expect("/proc").count() as u64 > count);
    let walk = own_cpu_time() - begun;
    assert!(asleep < alone.0 * 4 + walk, "{asleep:?}, {:?} before; listing /proc takes {walk:?}", alone.0);
    assert!(told as u64 <= alone.1 as u64 + 200, "{told} tasks ran?");

    let switches = |source: &mut dyn topstat_kernel::Source| {
        let begun = Instant::now();
        let snapshot = source.snapshot(&table("tasks/switches")).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(snapshot.check(), Ok(()));
        assert!(snapshot.objects >= count, "{} objects", snapshot.objects);
        assert!(snapshot.is_proven(), "{} of {} rows are proven", snapshot.proven, snapshot.rows.len());
        (snapshot.total, begun.elapsed(), snapshot.lost.no_memory)
    };
    let before = switches(&mut *source);
    let (woke, took) = until_done(&mut crowd, &mut reader, "wake", false);
    assert!(nearly_all(woke), "{woke} of {count} were seen");
    let after = switches(&mut *source);
    note(format!(
        "all woke in {took:?}, {woke} were seen; {} switches more; a proven top of them takes {:?}",
        after.0 - before.0,
        after.1
    ));
    assert!(nearly_all(after.0 - before.0), "they have left the CPU {} times", after.0 - before.0);
    assert_eq!(after.2, 0, "tasks without objects");
    topstat_tasks_adds_up();

    let (ended, took) = until_done(&mut crowd, &mut reader, "end", true);
    note(format!("all ended in {took:?}"));
    assert_eq!(ended, count, "exits that were seen");
    crowd.finish();
}

/// Waits, and takes down ended threads during the wait: the kernel keeps 16,384 of them.
fn wait(reader: &mut Precise, time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::thread::sleep(Duration::from_millis(5));
        reader.poll();
    }
}

/// The sum that the command shows is time × CPUs.
fn topstat_tasks_adds_up() {
    let (read, write) = rustix::pipe::pipe().expect("a pipe");
    let line = ["topstat", "tasks", "0.5", "2", "-o", "json"].map(Into::into);
    let program = std::thread::spawn(move || {
        topstat::run(line, &mut Kernel, &mut SystemConsole::with_output(fs::File::from(write)))
    });
    let text = std::io::read_to_string(fs::File::from(read)).expect("its output");
    assert_eq!(program.join().expect("topstat"), Exit::Done);
    let mut intervals = 0;
    for line in text.lines() {
        let document: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let number = |value: &serde_json::Value| i128::from(value.as_i64().expect("a number"));
        let totals = &document["totals"];
        let tasks = document["tasks"].as_array().expect("tasks").iter();
        let own: i128 = tasks.map(|task| number(&task["own"]["run_ns"])).sum();
        let rest = ["idle_ns", "idle_irq_ns", "idle_softirq_ns", "idle_steal_ns", "unowned_ns", "unseen_ns"];
        let rest: i128 = rest.iter().map(|key| number(&totals[key])).sum();
        assert_eq!(own + number(&document["other"]["own"]["run_ns"]) + rest, number(&totals["wall_ns"]), "{totals}");
        intervals += 1;
    }
    assert_eq!(intervals, 2);
}
