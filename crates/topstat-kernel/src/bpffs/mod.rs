// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds, makes, locks and removes the directory in a BPF file system where families are pinned. [`pinned`](crate::pinned)
//! describes its content.

mod dir;
mod pins;

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::mount::MountFlags;

pub use dir::{Dir, Entry, replace};
use dir::{FOR_ROOT_ALONE, PRIVATE, broken, check_above, check_private, failed, refused};
pub use pins::{Adopted, DEFAULT_DIR, Pins};

use crate::Error;

/// The directory of maps, in a family's directory.
pub const MAPS: &str = "maps";
/// The directory of links, in a family's directory.
pub const LINKS: &str = "links";
/// The directory of programs, in a family's directory.
pub const PROGRAMS: &str = "programs";
/// In a family's directory: a symbolic link to nowhere, whose text is the build of the programs. It is replaced in one step. A
/// BPF file system has no plain files that could hold the text.
pub const BUILD: &str = "build";
/// The end of a directory's name while the directory is not complete, or no longer.
pub const PARTIAL: &str = "-partial";

/// The usual mount point of the BPF file system.
const MOUNT_POINT: &str = "/sys/fs/bpf";
/// `BPF_FS_MAGIC` in `linux/magic.h`.
const BPF_FS_MAGIC: i64 = 0xcafe_4a11;
/// The longest time that another process takes to load, on the slowest machine (an emulated one). After that something hangs.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);
/// The pause between tries to take a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

fn is_bpffs(file: impl AsFd) -> io::Result<bool> {
    // The width of `f_type` depends on the architecture.
    #[allow(clippy::unnecessary_cast)]
    Ok(rustix::fs::fstatfs(file)?.f_type as i64 & 0xffff_ffff == BPF_FS_MAGIC)
}

fn not_bpffs(path: &Path) -> Error {
    let advice = format!("{FOR_ROOT_ALONE}, or name a directory that is on one");
    refused(path, "it is not on a BPF file system", advice)
}

/// A directory on the path to the pins, held open, but not for reading.
struct Step {
    fd: OwnedFd,
    path: PathBuf,
    stat: Stat,
}

impl Step {
    fn root() -> Result<Self, Error> {
        let path = Path::new("/");
        let fd = rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        Self::new(fd.map_err(|e| broken(path, e))?, path.to_owned())
    }

    fn new(fd: OwnedFd, path: PathBuf) -> Result<Self, Error> {
        let stat = rustix::fs::fstat(&fd).map_err(|e| broken(&path, e))?;
        Ok(Self { fd, path, stat })
    }

    /// The entry of this name. Mounts are entered, links are not followed.
    fn next(&self, name: &OsStr) -> Result<Option<Self>, Error> {
        let path = self.path.join(name);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let fd = match dir::step(self.fd.as_fd(), name, flags, resolve) {
            Err(Errno::NOENT) => return Ok(None),
            fd => fd.map_err(|e| broken(&path, e))?,
        };
        let next = Self::new(fd, path)?;
        match FileType::from_raw_mode(next.stat.st_mode) {
            FileType::Directory => Ok(Some(next)),
            FileType::Symlink => Err(broken(&next.path, Errno::LOOP)),
            _ => Err(broken(&next.path, Errno::NOTDIR)),
        }
    }
}

/// The existing part of the path to a directory. Only root, and the user whom this program runs as, can exchange any part of it
/// later; the last directory is not checked yet.
struct Way {
    /// The last directory that exists, and the one above it.
    last: Step,
    above: Option<Step>,
    /// The names that are missing.
    missing: Vec<std::ffi::OsString>,
}

impl Way {
    fn to(dir: &Path) -> Result<Self, Error> {
        let dir = std::path::absolute(dir).map_err(|e| broken(dir, e))?;
        let mut way = Self { last: Step::root()?, above: None, missing: Vec::new() };
        for component in dir.components() {
            let name = match component {
                Component::Normal(name) => name,
                Component::ParentDir => {
                    return Err(refused(&dir, "it has '..' in it", "name the directory without"));
                }
                _ => continue,
            };
            if !way.missing.is_empty() {
                way.missing.push(name.to_owned());
                continue;
            }
            check_above(&way.last.path, &way.last.stat)?;
            match way.last.next(name)? {
                Some(next) => way.above = Some(std::mem::replace(&mut way.last, next)),
                None => way.missing.push(name.to_owned()),
            }
        }
        Ok(way)
    }

    /// The directory at the end of the path, for reading; `None`: it is missing.
    fn open(&self) -> Result<Option<Dir>, Error> {
        if !self.missing.is_empty() {
            return Ok(None);
        }
        if !is_bpffs(&self.last.fd).map_err(|e| broken(&self.last.path, e))? {
            return Err(not_bpffs(&self.last.path));
        }
        check_private(&self.last.path, &self.last.stat)?;
        Dir::open(self.last.fd.as_fd(), self.last.path.clone()).map(Some)
    }

    /// Makes the first missing directory.
    fn make_next(&self) -> Result<(), Error> {
        let Some(name) = self.missing.first() else { return Ok(()) };
        match rustix::fs::mkdirat(&self.last.fd, name, Mode::from_raw_mode(PRIVATE)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(e) => Err(broken(&self.last.path.join(name), e)),
        }
    }
}

/// Opens the directory, if it exists, and no untrusted user can exchange it: see [`check_above`].
pub fn open(dir: &Path) -> Result<Option<Dir>, Error> {
    Way::to(dir)?.open()
}

