// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What families have in common whose objects are processes, or threads. The eBPF side of it is `bpf/process.bpf.h`.

use std::io::Read as _;

use libbpf_rs::{Iter, Object};
use topstat_model::{Column, ColumnKind, Field};

use crate::bpf::program;
use crate::cgroup::{self, Paths, V1Controller, container};
use crate::{Check, Error, Outcome};

/// Who a process is, as a row has it.
pub struct Who<'a> {
    /// Of the process.
    pub pid: u32,
    /// Of the thread, where objects are threads; else 0.
    pub tid: u32,
    /// The name, as the kernel has it.
    pub comm: &'a [core::ffi::c_char],
    /// Id in the cgroup v2 hierarchy.
    pub cgroup: u64,
    /// Id in the v1 hierarchy of [`v1_controller`]; 0: none.
    pub cgroup_v1: u64,
}

/// The columns that describe a process.
pub fn columns() -> Vec<Column> {
    let mut columns = vec![
        Column::new("pid", ColumnKind::Pid),
        Column::optional("tid", ColumnKind::Pid),
        Column::new("comm", ColumnKind::Text),
    ];
    columns.extend(cgroup_columns());
    columns
}

/// Those that describe a control group.
pub fn cgroup_columns() -> [Column; 2] {
    [Column::new("cgroup", ColumnKind::Path), Column::optional("container", ColumnKind::Id)]
}

/// The fields of a process, in the order of [`columns`].
pub fn describe(who: &Who<'_>, paths: &mut Paths) -> Vec<Field> {
    let tid = if who.tid == 0 { Field::None } else { Field::U64(who.tid.into()) };
    let mut fields = vec![Field::U64(who.pid.into()), tid, name(who.comm).into()];
    fields.extend(describe_cgroup(who.cgroup, who.cgroup_v1, paths));
    fields
}

/// The fields of a control group, in the order of [`cgroup_columns`].
pub fn describe_cgroup(v2: u64, v1: u64, paths: &mut Paths) -> [Field; 2] {
    let path = if v2 == 0 { None } else { paths.of(v2, v1) };
    let id = path.as_deref().and_then(container).map(str::to_owned);
    [path.into(), id.into()]
}

/// A name as the kernel has it, up to the first zero; `None`: there is none.
pub fn name(comm: &[core::ffi::c_char]) -> Option<String> {
    let bytes: Vec<u8> = comm.iter().map(|c| c.to_ne_bytes()[0]).take_while(|c| *c != 0).collect();
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// The v1 hierarchy to ask for cgroups, by a family's numbers for none, memory, cpu and pids.
pub fn v1_controller([none, memory, cpu, pids]: [u32; 4]) -> u32 {
    match cgroup::v1_controller() {
        None => none,
        Some(V1Controller::Memory) => memory,
        Some(V1Controller::Cpu) => cpu,
        Some(V1Controller::Pids) => pids,
    }
}

/// Runs the iterator that makes objects of the tasks that are there already.
///
/// # Errors
/// What the kernel says.
pub fn adopt(object: &Object, iterator: &str) -> Result<(), Error> {
    let failed =
        |e: &dyn std::fmt::Display| Error::Kernel { what: "look for existing tasks".to_owned(), why: e.to_string() };
    let link = program(object, iterator)?.attach().map_err(|e| failed(&e))?;
    let mut nothing = Vec::new();
    Iter::new(&link).map_err(|e| failed(&e))?.read_to_end(&mut nothing).map_err(|e| failed(&e))?;
    Ok(())
}

/// Puts the usual reasons why programs don't load into words.
pub fn explain(error: Error, sample: &'static str) -> Error {
    let Error::Kernel { what, why } = error else { return error };
    let unsupported = |reason: &str, advice: &str| Error::Unsupported {
        sample,
        reason: reason.to_owned(),
        advice: advice.to_owned(),
    };
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        return unsupported(
            "the kernel has no BTF (/sys/kernel/btf/vmlinux is missing)",
            "use a kernel that was built with CONFIG_DEBUG_INFO_BTF=y",
        );
    }
    if crate::check::missing_capabilities().is_some_and(|m| !m.is_empty()) {
        return unsupported(
            "loading eBPF programs is not permitted",
            "run as root, or with the capabilities CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and CAP_SYS_ADMIN",
        );
    }
    Error::Kernel { what, why }
}

/// A line of `topstat check`: whether programs load.
pub fn verified(name: &str, result: Result<(), Error>, found: &str) -> Check {
    let (outcome, found, advice) = match result {
        Ok(()) => (Outcome::Ok, found.to_owned(), ""),
        Err(e) => (Outcome::Missing, explain(e, "tasks").to_string(), "the lines above say what is missing"),
    };
    Check { name: name.to_owned(), outcome, found, advice: advice.to_owned() }
}
