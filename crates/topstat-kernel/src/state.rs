// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A family's observers, loaded and attached: their settings and their readers.
//!
//! Settings change by [`update`] and [`update_all`] alone. Both hold the family's lock from the reading of the old settings to
//! the writing of the new ones. So of two callers that change a table at once, neither undoes the other's change.

use std::sync::Arc;

use topstat_model::{Dump, Snapshot};

use crate::{Error, Options, SampleInfo, TableInfo};

/// The settings that users give a table. The kernel keeps them beside the table, and they outlive the program that set them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSettings {
    /// The table's own switch. Pushes count when this and the next two are on.
    pub enabled: bool,
    /// Its sample's switch.
    pub sample_enabled: bool,
    /// The switch of all topstat.
    pub root_enabled: bool,
    /// Whether snapshots are taken on each CPU itself, and age the table. Otherwise they are taken on the CPU of the reader, and
    /// leave the table unchanged.
    pub sync: bool,
    /// The period of a dynamic table, 1 to 3,600,000 ms.
    pub period_ms: u32,
    /// An object is ordered at most once per delay, 0 to 3,600,000 ms.
    pub delay_ms: u32,
    /// The delay that a budget asks for; 0: none. The user's delay is kept beside it, and the longer one counts.
    pub raised_ms: u32,
}

impl TableSettings {
    /// The least time between two orderings of an object, in ms: the longer of the user's delay and the budget's.
    pub fn order_ms(&self) -> u32 {
        self.delay_ms.max(self.raised_ms)
    }

    /// Whether pushes count.
    pub fn counts(&self) -> bool {
        self.enabled && self.sample_enabled && self.root_enabled
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
    /// Its id in the kernel, as in `bpftool prog`.
    pub id: u32,
    /// The place where it is attached: `cgroup ingress`.
    pub hook: String,
}

/// A family's observers, loaded and attached. Dropping the last reference detaches all that is not pinned. Any number of readers
/// and setters share it.
pub trait State: Send + Sync {
    /// The samples of the family.
    fn samples(&self) -> &[Arc<SampleInfo>];

    /// Rows that each table keeps.
    fn top(&self) -> u32;

    /// Whether its objects are threads instead of processes.
    fn threads(&self) -> bool;

    /// The settings of a table.
    ///
    /// # Errors
    /// The table is not one of the family.
    fn settings(&self, table: &TableInfo) -> Result<TableSettings, Error>;

    /// Waits until no other caller changes settings of the family, in this process or in another one that has opened the same
    /// pins. Other callers wait until the result is dropped. A thread that holds it must not call this again.
    ///
    /// # Errors
    /// Another process has held the lock for seconds.
    fn lock(&self) -> Result<Box<dyn Setter + '_>, Error>;

    /// A new reader, independent of other readers. Its snapshots also list the rows of every CPU.
    ///
    /// # Errors
    /// The kernel refuses the reading programs.
    fn reader(self: Arc<Self>) -> Result<Box<dyn Source>, Error>;

    /// The sum of all pushes to a table since its family was loaded, over all CPUs: packets, bytes … It is read from memory,
    /// while pushes go on. Usage that was not pushed yet is in it after the next snapshot.
    ///
    /// # Errors
    /// The table is not one of the family.
    fn pushed(&self, table: &TableInfo) -> Result<u64, Error>;

    /// The number of objects of a sample now; 0 if the sample is not the family's.
    fn objects(&self, sample: &SampleInfo) -> u64;

    /// The programs that are attached, and those that are attached as soon as a table needs them.
    fn programs(&self) -> Vec<Program>;

    /// How the values of a sample are counted, where there is a choice: `counters`.
    fn way(&self, sample: &SampleInfo) -> Option<&'static str>;

    /// Checks whether the pins of this state are found by their path, and pins all again if not. Other processes lose the pins
    /// when the BPF file system is unmounted: the kernel keeps it, and the pins in it, only while this state has it open.
    /// Objects, tables and settings stay unchanged. Returns whether the state was pinned again.
    ///
    /// # Errors
    /// The state can't be pinned again, or its pins were removed. The state goes on until it is dropped.
    fn keep_pinned(&self) -> Result<bool, Error> {
        Ok(false)
    }

