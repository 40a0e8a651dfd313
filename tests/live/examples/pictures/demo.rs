// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The load that the pictures show: services that talk over loopback, one of them over a path that loses packets, a store that
//! writes to the disk, batch jobs, and a log that loses what it can't read in time. Each is a process in a control group of its own.

use std::fs::{File, OpenOptions};
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use topstat_live::cgroup::Group;
use topstat_live::drops;
use topstat_live::netns::Netns;
use topstat_live::role::{self, name, say, told};
use topstat_live::{Role, Scratch};
use topstat_load::{Config, Dist, Family, Limits, Load, Plan, Proto};

/// Name, protocol and family, connections, transactions a second, and bytes of each transaction.
type Carried = (&'static str, &'static str, usize, f64, usize);
const SERVICES: [Carried; 6] = [
    ("shop", "tcp4", 60, 500.0, 6_000),
    ("search", "tcp6", 40, 300.0, 9_000),
    ("backup", "tcp4", 4, 100.0, 60_000),
    ("names", "udp4", 20, 300.0, 400),
    ("media", "tcp4", 12, 80.0, 30_000),
    ("metrics", "tcp6", 30, 200.0, 2_000),
];
/// The service whose path loses packets: one of so many.
const REMOTE: Carried = ("remote", "tcp4", 10, 100.0, 10_000);
const LOST_ONE_IN: i32 = 100;
/// More traffic, for a while.
const SPIKE: Carried = ("import", "tcp4", 8, 120.0, 60_000);

/// Bytes of the store's file, of each write, and the time between two writes.
const STORE_BYTES: u64 = 64 << 20;
const PAGE_BYTES: usize = 8192;
const WRITE_EVERY: Duration = Duration::from_millis(10);
/// The time between two batch jobs, and the CPU time of each.
const JOB_EVERY: Duration = Duration::from_millis(250);
const JOB: Duration = Duration::from_millis(60);
/// The part of a CPU that the report uses, in each so many milliseconds.
const REPORT: (Duration, Duration) = (Duration::from_millis(40), Duration::from_millis(100));
/// Datagrams a second that the log does not read in time.
const LOG_RATE: u64 = 20;

/// A process in its own control group, until it is dropped.
pub struct Running {
    _role: Role,
    _group: Group,
}

/// The whole load.
pub struct Demo {
    // Dropped before the groups and folders that they use.
    running: Vec<Running>,
    _lossy: Netns,
    _scratch: Scratch,
    topstat: Group,
    all: Group,
}

impl Demo {
    /// Starts all of it.
    pub fn start() -> Self {
        let all = Group::named("demo").expect("a control group");
        let scratch = Scratch::new("pictures");
        let lossy = Netns::new("lossy");
        lossy.inside(|| drops::drop_one_in("lo", LOST_ONE_IN).expect("a device that drops"));
        let mut running: Vec<_> = SERVICES.iter().map(|service| carry(&all, service, "")).collect();
        running.push(carry(&all, &REMOTE, lossy.path().to_str().expect("a path in UTF-8")));
        let file = scratch.path().join("pages");
        running.push(start(&all, "store", &[file.to_str().expect("a path in UTF-8")]));
        running.extend(["batch", "report", "log"].map(|name| start(&all, name, &[])));
        let topstat = all.child("topstat").expect("a control group");
        // The kernel measures waits wrongly that began before it counted them.
        std::thread::sleep(Duration::from_secs(5));
        Self { running, _lossy: lossy, _scratch: scratch, topstat, all }
    }

    /// Does the work in a control group beside the services.
    pub fn beside(&self, work: impl FnOnce()) {
        self.topstat.inside(work);
    }

    /// The path of the control group with all of it.
    pub fn path(&self) -> &str {
        &self.all.path
    }

    /// One more service, until the result is dropped.
    pub fn spike(&self) -> Running {
        assert!(!self.running.is_empty(), "the services run");
        carry(&self.all, &SPIKE, "")
    }
}

fn carry(all: &Group, (name, over, connections, rate, bytes): &Carried, netns: &str) -> Running {
    start_in_role(
        all,
        name,
        "service",
        &[name, over, &connections.to_string(), &rate.to_string(), &bytes.to_string(), netns],
    )
}

fn start(all: &Group, name: &str, arguments: &[&str]) -> Running {
    start_in_role(all, name, name, arguments)
}

