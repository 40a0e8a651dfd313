// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A daemon that is stopped, or some of whose threads are: commands do not wait long, and say what to do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::Signal;
use topstat_live::daemon::Place;
use topstat_live::{Case, Daemon, Scratch, case, eventually, note, role};

use crate::service::Manager;

pub fn cases() -> Vec<Case> {
    vec![
        case!(who_asks_a_stopped_daemon_is_told_what_to_do, Root, Fuse),
        case!(an_aborted_tree_is_mounted_again, Root, Fuse),
        case!(who_waits_for_a_stopped_daemon_ends_when_asked_to, Root, Fuse),
        case!(the_watchdog_is_fed_by_those_who_serve, Root, Fuse; Slow),
        case!(the_kernel_ends_the_wait_for_a_stopped_daemon, Root, Fuse, FuseTimeout, Minutes),
    ]
}

/// The time limit of a command that gets no answer: a second, plus its start on a busy host.
const SOON: Duration = Duration::from_secs(8);
/// The time limit of a command that is asked to end. The daemon stays stopped, so a command that waits for it never ends. A recorder
/// has its files written to the disk first (fsync), behind the writes of all other programs.
const ENDED: Duration = Duration::from_secs(60);

/// Runs a command, which must end soon; returns its output and its duration.
fn run(arguments: &[&str]) -> (Output, Duration) {
    let begun = Instant::now();
    let mut child = role::command("topstat")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start topstat");
    if !eventually(SOON, || child.try_wait().expect("ask for its end").is_some()) {
        let _ = child.kill();
        panic!("topstat {} does not end", arguments.join(" "));
    }
    (child.wait_with_output().expect("its output"), begun.elapsed())
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The number of a tree's connection in the kernel.
fn connection(mount: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mounts.lines().find(|line| line.split(' ').nth(4) == mount.to_str()).expect("the tree");
    line.split(' ').nth(2).and_then(|numbers| numbers.strip_prefix("0:")).expect("its number").to_owned()
}

/// Stops the daemon until this value is dropped.
struct Stopped<'a>(&'a Daemon);

impl<'a> Stopped<'a> {
    fn new(daemon: &'a Daemon) -> Self {
        daemon.signal(Signal::STOP);
        let status = format!("/proc/{}/status", daemon.pid());
        let stopped = || fs::read_to_string(&status).is_ok_and(|status| status.contains("State:\tT"));
        assert!(eventually(Duration::from_secs(5), stopped));
        Self(daemon)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.signal(Signal::CONT);
    }
}

fn who_asks_a_stopped_daemon_is_told_what_to_do() {
    let daemon = Daemon::of_sockets();
    let place = &daemon.place;
    let [mount, pins] = [&place.mount, &place.pins].map(|path| path.to_str().unwrap());
    let other = Place::new();
    let [others_pins, others_pid] = [&other.pins, &other.pid_file].map(|path| path.to_str().unwrap());
    let options = place.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let number = connection(&place.mount);
    let stopped = Stopped::new(&daemon);
    let mut slowest = Duration::ZERO;
    for (arguments, begins) in [
        (&["get", "--mount", mount, "--pins", pins, "enabled"][..], "topstat: the tree at "),
        (&["get", "--mount", mount, "--pins", pins], "topstat: the tree at "),
        (&["set", "--mount", mount, "--pins", pins, "enabled", "1"], "topstat: the tree at "),
        (&[&["daemon"], &options[..]].concat(), "topstat: a daemon runs already, pid "),
        (
            &["daemon", "--mount", mount, "--pins", others_pins, "--pid-file", others_pid],
            "topstat: cannot mount the tree at ",
        ),
    ] {
        let (output, took) = run(arguments);
        let said = said(&output);
        slowest = slowest.max(took);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        let line =
            said.lines().find(|line| line.starts_with(begins)).unwrap_or_else(|| panic!("{arguments:?}: {said}"));
        for part in ["does not answer within 1 s", "kill -CONT", &format!("/sys/fs/fuse/connections/{number}/abort")] {
            assert!(line.contains(part), "{arguments:?}: no {part} in {said}");
        }
    }
    note(format!("told within {slowest:?}"));
    // Commands that do not need the tree work.
    let (output, took) = run(&["top", "tcp_v4/conns_pps", "--pins", pins, "-o", "json", "1", "1"]);
    assert!(output.status.success() && output.stdout.starts_with(b"{"), "{}", said(&output));
    note(format!("topstat top shows what is pinned in {took:?}"));
    drop(stopped);
    let (output, _) = run(&["get", "--mount", mount, "--pins", pins, "enabled"]);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"1\n"[..]), "{}", said(&output));
    daemon.stat("tcp_v4/conns_pps");
}