    /// Detaches at once what readers detach when it has not been needed for a while.
    #[cfg(feature = "bench")]
    fn calm(&self) {}
}

/// The settings of a family while no other caller changes them.
pub trait Setter {
    /// Sets a table, from the next push on.
    ///
    /// # Errors
    /// A setting is out of its range, or the table is not one of the family. Nothing has changed then.
    fn set(&self, table: &TableInfo, to: &TableSettings) -> Result<(), Error>;
}

/// Changes the settings of a table.
///
/// # Errors
/// As [`State::lock`] and [`Setter::set`]. Nothing has changed then.
pub fn update(state: &dyn State, table: &TableInfo, change: impl FnOnce(&mut TableSettings)) -> Result<(), Error> {
    let setter = state.lock()?;
    let before = state.settings(table)?;
    let mut after = before;
    change(&mut after);
    if after == before { Ok(()) } else { setter.set(table, &after) }
}

/// Changes the settings of all tables of these states, or of none. `change` is called for each table, and leaves unchanged the
/// tables that it does not mean. All states are locked during the call, so a switch of several tables never mixes with another
/// one. The states are in the order of the catalogue: two callers that locked them in different orders would wait for each other.
/// Returns the number of tables that have changed.
///
/// # Errors
/// As [`update`]. Earlier changes are undone then.
pub fn update_all(
    states: &[Arc<dyn State>],
    mut change: impl FnMut(&TableInfo, &mut TableSettings),
) -> Result<usize, Error> {
    let setters = states.iter().map(|state| state.lock()).collect::<Result<Vec<_>, _>>()?;
    let mut changed = Vec::new();
    for (state, setter) in states.iter().zip(&setters) {
        for table in state.samples().iter().flat_map(|sample| &sample.tables) {
            let before = state.settings(table)?;
            let mut after = before;
            change(table, &mut after);
            if after == before {
                continue;
            }
            if let Err(error) = setter.set(table, &after) {
                for (setter, table, before) in changed {
                    let setter: &dyn Setter = setter;
                    // The earlier settings are in range.
                    let _ = setter.set(table, &before);
                }
                return Err(error);
            }
            changed.push((&**setter, table, before));
        }
    }
    Ok(changed.len())
}

/// A source of snapshots: observers that are loaded and attached. Dropping it detaches and frees all that it loaded.
pub trait Source: Send {
    /// Takes a snapshot of a table. Every row of it is proven to be among the true top; where necessary, all objects are looked
    /// at (see [`Source::refill`]).
    ///
    /// # Errors
    /// The table is not loaded, or the kernel refuses to run the snapshot.
    fn snapshot(&mut self, table: &TableInfo) -> Result<Snapshot, Error>;

    /// Takes snapshots of several tables, one after the other. Usage that was not pushed yet is looked for once, and not for each
    /// table.
    ///
    /// # Errors
    /// As [`Source::snapshot`].
    fn snapshots(&mut self, tables: &[Arc<TableInfo>]) -> Result<Vec<Snapshot>, Error> {
        tables.iter().map(|table| self.snapshot(table)).collect()
    }

    /// Whether further snapshots list the rows of every CPU, too: as many for each CPU as the table has, at most, and each costs as
    /// much as a row of the table.
    fn list_cpu_rows(&mut self, _wanted: bool) {}

    /// Takes a snapshot of the tables' content, at a cost that does not depend on the number of objects. [`Snapshot::proven`]
    /// says how many of its rows are certain.
    ///
    /// # Errors
    /// As [`Source::snapshot`].
    fn peek(&mut self, table: &TableInfo) -> Result<Snapshot, Error>;

    /// Orders every object of the table's sample again. It costs tens of nanoseconds for each object, and is needed only where
    /// many of the top have closed or fallen silent since smaller objects were turned away. Returns the number of objects that it
    /// looked at.
    ///
    /// # Errors
    /// As [`Source::snapshot`].
    fn refill(&mut self, table: &TableInfo) -> Result<u64, Error>;

    /// The present content of the table, for debugging: nothing is synchronised, and nothing is changed.
    ///
    /// # Errors
    /// As [`Source::snapshot`].
    fn dump(&mut self, table: &TableInfo) -> Result<Dump, Error>;
}
