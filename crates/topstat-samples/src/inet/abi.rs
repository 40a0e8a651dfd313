// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the programs and this crate share, generated from `inet.h`; the compiler checks the
//! layout against clang's.

#![allow(non_camel_case_types, missing_docs, unreachable_pub, dead_code, clippy::undocumented_unsafe_blocks)]

use crate::bpf::Plain;

include!(concat!(env!("OUT_DIR"), "/inet/abi.rs"));

// SAFETY: integers and arrays of them, with explicit padding.
unsafe impl Plain for inet_constants {}
// SAFETY: as above.
unsafe impl Plain for inet_census {}
// SAFETY: as above.
unsafe impl Plain for inet_refill {}
// SAFETY: as above.
unsafe impl Plain for inet_row {}
// SAFETY: as above.
unsafe impl Plain for inet_snapshot_args {}
// SAFETY: as above.
#[cfg(feature = "bench")]
unsafe impl Plain for inet_bench {}
// SAFETY: as above; the rows behind it are read one by one.
unsafe impl Plain for SectionHead {}
// SAFETY: as above.
unsafe impl Plain for ts_config {}
// SAFETY: as above.
unsafe impl Plain for ts_window {}
// SAFETY: as above.
unsafe impl Plain for ts_tick {}

/// The fields of [`inet_section`] that a reader wants, without its rows.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SectionHead {
    pub tick: ts_tick,
    pub missed: u64,
    pub contended: u64,
    pub unobjected: u64,
    pub crowded: u64,
    pub rows: u32,
    pub slots: u32,
}

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(SectionHead, missed) == offset_of!(inet_section, missed));
    assert!(offset_of!(SectionHead, slots) == offset_of!(inet_section, slots));
};
