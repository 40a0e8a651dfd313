// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bindings generated from the C headers, where everything is documented. Functions are
//! named `topstat_…` for the header's inline `ts_…`.
#![allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(clippy::all, clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
