// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The use of the network by other processes, from the kernel's own counters (`/proc/net/snmp`), which do not depend on
//! topstat. A total contains all packets of the host: if it is more than a test has sent, either other processes have sent
//! the rest, or topstat counts wrongly. The witness decides which.

use std::collections::HashMap;
use std::fs;
use std::os::linux::fs::MetadataExt as _;

use crate::harness;

/// The sockets to watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP sockets.
    Tcp,
    /// UDP sockets.
    Udp,
}

/// The counters: packets that sockets have sent and received, and connections that were opened and accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    packets: u64,
    opened: u64,
}

/// The counters of all network namespaces that have processes, at the beginning.
pub struct Witness {
    transport: Transport,
    begun: HashMap<u64, Seen>,
}

impl Witness {
    /// Starts watching.
    pub fn new(transport: Transport) -> Self {
        Self { transport, begun: look(transport) }
    }

    fn since(&self) -> Seen {
        let mut since = Seen::default();
        for (netns, now) in look(self.transport) {
            let begun = self.begun.get(&netns).copied().unwrap_or_default();
            since.packets += now.packets.saturating_sub(begun.packets);
            since.opened += now.opened.saturating_sub(begun.opened);
        }
        since
    }

    /// Packets of other processes, if the test's own sockets have sent and received `own` packets.
    pub fn others(&self, own: u64) -> u64 {
        self.since().packets.saturating_sub(own)
    }

    /// Ends of connections that other processes have opened, if the test has opened `own` ends.
    pub fn others_opened(&self, own: u64) -> u64 {
        self.since().opened.saturating_sub(own)
    }

    /// Asserts that a number of packets is the test's own. If it is higher, others must have had at least the excess, else it
    /// is wrong.
    pub fn assert_packets(&self, counted: u64, own: u64, what: &str) {
        self.assert(counted, own, own, 1, what);
    }

    /// As [`Self::assert_packets`], for a number of bytes, which `own_packets` packets of the test have carried.
    pub fn assert_bytes(&self, counted: u64, own: u64, own_packets: u64, what: &str) {
        /// The maximum number of bytes of one packet.
        const MOST: u64 = 65_535;
        self.assert(counted, own, own_packets, MOST, what);
    }

    fn assert(&self, counted: u64, own: u64, own_packets: u64, most_of_one: u64, what: &str) {
        match judge(counted, own, self.others(own_packets), most_of_one) {
            Verdict::Right => {}
            Verdict::Disturbed(reason) => harness::disturbed(format!("{what}: {reason}")),
            Verdict::Wrong(reason) => panic!("{what}: {reason}"),
        }
    }
}

/// The verdict on a total.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Right,
    Disturbed(String),
    Wrong(String),
}

fn judge(counted: u64, own: u64, others: u64, most_of_one: u64) -> Verdict {
    let reason = || format!("{counted}, not {own}; by the kernel's counters others had {others} packets");
    match counted {
        _ if counted == own => Verdict::Right,
        _ if counted > own && counted - own <= others.saturating_mul(most_of_one) => Verdict::Disturbed(reason()),
        _ => Verdict::Wrong(reason()),
    }
}

/// As a case: an excess over the packets of others is a defect, and so is a number below the test's own.
pub fn only_what_others_have_sent_is_excused() {
    let disturbed = |verdict: Verdict| matches!(verdict, Verdict::Disturbed(_));
    let wrong = |verdict: Verdict| matches!(verdict, Verdict::Wrong(_));
    assert_eq!(judge(100, 100, 0, 1), Verdict::Right);
    assert_eq!(judge(100, 100, 7, 1), Verdict::Right);
    assert!(wrong(judge(101, 100, 0, 1)) && wrong(judge(101, 100, 0, 65_535)));
    assert!(disturbed(judge(107, 100, 7, 1)) && wrong(judge(108, 100, 7, 1)));
    assert!(wrong(judge(99, 100, 7, 1)) && wrong(judge(200, 100, 7, 1)));
}

fn look(transport: Transport) -> HashMap<u64, Seen> {
    let mut seen = HashMap::new();
    for process in fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path()) {
        let Ok(netns) = fs::metadata(process.join("ns/net")).map(|file| file.st_ino()) else { continue };
        if seen.contains_key(&netns) {
            continue;
        }
        let read = |file: &str| fs::read_to_string(process.join("net").join(file)).unwrap_or_default();
        let (snmp, snmp6) = (read("snmp"), read("snmp6"));
        // The process may have ended since; another process of its namespace is read.
        if !snmp.is_empty() {
            seen.insert(netns, counters(transport, &snmp, &snmp6));
        }
    }
    seen
}

fn counters(transport: Transport, snmp: &str, snmp6: &str) -> Seen {
    // Two lines each: names, then numbers.
    let of = |protocol: &str, name: &str| {
        let mut lines = snmp.lines().filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(": "));
        let (names, numbers) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let at = names.split(' ').position(|found| found == name);
        let number = at.and_then(|at| numbers.split(' ').nth(at)?.parse::<u64>().ok());
        number.unwrap_or_else(|| panic!("/proc/net/snmp has no {protocol} {name}"))
    };
    let of_v6 = |name: &str| {
        let numbers = snmp6.lines().filter_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        numbers.sum::<u64>() // none where there is no IPv6
    };
    match transport {
        // Includes IPv6. Retransmitted segments are counted apart.
        Transport::Tcp => Seen {
            packets: of("Tcp", "InSegs") + of("Tcp", "OutSegs") + of("Tcp", "RetransSegs"),
            opened: of("Tcp", "ActiveOpens") + of("Tcp", "PassiveOpens"),
        },
        Transport::Udp => Seen {
            packets: of("Udp", "InDatagrams")
                + of("Udp", "OutDatagrams")
                + of_v6("Udp6InDatagrams")
                + of_v6("Udp6OutDatagrams"),
            opened: 0,
        },
    }
}
