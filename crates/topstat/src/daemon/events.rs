// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The events that the daemon waits for.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
    /// The tree was unmounted.
    Unmounted,
    /// Something was mounted or unmounted: see [`Events::watch_mounts`].
    Mounts,
    /// The deadline of the wait has come.
    Deadline,
}

/// Flags, and a pipe that a wait can poll. Signals and other threads set their flag, and then write to the pipe.
pub struct Events {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    unmounted: Arc<AtomicBool>,
    pipe: UnixStream,
    sender: UnixStream,
    mounts: Option<Mounts>,
}

/// The list of mounts. A poll(2) on it reports its changes: see proc_pid_mounts(5).
struct Mounts {
    file: File,
    /// A change before this time ends a wait only at this time.
    quiet_until: Cell<Instant>,
}

/// The least time between two [`Event::Mounts`]: hosts with many containers mount all the time.
const MOUNTS_APART: Duration = Duration::from_secs(1);

impl Events {
    /// Catches signals: from now on they only end the next [`Events::wait`].
    ///
    /// # Errors
    ///
    /// When the signals cannot be caught.
    pub fn catch() -> io::Result<Self> {
        let (pipe, sender) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        sender.set_nonblocking(true)?;
        let events = Self {
            stop: Arc::default(),
            reload: Arc::default(),
            unmounted: Arc::default(),
            pipe,
            sender,
            mounts: None,
        };
        for (signal, flag) in [(SIGTERM, &events.stop), (SIGINT, &events.stop), (SIGHUP, &events.reload)] {
            // The flag is set first: a wait that the pipe ends must find it set.
            flag::register(signal, Arc::clone(flag))?;
            low_level::pipe::register(signal, events.sender.try_clone()?)?;
        }
        Ok(events)
    }

    /// The flag that is set when a signal to stop comes.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// From now on changes of the list of mounts end a wait, too, if /proc has that list.
    pub fn watch_mounts(&mut self) {
        self.mounts =
            File::open("/proc/self/mounts").ok().map(|file| Mounts { file, quiet_until: Instant::now().into() });
    }

    /// The function that another thread calls when the tree was unmounted.
    ///
    /// # Errors
    ///
    /// When there can be no further file descriptor.
    pub fn on_unmount(&self) -> io::Result<impl FnOnce() + Send + 'static> {
        let (flag, mut sender) = (Arc::clone(&self.unmounted), self.sender.try_clone()?);
        Ok(move || {
            flag.store(true, Ordering::SeqCst);
            // A full pipe ends the wait as well.
            let _ = sender.write(&[0]);
        })
    }

    /// Waits for an event, or until the deadline, if there is one. An event between two waits ends the next wait. A signal to
    /// stop comes before all other events, and every later wait returns it again.
    ///
    /// # Errors
    ///
    /// When the system cannot wait.
    pub fn wait(&self, deadline: Option<Instant>) -> io::Result<Event> {
        loop {
            if self.stop.load(Ordering::SeqCst) {
                return Ok(Event::Stop);
            }
            for (flag, event) in [(&self.reload, Event::Reload), (&self.unmounted, Event::Unmounted)] {
                if flag.swap(false, Ordering::SeqCst) {
                    return Ok(event);
                }
            }
            let now = Instant::now();
            let mut left = deadline.map(|deadline| deadline.saturating_duration_since(now));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(Event::Deadline);
            }
            let mut fds = vec![PollFd::new(&self.pipe, PollFlags::IN)];
            if let Some(mounts) = &self.mounts {
                let quiet = mounts.quiet_until.get().saturating_duration_since(now);
                if quiet.is_zero() {
                    fds.push(PollFd::new(&mounts.file, PollFlags::PRI));
                } else {
                    left = Some(left.map_or(quiet, |left| left.min(quiet)));
                }
            }
            let timeout = left.map(|left| Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            });
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if let (Some(mounts), Some(fd)) = (&self.mounts, fds.get(1))
                && !fd.revents().is_empty()
            {
                // A signal that came at the same moment ends the next wait.
                mounts.quiet_until.set(Instant::now() + MOUNTS_APART);
                return Ok(Event::Mounts);
            }
            let mut bytes = [0; 64];
            // The read does not block, and fails with EAGAIN once the pipe is empty.
            while rustix::io::read(&self.pipe, &mut bytes).is_ok_and(|read| read > 0) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_and_threads_end_a_wait() {
        let events = Events::catch().unwrap();
        let soon = Instant::now() + Duration::from_millis(20);
        assert_eq!(events.wait(Some(soon)).unwrap(), Event::Deadline);
        assert!(Instant::now() >= soon);
        let unmounted = events.on_unmount().unwrap();
        std::thread::spawn(unmounted);
        assert_eq!(events.wait(None).unwrap(), Event::Unmounted);
        low_level::raise(SIGHUP).unwrap();
        assert_eq!(events.wait(None).unwrap(), Event::Reload);
        low_level::raise(SIGTERM).unwrap();
        assert_eq!((events.wait(None).unwrap(), events.wait(None).unwrap()), (Event::Stop, Event::Stop));
    }
}
