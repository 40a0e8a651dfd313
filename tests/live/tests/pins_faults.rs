// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults in pinned state are repaired or reported; settings of users stay.

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle};
use topstat_kernel::pinned::{self, Adopted, Pins};
use topstat_kernel::{Error, Options, State, TableSettings, update};
use topstat_live::nest::{self, inet};
use topstat_live::tally::{TABLES, Tally};
use topstat_live::watch::{everything, table};
use topstat_live::{Case, Nest, Role, Watch, case, eventually, limits, note};
use topstat_load::{Config, Load, Plan};

pub fn cases() -> Vec<Case> {
    vec![
        case!(settings_and_rows_stay, Root; Daemon),
        case!(adopted_rows_are_proven_anew, Root),
        case!(what_is_missing_is_put_back, Root),
        case!(a_half_finished_upgrade_is_finished, Root),
        case!(a_reader_killed_amid_a_refill, Root),
        case!(a_reader_that_stopped_amid_its_run, Root),
        case!(garbage_in_place_of_state, Root),
        case!(garbage_in_maps, Root; Slow),
        case!(another_abi_is_refused, Root),
        case!(two_at_once, Root),
        case!(removed_under_load, Root),
        case!(not_on_a_bpf_file_system, Root),
        case!(a_bpf_file_system_that_is_not_mounted_or_not_writable, Root),
        case!(only_root_may_look, Root),
    ]
}

fn adopt(pins: &Pins) -> Result<(Arc<dyn State>, Adopted), Error> {
    pinned::adopt(pins, inet(), &TABLES.map(table), &everything())
}

fn refused(what: Result<(Arc<dyn State>, Adopted), Error>) -> String {
    match what {
        Ok((_, adopted)) => panic!("it was taken: {adopted:?}"),
        Err(e) => e.to_string(),
    }
}

/// Asserts that the state counts every datagram.
fn assert_counting(nest: &Nest, tally: &mut Tally, title: &str) {
    tally.during(|| std::thread::sleep(Duration::from_millis(50)));
    tally.check(&mut nest.watch(), title);
}

/// An adopting process does not change the settings of a table, whatever its own options are; nor the number of rows.
fn settings_and_rows_stay() {
    let nest = Nest::new("settings");
    let (state, _) = nest.adopt(&TABLES, &Options { top: 10, ..Options::default() });
    let info = table(TABLES[0]);
    let set = TableSettings { period_ms: 7000, delay_ms: 30, sync: false, ..state.settings(&info).unwrap() };
    update(&*state, &info, |settings| *settings = set).unwrap();
    assert!(update(&*state, &info, |settings| settings.period_ms = 0).is_err());
    drop(state);
    for build in ["", "other"] {
        let options = Options { top: 20, period_ms: 100, ..Options::default() };
        let (state, _) = nest.adopt_as(build, &["tcp_v4/conns_pps"], &options);
        assert_eq!((state.top(), state.settings(&info).unwrap()), (10, set));
        let off = state.settings(&table("tcp_v4/conns_pps")).unwrap();
        assert!(!off.enabled, "only a fresh load says which tables are on");
        let notes = pinned::kept(&*state, &Options { threads: true, ..options.clone() });
        // Sockets are no threads, whatever the options say.
        assert!(notes.len() == 1 && notes[0].contains("10 rows, not 20") && notes[0].contains("unload"), "{notes:?}");
        assert_eq!(pinned::kept(&*state, &Options { top: 10, ..options }), [""; 0]);
    }
    // Each of two processes sees the settings that the other makes.
    let (mine, other) = (nest.adopt(&TABLES, &everything()).0, pinned::open(&nest.pins, inet()).unwrap().unwrap());
    update(&*mine, &info, |settings| settings.delay_ms = 5).unwrap();
    assert_eq!(other.settings(&info).unwrap().delay_ms, 5);
}

