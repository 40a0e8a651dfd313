// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The precise account of CPU time: what every task used between two instants, so that all of it adds up to
//! time × CPUs.
//!
//! See `README.md` in this folder for what is counted, and where.

mod abi;
mod accountant;
mod check;
mod ledger;
mod precise;
mod usage;

pub use accountant::{AccountOptions, Accountant};
pub use check::check;
pub use precise::Precise;
