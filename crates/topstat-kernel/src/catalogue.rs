// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which samples and tables there are.

use std::sync::LazyLock;

use topstat_model::{TableType, Unit};

use crate::families;

/// One sample: a family of tables about one kind of object.
#[derive(Debug)]
pub struct SampleInfo {
    /// Its directory: `tcp_v4`.
    pub name: &'static str,
    /// What its objects are, for people.
    pub about: &'static str,
    /// Its tables.
    pub tables: &'static [TableInfo],
    /// Its objects are processes, or threads where that is asked for ([`Options::threads`](crate::Options::threads)).
    pub threads: bool,
}

/// One table.
#[derive(Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// The sample it belongs to.
    pub sample: &'static str,
    /// Its directory: `conns_pps`.
    pub name: &'static str,
    /// Its number in the sample's bank.
    pub number: u32,
    /// How it values pushes.
    pub kind: TableType,
    /// What its values count.
    pub unit: Unit,
    /// The title of its value column: `pps`.
    pub value_name: &'static str,
    /// What it ranks by, for people.
    pub about: &'static str,
}

/// All samples, in the order they are listed.
pub fn samples() -> &'static [&'static SampleInfo] {
    static ALL: LazyLock<Vec<&SampleInfo>> =
        LazyLock::new(|| families::FAMILIES.iter().flat_map(|f| f.samples()).collect());
    &ALL
}

/// The names of samples, for people.
pub fn names_of(samples: &[SampleInfo]) -> String {
    samples.iter().map(|sample| sample.name).collect::<Vec<_>>().join(", ")
}

/// The table of that name.
pub fn find(sample: &str, table: &str) -> Option<&'static TableInfo> {
    samples().iter().find(|s| s.name == sample)?.tables.iter().find(|t| t.name == table)
}
