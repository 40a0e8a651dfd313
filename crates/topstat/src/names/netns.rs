// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of network namespaces.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use procfs::FromBufRead as _;
use procfs::process::MountInfos;

use super::files;

/// Mounts are read again after this time, if an unknown namespace is asked for.
const MOUNTS_EVERY: Duration = Duration::from_secs(2);
/// Processes are searched again after this time, if an unknown namespace is asked for. A search asks for the namespace of each
/// process, at some 2 µs.
const PROCESSES_EVERY: Duration = Duration::from_secs(10);
/// The processes that are searched, in the order of their numbers.
const MAX_PROCESSES: usize = 4096;
/// Where names that a person chose are: `ip netns add`.
const BY_HAND: &str = "/run/netns";
/// Names that programs make up: CNI's have a uuid.
const MADE_UP: &str = "cni-";

/// Why a network namespace has its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Space {
    /// The first process of the host lives in it.
    Host,
    /// `ip netns` knows it by this name.
    Named(String),
    /// A process of the control group of this path lives in it.
    Group(String),
    /// A process of this name lives in it, at the root of the control groups.
    Process(String),
    /// A runtime made this name up.
    MadeUp(String),
}

#[derive(Debug)]
pub struct Spaces {
    proc: PathBuf,
    host: Option<u64>,
    mounts: HashMap<u64, String>,
    mounts_at: Option<Instant>,
    /// By namespace, a process in it that has the lowest number.
    processes: HashMap<u64, u32>,
    processes_at: Option<Instant>,
}

impl Spaces {
    pub fn new(root: &Path) -> Self {
        Self {
            proc: root.join("proc"),
            host: None,
            mounts: HashMap::new(),
            mounts_at: None,
            processes: HashMap::new(),
            processes_at: None,
        }
    }

    /// The name of the namespace with this inode. `pid`: a process that may be in it, which saves the search.
    pub fn name(&mut self, inode: u64, pid: Option<u32>, now: Instant) -> Option<Space> {
        if self.host.is_none() {
            self.host = self.space_of(1);
        }
        if self.host == Some(inode) {
            return Some(Space::Host);
        }
        let due = |last: Option<Instant>, every| last.is_none_or(|last| now.saturating_duration_since(last) >= every);
        if !self.mounts.contains_key(&inode) && due(self.mounts_at, MOUNTS_EVERY) {
            self.mounts_at = Some(now);
            self.mounts = self.read_mounts().unwrap_or_default();
        }
        let mounted = self.mounts.get(&inode).cloned();
        if let Some(name) = mounted.clone().filter(|name| !name.starts_with(MADE_UP)) {
            return Some(Space::Named(name));
        }
        let hinted = pid.filter(|pid| self.space_of(*pid) == Some(inode));
        let known =
            hinted.or_else(|| self.processes.get(&inode).copied().filter(|pid| self.space_of(*pid) == Some(inode)));
        let pid = known.or_else(|| {
            if !due(self.processes_at, PROCESSES_EVERY) {
                return None;
            }
            self.processes_at = Some(now);
            self.processes = self.search().unwrap_or_default();
            self.processes.get(&inode).copied()
        });
        pid.and_then(|pid| self.tenant(pid)).or_else(|| mounted.map(Space::MadeUp))
    }

    fn read_mounts(&self) -> io::Result<HashMap<u64, String>> {
        // The mounts of the first process are the host's, where this process may see them.
        let open = |pid: &str| File::open(self.proc.join(pid).join("mountinfo"));
        let content = files::read_all(open("1").or_else(|_| open("self"))?.into())?;
        let mounts = MountInfos::from_buf_read(BufReader::new(&*content)).map_err(io::Error::other)?;
        let mut found = HashMap::new();
        for mount in mounts.0.iter().filter(|mount| mount.fs_type == "nsfs") {
            let inode = mount.root.strip_prefix("net:[").and_then(|root| root.strip_suffix(']')?.parse().ok());
            let by_hand = mount.mount_point.parent() == Some(Path::new(BY_HAND))
                || mount.mount_point.parent() == Some(Path::new("/var/run/netns"));
            let name = mount.mount_point.file_name().and_then(|name| name.to_str()).filter(|_| by_hand);
            if let (Some(inode), Some(name)) = (inode, name.filter(|name| !name.chars().any(char::is_control))) {
                found.insert(inode, name.to_owned());
            }
        }
        Ok(found)
    }

    /// The inode of a process's network namespace.
    fn space_of(&self, pid: u32) -> Option<u64> {
        let link = rustix::fs::readlink(self.proc.join(format!("{pid}/ns/net")), Vec::new()).ok()?;
        link.to_str().ok()?.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
    }

    fn search(&self) -> io::Result<HashMap<u64, u32>> {
        let mut pids: Vec<u32> =
            std::fs::read_dir(&self.proc)?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
        pids.sort_unstable();
        let mut found = HashMap::new();
        for pid in pids.into_iter().take(MAX_PROCESSES) {
            if let Some(inode) = self.space_of(pid) {
                found.entry(inode).or_insert(pid);
            }
        }
        Ok(found)
    }

    /// The control group of a process, or else its name.
    fn tenant(&self, pid: u32) -> Option<Space> {
        let read = |file: &str| {
            let content = files::read_all(File::open(self.proc.join(format!("{pid}/{file}"))).ok()?.into()).ok()?;
            String::from_utf8(content).ok()
        };
        // "ID:CONTROLLERS:PATH"; v2 has the id 0, and hosts with v1's controllers have the paths of containers in those.
        let groups = read("cgroup")?;
        let path = |controller: &str| {
            let line = groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
            line.filter(|(of, path)| of.split(',').any(|of| of == controller) && *path != "/")
                .map(|(_, path)| path)
                .next()
        };
        if let Some(path) = path("").or_else(|| path("memory")).or_else(|| path("pids")) {
            return Some(Space::Group(path.to_owned()));
        }
        let comm = read("comm")?;
        Some(Space::Process(comm.trim_end_matches('\n').to_owned())).filter(|_| !comm.trim().is_empty())
    }
}
