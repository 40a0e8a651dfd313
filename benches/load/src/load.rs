// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opens connections, runs plans on them, closes them.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll;

use crate::address::Endpoints;
use crate::client::{Count, Parts, Runner, SETTLE_INTERVAL, SETTLE_QUIET, Slot, Tally};
use crate::config::{Config, Mode, Proto, UdpServer};
use crate::conn::Conn;
use crate::cpu::{CpuMark, CpuUse};
use crate::error::{Error, Result};
use crate::open::Opener;
use crate::plan::{Limits, Plan};
use crate::report::{ConnCount, Latency, RunReport};
use crate::server::Server;
use crate::sys;
use crate::tcp_info::TcpInfo;

/// Descriptors that are neither a connection's nor a server's: two epoll instances, an event, a timer, namespaces.
const OTHER_FDS: usize = 8;

/// Open connections, with both of their ends. Closes everything when dropped.
pub struct Load {
    // The fields are dropped in this order: clients close first, so that they send the first FIN.
    conns: Vec<Conn>,
    slots: Vec<Slot>,
    opener: Opener,
    epoll: OwnedFd,
    server: Server,
    config: Config,
    opened_in: Duration,
    /// Bytes sent by all clients since the load was opened.
    sent: u64,
    /// Whether a connection has failed, so that the server may never receive all sent data.
    leaky: bool,
}

impl std::fmt::Debug for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Load").field("config", &self.config).field("sent", &self.sent).finish_non_exhaustive()
    }
}

