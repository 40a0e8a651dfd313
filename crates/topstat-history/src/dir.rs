// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The directory of a history, held open, and the files below it.
//!
//! A recorder may run as root, and other users may have been able to put entries below its directory. So each path is walked
//! from a descriptor, one name at a time, and no symbolic link below the directory is followed. A writer also checks each
//! directory and file that it opens: the owner is root or the user of this process, and no other user may write to it.
//!
//! cap-std is not used, since it follows links inside a directory.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::Error;

/// Records show connections of all users: only the owner of the file reads them.
const PRIVATE_DIR: Mode = Mode::from_raw_mode(0o700);
/// As [`PRIVATE_DIR`].
const PRIVATE_FILE: Mode = Mode::from_raw_mode(0o600);
/// Users other than the owner may write.
const OTHERS_WRITE: u32 = 0o022;
/// Of a directory: only owners may rename or remove the entries.
const STICKY: u32 = 0o1000;

/// A directory that is held open. Clones share the descriptor.
#[derive(Clone, Debug)]
pub struct Root {
    fd: Arc<OwnedFd>,
    path: PathBuf,
    /// Whether owners and modes are checked.
    guarded: bool,
}

impl Root {
    /// Opens a directory for reading. Any user may own it.
    ///
    /// # Errors
    ///
    /// I/O errors of the directory.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| Error::of("read", path)(e.into()))?;
        Ok(Self { fd: Arc::new(fd), path: path.to_owned(), guarded: false })
    }

    /// Opens a directory for writing. The path to it is not checked.
    ///
    /// # Errors
    ///
    /// I/O errors of the directory; also if other users own it or may write to it.
    pub fn guarded(path: &Path) -> Result<Self, Error> {
        let root = Self { guarded: true, ..Self::open(path)? };
        let stat = rustix::fs::fstat(&root.fd).map_err(|e| Error::of("open", path)(e.into()))?;
        check(&stat).map_err(Error::of("write to", path))?;
        Ok(root)
    }

    /// Opens a directory for writing, and makes it if it is missing.
    ///
    /// # Errors
    ///
    /// As [`Root::guarded`]; also if other users could exchange a directory on the path, or if one is a symbolic link.
    pub fn make(path: &Path) -> Result<Self, Error> {
        let path = std::path::absolute(path).map_err(Error::of("make", path))?;
        let mut at = PathBuf::from("/");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut fd = rustix::fs::open(&at, flags, Mode::empty()).map_err(|e| Error::of("open", &at)(e.into()))?;
        for component in path.components() {
            let name = match component {
                Component::Normal(name) => name,
                Component::ParentDir => {
                    let why = "it has '..' in it: name the directory without";
                    return Err(Error::of("make", &path)(io::Error::new(io::ErrorKind::InvalidInput, why)));
                }
                _ => continue,
            };
            check_above(fd.as_fd()).map_err(Error::of("write below", &at))?;
            at.push(name);
            fd = step_or_make(fd.as_fd(), name).map_err(Error::of("make", &at))?;
        }
        let stat = rustix::fs::fstat(&fd).map_err(|e| Error::of("open", &path)(e.into()))?;
        check(&stat).map_err(Error::of("write to", &path))?;
        Ok(Self { fd: Arc::new(fd), path, guarded: true })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The paths in a directory below this one, in no order. A missing directory has no paths in it.
    ///
    /// # Errors
    ///
    /// I/O errors of the directory.
    pub fn entries(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.each_entry(dir, |_, name| Ok(Some(dir.join(name))))
    }

    /// The paths in a directory with their stats, in no order. A link is not followed. An entry that is removed while they are
    /// listed is left out.
    ///
    /// # Errors
    ///
    /// I/O errors of the directory, and of its entries.
    pub fn stats(&self, dir: &Path) -> io::Result<Vec<(PathBuf, Stat)>> {
        self.each_entry(dir, |fd, name| match rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some((dir.join(name), stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        })
    }

    /// The results of `each` for the names in a directory, which is opened only once for all of them.
    fn each_entry<T>(
        &self,
        dir: &Path,
        each: impl Fn(BorrowedFd<'_>, &OsStr) -> io::Result<Option<T>>,
    ) -> io::Result<Vec<T>> {
        let fd = match self.walk(dir, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            fd => fd?,
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = rustix::fs::openat(&fd, ".", flags, Mode::empty())?;
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::new(listed)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                found.extend(each(fd.as_fd(), <OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name))?);
            }
        }
        Ok(found)
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// I/O errors of the file; also if it is not a regular file.
    pub fn read(&self, path: &Path) -> io::Result<fs::File> {
        self.file(path, OFlags::RDONLY)
    }

    /// Opens a file for reading and writing. A missing file is made, and its directory, too.
    ///
    /// # Errors
    ///
    /// As [`Root::read`].
    pub fn write(&self, path: &Path) -> io::Result<fs::File> {
        self.file(path, OFlags::RDWR | OFlags::CREATE)
    }

    /// Makes a file. It replaces a file of the same name.
    ///
    /// # Errors
    ///
    /// As [`Root::read`].
    pub fn create(&self, path: &Path) -> io::Result<fs::File> {
        match self.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.file(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    /// Whether an entry has this name.
    pub fn exists(&self, path: &Path) -> bool {
        self.stat(path).is_ok()
    }

    /// Whether a directory has this name. A link to a directory does not count.
    pub fn is_dir(&self, path: &Path) -> bool {
        self.stat(path).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    }

    /// The stat of the entry itself: a link is not followed.
    ///
    /// # Errors
    ///
    /// I/O errors of the file.
    pub fn stat(&self, path: &Path) -> io::Result<Stat> {
        let (dir, name) = self.place(path, false)?;
        Ok(rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Renames a file within its directory. It replaces a file that has the new name.
    ///
    /// # Errors
    ///
    /// I/O errors of the directory.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((dir, from), (_, to)) = (self.place(from, false)?, self.place(to, false)?);
        Ok(rustix::fs::renameat(&dir, from, &dir, to)?)
    }

    /// Renames a file within its directory, to a name that no file has yet.
    ///
    /// # Errors
    ///
    /// I/O errors of the directory; [`io::ErrorKind::AlreadyExists`].
    pub fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((dir, from), (_, to)) = (self.place(from, false)?, self.place(to, false)?);
        match rustix::fs::renameat_with(&dir, from, &dir, to, RenameFlags::NOREPLACE) {
            // Some file systems support no flags: the caller has checked that the name is free.
            Err(Errno::INVAL | Errno::NOSYS) => Ok(rustix::fs::renameat(&dir, from, &dir, to)?),
            done => Ok(done?),
        }
    }

    /// Gives a file a second name in the same directory.
    ///
    /// # Errors
    ///
    /// I/O errors of the directory; [`io::ErrorKind::AlreadyExists`].
    pub fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((dir, from), (_, to)) = (self.place(from, false)?, self.place(to, false)?);
        Ok(rustix::fs::linkat(&dir, from, &dir, to, AtFlags::empty())?)
    }

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// I/O errors of the directory.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.place(path, false)?;
        Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?)
    }

    /// Removes a directory, if it is empty.
    ///
    /// # Errors
    ///
    /// I/O errors of the directory.
    pub fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.place(path, false)?;
        Ok(rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?)
    }

    /// Brings the names in a file's directory to the disk.
    ///
    /// # Errors
    ///
    /// I/O errors of the directory.
    pub fn sync_names(&self, path: &Path) -> io::Result<()> {
        let (dir, _) = self.place(path, false)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::fsync(rustix::fs::openat(&dir, ".", flags, Mode::empty())?)?)
    }

    fn file(&self, path: &Path, flags: OFlags) -> io::Result<fs::File> {
        let (dir, name) = self.place(path, flags.contains(OFlags::CREATE))?;
        // A reader of a FIFO would wait without NONBLOCK.
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mode = if flags.contains(OFlags::CREATE) { PRIVATE_FILE } else { Mode::empty() };
        let fd = beneath(dir.as_fd(), name, flags, mode)?;
        let stat = rustix::fs::fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(refusal("it is not a regular file"));
        }
        if self.guarded {
            check(&stat)?;
        }
        Ok(fd.into())
    }

    /// The directory of a file, and the file's name in it.
    fn place<'p>(&self, path: &'p Path, make: bool) -> io::Result<(OwnedFd, &'p OsStr)> {
        let name = path.file_name().ok_or_else(|| refusal("it has no name"))?;
        Ok((self.walk(path.parent().unwrap_or(path), make)?, name))
    }

    /// Opens a directory below this one.
    fn walk(&self, dir: &Path, make: bool) -> io::Result<OwnedFd> {
        let below = dir.strip_prefix(&self.path).map_err(|_| refusal("it is not in the history"))?;
        let mut fd = self.fd.try_clone()?;
        for component in below.components() {
            let Component::Normal(name) = component else { return Err(refusal("it is not in the history")) };
            fd = if make { step_or_make(fd.as_fd(), name)? } else { step(fd.as_fd(), name)? };
            if self.guarded {
                check(&rustix::fs::fstat(&fd)?)?;
            }
        }
        Ok(fd)
    }
}

