// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each command runs with one failing system call, as with a lack of memory, descriptors or space, or with a signal; or it is
//! killed at one call. It must report the fault and end with 1, or go on and do its work. It must not panic, hang or be ended
//! by a signal, must leave nothing that the next command needs to know about, and must not report success without it.
//!
//! Here a sample of all calls is tried, another sample for each `TOPSTAT_FAULTS_SEED`. `TOPSTAT_FAULTS=all` (`make faults`)
//! tries all calls, `TOPSTAT_FAULTS=unload` the calls of one command. `TOPSTAT_FAULTS_CALL` is a part of the names of the
//! selected calls (`openat`, `bpf(5)`).

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use topstat_families::catalogue;
use topstat_kernel::pinned::{self, Pins};
use topstat_kernel::{Options, TableInfo};
use topstat_live::daemon::Place;
use topstat_live::faults::{Fault, KILLED, Supervisor};
use topstat_live::nest::inet;
use topstat_live::{Case, Nest, case, eventually, note, pace, role};

pub fn cases() -> Vec<Case> {
    vec![
        case!(reading_commands, Root, Notify; Distribution),
        case!(commands_that_change_what_is_pinned, Root, Notify; Slow),
        case!(the_daemon, Root, Fuse, Notify; Slow),
    ]
}

/// The time limit for the sample of each test.
const SAMPLE: Duration = Duration::from_secs(6);
/// From this number of faults on, more than half must occur; a call of another thread may be absent in the second run.
const ENOUGH: usize = 20;
/// A command that takes longer hangs, even on a busy host.
const HANGS: Duration = Duration::from_secs(30);
const TABLE: &str = "udp_v4/conns_pps";
const SETTING: &str = "udp_v4/conns_pps/delay";

/// The end of a command.
struct Ended {
    status: ExitStatus,
    stdout: String,
    stderr: String,
    /// Whether the fault was made.
    failed: bool,
    calls: BTreeMap<String, (usize, &'static [i32])>,
}

/// A supervised command.
struct Running {
    child: Child,
    supervisor: Supervisor,
    output: [PathBuf; 2],
}

impl Running {
    fn start(arguments: &[&str], fault: Option<&Fault>) -> Self {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let file =
            |name: &str| std::env::temp_dir().join(format!("topstat-live-{}-{number}.{name}", std::process::id()));
        let output = ["out", "err"].map(file);
        let [out, err] = output.each_ref().map(|path| fs::File::create(path).expect("a temporary file"));
        let mut command = role::command("topstat");
        command.args(arguments).stdin(Stdio::null()).stdout(out).stderr(err);
        // Nothing except the fault may differ between runs.
        command.env_remove("NOTIFY_SOCKET").env("RUST_BACKTRACE", "0");
        let supervisor = Supervisor::of(&mut command, fault.cloned()).expect("supervise");
        let child = command.spawn().expect("start topstat");
        role::started(child.id());
        Self { child, supervisor, output }
    }

    fn stderr(&self) -> String {
        fs::read_to_string(&self.output[1]).unwrap_or_default()
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("ask for its end").is_some()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        let _ = kill_process(pid, signal);
    }

