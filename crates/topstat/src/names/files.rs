// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounded reading of other programs' files: no link is followed below a base, only regular files are read, and sizes and
//! numbers of entries have limits.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{Dir, FileType, Mode, OFlags, Stat};

/// The largest file that is read. A container's configuration has some 10 KiB, the list of a host's containers 1 KiB for each.
pub const MAX_FILE: u64 = 4 << 20;
/// The most entries of a directory that are read. Kubernetes recommends at most 110 pods on a host.
pub const MAX_ENTRIES: usize = 4096;

/// The state of a file or directory by which a change is noticed: device, inode, size, and time of change (s, ns).
pub type Stamp = [i64; 5];

/// The stamp of an entry, found without following links.
pub fn stamp(base: &Path, below: &Path) -> io::Result<Stamp> {
    let entry = walk(base, below, OFlags::PATH)?;
    Ok(stamp_of(&rustix::fs::fstat(entry)?))
}

#[expect(clippy::cast_possible_wrap, reason = "compared for equality only")]
fn stamp_of(stat: &Stat) -> Stamp {
    [stat.st_dev as i64, stat.st_ino as i64, stat.st_size, stat.st_mtime, stat.st_mtime_nsec as i64]
}

/// The content of a regular file.
///
/// # Errors
/// I/O errors; also if it is larger than [`MAX_FILE`].
pub fn read(base: &Path, below: &Path) -> io::Result<Vec<u8>> {
    let file = walk(base, below, OFlags::RDONLY)?;
    let stat = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is not a regular file"));
    }
    read_all(file)
}

/// The content of a file of `/proc`, which has no size.
///
/// # Errors
/// As [`read`].
pub fn read_all(file: OwnedFd) -> io::Result<Vec<u8>> {
    let mut content = vec![];
    std::fs::File::from(file).take(MAX_FILE + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_FILE {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    Ok(content)
}

/// The names of a directory's first [`MAX_ENTRIES`] entries that are UTF-8.
///
/// # Errors
/// I/O errors of the directory.
pub fn names(base: &Path, below: &Path) -> io::Result<Vec<String>> {
    let directory = walk(base, below, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let entries = Dir::new(directory)?.take(MAX_ENTRIES + 2);
    let name = |entry: rustix::io::Result<rustix::fs::DirEntry>| {
        entry.ok()?.file_name().to_str().ok().filter(|name| !matches!(*name, "." | "..")).map(str::to_owned)
    };
    Ok(entries.filter_map(name).collect())
}

/// Opens an entry below a base, one name at a time. The base may be a link: an administrator moves such directories.
fn walk(base: &Path, below: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(base, directory, Mode::empty())?;
    let names: Vec<&OsStr> = below.components().map(normal).collect::<io::Result<_>>()?;
    let Some((last, above)) = names.split_last() else {
        return Ok(rustix::fs::openat(at.as_fd(), ".", flags | OFlags::CLOEXEC, Mode::empty())?);
    };
    for name in above {
        at = rustix::fs::openat(at.as_fd(), *name, directory | OFlags::NOFOLLOW, Mode::empty())?;
    }
    // A reader of a FIFO would wait without NONBLOCK.
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(rustix::fs::openat(at.as_fd(), *last, flags, Mode::empty())?)
}

fn normal(component: Component<'_>) -> io::Result<&OsStr> {
    match component {
        Component::Normal(name) => Ok(name),
        _ => Err(io::Error::from(io::ErrorKind::InvalidInput)),
    }
}
