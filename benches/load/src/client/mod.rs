// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The client's side of a run: the transactions that may begin, and the counts.

mod blocking;
mod polled;
mod transfer;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::config::{Config, Mode, Proto, UdpServer};
use crate::conn::Conn;
use crate::error::{Error, Result};
use crate::open::Opener;
use crate::plan::{Limits, Schedule};
use crate::report::EndedBy;
use crate::server::Server;

/// The longest time that is recorded exactly.
const LONGEST_NS: u64 = 60_000_000_000;

/// The time without arrivals after which missing datagrams count as lost, and bytes of failed connections, too.
pub(crate) const SETTLE_QUIET: Duration = Duration::from_millis(200);

/// The interval of checks whether the server has caught up.
pub(crate) const SETTLE_INTERVAL: Duration = Duration::from_micros(200);

/// The client's state of the connection with the same index.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// Whether a transaction is in flight.
    pub busy: bool,
    /// Whether the connection is closed: it has failed, or the caller has closed it.
    pub dead: bool,
    /// Whether the client's epoll instance watches the connection.
    pub watched: bool,
    /// Transactions that could not begin yet, because one is in flight.
    pub waiting: u32,
    /// Bytes of the request still to be sent.
    pub to_send: usize,
    /// Bytes of the response still to be received.
    pub to_receive: usize,
    /// When the transaction began.
    pub began_ns: u64,
    /// Distinguishes an answer from the answer to a request that was given up; for datagrams only.
    pub sequence: u64,
    /// The counts since the beginning of the run.
    pub count: Count,
    /// The server's counts at the beginning of the run.
    pub server_before: (u64, u64),
}

/// The client's counts of a connection in a run.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Count {
    pub transactions: u64,
    pub sent: u64,
    pub received: u64,
}

/// A connection that was closed during the run, with its counts.
pub(crate) struct Retired {
    pub conn: Conn,
    pub count: Count,
    pub server_before: (u64, u64),
}

impl Retired {
    /// Waits until the server has received everything that the client sent, or no more data arrives.
    fn settle(&self) {
        let received = || self.conn.counts.received.get() - self.server_before.0;
        let (mut before, mut since) = (received(), Instant::now());
        while before < self.count.sent && since.elapsed() < SETTLE_QUIET {
            std::thread::sleep(SETTLE_INTERVAL);
            let now = received();
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
    }
}

/// The sums of a run.
pub(crate) struct Tally {
    pub times: Histogram<u64>,
    pub lost: u64,
    pub unfinished: u64,
    pub skipped: u64,
    pub failed: u64,
    pub retired: Vec<Retired>,
    /// When the last transaction ended.
    pub last_ns: u64,
    pub ended_by: EndedBy,
}

/// The next possible action.
enum Next {
    /// Begin a transaction on this connection.
    Begin(usize),
    /// Nothing may begin before this time.
    NotBefore(u64),
    /// Nothing may begin before a transaction in flight has ended.
    Busy,
    /// The run is over.
    Over,
}

/// A run in progress.
pub(crate) struct Runner<'a> {
    pub config: &'a Config,
    pub limits: &'a Limits,
    pub opener: &'a mut Opener,
    pub server: &'a mut Server,
    pub epoll: &'a OwnedFd,
    pub conns: &'a mut [Conn],
    pub slots: &'a mut [Slot],
    schedule: Schedule<'a>,
    start: Instant,
    time_ns: u64,
    request: usize,
    response: usize,
    datagrams: bool,
    depth: usize,
    in_flight: usize,
    alive: usize,
    begun: u64,
    /// The sum of all slots' `waiting`.
    waiting: u64,
    /// Idle connections that have waiting transactions.
    ready: VecDeque<u32>,
    ended: Option<EndedBy>,
    churned: u64,
    churn_next: usize,
    /// For one socket that serves all clients: the latest of `tally.retired` with this address.
    retired_at: HashMap<SocketAddr, usize>,
    out: Vec<u8>,
    input: Vec<u8>,
    tally: Tally,
}

/// The parts of the load that a run uses.
pub(crate) struct Parts<'a> {
    pub config: &'a Config,
    pub limits: &'a Limits,
    pub opener: &'a mut Opener,
    pub server: &'a mut Server,
    pub epoll: &'a OwnedFd,
    pub conns: &'a mut [Conn],
    pub slots: &'a mut [Slot],
    pub schedule: Schedule<'a>,
}

