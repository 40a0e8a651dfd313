// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The privileges that are left once all is loaded and mounted.
//!
//! Capabilities belong to threads. The threads that serve the tree and read tables are started after [`drop`], and have
//! [`SERVING`] alone, for good. The thread that started them keeps those of [`AT_TIMES`] as well, but not in effect:
//! [`raised`] puts them into effect for one call.

use rustix::io;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// What is needed all the time, and why; found out by leaving out each (`tests/live/tests/privileges.rs` does).
pub const SERVING: [(CapabilitySet, &str, &str); 3] = [
    (CapabilitySet::BPF, "CAP_BPF", "each reader has programs of its own"),
    (CapabilitySet::PERFMON, "CAP_PERFMON", "they read kernel memory"),
    (CapabilitySet::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH", "paths of cgroups by their ids: open_by_handle_at()"),
];

/// What is needed at times, by the first thread alone, and why.
pub const AT_TIMES: [(CapabilitySet, &str, &str); 1] =
    [(CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN", "to mount and unmount the tree, and to switch the statistics of eBPF on")];

/// Gives up what is not needed, for this thread and all that it starts from now on. Nothing that they execute can have
/// more (no_new_privs, and an empty bounding set). Without privileges there is nothing to give up.
///
/// # Errors
///
/// When the kernel refuses.
pub fn drop() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    let had = capabilities(None)?;
    if had.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().iter() {
            match rustix::thread::remove_capability_from_bounding_set(capability) {
                // This kernel does not know it (yet).
                Ok(()) | Err(io::Errno::INVAL) => {}
                Err(error) => return Err(error),
            }
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let serving = had.permitted & of(&SERVING);
    let permitted = serving | (had.permitted & of(&AT_TIMES));
    set_capabilities(None, CapabilitySets { effective: serving, permitted, inheritable: CapabilitySet::empty() })
}

/// Gives up what is needed at times, for a thread that never will.
///
/// # Errors
///
/// When the kernel refuses.
pub fn serve_only() -> io::Result<()> {
    let had = capabilities(None)?;
    let permitted = had.permitted & of(&SERVING);
    set_capabilities(None, CapabilitySets { effective: had.effective & permitted, permitted, ..had })
}

/// Calls a function with what is needed at times in effect, as far as this thread has it.
pub fn raised<T>(call: impl FnOnce() -> T) -> T {
    let Ok(had) = capabilities(None) else { return call() };
    let effective = had.effective | (had.permitted & of(&AT_TIMES));
    // Where it fails, the call fails for want of privilege, and says so.
    let _ = set_capabilities(None, CapabilitySets { effective, ..had });
    /// Also when the call panics.
    struct Lower(CapabilitySets);
    impl Drop for Lower {
        fn drop(&mut self) {
            let lowered = set_capabilities(None, self.0);
            debug_assert!(lowered.is_ok(), "to lower them is always allowed");
        }
    }
    let _lower = Lower(had);
    call()
}

/// What this thread has, in words for the log.
pub fn describe() -> String {
    let Ok(had) = capabilities(None) else { return "unknown".to_owned() };
    let names = |set: CapabilitySet| {
        let known = SERVING.iter().chain(&AT_TIMES).filter(|(one, ..)| set.contains(*one)).map(|(_, name, _)| *name);
        let mut names: Vec<String> = known.map(str::to_owned).collect();
        let further = set - of(&SERVING) - of(&AT_TIMES);
        names.extend((!further.is_empty()).then(|| format!("{} more", further.iter().count())));
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let at_times = had.permitted - had.effective;
    match at_times.is_empty() {
        true => names(had.effective),
        false => format!("{}; at times, and not for the threads that serve: {}", names(had.effective), names(at_times)),
    }
}

fn of(known: &[(CapabilitySet, &str, &str)]) -> CapabilitySet {
    known.iter().map(|(one, ..)| *one).collect()
}
