// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network panel: processes by their traffic, each with the port or the peer of its largest connection. A local connection has
//! two ends on this host: where it is most of what both processes do, they are one line.

use std::collections::HashMap;
use std::net::IpAddr;

use topstat_model::{Field, Row, Snapshot, per_second};

use super::{Content, Line, Others, Panel, TABLES, share};
use crate::rows::chosen_by;
use crate::state::{App, host_text};

/// An end of a connection.
type End = (IpAddr, u64);

/// The largest connection of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Largest {
    value: u64,
    own: End,
    peer: End,
}

impl Largest {
    /// Whether the peer is on this host.
    fn is_local(&self) -> bool {
        self.peer.0.is_loopback() || self.own.0 == self.peer.0
    }

    /// The port that is served, or the peer that serves. The lower port is the service's: clients have ephemeral ports. A UDP socket
    /// that is not connected has no peer.
    fn text(&self, app: &App) -> String {
        let is_served_here = self.own.1 < self.peer.1 || self.peer.1 == 0;
        let (ip, port) = self.peer;
        match app.host_name(ip) {
            _ if self.is_local() => format!("lo:{}", self.own.1.min(port)),
            _ if is_served_here => format!(":{}", self.own.1),
            Some(name) => format!("> {}:{port}", host_text(&name)),
            None if ip.is_ipv6() => format!("> [{ip}]:{port}"),
            None => format!("> {ip}:{port}"),
        }
    }
}

/// The largest connection of each process in these tables.
fn largest(app: &App) -> HashMap<u64, Largest> {
    let mut all: HashMap<u64, Largest> = HashMap::new();
    let tables = TABLES.iter().filter(|(panel, path, _)| *panel == Panel::Network && *path != Panel::Network.table());
    for snapshot in tables.filter_map(|(_, path, _)| app.shown(app.table_at(path)?).ok()) {
        let column = |name: &str| snapshot.column(name);
        let (Some(pid), Some(sip), Some(sport), Some(dip), Some(dport)) =
            (column("pid"), column("sip"), column("sport"), column("dip"), column("dport"))
        else {
            continue;
        };
        for row in &snapshot.rows {
            let (Some(Field::U64(pid)), Some(own), Some(peer)) =
                (row.object.get(pid), end(row, sip, sport), end(row, dip, dport))
            else {
                continue;
            };
            let found = Largest { value: row.value, own, peer };
            let known = all.entry(*pid).or_insert(found);
            if found.value > known.value {
                *known = found;
            }
        }
    }
    all
}

fn end(row: &Row, ip: usize, port: usize) -> Option<End> {
    match (row.object.get(ip)?, row.object.get(port)?) {
        (Field::Ip(ip), Field::U64(port)) => Some((ip.to_canonical(), *port)),
        _ => None,
    }
}

/// A connection takes more than half of a process's traffic, as far as the two readings agree on time.
fn is_most(connection: &Largest, value: u64) -> bool {
    connection.value >= value / 2
}

pub fn panel(app: &App, most: usize) -> Content {
    let (table, snapshot) = match app.reading(Panel::Network.table()) {
        Ok(reading) => reading,
        Err(why) => return Content::said(why),
    };
    let largest = largest(app);
    let pid = |row: &Row| match row.object.get(snapshot.column("pid")?)? {
        Field::U64(pid) => Some(*pid),
        _ => None,
    };
    // Each row, and the row of the other end of its connection.
    let chosen = chosen_by(&app.filter, &snapshot);
    let rows: Vec<_> = snapshot.rows.iter().filter(|row| chosen(row)).collect();
    if rows.is_empty() {
        return Content::said(app.nothing(Panel::Network));
    }
    let connection = |row: &Row| pid(row).and_then(|pid| largest.get(&pid));
    let other_end = |row: &Row, of: &Largest| {
        let is_it = |other: &&&Row| {
            let its = connection(other).filter(|its| (its.own, its.peer) == (of.peer, of.own));
            pid(other) != pid(row) && its.is_some_and(|its| is_most(its, other.value))
        };
        rows.iter().find(is_it).copied()
    };
    let mut lines: Vec<(u64, Line)> = Vec::new();
    let (mut folded, mut total) = (Vec::new(), snapshot.total);
    for row in &rows {
        if folded.contains(&row.object) {
            continue;
        }
        let mut line = Line::of(app, &snapshot, table, row);
        if let Some(of) = connection(row) {
            line.more = of.text(app);
            if let Some(other) = other_end(row, of).filter(|_| is_most(of, row.value)) {
                line.name = format!("{} ↔ {}", line.name, super::name(&snapshot, other));
                total = total.saturating_sub(other.value);
                folded.push(other.object.clone());
            }
        }
        lines.push((row.value, line));
    }
    let fit = if lines.len() > most { most.saturating_sub(1) } else { lines.len() };
    let shown: u64 = lines.iter().take(fit).map(|(value, _)| *value).sum();
    let rest = total.saturating_sub(shown);
    let figures = |value: u64| {
        let value = per_second(value, snapshot.period_ms);
        (short(&snapshot, value), value)
    };
    let count = (snapshot.row_count() < snapshot.top).then(|| (lines.len() - fit) as u64);
    let others = (rest > 0 && app.filter.is_empty()).then(|| {
        let (figure, value) = figures(rest);
        Others { figure, value, count }
    });
    let lines = lines.into_iter().take(fit).map(|(pushed, line)| {
        let (figure, value) = figures(pushed);
        Line { figure, value, share: share(pushed, total), ..line }
    });
    Content { lines: lines.collect(), others, said: None }
}

/// A number of bits per second, without the unit, which the title has.
fn short(snapshot: &Snapshot, value: f64) -> String {
    let human = snapshot.unit.human_rate(value);
    human.trim_end_matches("bit").to_owned()
}
