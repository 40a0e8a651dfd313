// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network namespaces and their names.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use topstat_model::names::container;

use topstat_kernel::Error;

/// The word for every namespace, or every device.
pub(super) const ALL: &str = "all";
/// The directory in which `ip netns` keeps namespaces.
const NAMED: &str = "/run/netns";
/// The directory of a process in the host's namespace.
pub(super) const FIRST_PROCESS: &str = "/proc/1";
/// Digits of a container's id that are shown: the number that container engines show.
const ID_DIGITS: usize = 12;

/// A selection of namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Netns {
    /// The namespace that this process is in.
    #[default]
    Own,
    /// The host's namespace: the first that the kernel has made.
    Host,
    /// The namespace with this inode.
    Inode(u32),
    /// All namespaces.
    All,
}

/// The inode of the namespace that this process is in.
///
/// # Errors
/// When `/proc` is not mounted.
pub fn own_netns() -> Result<u32, Error> {
    inode(Path::new("/proc/thread-self/ns/net"))
        .map_err(|e| Error::Kernel { what: "find the own network namespace".to_owned(), why: e.to_string() })
}

/// The inode of a namespace, by a file of the namespace.
pub(super) fn inode(path: &Path) -> io::Result<u32> {
    let inode = fs::metadata(path)?.ino();
    u32::try_from(inode).map_err(|_| io::Error::other("not a namespace"))
}

/// The names of namespaces, and ways to enter them.
#[derive(Debug, Default)]
pub struct Names {
    /// By inode: the name that `ip netns` gives.
    named: BTreeMap<u32, String>,
    /// By inode: the process with the smallest id in the namespace.
    processes: BTreeMap<u32, u32>,
}

/// Finds the namespace that a user names. `all` means all namespaces.
///
/// # Errors
/// When no namespace has this name.
pub fn find_netns(text: &str) -> Result<Netns, Error> {
    if text == ALL {
        return Ok(Netns::All);
    }
    let found = Names::read().find(text).ok_or_else(|| {
        Error::Option(format!(
            "there is no network namespace {text}: give a name of 'ip netns', pid:PID, a path, a container's id or an \
             inode"
        ))
    })?;
    Ok(Netns::Inode(found))
}

impl Names {
    /// Reads `/run/netns` and all processes.
    pub fn read() -> Self {
        let mut names = Self::default();
        for entry in fs::read_dir(NAMED).into_iter().flatten().flatten() {
            // A file that remains after its namespace was removed is in another file system, with other inodes.
            if let Ok(inode) = inode(&entry.path())
                && is_namespace(&entry.path())
            {
                names.named.entry(inode).or_insert_with(|| entry.file_name().to_string_lossy().into_owned());
            }
        }
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            if let Ok(inode) = inode(&entry.path().join("ns/net")) {
                let first = names.processes.entry(inode).or_insert(pid);
                *first = pid.min(*first);
            }
        }
        names
    }

    /// Whether no names were read yet.
    pub fn are_unknown(&self) -> bool {
        self.named.is_empty() && self.processes.is_empty()
    }

    /// The name of a namespace: its name in `ip netns`, else the container of its first process, else that process.
    pub fn of(&self, inode: u32) -> Option<String> {
        if let Some(name) = self.named.get(&inode) {
            return Some(name.clone());
        }
        let pid = self.processes.get(&inode)?;
        let paths = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let id = paths.lines().filter_map(|line| line.splitn(3, ':').nth(2)).find_map(container);
        if let Some(id) = id {
            return Some(format!("container {}", id.get(..ID_DIGITS).unwrap_or(id)));
        }
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Some(format!("pid {pid} {}", comm.trim_end()).trim_end().to_owned())
    }

    /// Finds a namespace by its name in `ip netns`, a pid (`pid:4242`), a path (`/proc/4242/ns/net`), a container's id or the
    /// beginning of one, or an inode.
    pub fn find(&self, text: &str) -> Option<u32> {
        if let Some((inode, _)) = self.named.iter().find(|(_, name)| *name == text) {
            return Some(*inode);
        }
        if let Some(pid) = text.strip_prefix("pid:") {
            return inode(Path::new(&format!("/proc/{}/ns/net", pid.parse::<u32>().ok()?))).ok();
        }
        if text.starts_with('/') {
            return inode(Path::new(text)).ok().filter(|_| is_namespace(Path::new(text)));
        }
        if let Ok(inode) = text.parse::<u32>() {
            // Inodes of namespaces are far above any pid: the kernel's first is 0xF0000000.
            return Some(inode).filter(|inode| *inode >= FIRST_INODE);
        }
        let is_id = |text: &str| text.len() >= ID_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let text = Some(text).filter(|text| is_id(text))?;
        let of_container = |pid: &u32| {
            let paths = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            paths
                .lines()
                .filter_map(|line| line.splitn(3, ':').nth(2))
                .filter_map(container)
                .any(|id| id.starts_with(text))
        };
        self.processes.iter().find(|(_, pid)| of_container(pid)).map(|(inode, _)| *inode)
    }

    /// All known namespaces, and where `/proc` shows each: a process's `net`. A namespace without processes can only be entered.
    pub fn known(&self) -> HashMap<u32, Entry> {
        let mut known: HashMap<u32, Entry> = HashMap::new();
        for (inode, name) in &self.named {
            known.insert(*inode, Entry::File(Path::new(NAMED).join(name)));
        }
        for (inode, pid) in &self.processes {
            known.insert(*inode, Entry::Process(*pid));
        }
        known
    }
}