fn start_in_role(all: &Group, name: &str, role: &str, arguments: &[&str]) -> Running {
    let group = all.child(name).expect("a control group");
    let mut role = Role::start(role, arguments);
    role.expect("there");
    group.take(role.pid());
    role.tell("begin");
    role.expect("begun");
    Running { _role: role, _group: group }
}

/// Plays a part of the load until its input ends; `None`: the role is not one of the load.
pub fn play(role: &str, arguments: &[String]) -> Option<ExitCode> {
    match role {
        "service" => {
            name(&arguments[0]);
            service(&arguments[1..]);
        }
        "store" => {
            let path = arguments[0].clone();
            go_on("store", move || store(&path));
        }
        "batch" => go_on("batch", batch),
        "report" => go_on("report", report),
        "log" => go_on("log", log),
        "job" => {
            name("job");
            spin(JOB);
        }
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

/// Does the work on a thread until the input ends.
fn go_on(comm: &str, work: impl FnOnce() + Send + 'static) {
    name(comm);
    say("there");
    told();
    std::thread::spawn(work);
    say("begun");
    told();
}

/// Opens connections, and carries traffic.
fn service(arguments: &[String]) {
    let number = |place: usize| arguments[place].parse::<f64>().expect("a number");
    say("there");
    told();
    if !arguments[4].is_empty() {
        let netns = File::open(&arguments[4]).expect("a network namespace");
        move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network)).expect("enter the namespace");
    }
    let (connections, request_size) = (number(1) as usize, number(3) as usize);
    let proto = if arguments[0].starts_with("udp") { Proto::Udp } else { Proto::Tcp };
    let family = if arguments[0].ends_with('6') { Family::V6 } else { Family::V4 };
    let config = Config { proto, family, connections, request_size, ..Config::default() };
    let mut load = Load::open(config).expect("connections");
    let plan = Plan::from_dist(&Dist::Zipf { exponent: 0.7, max: 100 }, connections).expect("a plan").repeat(true);
    let limits = Limits { rate: Some(number(2)), time: Duration::from_secs(3600), ..Limits::default() };
    std::thread::spawn(move || load.run(&plan, &limits));
    say("begun");
    told();
}

/// Writes pages all over a file, each to the disk.
fn store(path: &str) {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).expect("a file");
    file.set_len(STORE_BYTES).expect("a large file");
    let page = [7; PAGE_BYTES];
    let pages = STORE_BYTES / PAGE_BYTES as u64;
    // A step that has no divisor in common with the number of pages comes to all of them.
    const STEP: u64 = 1009;
    for i in 0_u64.. {
        file.write_all_at(&page, i * STEP % pages * PAGE_BYTES as u64).expect("write a page");
        file.sync_data().expect("write to the disk");
        std::thread::sleep(WRITE_EVERY);
    }
}

/// Starts processes that compute for a moment.
fn batch() {
    loop {
        let ended = role::command("job").status().expect("a job");
        assert!(ended.success(), "the job ends");
        std::thread::sleep(JOB_EVERY);
    }
}

/// Uses a part of a CPU.
fn report() {
    loop {
        spin(REPORT.0);
        std::thread::sleep(REPORT.1 - REPORT.0);
    }
}

fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Receives more than it reads.
fn log() {
    let (reader, writer) =
        (UdpSocket::bind("127.0.0.1:0").expect("a socket"), UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    let to = reader.local_addr().expect("its address");
    loop {
        // The first ones fill the buffer.
        let _ = writer.send_to(&[0; 1400], to);
        std::thread::sleep(Duration::from_millis(1000 / LOG_RATE));
    }
}

/// The kernel counts waits for disk and memory while this value lives: without them the first screen is not complete.
pub struct DelayAccounting(Option<String>);

impl DelayAccounting {
    const PATH: &str = "/proc/sys/kernel/task_delayacct";

    /// Switches it on. Where the kernel has no such switch, the first screen says so.
    pub fn on() -> Self {
        let before = std::fs::read_to_string(Self::PATH).ok();
        Self(before.filter(|_| std::fs::write(Self::PATH, "1").is_ok()))
    }
}

impl Drop for DelayAccounting {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            std::fs::write(Self::PATH, before).expect("switch delay accounting back");
        }
    }
}
