// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon as a service of systemd: the files of `make install`; systemd starts, confines, watches, restarts and stops the
//! daemon. All but the first of these tests need a separate machine (`topstat-vm --tier systemd`).

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use topstat_kernel::pinned::{self, Adopted, Pins};
use topstat_live::nest::inet;
use topstat_live::tally::{TABLES, Tally};
use topstat_live::tree::{Document, Stat};
use topstat_live::watch::everything;
use topstat_live::{Case, Scratch, Watch, case, eventually, note, pace};

pub fn cases() -> Vec<Case> {
    vec![
        case!(it_is_exposed_no_more_than_it_must_be, SystemdAnalyze; Service, Distribution),
        case!(it_starts_serves_and_stops, Root, Fuse, Systemd; Service),
        case!(a_daemon_that_hangs_is_replaced, Root, Fuse, Systemd; Service),
        case!(an_upgrade_under_load_loses_nothing, Root, Fuse, Systemd; Service),
    ]
}

/// The name of the service in systemd.
pub const SERVICE: &str = "topstat.service";
/// The prefix of `make install`. systemd looks there, too.
const PREFIX: &str = "/usr/local";
const MOUNT: &str = "/run/topstat";
const PINS: &str = "/sys/fs/bpf/topstat";
/// The maximum exposure of the service by systemd's count, of 100.
const MOST_EXPOSED: u32 = 35;
/// Under load the daemon may need at most one part in `RESERVE` of each limit of the unit.
const RESERVE: u64 = 4;

