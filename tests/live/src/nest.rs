// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory for pins of a test's own, emptied and removed whatever becomes of the test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use topstat_kernel::pinned::{self, Adopted, Pins};
use topstat_kernel::{Options, Program, State};

use crate::Watch;
use crate::watch::table;

/// Where the BPF file system belongs.
const MOUNT_POINT: &str = "/sys/fs/bpf";

/// See the module.
pub struct Nest {
    /// The directory.
    pub dir: PathBuf,
    /// The same for topstat.
    pub pins: Pins,
    /// It was not there before: adopting mounts it.
    mounts: bool,
}

/// Whether the BPF file system is where it belongs.
pub fn mounted() -> bool {
    std::fs::read_to_string("/proc/self/mounts")
        .unwrap_or_default()
        .lines()
        .any(|line| line.split(' ').nth(1) == Some(MOUNT_POINT) && line.split(' ').nth(2) == Some("bpf"))
}

/// The programs that this kernel gets when they are pinned, by their names, gates among them (`…_enter`): programs that
/// are loaded for this process alone tell, which have no gates but for tracepoints would.
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

/// A program that is attached to the root cgroup itself: one that counts, where there is one.
pub fn at_cgroup() -> &'static str {
    if counts_by_functions() { "inet_release" } else { "inet_egress" }
}

/// How many programs are attached, or gone on into from a gate: as many as there are links.
pub fn hooks() -> usize {
    programs().iter().filter(|name| !name.ends_with("_enter")).count()
}

/// How many of them are gates.
pub fn gates() -> usize {
    programs().iter().filter(|name| name.ends_with("_enter")).count()
}

impl Nest {
    /// One that is not there yet.
    pub fn new(name: &str) -> Self {
        let dir = Path::new(MOUNT_POINT).join(format!("topstat-live-{}-{name}", std::process::id()));
        Self { pins: Pins::at(&dir), dir, mounts: !mounted() }
    }

    /// As another build.
    pub fn build(&self, build: &str) -> Pins {
        self.pins.clone().as_build(build)
    }

    /// Adopts the sockets' samples, or loads them with these tables on.
    pub fn adopt(&self, paths: &[&str], options: &Options) -> (Arc<dyn State>, Adopted) {
        self.adopt_as("", paths, options)
    }

    /// The same as another build.
    pub fn adopt_as(&self, build: &str, paths: &[&str], options: &Options) -> (Arc<dyn State>, Adopted) {
        let tables: Vec<_> = paths.iter().map(|path| table(path)).collect();
        pinned::adopt(&self.build(build), inet(), &tables, options).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Reads what is pinned, as somebody who has nothing to do with who has pinned it.
    pub fn watch(&self) -> Watch {
        let state = pinned::open(&self.pins, inet()).unwrap_or_else(|e| panic!("{e}")).expect("something is pinned");
        Watch::of(state.reader().unwrap_or_else(|e| panic!("{e}")))
    }

    /// Where the family's state is.
    pub fn family(&self) -> PathBuf {
        self.dir.join(format!("abi-{}", inet().abi)).join(&inet().name)
    }

    /// Where it is while it is not whole.
    pub fn partial(&self) -> PathBuf {
        let mut path = self.family().into_os_string();
        path.push("-partial");
        path.into()
    }

    /// All that is in it.
    pub fn files(&self) -> Vec<PathBuf> {
        crate::attached::pinned().into_iter().filter(|path| path.starts_with(&self.dir)).collect()
    }
}

impl Drop for Nest {
    fn drop(&mut self) {
        let removed = pinned::remove(&self.pins);
        // What a test has put there itself.
        fn clear(path: &Path) {
            for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() && !path.is_symlink() { clear(&path) } else { drop(std::fs::remove_file(path)) }
            }
            drop(std::fs::remove_dir(path));
        }
        clear(&self.dir);
        // Not if somebody else has pinned something there meanwhile. What has a dot in its name is the kernel's own.
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
    INET.get_or_init(|| topstat_kernel::family_of("tcp_v4").expect("the sockets' family"))
}
