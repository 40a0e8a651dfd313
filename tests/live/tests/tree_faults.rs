// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults of the tree: bad input changes nothing and is reported; a tree that is lost, blocked, or impossible on the host
//! ends nothing else.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD};
use rustix::mount::UnmountFlags;
use rustix::process::Signal;
use topstat_live::daemon::Place;
use topstat_live::tree::errno;
use topstat_live::{Case, Daemon, Role, alone, case, eventually, note, two_cpus};

pub fn cases() -> Vec<Case> {
    vec![
        case!(bad_values_are_told, Root, Fuse),
        case!(the_tree_has_the_files_that_it_has, Root, Fuse),
        case!(writers_at_once_leave_a_whole_value, Root, Fuse),
        case!(a_second_daemon_is_refused, Root, Fuse),
        case!(a_killed_daemons_tree_is_taken_away, Root, Fuse),
        case!(an_unmounted_tree_comes_back_when_asked_for, Root, Fuse),
        case!(a_stop_does_not_wait_for_open_files, Root, Fuse),
        case!(a_mount_point_in_use_is_refused, Root, Fuse),
        case!(without_fuse_all_else_works, Root),
        alone!(Cpu: a_real_time_spinner_holds_nobody_up, Root, Fuse, TwoCpus, RealTime),
    ]
}

const PERIOD: &str = "tcp_v4/conns_pps/period";

/// conformance.rs tests that nothing changes.
fn bad_values_are_told() {
    let daemon = Daemon::of_sockets();
    assert_eq!(errno(daemon.tree().try_write(PERIOD, b"0\n")), Some(libc::EINVAL));
    assert!(daemon.says("0 is out of range; period takes 1 to 3600000 (milliseconds)"), "{}", daemon.log());
    let mut file = OpenOptions::new().write(true).open(daemon.path(PERIOD)).unwrap();
    file.write_all(b"5").unwrap();
    assert_eq!(errno(file.write(b"0")), Some(libc::EINVAL));
    assert!(daemon.says("a value is written whole"), "{}", daemon.log());
    assert_eq!(errno(OpenOptions::new().write(true).open(daemon.path("self"))), Some(libc::EACCES));
}

fn the_tree_has_the_files_that_it_has() {
    let daemon = Daemon::of_sockets();
    let at = |path: &str| daemon.path(path);
    let perm = Some(libc::EPERM);
    assert_eq!(errno(fs::create_dir(at("x"))), perm);
    assert_eq!(errno(File::create(at("tcp_v4/x"))), perm);
    assert_eq!(errno(fs::remove_file(at(PERIOD))), perm);
    assert_eq!(errno(fs::remove_dir(at("tcp_v4/conns_pps"))), perm);
    assert_eq!(errno(fs::rename(at(PERIOD), at("tcp_v4/x"))), perm);
    assert_eq!(errno(fs::hard_link(at(PERIOD), at("x"))), perm);
    assert_eq!(errno(std::os::unix::fs::symlink("y", at("x"))), perm);
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let made = rustix::fs::mknodat(CWD, at("x"), rustix::fs::FileType::Fifo, mode, 0);
    assert_eq!(errno(made.map_err(io::Error::from)), perm);
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    assert_eq!(errno(fs::set_permissions(at(PERIOD), permissions)), perm);
    assert_eq!(errno(std::os::unix::fs::chown(at(PERIOD), Some(1), Some(1))), perm);
    let file = OpenOptions::new().write(true).open(at(PERIOD)).unwrap();
    assert_eq!(errno(file.set_len(7)), Some(libc::EINVAL));
    assert_eq!(errno(file.set_len(0)), None);
    assert_eq!(errno(fs::metadata(at("tcp_v4/conns_pps/x"))), Some(libc::ENOENT));
    assert_eq!(errno(fs::metadata(at("tcp_v4/enabled/x"))), Some(libc::ENOTDIR));
    assert_eq!(errno(OpenOptions::new().write(true).open(at("tcp_v4"))), Some(libc::EISDIR));
    // The tree gives no access to users other than root, either.
    let stat = rustix::fs::statat(CWD, daemon.place.mount.clone(), AtFlags::empty()).unwrap();
    assert_eq!(stat.st_mode & 0o077, 0);
    let files = |path| fs::read_dir(at(path)).unwrap().count();
    assert_eq!((files("tcp_v4/conns_pps"), daemon.read(PERIOD)), (8, "1000\n".to_owned()));
}

