// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What families have in common whose objects are processes or threads, or have one. The eBPF side of it is
//! `observe/process.bpf.h`.

use libbpf_rs::Object;
use topstat_model::{Column, ColumnKind, Field};

use crate::cgroup::{self, Paths, V1Controller};
use crate::container::container;
use crate::ranking::Refill;
use crate::{Error, bpf};
use abi::process_who;

#[allow(non_camel_case_types, missing_docs, unreachable_pub, dead_code, clippy::undocumented_unsafe_blocks)]
pub mod abi {
    //! What the programs and this crate share, generated from `bpf/process.h`.
    include!(concat!(env!("OUT_DIR"), "/process.rs"));
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
pub fn describe(who: &process_who, paths: &mut Paths) -> Vec<Field> {
    let tid = if who.tid == 0 { Field::None } else { Field::U64(who.tid.into()) };
    let mut fields = vec![Field::U64(who.pid.into()), tid, name(&who.comm).into()];
    fields.extend(describe_cgroup(who, paths));
    fields
}

/// The fields of a control group, in the order of [`cgroup_columns`].
pub fn describe_cgroup(who: &process_who, paths: &mut Paths) -> [Field; 2] {
    let path = paths.of(who.cgroup, who.cgroup_v1);
    let id = path.as_deref().and_then(container).map(str::to_owned);
    [path.into(), id.into()]
}

/// A name as the kernel has it, up to the first zero; `None`: there is none.
pub fn name(comm: &[core::ffi::c_char]) -> Option<String> {
    let bytes: Vec<u8> = comm.iter().map(|c| c.to_ne_bytes()[0]).take_while(|c| *c != 0).collect();
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// The v1 hierarchy to ask for cgroups: `enum process_v1`.
pub fn v1_controller() -> u32 {
    match cgroup::v1_controller() {
        None => abi::PROCESS_V1_NONE,
        Some(V1Controller::Memory) => abi::PROCESS_V1_MEMORY,
        Some(V1Controller::Cpu) => abi::PROCESS_V1_CPU,
        Some(V1Controller::Pids) => abi::PROCESS_V1_PIDS,
    }
}

/// Runs the iterator that makes objects of the tasks that are there already.
///
/// # Errors
/// What the kernel says.
pub fn adopt(object: &Object, iterator: &str) -> Result<(), Error> {
    bpf::iterate(object, iterator, "look for existing tasks").map(drop)
}

/// Attaches the iterator over all tasks that orders their objects again.
///
/// # Errors
/// What the kernel says.
pub fn refill(object: &Object, iterator: &str) -> Result<Refill, Error> {
    bpf::program(object, iterator)?
        .attach()
        .map(Refill::by)
        .map_err(|e| Error::Kernel { what: "order all tasks again".to_owned(), why: e.to_string() })
}
