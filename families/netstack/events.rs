// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The perf events that take samples: one on each CPU.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, IntoRawFd as _};

use libbpf_rs::{Link, ProgramMut};
use libbpf_sys::{PERF_COUNT_SW_CPU_CLOCK, perf_event_attr};
use topstat_model::stacks::Event;

use topstat_kernel::clock::online_cpus;
use topstat_kernel::{Error, perf};

/// From `linux/perf_event.h`.
const PERF_TYPE_HARDWARE: u32 = 0;
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_HW_CPU_CYCLES: u64 = 0;
const PERF_COUNT_HW_CACHE_MISSES: u64 = 3;
/// A read also returns the time for which the event was on.
const PERF_FORMAT_TOTAL_TIME_ENABLED: u64 = 1;

/// A perf event on a CPU.
pub struct CpuEvent {
    pub cpu: u32,
    file: File,
}

impl CpuEvent {
    /// Opens an event that samples `hz` times a second.
    ///
    /// # Errors
    /// The kernel's error; for cycles, that the CPU can't count them.
    pub fn open(event: Event, cpu: u32, hz: u32) -> io::Result<Self> {
        let (kind, config) = match event {
            Event::Cycles => (PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES),
            Event::CacheMisses => (PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES),
            Event::CpuClock => (PERF_TYPE_SOFTWARE, u64::from(PERF_COUNT_SW_CPU_CLOCK)),
        };
        let mut attr = perf_event_attr { type_: kind, config, ..Default::default() };
        attr.__bindgen_anon_1.sample_freq = hz.into();
        attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED;
        attr._bitfield_1.set_bit(perf::FREQ, true);
        Ok(Self { cpu, file: perf::open(attr, cpu)?.into() })
    }

    /// Makes each sample run a program. libbpf closes the given descriptor when the link is dropped.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn attach(&self, program: &ProgramMut) -> io::Result<Link> {
        let given = self.file.try_clone()?;
        let link = program.attach_perf_event(given.as_raw_fd()).map_err(|e| io::Error::other(format!("{e:#}")))?;
        let _ = given.into_raw_fd();
        Ok(link)
    }

    /// The time in ns for which the event was on. The clock event's own count is smaller: when an idle CPU stops its tick, the
    /// kernel throttles the event after the samples that one tick allows, and nothing is counted or sampled until the next tick.
    pub fn on_ns(&self) -> io::Result<u64> {
        let mut read = [[0; 8]; 2];
        (&self.file).read_exact(read.as_flattened_mut())?;
        Ok(u64::from_ne_bytes(read[1]))
    }
}

/// The event to sample by on this host: cycles where they are counted, else the clock.
///
/// # Errors
/// When neither event is allowed.
pub fn chosen() -> Result<Event, Error> {
    let cpu = online_cpus()?.first().copied().unwrap_or(0);
    if CpuEvent::open(Event::Cycles, cpu, 1).is_ok() {
        return Ok(Event::Cycles);
    }
    match CpuEvent::open(Event::CpuClock, cpu, 1) {
        Ok(_) => Ok(Event::CpuClock),
        Err(e) => Err(Error::Kernel { what: "sample stacks by a perf event".to_owned(), why: e.to_string() }),
    }
}

/// Whether this host can take samples by this event.
///
/// # Errors
/// The reason why it can't.
pub fn available(event: Event) -> Result<(), Error> {
    let cpu = online_cpus()?.first().copied().unwrap_or(0);
    let why = |e: io::Error| {
        let advice = match (event, e.raw_os_error()) {
            (Event::CpuClock, _) => "run as root",
            (_, Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV)) => {
                "this machine has no counter of them; in a virtual machine, give it a performance monitoring unit"
            }
            _ => "run as root, and look at kernel.perf_event_paranoid",
        };
        Error::Kernel { what: format!("sample stacks by {}", event.name()), why: format!("unavailable: {e}; {advice}") }
    };
    CpuEvent::open(event, cpu, 1).map(drop).map_err(why)
}
