// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares the precise account of CPU time with the kernel's own clocks and accounts. Other processes run on the host, so sums
//! are over all tasks, and pids identify the test's tasks.

use std::collections::HashSet;
use std::process::Command;
use std::time::{Duration, Instant};

use topstat_families::account::{AccountOptions, Accountant, Precise};
use topstat_live::accounts::schedstat_of;
use topstat_live::{Case, Role, alone, case, eventually, need, note, pace};
use topstat_model::interval::{Each, Interval, Task, Usage};

pub fn cases() -> Vec<Case> {
    vec![
        case!(a_spinner_has_what_its_own_clock_says, Root, TaskStorage; EveryKernel),
        case!(intervals_cut_what_runs_at_their_ends, Root, TaskStorage),
        case!(a_tree_has_what_getrusage_says, Root, TaskStorage; EveryKernel, Gate),
        case!(a_parent_that_ignores_its_child_gets_its_time, Root, TaskStorage),
        case!(an_orphan_counts_to_whom_it_was_handed, Root, TaskStorage),
        case!(threads_that_end_are_their_process_s, Root, TaskStorage),
        case!(what_lived_for_two_milliseconds_is_there, Root, TaskStorage),
        // It chooses the next pid of the host.
        alone!(Shared: a_pid_used_again_is_another_task, Root, NextPid, TaskStorage),
        case!(kernel_threads_are_in_the_kernel, Root, TaskStorage),
        case!(user_and_system_of_the_chosen_are_exact, Root, TaskStorage; EveryKernel),
        alone!(Cpu: a_thousand_sleepers_cost_nothing, Root, TaskStorage),
    ]
}

/// The tolerance for a task: the account reads its clock at the tracepoint, the kernel some instructions before.
const EXACT: f64 = 0.005;
/// The tolerance for sums.
pub const SUM: f64 = 0.0001;

