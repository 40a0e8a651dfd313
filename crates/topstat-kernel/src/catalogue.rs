// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which samples and tables there are.

use std::sync::{Arc, LazyLock};

use topstat_model::{TableType, Unit};

use crate::families;

/// One sample: a family of tables about one kind of object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleInfo {
    /// Its directory: `tcp_v4`.
    pub name: String,
    /// What its objects are, for people.
    pub about: String,
    /// Its tables.
    pub tables: Vec<Arc<TableInfo>>,
    /// Its objects are processes, or threads where that is asked for ([`Options::threads`](crate::Options::threads)).
    pub threads: bool,
}

/// One table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// The sample it belongs to.
    pub sample: String,
    /// Its directory: `conns_pps`.
    pub name: String,
    /// Its number in the sample's bank.
    pub number: u32,
    /// How it values pushes.
    pub kind: TableType,
    /// What its values count.
    pub unit: Unit,
    /// The title of its value column: `pps`.
    pub value_name: String,
    /// What it ranks by, for people.
    pub about: String,
}

impl SampleInfo {
    /// A sample of these tables, whose objects are neither processes nor threads.
    pub fn new(name: &str, about: &str, tables: impl IntoIterator<Item = TableInfo>) -> Self {
        let of = |table: TableInfo| Arc::new(TableInfo { sample: name.to_owned(), ..table });
        let tables = tables.into_iter().map(of).collect();
        Self { name: name.to_owned(), about: about.to_owned(), tables, threads: false }
    }
}

impl TableInfo {
    /// A table of what was pushed in the last period, of no sample yet.
    pub fn dynamic(number: u32, name: &str, unit: Unit, value_name: &str, about: &str) -> Self {
        let [name, value_name, about] = [name, value_name, about].map(str::to_owned);
        Self { sample: String::new(), name, number, kind: TableType::Dynamic, unit, value_name, about }
    }

    /// A table of all that was ever pushed, of no sample yet.
    pub fn running_total(number: u32, name: &str, unit: Unit, value_name: &str, about: &str) -> Self {
        Self { kind: TableType::Static, ..Self::dynamic(number, name, unit, value_name, about) }
    }

    /// Its path: `tcp_v4/conns_pps`.
    pub fn path(&self) -> String {
        format!("{}/{}", self.sample, self.name)
    }
}

/// All samples, in the order they are listed.
pub fn samples() -> &'static [Arc<SampleInfo>] {
    static ALL: LazyLock<Vec<Arc<SampleInfo>>> =
        LazyLock::new(|| families::FAMILIES.iter().flat_map(|f| f.samples()).cloned().collect());
    &ALL
}

/// The names of samples, for people.
pub fn names_of(samples: &[Arc<SampleInfo>]) -> String {
    samples.iter().map(|sample| sample.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// The table of that name.
pub fn find(sample: &str, table: &str) -> Option<Arc<TableInfo>> {
    samples().iter().find(|s| s.name == sample)?.tables.iter().find(|t| t.name == table).cloned()
}