/// Makes the directory, which only root can look into.
fn make(dir: &Path) -> Result<Dir, Error> {
    loop {
        let way = Way::to(dir)?;
        if let Some(found) = way.open()? {
            if found.stat()?.st_mode & 0o7777 != PRIVATE {
                found.make_private()?;
            }
            return Ok(found);
        }
        let last = &way.last;
        if is_bpffs(&last.fd).map_err(|e| broken(&last.path, e))? {
            way.make_next()?;
        } else if last.path == Path::new(MOUNT_POINT) {
            mount(&last.fd).map_err(|e| failed(&last.path, &e, FOR_ROOT_ALONE))?;
        } else {
            return Err(not_bpffs(dir));
        }
    }
}

/// Mounts the BPF file system at its place, unless it is mounted already. Two processes that mount at once would hide each
/// other's mount, so both take a lock on the directory below the mount.
fn mount(below: &OwnedFd) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let below = rustix::fs::openat(below, ".", flags, Mode::empty())?;
    lock_file(&below, LOCK_PATIENCE)?;
    if is_bpffs(rustix::fs::open(MOUNT_POINT, flags, Mode::empty())?)? {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RELATIME;
    Ok(rustix::mount::mount("bpf", MOUNT_POINT, "bpf", flags, Some(c"mode=0700"))?)
}

/// Waits for a lock, which is released when the descriptor is closed.
pub fn lock_file(file: impl AsFd, patience: Duration) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK | Errno::INTR) if begun.elapsed() < patience => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(Errno::WOULDBLOCK) => {
                let why = format!("another topstat has held its lock for {} s", patience.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            done => return Ok(done?),
        }
    }
}

/// The name of an ABI's directory.
pub fn abi_name(abi: u32) -> String {
    format!("abi-{abi}")
}

/// The ABI of a directory.
pub fn abi_of(name: &str) -> Option<u32> {
    name.strip_prefix("abi-")?.parse().ok()
}

/// The directories of all ABIs.
pub fn abis(pins: &Dir) -> Result<Vec<(u32, Dir)>, Error> {
    let mut abis = Vec::new();
    for name in pins.names()? {
        if let Some(abi) = abi_of(&name)
            && let Some(dir) = pins.dir(&name)?
        {
            abis.push((abi, dir));
        }
    }
    Ok(abis)
}

/// The build of the programs, if they are all of one build.
pub fn build(family: &Dir) -> Option<String> {
    family.link(BUILD)
}

/// The name of a family's state while it is not complete.
pub fn partial(family: &str) -> String {
    format!("{family}{PARTIAL}")
}

/// The directory, locked until this is dropped: one process at a time loads, replaces or removes.
pub struct Locked {
    dir: Dir,
    /// The directory that it is in.
    above: Option<Step>,
}

impl Locked {
    /// Locks the directory, and makes it if it is missing.
    pub fn make(dir: &Path) -> Result<Self, Error> {
        loop {
            make(dir)?;
            // Another process may have removed all in between.
            if let Some(locked) = Self::existing(dir)? {
                return Ok(locked);
            }
        }
    }

    /// Locks the directory, if it exists.
    pub fn existing(dir: &Path) -> Result<Option<Self>, Error> {
        loop {
            let Some(found) = open(dir)? else { return Ok(None) };
            lock_file(&found, LOCK_PATIENCE)
                .map_err(|e| failed(found.path(), &e, "see what that one is doing, and end it"))?;
            // It may have been removed, and made anew, during the wait for the lock.
            let (locked, way) = (found.stat()?, Way::to(dir)?);
            let now = &way.last.stat;
            if way.missing.is_empty() && (now.st_ino, now.st_dev) == (locked.st_ino, locked.st_dev) {
                return Ok(Some(Self { dir: found, above: way.above }));
            }
        }
    }

    /// The directory.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Makes the directory of a family's state: `fill` pins the state in it under another name, which no process takes for a
    /// state, and then it gets its name. If either fails, no directory is left.
    pub fn make_family<T>(
        &self,
        abi: &Dir,
        name: &str,
        fill: impl FnOnce(Dir) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let partial = partial(name);
        abi.remove_tree(&partial, &mut Vec::new())?;
        let made = || {
            let dir = abi.make(&partial)?;
            [MAPS, LINKS, PROGRAMS].into_iter().try_for_each(|part| dir.make(part).map(drop))?;
            let filled = fill(dir)?;
            abi.rename(&partial, name).map_err(|e| broken(&abi.path_of(name), e))?;
            Ok(filled)
        };
        made().inspect_err(|_| {
            // The first error says more than an error of the removal.
            let _ = abi.remove_tree(&partial, &mut Vec::new());
        })
    }

    /// Removes a family's state. Its name is removed first, in one step.
    pub fn remove_family(&self, abi: &Dir, name: &str, removed: &mut Vec<PathBuf>) -> Result<(), Error> {
        if name.ends_with(PARTIAL) {
            return abi.remove_tree(name, removed);
        }
        let partial = partial(name);
        abi.remove_tree(&partial, removed)?;
        abi.rename(name, &partial).map_err(|e| broken(&abi.path_of(name), e))?;
        let mut gone = Vec::new();
        let done = abi.remove_tree(&partial, &mut gone);
        // Paths are reported by the names that users know.
        let (family, partial) = (abi.path_of(name), abi.path_of(&partial));
        removed.extend(gone.iter().map(|path| match path.strip_prefix(&partial) {
            Ok(below) if below.as_os_str().is_empty() => family.clone(),
            Ok(below) => family.join(below),
            Err(_) => path.clone(),
        }));
        done
    }

    /// Removes the directory, if it is empty. Returns whether it was.
    pub fn remove(self) -> bool {
        let (Some(above), Some(name)) = (&self.above, self.dir.path().file_name()) else { return false };
        rustix::fs::unlinkat(&above.fd, name, rustix::fs::AtFlags::REMOVEDIR).is_ok()
    }
}
