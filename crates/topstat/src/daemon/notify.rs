// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What systemd is told, where it started the daemon (`Type=notify-reload`): ready, reloading, stopping, alive. Without
//! systemd nothing happens.

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
    /// How often to say that the daemon is alive: half of what it is given, as sd_watchdog_enabled(3) advises.
    every: Duration,
    next: Instant,
    /// A thread was stuck the last time, and the log has it.
    stuck: bool,
}

impl Notify {
    /// As the environment has it.
    pub fn new(now: Instant) -> Self {
        let every = sd_notify::watchdog_enabled().map(|limit| limit / 2).filter(|every| !every.is_zero());
        Self { watchdog: every.map(|every| Watchdog { every, next: now, stuck: false }) }
    }

    /// The daemon serves.
    pub fn ready(&self, status: &str) {
        send(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// The configuration is being read again; [`Self::ready`] follows. The time tells systemd that it is this SIGHUP's.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => send(&[NotifyState::Reloading, now]),
            Err(error) => log::warn!("cannot read the clock for systemd: {error}"),
        }
    }

    /// The daemon is about to end.
    pub fn stopping(&self) {
        send(&[NotifyState::Stopping]);
    }

    /// When [`Self::alive`] must be called next.
    pub fn deadline(&self) -> Option<Instant> {
        self.watchdog.as_ref().map(|watchdog| watchdog.next)
    }

    /// Tells systemd that all is well, if it is time, and if no thread that serves has been at one piece of work for as long
    /// as from one such time to the next. systemd kills a daemon from which it has heard nothing for long enough, and
    /// starts it anew. Says whether it was time.
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
