// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pinned state, and every directory above it, belongs to root alone: no other user can make root adopt state that is not
//! topstat's, or remove files elsewhere.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, renameat_with};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::thread::{set_thread_gid, set_thread_uid};
use topstat_kernel::State;
use topstat_kernel::pinned::{self, Adopted, Pins};
use topstat_live::daemon::Place;
use topstat_live::nest::{at_cgroup, inet};
use topstat_live::role::{self, say, told};
use topstat_live::tally::TABLES;
use topstat_live::watch::{everything, table};
use topstat_live::{Case, Nest, Role, Scratch, case, nest, note};

pub fn cases() -> Vec<Case> {
    vec![
        case!(another_users_directory_is_refused, Root; EveryKernel),
        case!(a_race_with_a_link_removes_nothing_elsewhere, Root; EveryKernel),
        case!(a_race_in_roots_own_directory_removes_nothing_elsewhere, Root),
        case!(links_are_followed_nowhere, Root; Daemon),
        case!(pins_of_another_user_are_refused, Root; EveryKernel),
        case!(what_others_could_exchange_is_refused, Root),
        case!(unload_says_what_is_still_attached, Root),
    ]
}

/// A uid without privileges, which no user of this host has.
const SOMEBODY: u32 = 64_999;
/// The number of root's attempts while another user exchanges names.
const ROUNDS: u32 = 2000;
/// The maximum duration of the race on a slow host.
const RACE: Duration = Duration::from_secs(4);

/// A test's BPF file system, unmounted when dropped.
struct Bpffs {
    dir: PathBuf,
    _scratch: Scratch,
}

impl Bpffs {
    /// Mounts it with this mode, below a directory that all users may look into.
    fn new(name: &str, mode: &str) -> Self {
        let scratch = Scratch::new(name);
        let dir = scratch.path().join("bpf");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let options = std::ffi::CString::new(format!("mode={mode}")).unwrap();
        mount("bpf", &dir, "bpf", MountFlags::empty(), Some(options.as_c_str())).expect("mount a BPF file system");
        Self { dir, _scratch: scratch }
    }

    fn pins(&self) -> Pins {
        Pins::at(&self.dir.join("topstat"))
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        let _ = unmount(&self.dir, UnmountFlags::DETACH);
    }
}

fn adopt(pins: &Pins) -> Result<(Arc<dyn State>, Adopted), topstat_kernel::Error> {
    pinned::adopt(pins, inet(), &TABLES.map(table), &everything())
}

/// Asserts that every use of the pins is refused, with all of these words in the message.
fn assert_refused(pins: &Pins, title: &str, words: &[&str]) {
    let answers = [
        ("adopt", adopt(pins).err()),
        ("open", pinned::open(pins, inet()).err()),
        ("remove", pinned::remove(pins).err()),
        ("status", pinned::status(pins).err()),
    ];
    for (what, error) in answers {
        let error = error.unwrap_or_else(|| panic!("{title}: {what} took it")).to_string();
        for word in words {
            assert!(error.contains(word), "{title}: {what}: no '{word}' in: {error}");
        }
        if what == "adopt" {
            note(format!("{title}: {error}"));
        }
    }
}

/// Makes the directory where a daemon would, as the user `SOMEBODY` if `who` says so. Then it exchanges a leftover with a
/// link to `victim` until a line on its input stops it.
pub fn planter(dir: &str, victim: &str, who: &str) {
    let abi = Path::new(dir).join(format!("abi-{}", inet().abi));
    if who == "somebody" {
        set_thread_gid(rustix::process::Gid::from_raw(SOMEBODY)).expect("another group");
        set_thread_uid(rustix::process::Uid::from_raw(SOMEBODY)).expect("another user");
    }
    let partial = abi.join(format!("{}-partial", inet().name));
    let link = abi.join("link");
    let plant = || {
        let _ = fs::create_dir_all(partial.join("victim"));
        let _ = symlink(victim, &link);
    };
    plant();
    say("planted");
    let told = std::thread::spawn(told);
    while !told.is_finished() {
        // Root may have removed either name.
        for _ in 0..50 {
            if renameat_with(CWD, &partial, CWD, &link, RenameFlags::EXCHANGE).is_err() {
                plant();
            }
        }
    }
    say("done");
}

