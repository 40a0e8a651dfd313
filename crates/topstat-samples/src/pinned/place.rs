// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The directory in a BPF file system: made, locked, listed, and removed.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::mount::MountFlags;

use crate::Error;

/// In a family's directory.
pub const MAPS: &str = "maps";
/// In a family's directory.
pub const LINKS: &str = "links";
/// In a family's directory.
pub const PROGRAMS: &str = "programs";
/// In a family's directory: a symbolic link to nowhere, whose text is the build of the programs. It is replaced in one
/// step, which a file could not be here: a BPF file system has none.
pub const BUILD: &str = "build";
/// What the name of a directory ends with that is not whole, or no longer.
pub const PARTIAL: &str = "-partial";

/// Where the BPF file system belongs.
const MOUNT_POINT: &str = "/sys/fs/bpf";
/// `BPF_FS_MAGIC` in `linux/magic.h`.
const BPF_FS_MAGIC: i64 = 0xcafe_4a11;
/// Only root's: whoever can open the pins can change what is counted.
const PRIVATE: u32 = 0o700;
/// The longest that another's loading takes, on the slowest machine (an emulated one); then something hangs.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);
/// How often a lock is tried.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

fn failed(path: &Path, why: &io::Error, advice: &str) -> Error {
    let advice = match why.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "run as root",
        Some(libc::EROFS) => "mount the BPF file system writable: mount -o remount,rw /sys/fs/bpf",
        _ => advice,
    };
    Error::Pins { path: path.to_owned(), why: why.to_string(), advice: advice.to_owned() }
}

fn broken(path: &Path, why: &io::Error) -> Error {
    failed(path, why, "look at what is there, or remove it")
}

fn on_bpffs(path: &Path) -> io::Result<bool> {
    // The width of `f_type` is the architecture's.
    #[allow(clippy::unnecessary_cast)]
    Ok(rustix::fs::statfs(path)?.f_type as i64 & 0xffff_ffff == BPF_FS_MAGIC)
}

fn not_bpffs(path: &Path) -> Error {
    Error::Pins {
        path: path.to_owned(),
        why: "it is not on a BPF file system".to_owned(),
        advice: format!("mount one: mount -t bpf bpf {MOUNT_POINT}, or name a directory that is on one"),
    }
}

/// Whether the directory is there; if so, it is on a BPF file system.
pub fn is_there(dir: &Path) -> Result<bool, Error> {
    match fs::metadata(dir) {
        Ok(found) if !found.is_dir() => Err(broken(dir, &io::Error::from_raw_os_error(libc::ENOTDIR))),
        Ok(_) if on_bpffs(dir).map_err(|e| broken(dir, &e))? => Ok(true),
        Ok(_) => Err(not_bpffs(dir)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(broken(dir, &e)),
    }
}

/// Mounts the BPF file system where it belongs, unless it is there already. Two who do so at once would hide one
/// another's, so both take a lock on what is below the mount.
fn mount() -> io::Result<()> {
    let below = rustix::fs::open(MOUNT_POINT, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    lock_file(&below, LOCK_PATIENCE)?;
    if on_bpffs(Path::new(MOUNT_POINT))? {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RELATIME;
    Ok(rustix::mount::mount("bpf", MOUNT_POINT, "bpf", flags, Some(c"mode=0700"))?)
}

/// Makes the directory, which only root can look into.
fn make(dir: &Path) -> Result<(), Error> {
    if !is_there(dir)? {
        let exists = dir.ancestors().find(|a| a.exists()).unwrap_or(Path::new("/"));
        if !on_bpffs(exists).map_err(|e| broken(exists, &e))? {
            if !dir.starts_with(MOUNT_POINT) || !Path::new(MOUNT_POINT).exists() {
                return Err(not_bpffs(dir));
            }
            mount().map_err(|e| failed(Path::new(MOUNT_POINT), &e, "mount it: mount -t bpf bpf /sys/fs/bpf"))?;
        }
        make_private(dir)?;
    }
    fs::set_permissions(dir, Permissions::from_mode(PRIVATE)).map_err(|e| broken(dir, &e))
}

fn make_private(dir: &Path) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(PRIVATE).create(dir).map_err(|e| broken(dir, &e))
}

/// Waits for a lock, which closing the descriptor gives back.
pub fn lock_file(file: &OwnedFd, patience: Duration) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) if begun.elapsed() < patience => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let why = format!("another topstat has held its lock for {} s", patience.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            done => return Ok(done?),
        }
    }
}

/// What is in a directory, sorted.
pub fn names(dir: &Path) -> Result<Vec<String>, Error> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|e| broken(dir, &e))?,
    };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