fn dist(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist").join(file);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs a program that must succeed, and returns its output.
pub fn run(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> String {
    let program = program.as_ref();
    let output = Command::new(program).args(arguments).env_remove("MAKEFLAGS").output();
    let output = output.unwrap_or_else(|e| panic!("{}: {e}", program.display()));
    assert!(output.status.success(), "{} {arguments:?}: {}", program.display(), text(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn systemctl(arguments: &[&str]) -> String {
    run("systemctl", arguments)
}

fn topstat(arguments: &[&str]) -> String {
    run(Path::new(PREFIX).join("bin/topstat"), arguments)
}

/// A property of a unit in systemd.
pub fn property_of(unit: &str, name: &str) -> String {
    systemctl(&["show", unit, "--value", "--property", name]).trim().to_owned()
}

fn property(name: &str) -> String {
    property_of(SERVICE, name)
}

fn number(name: &str) -> u64 {
    property(name).parse().unwrap_or_else(|e| panic!("{name}={}: {e}", property(name)))
}

/// The messages of the service, and of systemd about it, since this boot.
fn journal() -> String {
    run("journalctl", &["--sync"]);
    run("journalctl", &["--boot", "--quiet", "--output=cat", "--no-pager", "--unit", SERVICE])
}

/// A file of the tree.
fn path(name: &str) -> PathBuf {
    Path::new(MOUNT).join(name)
}

/// Whether the tree is mounted, as process 1 sees it.
fn mounted() -> bool {
    let mounts = fs::read_to_string("/proc/1/mountinfo").expect("its mounts");
    mounts.lines().any(|line| line.contains(&format!(" {MOUNT} ")))
}

/// In the configuration: loads the samples of sockets only, which takes half of the time.
pub const SOCKETS_ALONE: &str = "[samples]\ntasks.enabled = false\ncgroups.enabled = false\ndelays.enabled = false\n";

/// The service, installed and stopped, with nothing pinned, with changes to the unit and to the configuration. Stopped when
/// dropped.
pub struct Service;

impl Service {
    pub fn new(changes: &str, configuration: &str) -> Self {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            let target = std::env::var("TOPSTAT_SUITE_TARGET").expect("where the program is: run scripts/vm-tests");
            let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
            let (prefix, program) = (format!("PREFIX={PREFIX}"), format!("TOPSTAT={target}/topstat"));
            run("make", &["--no-print-directory", "-C", repository, "install", &prefix, &program]);
            run("systemd-tmpfiles", &["--create", "topstat.conf"]);
        });
        let service = Self;
        service.end();
        let folder = Path::new("/run/systemd/system").join(format!("{SERVICE}.d"));
        fs::create_dir_all(&folder).expect("a folder for changes");
        // In the tests' tables both ends of every socket are rows, and nothing ages.
        let configuration = format!("top = 1024\nperiod = 3600000\n{configuration}");
        fs::write("/etc/topstat/topstat.toml", configuration).expect("a configuration");
        fs::write(folder.join("90-test.conf"), format!("[Service]\n{changes}")).expect("changes of the unit");
        systemctl(&["daemon-reload"]);
        service
    }

    /// Starts the service: systemd waits until it reports that it is ready.
    pub fn start(&self) {
        let output = Command::new("systemctl").args(["start", SERVICE]).output().expect("systemctl");
        assert!(output.status.success(), "{}\n{}", text(&output), journal());
    }

    fn pid(&self) -> Pid {
        let pid = number("MainPID").try_into().ok().and_then(Pid::from_raw);
        pid.unwrap_or_else(|| panic!("it does not run:\n{}", journal()))
    }

    fn end(&self) {
        // A stopped process would not receive the signal.
        let _ = Command::new("systemctl").args(["kill", "--signal=SIGCONT", SERVICE]).output();
        systemctl(&["stop", SERVICE]);
        let _ = Command::new("systemctl").args(["reset-failed", SERVICE]).output();
        topstat(&["unload"]);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", journal());
        } else {
            self.end();
        }
    }
}

/// Reads the pinned state as a process that is unrelated to the service.
fn watch() -> Watch {
    let state = pinned::open(&Pins::at(Path::new(PINS)), inet()).unwrap_or_else(|e| panic!("{e}"));
    Watch::of(state.expect("something is pinned").reader().unwrap_or_else(|e| panic!("{e}")))
}

fn it_is_exposed_no_more_than_it_must_be() {
    let scratch = Scratch::new("exposure");
    let file = scratch.path().join(SERVICE);
    fs::write(&file, dist("topstat.service.in").replace("@BINDIR@/topstat", "/bin/true")).unwrap();
    let threshold = format!("--threshold={MOST_EXPOSED}");
    let judged = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager", &threshold])
        .arg(&file)
        .output()
        .expect("systemd-analyze");
    let said = text(&judged);
    let overall = said.lines().find(|line| line.contains("Overall exposure level")).unwrap_or("");
    assert!(judged.status.success() && !overall.is_empty(), "{said}");
    note(overall.trim_start_matches(['→', ' ']));
}

/// Readers that read all the time, one for each file.
fn readers<T>(files: &[&str], what: impl FnOnce() -> T) -> (T, Vec<Done>) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let read = |file: &str| {
            let mut done = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let text = fs::read_to_string(path(file));
                done.push(Done { text, took: begun.elapsed() });
                // Without a tree the loop would otherwise take all CPU time of this guest.
                std::thread::sleep(Duration::from_millis(20));
            }
            done
        };
        let running: Vec<_> = files.iter().map(|file| scope.spawn(move || read(file))).collect();
        let done = what();
        stop.store(true, Ordering::Relaxed);
        // The test would wait for a hanging reader for ever, without any message.
        let ended = eventually(Duration::from_secs(10), || running.iter().all(|reader| reader.is_finished()));
        if !ended {
            eprintln!("a reader hangs:\n{}", journal());
            std::process::exit(1);
        }
        (done, running.into_iter().flat_map(|reader| reader.join().expect("a reader")).collect())
    })
}

/// The result of one read of a file.
struct Done {
    text: std::io::Result<String>,
    took: Duration,
}