pub fn account() -> Precise {
    let accountant = Accountant::load(&AccountOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    accountant.reader().unwrap_or_else(|e| panic!("{e}"))
}

/// The next interval; checks that it adds up.
pub fn interval(reader: &mut Precise) -> Interval {
    interval_of(reader, Each::Process)
}

fn interval_of(reader: &mut Precise, each: Each) -> Interval {
    let interval = reader.interval(each).unwrap_or_else(|e| panic!("{e}"));
    check(&interval);
    interval
}

/// Checks the invariants of every interval.
pub fn check(interval: &Interval) {
    let totals = interval.totals();
    assert_eq!(interval.lost.ended_unseen, 0, "{:?}", interval.lost);
    let off = totals.other_ns.unsigned_abs() as f64 / totals.wall_ns as f64;
    assert!(off <= SUM, "{} ns of {} are nobody's: {:?}", totals.other_ns, totals.wall_ns, interval.lost);
    assert!(totals.wall_ns <= interval.wall_ns() * u64::from(totals.cpus.cpu));
    for cpu in &interval.cpus {
        let sum =
            cpu.tasks_ns + cpu.unowned_ns + cpu.idle_ns + cpu.idle_irq_ns + cpu.idle_softirq_ns + cpu.idle_steal_ns;
        assert_eq!(sum, cpu.wall_ns, "{cpu:?}");
    }
    let mut own = Usage::default();
    let mut shown = Usage::default();
    for task in &interval.tasks {
        for usage in [&task.own, &task.children] {
            let sum = usage.user_ns + usage.system_ns + usage.irq_ns + usage.softirq_ns + usage.steal_ns;
            assert_eq!(sum, usage.run_ns, "{task:?}");
        }
        own += task.own;
        if task.counts() {
            shown += task.total();
        }
    }
    // The sum over `own` equals the sum with ended tasks counted among their parents' children.
    assert_eq!(own, shown);
    let ids: HashSet<u64> = interval.tasks.iter().map(|t| t.id).collect();
    for moved in interval.tasks.iter().filter_map(|t| t.moved_to) {
        assert!(ids.contains(&moved), "{moved} is not there");
    }
}

pub fn of(interval: &Interval, pid: u32) -> Task {
    interval.tasks.iter().find(|t| t.pid == pid && t.ended_ns.is_none()).cloned().unwrap_or_default()
}

/// The least that the kernel's account (`sum_exec_runtime`) has, in ns; the most is `run_ns`. That account leaves out steal, but not
/// the steal that the hypervisor reports after another CPU has brought the run queue's clock up to date
/// (`update_rq_clock_task`).
fn known(usage: &Usage) -> f64 {
    (usage.run_ns - usage.steal_ns) as f64
}

/// Time of an interval that may be in another task's account, in ns: the kernel does not trace every switch.
fn unsure_ns(interval: &Interval) -> u64 {
    interval.lost.misplaced_ns + interval.cpus.iter().map(|cpu| cpu.unowned_ns).sum::<u64>()
}

/// Checks that a task, whose own clock says `least` ns, has them but for `unsure_ns`.
fn has(usage: &Usage, least: f64, unsure_ns: u64) {
    let most = usage.run_ns as f64 + SWITCH_NS * usage.switches as f64 + unsure_ns as f64;
    assert!(most >= least, "at most {most} ns, not {least} ns ({unsure_ns} ns unsure): {usage:?}");
}

/// Where a wakeup preempts, the kernel ends the slice at the wakeup, and not at the switch a few microseconds later
/// (`rq_clock_skip_update`). Each switch may be off by this time on a host that has other things to do.
pub const SWITCH_NS: f64 = 20_000.0;

/// `EXACT` in an emulated guest, because of its clock (see [`pace::tick_ns`]): 12 ms of 1.5 s were seen.
const EXACT_IN_GUESTS: f64 = 0.02;

/// The tolerance for the difference from the kernel's accounts.
fn allowed(usage: &Usage, truth: f64) -> f64 {
    let exact = if pace::slowdown() > 1 { EXACT_IN_GUESTS } else { EXACT };
    exact * truth + SWITCH_NS * usage.switches as f64
}

fn close(usage: &Usage, truth: f64, what: &str) {
    close_but_for(0, usage, truth, what);
}

/// As `close`, where `unsure_ns` of the time may be in another task's account, or in this one's by mistake.
fn close_but_for(unsure_ns: u64, usage: &Usage, truth: f64, what: &str) {
    let found = truth.clamp(known(usage), usage.run_ns as f64);
    let off = (found - truth).abs();
    let (percent, switches) = (off / truth * 100.0, usage.switches);
    let unsure = if unsure_ns > 0 { format!(", {unsure_ns} ns unsure") } else { String::new() };
    note(format!("{what}: {found:.0} ns, truth {truth:.0} ns, off by {percent:.4}% in {switches} switches{unsure}"));
    let allowed = allowed(usage, truth) + unsure_ns as f64;
    assert!(off <= allowed, "{what}: {found} ns, but it was {truth} ns{unsure}: {usage:?}");
}

/// The time of a task in several intervals.
#[derive(Default)]
pub struct Several {
    used: Usage,
    /// The sum of [`unsure_ns`].
    unsure_ns: u64,
}

impl Several {
    pub fn add(&mut self, interval: &Interval, pid: u32) {
        self.used += of(interval, pid).own;
        self.unsure_ns += unsure_ns(interval);
    }

    pub fn close(&self, truth: f64, what: &str) {
        close_but_for(self.unsure_ns, &self.used, truth, what);
    }
}

/// Lets a role go to sleep after it has answered: its work until then counts to it as well.
pub fn settle() {
    std::thread::sleep(Duration::from_millis(20));
}

fn a_spinner_has_what_its_own_clock_says() {
    let mut spinner = Role::start("burner", &["ts-spinner"]);
    spinner.expect("ready");
    spinner.tell("0");
    let own_before: f64 = spinner.expect("burnt").parse().unwrap();
    settle();
    let before = schedstat_of(spinner.pid()).run_ns;
    let mut reader = account();
    spinner.tell("1500");
    let own: f64 = spinner.expect("burnt").parse().unwrap();
    settle();
    let interval = interval(&mut reader);
    let task = of(&interval, spinner.pid());
    assert_eq!((task.comm.as_str(), task.ppid), ("ts-spinner", std::process::id()));
    close(&task.own, (schedstat_of(spinner.pid()).run_ns - before) as f64, "against sum_exec_runtime");
    close(&task.own, own - own_before, "against clock_gettime");
    // Sampled by ticks of 4 ms.
    assert!(task.own.user_ns > task.own.run_ns / 2, "a spinner is in user space: {:?}", task.own);
}

/// An instant cuts a slice: the time before the instant counts to the interval before it. A reader that reads every few
/// milliseconds finds as much as a reader that reads once.
fn intervals_cut_what_runs_at_their_ends() {
    let mut spinner = Role::start("burner", &["ts-cut"]);
    spinner.expect("ready");
    settle();
    let before = schedstat_of(spinner.pid()).run_ns;
    let mut reader = account();
    spinner.tell("1000");
    let mut several = Several::default();
    let mut count = 0;
    let begun = Instant::now();
    while schedstat_of(spinner.pid()).run_ns - before < 1_000_000_000 && begun.elapsed() < Duration::from_secs(15) {
        let interval = interval(&mut reader);
        let task = of(&interval, spinner.pid());
        assert!(task.own.run_ns <= interval.wall_ns(), "more than the time there was: {task:?}");
        several.add(&interval, spinner.pid());
        count += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
    spinner.expect("burnt");
    settle();
    several.add(&interval(&mut reader), spinner.pid());
    several.close((schedstat_of(spinner.pid()).run_ns - before) as f64, &format!("in {count} intervals"));
}

fn a_tree_has_what_getrusage_says() {
    let mut family = Role::start("family", &[]);
    family.expect("ready");
    settle();
    let mut reader = account();
    family.tell("150");
    let truth: f64 = family.expect("used").parse().unwrap();
    settle();
    let interval = interval(&mut reader);
    let task = of(&interval, family.pid());
    let ended = interval.tasks.iter().filter(|t| t.ended_ns.is_some() && t.own.run_ns >= 100_000_000);
    let ended: Vec<_> = ended.filter(|t| t.start_ns >= task.start_ns && t.tgid > 0).collect();
    assert!(ended.len() >= 3, "each of them is there as well: {ended:?}");
    // The kernel's report of each child may be off by one tick, either way.
    let unsure_ns = pace::tick_ns() * ended.len() as u64;
    close_but_for(unsure_ns, &task.children, truth, "three generations, against getrusage");
}

fn a_parent_that_ignores_its_child_gets_its_time() {
    let mut ignorer = Role::start("ignorer", &[]);
    ignorer.expect("ready");
    settle();
    let mut reader = account();
    ignorer.tell("200");
    ignorer.expect("done");
    // The kernel accounts for the child nowhere. The child's own clock says 200 ms, without its start and end. The child closes
    // its pipe before it has ended, so an interval may begin in between: then the first part is in the child's own row.
    let (mut own, mut handed, mut unsure) = (Usage::default(), Usage::default(), 0);
    let ended = eventually(Duration::from_secs(10), || {
        let interval = interval(&mut reader);
        let parent = of(&interval, ignorer.pid());
        handed += parent.children;
        unsure += unsure_ns(&interval);
        let children = || interval.tasks.iter().filter(|t| t.ppid == ignorer.pid());
        children().filter(|t| t.ended_ns.is_none()).for_each(|t| own += t.own);
        children().any(|t| t.ended_ns.is_some() && t.moved_to == Some(parent.id))
    });
    assert!(ended && !handed.is_zero(), "{own:?} of the child, {handed:?} of its parent");
    own += handed;
    has(&own, 200e6, unsure);
    assert!(known(&own) < 230e6, "{own:?}");
}

fn an_orphan_counts_to_whom_it_was_handed() {
    let mut reaper = Role::start("reaper", &[]);
    reaper.expect("ready");
    settle();
    let mut reader = account();
    reaper.tell("200");
    reaper.expect("done");
    settle();
    let interval = interval(&mut reader);
    has(&of(&interval, reaper.pid()).children, 200e6, unsure_ns(&interval));
}

fn threads_that_end_are_their_process_s() {
    let mut team = Role::start("team", &[]);
    team.expect("ready");
    team.tell("1");
    let before: f64 = team.expect("used").parse().unwrap();
    settle();
    let mut reader = account();
    team.tell("100");
    let truth = team.expect("used").parse::<f64>().unwrap() - before;
    settle();
    let interval = interval(&mut reader);
    let task = of(&interval, team.pid());
    assert!(task.children.is_zero(), "no process has ended: {task:?}");
    close_but_for(4 * pace::tick_ns() + unsure_ns(&interval), &task.own, truth, "four threads, against clock_gettime");
    team.tell("50");
    team.expect("used");
    settle();
    let threads = interval_of(&mut reader, Each::Thread);
    let workers: Vec<_> = threads.tasks.iter().filter(|t| t.tgid == team.pid() && t.pid != team.pid()).collect();
    assert_eq!(workers.len(), 4, "{workers:?}");
    for worker in workers {
        assert!(worker.comm.starts_with("ts-worker-") && worker.ended_ns.is_some(), "{worker:?}");
        has(&worker.own, 50e6, unsure_ns(&threads));
    }
    has(&of(&threads, team.pid()).children, 200e6, unsure_ns(&threads));
}

fn what_lived_for_two_milliseconds_is_there() {
    let mut parent = Role::start("short", &[]);
    parent.expect("ready");
    let mut reader = account();
    std::thread::sleep(Duration::from_millis(100));
    parent.tell("ts-mayfly 2");
    let answer = parent.hear();
    let (pid, truth) = answer.split_once(' ').unwrap();
    let (pid, truth): (u32, f64) = (pid.parse().unwrap(), truth.parse().unwrap());
    std::thread::sleep(Duration::from_millis(100));
    let interval = interval(&mut reader);
    let task = interval.tasks.iter().find(|t| t.pid == pid).expect("it is there");
    assert_eq!((task.comm.as_str(), task.ppid), ("ts-mayfly", parent.pid()));
    assert!(task.ended_ns.is_some_and(|at| at > interval.begin_ns && at <= interval.end_ns), "{task:?}");
    let slow = f64::from(pace::slowdown());
    // getrusage counts microseconds. It counts from the decision to switch to the child (see SWITCH_NS), and leaves out what the
    // child did after the kernel had accounted for it.
    has(&task.own, truth - 5.0 * SWITCH_NS * slow, unsure_ns(&interval));
    assert!(known(&task.own) <= truth + 1e6 * slow, "{task:?}, truth {truth}");
    let to = interval.tasks.iter().find(|t| Some(t.id) == task.moved_to).expect("its parent");
    assert_eq!(to.pid, parent.pid());
    note(format!("lived for {} ns of CPU time, getrusage {truth} ns", task.own.run_ns));
}

fn a_pid_used_again_is_another_task() {
    const TRIES: u32 = 10;
    let mut parent = Role::start("short", &[]);
    parent.expect("ready");
    assert!((0..TRIES).any(|_| used_again(&mut parent)), "others have taken the pid {TRIES} times");
}

/// False: another process has got the pid.
fn used_again(parent: &mut Role) -> bool {
    let mut reader = account();
    let mut pids: Vec<u32> = Vec::new();
    for comm in ["ts-first", "ts-second"] {
        if let Some(pid) = pids.first() {
            std::fs::write(need::NEXT_PID, (pid - 1).to_string()).expect("choose the next pid");
        }
        parent.tell(&format!("{comm} 10"));
        pids.push(parent.hear().split(' ').next().unwrap().parse().unwrap());
    }
    let interval = interval(&mut reader);
    if pids[0] != pids[1] {
        return false;
    }
    for comm in ["ts-first", "ts-second"] {
        let task = interval.tasks.iter().find(|t| t.comm == comm).expect("it is there");
        assert_eq!(task.pid, pids[0], "{task:?}");
        has(&task.own, 10e6, unsure_ns(&interval));
    }
    has(&of(&interval, parent.pid()).children, 20e6, unsure_ns(&interval));
    true
}

fn kernel_threads_are_in_the_kernel() {
    let mut reader = account();
    let mut seen = 0;
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(100));
        for task in interval(&mut reader).tasks.iter().filter(|t| t.kernel && t.own.run_ns > 0) {
            let text = std::fs::read_to_string(format!("/proc/{}/cmdline", task.pid)).unwrap_or_default();
            assert!(text.is_empty() && task.own.user_ns == 0, "{task:?}, {text:?}");
            seen += 1;
        }
        if seen > 5 {
            break;
        }
    }
    assert!(seen > 0, "no kernel thread has run in two seconds");
}

