// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The protocols with counters: the names of their counters in `/proc`, and the kernel's arrays that contain them. Numbers of
//! counters are not here: they come from the running kernel ([`super::layout`]).

/// A protocol.
#[derive(Debug)]
pub struct Protocol {
    /// The name. The sample's name is `snmp_` and this.
    pub name: &'static str,
    /// A description for people.
    pub about: &'static str,
    /// The file that shows its counters, below `/proc/PID/net`.
    pub file: &'static str,
    /// In a file whose lines have many counters: the beginning of the protocol's lines. Else: the beginning of its counters'
    /// names.
    pub title: &'static str,
    /// The field of `struct netns_mib` that points to the protocol's array.
    pub array: &'static str,
    /// For a device: the field of `struct ipv6_devstat`, and whether all CPUs share its array.
    pub device: Option<(&'static str, bool)>,
    /// Its messages by type.
    pub types: Option<&'static Types>,
    /// The prefix of the kernel's constants for counters without a list of names: `ICMP_MIB_INMSGS`.
    pub numbers: Option<&'static str>,
}

/// Messages of a protocol, which are counted by type.
#[derive(Debug)]
pub struct Types {
    /// The field of `struct netns_mib` that points to the array, which all CPUs share: received, then sent.
    pub array: &'static str,
    /// The field of `struct ipv6_devstat`.
    pub device: Option<&'static str>,
    /// The kernel's constants for the counters of all messages, received and sent.
    pub messages: (&'static str, &'static str),
    /// Types that have names, by the protocol's standard (RFC 792, 950; RFC 4443, 2710, 4861, 3810).
    pub names: &'static [(&'static str, usize)],
}

/// The number of types that a protocol may have: a type is a byte.
pub const TYPES: usize = 256;

static ICMP: Types = Types {
    array: "icmpmsg_statistics",
    device: None,
    messages: ("ICMP_MIB_INMSGS", "ICMP_MIB_OUTMSGS"),
    names: &[
        ("DestUnreachs", 3),
        ("TimeExcds", 11),
        ("ParmProbs", 12),
        ("SrcQuenchs", 4),
        ("Redirects", 5),
        ("Echos", 8),
        ("EchoReps", 0),
        ("Timestamps", 13),
        ("TimestampReps", 14),
        ("AddrMasks", 17),
        ("AddrMaskReps", 18),
    ],
};

static ICMP6: Types = Types {
    array: "icmpv6msg_statistics",
    device: Some("icmpv6msgdev"),
    messages: ("ICMP6_MIB_INMSGS", "ICMP6_MIB_OUTMSGS"),
    names: &[
        ("DestUnreachs", 1),
        ("PktTooBigs", 2),
        ("TimeExcds", 3),
        ("ParmProblems", 4),
        ("Echos", 128),
        ("EchoReplies", 129),
        ("GroupMembQueries", 130),
        ("GroupMembResponses", 131),
        ("GroupMembReductions", 132),
        ("RouterSolicits", 133),
        ("RouterAdvertisements", 134),
        ("NeighborSolicits", 135),
        ("NeighborAdvertisements", 136),
        ("Redirects", 137),
        ("MLDv2Reports", 143),
    ],
};

const fn v4(
    name: &'static str,
    about: &'static str,
    file: &'static str,
    title: &'static str,
    array: &'static str,
) -> Protocol {
    Protocol { name, about, file, title, array, device: None, types: None, numbers: None }
}