impl Load {
    /// Opens all connections and starts the server.
    pub fn open(config: Config) -> Result<Load> {
        config.check()?;
        let endpoints = Endpoints::choose(&config)?;
        let shared = config.proto == Proto::Udp && config.udp_server == UdpServer::Shared;
        let per_connection = if shared { 1 } else { 2 };
        let fds = config.connections * per_connection + endpoints.servers() + OTHER_FDS;
        sys::raise_fd_limit(config.connections, fds as u64)?;

        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| Error::system("create an epoll instance", error))?;
        let mut server = Server::start(&config)?;
        let start = Instant::now();
        // On a separate thread, because a thread can't leave a network namespace again.
        let (opener, conns) = on_client_thread(&config, || {
            let mut opener = Opener::new(&config, endpoints)?;
            let conns = (0..config.connections).map(|index| opener.open(index)).collect::<Result<Vec<_>>>()?;
            Ok((opener, conns))
        })?;
        opener.shared().for_each(|socket| server.share(socket));
        for conn in &conns {
            server.add(conn);
        }
        server.sync()?;
        let slots = conns.iter().map(|_| Slot::default()).collect();
        let opened_in = start.elapsed();
        Ok(Load { conns, slots, opener, epoll, server, config, opened_in, sent: 0, leaky: false })
    }

    /// The configuration of the load.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// How long it took to open all connections.
    #[must_use]
    pub fn opened_in(&self) -> Duration {
        self.opened_in
    }

    /// The connections in their current state. Closed connections keep their place.
    #[must_use]
    pub fn connections(&self) -> &[Conn] {
        &self.conns
    }

    /// Carries out a plan and waits until it is done. The plan has one number for each connection.
    pub fn run(&mut self, plan: &Plan, limits: &Limits) -> Result<RunReport> {
        limits.check()?;
        if plan.counts().len() != self.conns.len() {
            let (numbers, connections) = (plan.counts().len(), self.conns.len());
            return Err(Error::Config(format!("the plan has {numbers} numbers for {connections} connections")));
        }
        self.server.sync()?;
        let cpu = CpuMark::now()?;
        let runner = Runner::new(Parts {
            config: &self.config,
            limits,
            opener: &mut self.opener,
            server: &mut self.server,
            epoll: &self.epoll,
            conns: &mut self.conns,
            slots: &mut self.slots,
            schedule: plan.schedule(),
        })?;
        let single = runner.is_single();
        if single {
            runner.server.block(true);
            runner.server.wake();
        }
        let start = Instant::now();
        let done = on_client_thread(&self.config, move || {
            runner.opener.enter_client()?;
            runner.run()
        });
        if single {
            self.server.block(false);
        }
        let tally = done?;
        self.leaky |= tally.failed > 0;
        self.sent += tally.retired.iter().map(|retired| retired.count.sent).sum::<u64>();
        self.sent += self.slots.iter().map(|slot| slot.count.sent).sum::<u64>();
        let settled = self.settle(limits.drain);
        let elapsed = match self.config.mode {
            Mode::Rr => Duration::from_nanos(tally.last_ns),
            Mode::Bulk => settled.duration_since(start),
        };
        for retired in &tally.retired {
            if self.config.proto == Proto::Udp && self.config.udp_server == UdpServer::Shared {
                self.server.forget(&retired.conn);
            }
        }
        self.server.sync()?;
        Ok(self.report(tally, elapsed, cpu.elapsed()?))
    }

    /// The kernel's counts of a TCP connection: at the client's end and at the server's.
    pub fn tcp_info(&self, index: usize) -> Result<(TcpInfo, TcpInfo)> {
        let conn = self.conns.get(index).ok_or_else(|| no_such(index))?;
        Ok((sys::tcp_info(conn.client_fd()?)?, sys::tcp_info(conn.server_fd()?)?))
    }

    /// Closes both ends of a connection, the client's first. Plans still need a number for it, and the run skips it.
    pub fn close_connection(&mut self, index: usize) -> Result<()> {
        let conn = self.conns.get_mut(index).ok_or_else(|| no_such(index))?;
        if !conn.is_open() {
            return Err(Error::Closed(index));
        }
        conn.close();
        self.slots[index] = Slot { dead: true, ..Slot::default() };
        self.server.forget(conn);
        self.server.sync()
    }

    /// Waits until the server has received all sent data, or no more arrives. Returns the time of the last arrival.
    fn settle(&self, drain: Duration) -> Instant {
        let lossy = self.config.proto == Proto::Udp || self.leaky;
        let patience = if lossy { SETTLE_QUIET.min(drain) } else { drain };
        let (mut before, mut since) = (self.server.received.get(), Instant::now());
        while before < self.sent && since.elapsed() < patience {
            std::thread::sleep(SETTLE_INTERVAL);
            let now = self.server.received.get();
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
        since
    }

    fn report(&self, tally: Tally, elapsed: Duration, cpu: CpuUse) -> RunReport {
        let open = self.conns.iter().zip(&self.slots);
        let open = open.map(|(conn, slot)| count(conn, slot.count, slot.server_before, slot.dead));
        let retired = tally.retired.iter();
        let retired = retired.map(|retired| count(&retired.conn, retired.count, retired.server_before, true));
        let connections: Vec<ConnCount> = open.chain(retired).collect();
        let sum = |of: fn(&ConnCount) -> u64| connections.iter().map(of).sum::<u64>();
        let transactions = sum(|conn| conn.transactions);
        let bytes_sent = sum(|conn| conn.bytes_sent);
        let server_bytes_received = sum(|conn| conn.server_bytes_received);
        // One-way datagrams have no answer, so the bytes missing at the other end are the lost ones.
        let one_way = self.config.mode == Mode::Bulk && self.config.proto == Proto::Udp;
        let missing = bytes_sent.saturating_sub(server_bytes_received) / self.config.request_size as u64;
        RunReport {
            ended_by: tally.ended_by,
            elapsed,
            transactions,
            rate: if elapsed.is_zero() { 0.0 } else { transactions as f64 / elapsed.as_secs_f64() },
            bytes_sent,
            bytes_received: sum(|conn| conn.bytes_received),
            server_bytes_received,
            server_bytes_sent: sum(|conn| conn.server_bytes_sent),
            lost: if one_way { missing } else { tally.lost },
            unfinished: tally.unfinished,
            skipped: tally.skipped,
            failed: tally.failed,
            churned: tally.retired.len() as u64,
            latency: Latency::of(&tally.times),
            cpu,
            connections,
            times: tally.times,
        }
    }
}

fn no_such(index: usize) -> Error {
    Error::Config(format!("there is no connection {index}"))
}

fn count(conn: &Conn, count: Count, server_before: (u64, u64), closed: bool) -> ConnCount {
    ConnCount {
        id: conn.id,
        index: conn.index,
        client: conn.client_addr,
        server: conn.server_addr,
        closed,
        transactions: count.transactions,
        bytes_sent: count.sent,
        bytes_received: count.received,
        server_bytes_received: conn.counts.received.get() - server_before.0,
        server_bytes_sent: conn.counts.sent.get() - server_before.1,
    }
}

/// Runs `work` on a thread with the client's name and CPU, and waits for it.
fn on_client_thread<T: Send>(config: &Config, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("load-client".into())
            .spawn_scoped(scope, || {
                config.client_cpu.map_or(Ok(()), sys::pin)?;
                work()
            })
            .map_err(|error| Error::system("start the client thread", error))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