/// The process before may have been killed amid any step: rows of adopted tables are proven only after all objects were ordered again.
fn adopted_rows_are_proven_anew() {
    let nest = Nest::new("anew");
    drop(nest.adopt(&TABLES, &everything()));
    let (mut watch, mut tally) = (nest.watch(), Tally::new());
    assert_counting(&nest, &mut tally, "before");
    assert!(watch.peek(TABLES[0]).snapshot.is_proven());
    let (_state, adopted) = nest.adopt(&TABLES, &everything());
    assert_eq!(adopted, Adopted::Found);
    let snapshot = watch.peek(TABLES[0]).snapshot;
    assert!(snapshot.proven == 0 && !snapshot.rows.is_empty(), "{} of {} rows", snapshot.proven, snapshot.rows.len());
    assert!(watch.snapshot(TABLES[0]).snapshot.is_proven());
    tally.check(&mut watch, "after");
}

/// A removed link, gate or program is put back; the tables stay.
fn what_is_missing_is_put_back() {
    let nest = Nest::new("missing");
    drop(nest.adopt(&TABLES, &everything()));
    let mut tally = Tally::new();
    assert_counting(&nest, &mut tally, "before");
    let family = nest.family();
    let at_cgroup = family.join("links").join(nest::at_cgroup());
    let faults: [(&str, &dyn Fn()); 5] = [
        ("a link is removed", &|| fs::remove_file(&at_cgroup).unwrap()),
        ("a link is detached", &|| Link::open(&at_cgroup).unwrap().detach().unwrap()),
        ("a gate is removed", &|| fs::remove_file(family.join("maps/inet_state_gate")).unwrap()),
        ("a map in place of a link", &|| {
            fs::remove_file(&at_cgroup).unwrap();
            MapHandle::from_pinned_path(family.join("maps/banks")).unwrap().pin(&at_cgroup).unwrap();
        }),
        ("a link that is nobody's", &|| {
            let mut link = Link::open(&at_cgroup).unwrap();
            libbpf_pin(&mut link, &family.join("links/inet_former"));
        }),
    ];
    for (fault, make) in faults {
        make();
        let (state, adopted) = adopt(&nest.pins).unwrap();
        assert_eq!((adopted, state.programs().len()), (Adopted::Upgraded, nest::programs().len()), "{fault}");
        assert_eq!(fs::read_dir(family.join("links")).unwrap().count(), nest::hooks(), "{fault}");
        assert_counting(&nest, &mut tally, fault);
        assert_eq!(adopt(&nest.pins).unwrap().1, Adopted::Found, "{fault}");
    }
}

fn libbpf_pin(link: &mut Link, to: &Path) {
    let path = std::ffi::CString::new(to.to_str().unwrap()).unwrap();
    use std::os::fd::AsRawFd as _;
    // SAFETY: the descriptor is open, and the string ends in 0.
    let done = unsafe { libbpf_sys::bpf_obj_pin(link.as_fd().as_raw_fd(), path.as_ptr()) };
    assert_eq!(done, 0, "pin a link twice");
}

/// Some programs belong to one build and some to another, and there are leftover files: the state counts all the time.
fn a_half_finished_upgrade_is_finished() {
    let nest = Nest::new("half");
    drop(nest.adopt(&TABLES, &everything()));
    let mut tally = Tally::new();
    let (family, programs) = (nest.family(), nest.family().join("programs"));
    let old = libbpf_rs::Program::fd_from_pinned_path(programs.join(nest::at_cgroup())).unwrap();
    drop(nest.adopt_as("other", &TABLES, &everything()));
    // The state after a kill before the last program, and the build's name, were replaced.
    let link = Link::open(family.join("links").join(nest::at_cgroup())).unwrap();
    use std::os::fd::AsRawFd as _;
    // SAFETY: descriptors of a link and of a program; no options.
    let done = unsafe { libbpf_sys::bpf_link_update(link.as_fd().as_raw_fd(), old.as_raw_fd(), std::ptr::null()) };
    assert_eq!(done, 0);
    fs::remove_file(family.join("build")).unwrap();
    symlink("nonsense", family.join("build-new")).unwrap();
    MapHandle::from_pinned_path(family.join("maps/banks")).unwrap().pin(programs.join("inet_state-new")).unwrap();
    fs::create_dir_all(nest.partial().join("links")).unwrap();
    assert_eq!(pinned::status(&nest.pins).unwrap()[0].build, None);
    assert_counting(&nest, &mut tally, "half");
    assert_eq!(nest.adopt_as("other", &TABLES, &everything()).1, Adopted::Upgraded);
    assert_counting(&nest, &mut tally, "whole");
    assert_eq!(nest.adopt_as("other", &TABLES, &everything()).1, Adopted::Found);
    let odd = |path: &PathBuf| path.to_string_lossy().ends_with("-new") || path.to_string_lossy().contains("partial");
    assert_eq!(nest.files().into_iter().filter(odd).count(), 0);
}

