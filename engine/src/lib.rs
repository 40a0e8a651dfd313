// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ranking engine of topstat: Rust bindings of the C headers in `include/topstat`.
//!
//! [`abi`] is generated from the headers. The functions here are the safe ones for readers of a table: [`config()`] computes a
//! table's settings, [`tick_at`] the position of a moment in the table's slides, [`window_value`] the value, at that moment, of a
//! window that was copied from the kernel, and [`proof`] the value from which on rows are certain. [`fold()`] adds up counters
//! that each CPU has for itself. [`sim`] runs the engine in user space, as the kernel would, for tests.

pub mod abi;
mod config;
mod fold;
pub mod sim;
mod value;

pub use abi::{ts_bank, ts_config, ts_count, ts_entry, ts_table, ts_tick, ts_value, ts_window};
pub use config::{Error, config, entries_for, table_size};
pub use fold::fold;
pub use value::{Value, count_value, proof, tick_at, window_is_done, window_most, window_value};
