// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's own accounts of CPU time, which topstat is compared with. All times are in ns.

use std::path::Path;
use std::time::Duration;

/// The scheduler's account of a task, in proc(5)'s `schedstat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedstat {
    /// The time on a CPU (`sum_exec_runtime`). While the task runs, it is as of the last tick or switch.
    pub run_ns: u64,
    /// The time that the task was runnable and not on a CPU (`run_delay`).
    pub wait_ns: u64,
    /// How often the task came onto a CPU.
    pub slices: u64,
}

/// The account of the task with this folder: `/proc/PID`, `/proc/PID/task/TID`. `None`: the task has ended.
pub fn schedstat(folder: impl AsRef<Path>) -> Option<Schedstat> {
    let text = std::fs::read_to_string(folder.as_ref().join("schedstat")).ok()?;
    let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
    Some(Schedstat { run_ns: numbers.next()??, wait_ns: numbers.next()??, slices: numbers.next()?? })
}

/// The account of the first thread of a process.
///
/// # Panics
/// The process has ended.
pub fn schedstat_of(pid: u32) -> Schedstat {
    schedstat(format!("/proc/{pid}")).unwrap_or_else(|| panic!("process {pid} has no schedstat"))
}

/// The CPU time of the children that this process has waited for, by getrusage(2), which rounds to µs.
///
/// # Panics
/// Never: the arguments of getrusage(2) are valid.
pub fn used_by_children() -> u64 {
    // SAFETY: all zeroes are a value, and the kernel fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage), 0, "getrusage");
        usage
    };
    let ns = |t: libc::timeval| t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_usec.unsigned_abs() * 1000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

/// The CPU time of the calling thread. Unlike elapsed time, it does not depend on other processes.
pub fn own_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
