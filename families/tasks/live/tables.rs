// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of tasks and cgroups, compared with the kernel's own accounts.

use std::time::Duration;

use topstat_kernel::{MAX_TOP, Options};
use topstat_live::accounts::schedstat_of;
use topstat_live::cgroup::Group;
use topstat_live::pace;
use topstat_live::watch::{ENDLESS_MS, load, snapshot};
use topstat_live::{Case, Role, case, eventually, note};
use topstat_model::{Field, Row, Snapshot};

pub fn cases() -> Vec<Case> {
    vec![
        case!(a_spinner_is_as_large_as_the_kernel_says, Root, TaskStorage; Computed, Distribution),
        case!(total_is_time_times_cpus, Root, TaskStorage),
        case!(waits_and_switches_are_the_kernel_s, Root, TaskStorage),
        case!(what_threads_ran_that_have_ended_is_their_process_s, Root, TaskStorage; Computed, Daemon),
        case!(threads_where_asked_for, Root, TaskStorage),
        case!(a_group_has_what_its_tasks_use, Root, CgroupV2, TaskStorage; Computed, ComeAndGo, Distribution),
        case!(groups_come_and_go, Root, CgroupV2, TaskStorage; Computed),
        case!(names_are_escaped, Root, TaskStorage),
        case!(ends_while_programs_are_preempted, Root, RealTime, TaskStorage; EveryKernel, Gate),
    ]
}

fn row(snapshot: &Snapshot, column: &str, value: &Field) -> Option<Row> {
    let column = snapshot.column(column).expect("a column");
    snapshot.rows.iter().find(|r| r.object[column] == *value).cloned()
}

fn of(snapshot: &Snapshot, pid: u32) -> u64 {
    row(snapshot, "pid", &Field::from(pid)).map_or(0, |r| r.value)
}

/// The kernel's account excludes the hypervisor's time, so topstat may find this much more.
const STEAL: f64 = 0.05;

fn settle() {
    std::thread::sleep(Duration::from_millis(20));
}

/// The spinner may not be switched for long: its row is the last second all the same.
fn a_spinner_is_as_large_as_the_kernel_says() {
    let mut spinner = Role::start("burner", &["ts-table"]);
    spinner.expect("ready");
    let mut source = load(&["tasks/cpu"], &Options::default());
    spinner.tell("4000");
    std::thread::sleep(Duration::from_millis(300));
    let mut found = Vec::new();
    for _ in 0..3 {
        let before = schedstat_of(spinner.pid()).run_ns;
        std::thread::sleep(Duration::from_millis(1000));
        let truth = schedstat_of(spinner.pid()).run_ns - before;
        let snapshot = snapshot(&mut *source, "tasks/cpu");
        found.push((of(&snapshot, spinner.pid()) as f64, truth as f64));
    }
    note(format!("found and truth, ns: {found:?}"));
    // The window's grain is a tenth of a second.
    for (found, truth) in found {
        assert!((found - truth).abs() <= 0.06e9 + truth * STEAL, "{found} ns, but it was {truth} ns");
    }
}

fn total_is_time_times_cpus() {
    const LOOKS: u32 = 20;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut source = load(&["tasks/cpu", "cgroups/cpu"], &Options::default());
    std::thread::sleep(Duration::from_millis(1300));
    for path in ["tasks/cpu", "cgroups/cpu"] {
        // Exact to a jiffy, and to the time between reading the first and the last CPU. On a busy host other tasks may run in
        // that time: then the test reads again.
        let mut totals = Vec::new();
        let right = (0..LOOKS).any(|_| {
            totals.push(snapshot(&mut *source, path).total);
            (totals[totals.len() - 1] as f64 / cpus as f64 - 1e9).abs() <= 15e6
        });
        note(format!("{path}: total {totals:?} ns on {cpus} CPUs"));
        assert!(right, "{path}: total {totals:?} ns on {cpus} CPUs");
    }
}

