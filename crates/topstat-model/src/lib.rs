// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Snapshots of ranked tables, intervals of the account of CPU time, and how they are written.
//!
//! A [`Snapshot`] is the result of one read of a table: the rows at the top, the sum of all other objects, the total, and
//! everything that qualifies them (lost counts, rows whose place is not proven, CPUs that did not answer). A sample fills it in;
//! the writers here turn it into bytes:
//!
//! | writer | for | lossless |
//! |---|---|---|
//! | [`json::write`] | programs: one document per line | yes |
//! | [`csv`] | spreadsheets and `awk`: one record per line | control characters are escaped |
//! | [`stat::write`] | the `stat` file of the file tree | control characters are escaped |
//! | [`dump::write`] | its `dump` file, for debugging | control characters are escaped |
//! | [`text::write`] | people, on a terminal or in a pipe | no: numbers may be rounded, texts shortened |
//!
//! A [`histograms::Histograms`] has the distributions of numbers by size. A [`stacks::Profile`] has the samples of the kernel's
//! stacks in an interval. An [`interval::Interval`] has the usage of the CPUs by all tasks between two instants, a
//! [`counters::Counters`] the values of counters of the kernel.
//!
//! [`events`] are single events, one by one. A [`filter`] chooses among all things that have columns. A [`definition`] describes
//! a table that a user defines.
//!
//! Snapshots, histograms, and the pictures of profiles, intervals and counters are kinds of [`Reading`]. A [`Sink`] writes
//! readings of any kind: text, JSON or CSV, one after the other.
//!
//! [`document::read`] reads a snapshot back from the output of [`json::write`].
//!
//! [`names`] gives short names of control groups, from their paths.
//!
//! This crate does not depend on libbpf, sockets, the kernel or the terminal that it writes to.
//!
//! # What always holds
//!
//! The values of the rows plus `other` are `total`, and the totals of the CPUs add up to `total`. Hiding rows
//! ([`Snapshot::truncate`], [`Snapshot::retain`]) moves their values to `other`. [`Snapshot::check`] verifies it.

#![warn(missing_docs)]

mod check;
pub mod counters;
pub mod csv;
pub mod definition;
pub mod document;
pub mod dump;
pub mod events;
mod field;
pub mod filter;
pub mod histograms;
pub mod interval;
pub mod json;
mod merged;
pub mod names;
mod order;
mod sink;
mod snapshot;
pub mod stacks;
pub mod stat;
mod stored;
pub mod text;
mod time;
pub mod typeset;
mod unit;

pub use check::Fault;
pub use dump::{Dump, DumpCpu, DumpSlot};
pub use field::{Align, Column, ColumnKind, Field};
pub use order::{SecondEnds, SortBy};
pub use sink::{Format, Reading, Records, Sink, Space};
pub use snapshot::{CpuRow, CpuSection, Filter, Lost, Row, Settings, Snapshot, TableType};
pub use stored::{FleetKey, Reach, Stored};
pub use time::{parse_rfc3339, rfc3339, to_the_minute, to_the_second, use_zone, zone};
pub use unit::{Unit, human_ms, per_second};
