// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A test's directory for pins, emptied and removed however the test ends.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use topstat_kernel::pinned::{self, Adopted, Pins};
use topstat_kernel::{Options, Program, State};

use crate::watch::table;
use crate::{Watch, eventually};

/// The mount point of the BPF file system.
const MOUNT_POINT: &str = "/sys/fs/bpf";

/// The link that readers attach and detach, as owners of connections are missing: see `Hook::while_counted`.
pub const COMES_AND_GOES: &str = "inet_user";

/// A directory for pins: see the module.
pub struct Nest {
    /// The directory.
    pub dir: PathBuf,
    /// The directory as topstat's type.
    pub pins: Pins,
    /// The BPF file system was not mounted before: adopting mounts it.
    mounts: bool,
}

/// Whether the BPF file system is mounted there.
pub fn mounted() -> bool {
    std::fs::read_to_string("/proc/self/mounts")
        .unwrap_or_default()
        .lines()
        .any(|line| line.split(' ').nth(1) == Some(MOUNT_POINT) && line.split(' ').nth(2) == Some("bpf"))
}

/// Waits for the end of all links that have neither a path nor a holder, and returns whether they are gone. The kernel ends a link
/// some time after its last pin was removed: after a grace period of RCU, which takes over 50 ms on a busy host.
pub fn links_without_pins_are_gone() -> bool {
    let gone = || pinned::attached().is_ok_and(|all| all.iter().all(|l| l.at.is_some() || !l.holders.is_empty()));
    eventually(Duration::from_secs(10), gone)
}

/// The names of the programs that this kernel gets when they are pinned, gates (`…_enter`) included. The list comes from
/// programs that are loaded for this process only: these have no gates, and the function adds the gates of tracepoints and
/// functions.
pub fn programs() -> &'static [String] {
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let state = topstat_kernel::load_state(inet(), &[], &Options::default()).expect("load");
        let is_gated = |p: &Program| p.hook.starts_with("tracepoint") || p.hook.starts_with("function");
        let gate = |p: &Program| is_gated(p).then(|| format!("{}_enter", p.name));
        state.programs().into_iter().flat_map(|p| gate(&p).into_iter().chain([p.name])).collect()
    })
}

/// Whether UDP is counted by its own functions, and not by its packets.
pub fn counts_by_functions() -> bool {
    programs().iter().any(|name| name == "inet_received")
}

/// A program that is attached to the root cgroup: a program that counts, if there is one.
pub fn at_cgroup() -> &'static str {
    if counts_by_functions() { "inet_release" } else { "inet_egress" }
}

/// The number of programs that are attached, or entered from a gate: it equals the number of links.
pub fn hooks() -> usize {
    programs().iter().filter(|name| !name.ends_with("_enter")).count()
}

/// The number of gates.
pub fn gates() -> usize {
    programs().iter().filter(|name| name.ends_with("_enter")).count()
}

impl Nest {
    /// A nest whose directory does not exist yet.
    pub fn new(name: &str) -> Self {
        let dir = Path::new(MOUNT_POINT).join(format!("topstat-live-{}-{name}", std::process::id()));
        Self { pins: Pins::at(&dir), dir, mounts: !mounted() }
    }

    /// The pins as another build sees them.
    pub fn build(&self, build: &str) -> Pins {
        self.pins.clone().as_build(build)
    }

    /// Adopts the sockets' samples, or loads them with these tables switched on.
    pub fn adopt(&self, paths: &[&str], options: &Options) -> (Arc<dyn State>, Adopted) {
        self.adopt_as("", paths, options)
    }

    /// As [`Self::adopt`], as another build.
    pub fn adopt_as(&self, build: &str, paths: &[&str], options: &Options) -> (Arc<dyn State>, Adopted) {
        let tables: Vec<_> = paths.iter().map(|path| table(path)).collect();
        pinned::adopt(&self.build(build), inet(), &tables, options).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Reads the pinned state as a process that is unrelated to the one that pinned it.
    pub fn watch(&self) -> Watch {
        let state = pinned::open(&self.pins, inet()).unwrap_or_else(|e| panic!("{e}")).expect("something is pinned");
        Watch::of(state.reader().unwrap_or_else(|e| panic!("{e}")))
    }

    /// The folder of the family's state.
    pub fn family(&self) -> PathBuf {
        self.dir.join(format!("abi-{}", inet().abi)).join(&inet().name)
    }

    /// The folder of the family's state while it is incomplete.
    pub fn partial(&self) -> PathBuf {
        let mut path = self.family().into_os_string();
        path.push("-partial");
        path.into()
    }

    /// All files in the directory but for the link that comes and goes.
    pub fn files(&self) -> Vec<PathBuf> {
        let link = self.family().join("links").join(COMES_AND_GOES);
        crate::attached::pinned().into_iter().filter(|path| path.starts_with(&self.dir) && *path != link).collect()
    }
}

impl Drop for Nest {
    fn drop(&mut self) {
        let removed = pinned::remove(&self.pins);
        // Files that the test has put there itself.
        fn clear(path: &Path) {
            for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() && !path.is_symlink() { clear(&path) } else { drop(std::fs::remove_file(path)) }
            }
            drop(std::fs::remove_dir(path));
        }
        clear(&self.dir);
        // Only if no other process has pinned an object there. Names with a dot belong to the kernel.
        let own = |name: std::ffi::OsString| name.to_string_lossy().contains('.');
        let empty =
            || std::fs::read_dir(MOUNT_POINT).is_ok_and(|entries| entries.flatten().all(|e| own(e.file_name())));
        if self.mounts && mounted() && empty() {
            let _ = Command::new("umount").arg(MOUNT_POINT).status();
        }
        if !std::thread::panicking() {
            removed.unwrap_or_else(|e| panic!("{e}"));
            assert!(!self.dir.exists(), "{} is left", self.dir.display());
        }
    }
}

/// The family of the sockets' samples.
pub fn inet() -> &'static Arc<topstat_kernel::Family> {
    static INET: OnceLock<Arc<topstat_kernel::Family>> = OnceLock::new();
    INET.get_or_init(|| topstat_families::catalogue().family_of("tcp_v4").expect("the sockets' family"))
}
