// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host in four lines: its CPUs, memory, network and disks.

use topstat_model::Unit;

use crate::draw::to_f64;
use crate::host::Host;

/// A line of the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// The name of the resource.
    pub name: &'static str,
    /// The value now, for people.
    pub figure: String,
    /// The values of the past, as shares of the largest that the line can have, or of their own largest.
    pub values: Vec<f64>,
    /// The largest value, for people.
    pub most: String,
    /// The parts of the value.
    pub details: String,
    /// The pressure, or for the network the segments sent again.
    pub last: String,
    /// The share whose colour the figure has.
    pub heat: f64,
}

/// The lines of the host now, with the values of the past, the oldest first.
pub fn measures(now: &Host, all: &[&Host]) -> [Measure; 4] {
    [cpu(now, all), memory(now, all), net(now, all), disk(now, all)]
}

/// A value without the name of its unit, which the line begins with: `1.90G`.
fn short(unit: Unit, value: u64) -> String {
    let human = unit.human(value);
    let digits = human.trim_end_matches("bit").trim_end_matches("iB");
    digits.strip_suffix('B').unwrap_or(digits).to_owned()
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

fn pressure(share: Option<f64>) -> String {
    share.map_or(String::new(), |share| format!("pressure {}", percent(share)))
}

/// The largest of these values, at least 0.
fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// Values as shares of the largest of them.
fn scaled(values: Vec<f64>) -> Vec<f64> {
    let largest = largest(&values).max(1e-9);
    values.into_iter().map(|value| value / largest).collect()
}

fn cpu(now: &Host, all: &[&Host]) -> Measure {
    let values: Vec<_> = all.iter().map(|host| host.cpu.unwrap_or_default().busy()).collect();
    let cpu = now.cpu.unwrap_or_default();
    let mut details = format!("user {:.0} system {:.0}", cpu.user * 100.0, cpu.system * 100.0);
    for (name, part) in [("irq", cpu.irq), ("steal", cpu.steal)] {
        if part >= 0.005 {
            details += &format!(" {name} {:.0}", part * 100.0);
        }
    }
    let (most, last) = (percent(largest(&values)), pressure(now.pressure.cpu));
    Measure { name: "CPU", figure: percent(cpu.busy()), values, most, details, last, heat: cpu.busy() }
}

fn memory(now: &Host, all: &[&Host]) -> Measure {
    let values: Vec<_> = all.iter().map(|host| host.memory.unwrap_or_default().share()).collect();
    let memory = now.memory.unwrap_or_default();
    let mut details = format!("{} of {}", short(Unit::Bytes, memory.used()), short(Unit::Bytes, memory.total));
    if memory.swap_used > 0 {
        details += &format!(" swap {}", short(Unit::Bytes, memory.swap_used));
    }
    let (most, last) = (percent(largest(&values)), pressure(now.pressure.memory));
    Measure { name: "MEM", figure: percent(memory.share()), values, most, details, last, heat: memory.share() }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a figure for people
fn net(now: &Host, all: &[&Host]) -> Measure {
    let bits = |host: &Host| host.net.map_or(0, |(rx, tx)| rx.saturating_add(tx));
    let values: Vec<_> = all.iter().map(|host| to_f64(bits(host))).collect();
    let (rx, tx) = now.net.unwrap_or_default();
    Measure {
        name: "NET bit/s",
        figure: short(Unit::Bits, bits(now)),
        most: short(Unit::Bits, largest(&values) as u64),
        values: scaled(values),
        details: format!("in {} out {} this netns", short(Unit::Bits, rx), short(Unit::Bits, tx)),
        last: now.retrans.map_or(String::new(), |retrans| format!("retrans {retrans:.0}/s")),
        heat: 0.0,
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a figure for people
fn disk(now: &Host, all: &[&Host]) -> Measure {
    let bytes = |host: &Host| host.disk.as_ref().map_or(0, |disk| disk.read.saturating_add(disk.written));
    let values: Vec<_> = all.iter().map(|host| to_f64(bytes(host))).collect();
    let disk = now.disk.clone().unwrap_or_default();
    let busiest = disk.busiest.as_ref().map_or(String::new(), |(name, busy)| format!(" {name} {}", percent(*busy)));
    Measure {
        name: "DISK B/s",
        figure: short(Unit::Bytes, bytes(now)),
        most: short(Unit::Bytes, largest(&values) as u64),
        values: scaled(values),
        details: format!("in {} out {}{busiest}", short(Unit::Bytes, disk.read), short(Unit::Bytes, disk.written)),
        last: pressure(now.pressure.io),
        heat: disk.busiest.map_or(0.0, |(_, busy)| busy),
    }
}
