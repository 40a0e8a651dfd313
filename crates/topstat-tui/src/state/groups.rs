// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The panels of the "now" screen, and the groups of tables that the number keys show.

use super::{App, Screen};
use crate::feed::TableMeta;
use crate::now::Panel;
use crate::rows::ObjectId;

/// Tables about one part of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Connections, processes, control groups, hosts and ports, by their traffic.
    Network,
    /// Processes and control groups, by the time they use a CPU or wait for one.
    Cpu,
    /// Processes and control groups, by their use of disks.
    Disk,
    /// Processes and control groups, by what memory costs them.
    Memory,
    /// Control groups: containers, services, pods.
    Containers,
    /// The kernel's own counters.
    Kernel,
}

impl Group {
    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Cpu => "CPU",
            Self::Disk => "disk",
            Self::Memory => "memory",
            Self::Containers => "containers",
            Self::Kernel => "kernel",
        }
    }

    /// Whether a table belongs to the group. A table may belong to several.
    pub fn has(self, meta: &TableMeta) -> bool {
        let (sample, table) = (meta.sample.as_str(), meta.table.as_str());
        let begins = |names: &[&str]| names.iter().any(|name| sample.starts_with(name));
        match self {
            Self::Network => begins(&["tcp_", "udp_", "net_"]),
            Self::Cpu => begins(&["tasks"]) || (sample == "cgroups" && table == "cpu") || table.starts_with("cpu"),
            Self::Disk => begins(&["disk_"]) || table == "blkio" || table.starts_with("io_"),
            Self::Memory => (sample == "delays" && table != "blkio") || table.starts_with("mem"),
            Self::Containers => sample.contains("cgroup") || sample == "net_namespaces",
            Self::Kernel => begins(&["snmp_", "net_devs", "net_namespaces"]),
        }
    }
}

impl App {
    /// Shows the tables of a group; `None`: all tables.
    pub(super) fn list(&mut self, group: Option<Group>) {
        self.group = group;
        self.screens = vec![Screen::Now, Screen::Overview];
        let listed = self.listed();
        if !listed.contains(&self.table) {
            let first = listed.first().copied();
            self.choose(first.unwrap_or(self.table));
        }
    }

    /// The number of lines of a panel in the last frame.
    fn lines_of(&self, panel: Panel) -> usize {
        self.places.iter().find(|(of, _)| *of == panel).map_or(0, |(_, lines)| lines.len())
    }

    pub(super) fn next_panel(&mut self, by: i32) {
        let all: Vec<_> = self.places.iter().map(|(panel, _)| *panel).collect();
        let place = all.iter().position(|panel| *panel == self.focus.0).unwrap_or(0);
        let step = if by < 0 { all.len().saturating_sub(1) } else { 1 };
        if let Some(panel) = all.get((place + step) % all.len().max(1)) {
            self.focus = (*panel, 0);
        }
    }

    /// Moves the choice by this many lines, from panel to panel.
    pub(super) fn step_in_panels(&mut self, by: i64) {
        let all: Vec<_> =
            self.places.iter().flat_map(|(panel, lines)| (0..lines.len()).map(|line| (*panel, line))).collect();
        let last = i64::try_from(all.len()).unwrap_or(0) - 1;
        let now = (self.focus.0, self.focus.1.min(self.lines_of(self.focus.0).saturating_sub(1)));
        let place = all.iter().position(|at| *at == now).unwrap_or(0);
        let to = (i64::try_from(place).unwrap_or(0) + by).clamp(0, last.max(0));
        self.focus = all.get(usize::try_from(to).unwrap_or(0)).copied().unwrap_or(self.focus);
    }

    /// The table and the object of the chosen line.
    pub(super) fn line(&self) -> Option<(usize, ObjectId)> {
        let (panel, place) = self.focus;
        let (_, lines) = self.places.iter().find(|(of, _)| *of == panel)?;
        lines.get(place)?.of.clone()
    }

    /// Chooses the table of the chosen line, or of its panel. Returns whether there is one.
    pub(super) fn choose_of_line(&mut self) -> bool {
        let table = self.line().map(|(table, _)| table).or_else(|| self.table_at(self.focus.0.table()));
        table.inspect(|table| self.choose(*table)).is_some()
    }

    /// Opens the table of the chosen line, with its object selected. A panel without lines gives the reason.
    pub(super) fn open_line(&mut self) {
        let Some((table, object)) = self.line() else {
            self.message = self.panel(self.focus.0, 1).said;
            return;
        };
        self.choose(table);
        self.selected = Some(object);
        self.show_table();
    }
}
