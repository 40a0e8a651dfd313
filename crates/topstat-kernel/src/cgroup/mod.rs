// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cgroup hierarchies: where programs are attached, and the paths of ids. `topstat_model::names` finds the container of a path.

mod path_cache;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use procfs::process::{MountInfo, Process};
use rustix::fs::{Mode, OFlags};
use rustix::mount::MountAttrFlags;

use crate::detached_mount;
use crate::process::abi::{self, PROCESS_GROUP_V1};
use path_cache::PathCache;
pub use path_cache::{MOST_BYTES as MOST_PATH_BYTES, Remembered};

/// Advice where there is no v2 hierarchy.
pub const MOUNT_ONE: &str = "mount one: mount -t cgroup2 none /sys/fs/cgroup/unified";

/// A v1 controller whose hierarchy locates a process, on hosts where v2 does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum V1Controller {
    /// `memory`
    Memory,
    /// `cpu`
    Cpu,
    /// `pids`
    Pids,
}

impl V1Controller {
    const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Pids => "pids",
        }
    }

    /// Its number in `enum process_v1`.
    fn number(self) -> u32 {
        match self {
            Self::Memory => abi::PROCESS_V1_MEMORY,
            Self::Cpu => abi::PROCESS_V1_CPU,
            Self::Pids => abi::PROCESS_V1_PIDS,
        }
    }

    const ALL: [Self; 3] = [Self::Memory, Self::Cpu, Self::Pids];

    /// The controller of a number of `enum process_v1`.
    pub fn numbered(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|controller| controller.number() == number)
    }
}

fn mounts() -> Vec<MountInfo> {
    Process::myself().and_then(|p| p.mountinfo()).map(|m| m.0).unwrap_or_default()
}

fn v2_mount() -> Option<MountInfo> {
    let mut found: Vec<MountInfo> = mounts().into_iter().filter(|m| m.fs_type == "cgroup2").collect();
    // A mount that shows the whole hierarchy comes first.
    found.sort_by_key(|m| m.root != "/");
    found.into_iter().next()
}

fn v1_mount(controller: V1Controller) -> Option<MountInfo> {
    mounts().into_iter().find(|m| m.fs_type == "cgroup" && m.super_options.contains_key(controller.name()))
}

/// The v1 controller to ask, if one is mounted.
pub fn v1_controller() -> Option<V1Controller> {
    V1Controller::ALL.into_iter().find(|controller| v1_mount(*controller).is_some())
}

/// [`v1_controller`] as an `enum process_v1`.
pub fn v1_number() -> u32 {
    v1_controller().map_or(abi::PROCESS_V1_NONE, V1Controller::number)
}

/// The path of a control group below the root of its hierarchy.
fn below_root(path: &str) -> io::Result<&Path> {
    let below = Path::new(path).strip_prefix("/").unwrap_or(Path::new(path));
    match below.components().all(|part| matches!(part, std::path::Component::Normal(_))) {
        true => Ok(below),
        false => Err(io::Error::other("it is no path of a cgroup")),
    }
}

/// The controllers that this kernel has, in v2's hierarchy or in v1's.
pub fn controllers() -> Vec<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let of_v2 = root().and_then(|root| {
        let file = rustix::fs::openat(root.as_fd(), "cgroup.controllers", flags, Mode::empty())?;
        io::read_to_string(std::fs::File::from(file))
    });
    let of_v1 = mounts().into_iter().filter(|mount| mount.fs_type == "cgroup");
    let of_v1 = of_v1.flat_map(|mount| mount.super_options.into_keys());
    of_v2.unwrap_or_default().split_ascii_whitespace().map(str::to_owned).chain(of_v1).collect()
}

