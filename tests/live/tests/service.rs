// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon as a service: its privileges, its messages to systemd, its configuration.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::mount::UnmountFlags;
use rustix::process::Signal;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use topstat_kernel::{Options, State};
use topstat_live::daemon::Place;
use topstat_live::role::say;
use topstat_live::watch::table;
use topstat_live::{Case, Daemon, Role, Scratch, case, eventually, limits, note, pace};
use topstat_load::{Config, Load, Plan};

pub fn cases() -> Vec<Case> {
    vec![
        case!(once_it_serves_it_may_do_no_more_than_it_needs, Root, Fuse; Daemon, Distribution),
        case!(each_capability_that_is_kept_is_needed, Root),
        case!(the_units_privileges_are_enough, Root, Fuse; Distribution),
        case!(a_privilege_that_is_missing_is_named, Root, Fuse),
        case!(systemd_understands_the_unit, SystemdAnalyze; Distribution),
        case!(systemd_is_told_what_it_waits_for, Root, Fuse),
        case!(a_configuration_sets_what_it_names_and_a_reload_what_has_changed, Root, Fuse; Distribution),
        case!(a_group_may_read_and_nobody_else, Root, Fuse),
        case!(loading_takes_no_more_memory_than_is_said, Root, Fuse),
        case!(the_log_has_priorities_for_the_journal, Root, Fuse),
        case!(a_full_file_system_keeps_no_daemon_from_running, Root, Fuse),
    ]
}

const PPS: &str = "tcp_v4/conns_pps";

/// The capability masks of a thread, by their names in `/proc/PID/status`.
fn masks(task: &Path) -> BTreeMap<String, u64> {
    let text = fs::read_to_string(task.join("status")).expect("a thread's status");
    let pairs = text.lines().filter_map(|line| line.split_once(":\t"));
    pairs.filter_map(|(name, value)| Some((name.to_owned(), u64::from_str_radix(value, 16).ok()?))).collect()
}

/// Connections that have carried data, and stay open as long as the value lives.
fn some_traffic() -> Load {
    const CONNECTIONS: usize = 10;
    let mut load = Load::open(Config { connections: CONNECTIONS, ..Config::default() }).unwrap();
    load.run(&Plan::new(vec![100; CONNECTIONS]), &limits()).unwrap();
    load
}

fn once_it_serves_it_may_do_no_more_than_it_needs() {
    let serving = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::DAC_READ_SEARCH;
    let at_times = CapabilitySet::SYS_ADMIN;
    let daemon = Daemon::start();
    assert!(daemon.says("privileges left: CAP_BPF, CAP_PERFMON, CAP_DAC_READ_SEARCH;"));
    // The daemon drops its privileges before it serves; new threads need a moment to start.
    std::thread::sleep(Duration::from_millis(100));
    let mut serve = 0;
    for task in fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap() {
        let task = task.unwrap().path();
        let name = fs::read_to_string(task.join("comm")).unwrap();
        let has = || masks(&task);
        // All threads except the first, and the one that measures.
        let first = task.file_name().and_then(|tid| tid.to_str()) == Some(daemon.pid().to_string().as_str());
        let serves = !first && name.trim_end() != "topstat-cost";
        serve += u32::from(serves);
        let permitted = if serves { serving } else { serving | at_times };
        // A thread that may raise a capability may have it raised at this moment, for as long as that takes on this host.
        let no_more = || has()["CapEff"] == serving.bits();
        assert!(if serves { no_more() } else { eventually(Duration::from_secs(30), no_more) }, "{name}: {:?}", has());
        let masks = has();
        assert_eq!(masks["CapPrm"], permitted.bits(), "{name}");
        assert_eq!((masks["CapInh"], masks["CapBnd"], masks["CapAmb"]), (0, 0, 0), "{name}");
        assert_eq!(masks["NoNewPrivs"], 1, "{name}");
    }
    assert!(serve >= 4, "{serve} threads serve");
    // Everything still works: snapshots with paths of cgroups, settings, the daemon's cost, the mount.
    let _load = some_traffic();
    let json = daemon.json("tcp_v4/conns_bytes");
    let first = &json.value["rows"][0]["object"];
    assert!(first["cgroup"].is_string(), "{first}");
    daemon.stat(PPS);
    daemon.read("tcp_v4/conns_pps/dump");
    daemon.write("tcp_v4/conns_pps/delay", 5);
    assert_eq!(daemon.read("tcp_v4/conns_pps/delay"), "5\n");
    assert!(eventually(Duration::from_secs(10), || daemon.own()["measured"].is_object()), "{}", daemon.log());
    assert!(daemon.own()["error"].is_null());
    rustix::mount::unmount(&daemon.place.mount, UnmountFlags::empty()).unwrap();
    let noticed = || daemon.log().contains("somebody has unmounted the tree");
    assert!(eventually(Duration::from_secs(30), noticed), "{}", daemon.log());
    daemon.signal(Signal::HUP);
    assert!(eventually(Duration::from_secs(10), || daemon.path("enabled").exists()), "{}", daemon.log());
    daemon.stat(PPS);
    let mut daemon = daemon;
    assert_eq!(daemon.stop().code(), Some(0));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(daemon.place.mount.to_str().unwrap()), "it may unmount:\n{}", daemon.log());
}