/// The lowest inode of a namespace. Inodes begin at PROC_DYNAMIC_FIRST (fs/proc/generic.c); the host's are just below
/// (`linux/nsfs.h`).
const FIRST_INODE: u32 = 0xEFFF_FFF8;

/// A way to read a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A process that is in it.
    Process(u32),
    /// A file on which it is mounted.
    File(PathBuf),
    /// A directory that shows its `net`.
    Shown(PathBuf),
}

impl Entry {
    /// Calls `look` with the directory in which `/proc` shows the namespace; if necessary, in a thread that has entered the
    /// namespace.
    pub fn with<T: Send>(&self, look: impl FnOnce(&Path) -> io::Result<T> + Send) -> io::Result<T> {
        let path = match self {
            Self::Process(pid) => return look(Path::new(&format!("/proc/{pid}/net"))),
            Self::Shown(path) => return look(path),
            Self::File(path) => path,
        };
        let namespace = File::open(path)?;
        let inside = || {
            use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
            use std::os::fd::AsFd as _;
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            look(Path::new("/proc/thread-self/net"))
        };
        // The thread ends in the namespace that it has entered. No other thread changes its namespace.
        std::thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|_| Err(io::Error::other("the thread that entered the namespace has failed")))
    }
}

/// Whether a file is a namespace: it is on nsfs.
fn is_namespace(path: &Path) -> bool {
    let own = fs::metadata("/proc/self/ns/net").map(|own| own.dev());
    own.is_ok_and(|own| fs::metadata(path).is_ok_and(|file| file.dev() == own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_namespace_is_found_by_every_name() {
        let own = own_netns().unwrap();
        let names = Names::read();
        let pid = std::process::id();
        assert_eq!(names.find(&format!("pid:{pid}")), Some(own));
        assert_eq!(names.find("/proc/self/ns/net"), Some(own));
        assert_eq!(names.find(&own.to_string()), Some(own));
        assert!(names.of(own).is_some());
        for unknown in ["", "pid:", "pid:x", "/proc/self/status", "4242", "no such namespace", "pid:4294967295"] {
            assert_eq!(names.find(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn a_process_shows_its_namespace() {
        let own = own_netns().unwrap();
        let entry = Names::read().known().remove(&own).unwrap();
        let text = entry.with(|net| fs::read_to_string(net.join("snmp"))).unwrap();
        assert!(text.starts_with("Ip: "), "{text}");
    }
}
