// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the names and sums of counters from `/proc/PID/net`.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use super::protocols::{Protocol, protocols};

/// The counters of each protocol that the kernel has, in the kernel's order.
pub type Shown = Vec<(&'static Protocol, Vec<(String, u64)>)>;

/// Reads the counters of these protocols in a namespace, below its `/proc/PID/net`. A protocol without a file is left out.
///
/// # Errors
/// When an existing file can't be read.
pub fn namespace(net: &Path, wanted: &[&'static Protocol]) -> io::Result<Shown> {
    let mut texts: HashMap<&str, String> = HashMap::new();
    let mut shown = Shown::new();
    for protocol in protocols().iter().filter(|own| wanted.iter().any(|wanted| wanted.name == own.name)) {
        if !texts.contains_key(protocol.file) {
            texts.insert(protocol.file, text(&net.join(protocol.file))?);
        }
        let counters = counters(protocol, &texts[protocol.file]);
        if !counters.is_empty() {
            shown.push((protocol, counters));
        }
    }
    Ok(shown)
}

/// Reads the counters of a device. A device has counters of IPv6 only.
///
/// # Errors
/// When its file can't be read. A device without IPv6 has no file, and no counters.
pub fn device(net: &Path, name: &str, wanted: &[&'static Protocol]) -> io::Result<Shown> {
    let text = text(&net.join("dev_snmp6").join(name))?;
    let of_devices = protocols().iter().filter(|own| own.device.is_some());
    let wanted = of_devices.filter(|own| wanted.iter().any(|wanted| wanted.name == own.name));
    Ok(wanted.map(|protocol| (protocol, counters(protocol, &text))).filter(|(_, all)| !all.is_empty()).collect())
}

/// The text of a file. Empty if there is no file.
fn text(path: &Path) -> io::Result<String> {
    match fs::read_to_string(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        text => text,
    }
}

/// The counters of a protocol in the text of its file.
fn counters(protocol: &Protocol, text: &str) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    if !protocol.in_lines() {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            if let (Some(name), Some(value)) = (words.next(), words.next())
                && name.starts_with(protocol.title)
            {
                all.push((name.to_owned(), number(value)));
            }
        }
        return all;
    }
    // Types of ICMP messages that were counted are in separate lines.
    let titles = [protocol.title.to_owned(), format!("{}Msg", protocol.title)];
    let titles = &titles[..if protocol.types.is_some() { 2 } else { 1 }];
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let Some((title, names)) = names.split_once(':') else { continue };
        if !titles.iter().any(|wanted| wanted == title) {
            continue;
        }
        let values = values.split_once(':').map_or("", |(_, values)| values).split_whitespace();
        let counters = names.split_whitespace().zip(values).filter(|(name, _)| !protocol.is_setting(name));
        all.extend(counters.map(|(name, value)| (name.to_owned(), number(value))));
    }
    all
}

/// A value. Gauges may be negative: they keep the kernel's bits.
fn number(text: &str) -> u64 {
    text.parse().or_else(|_| text.parse::<i64>().map(i64::cast_unsigned)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, text: &str) -> Vec<(String, u64)> {
        counters(protocols().iter().find(|protocol| protocol.name == name).unwrap(), text)
    }

    fn pairs(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
        expected.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    const SNMP: &str = "\
Ip: Forwarding DefaultTTL InReceives InHdrErrors
Ip: 1 64 12 0
Icmp: InMsgs InErrors
Icmp: 2 0
IcmpMsg: InType3 OutType3
IcmpMsg: 2 1
Tcp: RtoAlgorithm MaxConn InSegs
Tcp: 1 -1 18446744073709551615
";

    #[test]
    fn lines_of_names_go_with_lines_of_values() {
        assert_eq!(of("ip", SNMP), pairs(&[("InReceives", 12), ("InHdrErrors", 0)]));
        assert_eq!(of("icmp", SNMP), pairs(&[("InMsgs", 2), ("InErrors", 0), ("InType3", 2), ("OutType3", 1)]));
        assert_eq!(of("tcp", SNMP), pairs(&[("RtoAlgorithm", 1), ("MaxConn", u64::MAX), ("InSegs", u64::MAX)]));
        assert_eq!(of("udp", SNMP), []);
    }

    #[test]
    fn a_name_begins_with_its_protocols() {
        let text = "Ip6InReceives                   \t0\nIcmp6InMsgs 7\nUdp6InDatagrams 3\nUdpLite6InDatagrams 4\n";
        assert_eq!(of("ip6", text), pairs(&[("Ip6InReceives", 0)]));
        assert_eq!(of("icmp6", text), pairs(&[("Icmp6InMsgs", 7)]));
        assert_eq!(of("udp6", text), pairs(&[("Udp6InDatagrams", 3)]));
    }

    #[test]
    fn what_is_cut_off_is_left_out() {
        assert_eq!(of("ip", "Ip: InReceives\n"), []);
        assert_eq!(of("ip", "Ip: InReceives InHdrErrors\nIp: 1\n"), pairs(&[("InReceives", 1)]));
        assert_eq!(of("ip6", "Ip6InReceives\n\n"), []);
    }
}