/// Opens the entry with this name. The name is a single component, so O_NOFOLLOW covers all links.
fn beneath(dir: BorrowedFd<'_>, name: &OsStr, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let opened = match rustix::fs::openat2(dir, name, flags, mode, resolve) {
        // systemd's RestrictSUIDSGID= refuses openat2, since a filter can't see its mode.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::openat(dir, name, flags | OFlags::NOFOLLOW, mode),
        opened => opened,
    };
    opened.map_err(|errno| match errno {
        Errno::LOOP => {
            refusal("it is a symbolic link, and none is followed: name the directory itself, or remove the link")
        }
        errno => errno.into(),
    })
}

fn step(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    beneath(dir, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn step_or_make(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    match step(dir, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match rustix::fs::mkdirat(dir, name, PRIVATE_DIR) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            step(dir, name)
        }
        opened => opened,
    }
}

fn refusal(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why.into())
}

fn check_owner(stat: &Stat) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    if stat.st_uid == 0 || stat.st_uid == own {
        return Ok(());
    }
    let trusted = if own == 0 { "root".to_owned() } else { format!("root or uid {own}") };
    Err(refusal(format!(
        "it belongs to uid {}, and not to {trusted}: name another directory, or chown it",
        stat.st_uid
    )))
}

/// Refuses an entry that other users own or may write to.
fn check(stat: &Stat) -> io::Result<()> {
    check_owner(stat)?;
    if stat.st_mode & OTHERS_WRITE != 0 {
        let mode = stat.st_mode & 0o7777;
        return Err(refusal(format!(
            "others than its owner may write to it (mode {mode:04o}): remove what is not topstat's, then chmod go-w"
        )));
    }
    Ok(())
}

/// Refuses a directory whose entries other users could exchange. With the sticky bit, only the owner of an entry can.
fn check_above(dir: BorrowedFd<'_>) -> io::Result<()> {
    let stat = rustix::fs::fstat(dir)?;
    check_owner(&stat)?;
    if stat.st_mode & OTHERS_WRITE != 0 && stat.st_mode & STICKY == 0 {
        return Err(refusal(format!(
            "others may write to it (mode {:04o}), and exchange what is below: use a directory below root's alone",
            stat.st_mode & 0o7777
        )));
    }
    Ok(())
}
