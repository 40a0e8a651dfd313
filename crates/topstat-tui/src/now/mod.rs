// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The "now" screen: the processes that use the CPUs, the network and the disks, the processes that wait, the errors that rise, and
//! whether the figures are complete.
//!
//! Its panels are made of the readings of tables: a panel ranks nothing itself that the kernel has ranked.

mod document;
mod measure;
mod network;
mod several;
mod text;
mod trust;

use topstat_model::{Field, Row, Snapshot, per_second};

use crate::draw::to_f64;
use crate::rows::{ObjectId, chosen_by};
use crate::state::App;

pub use document::document;
pub use measure::{Measure, measures};
pub use text::write;
pub use trust::Trust;

/// A part of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Panel {
    /// Processes, by their share of the host's CPUs.
    Cpu,
    /// Processes, by the bits per second that they send and receive.
    Network,
    /// Processes, by the bytes per second that they read and write.
    Disk,
    /// Processes, by the time per second in which they wait.
    Waits,
    /// Counters of the kernel that stand for trouble, by their increase per second.
    Rising,
    /// Processes that ended in the last ten seconds, by their CPU time.
    Ended,
}

/// The tables of each panel, with the word that the panel has for a table. A table with a word shows what no other table of its
/// panel shows, and so does the first table of a panel. Without a daemon tables are loaded in this order, so the panel that loads
/// fastest comes first.
const TABLES: &[(Panel, &str, &str)] = &[
    (Panel::Cpu, "tasks/cpu", ""),
    (Panel::Waits, "tasks/waits", "run queue"),
    (Panel::Network, "net_procs/bps", ""),
    (Panel::Disk, "disk_procs/bytes", ""),
    (Panel::Ended, "ended/cpu", ""),
    (Panel::Waits, "delays/blkio", "disk"),
    (Panel::Waits, "delays/swapin", "swap"),
    (Panel::Waits, "delays/reclaim", "memory"),
    (Panel::Waits, "delays/thrashing", "page cache"),
    (Panel::Waits, "cgroup_limits/throttled", "throttled"),
    (Panel::Rising, "cgroup_limits/oom_kill", "oom_kill"),
    (Panel::Rising, "cgroup_limits/max", "memory.max"),
    (Panel::Rising, "cgroup_limits/high", "memory.high"),
    (Panel::Rising, "snmp_tcpext/rate", ""),
    (Panel::Rising, "snmp_tcp/rate", ""),
    (Panel::Rising, "snmp_ip/rate", ""),
    (Panel::Rising, "snmp_udp/rate", ""),
    (Panel::Rising, "snmp_ip6/rate", ""),
    (Panel::Rising, "snmp_udp6/rate", ""),
    (Panel::Rising, "net_devs/drops", "drops"),
    (Panel::Rising, "net_devs/errors", "errors"),
    (Panel::Network, "tcp_v4/conns_bps", ""),
    (Panel::Network, "tcp_v6/conns_bps", ""),
    (Panel::Network, "udp_v4/conns_bps", ""),
    (Panel::Network, "udp_v6/conns_bps", ""),
];

/// The process that stands for the time in which a CPU has no work.
const IDLE: u64 = 0;

impl Panel {
    /// All panels, in the order in which the selection goes over them.
    pub const ALL: [Self; 6] = [Self::Cpu, Self::Network, Self::Disk, Self::Waits, Self::Rising, Self::Ended];

    /// The title, with the unit of the figures. See also [`App::title`].
    fn title(self) -> &'static str {
        match self {
            Self::Cpu => "CPU, % of all CPUs",
            Self::Network => "network, bit/s",
            Self::Disk => "disk, byte/s",
            Self::Waits => "waits, per second",
            Self::Rising => "errors and drops/s",
            Self::Ended => "ended in the last 10 s, CPU time",
        }
    }

    /// The name for programs, which never changes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Network => "network",
            Self::Disk => "disk",
            Self::Waits => "waits",
            Self::Rising => "rising",
            Self::Ended => "ended",
        }
    }

    /// The unit of [`Line::value`], for programs.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Cpu => "share_of_all_cpus",
            Self::Network => "bits_per_second",
            Self::Disk => "bytes_per_second",
            Self::Waits => "nanoseconds_per_second",
            Self::Rising => "events_per_second",
            Self::Ended => "nanoseconds",
        }
    }

    /// The name of the sum of all that is in no line.
    pub fn others(self) -> &'static str {
        // A process that has ended is in no row of its table.
        if self == Self::Cpu { "others and ended" } else { "others" }
    }

    /// The path of the table that the panel mainly shows.
    pub fn table(self) -> &'static str {
        TABLES.iter().find(|(panel, ..)| *panel == self).map_or("", |(_, path, _)| path)
    }
}

