// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ranking engine of topstat: the C headers in `include/topstat`, as Rust sees them.
//!
//! [`abi`] is generated from the headers. What readers of a table need of it is safe here:
//! [`config()`] computes what a table is set to, [`tick_at`] where a moment lies in its
//! slides, [`window_value`] what a window that was copied from the kernel is worth then, [`proof`]
//! from which value on rows are certain. [`fold()`] adds up what CPUs have counted apart.
//! [`sim`] runs the engine in user space, as the kernel would, for tests.

pub mod abi;
mod config;
mod fold;
pub mod sim;
mod value;

pub use abi::{ts_bank, ts_config, ts_count, ts_entry, ts_table, ts_tick, ts_value, ts_window};
pub use config::{Error, config, entries_for, table_size};
pub use fold::fold;
pub use value::{Value, count_value, proof, tick_at, window_is_done, window_most, window_value};