/// Files that root must not remove, in a directory with the name of a leftover's directory.
fn victims(scratch: &Scratch) -> (PathBuf, [PathBuf; 2]) {
    let root = scratch.path().join("elsewhere");
    fs::create_dir_all(root.join("victim")).unwrap();
    let files = [root.join("file"), root.join("victim/file")];
    files.iter().for_each(|file| fs::write(file, "dear to somebody").unwrap());
    (root, files)
}

/// Lets root remove, again and again, while names are exchanged. Returns how often the removal succeeded, and how often it
/// was refused.
fn race(pins: &Pins, role: &mut Role, victims: &[PathBuf]) -> (u32, u32) {
    let (mut done, mut refused) = (0, 0);
    let begun = Instant::now();
    for _ in 0..ROUNDS {
        match pinned::remove(pins) {
            Ok(_) => done += 1,
            Err(_) => refused += 1,
        }
        for victim in victims {
            assert!(victim.exists(), "root has removed {}, which is elsewhere", victim.display());
        }
        if begun.elapsed() > RACE {
            break;
        }
    }
    role.tell("stop");
    role.expect("done");
    (done, refused)
}

/// The directory existed before the daemon, in a BPF file system that all users may write to.
fn another_users_directory_is_refused() {
    let bpffs = Bpffs::new("planted", "1777");
    let pins = bpffs.pins();
    let dir = pins.dir().to_str().unwrap().to_owned();
    let mut role = Role::start("planter", &[&dir, "/nonexistent", "somebody"]);
    role.expect("planted");
    role.tell("stop");
    role.expect("done");
    role.finish();
    let uid = format!("uid {SOMEBODY}");
    let words = [dir.as_str(), &uid, "mount -t bpf -o mode=700 bpf /sys/fs/bpf"];
    assert_refused(&pins, "another user's directory", &words);
    assert!(!pins.dir().join(format!("abi-{}/inet", inet().abi)).exists(), "something was pinned there");
    // Nor may the directory be a link to a directory of root.
    fs::remove_dir_all(pins.dir()).unwrap();
    let bystander = bpffs.dir.join("roots");
    fs::create_dir(&bystander).unwrap();
    symlink(&bystander, pins.dir()).unwrap();
    std::os::unix::fs::lchown(pins.dir(), Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    assert_refused(&pins, "another user's link", &[&dir, "symbolic link"]);
    assert!(bystander.exists() && pins.dir().is_symlink());
}

/// The defect as it was found: root's `topstat unload` deleted a file elsewhere.
fn a_race_with_a_link_removes_nothing_elsewhere() {
    let bpffs = Bpffs::new("race", "1777");
    let (scratch, pins) = (Scratch::new("race-victims"), bpffs.pins());
    let (root, files) = victims(&scratch);
    let arguments = [pins.dir().to_str().unwrap(), root.to_str().unwrap(), "somebody"];
    let mut role = Role::start("planter", &arguments);
    role.expect("planted");
    let (done, refused) = race(&pins, &mut role, &files);
    assert_eq!(done, 0, "it is somebody else's directory");
    note(format!("refused {refused} times while names were exchanged"));
}

/// The removal does not depend on the owner of the directory: it removes a link, and never the target of a link.
fn a_race_in_roots_own_directory_removes_nothing_elsewhere() {
    let bpffs = Bpffs::new("own-race", "700");
    let (scratch, pins) = (Scratch::new("own-race-victims"), bpffs.pins());
    let (root, files) = victims(&scratch);
    let arguments = [pins.dir().to_str().unwrap(), root.to_str().unwrap(), "root"];
    let mut role = Role::start("planter", &arguments);
    role.expect("planted");
    // A planter that runs as root makes the directory as root's own.
    let (done, refused) = race(&pins, &mut role, &files);
    note(format!("removed {done} times, in vain {refused} times, while names were exchanged"));
    assert!(done + refused > 0);
}

/// A link replaces each file and directory, and leads to the original: above the state it is refused, within the state it is
/// no state.
fn links_are_followed_nowhere() {
    let bpffs = Bpffs::new("links", "700");
    let pins = Pins::at(&bpffs.dir.join("below/topstat"));
    let family = pins.dir().join(format!("abi-{}/inet", inet().abi));
    for above in [bpffs.dir.join("below"), pins.dir().to_owned()] {
        drop(adopt(&pins).unwrap());
        let real = bpffs.dir.join("real");
        fs::rename(&above, &real).unwrap();
        symlink(&real, &above).unwrap();
        assert_refused(&pins, "a link above", &[above.to_str().unwrap(), "symbolic link"]);
        fs::remove_file(&above).unwrap();
        fs::rename(&real, &above).unwrap();
    }
    let own = ["links", "programs"].map(|part| format!("{part}/{}", at_cgroup()));
    for within in ["", "maps", "links", "programs", "maps/banks", &own[0], &own[1]] {
        drop(adopt(&pins).unwrap());
        let place = if within.is_empty() { family.clone() } else { family.join(within) };
        let real = bpffs.dir.join("real");
        fs::rename(&place, &real).unwrap();
        symlink(&real, &place).unwrap();
        let before = fs::read_dir(&real).map(Iterator::count).ok();
        if within.is_empty() || within.starts_with("maps") {
            assert!(pinned::open(&pins, inet()).is_err(), "{within}: it was opened by a link");
        }
        let (state, adopted) = adopt(&pins).unwrap_or_else(|e| panic!("{within}: {e}"));
        // Attached programs do not need their pins.
        if !within.starts_with("programs") {
            assert_ne!(adopted, Adopted::Found, "{within}: it was found by a link");
            assert!(!place.is_symlink(), "{within}: it is still a link");
        }
        assert_eq!(state.programs().len(), topstat_live::nest::programs().len(), "{within}");
        assert_eq!(fs::read_dir(&real).map(Iterator::count).ok(), before, "{within}: what it led to was touched");
        drop(state);
        pinned::remove(&pins).unwrap();
        assert!(real.exists(), "{within}: what it led to was removed");
        if real.is_dir() { fs::remove_dir_all(&real) } else { fs::remove_file(&real) }.unwrap();
    }
}

/// A directory of root that contains a file of another user, or a file that other users can write.
fn pins_of_another_user_are_refused() {
    let nest = Nest::new("owners");
    let family = nest.family();
    let uid = format!("uid {SOMEBODY}");
    for within in ["", "maps", "links", "maps/banks", &format!("links/{}", at_cgroup())] {
        drop(adopt(&nest.pins).unwrap());
        let path = family.join(within);
        chown(&path, Some(SOMEBODY), None).unwrap();
        let answers = [adopt(&nest.pins).err(), pinned::open(&nest.pins, inet()).err()];
        for error in answers.map(|error| error.unwrap_or_else(|| panic!("{within}: it was taken")).to_string()) {
            let place = path.to_str().unwrap().trim_end_matches('/');
            assert!(error.contains(&uid) && error.contains(place), "{within}: {error}");
        }
        chown(&path, Some(0), None).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
        let error = adopt(&nest.pins).err().unwrap_or_else(|| panic!("{within}: it was taken")).to_string();
        assert!(error.contains("others than its owner may write"), "{within}: {error}");
        fs::set_permissions(&path, mode).unwrap();
        assert_eq!(adopt(&nest.pins).unwrap().1, Adopted::Found, "{within}: it is root's again");
    }
    // A file in the directory is removed with the rest; a directory of another user is not entered.
    chown(family.join("maps/banks"), Some(SOMEBODY), None).unwrap();
    chown(family.join("programs"), Some(SOMEBODY), None).unwrap();
    let error = pinned::remove(&nest.pins).unwrap_err().to_string();
    assert!(error.contains(&uid), "{error}");
    fs::read_dir(family.parent().unwrap()).unwrap().for_each(|left| {
        chown(left.unwrap().path().join("programs"), Some(0), None).unwrap();
    });
    pinned::remove(&nest.pins).unwrap();
    assert!(!nest.dir.exists());
}

/// Directories above: a user who owns one, or can write to it, can exchange the entries below it.
fn what_others_could_exchange_is_refused() {
    // With the sticky bit no other user can replace root's directory, and without it every user can.
    let bpffs = Bpffs::new("above", "1777");
    let pins = bpffs.pins();
    assert_eq!(adopt(&pins).unwrap().1, Adopted::Loaded);
    assert_eq!(adopt(&pins).unwrap().1, Adopted::Found);
    fs::set_permissions(&bpffs.dir, PermissionsExt::from_mode(0o777)).unwrap();
    assert_refused(&pins, "without the sticky bit", &[bpffs.dir.to_str().unwrap(), "mode 0777", "mode=700"]);
    fs::set_permissions(&bpffs.dir, PermissionsExt::from_mode(0o755)).unwrap();
    let uid = format!("uid {SOMEBODY}");
    // The mount point, and the directory above it.
    for above in [&bpffs.dir, bpffs.dir.parent().unwrap()] {
        chown(above, Some(SOMEBODY), None).unwrap();
        assert_refused(&pins, "below another user's directory", &[above.to_str().unwrap(), &uid]);
        chown(above, Some(0), None).unwrap();
    }
    assert_eq!(adopt(&pins).unwrap().1, Adopted::Found);
    pinned::remove(&pins).unwrap();
    // A '..' can't hide a state either.
    assert_refused(&Pins::at(&bpffs.dir.join("x/../topstat")), "a path with '..'", &["'..'"]);
}

fn unload(place: &Place) -> Output {
    let mut command: Command = role::command("topstat");
    let (pins, pid_file) = (place.pins.to_str().unwrap(), place.pid_file.to_str().unwrap());
    command.args(["unload", "--pins", pins, "--pid-file", pid_file]).output().expect("topstat unload")
}

/// Links that were moved away keep programs attached, and `topstat unload` says so.
fn unload_says_what_is_still_attached() {
    let nest = Nest::new("moved");
    let place = Place { mount: "/nonexistent".into(), pins: nest.dir.clone(), pid_file: nest_pid_file(&nest) };
    drop(adopt(&nest.pins).unwrap());
    let abi = nest.family().parent().unwrap().to_owned();
    let away = nest.dir.join("away");
    fs::rename(&abi, &away).unwrap();
    let output = unload(&place);
    let said = String::from_utf8(output.stderr).unwrap();
    note(said.trim_end().to_owned());
    assert_eq!(output.status.code(), Some(1), "{said}");
    let links = away.join("inet/links");
    for word in [at_cgroup(), "still attached", links.to_str().unwrap(), "rm -r"] {
        assert!(said.contains(word), "no '{word}' in: {said}");
    }
    // Back in its place the state is removed, and no message is left of it. Links that another test has moved are still named.
    fs::rename(&away, &abi).unwrap();
    let output = unload(&place);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains(nest.dir.to_str().unwrap()), "{said}");
    assert_eq!(output.status.code(), Some(i32::from(said.contains("still attached"))), "{said}");
    // In a file system that no process can see any more.
    let bpffs = Bpffs::new("unseen", "700");
    drop(adopt(&bpffs.pins()).unwrap());
    let held = rustix::fs::open(&bpffs.dir, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    unmount(&bpffs.dir, UnmountFlags::DETACH).unwrap();
    let output = unload(&place);
    let said = String::from_utf8(output.stderr).unwrap();
    note(said.trim_end().to_owned());
    assert_eq!(output.status.code(), Some(1), "{said}");
    for word in [at_cgroup(), "still attached", "mount namespace"] {
        assert!(said.contains(word), "no '{word}' in: {said}");
    }
    drop(held);
    assert!(nest::links_without_pins_are_gone(), "links of a file system that is gone");
}

fn nest_pid_file(nest: &Nest) -> PathBuf {
    std::env::temp_dir().join(nest.dir.file_name().unwrap()).with_extension("pid")
}
