// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the programs and this crate share, generated from `delays.h`; the compiler checks the
//! layout against clang's.

#![allow(non_camel_case_types, missing_docs, unreachable_pub, dead_code, clippy::undocumented_unsafe_blocks)]

use crate::bpf::Plain;
use crate::ranking::Row;

include!(concat!(env!("OUT_DIR"), "/delays/abi.rs"));

// SAFETY: integers and arrays of them, with explicit padding.
unsafe impl Plain for delays_constants {}
// SAFETY: as above.
unsafe impl Plain for delays_row {}
// SAFETY: it begins with a ts_row.
unsafe impl Row for delays_row {}

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(offset_of!(delays_row, row) == 0);
    assert!(offset_of!(delays_section, head) == 0);
    assert!(offset_of!(delays_settings, config) == size_of::<ts_settings>());
    assert!(offset_of!(delays_constants, shape) == 0);
    assert!(DELAYS_TABLES <= DELAYS_BANKS * TS_BANK_TABLES && DELAYS_BANKS.is_power_of_two());
};