/// A killed reader leaves objects without an entry: see `refills` in the engine's abi.h. The table is dynamic, because the
/// total proves the rows of a static table, whatever its entries are.
fn a_reader_killed_amid_a_refill() {
    const REFILLS: std::ops::Range<usize> = 4..8;
    const DYNAMIC: &str = TABLES[0];
    /// The first of the four tables of the third sample, `udp_v4`.
    const PLACE: u32 = 2 * 4;
    let nest = Nest::new("refill");
    drop(nest.adopt(&TABLES, &everything()));
    let (mut watch, mut tally) = (nest.watch(), Tally::new());
    assert_counting(&nest, &mut tally, "before");
    assert!(watch.peek(DYNAMIC).snapshot.is_proven());
    // The state that the killed reader leaves: a refill begun and not ended.
    let settings = MapHandle::from_pinned_path(nest.family().join("maps/settings")).unwrap();
    let (key, any) = (0_u32.to_ne_bytes(), MapFlags::ANY);
    let refills = || u32::from_ne_bytes(settings.lookup(&key, any).unwrap().unwrap()[REFILLS].try_into().unwrap());
    let begun = refills() | 1;
    let mut value = settings.lookup(&key, any).unwrap().unwrap();
    value[REFILLS].copy_from_slice(&begun.to_ne_bytes());
    value[8..12].copy_from_slice(&PLACE.to_ne_bytes());
    settings.update(&key, &value, any).unwrap();
    assert_eq!(watch.peek(DYNAMIC).snapshot.proven, 0, "the table was to be distrusted");
    assert_eq!(refills(), begun + 1, "whoever finds it ends it");
    assert!(watch.snapshot(DYNAMIC).snapshot.is_proven() && refills() % 2 == 0);
    // Many readers refill at once: all of them prove their rows.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut watch = nest.watch();
                for _ in 0..50 {
                    watch.source().refill(&table(DYNAMIC)).unwrap();
                    let snapshot = watch.snapshot(DYNAMIC).snapshot;
                    assert!(snapshot.rows.len() >= 200, "{} rows", snapshot.rows.len());
                }
            });
        }
    });
    // A datagram of another test that interrupts a refill is counted but not ordered, and so bounds rows for a period.
    let proven = eventually(Duration::from_secs(10), || watch.snapshot(DYNAMIC).snapshot.is_proven());
    assert!(proven, "{:?}", watch.snapshot(DYNAMIC).snapshot.lost);
    tally.check(&mut watch, "after all");
}

/// A reader has taken amounts of connections, and stands still before it adds them to the totals. Until it goes on, or is taken for
/// dead, other readers say that no row is proven.
fn a_reader_that_stopped_amid_its_run() {
    const TCP: &str = "tcp_v4/conns_pps";
    /// One run, which is believed to go on until a moment that does not come: jiffies << 16 | runs.
    const STOPPED: u64 = 1 << 63 | 1;
    let nest = Nest::new("stopped");
    drop(nest.adopt(&[TCP], &everything()));
    let (mut load, mut watch) = (Load::open(Config { connections: 20, ..Config::default() }).unwrap(), nest.watch());
    load.run(&Plan::new(vec![10; 20]), &limits()).unwrap();
    let proven = |watch: &mut Watch| {
        let snapshot = watch.snapshot(TCP).snapshot;
        assert!(snapshot.rows.len() >= 40, "{} rows", snapshot.rows.len());
        (snapshot.proven as usize, snapshot.rows.len())
    };
    let (before, rows) = proven(&mut watch);
    assert_eq!(before, rows);
    let running = MapHandle::from_pinned_path(nest.family().join("maps/running")).unwrap();
    let set = |word: u64| running.update(&0_u32.to_ne_bytes(), &word.to_ne_bytes(), MapFlags::ANY).unwrap();
    set(STOPPED);
    assert_eq!(proven(&mut watch).0, 0, "what the other has taken is in no total");
    set(0);
    let (after, rows) = proven(&mut watch);
    assert_eq!(after, rows, "the other has gone on");
}

