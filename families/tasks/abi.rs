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
unsafe impl Plain for tasks_row {}
// SAFETY: it begins with a ts_row.
unsafe impl Row for tasks_row {}

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(offset_of!(tasks_row, row) == 0);
    assert!(offset_of!(tasks_section, head) == 0);
    assert!(offset_of!(tasks_settings, config) == size_of::<ts_settings>());
    assert!(offset_of!(tasks_constants, shape) == 0);
    assert!(TASKS_TABLES == TS_BANK_TABLES);
    assert!(TASKS_GROUPS == crate::MAX_GROUPS);
};