fn waits_and_switches_are_the_kernel_s() {
    let mut spinner = Role::start("burner", &["ts-waits"]);
    spinner.expect("ready");
    settle();
    let options = Options { period_ms: ENDLESS_MS, ..Options::default() };
    let mut source = load(&["tasks/waits", "tasks/switches", "tasks/cpu_total"], &options);
    let before = schedstat_of(spinner.pid());
    let switched = switches(spinner.pid());
    for _ in 0..50 {
        spinner.tell("5");
        spinner.expect("burnt");
    }
    settle();
    let after = schedstat_of(spinner.pid());
    let (ran, waited) = (after.run_ns - before.run_ns, after.wait_ns - before.wait_ns);
    let switched = switches(spinner.pid()) - switched;
    assert_eq!(of(&snapshot(&mut *source, "tasks/switches"), spinner.pid()), switched);
    assert_eq!(of(&snapshot(&mut *source, "tasks/waits"), spinner.pid()), waited);
    let found = of(&snapshot(&mut *source, "tasks/cpu_total"), spinner.pid());
    note(format!("{switched} switches, waited {waited} ns, ran {ran} ns, found {found} ns"));
    assert!((found as f64 - ran as f64).abs() <= ran as f64 * STEAL, "{found} ns, but it was {ran} ns");
}

