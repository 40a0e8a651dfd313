// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One transaction at a time, with nothing but `send` and `recv`.

use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags};

use super::transfer::Step;
use super::{Next, Runner};
use crate::error::Result;
use crate::open::BLOCKING_INTERVAL;

impl Runner<'_> {
    pub(super) fn run_blocking(&mut self) -> Result<()> {
        let mut now = self.now();
        loop {
            if now >= self.churn_due_ns() {
                self.churn(now)?;
                now = self.now();
            }
            match self.next(now) {
                Next::Begin(index) => {
                    self.begin(index, now);
                    if !self.transact(index) {
                        return Ok(());
                    }
                    now = self.now();
                    if self.slots[index].busy {
                        self.complete(index, now);
                    }
                }
                Next::NotBefore(due) => {
                    let until = due.min(self.churn_due_ns()).min(self.time_ns);
                    let pause = Duration::from_nanos(until.saturating_sub(now));
                    std::thread::sleep(pause.min(BLOCKING_INTERVAL));
                    now = self.now();
                }
                // No transaction is in flight here, so none can wait for it.
                Next::Busy | Next::Over => return Ok(()),
            }
        }
    }

    /// Carries out one transaction. Returns false if the run gives up waiting for it. A transaction that is not busy
    /// afterwards was lost, or its connection has failed.
    fn transact(&mut self, index: usize) -> bool {
        let mut given_up = u64::MAX;
        loop {
            let mut step = Step::Wait;
            if self.slots[index].to_send > 0 {
                step = self.send(index, SendFlags::empty());
            }
            if step == Step::Wait && self.slots[index].to_send == 0 {
                step = self.receive(index, RecvFlags::empty());
            }
            match step {
                Step::Done => return true,
                Step::Failed => {
                    self.fail(index);
                    return true;
                }
                Step::Wait => {}
            }
            let now = self.now();
            if self.datagrams && now - self.slots[index].began_ns >= self.limits.loss_timeout.as_nanos() as u64 {
                self.lose(index);
                return true;
            }
            self.check_limits(now);
            if self.ended.is_some() {
                given_up = given_up.min(now + self.limits.drain.as_nanos() as u64);
            }
            if now >= given_up {
                return false;
            }
        }
    }
}