/// Commands that read the tree end on a signal, whether the daemon has taken their request or not.
fn who_waits_for_a_stopped_daemon_ends_when_asked_to() {
    /// The commands read every 10 ms: some of these stops come while the daemon holds a request.
    const STOPS: usize = 8;
    let daemon = Daemon::of_sockets();
    let scratch = Scratch::new("waiting");
    let [mount, pins] = [&daemon.place.mount, &daemon.place.pins].map(|path| path.to_str().unwrap());
    let history = scratch.path().to_str().unwrap();
    let record = ["record", "--fine-interval", "10ms", "--interval", "1s", "--mount", mount, "--history", history];
    let top = ["top", "tcp_v4/conns_pps", "10ms", "--root", mount, "-o", "json"];
    let mut slowest = Duration::ZERO;
    let start = |arguments: &[&str]| {
        let mut command = role::command("topstat");
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("start topstat")
    };
    for stop in 0..STOPS {
        let signal = if stop % 2 == 0 { Signal::INT } else { Signal::TERM };
        let mut waiting = [start(&record), start(&top)];
        std::thread::sleep(Duration::from_millis(1000 + 37 * stop as u64));
        let stopped = Stopped::new(&daemon);
        let mut asking = [start(&["get", "--root", mount, "enabled"]), start(&["ls", "--root", mount])];
        std::thread::sleep(Duration::from_millis(300));
        let asked = Instant::now();
        for child in waiting.iter_mut().chain(&mut asking) {
            assert!(child.try_wait().unwrap().is_none(), "the test stops what it is to");
            rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
        }
        let mut all = waiting.iter_mut().chain(&mut asking);
        let ended = all.by_ref().all(|child| eventually(ENDED, || child.try_wait().unwrap().is_some()));
        slowest = slowest.max(asked.elapsed());
        drop(stopped);
        if !ended {
            all.for_each(|child| drop(child.kill()));
        }
        assert!(ended, "stop {stop}: it still waits after {:?}", asked.elapsed());
        assert!(waiting.iter_mut().all(|child| child.wait().unwrap().success()), "stop {stop}");
    }
    note(format!("ended within {slowest:?}"));
    drop(Stopped::new(&daemon));
    // The records are complete.
    let (output, _) = run(&["top", "tcp_v4/conns_pps", "--at", "now", "--history", history, "--pins", pins]);
    assert!(output.status.success(), "{}", said(&output));
}

/// The control file system of FUSE, mounted in a separate place.
struct Connections(Scratch);

impl Connections {
    fn new() -> Self {
        let scratch = Scratch::new("fusectl");
        rustix::mount::mount("none", scratch.path(), "fusectl", MountFlags::empty(), None).expect("mount fusectl");
        Self(scratch)
    }

    fn abort(&self, number: &str) -> PathBuf {
        self.0.path().join(number).join("abort")
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

fn cat(path: &Path) -> Child {
    Command::new("cat").arg(path).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("cat")
}

fn an_aborted_tree_is_mounted_again() {
    let mut daemon = Daemon::of_sockets();
    let connections = Connections::new();
    for stop in [true, false] {
        let number = connection(&daemon.place.mount);
        let again = daemon.log().matches("it is mounted again").count();
        let stopped = stop.then(|| Stopped::new(&daemon));
        let mut cat = stop.then(|| cat(&daemon.path("enabled")));
        if let Some(cat) = &mut cat {
            std::thread::sleep(Duration::from_millis(300));
            assert!(cat.try_wait().unwrap().is_none(), "the test stops what it is to");
        }
        fs::write(connections.abort(&number), "1").expect("abort");
        if let Some(cat) = &mut cat {
            assert!(eventually(SOON, || cat.try_wait().unwrap().is_some()), "it still waits");
            assert!(!cat.wait().unwrap().success());
            assert!(fs::read(daemon.path("enabled")).is_err());
        }
        drop(stopped);
        let said = || daemon.log().matches("it is mounted again").count() > again;
        assert!(eventually(Duration::from_secs(10), said), "{}", daemon.log());
        assert!(eventually(Duration::from_secs(10), || fs::read(daemon.path("enabled")).is_ok()), "{}", daemon.log());
        daemon.stat("tcp_v4/conns_pps");
        assert_ne!(connection(&daemon.place.mount), "");
    }
    assert_eq!(daemon.stop().code(), Some(0), "{}", daemon.log());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(daemon.place.mount.to_str().unwrap()), "{mounts}");
}

/// Threads of a process that this thread has stopped, until the value is dropped.
struct Held(Vec<libc::pid_t>);

impl Held {
    fn new(pid: u32, name: &str) -> Self {
        let mut held = Self(Vec::new());
        for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
            let comm = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            if comm.starts_with(name) {
                let tid = task.file_name().to_str().and_then(|tid| tid.parse().ok()).expect("a tid");
                held.hold(tid);
            }
        }
        assert!(!held.0.is_empty(), "no thread {name}");
        held
    }

