// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Datagrams that are sent while a test acts, and the generator's own counts of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use topstat_load::{Config, Limits, Load, Plan, Proto, UdpServer};

use crate::{End, Key, Watch, Witness, limits, two_cpus};

/// The compared tables: packets and bytes of each socket, with a period in which nothing ages.
pub const TABLES: [&str; 2] = ["udp_v4/conns_pps", "udp_v4/conns_bytes"];
/// Both ends of each connection are rows; a table can have 1,024 rows.
const CONNECTIONS: usize = 100;

/// The datagrams that were sent from and to each socket since the observers were attached.
pub struct Tally {
    load: Load,
    sent: HashMap<Key, u64>,
    bytes_each: u64,
}

impl Tally {
    /// Opens the sockets. Client and server are each on a separate CPU, so that every socket is counted on both.
    pub fn new() -> Self {
        let (client_cpu, server_cpu) = two_cpus().unzip();
        let config = Config {
            proto: Proto::Udp,
            udp_server: UdpServer::PerClient,
            connections: CONNECTIONS,
            client_cpu,
            server_cpu,
            ..Config::default()
        };
        let bytes_each = config.request_size as u64;
        Self { load: Load::open(config).expect("open sockets"), sent: HashMap::new(), bytes_each }
    }

    /// Sends datagrams at full speed while `what` runs, and counts them.
    pub fn during<T>(&mut self, what: impl FnOnce() -> T) -> T {
        let stop = Arc::new(AtomicBool::new(false));
        let limits = Limits { stop: Some(Arc::clone(&stop)), time: Duration::from_secs(120), ..limits() };
        let load = &mut self.load;
        let (done, report) = std::thread::scope(|scope| {
            let running = scope.spawn(move || load.run(&Plan::endless(CONNECTIONS), &limits).expect("send"));
            let stopped = StopWhenDropped(&stop);
            let done = what();
            drop(stopped);
            (done, running.join().expect("the load"))
        });
        assert_eq!((report.lost, report.failed, report.unfinished), (0, 0, 0), "the load was to arrive");
        for c in &report.connections {
            for key in [Key::new(c.client, c.server), Key::new(c.server, c.client)] {
                *self.sent.entry(key).or_default() += c.transactions;
            }
        }
        done
    }

    /// The number of packets of all sockets, sent and received.
    pub fn packets(&self) -> u64 {
        2 * self.sent.values().sum::<u64>()
    }

    /// Compares every received and sent packet and byte of each socket, and the totals. The totals may contain more: sockets
    /// of other processes that have come and gone unseen.
    pub fn check(&self, watch: &mut Watch, title: &str) {
        for (path, each) in TABLES.into_iter().zip([1, self.bytes_each]) {
            let view = watch.snapshot(path);
            let rows = view.by_key();
            let wrong: Vec<_> = self
                .sent
                .iter()
                .map(|(key, sent)| (key, sent * each, rows.get(key).map_or((0, 0), |s| (s.rx, s.tx))))
                .filter(|(_, sent, shown)| *shown != (*sent, *sent))
                .take(5)
                .collect();
            assert!(wrong.is_empty(), "{title}: (socket, sent, shown) {wrong:#?}\n{}", view.summary());
            let foreign: u64 = view.sockets.iter().filter(|s| !self.sent.contains_key(&s.key)).map(|s| s.value).sum();
            let ours = self.packets() * each;
            assert!(view.snapshot.total >= ours + foreign, "{title}: {ours} sent; {}", view.summary());
        }
    }

    /// As [`Self::check`]; also checks that the totals contain nothing else, by a witness that was started when the observers
    /// were attached.
    pub fn check_alone(&self, watch: &mut Watch, witness: &Witness, title: &str) {
        self.check(watch, title);
        let view = watch.snapshot(TABLES[0]);
        witness.assert_packets(view.snapshot.total, self.packets(), title);
    }

    /// The key of one end of a connection.
    pub fn key(&self, index: usize, end: End) -> Key {
        crate::truth::key(&self.load.connections()[index], end)
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

struct StopWhenDropped<'a>(&'a AtomicBool);

impl Drop for StopWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
