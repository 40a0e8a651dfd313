// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The other processes of the tests. Each prints a line after each step, and waits for a line to go on; it ends at the end of
//! its input.

use std::path::Path;
use std::process::{ExitCode, Stdio};

use topstat_kernel::Options;
use topstat_kernel::pinned::{self, Pins};
use topstat_live::mounts;
use topstat_live::nest::inet;
use topstat_live::role::{say, told};
use topstat_live::tally::TABLES;
use topstat_live::watch::{everything, table};

/// Plays a role, if this file defines it.
pub fn play(role: &str, arguments: &[String]) -> Option<ExitCode> {
    let argument = |i: usize| arguments.get(i).map(String::as_str).expect("an argument");
    match role {
        "unprivileged" => unprivileged(argument(0)),
        "watcher" => watcher(),
        "topstat" => return Some(topstat(arguments)),
        "no-fuse" => no_fuse(),
        "capabilities" => crate::service::capabilities_needed(),
        "spinner" => spinner(argument(0), argument(1)),
        "unmounted" => unmounted(),
        "unprivileged-pins" => unprivileged_pins(argument(0), argument(1)),
        "planter" => crate::pins_owners::planter(argument(0), argument(1), argument(2)),
        "faulty" => crate::refused::faulty(argument(0), argument(1), argument(2)),
        "adopter" => adopter(argument(0), argument(1)),
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

fn become_nobody() {
    let (uid, gid) = (rustix::process::Uid::from_raw(65534), rustix::process::Gid::from_raw(65534));
    rustix::thread::set_thread_gid(gid).expect("become a group of no privilege");
    rustix::thread::set_thread_uid(uid).expect("become a user of no privilege");
}

/// Tries to load without a privilege; prints the result and the eBPF objects that it holds afterwards.
fn unprivileged(what: &str) {
    match what {
        "user" => become_nobody(),
        "capabilities" => {
            use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
            let none = CapabilitySet::empty();
            set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
                .expect("drop the capabilities");
        }
        other => panic!("there is no way {other}"),
    }
    match topstat_kernel::load(&[table("tcp_v4/conns_pps")], &Options::default()) {
        Ok(_) => say("loaded"),
        Err(e) => say(format!("refused {}", e.to_string().replace('\n', " "))),
    }
    say(format!("holding {}", topstat_live::attached::Ids::own().is_empty()));
    told();
}

/// Loads, and watches until it is killed.
fn watcher() {
    let _source = topstat_kernel::load(&[table("tcp_v4/conns_pps")], &Options::default()).expect("load");
    say("watching");
    told();
}

/// The topstat program, with these arguments.
fn topstat(arguments: &[String]) -> ExitCode {
    let line = std::iter::once("topstat").chain(arguments.iter().map(String::as_str)).map(Into::into);
    topstat::run(line, &mut topstat::Kernel, &mut topstat::SystemConsole::default()).into()
}

/// Occupies a CPU as a real-time process that never waits, for the given milliseconds.
fn spinner(cpu: &str, ms: &str) {
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(cpu.parse().expect("a CPU"));
    rustix::thread::sched_setaffinity(None, &cpus).expect("stay on the CPU");
    topstat_live::need::real_time().expect("become a real-time process");
    say("spinning");
    let begun = std::time::Instant::now();
    while begun.elapsed().as_millis() < ms.parse().expect("a time") {
        std::hint::spin_loop();
    }
    say("done");
}

/// Runs the daemon without `/dev/fuse`: in a new mount namespace with another `/dev`.
fn no_fuse() {
    use rustix::mount::{MountFlags, mount};
    let options = told().expect("where its things are");
    mounts::keep_to_this_thread();
    mount("none", "/dev", "tmpfs", MountFlags::empty(), None).expect("another /dev");
    std::fs::write("/dev/null", "").expect("what stands for /dev/null");
    let mut daemon = topstat_live::role::command("topstat")
        .arg("daemon")
        .args(options.split(' '))
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start the daemon");
    let lines = std::io::BufRead::lines(std::io::BufReader::new(daemon.stderr.take().expect("its log")));
    let said = lines.map_while(Result::ok).find(|line| line.contains("FUSE")).unwrap_or_default();
    let running = daemon.try_wait().expect("ask for its end").is_none();
    say(if running { "running" } else { "ended" });
    say(said);
    let places: Vec<&str> = options.split(' ').take(4).collect();
    let run = |arguments: &[&str]| {
        let output = topstat_live::role::command("topstat").args(arguments).args(&places).stdin(Stdio::null()).output();
        output.map(|output| String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned())
    };
    say(format!("set {}", run(&["set", "tcp_v4/conns_pps/period", "2s"]).expect("set")));
    say(format!("get {}", run(&["get", "tcp_v4/conns_pps/period"]).expect("get")));
    let pid = i32::try_from(daemon.id()).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    say(format!("ended {:?}", daemon.wait().expect("its end").code()));
    told();
}

/// Adopts the pinned state, or loads and pins it; prints which, and reads it again and again until it is killed.
fn adopter(dir: &str, build: &str) {
    let pins = Pins::at(Path::new(dir)).as_build(build);
    let tables = TABLES.map(table);
    let (state, adopted) = pinned::adopt(&pins, inet(), &tables, &everything()).expect("adopt");
    say(format!("{adopted:?}"));
    let mut source = state.reader().expect("read");
    loop {
        for table in &tables {
            source.snapshot(table).and_then(|_| source.refill(table)).expect("take a snapshot");
        }
    }
}

/// Adopts where the BPF file system is not mounted.
fn unmounted() {
    use rustix::mount::{UnmountFlags, unmount};
    mounts::keep_to_this_thread();
    while topstat_live::nest::mounted() {
        unmount("/sys/fs/bpf", UnmountFlags::DETACH).expect("unmount");
    }
    let nest = topstat_live::Nest::new("unmounted");
    let found = pinned::open(&nest.pins, inet()).expect("open");
    say(if found.is_none() { "None" } else { "Some" });
    let (_, adopted) = nest.adopt(&TABLES, &everything());
    say(format!("{adopted:?} {}", if topstat_live::nest::mounted() { "mounted" } else { "not mounted" }));
    say(format!("{:?}", nest.adopt(&TABLES, &everything()).1));
}

/// Tries to use the pins without a privilege.
fn unprivileged_pins(dir: &str, what: &str) {
    become_nobody();
    let pins = Pins::at(Path::new(dir));
    let error = match what {
        "open" => pinned::open(&pins, inet()).err(),
        "adopt" => pinned::adopt(&pins, inet(), &TABLES.map(table), &everything()).err(),
        "remove" => pinned::remove(&pins).err(),
        _ => pinned::status(&pins).err(),
    };
    say(format!("refused {}", error.map_or("nothing".to_owned(), |e| e.to_string().replace('\n', " "))));
}
