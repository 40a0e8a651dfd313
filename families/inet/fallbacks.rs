// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs, as they were compiled for kernels that have more or less: `fallbacks.bpf.h` says what is done instead of
//! what is missing, and which kernel commits brought it.

use super::abi;
use super::adopt::{self, LOOK, adopt_by_descriptor};
use crate::family::{Build, Builds, Feature, Keeps, Kind, Probe, Refill, Settle, Which};
use crate::hooks::Hook;
use crate::report::{Check, Outcome};
use crate::{Error, bpf};

/// What chooses how TCP is counted, where the kernel leaves a choice: `counters`, which is what is done when it is not set,
/// or `packets`.
const TCP: &str = "TOPSTAT_TCP";
const COUNTERS: &str = "counters";
const PACKETS: &str = "packets";

/// The connections to be settled, and how many owners are to be found: see `look.bpf.h`.
const MAPS: [&str; 4] = ["active", ".data.unsure", Keeps::KEPT, Keeps::ENDED];
/// What is left of connections that have ended.
const KEEPS: Keeps =
    Keeps { samples: abi::INET_KEPT_SAMPLES, tables: abi::INET_KEPT_TABLES, size: size_of::<abi::inet_kept>() };
const TCP_SAMPLES: &[&str] = &["tcp_v4", "tcp_v6"];
const UDP: &[&str] = &["udp_v4", "udp_v6"];

fn wants_counters() -> bool {
    std::env::var_os(TCP).is_none_or(|way| way != PACKETS)
}

/// Whether what is set makes sense.
pub fn ready() -> Result<(), Error> {
    match std::env::var(TCP) {
        Ok(way) if way != COUNTERS && way != PACKETS => {
            Err(Error::Option(format!("{TCP} must be {COUNTERS} or {PACKETS}, not '{way}'")))
        }
        _ => Ok(()),
    }
}

/// How TCP is counted.
pub fn check() -> Vec<Check> {
    const NAME: &str = "counting of TCP";
    let by_packets = "by its packets, at the hooks of the root cgroup";
    let Some(family) = crate::catalogue::family_of(TCP_SAMPLES[0]) else { return Vec::new() };
    let Kind::Ranked(ranked) = &family.kind else { return Vec::new() };
    let builds = &ranked.builds;
    vec![match builds.chosen() {
        Which::Better => Check::ok(
            NAME,
            format!("by what the kernel has counted of each connection itself ({TCP}={PACKETS} counts its packets)"),
        ),
        Which::Full if !wants_counters() => {
            Check::ok(NAME, format!("{by_packets}, as {TCP}={PACKETS} asks for, at several times the cost"))
        }
        Which::Full | Which::Plain => {
            let lacking = [builds.lacking(), builds.lacking_for_better()].concat();
            let lacking: Vec<_> = lacking.iter().map(|feature| feature.name).collect();
            let found =
                format!("{by_packets}, at several times the cost, for the kernel has no {}", lacking.join(", no "));
            Check { name: NAME.to_owned(), outcome: Outcome::Degraded, found, advice: builds.advice() }
        }
    }]
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
    let by_packets = |samples: &[&'static str]| samples.iter().map(|sample| (*sample, PACKETS)).collect::<Vec<_>>();
    let full = Build {
        observer: object!("inet/inet.bpf.o"),
        snapshot: object!("inet/snapshot.bpf.o"),
        hooks: births.iter().chain(&ends).chain(&packets).cloned().collect(),
        adopt: |object| bpf::iterate(object, "inet_adopt", LOOK).map(drop),
        adopt_before: None,
        refill: |object, maps, _| Refill::over_map(object, &maps.objects, "inet_refill"),
        settle: None,
        number: abi::INET_BY_PACKETS,
        ways: by_packets(TCP_SAMPLES),
        maps: vec![Keeps::KEPT, Keeps::ENDED],
        sizes: Vec::new(),
        keeps: Some(KEEPS),
        less: || None,
    };
    let datagrams = packets.iter().cloned().map(|hook| hook.only_for(UDP));
    let counters = Build {
        observer: object!("inet/counters.bpf.o"),
        hooks: births.iter().chain(&ends).chain(&looks).cloned().chain(datagrams).collect(),
        settle: Some(Settle { object: object!("inet/settle.bpf.o"), program: "inet_settle", over: "active" }),
        number: abi::INET_BY_COUNTERS,
        ways: TCP_SAMPLES.iter().map(|sample| (*sample, COUNTERS)).collect(),
        maps: MAPS.to_vec(),
        sizes: Vec::new(),
        ..full
    };
    let anew = [state, Hook::cgroup("inet_anew", "sock_ops")];
    let plain = Build {
        observer: object!("inet/inet.plain.bpf.o"),
        snapshot: object!("inet/snapshot.plain.bpf.o"),
        hooks: births.iter().chain(&anew).chain(&packets).cloned().collect(),
        adopt: adopt_by_descriptor,
        // An object that a packet has made can't be given an owner by descriptor.
        adopt_before: Some("inet_ingress"),
        ways: by_packets(TCP_SAMPLES),
        maps: Vec::new(),
        sizes: Vec::new(),
        keeps: None,
        less: adopt::less,
        ..full
    };
    let probe = object!("inet/probe.bpf.o");
    Builds::one(full).or_plain(plain, needed(), "5.12", probe).or_better(counters, for_counters(), wants_counters)
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
