// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the program over the hierarchies of control groups.

use std::mem::offset_of;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Instant, SystemTime};

use libbpf_rs::{CgroupIterOpts, CgroupIterOrder, IterOpts, Link, Object};

use super::abi;
use topstat_kernel::bpf::{self, Shared};
use topstat_kernel::cgroup::{self, Paths, V1Controller};
use topstat_kernel::process::abi::PROCESS_GROUP_V1;
use topstat_kernel::{Error, clock};

const OBJECT: &[u8] = object!("pressure/pressure.bpf.o");
/// The purpose of running the program, for errors.
const READ: &str = "read the kernel's counters of control groups";

/// What the kernel keeps of the groups of all hierarchies.
#[derive(Debug)]
pub struct Reading {
    pub time: SystemTime,
    pub instant: Instant,
    /// By hierarchy, in the order of the tree: each group comes after its parent.
    pub groups: Vec<Vec<abi::pressure_group>>,
    /// Groups that were not read.
    pub beyond: u64,
    /// Parts of groups that could not be read.
    pub unreadable: u64,
}

/// A hierarchy, and the iterator over its groups.
struct Hierarchy {
    v1: Option<V1Controller>,
    iterator: Link,
    paths: Paths,
}

/// The loaded program.
pub struct Reader {
    hierarchies: Vec<Hierarchy>,
    cursor: Shared,
    groups: Shared,
    // Dropped last: the others use it.
    _object: Object,
}

fn failed(why: impl std::fmt::Display) -> Error {
    Error::Kernel { what: READ.to_owned(), why: why.to_string() }
}

/// Loads the program, as for all tables.
///
/// # Errors
/// This kernel or this user does not allow it.
pub fn try_load() -> Result<(), Error> {
    Reader::open(None).map(drop)
}

/// Whether the kernel has iterators over control groups (Linux 6.1, d4ccaf58a847). If its types can't be read, that is not the
/// reason.
fn has_iterators() -> bool {
    let types = libbpf_rs::btf::Btf::from_vmlinux();
    types.map_or(true, |types| types.type_by_name::<libbpf_rs::btf::types::Struct<'_>>("bpf_iter__cgroup").is_some())
}

fn lacking() -> Error {
    Error::Lacking { what: READ.to_owned(), lacks: "iterators over control groups (Linux 6.1)".to_owned() }
}

impl Reader {
    /// Loads the program. Groups below `level` count to their ancestor on it.
    ///
    /// # Errors
    /// This kernel or this user does not allow it.
    pub fn open(level: Option<u32>) -> Result<Self, Error> {
        let object = bpf::open("pressure", OBJECT)?;
        let object = bpf::load("pressure", object).map_err(|error| if has_iterators() { error } else { lacking() })?;
        let memory = |name| Shared::new(&bpf::map(&object, name)?);
        memory("plans")?.write(
            0,
            0,
            abi::pressure_plan {
                jiffy_ns: clock::jiffy_ns(),
                level: level.unwrap_or(abi::PRESSURE_UNCUT),
                cpus: clock::possible_cpus()?.min(abi::PRESSURE_CPUS),
            },
        );
        let hierarchies = hierarchies()?
            .into_iter()
            .map(|(v1, root)| Ok(Hierarchy { v1, iterator: attach(&object, &root)?, paths: Paths::new(v1) }))
            .collect::<Result<_, Error>>()?;
        Ok(Self { hierarchies, cursor: memory("cursors")?, groups: memory("groups")?, _object: object })
    }

    /// Reads all groups.
    ///
    /// # Errors
    /// The kernel does not run the program.
    pub fn read(&mut self) -> Result<Reading, Error> {
        let (time, instant) = (SystemTime::now(), Instant::now());
        let mut reading = Reading { time, instant, groups: Vec::new(), beyond: 0, unreadable: 0 };
        for hierarchy in &self.hierarchies {
            self.cursor.write(0, 0, abi::pressure_cursor::default());
            bpf::read_out(&hierarchy.iterator).map_err(failed)?;
            let field = |offset| self.cursor.read::<u32>(0, offset);
            let found = field(offset_of!(abi::pressure_cursor, found)) as usize;
            reading.groups.push((0..found).map(|place| self.groups.read(place, 0)).collect());
            reading.beyond += u64::from(field(offset_of!(abi::pressure_cursor, beyond)));
            reading.unreadable += u64::from(field(offset_of!(abi::pressure_cursor, unreadable)));
        }
        Ok(reading)
    }

    /// The path of a group of a hierarchy, by its number. `None`: it was removed, or can't be looked up.
    pub fn path(&mut self, hierarchy: usize, id: u64) -> Option<String> {
        let hierarchy = self.hierarchies.get_mut(hierarchy)?;
        let mark = if hierarchy.v1.is_some() { PROCESS_GROUP_V1.cast_unsigned() } else { 0 };
        hierarchy.paths.of(id | mark)
    }
}

/// The hierarchies to read: v2, which has pressure, and v1's hierarchies of the controllers for memory and CPUs.
fn hierarchies() -> Result<Vec<(Option<V1Controller>, OwnedFd)>, Error> {
    let mut found = vec![(None, cgroup::root().map_err(failed)?)];
    for controller in [V1Controller::Memory, V1Controller::Cpu] {
        let Ok(root) = cgroup::v1_root(controller) else { continue };
        let device = |root: &OwnedFd| rustix::fs::fstat(root).map(|stat| stat.st_dev).ok();
        if found.iter().all(|(_, other)| device(other) != device(&root)) {
            found.push((Some(controller), root));
        }
    }
    Ok(found)
}

fn attach(object: &Object, root: &OwnedFd) -> Result<Link, Error> {
    let mut over = CgroupIterOpts::from_fd(root.as_fd());
    over.order = CgroupIterOrder::DescendantsPre;
    bpf::program(object, "pressure_read")?.attach_iter_with_opts(IterOpts::Cgroup(over)).map_err(failed)
}
