// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many concurrent transactions, by epoll.

use std::os::fd::OwnedFd;

use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

use super::transfer::Step;
use super::{Next, Runner};
use crate::error::{Error, Result};

/// The maximum number of events taken in one call.
const EVENTS: usize = 512;

/// The maximum number of transactions begun before a look for events. In one-way mode each may end at once, for ever.
const BEGIN_AT_ONCE: usize = 512;

/// The interval of checks of limits and requests to stop while no event comes.
const LONGEST_WAIT_NS: u64 = 50_000_000;

/// The interval of checks for lost datagrams.
const LOSS_CHECK_NS: u64 = 100_000_000;

/// epoll's own timeout counts milliseconds before Linux 5.11; a timer serves shorter waits.
const TIMER_BELOW_NS: u64 = 5_000_000;

/// The token of the timer.
const TIMER: u64 = u64::MAX;

/// Wakes a paced run.
struct Timer {
    fd: OwnedFd,
    /// The time that the timer was last set to, so that each time is set only once.
    armed_ns: u64,
}

impl Runner<'_> {
    pub(super) fn run_polled(&mut self) -> Result<()> {
        for index in 0..self.conns.len() {
            if !self.slots[index].watched && !self.slots[index].dead {
                self.watch(index)?;
            }
        }
        let mut timer = match self.limits.rate {
            Some(_) => Some(self.timer()?),
            None => None,
        };
        let done = self.poll(timer.as_mut());
        if let Some(timer) = timer {
            // Closing the timer would be enough, unless another thread of the process forks.
            let _ = epoll::delete(self.epoll, &timer.fd);
        }
        done
    }

    fn poll(&mut self, mut timer: Option<&mut Timer>) -> Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        let mut given_up = u64::MAX;
        let mut loss_check = LOSS_CHECK_NS;
        loop {
            let now = self.now();
            self.churn(now)?;
            let begin_at = self.begin_all(now);
            if self.ended.is_some() {
                if self.in_flight == 0 {
                    return Ok(());
                }
                given_up = given_up.min(now + self.limits.drain.as_nanos() as u64);
                if now >= given_up {
                    return Ok(());
                }
            }
            if self.datagrams && now >= loss_check {
                loss_check = now + LOSS_CHECK_NS;
                self.find_losses(now);
            }
            let now = self.now();
            // Limits matter only for transactions that may still begin; transactions in flight wake this thread themselves.
            let next = begin_at.min(self.churn_due_ns()).min(given_up);
            let next = if self.ended.is_some() { next } else { next.min(self.time_ns) };
            events.clear();
            self.wait(next, now, timer.as_deref_mut(), &mut events)?;
            for event in &events {
                self.handle(event.data.u64());
            }
        }
    }

    /// Begins all transactions that may begin. Returns the time of the next call if no event comes before it.
    fn begin_all(&mut self, mut now: u64) -> u64 {
        for _ in 0..BEGIN_AT_ONCE {
            if self.in_flight >= self.depth {
                self.check_limits(now);
                return u64::MAX;
            }
            match self.next(now) {
                Next::Begin(index) => {
                    self.begin_on(index, now);
                    if self.is_bulk() {
                        now = self.now();
                    }
                }
                Next::NotBefore(due) => return due,
                Next::Busy | Next::Over => return u64::MAX,
            }
        }
        now
    }

    fn begin_on(&mut self, index: usize, now: u64) {
        self.begin(index, now);
        match self.send(index, SendFlags::DONTWAIT) {
            Step::Wait => {}
            Step::Done => {
                let now = self.now();
                self.complete(index, now);
            }
            Step::Failed => self.fail(index),
        }
    }

    fn handle(&mut self, token: u64) {
        let index = token as usize;
        // An edge of an earlier run may still be reported; the end of an idle connection is noticed at its next use.
        if token == TIMER || !self.slots[index].busy {
            return;
        }
        match self.go_on(index) {
            Step::Wait => {}
            Step::Failed => self.fail(index),
            Step::Done => {
                let now = self.now();
                self.complete(index, now);
                // The next transaction begins at once, so that the server always has work, unless a connection must be
                // replaced: a replacement needs an idle connection.
                if now < self.churn_due_ns()
                    && let Next::Begin(next) = self.next(now)
                {
                    self.begin_on(next, now);
                }
            }
        }
    }

    /// Watches a connection. Responses are read until they are complete, so an edge is enough. A UDP socket would also report
    /// room after every datagram that has left, so it is watched for input only.
    pub(super) fn watch(&mut self, index: usize) -> Result<()> {
        let failed = |error: Errno| Error::system(format!("watch connection {index}"), error);
        let flags = if self.datagrams { EventFlags::IN } else { EventFlags::IN | EventFlags::OUT };
        let client = self.conns[index].client_fd()?;
        epoll::add(self.epoll, client, EventData::new_u64(index as u64), flags | EventFlags::ET).map_err(failed)?;
        self.slots[index].watched = true;
        Ok(())
    }

    fn timer(&self) -> Result<Timer> {
        let failed = |error: Errno| Error::system("create a timer", error);
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed)?;
        epoll::add(self.epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN | EventFlags::ET).map_err(failed)?;
        Ok(Timer { fd: timer, armed_ns: 0 })
    }

    /// Waits for events until the time `next`.
    fn wait(&self, next: u64, now: u64, timer: Option<&mut Timer>, events: &mut Vec<Event>) -> Result<()> {
        let failed = |error: Errno| Error::system("wait for responses", error);
        let time = |ns: u64| Timespec { tv_sec: 0, tv_nsec: ns as _ };
        let mut wait_ns = next.saturating_sub(now).min(LONGEST_WAIT_NS);
        if let Some(timer) = timer
            && (1..TIMER_BELOW_NS).contains(&wait_ns)
        {
            if timer.armed_ns != next {
                let once = Itimerspec { it_interval: time(0), it_value: time(wait_ns) };
                timerfd_settime(&timer.fd, TimerfdTimerFlags::empty(), &once).map_err(failed)?;
                timer.armed_ns = next;
            }
            wait_ns = LONGEST_WAIT_NS;
        }
        let timeout = time(wait_ns);
        match epoll::wait(self.epoll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    fn find_losses(&mut self, now: u64) {
        let timeout = self.limits.loss_timeout.as_nanos() as u64;
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if slot.busy && now.saturating_sub(slot.began_ns) >= timeout {
                self.lose(index);
            }
        }
    }
}
