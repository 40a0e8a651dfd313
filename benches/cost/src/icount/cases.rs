// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs that are attached while transactions are counted.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use topstat_families::netstack::{DEFAULT_HZ, Options as Sampling, Sampler};
use topstat_kernel::{Source, TableInfo};

use super::hooks;
use super::module::Module;
use super::peers::{Peer, TCPTOP_BCC, TCPTOP_LIBBPF};
use crate::overhead::attached;
use crate::pinned::Pinned;

/// An interval longer than any measurement: no table is read.
const NEVER_S: &str = "86400";

/// The programs beside the load.
pub enum What {
    Nothing,
    /// Programs of `hooks.bpf.c`.
    Hooks(&'static str),
    /// topstat's observers, without a reader.
    Topstat(Tables),
    /// All tables, with UDP counted by its packets.
    TopstatByPackets,
    /// The kernel module with its tables of connections, without a reader.
    Module,
    /// `topstat top`, with an interval of a second.
    TopstatTop,
    /// Sampling of stacks at the default rate of `topstat netstack`.
    Sampling,
    /// A program and its arguments.
    Peer(&'static str, &'static [&'static str]),
}

/// The enabled tables of sockets.
#[derive(Clone, Copy)]
pub enum Tables {
    One,
    /// Tables of connections.
    Tcp,
    /// Tables of the users of the network.
    Users,
    /// Tables of connections, and of the users of the network.
    TcpAndUsers,
    All,
}

impl Tables {
    /// The families of the tables.
    fn families(self) -> &'static [&'static str] {
        match self {
            Self::One | Self::Tcp | Self::All => &["inet"],
            Self::Users => &["net"],
            Self::TcpAndUsers => &["inet", "net"],
        }
    }

    /// The tables of a family.
    fn of(self, family: &str) -> Vec<Arc<TableInfo>> {
        let families = topstat_families::catalogue().families();
        let tables = families.iter().filter(|one| one.name == family).flat_map(|one| one.tables());
        let wanted = |table: &Arc<TableInfo>| match self {
            Self::One => table.path() == "tcp_v4/conns_pps",
            Self::Tcp | Self::TcpAndUsers => !table.sample.starts_with("udp"),
            Self::All | Self::Users => true,
        };
        tables.filter(wanted).collect()
    }
}

/// A row of the result.
pub struct Case {
    /// The identifier of the case in the results.
    pub id: &'static str,
    /// The description.
    pub label: &'static str,
    pub what: What,
    /// Whether the program acts every second, so that a turn must last a second.
    pub every_second: bool,
}

const fn case(id: &'static str, label: &'static str, what: What) -> Case {
    Case { id, label, what, every_second: false }
}

const fn topstat(id: &'static str, label: &'static str, tables: Tables) -> Case {
    case(id, label, What::Topstat(tables))
}

/// The first case is the base of all comparisons. The last is bcc's tcptop: see `guest.rs`.
pub const CASES: &[Case] = &[
    case("nothing", "nothing", What::Nothing),
    case("empty_cgroup", "cgroup_skb, an empty program (topstat's hooks)", What::Hooks("empty_cgroup")),
    case("count_cgroup", "cgroup_skb, counting in the socket's storage", What::Hooks("count_cgroup")),
    case("empty_packet", "fentry per packet, an empty program", What::Hooks("empty_packet")),
    case("count_packet", "fentry per packet, counting in the socket's storage", What::Hooks("count_packet")),
    case("empty_call", "fentry per call, an empty program", What::Hooks("empty_call")),
    case("count_call", "fentry per call, counting in the socket's storage", What::Hooks("count_call")),
    case("empty_probe", "tcp_probe, an empty program", What::Hooks("empty_probe")),
    case("empty_read", "tcp_rcv_space_adjust, an empty program", What::Hooks("empty_read")),
    topstat("one", "topstat, one table", Tables::One),
    topstat("all", "topstat, all tables", Tables::All),
    case("packets", "topstat, all tables, UDP by its packets", What::TopstatByPackets),
    topstat("tcp", "topstat, all tables of connections", Tables::Tcp),
    case("kmod", "the kernel module, all tables of connections", What::Module),
    topstat("users", "topstat, tables of `net_*`", Tables::Users),
    topstat("tcp_users", "topstat, tables of connections and of `net_*`", Tables::TcpAndUsers),
    case("libbpf", "tcptop of libbpf-tools", What::Peer(TCPTOP_LIBBPF, &["-C", NEVER_S])),
    Case {
        id: "topstat_top",
        label: "`topstat top tcp_v4/conns_bps`, read every second",
        what: What::TopstatTop,
        every_second: true,
    },
    Case {
        id: "libbpf_1",
        label: "tcptop of libbpf-tools, read every second",
        what: What::Peer(TCPTOP_LIBBPF, &["-C", "1"]),
        every_second: true,
    },
    Case {
        id: "sampling",
        label: "`topstat netstack`, stacks sampled at 99 Hz",
        what: What::Sampling,
        every_second: true,
    },
    case("bcc", "tcptop of bcc", What::Peer(TCPTOP_BCC, &["-C", NEVER_S])),
];

/// The case with that name.
pub fn find(id: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.id == id)
}

/// Keeps a case's programs attached; dropping it detaches them.
pub enum Held {
    Nothing,
    Hooks { _attached: hooks::Attached },
    Topstat { _source: Box<dyn Source> },
    Pinned { _pinned: Pinned },
    Module { _module: Module },
    Peer { _peer: Peer },
    Sampling { _sampler: Box<Sampler> },
}

/// The variable that selects how UDP is counted; it is read while programs are loaded.
const UDP: &str = "TOPSTAT_UDP";

fn topstat_with(which: Tables) -> Result<Held> {
    let families: Vec<_> = which.families().iter().map(|family| which.of(family)).collect();
    if let [tables] = &*families {
        return Ok(Held::Topstat { _source: attached(tables)? });
    }
    // Loaded apart, each family has its lender loaded, too, and a segment runs inet twice. Pinned families share the lender.
    let pinned = Pinned::load(&families)?;
    pinned.states().iter().for_each(|state| state.calm());
    Ok(Held::Pinned { _pinned: pinned })
}

impl Case {
    /// Attaches the programs of the case.
    pub fn hold(&self) -> Result<Held> {
        Ok(match &self.what {
            What::Nothing => Held::Nothing,
            What::Hooks(name) => Held::Hooks { _attached: hooks::attach(name)? },
            What::Topstat(tables) => topstat_with(*tables)?,
            What::TopstatByPackets => {
                let before = env::var_os(UDP);
                // SAFETY: no other thread of this program reads a variable.
                unsafe { env::set_var(UDP, "packets") };
                let held = topstat_with(Tables::All);
                // SAFETY: as above.
                unsafe {
                    match before {
                        Some(before) => env::set_var(UDP, before),
                        None => env::remove_var(UDP),
                    }
                }
                held?
            }
            What::Module => Held::Module { _module: Module::load()? },
            What::TopstatTop => {
                let bench = std::env::current_exe().context("cannot tell where this program is")?;
                let topstat = bench.with_file_name("topstat");
                let peer = Peer::start(&topstat.to_string_lossy(), &["top", "tcp_v4/conns_bps", "1"], true)?;
                Held::Peer { _peer: peer }
            }
            What::Sampling => {
                let options = Sampling { hz: DEFAULT_HZ, ..Sampling::default() };
                Held::Sampling { _sampler: Box::new(Sampler::open(&options)?) }
            }
            What::Peer(program, arguments) => Held::Peer { _peer: Peer::start(program, arguments, self.every_second)? },
        })
    }

    /// The minimum length of a turn.
    pub fn turn(&self, usual: Duration) -> Duration {
        if self.every_second { usual.max(Duration::from_secs(1)) } else { usual }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_told_apart() {
        for (index, case) in CASES.iter().enumerate() {
            assert!(CASES[..index].iter().all(|other| other.id != case.id && other.label != case.label), "{}", case.id);
        }
    }
}
