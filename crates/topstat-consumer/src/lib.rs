// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The consumer of events. eBPF programs put events into a ring buffer (`observe/stream.h` defines how, and the invariants E1 to
//! E5). This crate takes them out, one record at a time, and decides when to look again.
//!
//! - [`law`] decides how long to sleep. It is independent of the kernel, and is tested against a simulated producer.
//! - [`ring`] is the ring buffer's memory: it finds the next record, and frees its space.
//! - [`consumer`] combines both: it drains the ring, counts what it has delivered, and sleeps.
//!
//! No event is lost without being counted: `produced = delivered + dropped` once producers rest and the ring is empty. This also
//! holds if consumers were killed in between, at any instruction.

#![warn(missing_docs)]

mod account;
pub mod consumer;
mod error;
mod freed;
pub mod law;
mod maps;
pub mod ring;
mod watch;
#[cfg(feature = "writes")]
pub mod writes;

/// Types that C and Rust share: `observe/stream.h`.
#[allow(missing_docs, non_camel_case_types, non_upper_case_globals, clippy::undocumented_unsafe_blocks)]
pub mod abi {
    include!(concat!(env!("OUT_DIR"), "/abi.rs"));
}

pub use account::Account;
pub use consumer::{Consumer, Options, Woken};
pub use error::Error;
pub use maps::{Maps, prepare};
pub use ring::Record;
pub use watch::Watch;
