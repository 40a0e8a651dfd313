// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs, as they were compiled for kernels that have more or less: `fallbacks.bpf.h` says what is done instead of
//! what is missing, and which kernel commits brought it.

use super::abi;
use super::adopt::{self, LOOK, adopt_by_descriptor};
use crate::family::{Build, Builds, Feature, Keeps, Kind, Probe, Refill, Settle, Which};
use crate::hooks::Hook;
use crate::report::{Check, Outcome};
use crate::udp::{self, FUNCTIONS, PACKETS, UDP};
use crate::{Error, bpf};

/// What chooses how TCP is counted, where the kernel leaves a choice: `counters`, which is what is done when it is not set,
/// or `packets`.
const TCP: &str = "TOPSTAT_TCP";
const COUNTERS: &str = "counters";

/// The connections to be settled, and how many owners are to be found: see `look.bpf.h`.
const MAPS: [&str; 4] = ["active", ".data.unsure", Keeps::KEPT, Keeps::ENDED];
/// What is left of connections that have ended.
const KEEPS: Keeps =
    Keeps { samples: abi::INET_KEPT_SAMPLES, tables: abi::INET_KEPT_TABLES, size: size_of::<abi::inet_kept>() };
const TCP_SAMPLES: &[&str] = &["tcp_v4", "tcp_v6"];
const UDP_SAMPLES: &[&str] = &["udp_v4", "udp_v6"];

fn wants_counters() -> bool {
    std::env::var_os(TCP).is_none_or(|way| way != PACKETS)
}

/// Whether what is set makes sense.
pub fn ready() -> Result<(), Error> {
    udp::is_either(TCP, [COUNTERS, PACKETS])?;
    udp::ready()
}

/// Where they stand among the better builds.
const BY_FUNCTIONS: usize = 0;
const BY_COUNTERS: usize = 1;
const BY_PACKETS: &str = "by its packets, at the hooks of the root cgroup";

fn names(lacking: &[Feature]) -> Vec<&'static str> {
    lacking.iter().map(|feature| feature.name).collect()
}

/// How TCP and UDP are counted.
pub fn check() -> Vec<Check> {
    let Some(family) = crate::catalogue::family_of(TCP_SAMPLES[0]) else { return Vec::new() };
    let Kind::Ranked(ranked) = &family.kind else { return Vec::new() };
    vec![check_tcp(&ranked.builds), check_udp(&ranked.builds)]
}

fn check_tcp(builds: &Builds) -> Check {
    const NAME: &str = "counting of TCP";
    if let Some(obstacle) = builds.unknown() {
        return Check::untried(NAME, &obstacle);
    }
    match builds.chosen() {
        Which::Better(_) => Check::ok(
            NAME,
            format!("by what the kernel has counted of each connection itself ({TCP}={PACKETS} counts its packets)"),
        ),
        Which::Full if !wants_counters() => {
            Check::ok(NAME, format!("{BY_PACKETS}, as {TCP}={PACKETS} asks for, at several times the cost"))
        }
        Which::Full | Which::Plain => {
            let lacking = [builds.lacking(), builds.lacking_for_better(BY_COUNTERS)].concat();
            let lacking = names(&lacking).join(", no ");
            let found = format!("{BY_PACKETS}, at several times the cost, for the kernel has no {lacking}");
            Check { name: NAME.to_owned(), outcome: Outcome::Degraded, found, advice: builds.advice() }
        }
    }
}

fn check_udp(builds: &Builds) -> Check {
    const NAME: &str = "counting of UDP";
    if let Some(obstacle) = builds.unknown() {
        return Check::untried(NAME, &obstacle);
    }
    let cost = "while a table of UDP is on, each packet of TCP pays for that";
    let found = match builds.chosen() {
        Which::Better(BY_FUNCTIONS) => {
            let found =
                format!("by its own functions, so that TCP pays nothing for it ({UDP}={PACKETS} counts its packets)");
            return Check::ok(NAME, found);
        }
        Which::Better(_) if !udp::functions_wanted() => format!("{BY_PACKETS}, as {UDP}={PACKETS} asks for; {cost}"),
        Which::Full if !wants_counters() => format!("{BY_PACKETS}, where TCP's are, as {TCP}={PACKETS} asks for"),
        Which::Better(_) => {
            let lacking = names(&builds.lacking_for_better(BY_FUNCTIONS)).join(", ");
            format!("{BY_PACKETS}, for the kernel lacks {lacking}; {cost}")
        }
        Which::Full | Which::Plain => format!("{BY_PACKETS}, where TCP's are"),
    };
    Check::ok(NAME, found)
}

