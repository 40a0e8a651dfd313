// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples and their tables.

use std::sync::Arc;

use topstat_model::{Column, ColumnKind, FleetKey, Reach, TableType, Unit};

use super::{Objects, RowColumn};

/// One sample: tables about one kind of object.
#[derive(Clone, Debug)]
pub struct SampleInfo {
    /// Its directory: `tcp_v4`.
    pub name: String,
    /// Its objects, for people.
    pub about: String,
    /// Its tables.
    pub tables: Vec<Arc<TableInfo>>,
    /// The kind of its objects, for the kernel.
    pub objects: Objects,
    /// The columns that describe an object.
    pub columns: Vec<RowColumn>,
    /// Which variant it is, where one name means several samples.
    pub variant: Option<Variant>,
    /// The meaning of its key on other hosts; `None`: unknown, and bounds over hosts are the widest.
    pub key: Option<FleetKey>,
}

/// One of several samples of one kind: `tcp` means `tcp_v4` and `tcp_v6`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The name that means all of them: `tcp`.
    pub of: String,
    /// The option that chooses this one: `-4`.
    pub option: char,
    /// The option in full: `--ipv4`.
    pub long: String,
    /// The effect of the option, for people.
    pub about: String,
}

/// One table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// The sample it belongs to.
    pub sample: String,
    /// Its directory: `conns_pps`.
    pub name: String,
    /// Its number in the sample.
    pub number: u32,
    /// How it values pushes.
    pub kind: TableType,
    /// The unit of its values.
    pub unit: Unit,
    /// The title of its value column: `pps`.
    pub value_name: String,
    /// The quantity that it ranks by, for people.
    pub about: String,
}

impl SampleInfo {
    /// A sample of these tables.
    pub fn new(
        name: &str,
        about: &str,
        objects: Objects,
        columns: Vec<RowColumn>,
        tables: impl IntoIterator<Item = TableInfo>,
    ) -> Self {
        let of = |table: TableInfo| Arc::new(TableInfo { sample: name.to_owned(), ..table });
        let tables = tables.into_iter().map(of).collect();
        let key = fleet_key(objects, &columns);
        Self { name: name.to_owned(), about: about.to_owned(), tables, objects, columns, variant: None, key }
    }

    /// The sample with this key. Only a family knows the key of [`Objects::Keyed`] and [`Objects::Counter`].
    #[must_use]
    pub fn keyed(self, reach: Reach, columns: &[&str]) -> Self {
        Self { key: Some(FleetKey::new(reach, columns)), ..self }
    }

    /// Whether its objects are processes, or threads where the options ask for them
    /// ([`Options::threads`](crate::Options::threads)).
    pub fn may_be_threads(&self) -> bool {
        matches!(self.objects, Objects::Task)
    }

    /// Whether the kernel itself counts the values: totals are there at once.
    pub fn is_counted(&self) -> bool {
        matches!(self.objects, Objects::Counter)
    }

    /// The columns that describe an object, as outputs have them.
    pub fn columns(&self) -> Vec<Column> {
        self.columns.iter().map(|column| column.column.clone()).collect()
    }
}

impl TableInfo {
    /// A table of all pushes in the last period, of no sample yet.
    pub fn dynamic(number: u32, name: &str, unit: Unit, value_name: &str, about: &str) -> Self {
        let [name, value_name, about] = [name, value_name, about].map(str::to_owned);
        Self { sample: String::new(), name, number, kind: TableType::Dynamic, unit, value_name, about }
    }

    /// A table of all pushes ever, of no sample yet.
    pub fn running_total(number: u32, name: &str, unit: Unit, value_name: &str, about: &str) -> Self {
        Self { kind: TableType::Static, ..Self::dynamic(number, name, unit, value_name, about) }
    }

    /// Its path: `tcp_v4/conns_pps`.
    pub fn path(&self) -> String {
        format!("{}/{}", self.sample, self.name)
    }
}

/// The key of objects whose kind alone decides it.
fn fleet_key(objects: Objects, columns: &[RowColumn]) -> Option<FleetKey> {
    // A mark changes during the life of an object.
    let names = |column: &RowColumn| (column.column.kind != ColumnKind::Mark).then(|| column.column.name.to_string());
    match objects {
        Objects::Socket | Objects::Task => {
            Some(FleetKey { reach: Reach::Local, columns: columns.iter().filter_map(names).collect() })
        }
        Objects::Cgroup => Some(FleetKey::new(Reach::Spanning, &["cgroup"])),
        Objects::Keyed | Objects::Counter => None,
    }
}

/// The names of samples, for people.
pub fn names_of(samples: &[Arc<SampleInfo>]) -> String {
    samples.iter().map(|sample| sample.name.as_str()).collect::<Vec<_>>().join(", ")
}
