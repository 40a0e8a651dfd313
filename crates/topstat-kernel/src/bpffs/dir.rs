// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory of a BPF file system that is held open, and its entries.
//!
//! Root works in here, on names that other users may once have been able to exchange. So all access goes by descriptors: a
//! directory is opened once, its owner is read from the open descriptor, and its entries are reached from there, one name at a
//! time. The kernel itself makes sure that no symbolic link is followed and no mount is entered (`openat2` with
//! `RESOLVE_BENEATH`, `RESOLVE_NO_SYMLINKS` and `RESOLVE_NO_XDEV`, Linux 5.6). rustix, which the other code uses already, gives
//! these calls as they are. cap-std and pathrs are made for following links inside a directory, which is not wanted here.
//!
//! libbpf takes paths. It gets `/proc/self/fd/N` of an open object, or `/proc/self/fd/N/name` of an open directory, which works
//! on every kernel (`BPF_F_PATH_FD` would take Linux 6.5): the kernel starts at the descriptor, and follows no link when it pins.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, StatxFlags, Timespec, Timestamps};
use rustix::io::Errno;

use crate::Error;

/// For root alone: a user who can open the pins can change what is counted.
pub const PRIVATE: u32 = 0o700;
/// Users other than the owner may write.
const OTHERS_WRITE: u32 = 0o022;
/// Of a directory: only owners may rename or remove its entries.
const STICKY: u32 = 0o1000;
/// How a step from a directory to an entry is resolved.
const STEP: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);

/// Opens the entry with this name, one step from a directory, by `openat2`. A filter of system calls may refuse that call:
/// systemd's `RestrictSUIDSGID=` does, since a filter can't see the mode in its arguments. Then the entry is opened without
/// following a link, and is refused afterwards if it is on another mount and `resolve` forbids that.
pub fn step(dir: BorrowedFd<'_>, name: &OsStr, flags: OFlags, resolve: ResolveFlags) -> rustix::io::Result<OwnedFd> {
    match rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve) {
        Err(Errno::NOSYS | Errno::PERM) => {}
        opened => return opened,
    }
    let fd = rustix::fs::openat(dir, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
    if resolve.contains(ResolveFlags::NO_XDEV) && mount_of(dir)? != mount_of(fd.as_fd())? {
        return Err(Errno::XDEV);
    }
    Ok(fd)
}

/// The mount that a file was opened on.
fn mount_of(fd: BorrowedFd<'_>) -> rustix::io::Result<u64> {
    Ok(rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?.stx_mnt_id)
}

/// Advice that keeps other users out of a BPF file system.
pub const FOR_ROOT_ALONE: &str = "mount the BPF file system for root alone: mount -t bpf -o mode=700 bpf /sys/fs/bpf";

/// An error about a pinned object, from the system's answer.
pub fn failed(path: &Path, why: &io::Error, advice: &str) -> Error {
    let (why, advice) = match why.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => return Error::Denied { path: path.to_owned(), why: why.to_string() },
        Some(libc::EROFS) => (why.to_string(), "mount the BPF file system writable: mount -o remount,rw /sys/fs/bpf"),
        Some(libc::ELOOP) => {
            ("it is a symbolic link, and none is followed".to_owned(), "name the directory itself, or remove the link")
        }
        Some(libc::EXDEV) => ("something is mounted on it".to_owned(), "unmount that first"),
        _ => (why.to_string(), advice),
    };
    refused(path, why, advice)
}

/// An error about a pinned object, in words.
pub fn refused(path: &Path, why: impl Into<String>, advice: impl Into<String>) -> Error {
    Error::Pins { path: path.to_owned(), why: why.into(), advice: advice.into() }
}

pub fn broken(path: &Path, why: impl Into<io::Error>) -> Error {
    failed(path, &why.into(), "look at what is there, or remove it")
}

/// Whether this user is trusted: root, and the user whom this program runs as.
fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// The trusted users, for people.
fn trusted() -> String {
    match rustix::process::geteuid().as_raw() {
        0 => "root".to_owned(),
        own => format!("root or uid {own}"),
    }
}