/// A line of a panel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// The value, for people.
    pub figure: String,
    /// The value in the panel's [`unit`](Panel::unit).
    pub value: f64,
    /// The value as a share of all CPUs, of all traffic, or of a second.
    pub share: f64,
    /// The name of the process or counter.
    pub name: String,
    /// The short name of the container, service or pod.
    pub place: String,
    /// The peer, the disk, or the cause of a wait.
    pub more: String,
    /// The object has ended.
    pub ended: bool,
    /// The table and the object that the line stands for.
    pub of: Option<(usize, ObjectId)>,
}

/// Everything that is in no line of a panel.
#[derive(Clone, Debug, PartialEq)]
pub struct Others {
    /// The sum of the values, for people.
    pub figure: String,
    /// The sum of the values, in the panel's [`unit`](Panel::unit).
    pub value: f64,
    /// The number of objects; `None`: unknown.
    pub count: Option<u64>,
}

/// The figures of a row.
struct Figures {
    figure: String,
    value: f64,
    share: f64,
    /// [`Line::more`].
    more: String,
}

/// The content of a panel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    /// The lines, the largest first.
    pub lines: Vec<Line>,
    /// Everything that is in no line; `None`: there is nothing else, or a filter hides it.
    pub others: Option<Others>,
    /// The reason for an empty panel, and the amounts that are not counted.
    pub said: Option<String>,
}

impl Content {
    fn said(why: impl Into<String>) -> Self {
        Self { said: Some(why.into()), ..Self::default() }
    }
}

impl App {
    /// The tables of the "now" screen that there are, in the order in which they are loaded.
    pub fn now_tables(&self) -> impl Iterator<Item = usize> {
        TABLES.iter().filter_map(|(_, path, _)| self.table_at(path))
    }

    /// The title of a panel: with the network namespace, where the panel has one namespace alone.
    pub fn title(&self, panel: Panel) -> String {
        let of = match (panel, self.origin.name) {
            // The daemon reads the namespace of the host, wherever it runs.
            (Panel::Rising, "alone") => ", net: this netns",
            (Panel::Rising, _) => ", net: host netns",
            _ => "",
        };
        format!("{}{of}", panel.title())
    }

    /// The place of a table among all tables.
    pub(crate) fn table_at(&self, path: &str) -> Option<usize> {
        let (sample, table) = path.split_once('/')?;
        self.data.iter().position(|data| data.meta.sample == sample && data.meta.table == table)
    }

    /// The content of a panel, in at most `most` lines. The last line may be the sum of all other objects.
    pub fn panel(&self, panel: Panel, most: usize) -> Content {
        match panel {
            Panel::Cpu => self.of_table(panel, most, &|snapshot, row| {
                let share = share(row.value, snapshot.total);
                Figures { figure: format!("{:.1}", share * 100.0), value: share, share, more: String::new() }
            }),
            Panel::Disk => self.of_table(panel, most, &|snapshot, row| {
                let value = per_second(row.value, snapshot.period_ms);
                let (figure, share) = (snapshot.unit.human_rate(value), share(row.value, snapshot.total));
                Figures { figure, value, share, more: text(snapshot, row, "device") }
            }),
            Panel::Network => network::panel(self, most),
            Panel::Waits => self.waits(most),
            Panel::Rising => self.rising(most),
            Panel::Ended => self.of_table(panel, most, &|snapshot, row| {
                let of_period = 1e6 * f64::from(snapshot.period_ms);
                let (value, figure) = (to_f64(row.value), snapshot.unit.human(row.value));
                Figures {
                    figure, value, share: value / of_period, more: format!("×{}", text(snapshot, row, "events"))
                }
            }),
        }
    }

