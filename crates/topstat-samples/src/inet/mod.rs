// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples `tcp_v4`, `tcp_v6`, `udp_v4`, `udp_v6`: sockets, ranked by what they exchange.
//!
//! One set of eBPF programs serves all four, so that a packet runs through one hook once. See
//! `README.md` in this folder for what is counted, and where.

mod abi;
#[cfg(feature = "bench")]
pub mod bench;
mod observer;
mod reader;
mod rows;
mod tables;

use crate::{Check, Error, Family, Options, SampleInfo, Source, TableInfo};

/// The family of the socket samples.
pub static FAMILY: Inet = Inet;

/// See [`FAMILY`].
pub struct Inet;

impl Family for Inet {
    fn samples(&self) -> &'static [SampleInfo] {
        tables::SAMPLES
    }

    fn load(&self, tables: &[&TableInfo], options: &Options) -> Result<Box<dyn Source>, Error> {
        let observer = observer::Observer::load(tables, options)?;
        Ok(Box::new(reader::Reader::new(observer)?))
    }

    fn check(&self) -> Vec<Check> {
        observer::check()
    }
}
