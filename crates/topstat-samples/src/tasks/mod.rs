// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sample `tasks`: who uses the CPUs; and the precise account of it, in which everything adds up.
//!
//! See `README.md` in this folder for what is counted, and where.

mod abi;
mod accountant;
mod interval;
mod ledger;
mod precise;
mod usage;

use std::sync::Arc;

pub use accountant::{AccountOptions, Accountant};
pub use interval::{AccountLost, Cpu, Each, Interval, Task, Totals};
pub use precise::Precise;
pub use usage::Usage;

use crate::{Check, Error, Family, Options, SampleInfo, Source, State, TableInfo};

/// The family of the samples of tasks.
pub static FAMILY: Tasks = Tasks;

/// See [`FAMILY`].
pub struct Tasks;

impl Family for Tasks {
    fn name(&self) -> &'static str {
        "tasks"
    }

    fn samples(&self) -> &'static [SampleInfo] {
        &[]
    }

    fn load(&self, _tables: &[&TableInfo], _options: &Options) -> Result<Box<dyn Source>, Error> {
        Err(Error::NotLoaded("tasks".to_owned()))
    }

    fn load_state(&self, _tables: &[&TableInfo], _options: &Options) -> Result<Arc<dyn State>, Error> {
        Err(Error::NotLoaded("tasks".to_owned()))
    }

    fn check(&self) -> Vec<Check> {
        Vec::new()
    }
}

/// Puts the usual reasons why programs don't load into words.
fn explain(error: Error, sample: &'static str) -> Error {
    let Error::Kernel { what, why } = error else { return error };
    let unsupported = |reason: &str, advice: &str| Error::Unsupported {
        sample,
        reason: reason.to_owned(),
        advice: advice.to_owned(),
    };
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        return unsupported(
            "the kernel has no BTF (/sys/kernel/btf/vmlinux is missing)",
            "use a kernel that was built with CONFIG_DEBUG_INFO_BTF=y",
        );
    }
    if crate::check::missing_capabilities().is_some_and(|m| !m.is_empty()) {
        return unsupported(
            "loading eBPF programs is not permitted",
            "run as root, or with the capabilities CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and CAP_SYS_ADMIN",
        );
    }
    Error::Kernel { what, why }
}