fn writers_at_once_leave_a_whole_value() {
    const WRITERS: u32 = 4;
    let daemon = Daemon::of_sockets();
    let value = |writer: u32| (writer + 1) * 111_111;
    let stop = AtomicBool::new(false);
    daemon.write(PERIOD, value(0));
    let (mut reads, begun) = (0_u32, Instant::now());
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (daemon, stop) = (&daemon, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    daemon.write(PERIOD, value(writer));
                    // Also a switch of all tables.
                    daemon.write(if writer % 2 == 0 { "enabled" } else { "tcp_v4/enabled" }, 1 - writer / 2 % 2);
                }
            });
        }
        while begun.elapsed() < Duration::from_secs(2) {
            let read = daemon.read(PERIOD);
            let known = (0..WRITERS).any(|writer| read == format!("{}\n", value(writer)));
            if !known {
                stop.store(true, Ordering::Relaxed);
            }
            assert!(known, "{read:?}");
            reads += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
    daemon.write("enabled", 1);
    daemon.write("tcp_v4/enabled", 1);
    for sample in &topstat_live::nest::inet().samples {
        for table in &sample.tables {
            let stat = daemon.stat(&format!("{}/{}", sample.name, table.name));
            assert_eq!((stat.get("topstat enabled"), stat.get("owner enabled"), stat.get("enabled")), ("1", "1", "1"));
        }
    }
    note(format!("{reads} reads beside {WRITERS} writers"));
}

fn a_second_daemon_is_refused() {
    let mut first = Daemon::of_sockets();
    let mut second = Daemon::launch(Arc::clone(&first.place), &[]);
    assert_eq!(second.wait().code(), Some(1));
    assert!(second.says(&format!("a daemon runs already, pid {}", first.pid())), "{}", second.log());
    assert_eq!(first.read(PERIOD), "1000\n", "the first is as it was");
    assert_eq!(first.stop().code(), Some(0));
    let third = Daemon::start_at(Arc::clone(&first.place), &[]);
    assert_eq!(third.read(PERIOD), "1000\n");
}

fn a_killed_daemons_tree_is_taken_away() {
    let mut first = Daemon::of_sockets();
    let open = File::open(first.path(PERIOD)).unwrap();
    first.kill();
    assert_eq!(errno(fs::read(first.path("enabled"))), Some(libc::ENOTCONN), "the test kills what it is to");
    assert!(first.place.pid_file.exists());
    let mut second = Daemon::start_at(Arc::clone(&first.place), &[]);
    assert_eq!(second.read("enabled"), "1\n");
    assert!(second.says("unmounted the tree that a killed daemon had left"), "{}", second.log());
    assert!(open.read_at(&mut [0; 10], 0).is_err(), "what was open is of the dead one");
    assert_eq!(second.stop().code(), Some(0));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(first.place.mount.to_str().unwrap()), "{mounts}");
}

fn an_unmounted_tree_comes_back_when_asked_for() {
    let mut daemon = Daemon::of_sockets();
    for how in [UnmountFlags::empty(), UnmountFlags::DETACH] {
        rustix::mount::unmount(&daemon.place.mount, how).unwrap();
        assert!(daemon.says("somebody has unmounted the tree"), "{}", daemon.log());
        assert_eq!(daemon.ended(), None, "{}", daemon.log());
        assert!(fs::read(daemon.path("enabled")).is_err());
        daemon.signal(Signal::HUP);
        assert!(eventually(Duration::from_secs(10), || fs::read(daemon.path("enabled")).is_ok()), "{}", daemon.log());
        assert_eq!(daemon.read(PERIOD), "1000\n");
    }
    // Another file is at the mount point when the tree should return: the daemon must not end.
    rustix::mount::unmount(&daemon.place.mount, UnmountFlags::empty()).unwrap();
    fs::write(daemon.place.mount.join("mine"), "").unwrap();
    daemon.signal(Signal::HUP);
    assert!(daemon.says("the directory is not empty"), "{}", daemon.log());
    fs::remove_file(daemon.place.mount.join("mine")).unwrap();
    assert_eq!(daemon.stop().code(), Some(0), "{}", daemon.log());
}