impl<'a> Runner<'a> {
    pub fn new(parts: Parts<'a>) -> Result<Runner<'a>> {
        let Parts { config, limits, opener, server, epoll, conns, slots, schedule } = parts;
        let times = Histogram::new_with_bounds(1, LONGEST_NS, 3)
            .map_err(|error| Error::system("set up the histogram", std::io::Error::other(error)))?;
        let datagrams = config.proto == Proto::Udp;
        let buffer = |size: usize| vec![0u8; if datagrams { size.max(1) } else { size.clamp(1, transfer::PART) }];
        let depth = if limits.depth == 0 { Limits::DEFAULT_DEPTH } else { limits.depth };
        for (slot, conn) in slots.iter_mut().zip(conns.iter()) {
            slot.count = Count::default();
            slot.server_before = (conn.counts.received.get(), conn.counts.sent.get());
            slot.waiting = 0;
            slot.began_ns = 0;
        }
        Ok(Runner {
            in_flight: slots.iter().filter(|slot| slot.busy).count(),
            alive: slots.iter().filter(|slot| !slot.dead).count(),
            depth: depth.min(conns.len()),
            request: config.request_size,
            response: config.response_bytes(),
            out: buffer(config.request_size),
            input: buffer(config.response_bytes()),
            time_ns: u64::try_from(limits.time.as_nanos()).unwrap_or(u64::MAX),
            start: Instant::now(),
            begun: 0,
            waiting: 0,
            ready: VecDeque::new(),
            ended: None,
            churned: 0,
            churn_next: 0,
            retired_at: HashMap::new(),
            tally: Tally {
                times,
                lost: 0,
                unfinished: 0,
                skipped: 0,
                failed: 0,
                retired: Vec::new(),
                last_ns: 0,
                ended_by: EndedBy::Plan,
            },
            config,
            limits,
            opener,
            server,
            epoll,
            conns,
            slots,
            schedule,
            datagrams,
        })
    }

    /// Whether the server may use blocking calls, too.
    pub fn is_single(&self) -> bool {
        self.blocks() && self.conns.len() == 1 && self.limits.churn == 0.0 && !self.datagrams
    }

    fn blocks(&self) -> bool {
        self.depth == 1 && self.in_flight == 0
    }

    /// Carries out the plan.
    pub fn run(mut self) -> Result<Tally> {
        self.start = Instant::now();
        if self.blocks() {
            self.run_blocking()?;
        } else {
            self.run_polled()?;
        }
        self.tally.unfinished = self.in_flight as u64;
        self.tally.ended_by = self.ended.unwrap_or(EndedBy::Plan);
        Ok(self.tally)
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Ends the run if a limit says so.
    fn check_limits(&mut self, now: u64) {
        if self.ended.is_some() {
            return;
        }
        let stop = self.limits.stop.as_ref();
        if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            self.ended = Some(EndedBy::Stop);
        } else if now >= self.time_ns {
            self.ended = Some(EndedBy::Time);
        } else if self.begun >= self.limits.total {
            self.ended = Some(EndedBy::Total);
        } else if self.alive == 0 {
            self.ended = Some(EndedBy::NoConnections);
        }
    }

    /// The transaction that may begin now.
    fn next(&mut self, now: u64) -> Next {
        self.check_limits(now);
        if self.ended.is_some() {
            return Next::Over;
        }
        let due = self.due_ns();
        if now < due {
            return Next::NotBefore(due);
        }
        if let Some(index) = self.ready.pop_front() {
            let slot = &mut self.slots[index as usize];
            slot.waiting -= 1;
            self.waiting -= 1;
            return Next::Begin(index as usize);
        }
        // A look further ahead would find work for more connections, but let the busiest one fall behind the plan.
        let ahead = 4 * self.depth as u64 + 16;
        while self.waiting < ahead {
            let Some(index) = self.schedule.next() else {
                if self.waiting > 0 {
                    return Next::Busy;
                }
                self.ended = Some(EndedBy::Plan);
                return Next::Over;
            };
            let slot = &mut self.slots[index as usize];
            if slot.dead {
                self.tally.skipped += 1;
            } else if slot.busy {
                slot.waiting += 1;
                self.waiting += 1;
            } else {
                return Next::Begin(index as usize);
            }
        }
        Next::Busy
    }

    /// The earliest time of the next transaction. It counts from the start, not from the last transaction, which keeps the
    /// average.
    fn due_ns(&self) -> u64 {
        self.limits.rate.map_or(0, |rate| (self.begun as f64 * 1e9 / rate) as u64)
    }

    /// Marks a transaction as begun.
    fn begin(&mut self, index: usize, now: u64) {
        let slot = &mut self.slots[index];
        slot.busy = true;
        slot.began_ns = now;
        slot.to_send = self.request;
        slot.to_receive = self.response;
        slot.sequence += 1;
        self.begun += 1;
        self.in_flight += 1;
    }

    /// Marks a transaction as completed.
    fn complete(&mut self, index: usize, now: u64) {
        let slot = &mut self.slots[index];
        slot.count.transactions += 1;
        self.tally.times.saturating_record((now - slot.began_ns).max(1));
        self.tally.last_ns = now;
        self.free(index);
    }

    /// Marks a transaction as lost.
    fn lose(&mut self, index: usize) {
        self.tally.lost += 1;
        self.free(index);
    }

    fn free(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.busy = false;
        self.in_flight -= 1;
        if slot.waiting > 0 {
            self.ready.push_back(index as u32);
        }
    }

    /// Gives up a connection, with its transaction in flight and its waiting transactions.
    fn fail(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        self.tally.failed += 1;
        self.tally.skipped += 1 + u64::from(slot.waiting);
        self.waiting -= u64::from(slot.waiting);
        slot.waiting = 0;
        slot.busy = false;
        slot.dead = true;
        self.in_flight -= 1;
        self.alive -= 1;
        self.conns[index].close();
    }

    /// The time of the next replacement of a connection.
    fn churn_due_ns(&self) -> u64 {
        if self.limits.churn == 0.0 || self.ended.is_some() {
            return u64::MAX;
        }
        ((self.churned + 1) as f64 * 1e9 / self.limits.churn) as u64
    }

    /// Replaces the connections that are due, as far as idle ones exist.
    fn churn(&mut self, now: u64) -> Result<()> {
        while now >= self.churn_due_ns() && now < self.time_ns {
            let count = self.conns.len();
            let turn = (0..count).map(|i| (self.churn_next + i) % count);
            let Some(index) = turn.into_iter().find(|&i| !self.slots[i].busy && !self.slots[i].dead) else {
                return Ok(());
            };
            self.churn_next = (index + 1) % count;
            self.replace(index)?;
            self.churned += 1;
        }
        Ok(())
    }

    fn replace(&mut self, index: usize) -> Result<()> {
        let new = self.opener.open(index)?;
        let mut old = std::mem::replace(&mut self.conns[index], new);
        // A stream's server notices the end itself, after all data. With datagrams the old end is removed when the new one is
        // added; an end that shares a socket is removed at the end of the run, when no data is in flight to it.
        old.close();
        self.hand_over(index)?;
        let slot = &mut self.slots[index];
        if self.datagrams && self.config.udp_server == UdpServer::Shared {
            self.retired_at.insert(old.client_addr, self.tally.retired.len());
        }
        self.tally.retired.push(Retired { conn: old, count: slot.count, server_before: slot.server_before });
        slot.count = Count::default();
        slot.server_before = (0, 0);
        if std::mem::take(&mut slot.watched) {
            self.watch(index)?;
        }
        Ok(())
    }

    /// Passes the server's end of a replacement to the server. A server with one socket for all clients distinguishes them by
    /// their addresses alone. If the kernel assigns the port of a retired connection of this run again, all datagrams of the
    /// retired connection must be counted before the new connection sends any.
    fn hand_over(&mut self, index: usize) -> Result<()> {
        let before = self.retired_at.get(&self.conns[index].client_addr).map(|&at| &self.tally.retired[at]);
        if let Some(before) = before {
            before.settle();
        }
        self.server.add(&self.conns[index]);
        if before.is_some() {
            return self.server.sync();
        }
        self.server.wake();
        Ok(())
    }

    /// Whether it makes sense to wait for more than the requests of a run.
    fn is_bulk(&self) -> bool {
        self.config.mode == Mode::Bulk
    }
}