    fn hold(&mut self, tid: libc::pid_t) {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: neither request touches the memory of this process.
        let stopped = unsafe {
            libc::ptrace(libc::PTRACE_SEIZE, tid, none, none) == 0
                && libc::ptrace(libc::PTRACE_INTERRUPT, tid, none, none) == 0
                && libc::waitpid(tid, std::ptr::null_mut(), libc::__WALL) == tid
        };
        assert!(stopped, "stop the thread {tid}: {}", std::io::Error::last_os_error());
        self.0.push(tid);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let none = std::ptr::null_mut::<libc::c_void>();
        for tid in &self.0 {
            // SAFETY: as above. The test waits for a killed thread, because its process can't be reaped before.
            unsafe {
                if libc::ptrace(libc::PTRACE_DETACH, *tid, none, none) != 0 {
                    libc::waitpid(*tid, std::ptr::null_mut(), libc::__WALL);
                }
            }
        }
    }
}

fn the_watchdog_is_fed_by_those_who_serve() {
    /// The daemon feeds the watchdog after every half of this time.
    const WATCHDOG: Duration = Duration::from_secs(2);
    let scratch = Scratch::new("watchdog");
    let path = scratch.path().join("notify");
    let mut manager = Manager::new(&path);
    let usec = WATCHDOG.as_micros().to_string();
    let environment = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", &usec)];
    let daemon = Daemon::launch_in(Arc::new(Place::of_sockets()), &[], &environment);
    manager.hears("READY=1");
    for _ in 0..3 {
        manager.hears("WATCHDOG=1");
    }
    for (threads, file) in [("fuser-", "enabled"), ("topstat-read", "tcp_v4/conns_pps/stat")] {
        let errors = || daemon.log().matches("systemd is not told that all is well").count();
        let before = errors();
        let held = Held::new(daemon.pid(), threads);
        let mut cat = cat(&daemon.path(file));
        assert!(eventually(5 * WATCHDOG, || errors() > before), "{threads}: {}", daemon.log());
        // From here on the daemon is silent, for longer than systemd would wait.
        manager.heard.clear();
        while manager.hears_within("WATCHDOG=1", Duration::from_millis(10)).is_some() {}
        assert!(manager.hears_within("WATCHDOG=1", WATCHDOG + WATCHDOG / 2).is_none(), "{threads}: {}", daemon.log());
        drop(held);
        manager.hears("WATCHDOG=1");
        assert!(eventually(SOON, || cat.try_wait().unwrap().is_some_and(|status| status.success())));
    }
    // A kill while the daemon waits for its own tree ends the daemon and the waiting process.
    let mut daemon = daemon;
    let held = Held::new(daemon.pid(), "fuser-");
    let mut cat = cat(&daemon.path("enabled"));
    std::thread::sleep(2 * WATCHDOG);
    daemon.signal(Signal::KILL);
    drop(held);
    daemon.wait();
    assert!(eventually(SOON, || cat.try_wait().unwrap().is_some()));
}

fn the_kernel_ends_the_wait_for_a_stopped_daemon() {
    /// The timeout that the daemon has set at the mount, the interval of the kernel's check, and a reserve.
    const MOST: Duration = Duration::from_secs(30 + 15 + 10);
    let daemon = Daemon::of_sockets();
    let stopped = Stopped::new(&daemon);
    let begun = Instant::now();
    let mut cat = cat(&daemon.path("enabled"));
    assert!(eventually(MOST, || cat.try_wait().unwrap().is_some()), "it still waits");
    let took = begun.elapsed();
    assert!(!cat.wait().unwrap().success() && took > Duration::from_secs(15), "{took:?}");
    note(format!("a reader of a stopped daemon was told after {:.0} s", took.as_secs_f64()));
    drop(stopped);
    assert!(daemon.says("the kernel has ended the connection"), "{}", daemon.log());
    assert!(eventually(Duration::from_secs(10), || fs::read(daemon.path("enabled")).is_ok()), "{}", daemon.log());
}
