// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The top of a fleet: what is at the top over all hosts, from the files that `topstat record` has sealed on each of them.
//!
//! | module | content |
//! |---|---|
//! | [`files`] | the files of a fleet, in two layouts: a directory for each host, and compacted |
//! | [`scan`] | the last snapshot of each host before an instant |
//! | [`bounds`] | lower and upper bounds of each object over all hosts, and how many places are proven |
//! | [`hosts`] | which hosts have reported |
//! | [`sql`] | the same question for DuckDB, Spark and ClickHouse |
//! | [`compact`] | one file for an hour of many hosts |
//!
//! # Invariants
//!
//! The true value of an object over the hosts that have reported is never outside its bounds, whether a host shows the object or
//! not. Hosts that have not reported have no bounds: they are counted, and not guessed.

#![warn(missing_docs)]

pub mod bounds;
pub mod compact;
pub mod files;
pub mod hosts;
pub mod scan;
pub mod sql;

pub use topstat_history::{Error, Root};
