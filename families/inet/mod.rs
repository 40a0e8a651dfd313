// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples `tcp_v4`, `tcp_v6`, `udp_v4`, `udp_v6`: sockets, ranked by what they exchange.
//!
//! One set of eBPF programs serves all four, so that a packet runs through one hook once. See
//! `README.md` in this folder for what is counted, and where.

abi!("inet");
mod adopt;
#[cfg(feature = "bench")]
pub mod bench;
mod fallbacks;
mod tables;

use std::mem::{offset_of, size_of};
use std::sync::Arc;

use crate::family::{Constant, Constants, Family, Kind, Ranked};

const _: () = assert!(abi::INET_TABLES == abi::TS_BANK_TABLES, "a bank for each sample");

/// The family of the socket samples.
pub fn family() -> Family {
    let ranked = Ranked {
        sample_banks: 1,
        builds: fallbacks::builds(),
        constants: Constants::new(
            size_of::<abi::inet_constants>(),
            [(offset_of!(abi::inet_constants, v1_controller), Constant::V1Controller)],
        ),
        section_head: size_of::<abi::inet_section>(),
        row: size_of::<abi::inet_row>(),
        opaque: true,
        parts: ["rx", "tx"].map(str::to_owned).to_vec(),
        lost: Vec::new(),
        unranked: None,
    };
    Family {
        name: "inet".to_owned(),
        abi: abi::INET_ABI,
        samples: tables::samples().into_iter().map(Arc::new).collect(),
        kind: Kind::Ranked(Arc::new(ranked)),
        since: (5, 10),
        ready: || Ok(()),
        check: Vec::new,
    }
}