fn switches(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let numbers = text.lines().filter(|l| l.contains("ctxt_switches"));
    numbers.filter_map(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}

/// Mostly the threads leave their CPU for the first time when they end, and may have been reaped by then.
fn what_threads_ran_that_have_ended_is_their_process_s() {
    const THREADS: u64 = 200;
    /// The CPU time of ending, after the last push of the thread, on a usual host.
    const END_NS: f64 = 30_000.0;
    let mut relay = Role::start("relay", &[]);
    relay.expect("ready");
    let used = |relay: &mut Role, threads: u64| -> u64 {
        relay.tell(&format!("{threads} 2"));
        relay.hear().strip_prefix("used ").and_then(|ns| ns.parse().ok()).expect("what it has used")
    };
    let before = used(&mut relay, 1);
    settle();
    let options = Options { period_ms: ENDLESS_MS, ..Options::default() };
    let mut source = load(&["tasks/cpu", "tasks/cpu_total"], &options);
    let threads = pace::work(THREADS, 50);
    let truth = used(&mut relay, threads) - before;
    let allowed = truth as f64 * STEAL + END_NS * f64::from(pace::slowdown()) * threads as f64;
    settle();
    for path in ["tasks/cpu", "tasks/cpu_total"] {
        let found = of(&snapshot(&mut *source, path), relay.pid());
        note(format!("{path}: found {found} ns, truth {truth} ns"));
        assert!((found as f64 - truth as f64).abs() <= allowed, "{path}: {found} ns, but it was {truth} ns");
    }
    relay.finish();
}

fn threads_where_asked_for() {
    let mut team = Role::start("team", &[]);
    team.expect("ready");
    let options = Options { threads: true, period_ms: ENDLESS_MS, ..Options::default() };
    let mut source = load(&["tasks/cpu"], &options);
    team.tell("400");
    std::thread::sleep(Duration::from_millis(400));
    let snapshot = snapshot(&mut *source, "tasks/cpu");
    let pid = snapshot.column("pid").expect("a column");
    let comm = snapshot.column("comm").expect("a column");
    let tid = snapshot.column("tid").expect("a column");
    let workers: Vec<_> = snapshot.rows.iter().filter(|r| r.object[pid] == Field::from(team.pid())).collect();
    let named = workers.iter().filter(|r| r.object[comm].to_string().starts_with("ts-worker-")).count();
    assert_eq!(named, 4, "{workers:?}");
    assert!(workers.iter().all(|r| r.object[tid] != Field::None));
    team.expect("used");
}

fn a_group_has_what_its_tasks_use() {
    let mut spinner = Role::start("burner", &["ts-group"]);
    spinner.expect("ready");
    let group = Group::new("tasks").expect("make a cgroup");
    group.take(spinner.pid());
    let options = Options { period_ms: ENDLESS_MS, ..Options::default() };
    let mut source = load(&["cgroups/cpu"], &options);
    let before = schedstat_of(spinner.pid()).run_ns;
    spinner.tell("500");
    spinner.expect("burnt");
    settle();
    let truth = (schedstat_of(spinner.pid()).run_ns - before) as f64;
    let found = row(&snapshot(&mut *source, "cgroups/cpu"), "cgroup", &Field::from(group.path.as_str()));
    let found = found.expect("a row of the group").value as f64;
    note(format!("found {found} ns, truth {truth} ns"));
    assert!((found - truth).abs() <= truth * STEAL, "{found} ns, but it was {truth} ns");
    spinner.finish();
}

/// More groups, one after the other, than there are places at a time: none is lost, and none stays. The last group, which may
/// have an earlier one's place, has the time of its tasks alone.
fn groups_come_and_go() {
    const ROOM: u64 = 8192; // TASKS_GROUPS
    let mut spinner = Role::start("burner", &["ts-groups"]);
    spinner.expect("ready");
    let options = Options { period_ms: ENDLESS_MS, ..Options::default() };
    let mut source = load(&["cgroups/cpu"], &options);
    let before = snapshot(&mut *source, "cgroups/cpu").objects;
    let mut last = Group::new("first").expect("make a cgroup");
    let groups = pace::work(ROOM + 100, 100);
    for i in 0..groups {
        let group = Group::new(&format!("many-{i}")).expect("make a cgroup");
        group.take(spinner.pid());
        // The spinner leaves its CPU in the group's name.
        spinner.tell("0");
        spinner.expect("burnt");
        last = group;
    }
    let ran = schedstat_of(spinner.pid()).run_ns;
    spinner.tell("300");
    spinner.expect("burnt");
    settle();
    let truth = (schedstat_of(spinner.pid()).run_ns - ran) as f64;
    let after = snapshot(&mut *source, "cgroups/cpu");
    let found = row(&after, "cgroup", &Field::from(last.path.as_str())).expect("a row of the last group").value as f64;
    note(format!(
        "{groups} groups: found {found} ns, truth {truth} ns; {before} objects before, {} after",
        after.objects
    ));
    assert!((found - truth).abs() <= truth * STEAL, "{found} ns, but it was {truth} ns");
    assert_eq!(after.lost.no_memory, 0);
    // Other processes of this host may make some groups.
    assert!(after.objects < before + 50, "{before} objects before, {} after", after.objects);
    spinner.finish();
}

/// A name may contain any characters: text for a terminal contains no control characters.
fn names_are_escaped() {
    let mut spinner = Role::start("burner", &["\x1b[31m\x07\ttop"]);
    spinner.expect("ready");
    let mut source = load(&["tasks/cpu"], &Options::default());
    spinner.tell("100");
    spinner.expect("burnt");
    let snapshot = snapshot(&mut *source, "tasks/cpu");
    let row = row(&snapshot, "pid", &Field::from(spinner.pid())).expect("its row");
    let comm = row.object[snapshot.column("comm").expect("a column")].clone();
    assert_eq!(comm, Field::Text("\x1b[31m\x07\ttop".to_owned()));
    assert_eq!(comm.to_string(), "\\x1b[31m\\x07\\x09top");
}

/// The number of processes in /proc.
fn processes() -> u64 {
    procfs::process::all_processes().expect("/proc").count() as u64
}

/// Processes end while others wake and preempt a CPU's task. Where tracing programs can be preempted, some are: the kernel then
/// skips the same program for all other tasks on the CPU, also at the ends of processes.
fn ends_while_programs_are_preempted() {
    const LASTS: Duration = Duration::from_secs(4);
    const NAP_US: &str = "300";
    let mut stormers: Vec<_> =
        [&[][..], &[][..], &[NAP_US][..], &[NAP_US][..]].map(|pause| Role::start("stormer", pause)).into();
    for stormer in &mut stormers {
        stormer.expect("ready");
    }
    let options = Options { top: MAX_TOP, period_ms: ENDLESS_MS, ..Options::default() };
    let mut source = load(&["tasks/cpu_total", "tasks/cpu"], &options);
    for stormer in &mut stormers {
        stormer.tell(&LASTS.as_millis().to_string());
    }
    let made: u64 = stormers.iter_mut().map(|s| s.expect("made").parse::<u64>().expect("how many")).sum();
    // A process is freed by RCU, some time after its end.
    std::thread::sleep(pace::patience(Duration::from_millis(500)));
    // Other processes of this host may end during the check: only a lasting difference is an error.
    let mut said = String::new();
    let right = eventually(Duration::from_secs(3), || {
        let before = processes();
        let snapshot = snapshot(&mut *source, "tasks/cpu_total");
        let living = before.max(processes());
        let pid = snapshot.column("pid").expect("a column");
        let ended = |row: &&Row| {
            let Field::U64(pid @ 1..) = row.object[pid] else { return false };
            !std::path::Path::new(&format!("/proc/{pid}")).exists()
        };
        let shown: Vec<_> = snapshot.rows.iter().filter(ended).collect();
        let skipped = snapshot.lost.further.iter().find(|(name, _)| name == "skipped").map_or(0, |(_, count)| *count);
        said =
            format!("{skipped} events left out, {} objects of {living} processes; ended: {shown:?}", snapshot.objects);
        // Only if two programs miss the same end is its object taken for a living one.
        shown.is_empty() && snapshot.objects <= living + skipped / 50
    });
    note(format!("{made} processes, {said}"));
    assert!(right, "ends were missed: {said}");
}
