// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat daemon`, started by a test with a separate tree, pins and pid file, which are removed with it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};
use topstat_kernel::Family;

use crate::accounts::schedstat;
use crate::tree::{Document, Stat, Tree};
use crate::{eventually, role};

/// How long a daemon may take to start, and to end. On a busy host the verification of programs takes most of it.
const PATIENCE: Duration = Duration::from_secs(120);

/// The paths of a daemon. Several daemons in turn may use one place.
pub struct Place {
    /// The mount point.
    pub mount: PathBuf,
    /// The folder of pins.
    pub pins: PathBuf,
    /// The pid file.
    pub pid_file: PathBuf,
}

impl Place {
    /// A place that no other test uses.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // No name may be the beginning of another name: lists of mounts are searched for them.
        let name = format!("topstat-live-{}-{}-place", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mount = std::env::temp_dir().join(&name);
        Self { pid_file: mount.with_extension("pid"), pins: Path::new("/sys/fs/bpf").join(name), mount }
    }

    /// A place whose daemons load the family of sockets only, which takes a quarter of the time.
    pub fn of_sockets() -> Self {
        Self::configured("")
    }

    /// A place as [`Self::of_sockets`] makes it, with this text before the settings that switch the other samples off.
    pub fn configured(text: &str) -> Self {
        let place = Self::new();
        place.configure(text);
        place
    }

    /// Writes the configuration of the next daemons, as [`Self::configured`] does.
    pub fn configure(&self, text: &str) {
        let sockets = crate::nest::inet();
        let samples = built_in().iter().filter(|family| family.name != sockets.name).flat_map(|family| &family.samples);
        let others: String = samples.map(|sample| format!("[samples.{}]\nenabled = false\n", sample.name)).collect();
        fs::write(self.config(), format!("{text}\n{others}")).expect("write a configuration");
    }

    /// The path of the configuration. The file may be absent.
    fn config(&self) -> PathBuf {
        self.mount.with_extension("toml")
    }

    /// The options of a daemon at this place.
    pub fn options(&self) -> [String; 6] {
        let text = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
        let [mount, pins, pid_file] = ["--mount", "--pins", "--pid-file"].map(str::to_owned);
        [mount, text(&self.mount), pins, text(&self.pins), pid_file, text(&self.pid_file)]
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The rest of a test that failed.
        while rustix::mount::unmount(&self.mount, UnmountFlags::DETACH).is_ok() {}
        let _ = fs::remove_dir(&self.mount);
        let _ = fs::remove_dir_all(&self.pins);
        let _ = fs::remove_file(&self.pid_file);
        let _ = fs::remove_file(self.config());
    }
}

/// The families of this build, without those that tests have added to this process: in a guest all tests share a process. The
/// harness calls it before the first test.
pub fn built_in() -> &'static [Arc<Family>] {
    static ALL: LazyLock<Vec<Arc<Family>>> = LazyLock::new(|| topstat_families::catalogue().families());
    &ALL
}

/// The samples of a daemon that is started now: the samples of families that can run on this kernel.
pub fn samples() -> Vec<Arc<topstat_kernel::SampleInfo>> {
    built_in().iter().filter(|family| (family.ready)().is_ok()).flat_map(|family| family.available_samples()).collect()
}

/// A running daemon.
pub struct Daemon {
    child: Child,
    log: Arc<Mutex<String>>,
    /// The paths of the daemon.
    pub place: Arc<Place>,
}

impl Daemon {
    /// Starts a daemon in a new place, and waits until its tree is mounted.
    pub fn start() -> Self {
        Self::start_at(Arc::new(Place::new()), &[])
    }

    /// Starts a daemon that loads the family of sockets only, in a new place.
    pub fn of_sockets() -> Self {
        Self::start_at(Arc::new(Place::of_sockets()), &[])
    }

    /// Starts a daemon in this place with further options, and waits until its tree is mounted.
    pub fn start_at(place: Arc<Place>, options: &[&str]) -> Self {
        let mut daemon = Self::launch(place, options);
        // A read asks the daemon; the existence of a file comes from the kernel's cache.
        let there = |daemon: &Self| fs::read(daemon.path("enabled")).is_ok();
        let begun = eventually(PATIENCE, || there(&daemon) || daemon.ended().is_some());
        assert!(begun && there(&daemon), "no tree at {}:\n{}", daemon.place.mount.display(), daemon.log());
        daemon
    }

