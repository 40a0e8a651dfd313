// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lets one daemon run at a time. A file with the daemon's pid is locked as long as the daemon runs. Only the lock counts: a file
//! that a killed daemon has left stops no other daemon.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The lock. The drop of this value removes the file.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    _file: File,
}

/// Why the lock can't be taken.
#[derive(Debug, thiserror::Error)]
pub enum NoLock {
    /// Another daemon runs.
    #[error("a daemon runs already{}; stop it first, or talk to it (topstat top, get, set)", with_pid(.0))]
    Running(Option<u32>),
    /// The file can't be opened, locked or checked.
    #[error("cannot lock {}: {source}{}", .path.display(), advice(.source))]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        // Not even an empty file can be made.
        io::ErrorKind::StorageFull => "; make room there, or name another file with --pid-file",
        io::ErrorKind::PermissionDenied => "; run as root, or name another file with --pid-file",
        _ => "",
    }
}

fn with_pid(pid: &Option<u32>) -> String {
    pid.map(|pid| format!(", pid {pid}")).unwrap_or_default()
}

impl Lock {
    /// Takes the lock.
    ///
    /// # Errors
    ///
    /// See [`NoLock`].
    pub fn take(path: &Path) -> Result<Self, NoLock> {
        let failed = |source| NoLock::Io { path: path.to_owned(), source };
        loop {
            let mut file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o644)
                // A link in place of the file must not make root write to another file.
                .custom_flags(libc::O_NOFOLLOW)
                .open(path)
                .map_err(failed)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(NoLock::Running(pid(&mut file))),
                Err(errno) => return Err(failed(errno.into())),
            }
            // A daemon that has just ended may have removed the file between `open` and `flock`.
            let (ours, there) = (file.metadata().map_err(failed)?, path.symlink_metadata());
            if !there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
                continue;
            }
            // Only the lock counts. The text is a help, and a full file system may have no room for it.
            let written = file.set_len(0).and_then(|()| file.rewind());
            if let Err(error) = written.and_then(|()| writeln!(file, "{}", std::process::id())) {
                log::warn!("cannot write the pid to {}: {error}; it is locked all the same", path.display());
            }
            return Ok(Self { path: path.to_owned(), _file: file });
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The file is still locked, so it can't be the file of another daemon.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The pid in the file, written by the daemon that holds the lock.
fn pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The path of a file that does not exist.
    fn path(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("topstat-lock-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn a_second_daemon_is_told_the_pid_of_the_first() {
        let path = path("second");
        let first = Lock::take(&path).unwrap();
        let error = Lock::take(&path).unwrap_err().to_string();
        let pid = std::process::id();
        assert_eq!(
            error,
            format!("a daemon runs already, pid {pid}; stop it first, or talk to it (topstat top, get, set)")
        );
        drop(first);
        assert!(!path.exists());
        drop(Lock::take(&path).unwrap());
    }

    #[test]
    fn a_file_that_was_left_behind_means_nothing() {
        let path = path("stale");
        for left in ["1\n", "", "not a pid, and longer than what the new one writes\n"] {
            std::fs::write(&path, left).unwrap();
            let lock = Lock::take(&path).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
            drop(lock);
        }
    }

    #[test]
    fn what_can_not_be_locked_is_told() {
        let error = Lock::take(Path::new("/nonexistent/topstat.pid")).unwrap_err().to_string();
        assert_eq!(error, "cannot lock /nonexistent/topstat.pid: No such file or directory (os error 2)");
        let path = path("link");
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert!(matches!(Lock::take(&path), Err(NoLock::Io { .. })));
        std::fs::remove_file(&path).unwrap();
    }
}
