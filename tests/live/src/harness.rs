// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs tests one after the other, for they share the host; but first, side by side, those that do not mind. A test whose
//! needs are not met is reported as ignored, with the reason, and never as passed.

use std::cell::Cell;
use std::fs::File;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Trial};
use rustix::fs::{FlockOperation, flock};

use crate::{cgroup, injected, netns, pace, scratch, taskstats};

/// What a test needs of the host and of whoever runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// All that loading eBPF needs.
    Root,
    /// Network namespaces, veth and bridges, by the `ip` command.
    Netns,
    /// That the kernel does this, in a network namespace of its own: words for the `ip` command.
    Ip(&'static str),
    /// WireGuard, and `wg`, which sets its keys.
    WireGuard,
    /// TLS in the kernel.
    KernelTls,
    /// Sockets of this type and protocol, of IPv4.
    Protocol(i32, i32),
    /// An IPv6 loopback.
    Ipv6,
    /// A mounted cgroup v2 hierarchy in which a group can be made.
    CgroupV2,
    /// A v1 hierarchy that topstat asks, in which this process is not at the root, while it is in v2.
    CgroupV1,
    /// A kernel that mounts FUSE.
    Fuse,
    /// `net.core.optmem_max` of a network namespace's own.
    OptmemPerNetns,
    /// Delay accounting, and taskstats to compare with.
    Delays,
    /// Temporary files on a block device, which can be read past the page cache.
    BlockDevice,
    /// A hierarchy of the memory controller in which a group can be made.
    MemoryLimit,
    /// A controller that throttles reads from the disk of temporary files.
    Throttle,
    /// systemd-analyze, which knows what units may say.
    SystemdAnalyze,
    /// systemd as process 1, of a host that is the tests' own: they install a service.
    Systemd,
    /// Two CPUs that the test may use.
    TwoCpus,
    /// A CPU that may be taken offline: the host is the tests' own.
    SpareCpu,
    /// That processes may be made real-time ones.
    RealTime,
    /// That the next pid can be chosen.
    NextPid,
    /// A kernel that asks another process what to do with a system call.
    Notify,
    /// make(1) and a C compiler.
    Compiler,
    /// That user namespaces may be made, by unshare(1).
    UserNamespace,
    /// A kernel that ends the connection of a FUSE file system that does not answer (Linux 6.15).
    FuseTimeout,
    /// More time than a usual run of the tests should take: `make soak` has it.
    Minutes,
    /// A kernel that injects faults.
    FaultInjection,
    /// A kernel that looks for memory that nothing points to.
    LeakDetector,
}

/// For how many seconds things are watched that might grow. Nobody waits for that unless this says so.
pub const SOAK_SECONDS: &str = "TOPSTAT_SOAK_SECONDS";

/// Says that CPUs of this host may be taken offline, as scripts/vm-suite does in guests.
const SPARE_CPU: &str = "TOPSTAT_LIVE_SPARE_CPU";

/// Says that the tests may install a service here, as scripts/vm-suite does in guests.
const SYSTEMD: &str = "TOPSTAT_LIVE_SYSTEMD";

/// The first version of systemd-analyze that judges a unit which isn't installed.
const SYSTEMD_OFFLINE: u32 = 250;

/// Why systemd-analyze is not what tests need.
fn no_analyze() -> Option<String> {
    let asked = std::process::Command::new("systemd-analyze").arg("--version").output();
    match asked {
        Err(e) => Some(format!("needs systemd-analyze: {e}")),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let version = text.split_whitespace().nth(1).and_then(|number| number.parse::<u32>().ok());
            let old = version.is_none_or(|version| version < SYSTEMD_OFFLINE);
            old.then(|| format!("needs systemd-analyze {SYSTEMD_OFFLINE} or later, not {}", text.trim()))
        }
    }
}

/// Where the next pid is said, less one.
pub const NEXT_PID: &str = "/proc/sys/kernel/ns_last_pid";