static PROTOCOLS: [Protocol; 13] = [
    v4("ip", "IPv4", "snmp", "Ip", "ip_statistics"),
    Protocol {
        types: Some(&ICMP),
        numbers: Some("ICMP_MIB_"),
        ..v4("icmp", "ICMP", "snmp", "Icmp", "icmp_statistics")
    },
    v4("tcp", "TCP", "snmp", "Tcp", "tcp_statistics"),
    v4("udp", "UDP", "snmp", "Udp", "udp_statistics"),
    v4("udplite", "UDP-Lite", "snmp", "UdpLite", "udplite_statistics"),
    v4("tcpext", "TCP, beyond the standard", "netstat", "TcpExt", "net_statistics"),
    v4("ipext", "IPv4, beyond the standard", "netstat", "IpExt", "ip_statistics"),
    v4("mptcp", "Multipath TCP", "netstat", "MPTcpExt", "mptcp_statistics"),
    Protocol { device: Some(("ipv6", false)), ..v4("ip6", "IPv6", "snmp6", "Ip6", "ipv6_statistics") },
    Protocol {
        device: Some(("icmpv6dev", true)),
        types: Some(&ICMP6),
        ..v4("icmp6", "ICMPv6", "snmp6", "Icmp6", "icmpv6_statistics")
    },
    v4("udp6", "UDP over IPv6", "snmp6", "Udp6", "udp_stats_in6"),
    v4("udplite6", "UDP-Lite over IPv6", "snmp6", "UdpLite6", "udplite_stats_in6"),
    v4("xfrm", "IPsec", "xfrm_stat", "Xfrm", "xfrm_statistics"),
];

/// All protocols, in the order in which they are listed.
pub fn protocols() -> &'static [Protocol] {
    &PROTOCOLS
}

impl Protocol {
    /// Whether each line of its file has many counters.
    pub fn in_lines(&self) -> bool {
        matches!(self.file, "snmp" | "netstat")
    }

    /// Whether a name in `/proc` is a setting of the namespace: it is no counter, and no array has it.
    pub fn is_setting(&self, name: &str) -> bool {
        self.name == "ip" && matches!(name, "Forwarding" | "DefaultTTL")
    }

    /// The index of a name's counter in the array of types. Received types come first.
    pub fn type_of(&self, name: &str) -> Option<usize> {
        let prefix = if self.in_lines() { "" } else { self.title };
        let name = name.strip_prefix(prefix)?;
        let (first, name) = match name.strip_prefix("In") {
            Some(name) => (0, name),
            None => (TYPES, name.strip_prefix("Out")?),
        };
        if let Some(number) = name.strip_prefix("Type") {
            return number.parse().ok().filter(|number| *number < TYPES).map(|number: usize| first + number);
        }
        self.types?.names.iter().find(|(known, _)| *known == name).map(|(_, number)| first + number)
    }

    /// The names of all types by number. `/proc` shows only the types that were counted.
    pub fn types_by_number(&self) -> impl Iterator<Item = String> {
        let prefix = if self.in_lines() { "" } else { self.title };
        let count = if self.types.is_some() { TYPES } else { 0 };
        ["In", "Out"]
            .into_iter()
            .flat_map(move |way| (0..count).map(move |number| format!("{prefix}{way}Type{number}")))
    }
}

/// Whether a counter is a level or a setting: RFC 4022 and the kernel's counters of Multipath TCP.
pub fn is_gauge(name: &str) -> bool {
    is_setting(name) || matches!(name, "CurrEstab" | "MPCurrEstab")
}

/// Whether a counter is a setting of TCP (RFC 4022): it counts nothing, and has no place among counts.
pub fn is_setting(name: &str) -> bool {
    matches!(name, "RtoAlgorithm" | "RtoMin" | "RtoMax" | "MaxConn")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protocol(name: &str) -> &'static Protocol {
        PROTOCOLS.iter().find(|protocol| protocol.name == name).unwrap()
    }

    #[test]
    fn types_are_found_by_name_and_by_number() {
        let (icmp, icmp6) = (protocol("icmp"), protocol("icmp6"));
        assert_eq!(icmp.type_of("InEchos"), Some(8));
        assert_eq!(icmp.type_of("OutEchoReps"), Some(256));
        assert_eq!(icmp.type_of("OutType3"), Some(259));
        assert_eq!(icmp.type_of("InType256"), None);
        assert_eq!(icmp.type_of("InMsgs"), None);
        assert_eq!(icmp6.type_of("Icmp6InMLDv2Reports"), Some(143));
        assert_eq!(icmp6.type_of("InMLDv2Reports"), None);
        assert_eq!(icmp6.types_by_number().nth(257).as_deref(), Some("Icmp6OutType1"));
        assert_eq!(protocol("tcp").types_by_number().count(), 0);
    }
}
