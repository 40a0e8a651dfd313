// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where readings come from.

use std::time::SystemTime;

use topstat_model::{Snapshot, TableType, Unit};

/// A table that can be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMeta {
    /// Its sample: `tcp_v4`.
    pub sample: String,
    /// Its name in the sample: `conns_pps`.
    pub table: String,
    /// What it ranks by, for people.
    pub about: String,
    /// How it values pushes.
    pub kind: TableType,
    /// What its values count.
    pub unit: Unit,
    /// The names of what describes its objects.
    pub columns: Vec<String>,
}

impl TableMeta {
    /// Its path: `tcp_v4/conns_pps`.
    pub fn path(&self) -> String {
        format!("{}/{}", self.sample, self.table)
    }
}

/// What a table can be set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Whether pushes count.
    Enabled,
    /// Over how many ms a dynamic table sums.
    Period,
    /// An object is ordered at most once in so many ms.
    Delay,
}

impl Setting {
    /// The name of its file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::Period => "period",
            Self::Delay => "delay",
        }
    }
}

/// What a table is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSettings {
    /// Its own switch.
    pub enabled: bool,
    /// Its sample and the root are on: pushes count where it is, too.
    pub above: bool,
    /// Its period.
    pub period_ms: u32,
    /// Its delay.
    pub delay_ms: u32,
}

/// What was recorded at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// A snapshot.
    Snapshot(Box<Snapshot>),
    /// Nothing was recorded, and why.
    Nothing(String),
}

/// A record whose total is the largest of its minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// When it was recorded.
    pub time: SystemTime,
    /// Its total.
    pub total: u64,
}

/// What a feed reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// In a word or two: `daemon`, `alone`, `history`.
    pub name: &'static str,
    /// Options with which `topstat top` reads the same, each after a blank.
    pub options: String,
    /// Options with which it finds the same records, each after a blank.
    pub history: String,
    /// A table has to be loaded before it is read for the first time, which costs the whole host something: only what was
    /// opened is read.
    pub loads: bool,
    /// Nothing is read but what was recorded: the last record stands for what is there now, and is read once.
    pub recorded: bool,
}

/// What the daemon costs this host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// The share of one CPU that its process has taken since it was asked before; `None` at the first time.
    pub daemon: Option<f64>,
    /// The share of each CPU that its programs in the kernel take, where they have been measured.
    pub programs: Option<f64>,
}

/// Reads tables, and sets them. Errors are for people: what failed, why, and what to do.
pub trait Feed {
    /// The tables there are, in the order in which they are shown.
    fn tables(&self) -> Vec<TableMeta>;

    /// What it reads.
    fn origin(&self) -> Origin;

    /// Reads a table now.
    ///
    /// # Errors
    ///
    /// Why there is nothing to show.
    fn read(&mut self, table: &TableMeta) -> Result<Snapshot, String>;

    /// When the table began to count, where the feed knows: a reading that was taken less than a period later has less than
    /// a period.
    fn counting_since(&self, _: &TableMeta) -> Option<SystemTime> {
        None
    }

    /// What the daemon costs, where there is one and it tells. To be asked once at the beginning, from when it is measured, and
    /// then no more often than once a minute: it measures its programs when it is asked.
    fn cost(&mut self) -> Option<Cost> {
        None
    }

    /// What was recorded of a table at an instant.
    ///
    /// # Errors
    ///
    /// Why that can't be told.
    fn at(&mut self, table: &TableMeta, time: SystemTime) -> Result<Recorded, String>;

    /// Peaks of all that was recorded of a table, the oldest first; none where nothing was recorded.
    ///
    /// # Errors
    ///
    /// Why that can't be told.
    fn outline(&mut self, table: &TableMeta) -> Result<Vec<Peak>, String>;

    /// What these tables are set to: of each, or why that can't be told, or has no sense here. They are asked for together,
    /// since many have switches above them in common.
    fn settings(&mut self, tables: &[&TableMeta]) -> Vec<Result<TableSettings, String>>;

    /// Sets a table.
    ///
    /// # Errors
    ///
    /// Why it is refused.
    fn set(&mut self, table: &TableMeta, setting: Setting, value: u32) -> Result<(), String>;

    /// Saves a snapshot, and says where.
    ///
    /// # Errors
    ///
    /// Why it can't be saved.
    fn save(&mut self, snapshot: &Snapshot) -> Result<String, String>;
}