fn open_directory(path: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// The root of the v2 hierarchy. The kernel always has one. If it is not mounted (v1 only), this mounts it for itself alone,
/// without a path to it.
///
/// # Errors
/// It can be neither found nor mounted.
pub fn root() -> io::Result<OwnedFd> {
    if let Some(mount) = v2_mount() {
        return open_directory(mount.mount_point);
    }
    let mount = detached_mount::mount("cgroup2", MountAttrFlags::empty())?;
    Ok(rustix::fs::openat(mount.as_fd(), ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// The root of the hierarchy of a v1 controller, as far as it is mounted here.
///
/// # Errors
/// It is not mounted here, or can't be opened.
pub fn v1_root(controller: V1Controller) -> io::Result<OwnedFd> {
    let mount = v1_mount(controller).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    open_directory(mount.mount_point)
}

/// Whether this is the root of a whole hierarchy, and not of a cgroup namespace.
pub fn is_whole(root: &OwnedFd) -> bool {
    /// The inode number of every kernfs root.
    const ROOT_INODE: u64 = 1;
    rustix::fs::fstat(root).is_ok_and(|found| found.st_ino == ROOT_INODE)
}

/// The path of the v2 hierarchy's root for users, if it is mounted.
pub fn root_path() -> PathBuf {
    v2_mount().map_or_else(|| PathBuf::from("CGROUP"), |mount| mount.mount_point)
}

/// The id of the v2 control group of this path, and its depth below the root.
///
/// # Errors
/// There is no control group of this path.
pub fn find(path: &str) -> io::Result<(u64, u32)> {
    let mount = v2_mount().ok_or_else(|| io::Error::other("no hierarchy of version 2 is mounted"))?;
    let below = below_root(path)?;
    let found = rustix::fs::stat(mount.mount_point.join(below))?;
    // On 64-bit hosts the inode number is the id.
    Ok((found.st_ino, below.components().count() as u32))
}

/// The number of the control group of this path, by the rule of `observe/process.h`: a group of v2, or, where v2 has no such group or
/// only its root, of the chosen v1 hierarchy.
///
/// # Errors
/// There is no control group of this path in either hierarchy.
pub fn number(path: &str) -> io::Result<u64> {
    let found = find(path);
    match (&found, v1_controller().and_then(v1_mount)) {
        (Ok((id, 1..)), _) | (Ok((id, _)), None) => Ok(*id),
        (_, Some(mount)) => {
            let group =
                rustix::fs::stat(mount.mount_point.join(below_root(path)?)).map(|group| group.st_ino | GROUP_V1);
            group.or_else(|error| found.map(|(id, _)| id).map_err(|_| error.into()))
        }
        (Err(_), None) => found.map(|(id, _)| id),
    }
}

/// The existing hierarchies, in words.
pub fn describe() -> String {
    let v2 = v2_mount().map_or_else(
        || "not mounted: topstat mounts it for itself".to_owned(),
        |m| {
            let part = if m.root == "/" { "" } else { " (of a cgroup namespace: only sockets below it are counted)" };
            format!("{}{part}", m.mount_point.display())
        },
    );
    match v1_controller() {
        Some(c) => format!("{v2}; paths from v1's {} hierarchy where v2 has none", c.name()),
        None => v2,
    }
}

/// Paths of cgroups by their numbers: see `observe/process.h`.
pub struct Paths {
    v2: Option<Hierarchy>,
    v1: Option<Hierarchy>,
}

struct Hierarchy {
    which: path_cache::Hierarchy,
    mount: PathBuf,
    root: OwnedFd,
}

/// The paths that all readers of this process share. The lock is held for a look-up only, never while the kernel is asked.
static KNOWN: LazyLock<Mutex<PathCache>> = LazyLock::new(|| Mutex::new(PathCache::new()));

fn known() -> MutexGuard<'static, PathCache> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The size of this process's cache of cgroup paths. Paths that were unused for long are forgotten first.
pub fn remembered() -> Remembered {
    let mut known = known();
    known.forget_unused(Instant::now());
    known.remembered()
}

/// Marks the number of a v1 group.
const GROUP_V1: u64 = PROCESS_GROUP_V1.cast_unsigned();

/// A file handle of the kernel's kernfs: `FILEID_KERNFS`, then the id (since 5.5).
const FILEID_KERNFS: i32 = 0xfe;

impl Hierarchy {
    fn new(which: path_cache::Hierarchy, mount: MountInfo) -> Option<Self> {
        let root = open_directory(&mount.mount_point).ok()?;
        Some(Self { which, mount: mount.mount_point, root })
    }

    fn path(&self, id: u64) -> Option<String> {
        let key = (self.which, id);
        if let Some(known) = known().get(key, Instant::now()) {
            return known;
        }
        let found = self.ask(id);
        // A call that failed for other reasons (no free descriptor, no privilege) may succeed the next time.
        let gone = |e: &io::Error| matches!(e.raw_os_error(), Some(libc::ESTALE | libc::ENOENT));
        if found.as_ref().err().is_none_or(gone) {
            known().insert(key, found.as_deref().ok(), Instant::now());
        }
        found.ok()
    }

    fn ask(&self, id: u64) -> io::Result<String> {
        #[repr(C)]
        struct Handle {
            bytes: u32,
            kind: i32,
            id: u64,
        }
        let mut handle = Handle { bytes: 8, kind: FILEID_KERNFS, id };
        // SAFETY: the handle has the form that the kernel wants: a length, a type, and as many bytes as the length says.
        let fd = unsafe {
            libc::open_by_handle_at(
                self.root.as_raw_fd(),
                std::ptr::from_mut(&mut handle).cast(),
                libc::O_PATH | libc::O_CLOEXEC,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was just opened, and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let link = rustix::fs::readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new())?;
        let path = PathBuf::from(String::from_utf8_lossy(CString::as_bytes(&link)).into_owned());
        let below = path.strip_prefix(&self.mount).unwrap_or(&path);
        Ok(Path::new("/").join(below).to_string_lossy().into_owned())
    }
}

impl Paths {
    /// Paths in the hierarchies that are mounted now: of v2, and of the v1 controller that the programs ask.
    pub fn new(v1: Option<V1Controller>) -> Self {
        let v1 = v1.and_then(|controller| Some((path_cache::Hierarchy::V1(controller), v1_mount(controller)?)));
        Self {
            v2: v2_mount().and_then(|mount| Hierarchy::new(path_cache::Hierarchy::V2, mount)),
            v1: v1.and_then(|(which, mount)| Hierarchy::new(which, mount)),
        }
    }

    /// The path of the cgroup of this number; 0 stands for an unknown cgroup.
    pub fn of(&mut self, number: u64) -> Option<String> {
        let id = number & !GROUP_V1;
        let hierarchy = if number & GROUP_V1 == 0 { &self.v2 } else { &self.v1 };
        hierarchy.as_ref().filter(|_| id != 0)?.path(id)
    }
}
