// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the programs and this crate share, generated from `account.h`; the compiler checks the
//! layout against clang's.

#![allow(
    non_camel_case_types,
    missing_docs,
    unreachable_pub,
    dead_code,
    unused_imports,
    clippy::undocumented_unsafe_blocks
)]

use crate::bpf::Plain;

include!(concat!(env!("OUT_DIR"), "/account/abi.rs"));

// SAFETY: integers and arrays of them, with explicit padding.
unsafe impl Plain for account_constants {}
// SAFETY: as above.
unsafe impl Plain for account_control {}
// SAFETY: as above.
unsafe impl Plain for account_dead {}
// SAFETY: as above.
unsafe impl Plain for account_moved {}
// SAFETY: as above.
unsafe impl Plain for account_row {}
// SAFETY: as above.
unsafe impl Plain for account_cpu_row {}
// SAFETY: as above.
unsafe impl Plain for SectionHead {}

/// The fields of a [`account_section`] before its rows.
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
    use core::mem::offset_of;
    assert!(offset_of!(SectionHead, gone) == offset_of!(account_section, gone));
    assert!(offset_of!(SectionHead, rows) == offset_of!(account_section, rows));
};
