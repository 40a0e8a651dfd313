// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The samples of counters: one for each protocol, one for devices, and one for namespaces.

use std::path::Path;

use topstat_model::Reach::{Local, Part, Spanning};
use topstat_model::{ColumnKind, Unit};

use super::files;
use super::protocols::{Protocol, protocols};
use topstat_kernel::family::{FieldAt, FilterBy, Objects, RowColumn};
use topstat_kernel::{SampleInfo, TableInfo};

/// The prefix of a protocol's name in its sample's name.
pub const PREFIX: &str = "snmp_";
pub const DEVICES: &str = "net_devs";
pub const NAMESPACES: &str = "net_namespaces";

/// The norms by which devices and namespaces are ranked.
pub const NORMS: [Norm; 4] = [
    Norm {
        name: "packets",
        unit: Unit::Packets,
        of_device: [2, 10],
        of_namespace: [
            &[("ip", "InReceives"), ("ip6", "Ip6InReceives")],
            &[
                ("ip", "OutRequests"),
                ("ip", "ForwDatagrams"),
                ("ip6", "Ip6OutRequests"),
                ("ip6", "Ip6OutForwDatagrams"),
            ],
        ],
    },
    Norm {
        name: "bytes",
        unit: Unit::Bytes,
        of_device: [1, 9],
        of_namespace: [
            &[("ipext", "InOctets"), ("ip6", "Ip6InOctets")],
            &[("ipext", "OutOctets"), ("ip6", "Ip6OutOctets")],
        ],
    },
    Norm {
        name: "errors",
        unit: Unit::Count,
        of_device: [3, 11],
        of_namespace: [
            &[
                ("ip", "InHdrErrors"),
                ("ip", "InAddrErrors"),
                ("ip", "InUnknownProtos"),
                ("ipext", "InTruncatedPkts"),
                ("ipext", "InNoRoutes"),
                ("ip6", "Ip6InHdrErrors"),
                ("ip6", "Ip6InTooBigErrors"),
                ("ip6", "Ip6InNoRoutes"),
                ("ip6", "Ip6InAddrErrors"),
                ("ip6", "Ip6InUnknownProtos"),
                ("ip6", "Ip6InTruncatedPkts"),
                ("udp", "NoPorts"),
                ("udp", "RcvbufErrors"),
                ("udp", "InCsumErrors"),
                ("udp", "MemErrors"),
                ("udp6", "Udp6NoPorts"),
                ("udp6", "Udp6RcvbufErrors"),
                ("udp6", "Udp6InCsumErrors"),
                ("udp6", "Udp6MemErrors"),
            ],
            &[("ip", "OutNoRoutes"), ("ip6", "Ip6OutNoRoutes"), ("udp", "SndbufErrors"), ("udp6", "Udp6SndbufErrors")],
        ],
    },
    Norm {
        name: "drops",
        unit: Unit::Count,
        of_device: [4, 12],
        of_namespace: [
            &[("ip", "InDiscards"), ("ip6", "Ip6InDiscards")],
            &[("ip", "OutDiscards"), ("ip6", "Ip6OutDiscards")],
        ],
    },
];

