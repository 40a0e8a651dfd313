// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The source of readings and settings, as the view sees it.

use std::time::SystemTime;

use topstat_model::{Snapshot, TableType, Unit};

/// A table that can be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMeta {
    /// The name of its sample: `tcp_v4`.
    pub sample: String,
    /// The name of the table in the sample: `conns_pps`.
    pub table: String,
    /// What the table ranks by, in words.
    pub about: String,
    /// How the table values pushes.
    pub kind: TableType,
    /// The unit of its values.
    pub unit: Unit,
    /// The names of the columns that describe its objects.
    pub columns: Vec<String>,
}

impl TableMeta {
    /// The path of the table: `tcp_v4/conns_pps`.
    pub fn path(&self) -> String {
        format!("{}/{}", self.sample, self.table)
    }
}

/// The settings of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Whether pushes count.
    Enabled,
    /// The time over which a dynamic table sums, in ms.
    Period,
    /// The least time between two orderings of an object, in ms.
    Delay,
}

impl Setting {
    /// The name of the setting's file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::Period => "period",
            Self::Delay => "delay",
        }
    }
}

/// The values of a table's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSettings {
    /// The switch of the table.
    pub enabled: bool,
    /// The switches of the sample and of the root are on. Pushes count if the table's switch is on, too.
    pub above: bool,
    /// The period, in ms.
    pub period_ms: u32,
    /// The delay, in ms.
    pub delay_ms: u32,
}

/// The record of an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// A snapshot.
    Snapshot(Box<Snapshot>),
    /// Nothing was recorded, for this reason.
    Nothing(String),
}

/// A record whose total is the largest of its minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// The time of the record.
    pub time: SystemTime,
    /// The total of the record.
    pub total: u64,
}

/// The source that a feed reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// A short name: `daemon`, `alone`, `history`.
    pub name: &'static str,
    /// The options with which `topstat top` reads the same source, each after a blank.
    pub options: String,
    /// The options with which `topstat top` finds the same records, each after a blank.
    pub history: String,
    /// A table has to be loaded before its first reading, at a cost for the whole host: only tables that were opened are read.
    pub loads: bool,
    /// The feed has records alone. The last record stands for the present, and is read once.
    pub recorded: bool,
}

/// The cost of the daemon on this host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// The share of one CPU that the daemon's process has used since the last query; `None` at the first query.
    pub daemon: Option<f64>,
    /// The share of each CPU that the daemon's programs in the kernel use, if they have been measured.
    pub programs: Option<f64>,
}

/// Reads tables, and sets them. Error texts are for people: what failed, why, and what to do.
pub trait Feed {
    /// The tables, in the order in which they are shown.
    fn tables(&self) -> Vec<TableMeta>;

    /// The source of the readings.
    fn origin(&self) -> Origin;

    /// Reads a table now.
    ///
    /// # Errors
    ///
    /// When there is nothing to show; the error says why.
    fn read(&mut self, table: &TableMeta) -> Result<Snapshot, String>;

    /// When the table began to count, if the feed knows. A reading that is taken less than a period later covers less than a
    /// period.
    fn counting_since(&self, _: &TableMeta) -> Option<SystemTime> {
        None
    }

    /// The cost of the daemon, if a daemon runs and reports it. The first call, at the beginning, starts the measurement. Further
    /// calls come at most once a minute: each call has the daemon measure its programs.
    fn cost(&mut self) -> Option<Cost> {
        None
    }

    /// The record of a table at an instant.
    ///
    /// # Errors
    ///
    /// When the record can't be read; the error says why.
    fn at(&mut self, table: &TableMeta, time: SystemTime) -> Result<Recorded, String>;

    /// The peaks of all records of a table, the oldest first; empty where there are no records.
    ///
    /// # Errors
    ///
    /// When the records can't be read; the error says why.
    fn outline(&mut self, table: &TableMeta) -> Result<Vec<Peak>, String>;

    /// The settings of these tables. The error of a table says why its settings can't be read, or have no sense here. Settings of
    /// several tables are read by one call, since many tables share the switches above them.
    fn settings(&mut self, tables: &[&TableMeta]) -> Vec<Result<TableSettings, String>>;

    /// Sets a table.
    ///
    /// # Errors
    ///
    /// When the setting is refused; the error says why.
    fn set(&mut self, table: &TableMeta, setting: Setting, value: u32) -> Result<(), String>;

    /// Saves a snapshot, and returns the path of its file.
    ///
    /// # Errors
    ///
    /// When the snapshot can't be saved; the error says why.
    fn save(&mut self, snapshot: &Snapshot) -> Result<String, String>;
}

/// A text as one word of a shell's command, such as a value in [`Origin::options`].
pub fn quoted(text: impl std::fmt::Display) -> String {
    format!("'{}'", text.to_string().replace('\'', "'\\''"))
}