/// Reads a table and finds the path of a cgroup, in a thread with only these capabilities.
fn reads_with(state: &Arc<dyn State>, kept: CapabilitySet) -> Result<bool, String> {
    let state = Arc::clone(state);
    let read = move || {
        let had = capabilities(None).map_err(|e| e.to_string())?;
        set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, ..had })
            .map_err(|e| e.to_string())?;
        let mut source = state.reader().map_err(|e| e.to_string())?;
        let snapshot = source.snapshot(&table("tcp_v4/conns_bytes")).map_err(|e| e.to_string())?;
        source.refill(&table("tcp_v4/conns_pps")).map_err(|e| e.to_string())?;
        let mut line = Vec::new();
        topstat_model::json::write(&snapshot, &mut line).map_err(|e| e.to_string())?;
        let line = String::from_utf8_lossy(&line);
        assert!(line.contains("\"comm\""), "no rows: {line}");
        Ok(line.contains("\"cgroup\":\""))
    };
    std::thread::spawn(read).join().expect("a thread")
}

/// In a separate process: all readers of a process share the paths that one reader has found.
fn each_capability_that_is_kept_is_needed() {
    let mut role = Role::start("capabilities", &[]);
    for _ in 0..2 {
        note(role.expect("without"));
    }
    role.finish();
}

/// The body of [`each_capability_that_is_kept_is_needed`].
pub fn capabilities_needed() {
    let family = topstat_families::catalogue().family_of("tcp_v4").expect("the sockets' family");
    let tables = [table("tcp_v4/conns_bytes"), table("tcp_v4/conns_pps")];
    let state = topstat_kernel::load_state(&family, &tables, &Options::default()).unwrap();
    let _load = some_traffic();
    let all = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::DAC_READ_SEARCH;
    assert_eq!(reads_with(&state, all - CapabilitySet::DAC_READ_SEARCH), Ok(false), "it finds paths");
    assert_eq!(reads_with(&state, all), Ok(true));
    for (without, name) in [(CapabilitySet::BPF, "CAP_BPF"), (CapabilitySet::PERFMON, "CAP_PERFMON")] {
        let error = reads_with(&state, all - without).expect_err(name);
        say(format!("without {name}: {error}"));
    }
}

fn unit() -> String {
    let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/topstat.service.in"));
    fs::read_to_string(file).expect("the unit")
}

/// The capabilities that the unit grants the daemon.
fn units_capabilities() -> CapabilitySet {
    let unit = unit();
    let named = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).expect("capabilities");
    let named = named.split(' ').map(|name| {
        CapabilitySet::from_name(name.trim_start_matches("CAP_")).unwrap_or_else(|| panic!("a capability: {name}"))
    });
    named.collect()
}

/// Runs `what` in a thread with these capabilities; processes that it starts inherit them.
fn confined<T: Send + 'static>(kept: CapabilitySet, what: impl FnOnce() -> T + Send + 'static) -> T {
    let had = capabilities(None).unwrap();
    let run = move || {
        for capability in (CapabilitySet::all() - kept).iter() {
            let _ = rustix::thread::remove_capability_from_bounding_set(capability);
        }
        let permitted = had.permitted & kept;
        set_capabilities(None, CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() })
            .unwrap();
        what()
    };
    std::thread::spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// With the unit's privileges alone the daemon loads, serves and ends as with all privileges.