/// A norm by which devices and namespaces are ranked; received and sent are separate parts.
pub struct Norm {
    /// The name of the dynamic table. The running total's name has [`TOTAL`] behind it.
    pub name: &'static str,
    pub unit: Unit,
    /// Positions of the words behind a device's name in `/proc/net/dev`, from 1.
    pub of_device: [usize; 2],
    /// The counters that are added up, by protocol and name. A counter that the kernel does not have adds nothing.
    pub of_namespace: [&'static [(&'static str, &'static str)]; 2],
}

/// The end of a running total's name, behind the dynamic table's name.
pub const TOTAL: &str = "_total";
/// The table of namespaces by a chosen counter, and the counter if none is chosen.
pub const CHOSEN: &str = "counter";
pub const CHOSEN_UNLESS: (&str, &str) = ("tcp", "RetransSegs");

/// The parts of the values of [`NORMS`].
pub const PARTS: [&str; 2] = ["rx", "tx"];

/// A column whose fields the reader itself provides.
fn column(name: &'static str, kind: ColumnKind) -> RowColumn {
    RowColumn::new(name, kind, FieldAt::Told)
}

fn optional(name: &'static str, kind: ColumnKind) -> RowColumn {
    RowColumn::optional(name, kind, FieldAt::Told)
}

/// All samples: the samples of protocols first, in the order of [`protocols`].
pub fn samples() -> Vec<SampleInfo> {
    let of_protocols = protocols().iter().map(of_protocol);
    of_protocols.chain([devices(), namespaces()]).collect()
}

fn of_protocol(protocol: &Protocol) -> SampleInfo {
    let about = format!("counters of {}, as in /proc/net/{}", protocol.about, protocol.file);
    let name = format!("{PREFIX}{}", protocol.name);
    let only = column("counter", ColumnKind::Text).by(
        "counter",
        "NAME",
        "Only this counter, exactly: InSegs, RetransSegs",
        FilterBy::Text,
    );
    let columns = vec![only, optional("kind", ColumnKind::Text)];
    let tables = [
        TableInfo::dynamic(0, "rate", Unit::Count, "count", "what came to each counter, per period"),
        TableInfo::running_total(1, "total", Unit::Count, "count", "what each counter stands at"),
    ];
    SampleInfo::new(&name, &about, Objects::Counter, columns, tables).keyed(Spanning, &["counter"])
}

/// A dynamic table for each norm, and then the running totals.
fn tables_of_norms(of: fn(&Norm) -> &str) -> Vec<TableInfo> {
    let dynamic = (0..).zip(&NORMS).map(|(number, norm)| {
        let about = format!("{} received and sent{}, per period", norm.name, of(norm));
        TableInfo::dynamic(number, norm.name, norm.unit, norm.name, &about)
    });
    let totals = (NORMS.len() as u32..).zip(&NORMS).map(|(number, norm)| {
        let about = format!("{} received and sent{}, running total", norm.name, of(norm));
        TableInfo::running_total(number, &format!("{}{TOTAL}", norm.name), norm.unit, norm.name, &about)
    });
    dynamic.chain(totals).collect()
}

fn devices() -> SampleInfo {
    let only = column("dev", ColumnKind::Text).by("dev", "DEV", "Only this network device, exactly", FilterBy::Text);
    let columns = vec![only, column("netns", ColumnKind::Id), optional("netns_name", ColumnKind::Text)];
    let about = "network devices, by what their drivers count";
    // Namespaces have devices of equal names.
    SampleInfo::new(DEVICES, about, Objects::Counter, columns, tables_of_norms(|_| "")).keyed(Part, &["dev"])
}

fn namespaces() -> SampleInfo {
    let columns = vec![column("netns", ColumnKind::Id), optional("netns_name", ColumnKind::Text)];
    let mut tables = tables_of_norms(|norm| if norm.name == "errors" { " by IP and UDP" } else { " by IP" });
    let number = 2 * NORMS.len() as u32;
    let about =
        ["the counter of --by (tcp/RetransSegs), per period", "the counter of --by (tcp/RetransSegs), running total"];
    tables.push(TableInfo::dynamic(number, CHOSEN, Unit::Count, "count", about[0]));
    tables.push(TableInfo::running_total(number + 1, &format!("{CHOSEN}{TOTAL}"), Unit::Count, "count", about[1]));
    let about = "network namespaces (containers), by the kernel's SNMP counters";
    SampleInfo::new(NAMESPACES, about, Objects::Counter, columns, tables).keyed(Local, &["netns", "netns_name"])
}

/// The samples for which this kernel has counters. All namespaces have the same counters.
pub fn available() -> Vec<String> {
    let all: Vec<&Protocol> = protocols().iter().collect();
    let shown = files::namespace(Path::new("/proc/thread-self/net"), &all).unwrap_or_default();
    let of_protocols = shown.iter().map(|(protocol, _)| format!("{PREFIX}{}", protocol.name));
    of_protocols.chain([DEVICES, NAMESPACES].map(str::to_owned)).collect()
}

/// The parts of the values of a table.
pub fn parts(table: &TableInfo) -> &'static [&'static str] {
    if norm(&table.name).is_some() { &PARTS } else { &[] }
}

/// The norm of a table of devices or namespaces. `None`: the table ranks by the chosen counter, or is a protocol's.
pub fn norm(table: &str) -> Option<&'static Norm> {
    NORMS.iter().find(|norm| norm.name == table.strip_suffix(TOTAL).unwrap_or(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_numbered_and_have_a_norm() {
        for sample in samples() {
            let numbers: Vec<_> = sample.tables.iter().map(|table| table.number).collect();
            assert_eq!(numbers, (0..numbers.len() as u32).collect::<Vec<_>>(), "{}", sample.name);
            let of_norm = sample.tables.iter().filter(|table| norm(&table.name).is_some()).count();
            assert_eq!(of_norm, if sample.name.starts_with(PREFIX) { 0 } else { 2 * NORMS.len() }, "{}", sample.name);
        }
        assert!(available().contains(&"snmp_tcp".to_owned()));
    }

    #[test]
    fn norms_add_up_counters_of_protocols_that_there_are() {
        for (protocol, _) in NORMS.iter().flat_map(|norm| norm.of_namespace).flatten() {
            assert!(protocols().iter().any(|known| known.name == *protocol), "{protocol}");
        }
    }

    /// A name that no kernel has would add nothing, unseen.
    #[test]
    fn norms_add_up_counters_that_this_kernel_shows() {
        // `InErrors` of UDP is the sum of some of its errors, and would count these twice.
        let (errors, all): (_, Vec<_>) = (norm("errors").unwrap(), protocols().iter().collect());
        let [received, sent] = errors.of_namespace;
        for name in ["NoPorts", "RcvbufErrors", "InCsumErrors", "MemErrors"] {
            assert!(received.contains(&("udp", name)), "{name}");
        }
        assert!(sent.contains(&("udp", "SndbufErrors")) && !received.contains(&("udp", "InErrors")));
        let shown = files::namespace(Path::new("/proc/thread-self/net"), &all).unwrap();
        for (protocol, name) in NORMS.iter().flat_map(|norm| norm.of_namespace).flatten() {
            let Some((_, counters)) = shown.iter().find(|(known, _)| known.name == *protocol) else { continue };
            // MemErrors came with 5.11 (6c2af2c63d0f "net: udp: introduce UDP_MIB_MEMERRORS for udp_mem").
            let is_newer = name.ends_with("MemErrors");
            assert!(is_newer || counters.iter().any(|(known, _)| known == name), "{protocol} {name}");
        }
    }
}
