// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The consumer of events. eBPF programs put them into a ring buffer (`observe/stream.h` says how, and what always
//! holds: E1 to E5); this crate takes them out, one record at a time, and decides when to look again.
//!
//! - [`law`] decides how long to sleep. It knows nothing of the kernel, and is tested against a simulated producer.
//! - [`ring`] is the ring buffer's memory: where the next record is, and how its space is freed.
//! - [`consumer`] is both together: it drains the ring, counts what it has delivered, and sleeps.
//!
//! Nothing is lost without being counted: `produced = delivered + dropped` once producers rest and the ring is empty,
//! also if consumers were killed in between, at any instruction.

#![warn(missing_docs)]

pub mod consumer;
mod error;
mod freed;
pub mod law;
mod maps;
pub mod ring;
mod watch;
#[cfg(feature = "writes")]
pub mod writes;

/// What C and Rust share: `observe/stream.h`.
#[allow(missing_docs, non_camel_case_types, non_upper_case_globals, clippy::undocumented_unsafe_blocks)]
pub mod abi {
    include!(concat!(env!("OUT_DIR"), "/abi.rs"));
}

pub use consumer::{Account, Consumer, Options, Woken};
pub use error::Error;
pub use law::Strategy;
pub use maps::{Maps, prepare};
pub use ring::Record;
pub use watch::Watch;
