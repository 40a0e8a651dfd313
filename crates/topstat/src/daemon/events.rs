// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the daemon waits for.

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

/// What happened.
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
    /// The time has come.
    Deadline,
}

/// Flags, and a pipe that a wait can poll: signals and other threads write to it once their flag is set.
pub struct Events {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    unmounted: Arc<AtomicBool>,
    pipe: UnixStream,
    sender: UnixStream,
    mounts: Option<Mounts>,
}

/// The list of mounts, by which the kernel tells its changes: poll(2) of proc_pid_mounts(5).
struct Mounts {
    file: File,
    /// Changes until then end a wait then.
    quiet_until: Cell<Instant>,
}

/// The least time between two [`Event::Mounts`]: hosts with many containers mount all the time.
const MOUNTS_APART: Duration = Duration::from_secs(1);

impl Events {
    /// From now on signals do nothing but end the next [`Events::wait`].
    ///
    /// # Errors
    ///
    /// When they cannot be caught.
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
            // The flag comes first: whoever is woken by the pipe must find it set.
            flag::register(signal, Arc::clone(flag))?;
            low_level::pipe::register(signal, events.sender.try_clone()?)?;
        }
        Ok(events)
    }

    /// A flag that is set when a signal to stop comes.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// From now on changes of the list of mounts end a wait, too, if /proc has that list.
    pub fn watch_mounts(&mut self) {
        self.mounts =
            File::open("/proc/self/mounts").ok().map(|file| Mounts { file, quiet_until: Instant::now().into() });
    }

    /// What another thread calls when the tree was unmounted.
    ///
    /// # Errors
    ///
    /// When there can be no further file descriptor.
    pub fn on_unmount(&self) -> io::Result<impl FnOnce() + Send + 'static> {
        let (flag, mut sender) = (Arc::clone(&self.unmounted), self.sender.try_clone()?);
        Ok(move || {
            flag.store(true, Ordering::SeqCst);
            // A pipe that is full wakes as well.
            let _ = sender.write(&[0]);
        })
    }

    /// Waits until something happens; until the deadline, if there is one. What happened between two waits ends the
    /// next one. A signal to stop comes before all else, and every later wait gives it again.
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
                // Signals end the next wait.
                mounts.quiet_until.set(Instant::now() + MOUNTS_APART);
                return Ok(Event::Mounts);
            }
            let mut bytes = [0; 64];
            // It does not block, and ends with EAGAIN once it is empty.
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