/// Unusable state is removed and made anew; opening it returns an error, and changes nothing.
fn garbage_in_place_of_state() {
    let nest = Nest::new("garbage");
    let family = nest.family();
    drop(nest.adopt(&TABLES, &everything()));
    let banks = MapHandle::from_pinned_path(family.join("maps/banks")).unwrap();
    let faults: [(&str, &dyn Fn()); 6] = [
        ("a map is missing", &|| fs::remove_file(family.join("maps/census")).unwrap()),
        ("a directory in place of a map", &|| {
            fs::remove_file(family.join("maps/settings")).unwrap();
            fs::create_dir(family.join("maps/settings")).unwrap();
        }),
        ("a program in place of a map", &|| {
            fs::remove_file(family.join("maps/objects")).unwrap();
            fs::rename(family.join("programs/inet_state"), family.join("maps/objects")).unwrap();
        }),
        ("another map in place of a map", &|| {
            fs::remove_file(family.join("maps/constants")).unwrap();
            fs::hard_link(family.join("maps/census"), family.join("maps/constants"))
                .or_else(|_| fs::rename(family.join("maps/census"), family.join("maps/constants")))
                .unwrap();
        }),
        ("a map of another size", &|| {
            // The map of closed connections, which not every kernel has.
            let map =
                ["kept", "census"].map(|name| family.join("maps").join(name)).into_iter().find(|map| map.exists());
            fs::remove_file(map.as_ref().unwrap()).unwrap();
            MapHandle::try_from(&banks).unwrap().pin(map.unwrap()).unwrap();
        }),
        ("a map in place of all", &|| {
            pinned::remove(&nest.pins).unwrap();
            fs::create_dir_all(family.parent().unwrap()).unwrap();
            MapHandle::try_from(&banks).unwrap().pin(&family).unwrap();
        }),
    ];
    for (fault, make) in faults {
        make();
        let before = nest.files();
        let error = match pinned::open(&nest.pins, inet()) {
            Ok(_) => panic!("{fault}: it was opened"),
            Err(e) => e.to_string(),
        };
        note(format!("{fault}: {error}"));
        assert_eq!(nest.files(), before, "{fault}: opening has changed something");
        let (state, adopted) = adopt(&nest.pins).unwrap_or_else(|e| panic!("{fault}: {e}"));
        assert_eq!((adopted, state.programs().len()), (Adopted::Loaded, nest::programs().len()), "{fault}");
        assert_counting(&nest, &mut Tally::new(), fault);
    }
    // Files of others stay, and the removal does not report them.
    fs::create_dir(nest.dir.join("foreign")).unwrap();
    let removed = pinned::remove(&nest.pins).unwrap();
    assert!(nest.dir.join("foreign").exists() && !removed.contains(&nest.dir) && nest.files().len() == 2);
}

/// The number of rounds in which maps with garbage are used.
const GARBAGE_ROUNDS: u64 = 12;
/// The time limit of a command that reads one table on a busy host.
const READS: Duration = Duration::from_secs(20);