    /// The rows of the panel's table, with their figures.
    fn of_table(&self, panel: Panel, most: usize, figures: &dyn Fn(&Snapshot, &Row) -> Figures) -> Content {
        let (table, snapshot) = match self.reading(panel.table()) {
            Ok(reading) => reading,
            Err(why) => return Content::said(why),
        };
        let is_idle = |row: &&Row| snapshot.column("pid").is_some_and(|pid| row.object[pid] == Field::U64(IDLE));
        let idle: u64 = snapshot.rows.iter().filter(is_idle).map(|row| row.value).sum();
        let chosen = chosen_by(&self.filter, &snapshot);
        let rows: Vec<_> = snapshot.rows.iter().filter(|row| !is_idle(row) && chosen(row)).collect();
        if rows.is_empty() {
            return Content::said(self.nothing(panel));
        }
        let fit = if rows.len() > most { most.saturating_sub(1) } else { rows.len() };
        let line = |row: &&Row| {
            let Figures { figure, value, share, more } = figures(&snapshot, row);
            Line { figure, value, share, more, ..Line::of(self, &snapshot, table, row) }
        };
        let lines: Vec<_> = rows.iter().take(fit).map(line).collect();
        let shown: u64 = rows.iter().take(fit).map(|row| row.value).sum();
        let rest = Row { value: snapshot.total.saturating_sub(shown + idle), ..rows[0].clone() };
        let is_all = snapshot.row_count() < snapshot.top;
        let count = is_all.then(|| (rows.len() - fit) as u64);
        let others = (rest.value > 0 && self.filter.is_empty()).then(|| {
            let Figures { figure, value, .. } = figures(&snapshot, &rest);
            Others { figure, value, count }
        });
        Content { lines, others, said: None }
    }

    /// Why a panel of one table has no lines, in a few words.
    fn nothing(&self, panel: Panel) -> String {
        let none = match panel {
            Panel::Network => "no TCP or UDP traffic",
            Panel::Disk => "no requests",
            Panel::Ended => "no process has ended",
            _ => "nothing",
        };
        if self.filter.is_empty() { none.to_owned() } else { format!("none is like {}", self.filter.text()) }
    }
}

impl Line {
    /// The line of a row, without its figures.
    fn of(app: &App, snapshot: &Snapshot, table: usize, row: &Row) -> Self {
        let group = text(snapshot, row, "cgroup");
        let place = app.place(&group);
        // A row that is no process but a control group has the group's name.
        let is_group = !group.is_empty() && ["comm", "pid"].iter().all(|name| snapshot.column(name).is_none());
        let (name, place) = match (is_group, place.is_empty()) {
            (true, true) => (group, place),
            (true, false) => (place, String::new()),
            (false, _) => (name(snapshot, row), place),
        };
        Self {
            name,
            place,
            ended: snapshot.is_closed(&row.object),
            of: Some((table, row.object.clone())),
            ..Self::default()
        }
    }
}

/// The name of a process. Of another object, its first field.
fn name(snapshot: &Snapshot, row: &Row) -> String {
    let comm = text(snapshot, row, "comm");
    if !comm.is_empty() {
        return comm;
    }
    match text(snapshot, row, "pid") {
        pid if !pid.is_empty() => format!("pid {pid}"),
        _ => row.object.iter().find(|field| !field.is_none()).map(ToString::to_string).unwrap_or_default(),
    }
}

/// The field of this name as text, safe for a terminal; empty where there is none.
fn text(snapshot: &Snapshot, row: &Row, name: &str) -> String {
    let field = snapshot.column(name).and_then(|place| row.object.get(place));
    field.filter(|field| !field.is_none()).map(ToString::to_string).unwrap_or_default()
}

/// A part of a total, from 0 to 1.
fn share(value: u64, total: u64) -> f64 {
    to_f64(value) / to_f64(total.max(1))
}
