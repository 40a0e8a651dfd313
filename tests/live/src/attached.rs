// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The eBPF objects of this process, found by its descriptors, so that objects of another topstat on the host do not count;
//! and whether they still exist. Also programs that are detached and attached again without a new load.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::Path;

use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, ProgInfoIter};
use libbpf_rs::{Link, MapCore as _, MapHandle, Program};

use crate::{Nest, cgroup};

/// How often the kernel has skipped programs whose names begin with `name`: because the program was interrupted by its own
/// event, and since 7.0 because a thread was preempted in the program and another thread on that CPU met the event.
pub fn runs_missed(name: &str) -> u64 {
    let those = ProgInfoIter::default().filter(|program| program.name.to_string_lossy().starts_with(name));
    those.map(|program| program.recursion_misses).sum()
}

/// The ids of all maps in the kernel. No map is opened: each time that an array of programs loses its last user, the kernel takes a
/// reference and queues the work that drops it, and leaks the reference if the work is still queued from the time before
/// (`prog_array_map_clear`, seen on 6.18). So a map that is opened and closed while its end is under way may stay for ever.
pub fn maps() -> BTreeSet<u32> {
    let next = |before: &u32| {
        let mut id = 0;
        // SAFETY: the call writes a number to `id`.
        (unsafe { libbpf_sys::bpf_map_get_next_id(*before, &mut id) } == 0).then_some(id)
    };
    std::iter::successors(next(&0), next).collect()
}

/// The ids of eBPF objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Ids {
    pub programs: BTreeSet<u32>,
    pub maps: BTreeSet<u32>,
    pub links: BTreeSet<u32>,
}

impl Ids {
    /// The objects that a process holds descriptors of.
    pub fn of_process(pid: &str) -> Self {
        let mut ids = Self::default();
        let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return ids };
        for entry in entries.flatten() {
            let Ok(text) = std::fs::read_to_string(entry.path()) else { continue };
            for line in text.lines() {
                let Some((name, value)) = line.split_once(':') else { continue };
                let Ok(id) = value.trim().parse() else { continue };
                match name {
                    "prog_id" => ids.programs.insert(id),
                    "map_id" => ids.maps.insert(id),
                    "link_id" => ids.links.insert(id),
                    _ => continue,
                };
            }
        }
        ids
    }

    /// The objects that this process holds descriptors of.
    pub fn own() -> Self {
        Self::of_process("self")
    }

    /// The map with this name.
    pub fn map(&self, name: &str) -> Option<MapHandle> {
        let named = |id: &u32| MapHandle::from_map_id(*id).ok().filter(|map| map.name() == name);
        self.maps.iter().find_map(named)
    }

    /// The objects that still exist in the kernel, held by any process.
    #[must_use]
    pub fn left(&self) -> Self {
        let programs = ProgInfoIter::default().map(|p| p.id).filter(|id| self.programs.contains(id)).collect();
        let maps = maps().intersection(&self.maps).copied().collect();
        let links = LinkInfoIter::default().map(|l| l.id).filter(|id| self.links.contains(id)).collect();
        Self { programs, maps, links }
    }

    /// The names of the programs at the links, one for each link; the kernel keeps 15 bytes of a name.
    pub fn attached(&self) -> Vec<String> {
        let programs: HashMap<u32, String> =
            ProgInfoIter::default().map(|p| (p.id, p.name.to_string_lossy().into_owned())).collect();
        let links = LinkInfoIter::default().filter(|link| self.links.contains(&link.id));
        links.filter_map(|link| programs.get(&link.prog_id).cloned()).collect()
    }

    /// Whether the sets are empty.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty() && self.maps.is_empty() && self.links.is_empty()
    }
}

/// The paths below the folder in which eBPF objects are pinned by convention.
pub fn pinned() -> BTreeSet<std::path::PathBuf> {
    fn walk(folder: &Path, found: &mut BTreeSet<std::path::PathBuf>) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        for path in entries.flatten().map(|e| e.path()) {
            if path.is_dir() {
                walk(&path, found);
            }
            found.insert(path);
        }
    }
    let mut found = BTreeSet::new();
    walk(Path::new("/sys/fs/bpf"), &mut found);
    found
}

/// The programs of a nest, and where each program was attached.
pub struct Programs {
    programs: Vec<(OwnedFd, Option<u32>)>,
    root: File,
}

impl Programs {
    /// Detaches all attached programs.
    pub fn detach(nest: &Nest) -> Self {
        let (links, programs) = (nest.family().join("links"), nest.family().join("programs"));
        let detach = |link: std::fs::DirEntry| {
            let info = Link::open(link.path()).and_then(|link| link.info()).expect("ask a link what it is");
            let at = match info.info {
                LinkTypeInfo::Cgroup(cgroup) => Some(cgroup.attach_type as u32),
                _ => None,
            };
            let program = Program::fd_from_pinned_path(programs.join(link.file_name())).expect("open its program");
            std::fs::remove_file(link.path()).expect("unpin a link");
            (program, at)
        };
        let links = std::fs::read_dir(links).expect("read the folder of links").map(|link| link.expect("a link"));
        let root = cgroup::v2_mount().expect("programs of cgroups are attached to one");
        Self { programs: links.map(detach).collect(), root: File::open(root).expect("open the root cgroup") }
    }

    /// Attaches the programs where they were, until the links are dropped.
    pub fn attach(&self) -> Vec<OwnedFd> {
        let attach = |(program, at): &(OwnedFd, Option<u32>)| {
            let (program, root) = (program.as_raw_fd(), self.root.as_raw_fd());
            // SAFETY: descriptors of a program and of a cgroup, no options; a program that was made for one tracepoint needs
            // no name of a tracepoint.
            let link = unsafe {
                match at {
                    Some(at) => libbpf_sys::bpf_link_create(program, root, *at, std::ptr::null()),
                    None => libbpf_sys::bpf_raw_tracepoint_open(std::ptr::null(), program),
                }
            };
            assert!(link >= 0, "attach a program: {}", std::io::Error::from_raw_os_error(-link));
            // SAFETY: the call has made the descriptor, which has no other owner.
            unsafe { OwnedFd::from_raw_fd(link) }
        };
        self.programs.iter().map(attach).collect()
    }
}