    /// Waits for the end of the command; `Err`: it hangs, with the place.
    fn end(mut self) -> Result<Ended, String> {
        let hangs = !eventually(HANGS, || self.has_ended());
        let stack = hangs.then(|| waiting(self.child.id()));
        if hangs {
            let _ = self.child.kill();
        }
        let status = self.child.wait().expect("its end");
        let [stdout, stderr] = self.output.each_ref().map(|path| {
            let bytes = fs::read(path).unwrap_or_default();
            let _ = fs::remove_file(path);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let (failed, calls) = self.supervisor.finish().expect("supervise");
        match stack {
            Some(stack) => Err(format!("it hangs in {stack}; it said: {stderr}")),
            None => Ok(Ended { status, stdout, stderr, failed, calls }),
        }
    }
}

/// The kernel functions in which the threads of a process wait.
fn waiting(pid: u32) -> String {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |path: PathBuf| {
        let read = |name: &str| fs::read_to_string(path.join(name)).unwrap_or_default().trim().to_owned();
        format!("{}: {} {}", read("comm"), read("wchan"), read("syscall"))
    };
    threads.map(|thread| of(thread.path())).collect::<Vec<_>>().join("; ")
}

/// The faults in the end of a command that hold for every command.
fn judge(ended: &Ended, fault: Option<&Fault>) -> Result<(), String> {
    let said = || format!("it said: {}", ended.stderr.trim());
    if ended.stderr.contains("panicked at") {
        return Err(format!("a panic; {}", said()));
    }
    match (ended.status.code(), ended.status.signal()) {
        (Some(0), _) => Ok(()),
        // `check` ends with 1 for findings, which are its output.
        (Some(1), _) if ended.stderr.trim().is_empty() && ended.stdout.is_empty() => {
            Err("it ended with 1, and said nothing".to_owned())
        }
        (Some(1), _) if fault.is_some() => Ok(()),
        // A Rust program ends in this way if an allocation that must not fail gets no memory; there is no better way.
        (None, Some(libc::SIGABRT)) if of_memory(ended, fault) => Ok(()),
        (None, Some(libc::SIGKILL)) if fault.is_some_and(|fault| fault.errno == KILLED) => Ok(()),
        (code, signal) => Err(format!("code {code:?}, signal {signal:?}; {}", said())),
    }
}

fn of_memory(ended: &Ended, fault: Option<&Fault>) -> bool {
    let failed = fault.is_some_and(|fault| fault.call.0 == "mmap");
    failed && ended.stderr.contains("memory allocation of")
}

/// A command that runs once without a fault, and then with each fault.
struct Scenario<'a> {
    name: &'static str,
    /// The command changes state that outlives it: then it is also killed at each call.
    lasts: bool,
    run: &'a dyn Fn(Option<&Fault>) -> Result<Ended, String>,
}

/// The seed of the sample, if none is given: chance must not decide whether a change lands. `make faults` makes all faults,
/// and another seed gives another sample.
const SEED: u64 = 20_261_122;

/// xorshift64*: the same faults for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % count.max(1)
    }
}

/// Whether the environment selects this scenario.
fn wanted(scenario: &str) -> bool {
    let only = std::env::var("TOPSTAT_FAULTS").unwrap_or_default();
    only.is_empty() || only == "all" || only == scenario
}

