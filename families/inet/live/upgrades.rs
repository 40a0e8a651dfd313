// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Another build, and a build that would count in another variant, adopt pinned connections: rows equal TCP_INFO all the while.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use topstat_kernel::pinned::{self, Adopted};
use topstat_kernel::{Options, update};
use topstat_live::nest::counts_by_functions;
use topstat_live::tally::{TABLES, Tally};
use topstat_live::watch::{everything, table};
use topstat_live::{Case, Counts, Key, Nest, Role, Watch, alone, harness, note, pace, truth};

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Fills: connections_under_load, Root),
        alone!(Fills: datagrams_from_one_way_to_the_other, Root; EveryKernel, Gate),
    ]
}

const PPS: &str = "tcp_v4/conns_pps";
const BYTES: &str = "tcp_v4/conns_bytes";

/// The two ends of connections within this process.
struct Pairs(Vec<[TcpStream; 2]>);

impl Pairs {
    fn open(count: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pair = |_| {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            [client, listener.accept().unwrap().0]
        };
        Self((0..count).map(pair).collect())
    }

    /// One message and its answer on each connection, of different sizes.
    fn speak(&self, round: usize) {
        let mut buffer = vec![7_u8; 2000];
        for (i, [client, server]) in self.0.iter().enumerate() {
            let part = &mut buffer[..1 + (i * 97 + round * 13) % 2000];
            for (mut from, mut to) in [(client, server), (server, client)] {
                from.write_all(part).unwrap();
                to.read_exact(part).unwrap();
            }
        }
    }

    fn counts(&self) -> Vec<(Key, Counts)> {
        let of = |socket: &TcpStream| {
            (Key::new(socket.local_addr().unwrap(), socket.peer_addr().unwrap()), truth::tcp_info(socket))
        };
        self.0.iter().flatten().map(of).collect()
    }

    /// Waits for delayed acknowledgements, and returns the counts after that.
    fn settled(&self) -> Vec<(Key, Counts)> {
        truth::at_rest(|| self.counts())
    }
}

/// While no pair speaks, each connection's rows equal the growth of TCP_INFO since `begin`.
fn assert_counted(watch: &mut Watch, pairs: &Pairs, begin: &[(Key, Counts)], title: &str) {
    let truth = pairs.settled();
    for (path, of) in [(PPS, Counts::packets as fn(&Counts) -> u64), (BYTES, Counts::bytes)] {
        let view = watch.snapshot(path);
        for ((key, begin), (_, now)) in begin.iter().zip(&truth) {
            let counted = view.find(*key).map_or(0, |row| row.value);
            assert_eq!(counted, of(&now.since(begin)), "{title}, {path}: {key:?}: {}", view.summary());
        }
    }
}

/// The programs are replaced repeatedly while connections are used: no segment and no byte is lost, or counted twice.
fn connections_under_load() {
    /// Upgrades between two looks at the rows.
    const UPGRADES: usize = 5;
    let looks = pace::work(2, 1);
    let nest = Nest::new("connections");
    let pairs = Pairs::open(30);
    let begin = pairs.settled();
    drop(nest.adopt(&[PPS, BYTES], &Options { delay_ms: 10, ..everything() }));
    let mut watch = nest.watch();
    let (mut upgrade, mut rounds) = (0, 0);
    for look in 0..looks {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let load = scope.spawn(|| {
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    pairs.speak(round);
                    round += 1;
                }
                round
            });
            let replaced = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                for _ in 0..UPGRADES {
                    let (_, adopted) = nest.adopt_as(["other", ""][upgrade % 2], &[PPS, BYTES], &everything());
                    assert_eq!(adopted, Adopted::Upgraded);
                    upgrade += 1;
                }
            }));
            stop.store(true, Ordering::Relaxed);
            rounds += load.join().unwrap();
            replaced.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        assert_counted(&mut watch, &pairs, &begin, &format!("look {look}"));
    }
    note(format!("{upgrade} upgrades, {rounds} messages on each connection meanwhile"));
}

/// Pinned programs keep their variant of counting UDP, by packets or by functions, whatever the adopting process would choose.
/// The adopting process reports it. No datagram is lost or counted twice.
fn datagrams_from_one_way_to_the_other() {
    if !counts_by_functions() {
        harness::skip("there is one way only here");
    }
    let nest = Nest::new("datagrams");
    let adopter =
        |build: &str| Role::start_with("adopter", &[nest.dir.to_str().unwrap(), build], &[("TOPSTAT_UDP", "packets")]);
    let way = |state: &dyn topstat_kernel::State| {
        let sample = state.samples().iter().find(|sample| sample.name == "udp_v4").expect("the sample");
        state.way(sample)
    };
    let mut role = adopter("");
    role.expect("Loaded");
    role.kill();
    let mut tally = Tally::new();
    for (build, adopted) in [("", Adopted::Found), ("other", Adopted::Upgraded)] {
        let (state, how) = tally.during(|| nest.adopt_as(build, &TABLES, &everything()));
        assert_eq!((how, way(&*state)), (adopted, Some("packets")));
        let said = pinned::kept(&*state, &everything());
        assert!(said.iter().any(|line| line.contains("udp_v4 count by packets, not by functions")), "{said:?}");
        tally.check(&mut nest.watch(), "packets");
    }
    pinned::remove(&nest.pins).unwrap();
    drop(nest.adopt(&TABLES, &everything()));
    let mut tally = Tally::new();
    tally.during(|| {
        let mut role = adopter("other");
        role.expect("Upgraded");
        role.kill();
    });
    let state = pinned::open(&nest.pins, topstat_live::nest::inet()).unwrap().expect("it is pinned");
    assert_eq!(way(&*state), Some("functions"));
    tally.check(&mut nest.watch(), "functions");
    // A process without the privilege to attach programs to packets can still switch the tables off and on.
    let switch = |on| TABLES.map(|path| update(&*state, &table(path), |settings| settings.enabled = on).unwrap());
    let links = || std::fs::read_dir(nest.family().join("links")).expect("its links").count();
    let all = links();
    // New sockets, without packets: a table counts from the moment at which it is switched on.
    let mut tally = Tally::new();
    switch(false);
    assert_eq!(links(), all - 3);
    without_net_admin(|| {
        switch(true);
    });
    assert_eq!(links(), all);
    tally.during(|| std::thread::sleep(pace::patience(Duration::from_millis(50))));
    tally.check(&mut nest.watch(), "switched off and on");
}

/// Runs on a thread without this privilege.
fn without_net_admin(what: impl FnOnce() + Send) {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut sets = capabilities(None).expect("its capabilities");
            for set in [&mut sets.effective, &mut sets.permitted, &mut sets.inheritable] {
                set.remove(CapabilitySet::NET_ADMIN);
            }
            set_capabilities(None, sets).expect("give one up");
            what();
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
