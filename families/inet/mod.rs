// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples `tcp_v4`, `tcp_v6`, `udp_v4`, `udp_v6`: sockets, ranked by what they exchange.
//!
//! One set of eBPF programs serves all four, so that a packet runs through one hook once. See
//! `README.md` in this folder for what is counted, and where.

mod abi;
#[cfg(feature = "bench")]
pub mod bench;
mod fallbacks;
mod hooks;
mod observer;
mod rows;
mod tables;

use std::mem::size_of;
use std::sync::{Arc, LazyLock};

use topstat_model::{Column, Field};

use crate::cgroup::Paths;
use crate::hooks::{Hook, Observer};
use crate::ranking::Ranked;
use crate::{Check, Error, Options, SampleInfo};
use fallbacks::Flavour;

/// The family of the socket samples.
pub static FAMILY: Inet = Inet;

/// See [`FAMILY`].
pub struct Inet;

impl Ranked for Inet {
    const NAME: &'static str = "inet";
    const ABI: u32 = abi::INET_ABI;
    const SNAPSHOT_OBJECT: &'static [u8] = Flavour::Full.snapshot();
    const SECTION_HEAD: usize = size_of::<abi::inet_section>();
    const REFILL: &'static str = "inet_refill";
    const OPAQUE: bool = true;
    const PARTS: &'static [&'static str] = &["rx", "tx"];
    const HOOKS: &'static [Hook] = hooks::ALL;
    type Row = abi::inet_row;
    type Describer = Paths;

    fn samples() -> &'static [Arc<SampleInfo>] {
        static SAMPLES: LazyLock<Vec<Arc<SampleInfo>>> =
            LazyLock::new(|| tables::samples().into_iter().map(Arc::new).collect());
        &SAMPLES
    }

    fn less() -> Option<String> {
        let why = fallbacks::out_of_reach()?;
        Some(format!("sockets that are there already are nobody's until they send, on this kernel: {why}"))
    }

    fn check() -> Vec<Check> {
        observer::check()
    }

    fn observer(options: &Options) -> Result<Observer, Error> {
        observer::observer(options.top)
    }

    fn snapshot_object() -> &'static [u8] {
        Flavour::of_kernel().snapshot()
    }

    fn columns(_sample: u32) -> Vec<Column> {
        rows::columns()
    }

    fn describer() -> Paths {
        Paths::new()
    }

    fn describe(_sample: u32, row: &abi::inet_row, paths: &mut Paths) -> Vec<Field> {
        rows::describe(row, paths)
    }
}
