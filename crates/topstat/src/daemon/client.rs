// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How other commands reach the daemon's state. If a tree is mounted, they go through the tree, which needs only access to it.
//! Otherwise they go through the pins, which needs no running daemon.

use std::borrow::Cow;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::mount;
use super::probe::{self, Answer};
use super::statistics::Statistics;
use super::tree::value::Setting;
use super::tree::{File, Kind, Tree};
use crate::aside::{Documents, read_all};
use crate::backend::Backend;
use crate::error::Error;

/// A tree with all known samples.
pub fn catalogue() -> Tree {
    Tree::new(&topstat_families::catalogue().samples())
}

/// A path below the root. The given path may begin with the mount point, as a shell completes it.
pub fn within<'a>(mount: &Path, path: &'a str) -> &'a str {
    let below = mount.to_str().and_then(|mount| path.strip_prefix(mount.trim_end_matches('/')));
    below.filter(|below| below.is_empty() || below.starts_with('/')).unwrap_or(path)
}

/// The way to the daemon's state.
pub enum Client {
    /// Through the files of the daemon's tree, which is mounted at this path.
    Tree(PathBuf),
    /// Through the files of another tree (`--root`).
    Files(PathBuf),
    /// Through the pinned state.
    Pinned(Statistics),
}

impl Client {
    /// Finds the way to the daemon's state.
    ///
    /// # Errors
    ///
    /// When no daemon runs and nothing is pinned, and when a daemon's tree is mounted but does not answer.
    pub fn reach(mount: &Path, pins: &Path, backend: &mut dyn Backend) -> Result<Self, Error> {
        if mount::is_tree(mount) {
            match probe::ask(mount) {
                Ok(Answer::Alive) => return Ok(Self::Tree(mount.to_owned())),
                // A tree that a killed daemon has left.
                Ok(Answer::Dead) => {}
                Ok(Answer::None) => return Err(Error::Daemon(mount::silent(mount))),
                Err(source) => return Err(Error::System { what: "ask the daemon", source }),
            }
        }
        let mut states = Vec::new();
        for family in topstat_families::catalogue().families() {
            states.extend(backend.open(pins, &family)?);
        }
        if states.is_empty() {
            return Err(Error::Daemon(format!(
                "no daemon has its tree at {}, and none has pinned anything at {}: start one with topstat daemon",
                mount.display(),
                pins.display()
            )));
        }
        Ok(Self::Pinned(Statistics::new(states, 1, None)))
    }

    /// The text of a file.
    ///
    /// # Errors
    ///
    /// When the file can't be read.
    pub fn read(&self, file: &File) -> Result<Vec<u8>, Error> {
        match (self, file.kind) {
            (Self::Tree(root) | Self::Files(root), _) => {
                let path = root.join(file.path());
                let read = fs::File::open(&path).and_then(|file| read_all(&file, usize::MAX));
                read.map_err(|error| self.failed("read", &path, &error))
            }
            (Self::Pinned(_), Kind::Own | Kind::OwnJson) => {
                Err(Error::Daemon("self is what the running daemon costs, and none runs".to_owned()))
            }
            (Self::Pinned(statistics), _) => Ok(statistics.text(file)?),
        }
    }

    /// The document of a table. A file of the daemon's tree stays open in `documents`, so that the next reading is one request to the
    /// daemon.
    ///
    /// # Errors
    ///
    /// When the file can't be read.
    pub fn document<'d>(&self, file: &File, documents: &'d mut Documents) -> Result<Cow<'d, [u8]>, Error> {
        let Self::Tree(root) = self else { return self.read(file).map(Cow::Owned) };
        let path = root.join(file.path());
        let read = documents.read(&path, usize::MAX);
        read.map(Cow::Borrowed).map_err(|error| self.failed("read", &path, &error))
    }

    /// Whether there is such a file: its sample is loaded. A file that can't be looked at is taken to be there, and reading it
    /// gives the reason.
    pub fn has(&self, file: &File) -> bool {
        match self {
            Self::Tree(root) | Self::Files(root) => {
                let found = root.join(file.path()).symlink_metadata();
                !found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
            }
            Self::Pinned(statistics) => statistics.has(&file.place),
        }
    }

    /// The text of a file; `None` if its sample is not loaded.
    ///
    /// # Errors
    ///
    /// See [`Client::read`].
    pub fn read_if_there(&self, file: &File) -> Result<Option<Vec<u8>>, Error> {
        if self.has(file) { self.read(file).map(Some) } else { Ok(None) }
    }

    /// Sets a value.
    ///
    /// # Errors
    ///
    /// When the value is refused.
    pub fn write(&self, file: &File, setting: Setting, value: u32) -> Result<(), Error> {
        match self {
            Self::Tree(root) | Self::Files(root) => {
                let path = root.join(file.path());
                let line = format!("{value}\n");
                let written =
                    fs::File::options().write(true).open(&path).and_then(|mut file| file.write_all(line.as_bytes()));
                written.map_err(|error| self.failed("set", &path, &error))
            }
            Self::Pinned(statistics) => Ok(statistics.set(&file.place, setting, value)?),
        }
    }

    fn failed(&self, what: &str, path: &Path, error: &io::Error) -> Error {
        let of_daemon = matches!(self, Self::Tree(_));
        let path = path.display();
        Error::Daemon(match error.kind() {
            io::ErrorKind::PermissionDenied if what == "set" => {
                format!("cannot set {path}: {error}: only root may set anything")
            }
            io::ErrorKind::PermissionDenied => {
                let group = if of_daemon { ", or join the group that the daemon is configured with" } else { "" };
                format!("permission denied: cannot read {path}: run as root{group}")
            }
            io::ErrorKind::NotFound if of_daemon => {
                format!("cannot {what} {path}: {error}: the daemon has not loaded that sample (its log says why)")
            }
            _ => format!("cannot {what} {path}: {error}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::tree::Entry;

    /// A file that may not be read is there. Only a missing file is not.
    #[test]
    fn a_file_that_cannot_be_looked_up_is_an_error() {
        let tree = catalogue();
        let Entry::File(file) = &tree.find("tcp_v4/conns_pps/type").unwrap().entry else { panic!("it is a file") };
        assert!(matches!(Client::Tree("/nonexistent".into()).read_if_there(file), Ok(None)));
        // No directory: the look-up fails for another reason, also for root.
        assert!(Client::Tree("/proc/self/status".into()).read_if_there(file).is_err());
        let denied = |client: Client| client.failed("read", Path::new("/t/x"), &io::ErrorKind::PermissionDenied.into());
        assert_eq!(
            denied(Client::Tree("/t".into())).to_string(),
            "permission denied: cannot read /t/x: run as root, or join the group that the daemon is configured with"
        );
        assert_eq!(denied(Client::Files("/t".into())).to_string(), "permission denied: cannot read /t/x: run as root");
    }

    #[test]
    fn a_path_may_begin_with_the_mount_point() {
        for (path, below) in [
            ("/run/topstat/tcp_v4/enabled", "/tcp_v4/enabled"),
            ("/run/topstat", ""),
            ("/run/topstat/", "/"),
            ("tcp_v4/enabled", "tcp_v4/enabled"),
            ("/run/topstat2/enabled", "/run/topstat2/enabled"),
        ] {
            assert_eq!(within(Path::new("/run/topstat"), path), below);
            assert_eq!(within(Path::new("/run/topstat/"), path), below);
        }
    }
}
