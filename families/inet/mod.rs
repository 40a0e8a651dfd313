// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples `tcp_v4`, `tcp_v6`, `udp_v4`, `udp_v6`: sockets, ranked by their traffic.
//!
//! One set of eBPF programs serves all four samples, so each packet runs through one hook once. `README.md` in this folder
//! describes what is counted, and where.

abi!("inet");
#[cfg(feature = "bench")]
pub mod bench;
mod builds;
mod tables;

use std::mem::{offset_of, size_of};

use topstat_kernel::family::{Constant, Constants, Family, Ranked};

/// Where the settings have the configurations by whose slides the family net reads records, and the number of these.
pub const GUESTS_AT: usize = offset_of!(abi::inet_settings, guest);
/// See [`GUESTS_AT`].
pub const GUESTS: usize = abi::INET_GUESTS as usize;

const _: () = assert!(abi::INET_TABLES == abi::TS_BANK_TABLES, "a bank for each sample");

/// The family of the socket samples.
pub fn family() -> Family {
    let fields = [
        (offset_of!(abi::inet_constants, v1_controller), Constant::V1Controller),
        (offset_of!(abi::inet_constants, jiffy_ns), Constant::JiffyNs),
    ];
    let constants = Constants::new(size_of::<abi::inet_constants>(), fields);
    let ranked = Ranked {
        opaque: true,
        parts: ["rx", "tx"].map(str::to_owned).to_vec(),
        ..Ranked::new::<abi::inet_section, abi::inet_row>(builds::builds(), constants)
    };
    let family = Family::ranked("inet", abi::INET_ABI, (6, 1), tables::samples(), ranked);
    Family { ready: crate::udp::ready, check: builds::check, ..family }
}
