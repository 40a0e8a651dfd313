// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of the library about CPUs, threads and processes, beside the kernel's own accounts of a thread.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use topstat_kernel::Source;
use topstat_live::accounts::{Schedstat, schedstat, used_by_children};
use topstat_live::cgroup::Group;
use topstat_live::harness::disturbed;
use topstat_live::watch::snapshot;
use topstat_live::{Case, case, eventually, note, own_cpu_time, pace, two_cpus};
use topstat_model::Field;

use super::counted::{number, path, watch};
use super::library::{Known, Sum, Worker, ns};

pub fn cases() -> Vec<Case> {
    vec![
        case!(time_on_a_cpu, Root, Tracefs; EveryKernel),
        case!(time_off_a_cpu, Root, Tracefs; EveryKernel),
        case!(time_until_a_cpu_is_free, Root, Tracefs, TwoCpus; EveryKernel),
        case!(time_until_a_cpu_is_free_for_a_group, Root, Tracefs, CgroupV2, TwoCpus; EveryKernel),
        case!(moves_between_cpus, Root, Tracefs, TwoCpus; EveryKernel),
        case!(processes_begin_and_end, Root, Tracefs; EveryKernel),
        case!(signals_have_a_sender, Root, Tracefs; EveryKernel),
    ]
}

/// What the kernel's scheduler has counted of a thread, or of a process's first thread.
#[derive(Debug)]
struct Account {
    run_ns: u64,
    /// Runnable, but not on a CPU.
    wait_ns: u64,
    voluntary: u64,
    involuntary: u64,
}

fn account(folder: &str) -> Account {
    let Schedstat { run_ns, wait_ns, .. } = schedstat(folder).expect("schedstat");
    let status = std::fs::read_to_string(format!("{folder}/status")).expect("status");
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a counter");
        line.trim().parse().expect("a number")
    };
    let (voluntary, involuntary) = (of("voluntary_ctxt_switches:"), of("nonvoluntary_ctxt_switches:"));
    Account { run_ns, wait_ns, voluntary, involuntary }
}

fn folder(worker: &Worker) -> String {
    format!("/proc/self/task/{}", worker.tid)
}

/// Runs until the thread has used this CPU time.
fn burn(time: Duration) {
    let end = own_cpu_time() + time;
    while own_cpu_time() < end {
        std::hint::black_box(end);
    }
}

