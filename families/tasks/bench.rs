// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The baseline for measurements of the hook.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{FromRawFd as _, OwnedFd};

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{Link, Object};

use topstat_kernel::Error;
use topstat_kernel::bpf::{self, program};

const OBJECT: &[u8] = object!("tasks/bench.bpf.o");

/// A program that does nothing, attached to every switch. Dropping it detaches it.
pub struct Empty {
    _link: Link,
    _object: Object,
}

impl Empty {
    /// Loads and attaches the program.
    ///
    /// # Errors
    /// As [`topstat_kernel::load`].
    pub fn load() -> Result<Self, Error> {
        let object = bpf::load("bench", bpf::open("bench", OBJECT)?)?;
        let link = program(&object, "bench_empty")?
            .attach_trace()
            .map_err(|e| Error::Kernel { what: "attach bench_empty".to_owned(), why: e.to_string() })?;
        Ok(Self { _link: link, _object: object })
    }
}

/// While this value exists, the kernel measures the run time of every eBPF program.
pub struct Stopwatch {
    _fd: OwnedFd,
}

impl Stopwatch {
    /// Starts the measurement.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start() -> Result<Self, Error> {
        // SAFETY: takes a number, and returns a descriptor or a negative error.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if fd < 0 {
            let why = std::io::Error::from_raw_os_error(-fd).to_string();
            return Err(Error::Kernel { what: "have the kernel time eBPF programs".to_owned(), why });
        }
        // SAFETY: just opened, and owned by no other value.
        Ok(Self { _fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// The run time in nanoseconds and the number of runs of this process's programs, by their names.
    pub fn read(&self) -> HashMap<String, (u64, u64)> {
        let own = own_programs();
        let mine = ProgInfoIter::default().filter(|p| own.contains(&p.id));
        mine.map(|p| (p.name.to_string_lossy().into_owned(), (p.run_time_ns, p.run_cnt))).collect()
    }
}

/// The ids of the programs for which this process has descriptors.
fn own_programs() -> BTreeSet<u32> {
    let entries = std::fs::read_dir("/proc/self/fdinfo").into_iter().flatten().flatten();
    let texts = entries.filter_map(|e| std::fs::read_to_string(e.path()).ok());
    let id = |text: String| text.lines().find_map(|l| l.strip_prefix("prog_id:")?.trim().parse().ok());
    texts.filter_map(id).collect()
}