/// A process that may write to pinned maps may write anything: a reader shows figures that add up, or reports the fault. It
/// neither panics nor runs for ever; and the next daemon adopts the state, or makes it anew.
fn garbage_in_maps() {
    let seed = std::env::var("TOPSTAT_GARBAGE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| u64::from(std::process::id()));
    note(format!("seed {seed} (TOPSTAT_GARBAGE_SEED)"));
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut random = move |below: usize| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % below
    };
    let nest = Nest::new("random");
    let pins = nest.dir.to_str().unwrap().to_owned();
    let mount = std::env::temp_dir().join("topstat-live-no-tree");
    let (mut shown, mut refused) = (0, 0);
    for round in 0..GARBAGE_ROUNDS {
        drop(nest.adopt(&TABLES, &Options::default()));
        let mut tally = Tally::new();
        tally.during(|| std::thread::sleep(Duration::from_millis(20)));
        let maps = nest.family().join("maps");
        // The last two are not on every kernel.
        let is_there = |name: &&str| maps.join(name).exists();
        let names: Vec<_> = ["banks", "settings", "census", "kept", "ended"].into_iter().filter(is_there).collect();
        let name = names[random(names.len())];
        let map = MapHandle::from_pinned_path(maps.join(name)).unwrap();
        for key in 0..map.max_entries() {
            let key = key.to_ne_bytes();
            let mut value = map.lookup(&key, MapFlags::ANY).unwrap().unwrap();
            // Overwrites the whole value, or single words.
            let words = if random(3) == 0 { value.len() / 4 } else { 1 + random(200) };
            for _ in 0..words {
                let at = random(value.len() / 4) * 4;
                let word = [0, 1, u32::MAX, 1 << 31, random(1 << 31) as u32][random(5)];
                value[at..at + 4].copy_from_slice(&word.to_ne_bytes());
            }
            map.update(&key, &value, MapFlags::ANY).unwrap();
        }
        // Programs push to the map.
        tally.during(|| std::thread::sleep(Duration::from_millis(20)));
        let stat = format!("{}/stat", TABLES[0]);
        let dump = format!("{}/dump", TABLES[1]);
        let commands: [&[&str]; 5] = [
            &["top", TABLES[0], "10ms", "2", "-o", "json"],
            &["top", TABLES[1], "10ms", "1"],
            &["get", &stat],
            &["get", &dump],
            &["ls"],
        ];
        for command in commands {
            let mut child = topstat_live::role::command("topstat");
            child.args(command).arg("--pins").arg(&pins).stdin(std::process::Stdio::null());
            if command[0] != "ls" {
                child.arg("--mount").arg(&mount);
            }
            let child = child.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
            let mut child = child.spawn().expect("start topstat");
            let ended = topstat_live::eventually(READS, || child.try_wait().unwrap().is_some());
            if !ended {
                child.kill().unwrap();
            }
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let what = format!("round {round} of seed {seed}, {command:?} with garbage in {name}");
            assert!(ended, "{what}: it goes on");
            assert!(!said.contains("panicked"), "{what}: {said}");
            match output.status.code() {
                Some(0) => shown += 1,
                Some(1) if !said.is_empty() => refused += 1,
                code => panic!("{what}: {code:?}: {said}"),
            }
        }
        let (state, _) = adopt(&nest.pins).unwrap_or_else(|e| panic!("round {round} of seed {seed}, {name}: {e}"));
        drop(state);
        pinned::remove(&nest.pins).unwrap();
    }
    note(format!("{GARBAGE_ROUNDS} rounds: {shown} commands have shown something, {refused} said what is wrong"));
}

/// The state of another ABI is neither used nor removed; only the removal of everything removes it.
fn another_abi_is_refused() {
    let nest = Nest::new("abi");
    drop(nest.adopt(&TABLES, &everything()));
    let other = nest.dir.join("abi-4242/inet");
    fs::create_dir(other.parent().unwrap()).unwrap();
    fs::rename(nest.family(), &other).unwrap();
    for error in [refused(adopt(&nest.pins)), pinned::open(&nest.pins, inet()).err().expect("an error").to_string()] {
        let needed = [other.to_str().unwrap(), "ABI 4242", &format!("ABI {}", inet().abi), "topstat unload"];
        assert!(needed.iter().all(|n| error.contains(n)), "{error}");
        note(error);
    }
    let [status] = &pinned::status(&nest.pins).unwrap()[..] else { panic!("one family is pinned") };
    assert_eq!((status.abi, status.abi_is_own), (4242, Some(false)));
    assert!(pinned::remove(&nest.pins).unwrap().contains(&other));
    assert_eq!(adopt(&nest.pins).unwrap().1, Adopted::Loaded);
}

/// Of several processes that adopt at the same time one loads, and the others find the state.
fn two_at_once() {
    const ADOPTERS: usize = 4;
    let nest = Nest::new("two");
    let dir = nest.dir.to_str().unwrap();
    let mut roles: Vec<Role> = (0..ADOPTERS).map(|_| Role::start("adopter", &[dir, ""])).collect();
    let mut did: Vec<String> = roles.iter_mut().map(Role::hear).collect();
    did.sort();
    assert_eq!(did, ["Found", "Found", "Found", "Loaded"]);
    roles.into_iter().for_each(Role::kill);
    assert_counting(&nest, &mut Tally::new(), "afterwards");
}

