// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who else has used the network meanwhile, by the kernel's own counters (`/proc/net/snmp`), of which topstat knows nothing.
//! A total has everybody's packets: where it is more than a test has sent, it has to be known whether somebody sent the
//! rest, or topstat counts wrongly.

use std::collections::HashMap;
use std::fs;
use std::os::linux::fs::MetadataExt as _;

use crate::harness;

/// Of which sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP's.
    Tcp,
    /// UDP's.
    Udp,
}

/// What is counted: packets that sockets have sent and received, and connections that were opened and accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    packets: u64,
    opened: u64,
}

/// The counters of all network namespaces that processes are in, as they were.
pub struct Witness {
    transport: Transport,
    begun: HashMap<u64, Seen>,
}

impl Witness {
    /// Looks on from here.
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

    /// Packets of others, where the test's own sockets have sent and received so many.
    pub fn others(&self, own: u64) -> u64 {
        self.since().packets.saturating_sub(own)
    }

    /// Ends of connections of others that were opened, where the test has opened so many.
    pub fn others_opened(&self, own: u64) -> u64 {
        self.since().opened.saturating_sub(own)
    }

    /// That a number of packets is the test's own. Where it is more, others must have had as many, or it is wrong.
    pub fn assert_packets(&self, counted: u64, own: u64, what: &str) {
        self.assert(counted, own, own, 1, what);
    }

    /// The same of a number of bytes, which the test's own packets have carried.
    pub fn assert_bytes(&self, counted: u64, own: u64, own_packets: u64, what: &str) {
        /// The most that one packet carries.
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

/// What a total is.
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

/// In the form of a case: what is more than others have sent is a defect, and so is what is less than the test has.
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
        // A process may have ended meanwhile; another one of its namespace is asked.
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
        // Those of IPv6, too. What was sent again is counted apart.
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
