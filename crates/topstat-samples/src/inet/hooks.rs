// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the programs are attached.

use crate::hooks::{At, Hook};

const CREATE: Hook = Hook { program: "inet_create", at: At::Cgroup, name: "cgroup sock_create" };
const RELEASE: Hook = Hook { program: "inet_release", at: At::Cgroup, name: "cgroup sock_release" };
const STATE: Hook = Hook { program: "inet_state", at: At::Gate, name: "tracepoint inet_sock_set_state" };
const RETRANSMIT: Hook = Hook { program: "inet_retransmit", at: At::Gate, name: "tracepoint tcp_retransmit_skb" };
const ANEW: Hook = Hook { program: "inet_anew", at: At::Cgroup, name: "cgroup sock_ops" };
const INGRESS: Hook = Hook { program: "inet_ingress", at: At::Cgroup, name: "cgroup ingress" };
const EGRESS: Hook = Hook { program: "inet_egress", at: At::Cgroup, name: "cgroup egress" };

/// The hooks before packets: births and ends, so that no socket is seen without its owner.
pub const BEFORE_PACKETS: usize = 4;
/// All hooks, in the order in which they are attached.
pub static FULL: [Hook; BEFORE_PACKETS + 2] = [CREATE, RELEASE, STATE, RETRANSMIT, INGRESS, EGRESS];
/// The same without socket storage in tracepoints.
pub static PLAIN: [Hook; BEFORE_PACKETS + 2] = [CREATE, RELEASE, STATE, ANEW, INGRESS, EGRESS];
