// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What this process has in the kernel's eBPF: by its own descriptors, so that another topstat on the host is not taken
//! for it; and whether it is still there.

use std::collections::BTreeSet;
use std::path::Path;

use libbpf_rs::query::{LinkInfoIter, MapInfoIter, ProgInfoIter};

/// The ids of eBPF objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Ids {
    pub programs: BTreeSet<u32>,
    pub maps: BTreeSet<u32>,
    pub links: BTreeSet<u32>,
}

impl Ids {
    /// Those that a process holds descriptors of.
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

    /// Those of this process.
    pub fn own() -> Self {
        Self::of_process("self")
    }

    /// Those that are still in the kernel, whoever holds them.
    #[must_use]
    pub fn left(&self) -> Self {
        let programs = ProgInfoIter::default().map(|p| p.id).filter(|id| self.programs.contains(id)).collect();
        let maps = MapInfoIter::default().map(|m| m.id).filter(|id| self.maps.contains(id)).collect();
        let links = LinkInfoIter::default().map(|l| l.id).filter(|id| self.links.contains(id)).collect();
        Self { programs, maps, links }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty() && self.maps.is_empty() && self.links.is_empty()
    }
}

/// What is pinned, where eBPF objects are pinned by convention.
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