fn the_units_privileges_are_enough() {
    let kept = units_capabilities();
    confined(kept, move || {
        let mut daemon = Daemon::start();
        let masks = masks(Path::new(&format!("/proc/{}", daemon.pid())));
        assert_eq!((masks["CapBnd"], masks["NoNewPrivs"]), (kept.bits(), 1));
        let _load = some_traffic();
        assert!(daemon.json("tcp_v4/conns_bytes").value["rows"][0]["object"]["cgroup"].is_string());
        assert!(eventually(Duration::from_secs(10), || daemon.own()["measured"].is_object()), "{}", daemon.log());
        assert_eq!(daemon.stop().code(), Some(0));
        let complains = |line: &&str| line.contains(" warn ") || line.contains(" error ");
        let log = daemon.log();
        assert_eq!(log.lines().filter(complains).count(), 0, "{log}");
    });
}

/// The daemon serves what is pinned, and can't mount its tree.
const TREELESS: &str = "the kernel refuses to mount the tree without CAP_SYS_ADMIN; there is no tree, all else works";

/// If any capability of the unit is missing, the daemon names it, whether it can go on without it or not. Without CAP_SYS_ADMIN
/// it goes on: docs/install.md has containers run with the others.
fn a_privilege_that_is_missing_is_named() {
    // The samples of sockets need all of the capabilities.
    let scratch = Scratch::new("missing");
    let file = scratch.path().join("topstat.toml");
    fs::write(&file, "[samples]\ntasks.enabled = false\ncgroups.enabled = false\ndelays.enabled = false\n").unwrap();
    let begin = |kept: CapabilitySet, environment: &'static [(&str, &str)]| {
        let file = file.clone();
        confined(kept, move || {
            let options = ["--config", file.to_str().expect("a path in UTF-8")];
            let mut daemon = Daemon::launch_in(Arc::new(Place::new()), &options, environment);
            let there = |daemon: &Daemon| fs::read(daemon.path("enabled")).is_ok() || daemon.log().contains(TREELESS);
            let begun = eventually(Duration::from_secs(30), || there(&daemon) || daemon.ended().is_some());
            assert!(begun, "neither there nor over: {}", daemon.log());
            (daemon.ended().is_none(), daemon.log())
        })
    };
    let all = units_capabilities();
    for one in all.iter() {
        let name = format!("CAP_{}", one.iter_names().next().expect("its name").0);
        let (serves, log) = begin(all - one, &[]);
        assert!(log.contains(&format!("without {name}, which is needed: ")), "{name}: {log}");
        if one == CapabilitySet::SYS_ADMIN {
            assert!(serves && log.contains(TREELESS), "{log}");
        }
        note(format!("without {name} it {}", if serves { "serves" } else { "ends" }));
    }
}

fn systemd_understands_the_unit() {
    let version = Command::new("systemd-analyze").arg("--version").output().expect("systemd-analyze");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let version: u32 = version.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("its version");
    let scratch = Scratch::new("unit");
    let file = scratch.path().join("topstat.service");
    // An existing executable.
    fs::write(&file, unit().replace("@BINDIR@/topstat", "/bin/true")).unwrap();
    let checked = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    // systemd-analyze may complain about other units of this host.
    let ours = said.lines().filter(|line| line.contains("topstat.service"));
    // Older versions don't know the unit's second type, as a comment in the unit says.
    let expected =
        |line: &&str| version < 253 && line.ends_with("Failed to parse service type, ignoring: notify-reload");
    let complaints: Vec<_> = ours.filter(|line| !expected(line)).collect();
    assert_eq!(complaints, [""; 0], "systemd {version}");
}

/// The messages that systemd would get.
pub struct Manager {
    socket: UnixDatagram,
    pub heard: Vec<String>,
}

impl Manager {
    pub fn new(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        Self { socket, heard: Vec::new() }
    }

    /// Waits for a message with this line, and returns it.
    pub fn hears(&mut self, line: &str) -> String {
        let heard = self.hears_within(line, pace::patience(Duration::from_secs(30)));
        heard.unwrap_or_else(|| panic!("no {line} among {:?}", self.heard))
    }

    /// As [`Self::hears`], for a message that may not come; `None` after `time`.
    pub fn hears_within(&mut self, line: &str, time: Duration) -> Option<String> {
        let begun = Instant::now();
        while begun.elapsed() < time {
            let mut bytes = [0; 4096];
            if let Ok(length) = self.socket.recv(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                self.heard.push(text.clone());
                if text.lines().any(|one| one == line) {
                    return Some(text);
                }
            }
        }
        None
    }
}

