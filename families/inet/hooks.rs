// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the programs are attached: births before packets, so that no socket is seen without its owner.

use crate::hooks::{At, Hook};

const CREATE: Hook = Hook { program: "inet_create", at: At::Cgroup, name: "cgroup sock_create" };
const RELEASE: Hook = Hook { program: "inet_release", at: At::Cgroup, name: "cgroup sock_release" };
const STATE: Hook = Hook { program: "inet_state", at: At::Gate, name: "tracepoint inet_sock_set_state" };
const DESTROY: Hook = Hook { program: "inet_destroy", at: At::Gate, name: "tracepoint tcp_destroy_sock" };
const RETRANSMIT: Hook = Hook { program: "inet_retransmit", at: At::Gate, name: "tracepoint tcp_retransmit_skb" };
const ANEW: Hook = Hook { program: "inet_anew", at: At::Cgroup, name: "cgroup sock_ops" };
pub const INGRESS: Hook = Hook { program: "inet_ingress", at: At::Cgroup, name: "cgroup ingress" };
const EGRESS: Hook = Hook { program: "inet_egress", at: At::Cgroup, name: "cgroup egress" };

/// Every place that there may be.
pub static ALL: &[Hook] = &[CREATE, RELEASE, STATE, DESTROY, RETRANSMIT, ANEW, INGRESS, EGRESS];
/// Where the kernel has all that is needed.
pub static FULL: &[Hook] = &[CREATE, RELEASE, STATE, DESTROY, RETRANSMIT, INGRESS, EGRESS];
/// Where it lacks something: see `fallbacks.rs`.
pub static PLAIN: &[Hook] = &[CREATE, RELEASE, STATE, ANEW, INGRESS, EGRESS];
