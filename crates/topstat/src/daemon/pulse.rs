// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks whether all serving threads make progress. The watchdog is fed only while they do.
//!
//! Each thread that answers requests or takes snapshots has a [`Beat`], which records since when the thread has worked on one
//! piece of work. A thread that waits for work is well. A queue of work has a beat, too: it records since when work that may
//! begin has waited for a thread. The thread of an [`Echo`] sends a request to the daemon's own tree, as any user would. So the
//! way through the kernel is known to be open.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use std::{io, thread};

use super::caps;

use crate::lock::lock;

/// The serving threads.
#[derive(Debug)]
pub struct Pulse {
    begun: Instant,
    /// The beat of a thread that has ended is removed.
    threads: Mutex<Vec<Weak<Beat>>>,
}

/// The progress of one thread or queue.
#[derive(Debug)]
pub struct Beat {
    name: String,
    begun: Instant,
    /// When the thread began its piece of work: the milliseconds since `begun`, plus 1. 0 while it waits for work.
    since: AtomicU64,
}

/// A piece of work. The drop of this value ends it.
#[derive(Debug)]
pub struct Working(Arc<Beat>);

impl Default for Pulse {
    fn default() -> Self {
        Self { begun: Instant::now(), threads: Mutex::default() }
    }
}

impl Pulse {
    /// Watches a thread, until it drops the returned beat.
    pub fn thread(&self, name: String) -> Arc<Beat> {
        let beat = Arc::new(Beat { name, begun: self.begun, since: AtomicU64::new(0) });
        let mut threads = lock(&self.threads);
        threads.retain(|thread| thread.strong_count() > 0);
        threads.push(Arc::downgrade(&beat));
        beat
    }

    /// The thread that has worked longest on one piece of work, and for how long, if that is at least `long`.
    pub fn stuck(&self, long: Duration) -> Option<(String, Duration)> {
        let threads = lock(&self.threads);
        let working = threads.iter().filter_map(Weak::upgrade).filter_map(|beat| Some((beat.working_for()?, beat)));
        let (longest, beat) = working.max_by_key(|(time, _)| *time)?;
        (longest >= long).then(|| (beat.name.clone(), longest))
    }
}

impl Beat {
    /// Records that a piece of work begins. It ends when the returned value is dropped.
    pub fn working(self: &Arc<Self>) -> Working {
        self.since.store(self.now() + 1, Ordering::Relaxed);
        Working(Arc::clone(self))
    }

    /// Records for a queue that work waits for a thread from now on, or that no work waits any more.
    pub fn waits(&self, waits: bool) {
        self.since.store(if waits { self.now() + 1 } else { 0 }, Ordering::Relaxed);
    }

    /// Whether [`Beat::waits`] or [`Beat::working`] has recorded waiting or begun work.
    pub fn is_waiting(&self) -> bool {
        self.since.load(Ordering::Relaxed) > 0
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }

    fn working_for(&self) -> Option<Duration> {
        let since = self.since.load(Ordering::Relaxed).checked_sub(1)?;
        Some(Duration::from_millis(self.now().saturating_sub(since)))
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.since.store(0, Ordering::Relaxed);
    }
}

/// The thread that sends requests to the daemon's own tree.
#[derive(Debug)]
pub struct Echo(SyncSender<()>);

impl Echo {
    /// Starts the thread, for the tree at this path. While no tree is mounted there, the directory answers, which serves as well.
    ///
    /// # Errors
    ///
    /// When the thread can't be started.
    pub fn start(at: &Path, pulse: &Pulse) -> io::Result<Self> {
        let (asked, asks) = sync_channel(1);
        let (at, beat) = (at.to_owned(), pulse.thread("topstat-echo".to_owned()));
        thread::Builder::new().name("topstat-echo".to_owned()).spawn(move || {
            caps::serve_only();
            if !without_files() {
                log::warn!("the watchdog does not ask the tree itself: this kernel has no close_range (Linux 5.9)");
                return;
            }
            while asks.recv() == Ok(()) {
                let _working = beat.working();
                // Any answer will do, even an error.
                let _ = rustix::fs::statfs(&at);
            }
        })?;
        Ok(Self(asked))
    }

    /// Makes the thread send a request. While the thread waits for an answer, at most one further request is queued.
    pub fn ask(&self) {
        let _ = self.0.try_send(());
    }
}

/// Gives this thread a separate table of open files, with only the standard files in it.
///
/// If the daemon is killed while this thread waits for the daemon's own tree, the kernel can end the wait only once the tree's
/// device is closed. This thread can't end before. If it had the device open, too, the device would never be closed.
fn without_files() -> bool {
    const FIRST: libc::c_uint = 3;
    // SAFETY: only this thread uses the table from then on (CLOSE_RANGE_UNSHARE), and the thread owns no file.
    unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_at_one_thing_for_long_is_told() {
        let pulse = Pulse::default();
        let (quick, slow) = (pulse.thread("quick".to_owned()), pulse.thread("slow".to_owned()));
        assert_eq!(pulse.stuck(Duration::ZERO), None, "who waits for work is well");
        let working = slow.working();
        thread::sleep(Duration::from_millis(20));
        let _quick = quick.working();
        let (name, time) = pulse.stuck(Duration::from_millis(10)).expect("one is stuck");
        assert!(name == "slow" && time >= Duration::from_millis(19), "{name} {time:?}");
        assert_eq!(pulse.stuck(Duration::from_secs(3600)), None);
        drop(working);
        let _next = slow.working();
        assert_eq!(pulse.stuck(Duration::from_secs(3600)), None);
        drop((slow, quick, _next, _quick));
        assert_eq!(pulse.stuck(Duration::ZERO), None, "threads that have ended are forgotten");
    }

    #[test]
    fn the_echo_leaves_the_files_of_others_open() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        let pulse = Pulse::default();
        let echo = Echo::start(Path::new("/"), &pulse).unwrap();
        for _ in 0..100 {
            echo.ask();
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(pulse.stuck(Duration::from_secs(3600)), None);
        assert!(file.metadata().is_ok());
    }
}
