// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Notifies systemd, if it started the daemon (`Type=notify-reload`), that the daemon is ready, reloading, stopping or alive.
//! Without systemd nothing happens.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

use super::pulse::Pulse;

/// The way to the service manager, and its watchdog.
#[derive(Debug, Default)]
pub struct Notify {
    watchdog: Option<Watchdog>,
}

#[derive(Debug)]
struct Watchdog {
    /// How often to report that the daemon is alive: half of the watchdog's limit, as sd_watchdog_enabled(3) advises.
    every: Duration,
    next: Instant,
    /// A thread was stuck at the last check, and the log reports it.
    stuck: bool,
}

impl Notify {
    /// Takes the watchdog's limit from the environment.
    pub fn new(now: Instant) -> Self {
        let every = sd_notify::watchdog_enabled().map(|limit| limit / 2).filter(|every| !every.is_zero());
        Self { watchdog: every.map(|every| Watchdog { every, next: now, stuck: false }) }
    }

    /// Reports that the daemon serves.
    pub fn ready(&self, status: &str) {
        send(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Reports that the configuration is being read again. [`Self::ready`] follows. By the time in the report systemd knows that
    /// it is for this SIGHUP.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => send(&[NotifyState::Reloading, now]),
            Err(error) => log::warn!("cannot read the clock for systemd: {error}"),
        }
    }

    /// Reports that the daemon is about to end.
    pub fn stopping(&self) {
        send(&[NotifyState::Stopping]);
    }

    /// When [`Self::alive`] must be called next.
    pub fn deadline(&self) -> Option<Instant> {
        self.watchdog.as_ref().map(|watchdog| watchdog.next)
    }

    /// Reports to systemd that all is well, if the time for it has come and no serving thread has worked on one piece of work for
    /// as long as the time between two reports. Without reports systemd kills the daemon after a limit, and starts it anew.
    /// Returns whether the time had come.
    pub fn alive(&mut self, now: Instant, pulse: &Pulse) -> bool {
        let Some(watchdog) = self.watchdog.as_mut().filter(|watchdog| now >= watchdog.next) else { return false };
        watchdog.next = now + watchdog.every;
        let stuck = pulse.stuck(watchdog.every);
        match &stuck {
            None => send(&[NotifyState::Watchdog]),
            Some((thread, time)) if !watchdog.stuck => {
                log::error!(
                    "{thread} has made no progress for {} s: systemd is not told that all is well",
                    time.as_secs()
                );
            }
            Some(_) => {}
        }
        watchdog.stuck = stuck.is_some();
        true
    }
}

fn send(state: &[NotifyState<'_>]) {
    // Without NOTIFY_SOCKET it does nothing.
    if let Err(error) = sd_notify::notify(state) {
        log::warn!("cannot notify systemd: {error}");
    }
}