/// Makes the calling thread a real-time one, which takes its CPU from all others that are not, until it waits.
pub fn real_time() -> std::io::Result<()> {
    // SAFETY: the structure is plain, and lives as long as the call.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &libc::sched_param { sched_priority: 10 }) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

impl Need {
    /// Why it is not met.
    fn missing(self) -> Option<String> {
        match self {
            Need::Root if !rustix::process::geteuid().is_root() => Some("needs root".to_owned()),
            Need::Root => None,
            Need::Netns => netns::missing(),
            Need::Ip(words) => netns::refused(words).map(|e| format!("the kernel does not do this: {e}")),
            Need::WireGuard => {
                let asked = std::process::Command::new("wg").arg("--version").output();
                let no_tool = asked.err().map(|e| format!("needs wg (wireguard-tools): {e}"));
                no_tool.or_else(|| Need::Ip("link add test type wireguard").missing())
            }
            Need::KernelTls => no_kernel_tls().err().map(|e| format!("needs TLS in the kernel: {e}")),
            Need::Protocol(kind, protocol) => {
                // SAFETY: it takes numbers.
                let socket = unsafe { libc::socket(libc::AF_INET, kind | libc::SOCK_CLOEXEC, protocol) };
                if socket < 0 {
                    let e = std::io::Error::last_os_error();
                    return Some(format!("needs sockets of protocol {protocol}: {e}"));
                }
                // SAFETY: just opened, and nobody else's.
                drop(unsafe { std::os::fd::OwnedFd::from_raw_fd(socket) });
                None
            }
            Need::Ipv6 => std::net::UdpSocket::bind("[::1]:0").err().map(|e| format!("needs IPv6 on loopback: {e}")),
            Need::CgroupV2 => cgroup::v2_missing(),
            Need::CgroupV1 => cgroup::v1_missing(),
            Need::Fuse => std::fs::File::open("/dev/fuse").err().map(|e| format!("needs FUSE: /dev/fuse: {e}")),
            Need::OptmemPerNetns => netns::optmem_missing(),
            Need::Delays => taskstats::missing(),
            Need::BlockDevice => scratch::no_device(),
            Need::MemoryLimit => cgroup::memory_missing(),
            Need::Throttle => cgroup::throttle_missing(),
            Need::SystemdAnalyze => no_analyze(),
            Need::Systemd if std::env::var_os(SYSTEMD).is_none_or(|said| said != "1") => {
                Some(format!("installs a service and restarts it: {SYSTEMD}=1 allows it"))
            }
            // As sd_booted(3) does.
            Need::Systemd => {
                let booted = std::fs::symlink_metadata("/run/systemd/system");
                booted.err().map(|e| format!("needs systemd as process 1: /run/systemd/system: {e}"))
            }
            Need::TwoCpus => crate::two_cpus().is_none().then(|| "needs two CPUs".to_owned()),
            Need::SpareCpu if std::env::var_os(SPARE_CPU).is_none_or(|said| said != "1") => {
                Some(format!("takes a CPU from all who run here: {SPARE_CPU}=1 allows it"))
            }
            Need::SpareCpu => Need::TwoCpus.missing(),
            Need::RealTime => std::thread::spawn(real_time)
                .join()
                .expect("a thread that becomes a real-time one")
                .err()
                .map(|e| format!("needs real-time processes: {e}")),
            Need::NextPid => {
                let found = std::fs::metadata(NEXT_PID).err();
                found.map(|e| format!("needs a kernel with CONFIG_CHECKPOINT_RESTORE: {NEXT_PID}: {e}"))
            }
            Need::UserNamespace => {
                let asked = std::process::Command::new("unshare").args(["-Ur", "true"]).output();
                let made = asked.is_ok_and(|output| output.status.success());
                (!made).then(|| "needs user namespaces: unshare -Ur".to_owned())
            }
            Need::Notify => {
                let actions = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail");
                let there = actions.is_ok_and(|actions| actions.split_whitespace().any(|name| name == "user_notif"));
                (!there).then(|| "needs a kernel with CONFIG_SECCOMP_FILTER".to_owned())
            }
            Need::FuseTimeout => {
                let found = std::fs::metadata("/proc/sys/fs/fuse/default_request_timeout").err();
                found.map(|e| format!("needs timeouts of FUSE requests (Linux 6.15): {e}"))
            }
            Need::Minutes => std::env::var_os(SOAK_SECONDS)
                .is_none_or(|said| said.is_empty())
                .then(|| format!("takes minutes: part of make soak, by {SOAK_SECONDS}")),
            Need::FaultInjection => injected::missing(),
            Need::LeakDetector => injected::no_leaks(),
            Need::Compiler => {
                let there = |tool: &str| {
                    let asked = std::process::Command::new(tool).arg("--version").output();
                    asked.is_ok_and(|output| output.status.success())
                };
                (!there("make") || !there("cc")).then(|| "needs make and cc".to_owned())
            }
        }
    }
}

/// Whether a connection can't be TLS's.
fn no_kernel_tls() -> std::io::Result<()> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let socket = std::net::TcpStream::connect(listener.local_addr()?)?;
    // SAFETY: the name is there, and as long as is said.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_ULP, c"tls".as_ptr().cast(), 4) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Groups of tests of samples that a kernel may be too old for: why it is.
fn too_old(group: &str) -> Option<String> {
    let of_tasks = ["tasks", "tasks_cli", "task_tables", "delays", "crowd"].contains(&group);
    let there = || Need::Root.missing().is_some() || libbpf_rs::MapType::TaskStorage.is_supported().unwrap_or(true);
    (of_tasks && !there()).then(|| "needs a kernel with task storage (Linux 5.11)".to_owned())
}

/// A test.
pub struct Case {
    /// Its name: `module::what_holds`.
    pub name: &'static str,
    /// What it needs.
    pub needs: &'static [Need],
    /// Whether it may run while others do: it neither measures nor makes load, takes no snapshot whose rows or totals are
    /// asserted, and changes nothing that all share (sysctls, limits, CPUs, delay accounting).
    pub beside: bool,
    /// The test itself; it fails by panicking.
    pub run: fn(),
}

/// Writes the name of a test's function beside it: `case!(function, Need …)`.
#[macro_export]
macro_rules! case {
    ($run:path $(, $need:ident)* $(,)?) => {
        $crate::Case { name: stringify!($run), needs: &[$($crate::Need::$need),*], beside: false, run: $run }
    };
}

/// The same of a test that may run while others do: see [`Case::beside`].
#[macro_export]
macro_rules! beside {
    ($run:path $(, $need:ident)* $(,)?) => {
        $crate::Case { beside: true, ..$crate::case!($run $(, $need)*) }
    };
}

/// So many run side by side: they wait more than they compute.
const BESIDE: usize = 4;

/// How often a test is tried whose tables were full of other people's traffic.
const ATTEMPTS: u32 = 4;
/// How long to wait for them to be done.
const PATIENCE: Duration = Duration::from_secs(5);

thread_local! {
    /// Of the test that runs on this thread.
    static CROWDED: Cell<bool> = const { Cell::new(false) };
    static ONCE: Cell<bool> = const { Cell::new(false) };
    /// Its place among the notes.
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// For a test that allows for other traffic itself: if it fails it has failed. To be called by the test's own thread.
pub fn once() {
    ONCE.set(true);
}

/// Says that other traffic may have come in between: a snapshot's rows were all taken, some of them by sockets that are
/// not the tests', or there is more in the total than the test has sent. If the test fails it is tried again. To be called by the test's own thread.
pub fn crowded() {
    CROWDED.set(true);
}

/// Why a test that has begun could not be done here.
struct Skipped(String);

/// For a test that finds out only while it runs that the host lacks what it needs: it is reported as ignored, with the
/// reason. The hook of panics is not called: nothing went wrong.
pub fn skip(reason: impl Into<String>) -> ! {
    std::panic::resume_unwind(Box::new(Skipped(reason.into())))
}

/// Of each test in turn: its name, and what it has noted down.
static NOTES: Mutex<Vec<(String, Vec<String>)>> = Mutex::new(Vec::new());

fn notes() -> std::sync::MutexGuard<'static, Vec<(String, Vec<String>)>> {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes down something measured, to be printed at the end. Where a test's other threads do, it is the last one's that has
/// begun: only of tests that run alone is that known to be theirs.
pub fn note(text: impl Into<String>) {
    let mut notes = notes();
    let last = notes.len().checked_sub(1);
    if let Some(number) = NUMBER.get().or(last) {
        notes[number].1.push(text.into());
    }
}

/// Waits until no other run of these tests is under way on this host; the loads of two would fill each other's tables.
/// Where there can be no lock there is none.
fn alone() -> Option<File> {
    let lock = File::create(std::env::temp_dir().join("topstat-live.lock")).ok()?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        eprintln!("waiting for another run of these tests to end");
        flock(&lock, FlockOperation::LockExclusive).ok()?;
    }
    Some(lock)
}

/// Parts of names, separated by blanks: of the tests that the command line asks for, which takes one part only, those
/// are run that have one of these.
const ONLY: &str = "TOPSTAT_LIVE_ONLY";

/// What libtest's programs end with when a test failed.
const FAILED: u8 = 101;

/// Runs the tests that the command line asks for.
pub fn run(cases: Vec<(&'static str, Vec<Case>)>) -> ExitCode {
    let arguments = Arguments::from_args();
    let _lock = (!arguments.list).then(alone);
    let only = std::env::var(ONLY).unwrap_or_default();
    let wanted = |trial: &Trial| only.is_empty() || only.split_whitespace().any(|part| trial.name().contains(part));
    let (mut beside, mut one_by_one) = (Vec::new(), Vec::new());
    for (group, case) in cases.into_iter().flat_map(|(group, cases)| cases.into_iter().map(move |case| (group, case))) {
        let part = if case.beside { &mut beside } else { &mut one_by_one };
        part.extend(Some(trial(group, case)).filter(wanted));
    }
    // Guests have as many CPUs as one of the host's.
    let threads = if pace::slowdown() > 1 { 1 } else { BESIDE };
    let conclude = |trials: Vec<Trial>, threads: usize| {
        let threads = arguments.test_threads.unwrap_or(threads);
        libtest_mimic::run(&Arguments { test_threads: Some(threads), ..arguments.clone() }, trials)
    };
    let failed = [(beside, threads), (one_by_one, 1)].map(|(trials, threads)| conclude(trials, threads).has_failed());
    for (title, lines) in notes().iter() {
        println!("{title}\n    {}", lines.join("\n    "));
    }
    if failed.contains(&true) { ExitCode::from(FAILED) } else { ExitCode::SUCCESS }
}

fn trial(group: &'static str, case: Case) -> Trial {
    let name = format!("{group}::{}", case.name.trim_start_matches("self::"));
    let title = name.clone();
    Trial::ignorable_test(name, move || {
        if let Some(reason) = case.needs.iter().find_map(|need| need.missing()).or_else(|| too_old(group)) {
            return Ok(Completion::ignored_with(reason));
        }
        let begun = Instant::now();
        let mut noted = notes();
        NUMBER.set(Some(noted.len()));
        noted.push((title.clone(), Vec::new()));
        drop(noted);
        for attempt in 1.. {
            CROWDED.set(false);
            ONCE.set(false);
            let Err(panic) = std::panic::catch_unwind(case.run) else { break };
            if let Some(Skipped(reason)) = panic.downcast_ref() {
                return Ok(Completion::ignored_with(reason));
            }
            if attempt == ATTEMPTS || ONCE.get() || !CROWDED.get() {
                std::panic::resume_unwind(panic);
            }
            note(format!("attempt {attempt} failed among other traffic, which filled the tables; trying again"));
            std::thread::sleep(PATIENCE);
        }
        note(format!("{:.1} s", begun.elapsed().as_secs_f64()));
        Ok(Completion::Completed)
    })
}