    /// Starts a daemon in this place without waiting.
    pub fn launch(place: Arc<Place>, options: &[&str]) -> Self {
        Self::launch_in(place, options, &[])
    }

    /// As [`Self::launch`], with these variables in the daemon's environment.
    pub fn launch_in(place: Arc<Place>, options: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = role::command("topstat");
        command.envs(environment.iter().copied()).arg("daemon").args(place.options()).args(options);
        if place.config().exists() && !options.contains(&"--config") {
            command.arg("--config").arg(place.config());
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start the daemon");
        role::started(child.id());
        let log = Arc::new(Mutex::new(String::new()));
        let (stderr, into) = (child.stderr.take().expect("its log"), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut log = into.lock().unwrap_or_else(PoisonError::into_inner);
                log.push_str(&line);
                log.push('\n');
            }
        });
        Self { child, log, place }
    }

    /// The CPU time of the daemon, by the scheduler's account.
    pub fn cpu_time(&self) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).expect("its threads");
        let of = |task: std::io::Result<fs::DirEntry>| Some(schedstat(task.ok()?.path())?.run_ns);
        Duration::from_nanos(tasks.filter_map(of).sum())
    }

    /// The cost that the daemon reports for itself.
    pub fn own(&self) -> serde_json::Value {
        serde_json::from_str(&self.read("self.json")).expect("a document")
    }

    /// The process id of the daemon.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The log of the daemon so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the log contains this text, now or within five seconds.
    pub fn says(&self, text: &str) -> bool {
        eventually(Duration::from_secs(5), || self.log().contains(text))
    }

    /// The tree of the daemon.
    pub fn tree(&self) -> Tree {
        Tree::at(&self.place.mount)
    }

    /// The path of a file in the tree.
    pub fn path(&self, path: &str) -> PathBuf {
        self.tree().path(path)
    }

    /// See [`Tree::read`].
    pub fn read(&self, path: &str) -> String {
        self.tree().read(path)
    }

    /// See [`Tree::write`].
    pub fn write(&self, path: &str, value: impl std::fmt::Display) {
        self.tree().write(path, value);
    }

    /// See [`Tree::json`].
    pub fn json(&self, table: &str) -> Document {
        self.tree().json(table)
    }

    /// See [`Tree::stat`].
    pub fn stat(&self, table: &str) -> Stat {
        self.tree().stat(table)
    }

    /// The exit status of the daemon, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("ask for its end")
    }

    /// Waits until the daemon has ended.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually(PATIENCE, || {
            status = self.ended();
            status.is_some()
        });
        status.unwrap_or_else(|| panic!("it does not end:\n{}", self.log()))
    }

    /// Sends a signal to the daemon.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, signal).expect("send a signal");
    }

    /// Asks the daemon to end, and waits until it has.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Kills the daemon, as the out-of-memory killer would.
    pub fn kill(&mut self) {
        self.child.kill().and_then(|()| self.child.wait().map(drop)).expect("kill the daemon");
    }

    /// The number of open descriptors of the daemon.
    pub fn fds(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).map_or(0, Iterator::count)
    }

    /// The resident memory of the daemon in kB, without pages of the program file. The tests run a debug build, whose program
    /// pages are several times as many as in a release build, and say nothing about the data that the daemon keeps.
    pub fn resident_kb(&self) -> u64 {
        let of = |name: &str| format!("/proc/{}/{name}", self.pid());
        let program = fs::read_link(of("exe")).expect("its program").to_string_lossy().into_owned();
        let text = fs::read_to_string(of("smaps")).expect("its mappings");
        let (mut is_program, mut sum) = (false, 0);
        for line in text.lines() {
            match line.strip_prefix("Rss:") {
                Some(value) if !is_program => {
                    sum += value.trim().trim_end_matches(" kB").parse::<u64>().expect("a number of kB");
                }
                Some(_) => {}
                // The line of a mapping begins with its addresses: 7f12a000-7f12c000.
                None if line.split(' ').next().is_some_and(|word| word.contains('-')) => {
                    is_program = line.ends_with(&program)
                }
                None => {}
            }
        }
        sum
    }

    /// A number of the daemon's `/proc/PID/status`, such as `VmRSS`, in kB.
    pub fn status_kb(&self, name: &str) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("its status");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|value| value.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_else(|| panic!("no {name}"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.log());
        }
    }
}
