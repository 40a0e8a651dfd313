// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part of a table's definition that decides how its records are stored, so that all files of a table have one schema.

use serde::{Deserialize, Serialize};

/// How the records of a table are stored, whatever values they have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// For each column of an object: whether all of its values are numbers.
    pub numbers: Vec<bool>,
    /// The names of the parts of a value.
    pub parts: Vec<String>,
    /// The names of lost counts, in addition to the two that each table has.
    pub lost: Vec<String>,
    /// The meaning of the key on other hosts, if the table's definition says it.
    pub key: Option<FleetKey>,
}

/// How far the key of a table's objects reaches in a fleet of hosts. The bounds of a fleet's top depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// An object exists on one host: a connection, a process.
    Local,
    /// The columns are the whole key, and mean the same object on each host: a control group, an address.
    Spanning,
    /// The columns are a part of the key: a host may have several objects with equal columns, some of them without a row.
    Part,
}

impl Reach {
    /// The name in files and outputs: `local`, `spanning`, `part`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Spanning => "spanning",
            Self::Part => "part",
        }
    }
}

/// The columns by which objects of several hosts are compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetKey {
    /// The reach of these columns.
    pub reach: Reach,
    /// The names of the columns, in the order of outputs.
    pub columns: Vec<String>,
}

impl FleetKey {
    /// Whether an object may be on several hosts, by its key and by whether it is in a container, whose id is unique.
    pub fn spans(&self, is_contained: bool) -> bool {
        match self.reach {
            Reach::Local => false,
            Reach::Spanning => !is_contained,
            Reach::Part => true,
        }
    }

    /// A key of these columns.
    pub fn new(reach: Reach, columns: &[&str]) -> Self {
        Self { reach, columns: columns.iter().map(|column| (*column).to_owned()).collect() }
    }
}
