// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The perf events that take samples: one on each CPU.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd as _, RawFd};

use libbpf_rs::{Link, ProgramMut};
use libbpf_sys::{PERF_COUNT_SW_CPU_CLOCK, perf_event_attr};
use topstat_model::stacks::Event;

use crate::Error;

/// From `linux/perf_event.h`.
const PERF_TYPE_HARDWARE: u32 = 0;
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_HW_CPU_CYCLES: u64 = 0;
const PERF_COUNT_HW_CACHE_MISSES: u64 = 3;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
/// The bit `freq` of the event's flags: `sample_freq` is given, not `sample_period`.
const FREQ: usize = 10;
/// The bit `disabled`: the event counts nothing until a program is attached.
const DISABLED: usize = 0;
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
        attr.size = u32::try_from(size_of::<perf_event_attr>()).expect("some hundred bytes");
        attr.__bindgen_anon_1.sample_freq = hz.into();
        attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED;
        attr._bitfield_1.set_bit(FREQ, true);
        attr._bitfield_1.set_bit(DISABLED, true);
        let cpu_number = libc::c_int::try_from(cpu).map_err(io::Error::other)?;
        // SAFETY: the structure lives through the call, and contains its own length. All tasks (-1), no group (-1).
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attr, -1, cpu_number, -1, PERF_FLAG_FD_CLOEXEC)
        };
        let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: opened here, and owned by no other object.
        Ok(Self { cpu, file: unsafe { File::from_raw_fd(fd) } })
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
    let cpu = online()?.first().copied().unwrap_or(0);
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
    let cpu = online()?.first().copied().unwrap_or(0);
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

/// The CPUs that are online.
///
/// # Errors
/// When the kernel does not list them.
pub fn online() -> Result<Vec<u32>, Error> {
    let path = "/sys/devices/system/cpu/online";
    let failed = |why: String| Error::Kernel { what: format!("read {path}"), why };
    let text = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
    ranges(text.trim()).ok_or_else(|| failed(format!("{} is no list of CPUs", text.trim())))
}

/// The numbers of a list such as `0-3,8`.
fn ranges(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        // The kernel's limit on x86 and s390.
        if last >= 8192 {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn cpus_may_have_gaps() {
        assert_eq!(ranges("0"), Some(vec![0]));
        assert_eq!(ranges("0-2,8"), Some(vec![0, 1, 2, 8]));
        assert_eq!(ranges("0-9999"), None);
        assert_eq!(ranges("x"), None);
    }
}
