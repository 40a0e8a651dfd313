// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The columns of a file that a scan reads.

use std::io;

use topstat_history::sealed::{About, Cells, Columns, Sealed};
use topstat_model::{FleetKey, Reach};

use super::{BETWEEN, CONTAINER, NONE, WITHOUT_OBJECT};

/// The columns of a snapshot that are always read.
const ALWAYS: [&str; 7] = ["time", "rank", "value", "total", "other", "proven", "gap"];
/// The type of the table.
const KIND: &str = "type";

/// Whether the table of a row has running totals: its losses since it was made count then, and else those since the record before.
pub fn is_static(sealed: &Sealed, group: usize, row: usize) -> io::Result<bool> {
    let columns = sealed.columns_of(group, row..row + 1, &|name| name == KIND)?;
    Ok(columns.cells(KIND).is_some_and(|kind| says_static(kind, 0)))
}

fn says_static(kind: &Cells, row: usize) -> bool {
    kind.text(row) == Some("static")
}

/// The names of columns in a file.
pub struct Names {
    pub key: Vec<String>,
    pub lost: Vec<String>,
    /// Whether the types of tables are read, too.
    pub kinds: bool,
}

impl Names {
    pub fn new(about: &About, key: &FleetKey, kinds: bool) -> Self {
        let stored = |name: &String| {
            let column = about.columns.iter().find(|column| column.name == *name);
            column.map_or_else(|| name.clone(), |column| column.stored.clone())
        };
        let lost = WITHOUT_OBJECT.iter().flat_map(|name| [format!("lost_{name}"), format!("lost_now_{name}")]);
        Self { key: key.columns.iter().map(stored).collect(), lost: lost.collect(), kinds }
    }

    pub fn wants(&self, name: &str) -> bool {
        let own = [&self.key, &self.lost].into_iter().flatten().any(|own| own == name);
        own || ALWAYS.contains(&name) || name == CONTAINER || name == "host" || (self.kinds && name == KIND)
    }
}

/// The columns of a file that are read.
pub struct FileCells<'c> {
    pub only: Option<&'c str>,
    pub host: Option<&'c Cells>,
    pub time: &'c Cells,
    pub rank: &'c Cells,
    pub value: &'c Cells,
    pub total: &'c Cells,
    pub other: &'c Cells,
    pub proven: &'c Cells,
    pub gap: Option<&'c Cells>,
    pub container: Option<&'c Cells>,
    pub kind: Option<&'c Cells>,
    pub key: Vec<Option<&'c Cells>>,
    pub lost: Vec<&'c Cells>,
    /// For each of `lost`: whether it counts since the table was made.
    pub of_all: Vec<bool>,
}

impl<'c> FileCells<'c> {
    pub fn new(names: &Names, columns: &'c Columns, only: Option<&'c str>) -> io::Result<Self> {
        let missing = |name: &str| {
            let why = format!("it is no file of this table: column {name} is missing");
            io::Error::new(io::ErrorKind::InvalidData, why)
        };
        let needed = |name: &str| columns.cells(name).ok_or_else(|| missing(name));
        let (mut lost, mut of_all) = (vec![], vec![]);
        for name in &names.lost {
            if let Some(cells) = columns.cells(name) {
                lost.push(cells);
                of_all.push(!name.starts_with("lost_now_"));
            }
        }
        Ok(Self {
            only,
            host: if only.is_some() { None } else { Some(needed("host")?) },
            time: needed("time")?,
            rank: needed("rank")?,
            value: needed("value")?,
            total: needed("total")?,
            other: needed("other")?,
            proven: needed("proven")?,
            gap: columns.cells("gap"),
            container: columns.cells(CONTAINER),
            kind: columns.cells(KIND),
            key: names.key.iter().map(|name| columns.cells(name)).collect(),
            lost,
            of_all,
        })
    }

    pub fn host(&self, row: usize) -> Option<&'c str> {
        self.only.or_else(|| self.host?.text(row))
    }

    /// See [`is_static`]. `None` if types are not read.
    pub fn is_static(&self, row: usize) -> Option<bool> {
        self.kind.map(|kind| says_static(kind, row))
    }

    pub fn number(&self, name: &str, cells: &Cells, row: usize) -> io::Result<u64> {
        let missing = || io::Error::new(io::ErrorKind::InvalidData, format!("a snapshot has no {name}"));
        cells.number(row).ok_or_else(missing)
    }

    pub fn doubt(&self, row: usize, is_static: bool) -> bool {
        let counted = self.lost.iter().zip(&self.of_all).filter(|(_, of_all)| **of_all == is_static);
        counted.into_iter().any(|(lost, _)| lost.number(row).unwrap_or(0) > 0)
    }

    /// Appends the name of a row's object.
    pub fn name(&self, reach: Reach, host: &str, row: usize, name: &mut String) {
        use std::fmt::Write as _;
        if reach == Reach::Local {
            name.push_str(host);
        }
        for (place, cells) in self.key.iter().enumerate() {
            if place > 0 || reach == Reach::Local {
                name.push(BETWEEN);
            }
            match cells.map(|cells| (cells.text(row), cells)) {
                Some((Some(text), _)) => name.push_str(text),
                Some((None, cells)) => match cells.number_field(row) {
                    Some(number) => write!(name, "{number}").expect("a String takes all"),
                    None => name.push_str(NONE),
                },
                None => name.push_str(NONE),
            }
        }
    }
}
