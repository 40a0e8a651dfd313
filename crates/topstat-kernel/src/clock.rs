// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock that programs read, and the CPUs that they run on.

use crate::Error;

/// The length of a jiffy, the grain of the coarse clock.
pub fn jiffy_ns() -> u64 {
    let grain = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    u64::try_from(grain.tv_nsec).unwrap_or(0) + u64::try_from(grain.tv_sec).unwrap_or(0) * 1_000_000_000
}

/// Jiffies in a second.
pub fn hz() -> u32 {
    let ns = jiffy_ns();
    u32::try_from((1_000_000_000 + ns / 2) / ns.max(1)).unwrap_or(250)
}

/// All CPUs that the machine could ever have. Each of them has banks.
pub fn possible_cpus() -> Result<u32, Error> {
    let cpus = libbpf_rs::num_possible_cpus()
        .map_err(|e| Error::Kernel { what: "count the CPUs".to_owned(), why: e.to_string() })?;
    Ok(u32::try_from(cpus).unwrap_or(u32::MAX))
}

/// The CPUs that are online.
///
/// # Errors
/// When the kernel does not list them.
pub fn online_cpus() -> Result<Vec<u32>, Error> {
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