/// Refuses an object that an untrusted user owns, or that others can write.
pub fn check_private(path: &Path, stat: &Stat) -> Result<(), Error> {
    if !is_trusted(stat.st_uid) {
        let why = format!("it belongs to uid {}, and not to {}", stat.st_uid, trusted());
        return Err(refused(
            path,
            why,
            format!("see what that user has put there and remove it, then {FOR_ROOT_ALONE}"),
        ));
    }
    let link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
    if stat.st_mode & OTHERS_WRITE != 0 && !link {
        let why = format!("others than its owner may write to it (mode {:04o})", stat.st_mode & 0o7777);
        let advice = format!("remove what is not topstat's, then chmod 700 {}; and {FOR_ROOT_ALONE}", path.display());
        return Err(refused(path, why, advice));
    }
    Ok(())
}

/// Refuses a directory that leads to the pins if an untrusted user could exchange its entries: its owner, and every user who may
/// write to it. With the sticky bit only the owner of an entry can exchange it; that owner is checked next.
pub fn check_above(dir: &Path, stat: &Stat) -> Result<(), Error> {
    let advice = format!("use a directory that is below root's alone; or {FOR_ROOT_ALONE}");
    if !is_trusted(stat.st_uid) {
        let why = format!("it belongs to uid {}, who could exchange what is pinned below", stat.st_uid);
        return Err(refused(dir, why, advice));
    }
    if stat.st_mode & OTHERS_WRITE != 0 && stat.st_mode & STICKY == 0 {
        let why =
            format!("others may write to it (mode {:04o}), and exchange what is pinned below", stat.st_mode & 0o7777);
        return Err(refused(dir, why, advice));
    }
    Ok(())
}

/// An entry of a directory, held open, but not for reading.
pub struct Entry {
    fd: OwnedFd,
    path: PathBuf,
    stat: Stat,
}

impl Entry {
    /// Its type.
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// When it was last written.
    pub fn modified(&self) -> Option<std::time::SystemTime> {
        let (seconds, ns) = (u64::try_from(self.stat.st_mtime).ok()?, u32::try_from(self.stat.st_mtime_nsec).ok()?);
        std::time::UNIX_EPOCH.checked_add(std::time::Duration::new(seconds, ns))
    }

    /// A path by which libbpf opens this very object.
    pub fn object(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd()).into()
    }

    /// Opens the map, program or link that is pinned in this file.
    pub fn get(&self) -> io::Result<OwnedFd> {
        let path = CString::new(self.object().into_os_string().into_encoded_bytes())?;
        // SAFETY: the string ends in 0.
        match unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) } {
            // SAFETY: the call has just opened it.
            fd if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }

    /// Its descriptor.
    pub fn held(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Its path, for people.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn check(&self) -> Result<(), Error> {
        check_private(&self.path, &self.stat)
    }

    /// Opens it for reading, if it is a directory.
    fn open(self) -> Result<Option<Dir>, Error> {
        if self.kind() != FileType::Directory {
            return Ok(None);
        }
        self.check()?;
        Dir::open(self.fd.as_fd(), self.path).map(Some)
    }
}

/// See the module.
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

impl Dir {
    /// Opens a directory for reading that is already held open, but not for reading.
    pub fn open(held: BorrowedFd<'_>, path: PathBuf) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = step(held, OsStr::new("."), flags, STEP).map_err(|e| broken(&path, e))?;
        Ok(Self { fd, path })
    }

    /// The path at which it was opened, for people.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of an entry, for people.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Its device and inode, which identify it, and its owner and mode.
    pub fn stat(&self) -> Result<Stat, Error> {
        rustix::fs::fstat(&self.fd).map_err(|e| broken(&self.path, e))
    }

    /// Another descriptor of it, which can be locked separately.
    pub fn again(&self) -> Result<OwnedFd, Error> {
        Self::open(self.fd.as_fd(), self.path.clone()).map(|dir| dir.fd)
    }

    /// Whether both are the same directory.
    pub fn is(&self, other: &Self) -> Result<bool, Error> {
        let (own, other) = (self.stat()?, other.stat()?);
        Ok((own.st_dev, own.st_ino) == (other.st_dev, other.st_ino))
    }

    /// Makes this the directory `by`, which has this path now.
    pub fn replace(&self, by: &Self) -> Result<(), Error> {
        replace(&self.fd, by).map_err(|e| broken(&self.path, e))
    }

    /// Lets only its owner look into it.
    pub fn make_private(&self) -> Result<(), Error> {
        rustix::fs::fchmod(&self.fd, Mode::from_raw_mode(PRIVATE)).map_err(|e| broken(&self.path, e))
    }