fn it_starts_serves_and_stops() {
    let service = Service::new("", "");
    // The socket sends nothing, so only the search at the start of the daemon can find it. It belongs to a process that the
    // daemon could not inspect without privilege.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    service.start();
    assert_eq!((property("ActiveState").as_str(), property("SubState").as_str()), ("active", "running"));
    let status = property("StatusText");
    assert!(
        status.starts_with("counting ") && status.contains("tcp_v4, tcp_v6, udp_v4, udp_v6"),
        "{status}\n{}",
        journal()
    );
    assert!(mounted(), "others see the tree:\n{}", journal());
    assert_ne!(
        fs::read_link(format!("/proc/{}/ns/net", service.pid())).unwrap(),
        fs::read_link("/proc/self/ns/net").unwrap(),
        "a network namespace of its own"
    );

    let mut tally = Tally::new();
    tally.during(|| std::thread::sleep(Duration::from_millis(200)));
    tally.check(&mut watch(), "what is pinned");
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", silent.local_addr().unwrap()).unwrap();
    let row = |document: &Document| {
        let port = u64::from(silent.local_addr().unwrap().port());
        let rows = document.value["rows"].as_array().expect("rows").clone();
        rows.into_iter().map(|row| row["object"].clone()).find(|object| object["sport"].as_u64() == Some(port))
    };
    let document = Document::of(&fs::read_to_string(path("udp_v4/conns_bytes/json")).unwrap());
    let found = row(&document).unwrap_or_else(|| panic!("no row of the silent socket: {}", document.value));
    assert_eq!(found["pid"].as_u64(), Some(u64::from(std::process::id())), "{found}\n{}", journal());
    assert!(found["cgroup"].as_str().is_some_and(|path| path.ends_with("topstat-vm.service")), "{found}");

    assert_eq!(topstat(&["get", "tcp_v4/conns_pps/delay"]), "0\n");
    topstat(&["set", "tcp_v4/conns_pps/delay", "5"]);
    assert_eq!(fs::read_to_string(path("tcp_v4/conns_pps/delay")).unwrap(), "5\n");
    let line = topstat(&["top", TABLES[1], "1", "1", "-o", "json"]);
    let shown = Document::of(&line);
    assert!(shown.total >= tally.packets(), "{line}");

    // The resources of the service, with four readers at full speed.
    let files = ["udp_v4/conns_bytes/json", "udp_v4/conns_pps/stat", "tcp_v4/conns_pps/json", "self.json"];
    let (_, read) = readers(&files, || std::thread::sleep(Duration::from_secs(3)));
    let failed: Vec<_> = read.iter().filter_map(|read| read.text.as_ref().err()).collect();
    assert!(failed.is_empty() && read.len() > files.len(), "{failed:?}");
    let group = format!("/sys/fs/cgroup{}", property("ControlGroup"));
    // Linux before 5.19 has no peak.
    let peak = fs::read_to_string(format!("{group}/memory.peak"));
    let memory: u64 = peak.ok().and_then(|text| text.trim().parse().ok()).unwrap_or_else(|| number("MemoryCurrent"));
    let (tasks, data) = (number("TasksCurrent"), data_bytes(service.pid()));
    note(format!(
        "{} reads: {memory} bytes of MemoryMax={}, {data} of LimitDATA={}, {tasks} tasks of TasksMax={}",
        read.len(),
        number("MemoryMax"),
        number("LimitDATA"),
        number("TasksMax"),
    ));
    assert!(memory * RESERVE < number("MemoryMax"), "{memory}");
    assert!(data * RESERVE < number("LimitDATA"), "{data}");
    assert!(tasks * RESERVE <= number("TasksMax"), "{tasks}");
    assert_eq!(property("CPUQuotaPerSecUSec"), "1s");

    systemctl(&["stop", SERVICE]);
    assert_eq!((property("ActiveState").as_str(), property("Result").as_str()), ("inactive", "success"));
    assert!(!mounted() && fs::read_dir(MOUNT).is_ok_and(|mut there| there.next().is_none()));
    // The programs go on counting without the service.
    tally.during(|| std::thread::sleep(Duration::from_millis(200)));
    tally.check(&mut watch(), "while it is stopped");
    let said = journal();
    let refused = ["not permitted", "Permission denied", "needed", "is missing", "refused", "cannot set"];
    let complaints: Vec<_> = said.lines().filter(|line| refused.iter().any(|word| line.contains(word))).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

/// The memory that LimitDATA limits.
fn data_bytes(pid: Pid) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", pid)).expect("its status");
    let line = text.lines().find_map(|line| line.strip_prefix("VmData:")).expect("VmData");
    1024 * line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
}