/// The ABI that a directory is of.
pub fn abi_of(name: &str) -> Option<u32> {
    name.strip_prefix("abi-")?.parse().ok()
}

/// The directories of all ABIs.
pub fn abis(dir: &Path) -> Result<Vec<(u32, PathBuf)>, Error> {
    Ok(names(dir)?
        .into_iter()
        .filter_map(|name| Some((abi_of(&name)?, dir.join(name))))
        .filter(|(_, path)| path.is_dir())
        .collect())
}

/// Which build the programs are, if they are all of one.
pub fn build(family: &Path) -> Option<String> {
    Some(fs::read_link(family.join(BUILD)).ok()?.to_string_lossy().into_owned())
}

/// Removes a file, or a directory and all that is in it. What is a link, or a mount of something else, is not followed.
pub fn remove_tree(path: &Path, removed: &mut Vec<PathBuf>) -> Result<(), Error> {
    let found = match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(|e| broken(path, &e))?,
    };
    if found.is_dir() {
        for name in names(path)? {
            remove_tree(&path.join(name), removed)?;
        }
        fs::remove_dir(path).map_err(|e| broken(path, &e))?;
    } else {
        fs::remove_file(path).map_err(|e| broken(path, &e))?;
    }
    removed.push(path.to_owned());
    Ok(())
}

/// The directory, locked until this is dropped: whoever loads, replaces or removes is alone.
pub struct Locked {
    dir: PathBuf,
    _lock: OwnedFd,
}

impl Locked {
    /// Makes it if need be.
    pub fn make(dir: &Path) -> Result<Self, Error> {
        loop {
            make(dir)?;
            // Somebody who removes all may have come in between.
            if let Some(locked) = Self::lock(dir)? {
                return Ok(locked);
            }
        }
    }

    /// If it is there.
    pub fn existing(dir: &Path) -> Result<Option<Self>, Error> {
        if is_there(dir)? { Self::lock(dir) } else { Ok(None) }
    }

    fn lock(dir: &Path) -> Result<Option<Self>, Error> {
        loop {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let lock = match rustix::fs::open(dir, flags, Mode::empty()) {
                Err(rustix::io::Errno::NOENT) => return Ok(None),
                lock => lock.map_err(|e| broken(dir, &e.into()))?,
            };
            lock_file(&lock, LOCK_PATIENCE).map_err(|e| failed(dir, &e, "see what that one is doing, and end it"))?;
            // It may have been removed, and made anew, while this one waited.
            let locked = rustix::fs::fstat(&lock).map_err(|e| broken(dir, &e.into()))?;
            match fs::metadata(dir) {
                Ok(now) if now.ino() == locked.st_ino && now.dev() == locked.st_dev => {
                    return Ok(Some(Self { dir: dir.to_owned(), _lock: lock }));
                }
                _ => {}
            }
        }
    }

    /// The directories of all ABIs.
    pub fn abis(&self) -> Result<Vec<(u32, PathBuf)>, Error> {
        abis(&self.dir)
    }

    /// An empty directory to pin a family's state in. It gets its name by [`Locked::name`].
    pub fn make_partial(&self, family: &Path) -> Result<PathBuf, Error> {
        let partial = partial(family);
        remove_tree(&partial, &mut Vec::new())?;
        for part in [MAPS, LINKS, PROGRAMS] {
            make_private(&partial.join(part))?;
        }
        Ok(partial)
    }

    /// All that belongs in it is there.
    pub fn name(&self, partial: &Path, family: &Path) -> Result<(), Error> {
        fs::rename(partial, family).map_err(|e| broken(family, &e))
    }

    /// Removes a family's state: its name first, in one step.
    pub fn remove_family(&self, abi: &Path, name: &str, removed: &mut Vec<PathBuf>) -> Result<(), Error> {
        let family = abi.join(name);
        if name.ends_with(PARTIAL) {
            return remove_tree(&family, removed);
        }
        let partial = partial(&family);
        remove_tree(&partial, removed)?;
        fs::rename(&family, &partial).map_err(|e| broken(&family, &e))?;
        let mut gone = Vec::new();
        remove_tree(&partial, &mut gone)?;
        // By the names that users know.
        removed.extend(gone.iter().map(|path| match path.strip_prefix(&partial) {
            Ok(below) if below.as_os_str().is_empty() => family.clone(),
            Ok(below) => family.join(below),
            Err(_) => path.clone(),
        }));
        Ok(())
    }
}

/// Where a family's state is while it is not whole.
fn partial(family: &Path) -> PathBuf {
    let mut name = family.as_os_str().to_owned();
    name.push(PARTIAL);
    name.into()
}