fn systemd_is_told_what_it_waits_for() {
    let scratch = Scratch::new("notify");
    let path = scratch.path().join("notify");
    let mut manager = Manager::new(&path);
    // A watchdog of one second: it must hear from the daemon twice in that time.
    let environment = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "1000000")];
    let mut daemon = Daemon::launch_in(Arc::new(Place::of_sockets()), &[], &environment);
    let ready = manager.hears("READY=1");
    let status = ready.lines().find(|line| line.starts_with("STATUS=counting ")).unwrap_or_default();
    assert!(status.contains("tcp_v4, tcp_v6, udp_v4, udp_v6"), "{ready}");
    assert!(daemon.path("enabled").exists(), "it is ready once it serves");
    let begun = Instant::now();
    for _ in 0..4 {
        manager.hears("WATCHDOG=1");
    }
    let took = begun.elapsed();
    assert!(
        took > Duration::from_millis(900) && took < pace::patience(Duration::from_secs(4)),
        "4 signs of life in {took:?}"
    );
    let monotonic = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec * 1_000_000 + now.tv_nsec / 1000
    };
    let before = monotonic();
    daemon.signal(Signal::HUP);
    let reloading = manager.hears("RELOADING=1");
    let at = reloading.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).expect("the time");
    let at: i64 = at.parse().unwrap();
    assert!((before..=monotonic()).contains(&at), "{reloading}");
    manager.hears("READY=1");
    daemon.signal(Signal::TERM);
    manager.hears("STOPPING=1");
    assert_eq!(daemon.wait().code(), Some(0));
}

fn a_configuration_sets_what_it_names_and_a_reload_what_has_changed() {
    let scratch = Scratch::new("config");
    let file = scratch.path().join("topstat.toml");
    let write = |text: &str| fs::write(&file, text).unwrap();
    let option = file.to_str().unwrap();
    write("top = 10\nperiod = 2000\n[samples.tcp_v4]\ndelay = \"30ms\"\n[samples.tcp_v4.conns_bps]\nenabled = false\n");
    let daemon = Daemon::start_at(Arc::new(Place::new()), &["--config", option]);
    let all = |daemon: &Daemon| {
        ["tcp_v4/conns_pps/period", "tcp_v4/conns_pps/delay", "tcp_v4/conns_bps/enabled", "udp_v4/conns_pps/delay"]
            .map(|path| daemon.read(path).trim().to_owned())
    };
    assert_eq!(all(&daemon), ["2000", "30", "0", "0"]);
    assert_eq!(daemon.json(PPS).value["top"], 10);
    // A setting that the configuration does not name belongs to the user.
    daemon.write("udp_v4/conns_pps/delay", 7);
    let reload = |text: &str, says: &str| {
        let before = daemon.log().matches(says).count();
        write(text);
        daemon.signal(Signal::HUP);
        let said = || daemon.log().matches(says).count() > before;
        assert!(eventually(Duration::from_secs(10), said), "not {says}:\n{}", daemon.log());
    };
    reload("top = 10\nperiod = 2000\nsync = fals\n", "topstat.toml:3:");
    assert_eq!(all(&daemon), ["2000", "30", "0", "7"], "a wrong configuration changes nothing");
    reload("top = 20\nmount = \"/run/other\"\n[samples.tcp_v4]\ndelay = 40\n", "a restart is needed for top");
    // The period and the switch return to their defaults, since the configuration had set them.
    assert_eq!(all(&daemon), ["1000", "40", "1", "7"]);
    assert_eq!(daemon.json(PPS).value["top"], 10);
    // A budget is added and removed.
    assert!(daemon.own()["budget"].is_null());
    reload("top = 20\noverhead_budget = \"2.5%\"\n[samples.tcp_v4]\ndelay = 40\n", "the budget is 2.5% of each CPU");
    assert_eq!(daemon.own()["budget"]["share"], 0.025);
    reload("top = 20\n[samples.tcp_v4]\ndelay = 40\n", "0 tables were set");
    assert!(daemon.own()["budget"].is_null());
    // The command line overrides the file, so another mount in the file is no change.
    assert!(!daemon.log().contains("needed for mount"), "{}", daemon.log());
}

