// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs of the family, with and without UDP.

use libbpf_rs::Object;

use super::abi;
use crate::inet;
use crate::udp::{self, PACKETS, UDP};
use topstat_kernel::family::{Build, BuildKind, Builds, Entries, Grids, Lent, MapSize, Ranked, Refill, Settle};
use topstat_kernel::hooks::Hook;
use topstat_kernel::report::Check;
use topstat_kernel::{Error, bpf};

/// The setting that chooses whether UDP is counted: `yes`, the default, or `no`.
const NET_UDP: &str = "TOPSTAT_NET_UDP";
const YES: &str = "yes";
const NO: &str = "no";

/// The number of connections whose last look failed.
pub const UNSEEN: &str = ".data.unseen";

/// Maps of the state: see `logic.h`, `flow.bpf.h` and the engine's `keyed.h`.
const MAPS: [&str; 12] = [
    "buckets",
    "flows",
    "datagrams",
    "active",
    "conns",
    LENDER,
    ".data.lent_since",
    LENT_CELL,
    "batches",
    ".data.unsure",
    ".data.cell",
    UNSEEN,
];
/// The word that the family inet computes from its settings.
const LENT_CELL: &str = ".data.lent_cell";
/// The settings of the family inet.
const LENDER: &str = ".data.lender";
/// That family's programs record TCP's counters.
const LENT: Lent = Lent {
    by: "inet",
    maps: &[
        ("active", "guests"),
        ("conns", "objects"),
        (LENDER, ".data.settings"),
        (".data.lent_since", ".data.since"),
        (LENT_CELL, ".data.cell"),
    ],
    grids: Grids { map: LENDER, computed: LENT_CELL, at: inet::GUESTS_AT, most: inet::GUESTS },
};

/// All samples. UDP's hooks serve these alone.
const SAMPLES: &[&str] = &["net_procs", "net_cgroups", "net_hosts", "net_ports"];

fn wants_udp() -> bool {
    std::env::var_os(NET_UDP).is_none_or(|set| set != NO)
}

/// Checks the settings.
pub fn ready() -> Result<(), Error> {
    udp::is_either(NET_UDP, [YES, NO])?;
    udp::ready()
}

/// The index of this build among the preferred builds.
const BY_FUNCTIONS: usize = 0;

/// Whether UDP is counted, and how.
pub fn check() -> Vec<Check> {
    const NAME: &str = "counting of UDP in net_*";
    let Some(family) = crate::catalogue().family_of(SAMPLES[0]) else { return Vec::new() };
    let Some(ranked) = family.kind_as::<Ranked>() else { return Vec::new() };
    if let Some(obstacle) = ranked.builds.unknown() {
        return vec![Check::untried(NAME, &obstacle)];
    }
    if bpf::atomics::known() == Some(false) {
        return Vec::new(); // the kernel can't count anything here: the samples' own line shows this
    }
    let by_packets = |why: &str| {
        format!(
            "by its packets, at the hooks of the root cgroup, {why}; each packet of TCP pays for that while a table is \
             on ({NET_UDP}={NO} counts TCP alone)"
        )
    };
    let found = match ranked.builds.chosen() {
        BuildKind::Preferred(BY_FUNCTIONS) => {
            format!(
                "by its own functions, so that TCP pays nothing for it ({UDP}={PACKETS} counts its packets, {NET_UDP}={NO} \
                 counts TCP alone)"
            )
        }
        BuildKind::Preferred(_) if !udp::functions_wanted() => by_packets(&format!("as {UDP}={PACKETS} asks for")),
        BuildKind::Preferred(_) => {
            let lacking = ranked.builds.lacking_for_preferred(BY_FUNCTIONS);
            let lacking: Vec<_> = lacking.iter().map(|feature| feature.name).collect();
            by_packets(&format!("for the kernel lacks {}", lacking.join(", ")))
        }
        BuildKind::Usual | BuildKind::Fallback => format!("not at all, as {NET_UDP}={NO} asks for"),
    };
    vec![Check::ok(NAME, found)]
}

/// All builds of the family.
pub fn builds() -> Builds {
    // Ends before beginnings: a counted connection always has a hook that sees its end.
    let of_tcp = [
        Hook::tracepoint("net_destroy", "tcp_destroy_sock"),
        Hook::tracepoint("net_state", "inet_sock_set_state"),
        Hook::tracepoint("net_user", "tcp_rcv_space_adjust"),
    ];
    // A UDP socket is known from its making, or from its adoption.
    let life = [Hook::cgroup("net_release", "sock_release"), Hook::cgroup("net_create", "sock_create")];
    let packets = [Hook::cgroup("net_ingress", "ingress"), Hook::cgroup("net_egress", "egress")];
    let build = |life: &[Hook], datagrams: &[Hook], number, way| {
        let datagrams = datagrams.iter().cloned().map(|hook| hook.only_for(SAMPLES));
        Build {
            adopt,
            adopt_before: Some("net_destroy"),
            settle: Some(Settle {
                object: object!("net/settle.bpf.o"),
                program: "net_settle",
                over: "active",
                banks: u32::MAX,
                sizes: Vec::new(),
                since: None,
                computed: None,
                listed: None,
            }),
            number,
            ways: SAMPLES.iter().map(|sample| (*sample, way)).collect(),
            sizes: vec![MapSize::of::<abi::net_cpu>("batches", Entries::Cpus)],
            maps: MAPS.to_vec(),
            lent: Some(LENT),
            ..Build::new(
                object!("net/net.bpf.o"),
                object!("net/snapshot.bpf.o"),
                life.iter().chain(&of_tcp).cloned().chain(Hook::of_owners("net")).chain(datagrams).collect(),
                |object, maps, _| Refill::over_places(object, &maps.objects, "net_refill"),
            )
        }
    };
    let alone = build(&[], &[], abi::NET_TCP_ALONE, "counters");
    let by_functions = build(&life, &udp::hooks("net"), abi::NET_TCP_AND_UDP, "counters and functions");
    let by_packets = build(&life, &packets, abi::NET_TCP_AND_UDP, "counters and packets");
    Builds::one(alone)
        .probed(&udp::PROBES)
        .or_preferred(by_functions, udp::needed(), || wants_udp() && udp::functions_wanted())
        .or_preferred(by_packets, Vec::new(), wants_udp)
}

/// Listeners before connections: a connection to a listener's port is a served one.
fn adopt(object: &Object) -> Result<(), Error> {
    const LOOK: &str = "look for existing connections";
    bpf::iterate(object, "net_adopt_listeners", LOOK)?;
    bpf::iterate(object, "net_adopt", LOOK).map(drop)
}
