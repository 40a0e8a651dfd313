// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attaches the programs of `hooks.bpf.c` with a given name.

use std::fs::File;
use std::os::fd::AsRawFd as _;

use anyhow::{Context as _, Result};
use libbpf_rs::{Link, Object, ObjectBuilder, ProgramType};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hooks.bpf.o"));
/// The mount point in guests; the hooks are attached to its root.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// Attached programs; dropping it detaches them.
pub struct Attached {
    _links: Vec<Link>,
    _object: Object,
}

/// Attaches the programs `<name>_rx` and `<name>_tx`, if they exist.
pub fn attach(name: &str) -> Result<Attached> {
    let mut object = ObjectBuilder::default().open_memory(OBJECT)?;
    for mut program in object.progs_mut() {
        let wanted = program.name().to_string_lossy().rsplit_once('_').is_some_and(|(of, _)| of == name);
        program.set_autoload(wanted);
    }
    let object = object.load().with_context(|| format!("cannot load the programs {name}"))?;
    let root = File::open(CGROUP_ROOT).with_context(|| format!("cannot open {CGROUP_ROOT}"))?;
    let mut links = Vec::new();
    for program in object.progs_mut().filter(|program| program.autoload()) {
        let link = match program.prog_type() {
            ProgramType::CgroupSkb => program.attach_cgroup(root.as_raw_fd()),
            _ => program.attach(),
        };
        links.push(link.with_context(|| format!("cannot attach {}", program.name().to_string_lossy()))?);
    }
    Ok(Attached { _links: links, _object: object })
}