/// All of them.
pub fn builds() -> Builds {
    // Births before packets, so that no socket is seen without its owner.
    let births = [Hook::cgroup("inet_create", "sock_create"), Hook::cgroup("inet_release", "sock_release")];
    let state = Hook::tracepoint("inet_state", "inet_sock_set_state");
    let packets = [Hook::cgroup("inet_ingress", "ingress"), Hook::cgroup("inet_egress", "egress")];
    let ends = [
        state.clone(),
        Hook::tracepoint("inet_destroy", "tcp_destroy_sock"),
        Hook::tracepoint("inet_retransmit", "tcp_retransmit_skb"),
    ];
    let looks = [Hook::tracepoint("inet_probe", "tcp_probe"), Hook::tracepoint("inet_user", "tcp_rcv_space_adjust")];
    let ways = |tcp, udp| {
        let of = |samples: &[&'static str], way| samples.iter().map(move |sample| (*sample, way)).collect::<Vec<_>>();
        [of(TCP_SAMPLES, tcp), of(UDP_SAMPLES, udp)].concat()
    };
    let full = Build {
        observer: object!("inet/inet.bpf.o"),
        snapshot: object!("inet/snapshot.bpf.o"),
        hooks: births.iter().chain(&ends).chain(&packets).cloned().collect(),
        adopt: |object| bpf::iterate(object, "inet_adopt", LOOK).map(drop),
        adopt_before: None,
        refill: |object, maps, _| Refill::over_map(object, &maps.objects, "inet_refill"),
        settle: None,
        number: abi::INET_BY_PACKETS,
        ways: ways(PACKETS, PACKETS),
        maps: vec![Keeps::KEPT, Keeps::ENDED],
        sizes: Vec::new(),
        keeps: Some(KEEPS),
        less: || None,
    };
    // What they keep in objects is the same.
    let counters = |datagrams: &[Hook], way| {
        let datagrams = datagrams.iter().cloned().map(|hook| hook.only_for(UDP_SAMPLES));
        Build {
            observer: object!("inet/counters.bpf.o"),
            hooks: births.iter().chain(&ends).chain(&looks).cloned().chain(datagrams).collect(),
            settle: Some(Settle { object: object!("inet/settle.bpf.o"), program: "inet_settle", over: "active" }),
            number: abi::INET_BY_COUNTERS,
            ways: ways(COUNTERS, way),
            maps: MAPS.to_vec(),
            sizes: Vec::new(),
            ..full
        }
    };
    let by_functions = counters(&udp::hooks("inet"), FUNCTIONS);
    let by_counters = counters(&packets, PACKETS);
    let anew = [state, Hook::cgroup("inet_anew", "sock_ops")];
    let plain = Build {
        observer: object!("inet/inet.plain.bpf.o"),
        snapshot: object!("inet/snapshot.plain.bpf.o"),
        hooks: births.iter().chain(&anew).chain(&packets).cloned().collect(),
        adopt: adopt_by_descriptor,
        // An object that a packet has made can't be given an owner by descriptor.
        adopt_before: Some("inet_ingress"),
        ways: ways(PACKETS, PACKETS),
        maps: Vec::new(),
        sizes: Vec::new(),
        keeps: None,
        less: adopt::less,
        ..full
    };
    let for_functions = [for_counters(), udp::needed()].concat();
    Builds::one(full)
        .probed(&udp::PROBES)
        .or_plain(plain, needed(), "5.12")
        .or_better(by_functions, for_functions, || wants_counters() && udp::functions_wanted())
        .or_better(by_counters, for_counters(), wants_counters)
}

/// What reading TCP's own counters needs.
fn for_counters() -> Vec<Feature> {
    vec![Feature {
        probe: Probe::Program("probe_counters"),
        name: "tracepoint tcp_probe that programs can use socket storage in",
        without: "TCP is counted by its packets",
    }]
}

fn needed() -> Vec<Feature> {
    vec![
        Feature {
            probe: Probe::Atomics,
            name: "eBPF atomics that return a value",
            without: "a push that begins a slide takes a lock",
        },
        Feature {
            probe: Probe::Program("probe_traced"),
            name: "socket storage in tracepoints",
            without: "a table learns that a connection has ended when it looks at it again; segments sent again are \
                      looked for when the connection sends",
        },
        Feature {
            probe: Probe::Program("probe_files"),
            name: "socket storage in iterators over files",
            without: "sockets that were there before are found by their descriptors (with CAP_SYS_PTRACE); of others it \
                      is known whose they are when they send",
        },
    ]
}
