// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs, as they were compiled for kernels that have more or less: `fallbacks.bpf.h` says what is done instead of
//! what is missing, and which kernel commits brought it.

use super::adopt::{self, LOOK, adopt_by_descriptor};
use crate::bpf;
use crate::family::{Build, Builds, Feature, Probe, Refill};
use crate::hooks::Hook;

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
    let full = Build {
        observer: object!("inet/inet.bpf.o"),
        snapshot: object!("inet/snapshot.bpf.o"),
        hooks: births.iter().chain(&ends).chain(&packets).cloned().collect(),
        adopt: |object| bpf::iterate(object, "inet_adopt", LOOK).map(drop),
        adopt_before: None,
        refill: |object, maps, _| Refill::over_map(object, &maps.objects, "inet_refill"),
        settle: None,
        maps: Vec::new(),
        sizes: Vec::new(),
        less: || None,
    };
    let anew = [state, Hook::cgroup("inet_anew", "sock_ops")];
    let plain = Build {
        observer: object!("inet/inet.plain.bpf.o"),
        snapshot: object!("inet/snapshot.plain.bpf.o"),
        hooks: births.iter().chain(&anew).chain(&packets).cloned().collect(),
        adopt: adopt_by_descriptor,
        // An object that a packet has made can't be given an owner by descriptor.
        adopt_before: Some("inet_ingress"),
        maps: Vec::new(),
        sizes: Vec::new(),
        less: adopt::less,
        ..full
    };
    Builds::one(full).or_plain(plain, needed(), "5.12", object!("inet/probe.bpf.o"))
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
