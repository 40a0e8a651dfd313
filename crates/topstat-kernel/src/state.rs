// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A family's observers, loaded and attached: what they are set to, and who reads them.

use std::sync::Arc;

use crate::families::{FAMILIES, Family};
use crate::{Error, Options, SampleInfo, Source, TableInfo};

/// What users have set of a table. It is kept in the kernel beside the table, and outlives the program that set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSettings {
    /// The table's own switch. Pushes count when this and the next two are on.
    pub enabled: bool,
    /// Its sample's switch.
    pub sample_enabled: bool,
    /// The switch of all topstat.
    pub root_enabled: bool,
    /// Snapshots are taken on each CPU itself, and age the table; otherwise from wherever the reader runs, and the
    /// table is left as it is.
    pub sync: bool,
    /// The period of a dynamic table, 1 to 3,600,000 ms.
    pub period_ms: u32,
    /// An object is ordered at most once per delay, 0 to 3,600,000 ms.
    pub delay_ms: u32,
    /// The delay that a budget asks for ([`State::raise`]); 0: none. [`State::set`] leaves it as it is.
    pub raised_ms: u32,
}

impl TableSettings {
    /// How often an object is ordered at most: the longer of the user's delay and the budget's.
    pub fn order_ms(&self) -> u32 {
        self.delay_ms.max(self.raised_ms)
    }
}

impl Default for TableSettings {
    fn default() -> Self {
        let Options { period_ms, delay_ms, .. } = Options::default();
        Self { enabled: true, sample_enabled: true, root_enabled: true, sync: true, period_ms, delay_ms, raised_ms: 0 }
    }
}

/// A program that is loaded in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name: `inet_ingress`.
    pub name: String,
    /// The kernel's id of it, as in `bpftool prog`.
    pub id: u32,
    /// Where it is attached: `cgroup ingress`.
    pub hook: String,
}

/// A family's observers, loaded and attached. Dropping the last reference detaches what is not
/// pinned. Any number of readers and setters share it.
pub trait State: Send + Sync {
    /// The samples of the family.
    fn samples(&self) -> &[Arc<SampleInfo>];

    /// Rows that each table keeps.
    fn top(&self) -> u32;

    /// Whether its objects are threads, where they would be processes.
    fn threads(&self) -> bool;

    /// What a table is set to.
    ///
    /// # Errors
    /// When the table is not one of the family.
    fn settings(&self, table: &TableInfo) -> Result<TableSettings, Error>;

    /// Sets a table, from the next push on.
    ///
    /// # Errors
    /// When a setting is out of its range; nothing has changed then.
    fn set(&self, table: &TableInfo, settings: &TableSettings) -> Result<(), Error>;

    /// Has a table order its objects less often than its user asks for, without losing what that was: the longer delay
    /// holds. 0 gives the user's delay back.
    ///
    /// # Errors
    /// As [`State::set`].
    fn raise(&self, table: &TableInfo, delay_ms: u32) -> Result<(), Error>;

    /// A reader of its own: readers don't disturb each other. Its snapshots list the rows of every CPU, too.
    ///
    /// # Errors
    /// When the kernel refuses the programs that read.
    fn reader(self: Arc<Self>) -> Result<Box<dyn Source>, Error>;

    /// The sum of all that was ever pushed to a table since its family was loaded, of all CPUs: packets, bytes … It is
    /// read from memory, while pushes go on.
    ///
    /// # Errors
    /// When the table is not one of the family.
    fn pushed(&self, table: &TableInfo) -> Result<u64, Error>;

    /// How many objects of a sample there are now; 0 for one that is not the family's.
    fn objects(&self, sample: &SampleInfo) -> u64;

    /// The programs that are attached.
    fn programs(&self) -> Vec<Program>;
}

/// All families of samples.
pub fn families() -> &'static [&'static dyn Family] {
    FAMILIES
}

/// Loads the observers of a family, for this program alone: dropping the state detaches them.
/// The tables named are on, the others of the family are off.
///
/// # Errors
/// As [`crate::load`].
pub fn load_state(family: &dyn Family, tables: &[Arc<TableInfo>], options: &Options) -> Result<Arc<dyn State>, Error> {
    family.ready()?;
    family.load_state(tables, options)
}
