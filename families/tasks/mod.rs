// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples `tasks` and `cgroups`: which processes and control groups use the CPUs.
//!
//! See `README.md` in this folder for what is counted, and where.

mod abi;
#[cfg(feature = "bench")]
pub mod bench;
mod check;
mod fallbacks;
mod groups;
mod observer;
mod rows;
mod tables;

use std::mem::{offset_of, size_of};
use std::sync::{Arc, LazyLock};

use libbpf_rs::Object;
use topstat_model::{Column, Field};

use crate::cgroup::Paths;
use crate::hooks::{Hook, Observer};
use crate::process;
use crate::ranking::{Maps, Ranked, Refill, ts_tick};
use crate::{Check, Error, Options, SampleInfo};
use fallbacks::Flavour;

/// The family of the samples of tasks.
pub static FAMILY: Tasks = Tasks;

/// See [`FAMILY`].
pub struct Tasks;

impl Ranked for Tasks {
    const NAME: &'static str = "tasks";
    const ABI: u32 = abi::TASKS_ABI;
    const SNAPSHOT_OBJECT: &'static [u8] = Flavour::Full.snapshot();
    const SECTION_HEAD: usize = size_of::<abi::tasks_section>();
    const REFILL: &'static str = "top_refill_tasks";
    const BY_THREAD: Option<usize> = Some(offset_of!(abi::tasks_constants, by_thread));
    const HOOKS: &'static [Hook] = observer::FULL;
    const PARTS: &'static [&'static str] = &[];
    type Row = abi::tasks_row;
    type Describer = Paths;

    fn samples() -> &'static [Arc<SampleInfo>] {
        static SAMPLES: LazyLock<Vec<Arc<SampleInfo>>> =
            LazyLock::new(|| tables::samples().into_iter().map(Arc::new).collect());
        &SAMPLES
    }

    fn further() -> &'static [&'static str] {
        Flavour::of_kernel().maps()
    }

    fn snapshot_object() -> &'static [u8] {
        Flavour::of_kernel().snapshot()
    }

    fn check() -> Vec<Check> {
        check::check()
    }

    fn observer(options: &Options) -> Result<Observer, Error> {
        observer::observer(options)
    }

    fn columns(sample: u32) -> Vec<Column> {
        rows::columns(sample)
    }

    fn describer() -> Paths {
        Paths::new()
    }

    fn describe(sample: u32, row: &abi::tasks_row, paths: &mut Paths) -> Vec<Field> {
        rows::describe(sample, row, paths)
    }

    fn refill(object: &Object, maps: &Maps, sample: u32) -> Result<Refill, Error> {
        if sample == abi::TASKS_CGROUPS { groups::refill(object, maps) } else { process::refill(object, Self::REFILL) }
    }

    fn unranked(maps: &Maps, sample: u32, table: u32, tick: &ts_tick) -> Option<abi::tasks_row> {
        rows::idle(maps, sample, table, tick)
    }
}