/// The role measures its own time in user space, between system calls that do little, and its time in the kernel.
fn user_and_system_of_the_chosen_are_exact() {
    let mut caller = Role::start("caller", &[]);
    caller.expect("ready");
    let accountant = Accountant::load(&AccountOptions::default()).unwrap();
    accountant.choose(&[caller.pid()]).unwrap();
    let mut reader = accountant.reader().unwrap();
    caller.tell("go");
    let answer = caller.hear();
    settle();
    let (user, system) = answer.split_once(' ').expect("two numbers");
    let (user, system): (f64, f64) = (user.parse().unwrap(), system.parse().unwrap());
    let task = of(&interval(&mut reader), caller.pid());
    note(format!("{:?}, told apart by its own clock: user {user:.0} ns, system {system:.0} ns", task.own));
    assert!(task.exact);
    // The role's clock readings cost time, spread over a few hundred turns. Its clock does not know of interrupts. It knows of
    // steal at once; the kernel's run queue, from which the account reads steal, knows of it with its next tick.
    let interrupts = (task.own.irq_ns + task.own.softirq_ns) as f64;
    let late = SWITCH_NS * task.own.switches as f64 + task.own.steal_ns as f64;
    let right = |found: u64, truth: f64, share: f64| {
        let (found, off) = (found as f64, share * truth + late);
        found <= truth + off && found + interrupts >= truth - off
    };
    assert!(
        right(task.own.user_ns, user, 0.03) && right(task.own.system_ns, system, 0.05),
        "{task:?}, but by its own clock user {user} ns, system {system} ns"
    );
    accountant.choose(&[]).unwrap();
    caller.tell("go");
    caller.hear();
    settle();
    assert!(!of(&interval(&mut reader), caller.pid()).exact);
}