fn plan(calls: &BTreeMap<String, (usize, &'static [i32])>, lasts: bool) -> Vec<Fault> {
    let part = std::env::var("TOPSTAT_FAULTS_CALL").unwrap_or_default();
    let of = |(name, (count, errors)): (&String, &(usize, &'static [i32]))| {
        let (name, count) = (name.clone(), *count);
        let of_error = move |errno: i32| {
            let name = name.clone();
            (0..count).map(move |number| Fault { call: (name.clone(), number), errno })
        };
        errors.iter().copied().chain(lasts.then_some(KILLED)).flat_map(of_error).collect::<Vec<_>>()
    };
    calls.iter().filter(|(name, _)| name.contains(&part)).flat_map(of).collect()
}

/// Runs a scenario with a sample of its faults, or all of them.
fn try_all(scenario: &Scenario<'_>, limit: Duration) {
    if !wanted(scenario.name) {
        return;
    }
    let normal = (scenario.run)(None).unwrap_or_else(|why| panic!("{} without a fault: {why}", scenario.name));
    assert_eq!(normal.status.code(), Some(0), "{}: {}", scenario.name, normal.stderr);
    let seconds = std::env::var("TOPSTAT_FAULTS_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let limit = seconds.map_or(limit, Duration::from_secs);
    let all = std::env::var_os("TOPSTAT_FAULTS").is_some() && seconds.is_none();
    let mut left = plan(&normal.calls, scenario.lasts);
    let (planned, begun) = (left.len(), Instant::now());
    let seed = std::env::var("TOPSTAT_FAULTS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or(SEED);
    let mut random = Random(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let (mut made, mut done, mut refused, mut killed, mut defects) = (0, 0, 0, 0, Vec::new());
    let mut log = std::env::var_os("TOPSTAT_FAULTS_LOG")
        .map(|path| fs::File::options().append(true).create(true).open(path).expect("the log can be written"));
    while !left.is_empty() && (all || begun.elapsed() < pace::patience(limit)) {
        let fault = if all { left.remove(0) } else { left.swap_remove(random.below(left.len())) };
        let outcome = (scenario.run)(Some(&fault)).and_then(|ended| judge(&ended, Some(&fault)).map(|()| ended));
        if let Some(log) = &mut log {
            let what = match &outcome {
                Err(why) => format!("DEFECT {why}"),
                Ok(ended) => format!("{:?} {:?} {}", ended.failed, ended.status.code(), last(&ended.stderr)),
            };
            writeln!(log, "{} {fault}: {what}", scenario.name).expect("the log can be written");
        }
        match outcome {
            Err(why) => defects.push(format!("{} with {fault}: {why}", scenario.name)),
            Ok(ended) => {
                made += usize::from(ended.failed);
                match ended.status.code() {
                    Some(0) => done += 1,
                    Some(_) => refused += 1,
                    None => killed += 1,
                }
            }
        }
    }
    let run = planned - left.len();
    note(format!(
        "{}: {run} of {planned} faults (seed {seed}), {made} of them met: done all the same {done}, ended with 1 {refused}, \
         killed {killed}",
        scenario.name
    ));
    assert!(defects.is_empty(), "{} of {run} faults:\n{}", defects.len(), defects.join("\n"));
    assert!(run < ENOUGH || made * 2 > run, "{}: only {made} of {run} faults were met", scenario.name);
}

fn last(text: &str) -> &str {
    text.trim().lines().last().unwrap_or_default()
}

fn table() -> Arc<TableInfo> {
    let (sample, table) = TABLE.split_once('/').expect("a path");
    catalogue().find(sample, table).expect("a table")
}

/// Checks that adopting finds usable state, or makes it anew, and that no partial state is left.
fn usable(pins: &Pins, dir: &std::path::Path) -> Result<(), String> {
    let (state, _) = pinned::adopt(pins, inet(), &[table()], &Options::default())
        .map_err(|e| format!("adopting afterwards: {e}"))?;
    let mut source = state.reader().map_err(|e| format!("reading afterwards: {e}"))?;
    source.peek(&table()).map_err(|e| format!("reading afterwards: {e}"))?;
    let odd = |path: &PathBuf| {
        let path = path.to_string_lossy();
        path.contains("-partial") || path.ends_with("-new")
    };
    let left: Vec<_> =
        topstat_live::attached::pinned().into_iter().filter(|path| path.starts_with(dir)).filter(odd).collect();
    if left.is_empty() { Ok(()) } else { Err(format!("{left:?} are there after adopting")) }
}

/// Commands that read, and change nothing.
fn reading_commands() {
    let nest = Nest::new("faults-read");
    drop(nest.adopt(&[TABLE], &Options::default()));
    let pins = nest.dir.to_str().expect("a path in UTF-8");
    // No tree, so that the commands read the pinned state.
    let mount = std::env::temp_dir().join(format!("topstat-live-none-{}", std::process::id()));
    let mount = mount.to_str().expect("a path in UTF-8");
    let at = ["--mount", mount, "--pins", pins];
    let lines = |ended: &Ended, least: usize| {
        let documents = ended.stdout.lines().filter(|line| serde_json::from_str::<serde_json::Value>(line).is_ok());
        let documents = documents.count();
        let whole = documents == ended.stdout.lines().count() && (documents == 0 || ended.stdout.ends_with('\n'));
        // Output that could not be written can't be complete.
        let told = ended.status.code() != Some(0);
        if told || whole && documents >= least {
            Ok(())
        } else {
            Err(format!("{:?} with {documents} documents in {:?}", ended.status.code(), ended.stdout))
        }
    };
    let run = |arguments: &[&str], options: &[&str], least: usize, fault: Option<&Fault>| {
        let ended = Running::start(&[arguments, options].concat(), fault).end()?;
        lines(&ended, least).map(|()| ended)
    };
    let top = ["top", TABLE, "50ms", "2", "-o", "json"];
    try_all(&Scenario { name: "top", lasts: false, run: &|fault| run(&top, &at, 2, fault) }, SAMPLE / 4);
    try_all(
        &Scenario { name: "top --private", lasts: false, run: &|fault| run(&top, &["--private"], 2, fault) },
        SAMPLE / 4,
    );
    try_all(
        &Scenario { name: "ls", lasts: false, run: &|fault| run(&["ls", "-o", "json"], &at[2..], 1, fault) },
        SAMPLE / 8,
    );
    try_all(
        &Scenario {
            name: "tasks",
            lasts: false,
            run: &|fault| run(&["tasks", "50ms", "2", "-o", "json"], &[], 2, fault),
        },
        SAMPLE / 4,
    );
    try_all(
        &Scenario { name: "check", lasts: false, run: &|fault| run(&["check", "-o", "json"], &[], 1, fault) },
        SAMPLE / 4,
    );
    let path = format!("{TABLE}/json");
    try_all(&Scenario { name: "get", lasts: false, run: &|fault| run(&["get", &path], &at, 1, fault) }, SAMPLE / 8);
}

/// Commands that change state: they make the whole change, or say that they did not.
fn commands_that_change_what_is_pinned() {
    let nest = Nest::new("faults-set");
    let pins = nest.dir.to_str().expect("a path in UTF-8").to_owned();
    let pid_file = std::env::temp_dir().join(format!("topstat-live-faults-{}.pid", std::process::id()));
    let pid_file = pid_file.to_str().expect("a path in UTF-8").to_owned();
    let state = nest.adopt(&[TABLE], &Options::default()).0;
    let set = |fault: Option<&Fault>| {
        let before = state.settings(&table()).expect("settings").delay_ms;
        let wanted = before % 1000 + 7;
        let mount = format!("{pid_file}.none");
        let value = wanted.to_string();
        let ended = Running::start(&["set", SETTING, &value, "--mount", &mount, "--pins", &pins], fault).end()?;
        let now = state.settings(&table()).expect("settings").delay_ms;
        match ended.status.code() {
            Some(0) if now != wanted => Err(format!("it said that it was done, and the value is {now}, not {wanted}")),
            _ if now != before && now != wanted => Err(format!("the value is {now}, of {before} and {wanted}")),
            _ => Ok(ended),
        }
    };
    try_all(&Scenario { name: "set", lasts: true, run: &set }, SAMPLE / 4);
    drop(state);
    let unload = |fault: Option<&Fault>| {
        drop(nest.adopt(&[TABLE], &Options::default()));
        let arguments = ["unload", "--pins", &pins, "--pid-file", &pid_file];
        let ended = Running::start(&arguments, fault).end()?;
        if ended.status.code() == Some(0) && nest.dir.exists() {
            return Err(format!("it said that it was done, and there is {:?}", nest.files()));
        }
        // The remaining state can be used, and removed.
        usable(&nest.pins, &nest.dir)?;
        pinned::remove(&nest.pins).map_err(|e| format!("removing afterwards: {e}"))?;
        let of_file = fault.is_some_and(|fault| fault.call.0.contains(".pid"));
        if std::path::Path::new(&pid_file).exists() && !of_file && ended.status.code().is_some() {
            return Err(format!("{pid_file} is left"));
        }
        let _ = fs::remove_file(&pid_file);
        if nest.dir.exists() { Err(format!("{:?} is left after removing", nest.files())) } else { Ok(ended) }
    };
    try_all(&Scenario { name: "unload", lasts: true, run: &unload }, SAMPLE);
}

/// A configuration with one family, so that a daemon starts soon.
fn configuration() -> PathBuf {
    let path = std::env::temp_dir().join(format!("topstat-live-faults-{}.toml", std::process::id()));
    let samples = topstat_families::catalogue().samples();
    let others = samples.iter().filter(|info| !inet().samples.iter().any(|own| own.name == info.name));
    let text: String = others.map(|info| format!("[samples.{}]\nenabled = false\n", info.name)).collect();
    fs::write(&path, format!("overhead_budget = \"50%\"\n{text}")).expect("a temporary file");
    path
}

/// The time limit of an answer of the tree.
const ANSWERS: Duration = Duration::from_secs(10);

/// The daemon starts with nothing pinned, or finds pinned state; it serves, and gets SIGTERM.
fn the_daemon() {
    daemon("daemon", false);
    daemon("daemon adopts", true);
}

/// The time since which the pinned state counts; it changes if the state was made anew.
fn since(pins: &Pins) -> Option<std::time::SystemTime> {
    pinned::status(pins).ok()?.into_iter().find(|state| state.family == inet().name)?.since
}

/// Uses a file of the tree in a separate thread, so that a daemon that does not answer blocks only this thread, and only
/// until the daemon is killed. `None`: no answer.
fn ask(what: impl FnOnce() -> bool + Send + 'static) -> Option<bool> {
    let (sender, answer) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(what()));
    answer.recv_timeout(pace::patience(ANSWERS)).ok()
}

fn daemon(name: &'static str, adopts: bool) {
    let place = Arc::new(Place::new());
    let configuration = configuration();
    let pins = Pins::at(&place.pins);
    let run = |fault: Option<&Fault>| {
        if adopts {
            drop(pinned::adopt(&pins, inet(), &[table()], &Options::default()).map_err(|e| e.to_string())?);
        }
        let before = since(&pins);
        let mut arguments = vec!["daemon".to_owned(), "--config".to_owned(), configuration.display().to_string()];
        arguments.extend(place.options());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut daemon = Running::start(&arguments, fault);
        let without = |daemon: &Running| daemon.stderr().contains("there is no tree");
        let mut trouble = Vec::new();
        eventually(HANGS, || {
            daemon.has_ended() || without(&daemon) || {
                let file = place.mount.join("enabled");
                let there = ask(move || fs::read(file).is_ok());
                trouble.extend(there.is_none().then_some("enabled"));
                there != Some(false)
            }
        });
        if !daemon.has_ended() && !without(&daemon) && trouble.is_empty() {
            let at = |path: &str| place.mount.join(path);
            let begins = |path: PathBuf, with: &'static str| {
                move || fs::read(&path).is_ok_and(|text| text.starts_with(with.as_bytes()))
            };
            let (stat, own, setting) = (at(&format!("{TABLE}/stat")), at("self.json"), at(SETTING));
            for _ in 0..2 {
                // The call that meets the fault may fail; its repetition must not.
                let (stat, own, setting) = (stat.clone(), own.clone(), setting.clone());
                let answers = [
                    ("stat", ask(begins(stat, "name\t"))),
                    ("set", ask(move || fs::write(setting, "11\n").is_ok())),
                    ("self", ask(begins(own, "{"))),
                ];
                trouble = answers.into_iter().filter(|(_, done)| *done != Some(true)).map(|(what, _)| what).collect();
                if trouble.is_empty() || daemon.has_ended() {
                    break;
                }
            }
        }
        daemon.signal(Signal::TERM);
        let ended = daemon.end();
        // The rest of the daemon is examined before it is removed.
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mounted = mounts.contains(place.mount.to_str().expect("a path in UTF-8"));
        let (directory, pid_file) = (fs::symlink_metadata(&place.mount).is_ok(), place.pid_file.exists());
        while rustix::mount::unmount(&place.mount, rustix::mount::UnmountFlags::DETACH).is_ok() {}
        let _ = fs::remove_dir(&place.mount);
        let _ = fs::remove_file(&place.pid_file);
        let ended = ended?;
        let said = || format!("; it said: {}", ended.stderr.trim());
        // A daemon that the fault has killed during the requests owes no answer.
        if !trouble.is_empty() && ended.status.code().is_some() {
            return Err(format!("{trouble:?} did not work, twice{}", said()));
        }
        // A state that could not be examined must not be thrown away.
        if adopts && since(&pins) != before {
            return Err(format!("the statistics are lost{}", said()));
        }
        // A remainder is allowed if the failing call is the one that should have removed it, or if the daemon was killed.
        let of = |name: &str| fault.is_some_and(|fault| fault.call.0.starts_with(name));
        let cleared = ended.status.code().is_some();
        for (left, what, calls) in [
            (
                mounted,
                "the mount",
                &["umount2", "capset", "open(/proc/self/mountinfo", "openat(/proc/self/mountinfo"][..],
            ),
            (directory, "the mount point", &["rmdir", "umount2", "capset", "openat(/proc", "read(/proc", "unlinkat"]),
            (pid_file, "the pid file", &["unlink"]),
        ] {
            if left && cleared && !calls.iter().any(|name| of(name)) {
                return Err(format!("{what} is left{}", said()));
            }
        }
        let partial = topstat_live::attached::pinned().into_iter().any(|path| {
            path.starts_with(&place.pins)
                && path.components().any(|part| part.as_os_str().to_string_lossy().ends_with("-partial"))
        });
        if partial && cleared && !of("unlink") && !of("rmdir") && !of("getdents") {
            return Err(format!("half a state is left{}", said()));
        }
        usable(&pins, &place.pins)?;
        pinned::remove(&pins).map_err(|e| format!("removing afterwards: {e}"))?;
        Ok(ended)
    };
    try_all(&Scenario { name, lasts: true, run: &run }, SAMPLE);
    let _ = fs::remove_file(&configuration);
}