    /// The names of its entries, sorted.
    pub fn names(&self) -> Result<Vec<String>, Error> {
        let failed = |e: Errno| broken(&self.path, e);
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd).map_err(failed)? {
            names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
        }
        names.retain(|name| name != "." && name != "..");
        names.sort();
        Ok(names)
    }

    /// The entry of this name, of any owner. `None`: there is no entry.
    pub fn find(&self, name: &str) -> Result<Option<Entry>, Error> {
        let path = self.path_of(name);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match step(self.fd.as_fd(), OsStr::new(name), flags, STEP) {
            Err(Errno::NOENT) => return Ok(None),
            fd => fd.map_err(|e| broken(&path, e))?,
        };
        let stat = rustix::fs::fstat(&fd).map_err(|e| broken(&path, e))?;
        Ok(Some(Entry { fd, path, stat }))
    }

    /// A pinned object. `None`: there is no entry, or an entry of another type.
    ///
    /// # Errors
    /// Also if an untrusted user owns it, or others can write it.
    pub fn pinned(&self, name: &str) -> Result<Option<Entry>, Error> {
        let Some(entry) = self.find(name)?.filter(|entry| entry.kind() == FileType::RegularFile) else {
            return Ok(None);
        };
        entry.check()?;
        Ok(Some(entry))
    }

    /// A directory in it. `None`: there is no entry, or an entry of another type.
    ///
    /// # Errors
    /// Also if an untrusted user owns it, or others can write it.
    pub fn dir(&self, name: &str) -> Result<Option<Self>, Error> {
        self.find(name)?.map_or(Ok(None), Entry::open)
    }

    /// A directory in it, which only its owner can look into. It is made if it is missing; an entry of this name that is no
    /// directory is removed.
    pub fn make(&self, name: &str) -> Result<Self, Error> {
        let path = self.path_of(name);
        if let Some(found) = self.dir(name)? {
            return Ok(found);
        }
        self.remove_tree(name, &mut Vec::new())?;
        rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(PRIVATE)).map_err(|e| broken(&path, e))?;
        self.dir(name)?.ok_or_else(|| broken(&path, Errno::NOTDIR))
    }

    /// The text of a symbolic link. `None`: there is no link, or an untrusted user owns it.
    pub fn link(&self, name: &str) -> Option<String> {
        let entry = self.find(name).ok()??;
        entry.check().ok()?;
        // An empty name stands for the link that is held open.
        let text = rustix::fs::readlinkat(&entry.fd, "", Vec::new()).ok()?;
        Some(text.to_string_lossy().into_owned())
    }

    /// Makes a symbolic link.
    pub fn make_link(&self, text: &str, name: &str) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(text, &self.fd, name)?)
    }

    /// Renames an entry. It replaces the entry that has the new name.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.fd, from, &self.fd, to)?)
    }

    /// Gives a file in this directory the time of another file.
    pub fn date(&self, name: &str, as_of: &Entry) -> io::Result<()> {
        let of = |seconds, ns: u64| Timespec { tv_sec: seconds, tv_nsec: i64::try_from(ns).unwrap_or(0) };
        let modified = of(as_of.stat.st_mtime, as_of.stat.st_mtime_nsec);
        let times = Timestamps { last_access: modified, last_modification: modified };
        Ok(rustix::fs::utimensat(&self.fd, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Pins an object under a name that is not taken.
    pub fn pin(&self, object: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        let path = CString::new(format!("/proc/self/fd/{}/{name}", self.fd.as_raw_fd()))?;
        // SAFETY: a descriptor, and a string that ends in 0.
        match unsafe { libbpf_sys::bpf_obj_pin(object.as_raw_fd(), path.as_ptr()) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }

    /// Removes a file, or a directory and all its content. A link is removed, but not its target.
    ///
    /// # Errors
    /// Also if there is a directory that an untrusted user owns, that others can write, or that a file system is mounted on.
    pub fn remove_tree(&self, name: &str, removed: &mut Vec<PathBuf>) -> Result<(), Error> {
        let Some(entry) = self.find(name)? else { return Ok(()) };
        let path = entry.path.clone();
        let done = match entry.open()? {
            Some(dir) => {
                for name in dir.names()? {
                    dir.remove_tree(&name, removed)?;
                }
                rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)
            }
            None => rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()),
        };
        done.map_err(|e| broken(&path, e))?;
        removed.push(path);
        Ok(())
    }
}

/// Makes a descriptor refer to another file.
pub fn replace(fd: &OwnedFd, by: &impl AsFd) -> io::Result<()> {
    // SAFETY: the owner keeps the number; the call closes the previous file.
    match unsafe { libc::dup3(by.as_fd().as_raw_fd(), fd.as_raw_fd(), libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
