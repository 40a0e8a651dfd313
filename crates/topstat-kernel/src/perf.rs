// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opens counters of the kernel's and the CPU's events (`perf_event_open`).

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

use libbpf_sys::{PERF_FLAG_FD_CLOEXEC, perf_event_attr};

/// The bit `disabled` of the flags: the event counts nothing until a program is attached.
pub const DISABLED: usize = 0;
/// The bit `freq`: `sample_freq` is given, not `sample_period`.
pub const FREQ: usize = 10;

/// The samples a second that the kernel allows an event; `None`: it does not say.
pub fn most_hz() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").ok()?.trim().parse().ok()
}

/// Opens an event of all tasks on a CPU.
///
/// # Errors
/// The kernel's error.
pub fn open(mut attr: perf_event_attr, cpu: u32) -> io::Result<OwnedFd> {
    attr.size = u32::try_from(size_of::<perf_event_attr>()).expect("some hundred bytes");
    attr._bitfield_1.set_bit(DISABLED, true);
    let cpu = libc::c_int::try_from(cpu).map_err(io::Error::other)?;
    // SAFETY: the structure lives through the call, and contains its own length. All tasks (-1), no group (-1).
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC) };
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: opened here, and owned by no other object.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens an event that takes a sample after each `period` of it, on a CPU.
///
/// # Errors
/// The kernel's error.
pub fn every(kind: u32, config: u64, period: u64, cpu: u32) -> io::Result<OwnedFd> {
    let mut attr = perf_event_attr { type_: kind, config, ..Default::default() };
    attr.__bindgen_anon_1.sample_period = period;
    open(attr, cpu)
}
