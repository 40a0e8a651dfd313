// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs, with UDP counted by its functions or by its packets.

use super::abi;
use crate::udp::{self, FUNCTIONS, PACKETS, UDP};
use topstat_kernel::bpf::{self, sockets::Avoided};
use topstat_kernel::family::{Build, BuildKind, Builds, Entries, Keeps, MapSize, Ranked, Refill, Settle};
use topstat_kernel::hooks::Hook;
use topstat_kernel::report::{Check, Outcome};

/// The times at which tables were switched on: see `peek.h`.
const SINCE: &str = ".data.since";
/// The part of a slide in which a socket makes one record.
const CELL: &str = ".data.cell";
/// The number of sockets that readers are to look at.
const ON_LIST: &str = ".data.on_list";
/// The number of connections whose owner is not known yet.
const UNSURE: &str = ".data.unsure";
/// Maps of the state: see `list.bpf.h`, `cell.h`, `peek.h`, `inet.bpf.c`, `settle.h`, and `keep.h` of the engine.
const MAPS: [&str; 13] = [
    "active",
    "guests",
    "rings",
    UNSURE,
    CELL,
    ".data.cell_changed",
    ".data.apart",
    ".data.running",
    ON_LIST,
    ".data.walks",
    SINCE,
    Keeps::KEPT,
    Keeps::ENDED,
];
/// The rows of closed connections.
const KEEPS: Keeps =
    Keeps { samples: abi::INET_KEPT_SAMPLES, tables: abi::INET_KEPT_TABLES, size: size_of::<abi::inet_kept>() };
const UDP_SAMPLES: &[&str] = &["udp_v4", "udp_v6"];

/// The index of this build among the preferred builds.
const BY_FUNCTIONS: usize = 0;

/// The variant in which UDP is counted.
pub fn check() -> Vec<Check> {
    const NAME: &str = "counting of UDP";
    let Some(family) = crate::catalogue().family_of(UDP_SAMPLES[0]) else { return Vec::new() };
    let Some(ranked) = family.kind_as::<Ranked>() else { return Vec::new() };
    if let Some(obstacle) = ranked.builds.unknown() {
        return vec![Check::untried(NAME, &obstacle)];
    }
    if bpf::atomics::known() == Some(false) {
        return Vec::new(); // the samples' own line shows that they can't be loaded
    }
    let by_packets = |why: &str| {
        format!(
            "by its packets, at the hooks of the root cgroup, {why}; while a table of UDP is on, each packet of TCP pays for that"
        )
    };
    let found = match ranked.builds.chosen() {
        BuildKind::Preferred(BY_FUNCTIONS) => {
            format!("by its own functions, so that TCP pays nothing for it ({UDP}={PACKETS} counts its packets)")
        }
        _ if !udp::functions_wanted() => by_packets(&format!("as {UDP}={PACKETS} asks for")),
        _ => {
            let lacking = ranked.builds.lacking_for_preferred(BY_FUNCTIONS);
            let lacking: Vec<_> = lacking.iter().map(|feature| feature.name).collect();
            by_packets(&format!("for the kernel lacks {}", lacking.join(", ")))
        }
    };
    std::iter::once(Check::ok(NAME, found)).chain(sockets()).collect()
}

/// How snapshots find sockets, where the kernel refuses the best way.
fn sockets() -> Option<Check> {
    bpf::sockets::avoided().map(|avoided| {
        let (why, advice) = match avoided {
            Avoided::Refused => {
                ("the kernel refuses iterators over the sockets in a storage", "a kernel that is not hardened so has the other way")
            }
            Avoided::Unsafe => (
                "this kernel can crash in iterators over the sockets in a storage (since Linux 7.0)",
                "unless all sockets are silent, a snapshot takes 1 to 2 µs for each open socket, and some ms more if no process has one open",
            ),
        };
        Check {
            name: "looking at sockets".to_owned(),
            outcome: Outcome::Degraded,
            found: format!(
                "by the files of all processes, and by the connections of this network namespace, for {why}. Elsewhere, what a \
                 connection sends after its process has closed it counts when it ends"
            ),
            advice: advice.to_owned(),
        }
    })
}

/// Both builds.
pub fn builds() -> Builds {
    // The making of sockets before packets: so each new socket has an owner when its first packet is seen.
    let of_tcp = [
        Hook::cgroup("inet_create", "sock_create"),
        Hook::cgroup("inet_release", "sock_release"),
        Hook::tracepoint("inet_state", "inet_sock_set_state"),
        Hook::tracepoint("inet_destroy", "tcp_destroy_sock"),
        Hook::tracepoint("inet_retransmit", "tcp_retransmit_skb"),
        Hook::tracepoint("inet_probe", "tcp_probe"),
        Hook::tracepoint("inet_user", "tcp_rcv_space_adjust").while_counted(UNSURE),
    ];
    let packets = [Hook::cgroup("inet_ingress", "ingress"), Hook::cgroup("inet_egress", "egress")];
    let build = |datagrams: &[Hook], way| {
        let datagrams = datagrams.iter().cloned().map(|hook| hook.only_for(UDP_SAMPLES));
        Build {
            adopt: |object| bpf::adopt(object, "inet_adopt", "look for existing sockets"),
            settle: Some(Settle {
                object: object!("inet/settle.bpf.o"),
                program: "inet_settle",
                over: "active",
                banks: abi::INET_SAMPLES,
                sizes: vec![MapSize::of::<abi::inet_shares>("shares", Entries::Cpus)],
                since: Some(SINCE),
                computed: Some(CELL),
                listed: Some(ON_LIST),
            }),
            sizes: vec![MapSize::of::<abi::inet_scratches>("scratch", Entries::Cpus)],
            ways: UDP_SAMPLES.iter().map(|sample| (*sample, way)).collect(),
            maps: MAPS.to_vec(),
            keeps: Some(KEEPS),
            ..Build::new(
                object!("inet/inet.bpf.o"),
                object!("inet/snapshot.bpf.o"),
                of_tcp.iter().cloned().chain(datagrams).collect(),
                |object, maps, _| Refill::over_sockets(object, &maps.objects, "inet_refill"),
            )
        }
    };
    Builds::one(build(&packets, PACKETS)).probed(&udp::PROBES).or_preferred(
        build(&udp::hooks("inet"), FUNCTIONS),
        udp::needed(),
        udp::functions_wanted,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use topstat_kernel::ranking::RankedFamily;

    #[test]
    fn the_pinned_programs_decide_how_udp_is_counted() {
        let family = crate::catalogue().family_of(UDP_SAMPLES[0]).unwrap();
        let sample = family.samples.iter().find(|sample| sample.name == UDP_SAMPLES[0]).unwrap();
        let constants = vec![0; size_of::<abi::inet_constants>()];
        let way = |programs: &[&str]| {
            let made = RankedFamily::of(&family).unwrap().made_with(&constants, |name| programs.contains(&name));
            made.way(sample)
        };
        assert_eq!(way(&["inet_probe", "inet_ingress", "inet_egress"]), Some(PACKETS));
        assert_eq!(way(&["inet_probe", "inet_received", "inet_sent", "inet_sent6"]), Some(FUNCTIONS));
    }
}