/// A process that has the state open can still read its counts; nothing counts any more.
fn removed_under_load() {
    let nest = Nest::new("removed");
    let (state, _) = adopt(&nest.pins).unwrap();
    let mut watch = nest.watch();
    let mut tally = Tally::new();
    tally.during(|| {
        std::thread::sleep(Duration::from_millis(50));
        assert!(pinned::remove(&nest.pins).unwrap().len() > 20);
        assert!(!nest.dir.exists());
        assert!(nest::links_without_pins_are_gone(), "removed links");
    });
    let first = watch.snapshot(TABLES[0]).snapshot.total;
    tally.during(|| std::thread::sleep(Duration::from_millis(50)));
    assert_eq!(watch.snapshot(TABLES[0]).snapshot.total, first);
    update(&*state, &table(TABLES[0]), |settings| settings.delay_ms += 1).unwrap();
    assert_eq!(adopt(&nest.pins).unwrap().1, Adopted::Loaded);
    assert_counting(&nest, &mut Tally::new(), "again");
}

fn not_on_a_bpf_file_system() {
    let dir = std::env::temp_dir().join(format!("topstat-live-{}", std::process::id()));
    fs::create_dir_all(dir.join("abi-1/inet/maps")).unwrap();
    let file = dir.join("file");
    fs::write(&file, "").unwrap();
    for path in [dir.clone(), dir.join("below"), file.clone()] {
        let error = refused(adopt(&Pins::at(&path)));
        let advice = error.contains("mount -t bpf") || error.contains("Not a directory");
        assert!(error.contains(path.to_str().unwrap()) || error.contains(dir.to_str().unwrap()), "{error}");
        assert!(advice, "{error}");
        note(error);
    }
    // A removal removes nothing there, either.
    assert!(pinned::remove(&Pins::at(&dir)).is_err() && pinned::status(&Pins::at(&dir)).is_err());
    assert!(dir.join("abi-1/inet/maps").exists());
    fs::remove_dir_all(&dir).unwrap();
}

/// A mount that a test has made, unmounted when dropped.
struct Mount(PathBuf);

impl Mount {
    fn new(name: &str, options: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("topstat-live-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let done = Command::new("mount").args(["-t", "bpf", "-o", options, "bpf"]).arg(&dir).status().unwrap();
        assert!(done.success(), "mount");
        Self(dir)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}

fn a_bpf_file_system_that_is_not_mounted_or_not_writable() {
    let mount = Mount::new("readonly", "ro");
    let error = refused(adopt(&Pins::at(&mount.0.join("topstat"))));
    assert!(error.contains("Read-only") && error.contains("remount,rw"), "{error}");
    note(error);
    // In an unusual place it works, too.
    let mount = Mount::new("elsewhere", "rw");
    let pins = Pins::at(&mount.0.join("deep/below"));
    assert_eq!(adopt(&pins).unwrap().1, Adopted::Loaded);
    assert_eq!(adopt(&pins).unwrap().1, Adopted::Found);
    assert!(pinned::remove(&pins).unwrap().len() > 20);
    // The file system is not mounted: in a new mount namespace, which no other process sees.
    let mut role = Role::start("unmounted", &[]);
    assert_eq!(role.hear(), "None");
    assert_eq!(role.hear(), "Loaded mounted");
    assert_eq!(role.hear(), "Found");
    role.finish();
}

fn only_root_may_look() {
    let nest = Nest::new("private");
    drop(adopt(&nest.pins).unwrap());
    for path in [&nest.dir, &nest.family(), &nest.family().join("maps")] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700, "{}", path.display());
    }
    for what in ["open", "adopt", "remove", "status"] {
        let mut role = Role::start("unprivileged-pins", &[nest.dir.to_str().unwrap(), what]);
        let error = role.expect("refused");
        assert!(error.contains("ermi") && error.contains("run as root"), "{what}: {error}");
        note(format!("{what}: {error}"));
        role.finish();
    }
    assert_eq!(adopt(&nest.pins).unwrap().1, Adopted::Found);
}