fn a_group_may_read_and_nobody_else() {
    use std::os::unix::fs::MetadataExt as _;
    const GROUP: u32 = 4711;
    let place = Place::configured(&format!("group = \"{GROUP}\""));
    let daemon = Daemon::start_at(Arc::new(place), &[]);
    for (path, mode) in [("", 0o750), ("tcp_v4", 0o750), ("self", 0o440), ("tcp_v4/conns_pps/period", 0o640)] {
        let data = fs::metadata(daemon.path(path)).unwrap();
        assert_eq!((data.uid(), data.gid(), data.mode() & 0o777), (0, GROUP, mode), "{path}");
    }
    // Access follows the modes.
    let reads = |group: u32| {
        let stat = daemon.path("tcp_v4/conns_pps/stat");
        let id = format!("{group}");
        let cat = Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", &id, "--clear-groups", "cat"])
            .arg(stat)
            .output()
            .expect("setpriv");
        cat.status.success()
    };
    assert!(reads(GROUP), "the group");
    assert!(!reads(65_534), "others");
}

/// The memory of the process without files. docs/daemon.md has the figures that include the kernel's memory.
fn loading_takes_no_more_memory_than_is_said() {
    const MOST_KB: u64 = 48 << 10;
    let daemon = Daemon::start();
    let (peak, file, after) = (daemon.status_kb("VmHWM"), daemon.status_kb("RssFile"), daemon.status_kb("RssAnon"));
    note(format!("resident at the peak: {peak} kB, with {file} kB of files; without files, after loading: {after} kB"));
    assert!(peak - file < MOST_KB, "{peak} kB at the peak, {file} kB of it files");
}

fn the_log_has_priorities_for_the_journal() {
    // The variable names the file that the journal reads, so the daemon must write to a file with these numbers.
    let scratch = Scratch::new("journal");
    let path = scratch.path().join("stderr");
    let stderr = fs::File::create(&path).unwrap();
    let place = Place::new();
    let stat = rustix::fs::fstat(&stderr).unwrap();
    let mut child = topstat_live::role::command("topstat")
        .arg("daemon")
        .args(place.options())
        .env("JOURNAL_STREAM", format!("{}:{}", stat.st_dev, stat.st_ino))
        .stderr(stderr)
        .spawn()
        .unwrap();
    topstat_live::role::started(child.id());
    let log = || fs::read_to_string(&path).unwrap();
    let there = eventually(Duration::from_secs(30), || place.mount.join("enabled").exists());
    let _ = fs::write(place.mount.join("tcp_v4/conns_pps/period"), "0\n");
    let warned = eventually(Duration::from_secs(5), || log().contains("<4>"));
    child.kill().and_then(|()| child.wait()).unwrap();
    assert!(there && warned, "{}", log());
    for line in log().lines() {
        assert!(line.starts_with("<6>") || line.starts_with("<4>cannot"), "{line}");
    }
    assert!(log().contains("<6>inet: program inet_create ("), "{}", log());
    assert!(log().contains(" at cgroup sock_create\n"), "{}", log());
}

/// The lock keeps a second daemon away; the file system may have no room for the pid in it.
fn a_full_file_system_keeps_no_daemon_from_running() {
    let scratch = Scratch::new("full");
    let run = scratch.path().join("run");
    fs::create_dir(&run).unwrap();
    let mounted = Mounted::new(&run, "size=64k,nr_inodes=3");
    // Fills the file system, except for one inode.
    let filled = fs::write(run.join("full"), vec![0; 1 << 20]);
    assert_eq!(filled.expect_err("it takes no more").kind(), std::io::ErrorKind::StorageFull);
    let pid_file = run.join("topstat.pid");
    let place = || {
        let mut place = Place::of_sockets();
        place.pid_file.clone_from(&pid_file);
        Arc::new(place)
    };
    let mut daemon = Daemon::start_at(place(), &[]);
    assert!(daemon.says("cannot write the pid to") && daemon.log().contains("No space left"), "{}", daemon.log());
    let mut second = Daemon::launch(place(), &[]);
    assert_eq!(second.wait().code(), Some(1));
    assert!(second.says("a daemon runs already; stop it first"), "{}", second.log());
    assert_eq!(daemon.stop().code(), Some(0), "{}", daemon.log());
    // If no file can be made at all, the message says what to do.
    fs::write(run.join("last"), "").unwrap();
    let mut daemon = Daemon::launch(place(), &[]);
    assert_eq!(daemon.wait().code(), Some(1));
    assert!(daemon.says("make room there, or name another file with --pid-file"), "{}", daemon.log());
    drop(mounted);
}

/// A tmpfs, unmounted when dropped.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn new(at: &Path, options: &str) -> Self {
        let options = std::ffi::CString::new(options).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", at, "tmpfs", flags, Some(options.as_c_str())).expect("mount a tmpfs");
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}
