// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sample `delays`: what processes wait for, by the kernel's delay accounting.
//!
//! See `README.md` in this folder for what is counted, and where.

mod abi;
mod check;
mod observer;
mod tables;

use std::mem::{offset_of, size_of};
use std::sync::{Arc, LazyLock};

use libbpf_rs::{MapCore as _, MapFlags, Object};
use topstat_model::{Column, Field};

use crate::cgroup::Paths;
use crate::hooks::{Hook, Observer};
use crate::process;
use crate::ranking::{Maps, Ranked, Refill};
use crate::{Check, Error, Options, SampleInfo};
use observer::Accounting;

/// The map that counts waits for block I/O that were longer than there was time for.
const IMPOSSIBLE: &str = ".data.impossible";

/// The family of the sample of delays.
pub static FAMILY: Delays = Delays;

/// See [`FAMILY`].
pub struct Delays;

impl Ranked for Delays {
    const NAME: &'static str = "delays";
    const SAMPLE_BANKS: u32 = abi::DELAYS_BANKS;
    const ABI: u32 = abi::DELAYS_ABI;
    const SNAPSHOT_OBJECT: &'static [u8] = include_bytes!(concat!(env!("OUT_DIR"), "/delays/snapshot.bpf.o"));
    const SECTION_HEAD: usize = size_of::<abi::delays_section>();
    const REFILL: &'static str = "delays_refill";
    const BY_THREAD: Option<usize> = Some(offset_of!(abi::delays_constants, by_thread));
    const HOOKS: &'static [Hook] = observer::HOOKS;
    const PARTS: &'static [&'static str] = &[];
    type Row = abi::delays_row;
    type Describer = Paths;

    fn samples() -> &'static [Arc<SampleInfo>] {
        static SAMPLES: LazyLock<Vec<Arc<SampleInfo>>> =
            LazyLock::new(|| tables::samples().into_iter().map(Arc::new).collect());
        &SAMPLES
    }

    fn further() -> &'static [&'static str] {
        &["threads", IMPOSSIBLE]
    }

    fn ready() -> Result<(), Error> {
        match observer::accounting() {
            Accounting::On => Ok(()),
            Accounting::Off => Err(Error::SwitchedOff {
                sample: Self::NAME,
                reason: "the kernel's delay accounting is off".to_owned(),
                advice: observer::SWITCH_ON.to_owned(),
            }),
            Accounting::Missing => Err(Error::Unsupported {
                sample: Self::NAME.to_owned(),
                reason: "the kernel has no delay accounting".to_owned(),
                advice: "use a kernel that was built with CONFIG_TASK_DELAY_ACCT=y".to_owned(),
            }),
        }
    }

    fn check() -> Vec<Check> {
        check::check()
    }

    fn observer(options: &Options) -> Result<Observer, Error> {
        observer::observer(options)
    }

    fn columns(_sample: u32) -> Vec<Column> {
        process::columns()
    }

    fn describer() -> Paths {
        Paths::new()
    }

    fn describe(_sample: u32, row: &abi::delays_row, paths: &mut Paths) -> Vec<Field> {
        process::describe(&row.who, paths)
    }

    fn lost(maps: &Maps, bank: u32, number: u32) -> Vec<(&'static str, u64)> {
        if (bank, number) != (0, abi::DELAYS_BLKIO) {
            return Vec::new();
        }
        let map = maps.further.iter().find(|(name, _)| *name == IMPOSSIBLE);
        let value = map.and_then(|(_, map)| map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten());
        let count = value.as_ref().and_then(|bytes| bytes.first_chunk().copied()).map(u64::from_ne_bytes);
        vec![("impossible", count.unwrap_or(0))]
    }

    fn refill(object: &Object, _maps: &Maps, _sample: u32) -> Result<Refill, Error> {
        process::refill(object, Self::REFILL)
    }
}
