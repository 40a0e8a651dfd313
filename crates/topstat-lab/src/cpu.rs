// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPUs of this host, and the time that they and the kernel's threads have used.

use procfs::process::Stat;
use procfs::{CurrentSI as _, KernelStats};
use rustix::time::{ClockId, clock_gettime};

/// The CPUs that this process may use.
///
/// # Errors
///
/// When the kernel does not say.
pub fn cpus() -> Result<Vec<usize>, String> {
    let allowed =
        rustix::thread::sched_getaffinity(None).map_err(|e| format!("cannot ask which CPUs may be used: {e}"))?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect())
}

/// The NUMA nodes of these CPUs. The node of the device comes first; without a device's node they are in the order of their
/// numbers.
pub fn nodes(cpus: &[usize], device: &str) -> Vec<Vec<usize>> {
    let own = std::fs::read_to_string(format!("/sys/class/net/{device}/device/numa_node")).unwrap_or_default();
    let own = format!("node{}", own.trim());
    let entries = std::fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let mut folders: Vec<_> = entries.map(|entry| entry.path()).collect();
    folders.sort_by_key(|path| (path.file_name().is_none_or(|name| name != own.as_str()), path.clone()));
    let on =
        |node: std::path::PathBuf| cpus.iter().copied().filter(|cpu| node.join(format!("cpu{cpu}")).exists()).collect();
    folders.into_iter().map(on).filter(|cpus: &Vec<usize>| !cpus.is_empty()).collect()
}

/// The processes whose CPU time and samples are counted: this one, and the kernel's threads that run softirqs.
pub(crate) fn counted() -> Vec<u32> {
    let softirqs = softirq_threads().filter_map(|stat| u32::try_from(stat.pid).ok());
    std::iter::once(std::process::id()).chain(softirqs).collect()
}

/// The kernel's threads that run softirqs, of all CPUs.
fn softirq_threads() -> impl Iterator<Item = Stat> {
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    let stats = processes.filter_map(|process| process.stat().ok());
    stats.filter(|stat| stat.comm.starts_with("ksoftirqd/"))
}

/// The CPU time of these threads in seconds, whatever has raised the softirqs.
pub(crate) fn softirq_seconds() -> f64 {
    seconds(softirq_threads().map(|stat| stat.utime + stat.stime).sum())
}

/// The CPU time of all CPUs in seconds, without the time that they were idle or that a hypervisor took.
pub(crate) fn busy_seconds() -> Result<f64, String> {
    let stats = KernelStats::current().map_err(|e| format!("cannot read /proc/stat: {e}"))?;
    let all = stats.total;
    Ok(seconds(all.user + all.nice + all.system + all.irq.unwrap_or(0) + all.softirq.unwrap_or(0)))
}

#[expect(clippy::cast_precision_loss, reason = "ticks of a few days are exact")]
fn seconds(ticks: u64) -> f64 {
    ticks as f64 / procfs::ticks_per_second() as f64
}

pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