/// A refresh looks only at tasks that ran, however many tasks sleep. Listing /proc is the cheapest walk over all tasks; its time
/// on this host is the bound for the cost of the sleepers.
fn a_thousand_sleepers_cost_nothing() {
    fn median(mut act: impl FnMut()) -> Duration {
        let mut times: Vec<Duration> = (0..20)
            .map(|_| {
                std::thread::sleep(Duration::from_millis(20));
                let begun = topstat_live::own_cpu_time();
                act();
                topstat_live::own_cpu_time() - begun
            })
            .collect();
        times.sort_unstable();
        times[times.len() / 2]
    }
    let mut reader = account();
    let without = median(|| drop(interval(&mut reader)));
    let sleepers: Vec<_> =
        (0..1000).map(|_| Command::new("sleep").arg("60").spawn().expect("start a sleeper")).collect();
    std::thread::sleep(Duration::from_millis(300));
    interval(&mut reader);
    let with = median(|| drop(interval(&mut reader)));
    let walk = median(|| assert!(std::fs::read_dir("/proc").expect("/proc").count() > 1000));
    for mut sleeper in sleepers {
        sleeper.kill().and_then(|()| sleeper.wait().map(drop)).expect("end a sleeper");
    }
    note(format!("a snapshot takes {with:?} with a thousand sleepers, {without:?} without; listing /proc {walk:?}"));
    assert!(with < without * 2 + walk, "{with:?} with them, {without:?} without; listing /proc takes {walk:?}");
}
