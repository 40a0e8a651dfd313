// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists the attached programs of topstat, by the kernel's own list of links. A pinned link keeps its program counting even if it
//! is not where topstat looks for it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use libbpf_rs::query::{LinkInfoIter, ProgInfoIter};
use procfs::process::Process;
use rustix::fs::{FileType, Mode, OFlags};

use crate::bpffs::{Dir, Entry};

/// Bytes of a program's name that the kernel keeps: `BPF_OBJ_NAME_LEN` less the zero.
const NAME_BYTES: usize = 15;
/// How deep pinned links are looked for, and in how many files: no file system can keep the search from ending.
const DEPTH_MOST: u32 = 8;
const FILES_MOST: u32 = 20_000;

/// A link that keeps a program of topstat attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The program, as far as the kernel keeps its name.
    pub program: String,
    /// The link's id, as in `bpftool link`.
    pub link: u32,
    /// The path where it is pinned, if that can be seen from here.
    pub at: Option<PathBuf>,
    /// The processes that hold it, such as a `topstat top` that has loaded tables for itself.
    pub holders: Vec<u32>,
}

/// The attached programs of any topstat on this host, as far as this user may ask. Programs are known by their names.
///
/// # Errors
/// /proc does not list the mounts.
pub fn attached() -> Result<Vec<Attached>, crate::Error> {
    let cut = |name: String| name.chars().take(NAME_BYTES).collect::<String>();
    let names: BTreeSet<String> =
        crate::catalogue::families().iter().flat_map(|family| family.programs()).map(cut).collect();
    let programs: BTreeMap<u32, String> = ProgInfoIter::default()
        .map(|program| (program.id, program.name.to_string_lossy().into_owned()))
        .filter(|(_, name)| names.contains(name))
        .collect();
    let links: Vec<_> =
        LinkInfoIter::default().filter_map(|link| Some((link.id, programs.get(&link.prog_id)?.clone()))).collect();
    if links.is_empty() {
        return Ok(Vec::new());
    }
    let (holders, at) = (holders(), pinned_links()?);
    let describe = |(link, program)| Attached {
        program,
        link,
        at: at.get(&link).cloned(),
        holders: holders.get(&link).into_iter().flatten().copied().collect(),
    };
    Ok(links.into_iter().map(describe).collect())
}

/// The id of the link that a descriptor refers to, by its `/proc/PID/fdinfo`.
fn link_id(info: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(info).ok()?;
    text.lines().find_map(|line| line.strip_prefix("link_id:")?.trim().parse().ok())
}

/// The processes that hold links, by the links' ids.
fn holders() -> BTreeMap<u32, BTreeSet<u32>> {
    let mut holders: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let entries = std::fs::read_dir(process.path().join("fdinfo"));
        for link in entries.into_iter().flatten().flatten().filter_map(|entry| link_id(&entry.path())) {
            holders.entry(link).or_default().insert(pid);
        }
    }
    holders
}

/// The paths of pinned links, in all BPF file systems that are mounted here. Files of any owner are searched: they are only asked
/// for their ids.
fn pinned_links() -> Result<BTreeMap<u32, PathBuf>, crate::Error> {
    let mounts = Process::myself().and_then(|process| process.mountinfo());
    let mounts = mounts.map_err(|e| crate::Error::Kernel {
        what: "look for what is pinned (/proc/self/mountinfo)".to_owned(),
        why: e.to_string(),
    })?;
    let (mut found, mut left) = (BTreeMap::new(), FILES_MOST);
    for mount in mounts.0.into_iter().filter(|mount| mount.fs_type == "bpf") {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(fd) = rustix::fs::open(&mount.mount_point, flags, Mode::empty()) else { continue };
        let Ok(dir) = Dir::open(std::os::fd::AsFd::as_fd(&fd), mount.mount_point) else { continue };
        search(&dir, DEPTH_MOST, &mut left, &mut found);
    }
    Ok(found)
}

fn search(dir: &Dir, depth: u32, left: &mut u32, found: &mut BTreeMap<u32, PathBuf>) {
    for name in dir.names().unwrap_or_default() {
        let (Some(next), Ok(Some(entry))) = (left.checked_sub(1), dir.find(&name)) else { return };
        *left = next;
        match entry.kind() {
            FileType::Directory if depth > 0 => {
                if let Ok(below) = Dir::open(entry.held(), entry.path().to_owned()) {
                    search(&below, depth - 1, left, found);
                }
            }
            FileType::RegularFile => {
                if let Some(id) = pinned_link(&entry) {
                    found.insert(id, entry.path().to_owned());
                }
            }
            _ => {}
        }
    }
}

/// The id of a pinned link.
fn pinned_link(file: &Entry) -> Option<u32> {
    let object = file.get().ok()?;
    link_id(Path::new(&format!("/proc/self/fdinfo/{}", object.as_raw_fd())))
}