/// A daemon that hangs is killed and replaced within the watchdog's time; datagrams sent in the meantime are counted.
fn a_daemon_that_hangs_is_replaced() {
    const WATCHDOG: Duration = Duration::from_secs(10);
    let service = Service::new(&format!("WatchdogSec={}\n", WATCHDOG.as_secs()), SOCKETS_ALONE);
    service.start();
    let (first, mut tally) = (service.pid(), Tally::new());
    let before = journal().matches("Watchdog timeout").count();
    let begun = Instant::now();
    kill_process(first, Signal::STOP).expect("stop it");
    tally.during(|| std::thread::sleep(Duration::from_secs(1)));
    // The next daemon must load, too.
    let gone = eventually(WATCHDOG, || !Path::new("/proc").join(first.to_string()).exists());
    let killed = begun.elapsed();
    let replaced = gone && eventually(Duration::from_secs(20), || property("ActiveState") == "active");
    assert!(replaced, "{}", journal());
    note(format!(
        "killed after {:.1} s, replaced after {:.1}, of a watchdog of {}",
        killed.as_secs_f64(),
        begun.elapsed().as_secs_f64(),
        WATCHDOG.as_secs()
    ));
    assert!(journal().matches("Watchdog timeout").count() > before, "{}", journal());
    assert_eq!(number("NRestarts"), 1, "{}", journal());
    assert!(mounted(), "{}", journal());
    Stat::of(&fs::read_to_string(path("udp_v4/conns_pps/stat")).unwrap());
    tally.during(|| std::thread::sleep(Duration::from_millis(200)));
    tally.check(&mut watch(), "afterwards");
}

/// `systemctl restart` replaces another build's programs while datagrams are sent and files are read.
fn an_upgrade_under_load_loses_nothing() {
    /// The maximum wait of a reader: while a daemon ends, the next one loads, or the host is busy.
    const PATIENCE: Duration = Duration::from_secs(5);
    let service = Service::new("", SOCKETS_ALONE);
    service.start();
    let mut tally = Tally::new();
    tally.during(|| std::thread::sleep(Duration::from_millis(200)));
    // The pins of an older version.
    let tables = TABLES.map(topstat_live::watch::table);
    let older = Pins::at(Path::new(PINS)).as_build("an older one");
    let (state, adopted) = pinned::adopt(&older, inet(), &tables, &everything()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(adopted, Adopted::Upgraded);
    drop(state);
    let before = journal().matches("inet: found pinned, and its programs replaced").count();
    let files = ["udp_v4/conns_pps/stat", "udp_v4/conns_bytes/json"];
    let mut held = fs::File::open(path(files[0])).unwrap();
    let ((), read) = readers(&files, || {
        tally.during(|| {
            std::thread::sleep(Duration::from_millis(500));
            systemctl(&["restart", SERVICE]);
            std::thread::sleep(Duration::from_millis(500));
        });
    });
    assert_eq!(journal().matches("inet: found pinned, and its programs replaced").count(), before + 1, "{}", journal());
    tally.check(&mut watch(), "after the upgrade");
    // Opened before the restart, read to its end after it: the whole text, or an error.
    let (begun, mut rest) = (Instant::now(), String::new());
    match held.read_to_string(&mut rest) {
        Ok(_) => drop(Stat::of(&rest)),
        Err(error) => note(format!("a file that was open: {error}")),
    }
    assert!(begun.elapsed() < pace::patience(PATIENCE), "{:?}", begun.elapsed());
    let longest = read.iter().map(|read| read.took).max().unwrap_or_default();
    let (mut whole, mut errors) = (0, BTreeMap::<String, u32>::new());
    for read in &read {
        match &read.text {
            // A complete text, or the parser panics. While nothing is mounted the file does not exist.
            Ok(text) if text.starts_with('{') => drop(Document::of(text)),
            Ok(text) => drop(Stat::of(text)),
            Err(error) => *errors.entry(error.to_string()).or_default() += 1,
        }
        whole += u32::from(read.text.is_ok());
    }
    note(format!("{whole} reads whole, others {errors:?}, the longest took {:.2} s", longest.as_secs_f64()));
    assert!(whole > 0 && longest < pace::patience(PATIENCE), "{errors:?}");
    assert!(read.last().is_some_and(|read| read.text.is_ok()), "in the end it serves: {errors:?}");
}