fn a_stop_does_not_wait_for_open_files() {
    let mut daemon = Daemon::of_sockets();
    let file = File::open(daemon.path("tcp_v4/conns_pps/stat")).unwrap();
    let directory = File::open(daemon.path("tcp_v4")).unwrap();
    file.read_at(&mut [0; 4], 0).unwrap();
    let begun = Instant::now();
    assert_eq!(daemon.stop().code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(!daemon.place.mount.exists());
    assert!(file.read_at(&mut [0; 4], 0).is_err());
    drop((file, directory));
}

fn a_mount_point_in_use_is_refused() {
    let refused = |place: &Arc<Place>, why: &str| {
        let mut daemon = Daemon::launch(Arc::clone(place), &[]);
        assert_eq!(daemon.wait().code(), Some(1), "{}", daemon.log());
        assert!(daemon.says(why), "{why}: {}", daemon.log());
        note(daemon.log().lines().last().unwrap_or_default());
    };
    let place = Arc::new(Place::of_sockets());
    fs::create_dir(&place.mount).unwrap();
    fs::write(place.mount.join("mine"), "precious").unwrap();
    refused(&place, "the directory is not empty");
    assert_eq!(fs::read_to_string(place.mount.join("mine")).unwrap(), "precious");
    fs::remove_file(place.mount.join("mine")).unwrap();
    rustix::mount::mount("none", &place.mount, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
    refused(&place, "none (tmpfs) is mounted there");
    rustix::mount::unmount(&place.mount, UnmountFlags::empty()).unwrap();
    fs::remove_dir(&place.mount).unwrap();
    fs::write(&place.mount, "").unwrap();
    refused(&place, "it is no directory");
    fs::remove_file(&place.mount).unwrap();
    // A tree of another daemon, which has another pid file.
    let daemon = Daemon::start_at(Arc::clone(&place), &[]);
    let other = Place::new();
    let beside =
        Arc::new(Place { mount: place.mount.clone(), pins: other.pins.clone(), pid_file: other.pid_file.clone() });
    refused(&beside, "another daemon's tree is mounted there");
    assert_eq!(daemon.read(PERIOD), "1000\n");
    // A place whose directory can't exist.
    let nowhere =
        Place { mount: "/nonexistent/topstat".into(), pins: other.pins.clone(), pid_file: other.pid_file.clone() };
    refused(&Arc::new(nowhere), "the directory can't be made");
    // Both places have the same mount: only one of them may remove it.
    drop(daemon);
    std::mem::forget(beside);
}

/// In a new mount namespace without `/dev/fuse`.
fn without_fuse_all_else_works() {
    let mut role = Role::start("no-fuse", &[]);
    let place = Arc::new(Place::of_sockets());
    role.tell(&place.options().join(" "));
    assert_eq!(role.hear(), "running", "the daemon goes on");
    let said = role.hear();
    assert!(said.contains("no FUSE on this host: /dev/fuse is missing") && said.contains("all else works"), "{said}");
    note(said);
    assert_eq!(role.expect("set"), "");
    assert_eq!(role.expect("get"), "2000");
    assert_eq!(role.hear(), "ended Some(0)");
    role.finish();
}

/// A thread of the daemon may wait on that CPU when the spinner starts, and the snapshot needs the CPU for an instant.
fn a_real_time_spinner_holds_nobody_up() {
    const SPIN_MS: u64 = 1500;
    // On a host's only CPU it would hold up the test itself.
    let (_, cpu) = two_cpus().expect("two CPUs");
    let daemon = Daemon::of_sockets();
    daemon.stat("tcp_v4/conns_pps");
    let mut spinner = Role::start("spinner", &[&cpu.to_string(), &SPIN_MS.to_string()]);
    spinner.expect("spinning");
    let (mut worst_read, mut worst_set, mut turns) = (Duration::ZERO, Duration::ZERO, 0);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(SPIN_MS - 200) {
        let turn = Instant::now();
        daemon.stat("tcp_v4/conns_pps");
        daemon.json("tcp_v4/conns_bytes");
        worst_read = worst_read.max(turn.elapsed());
        let turn = Instant::now();
        daemon.write(PERIOD, 1000 + turns % 2);
        assert_eq!(daemon.read(PERIOD), format!("{}\n", 1000 + turns % 2));
        worst_set = worst_set.max(turn.elapsed());
        turns += 1;
    }
    spinner.expect("done");
    note(format!(
        "{turns} turns beside a spinner; slowest two reads {worst_read:?}, slowest set and get {worst_set:?}"
    ));
    assert!(turns > 3 && worst_read < Duration::from_secs(1) && worst_set < Duration::from_secs(1));
}
