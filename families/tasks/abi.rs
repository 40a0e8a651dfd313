// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the programs and this crate share, generated from `tasks.h`; the compiler checks the
//! layout against clang's.

#![allow(non_camel_case_types, missing_docs, unreachable_pub, dead_code, clippy::undocumented_unsafe_blocks)]

use crate::bpf::Plain;
use crate::ranking::Row;

include!(concat!(env!("OUT_DIR"), "/tasks/abi.rs"));

// SAFETY: integers and arrays of them, with explicit padding.
unsafe impl Plain for tasks_constants {}
// SAFETY: as above.
unsafe impl Plain for tasks_control {}
// SAFETY: as above.
unsafe impl Plain for tasks_dead {}
// SAFETY: as above.
unsafe impl Plain for tasks_moved {}
// SAFETY: as above.
unsafe impl Plain for tasks_row {}
// SAFETY: as above.
unsafe impl Plain for tasks_cpu_row {}
// SAFETY: as above.
unsafe impl Plain for tasks_top_constants {}
// SAFETY: as above.
unsafe impl Plain for tasks_top_row {}
// SAFETY: it begins with a ts_row.
unsafe impl Row for tasks_top_row {}
// SAFETY: as above.
unsafe impl Plain for SectionHead {}

/// The fields of a [`tasks_section`] before its rows.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SectionHead {
    pub instant: u64,
    pub ran_from: u64,
    pub dead_from: u64,
    pub claim: u64,
    pub fence: u64,
    pub address: u64,
    pub gone: u64,
    pub next: u64,
    pub overrun: u64,
    pub rows: u32,
    pub pad: u32,
}

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(offset_of!(tasks_top_row, row) == 0);
    assert!(offset_of!(tasks_top_section, head) == 0);
    assert!(offset_of!(tasks_settings, config) == size_of::<ts_settings>());
    assert!(offset_of!(tasks_top_constants, shape) == 0);
    assert!(TASKS_TABLES == TS_BANK_TABLES);
    assert!(TASKS_GROUPS == crate::MAX_GROUPS);
    assert!(offset_of!(SectionHead, gone) == offset_of!(tasks_section, gone));
    assert!(offset_of!(SectionHead, rows) == offset_of!(tasks_section, rows));
};