fn time_on_a_cpu() {
    let mut tables = ["cpu-time", "cpu-samples", "context-switches"].map(Known::load);
    let begun = Instant::now();
    let worker = Worker::new("burner");
    worker.run(|| {
        for _ in 0..50 {
            burn(Duration::from_millis(10));
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    // The thread sleeps from now on.
    std::thread::sleep(Duration::from_millis(100));
    let truth = account(&folder(&worker));
    let [time, samples, switches] = &mut tables;
    let own = [worker.comm(), ("pid", worker.tid.into())];
    note(format!("{:?} of {truth:?}", time.sum(&own)));
    time.has(&own, truth.run_ns - truth.run_ns / 1000..=truth.run_ns);
    let all = truth.voluntary + truth.involuntary;
    switches.has(&[("prev_comm", worker.comm().1), ("prev_pid", worker.tid.into())], all..=all);
    // Each sample stands for 10 ms. A virtual CPU that comes late takes one sample for all that time.
    samples.has(&[worker.comm()], truth.run_ns / 3..=ns(begun.elapsed()));
}

fn time_off_a_cpu() {
    let mut unseen = Unseen::watch();
    let mut tables = ["off-cpu-time", "blocked-time"].map(Known::load);
    let begun = Instant::now();
    let worker = Worker::new("sleeper");
    worker.run(|| {
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(10));
        }
        for _ in 0..3 {
            wait_without_signals(Duration::from_millis(20));
        }
    });
    let elapsed = ns(begun.elapsed());
    let [off, blocked] = &mut tables;
    let own = [("prev_comm", worker.comm().1), ("prev_pid", worker.tid.into())];
    let sum = off.sum(&own);
    if sum.most < 160_000_000 && sum.skipped == 0 {
        unseen.explain(&sum);
    }
    off.took(&own, 13..=1000, 160_000_000..=elapsed);
    let sleeps = [own[0].clone(), own[1].clone(), ("prev_state", "S".into())];
    off.took(&sleeps, 10..=1000, 100_000_000..=elapsed);
    blocked.took(&own, 3..=10, 60_000_000..=elapsed);
}

/// Makes a child in the memory of this process: until it ends, the kernel lets this thread wait in the state D.
fn wait_without_signals(time: Duration) {
    extern "C" fn sleep(pause: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the argument is a time that outlives the child, and the child ends without returning.
        unsafe {
            libc::nanosleep(pause.cast(), std::ptr::null_mut());
            libc::_exit(0)
        }
    }
    let mut stack = vec![0_u8; 64 << 10];
    let mut pause = libc::timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack and the time outlive the child, since this thread waits for its end.
    let pid = unsafe { libc::clone(sleep, stack.as_mut_ptr_range().end.cast(), flags, (&raw mut pause).cast()) };
    assert!(pid > 0, "{}", std::io::Error::last_os_error());
    // SAFETY: a child of this process.
    assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
}

/// A CPU on which a thread always runs, so that each thread woken there waits for the end of a time slice, some milliseconds.
///
/// On an idle CPU the kernel's account has no wait: where a woken thread is to run at once, the scheduler does not read the clock again
/// (`rq_clock_skip_update()` in `wakeup_preempt()`), and the wait begins and ends with one reading.
struct BusyCpu {
    cpu: usize,
    stop: Arc<AtomicBool>,
    runner: Option<JoinHandle<()>>,
}

impl BusyCpu {
    /// The calling thread moves to another CPU: a thread that it wakes up would run as soon as the caller sleeps.
    fn new() -> Self {
        let (cpu, other) = two_cpus().expect("two CPUs");
        stay_on(None, other);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let runner = std::thread::spawn(move || {
            stay_on(None, cpu);
            while !stopped.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        Self { cpu, stop, runner: Some(runner) }
    }

    /// Puts a thread there, which does not take the CPU when it wakes up.
    fn take(&self, tid: u32) {
        let tid = tid.cast_signed();
        stay_on(rustix::thread::Pid::from_raw(tid), self.cpu);
        let usual = libc::sched_param { sched_priority: 0 };
        // SAFETY: the parameter outlives the call.
        let set = unsafe { libc::sched_setscheduler(tid, libc::SCHED_BATCH, &raw const usual) };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }
}

impl Drop for BusyCpu {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.runner.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_none_or(|ended| ended.is_ok()), "the CPU was not busy");
    }
}

fn stay_on(thread: Option<rustix::thread::Pid>, cpu: usize) {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(thread, &only).expect("an affinity");
}

/// Finds a thread during whose time the host runs no eBPF program: programs see it switched to, and never from. Events of interrupts during
/// its time are lost to every program, and no count says so.
struct Unseen {
    to: Box<dyn Source>,
    from: Box<dyn Source>,
    paths: [String; 2],
}

impl Unseen {
    /// The thread that runs now was switched to once more than from.
    const TIMES: u64 = 2;

    fn watch() -> Self {
        let (to, to_path) = (watch("sched:sched_switch by next_pid"), path());
        let (from, from_path) = (watch("sched:sched_switch by prev_pid"), path());
        Self { to, from, paths: [to_path, from_path] }
    }

    /// Ends the attempt if there is such a thread: it explains what was found.
    fn explain(&mut self, found: &dyn std::fmt::Debug) {
        if let Some(thread) = self.thread() {
            disturbed(format!("no program runs while thread {thread} does: {found:?}"));
        }
    }

    /// Its id. `None`: there is no such thread.
    fn thread(&mut self) -> Option<u64> {
        let [to, from] = &self.paths;
        let (to, from) = (snapshot(&mut *self.to, to), snapshot(&mut *self.from, from));
        let seen: BTreeSet<u64> = from.rows.iter().map(|row| number(&from, row, "prev_pid")).collect();
        let often = to.rows.iter().filter(|row| row.value >= Self::TIMES).map(|row| number(&to, row, "next_pid"));
        // A thread that has ended may have made way for others in one of the tables.
        let lives = |pid: &u64| std::path::Path::new(&format!("/proc/{pid}")).exists();
        often.into_iter().find(|pid| !seen.contains(pid) && lives(pid))
    }
}

fn time_until_a_cpu_is_free() {
    let unseen = Unseen::watch();
    let mut table = Known::load("run-queue-latency");
    let worker = Worker::new("woken");
    let busy = BusyCpu::new();
    busy.take(worker.tid);
    worker.run(|| (0..100).for_each(|_| std::thread::sleep(Duration::from_millis(1))));
    std::thread::sleep(Duration::from_millis(50));
    drop(busy);
    let truth = account(&folder(&worker));
    let sum = table.sum(&[worker.comm(), ("pid", worker.tid.into())]);
    note(format!("{sum:?}, {truth:?}"));
    waits(sum, &truth, unseen);
}

/// Waits after a wakeup on a busy CPU, beside the account, which has waits after a preemption as well. At both ends of a wait the account
/// reads the clock before the event does: some instructions, of a wait of milliseconds. The hypervisor may take the CPU once in between.
fn waits(sum: Sum, truth: &Account, mut unseen: Unseen) {
    let unsure = truth.wait_ns / 20 + sum.longest;
    let is_short = sum.events + sum.skipped < truth.voluntary.saturating_sub(2);
    if is_short {
        unseen.explain(&(&sum, truth));
    }
    let is_each_counted = !is_short && sum.events <= truth.voluntary + 2;
    assert!(is_each_counted, "{sum:?}: {truth:?}");
    // An emulated CPU stops between any two instructions while another one runs: the two clocks of a wait say little about each
    // other there.
    if pace::slowdown() > 1 {
        return;
    }
    assert!(sum.value <= truth.wait_ns + unsure, "{sum:?}: {truth:?}");
    // How long a skipped wait took is unknown.
    if truth.involuntary == 0 && sum.skipped == 0 {
        assert!(sum.value + unsure >= truth.wait_ns, "{sum:?}: {truth:?}");
    }
}

fn time_until_a_cpu_is_free_for_a_group() {
    let group = Group::new("woken").expect("a cgroup");
    let mut shell = Command::new("sh").args(["-c", "while read line; do :; done"]).stdin(Stdio::piped()).spawn();
    let shell = shell.as_mut().expect("a shell");
    group.take(shell.id());
    let busy = BusyCpu::new();
    busy.take(shell.id());
    // From the beginning of the table on, the account is a difference.
    std::thread::sleep(Duration::from_millis(50));
    let unseen = Unseen::watch();
    let mut table = Known::load("run-queue-latency-by-cgroup");
    let folder = format!("/proc/{}", shell.id());
    let before = account(&folder);
    let mut input = shell.stdin.take().expect("its input");
    for _ in 0..100 {
        writeln!(input, "line").expect("the shell reads");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(50));
    drop(busy);
    let after = account(&folder);
    let name = group.path.rsplit('/').next().expect("a name").to_owned();
    let sum = table.sum(&[("name", name.as_str().into())]);
    drop(input);
    assert!(shell.wait().expect("the shell ends").success());
    let truth = Account {
        run_ns: after.run_ns - before.run_ns,
        wait_ns: after.wait_ns - before.wait_ns,
        voluntary: after.voluntary - before.voluntary,
        involuntary: after.involuntary - before.involuntary,
    };
    note(format!("{sum:?}, {truth:?}"));
    waits(sum, &truth, unseen);
}

fn moves_between_cpus() {
    const MOVES: u64 = 40;
    let (one, two) = two_cpus().expect("two CPUs");
    let mut table = Known::load("cpu-migrations");
    let worker = Worker::new("mover");
    worker.run(move || {
        for i in 0..MOVES {
            stay_on(None, if i % 2 == 0 { one } else { two });
            burn(Duration::from_micros(100));
        }
    });
    let file = std::fs::read_to_string(format!("{}/sched", folder(&worker))).unwrap_or_default();
    let counted = file.lines().find_map(|line| line.strip_prefix("se.nr_migrations")?.rsplit(' ').next()?.parse().ok());
    let truth = counted.map_or(MOVES - 1..=MOVES + 10, |exact: u64| exact..=exact);
    assert!(*truth.end() >= MOVES - 1, "{truth:?}");
    // Under any name: the thread may have moved before it had its own.
    table.has(&[("pid", worker.tid.into())], truth);
}

fn processes_begin_and_end() {
    let mut tables = ["execs", "forks", "new-threads", "ended-processes"].map(Known::load);
    let worker = Worker::new("parent");
    // No other test runs a program of this name.
    let file = std::env::temp_dir().join(format!("topstat-{}-sh", std::process::id()));
    std::os::unix::fs::symlink("/bin/sh", &file).expect("a link");
    let program = file.clone();
    let used = worker.run(move || {
        let before = used_by_children();
        for _ in 0..7 {
            let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
            let status = Command::new(&program).args(["-c", script]).status();
            assert!(status.expect("a shell").success());
        }
        (0..5).for_each(|_| std::thread::spawn(|| {}).join().expect("it ends"));
        used_by_children() - before
    });
    std::fs::remove_file(&file).expect("remove the link");
    let [execs, forks, threads, ended] = &mut tables;
    let (pid, path) = (std::process::id(), file.display().to_string());
    execs.has(&[("filename", path.as_str().into()), ("ppid", pid.into())], 7..=7);
    forks.has(&[("parent_comm", worker.comm().1), ("parent_pid", worker.tid.into())], 12..=12);
    threads.has(&[worker.comm()], 5..=5);
    let name = file.file_name().expect("a name").to_string_lossy().into_owned();
    let comm = &name[..name.len().min(15)];
    let sum = ended.sum(&[("comm", comm.into())]);
    note(format!("{sum:?}, {used} ns"));
    // The kernel rounds a process's user and system time to µs.
    assert!(sum.events == 7 && sum.value.abs_diff(used) <= used / 100, "{sum:?}, {used} ns");
}

fn signals_have_a_sender() {
    let mut table = Known::load("signals");
    let worker = Worker::new("sender");
    let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
    // The kernel lets the parent go on before it names the child.
    let comm = format!("/proc/{}/comm", child.id());
    assert!(eventually(Duration::from_secs(5), || std::fs::read_to_string(&comm).is_ok_and(|comm| comm == "sleep\n")));
    let pid = i32::try_from(child.id()).expect("a pid");
    worker.run(move || {
        for _ in 0..9 {
            // SAFETY: the process is a child that nothing has waited for.
            assert_eq!(unsafe { libc::kill(pid, libc::SIGWINCH) }, 0);
        }
        // SAFETY: as above.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
    });
    assert!(!child.wait().expect("it ends").success());
    let sent = |signal: i32| {
        let number = Field::from(u64::from(signal.unsigned_abs()));
        [worker.comm(), ("pid", std::process::id().into()), ("sig", number), ("task.comm", "sleep".into())]
    };
    table.has(&sent(libc::SIGWINCH), 9..=9);
    table.has(&sent(libc::SIGTERM), 1..=1);
}
