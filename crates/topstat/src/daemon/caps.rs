// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The privileges that the daemon keeps once all is loaded.
//!
//! Capabilities belong to threads, and a new thread has the capabilities of the thread that starts it. The daemon's first thread
//! gives up all but [`SERVING`] and [`AT_TIMES`]. [`AT_TIMES`] are not in effect: [`raised`] puts them into effect for one call.
//! Threads that serve the tree and read tables give up [`AT_TIMES`] as well ([`serve_only`]).

use rustix::io;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// A capability, its name, and its purpose.
type Needed = (CapabilitySet, &'static str, &'static str);

/// The capabilities that are needed all the time. For each of them, a trial without it has shown this.
pub const SERVING: [Needed; 3] = [
    (CapabilitySet::BPF, "CAP_BPF", "each reader has programs of its own"),
    (CapabilitySet::PERFMON, "CAP_PERFMON", "they read kernel memory"),
    (CapabilitySet::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH", "paths of cgroups by their ids: open_by_handle_at()"),
];

/// The capabilities that the first thread and the measuring thread need at times.
pub const AT_TIMES: [Needed; 1] = [(
    CapabilitySet::SYS_ADMIN,
    "CAP_SYS_ADMIN",
    "to mount and unmount the tree, and to have runs of programs counted",
)];

/// The capabilities that are needed, beside the others, until all is loaded.
pub const LOADING: [Needed; 1] = [(CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN", "to attach programs to packets")];

/// The needed capabilities that this thread lacks, in words for the log. CAP_SYS_ADMIN replaces some of the others while programs
/// are loaded, but not when tables are read.
pub fn missing() -> Vec<String> {
    let Ok(had) = capabilities(None) else { return Vec::new() };
    let needed = SERVING.iter().chain(&AT_TIMES).chain(&LOADING);
    let missing = needed.filter(|(one, ..)| !had.permitted.contains(*one));
    missing.map(|(_, name, why)| format!("without {name}, which is needed: {why}")).collect()
}

/// Whether this thread may put the capability to mount into effect.
pub fn can_mount() -> bool {
    capabilities(None).is_ok_and(|had| had.permitted.contains(of(&AT_TIMES)))
}

/// Gives up all capabilities that are not needed, for this thread and all threads that it starts from now on. No program that
/// they execute can have more: no_new_privs is set, and the bounding set is emptied if CAP_SETPCAP allows it. The unit does
/// without CAP_SETPCAP, and has systemd set the bounding set. Without privileges there is nothing to give up.
///
/// # Errors
///
/// When the kernel refuses.
pub fn drop() -> io::Result<()> {
    keep(of(&SERVING), of(&AT_TIMES))
}

/// Gives up [`AT_TIMES`] as well, for a thread that never needs them.
pub fn serve_only() {
    // Giving up is always allowed. If it failed, this thread would keep the capabilities of the first thread.
    if let Err(error) = keep(of(&SERVING), CapabilitySet::empty()) {
        log::error!("cannot give up privileges: {error}");
    }
}

fn keep(serving: CapabilitySet, at_times: CapabilitySet) -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    let had = capabilities(None)?;
    if had.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().iter() {
            match rustix::thread::remove_capability_from_bounding_set(capability) {
                // This kernel does not know the capability (yet).
                Ok(()) | Err(io::Errno::INVAL) => {}
                Err(error) => return Err(error),
            }
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let effective = had.permitted & serving;
    let permitted = had.permitted & (serving | at_times);
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })
}

/// Calls a function with [`AT_TIMES`] in effect, as far as this thread has them.
pub fn raised<T>(call: impl FnOnce() -> T) -> T {
    /// Restores the capabilities, even if the call panics.
    struct Lower(CapabilitySets);
    impl Drop for Lower {
        fn drop(&mut self) {
            // Giving up is always allowed, unless a filter of system calls forbids it.
            if let Err(error) = set_capabilities(None, self.0) {
                log::error!("cannot give up again the privileges that are needed at times: {error}");
            }
        }
    }
    let Ok(had) = capabilities(None) else { return call() };
    let effective = had.effective | (had.permitted & of(&AT_TIMES));
    // If this fails, the call fails for want of privilege, and reports it.
    let _ = set_capabilities(None, CapabilitySets { effective, ..had });
    let _lower = Lower(had);
    call()
}

/// The capabilities of this thread, in words for the log.
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
        false => format!("{}; at times, and never in threads that serve: {}", names(had.effective), names(at_times)),
    }
}

fn of(known: &[Needed]) -> CapabilitySet {
    known.iter().map(|(one, ..)| *one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_serves_has_no_more_than_it_needs_and_can_not_get_it_back() {
        let before = capabilities(None).unwrap();
        std::thread::spawn(|| {
            drop().unwrap();
            let first = capabilities(None).unwrap();
            assert!((of(&SERVING) | of(&AT_TIMES)).contains(first.permitted));
            assert!((of(&SERVING)).contains(first.effective));
            let had = first.permitted & of(&AT_TIMES);
            assert_eq!(raised(|| capabilities(None).unwrap().effective), first.effective | had);
            assert_eq!(capabilities(None).unwrap(), first);
            assert!(rustix::thread::no_new_privs().unwrap());
            let serving = std::thread::spawn(|| {
                serve_only();
                raised(|| capabilities(None).unwrap())
            });
            let serving = serving.join().unwrap();
            assert!(of(&SERVING).contains(serving.permitted) && serving.permitted == serving.effective);
        })
        .join()
        .unwrap();
        // Other threads keep their capabilities.
        assert_eq!(capabilities(None).unwrap(), before);
    }
}
