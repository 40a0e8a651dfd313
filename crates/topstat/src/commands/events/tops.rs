// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables whose tops are followed, and where these tables are.

use std::sync::Arc;

use topstat_kernel::events::Top;
use topstat_kernel::{DEFAULT_TOP, Options, TableInfo};

use crate::args::events::EventsArgs;
use crate::backend::Backend;
use crate::console::Console;
use crate::error::Error;
use crate::{resolve, shared};

/// The default number of rows of a top: as many as a person can keep in view.
const ROWS: u32 = 10;

/// The named tables, each once. Tables of one family stand together: they are loaded and read together.
#[derive(Default)]
pub struct Tops {
    rows: u32,
    families: Vec<Vec<Arc<TableInfo>>>,
}

impl Tops {
    /// Resolves these names.
    pub fn new(args: &EventsArgs, names: &[&String]) -> Result<Self, Error> {
        if names.is_empty() && (args.rows.is_some() || args.every.is_some() || args.private) {
            let why = "--rows, --every and --private are of the top of a table: name one (SAMPLE/TABLE), too";
            return Err(Error::Usage(why.to_owned()));
        }
        let mut families: Vec<(String, Vec<Arc<TableInfo>>)> = Vec::new();
        let all = topstat_families::catalogue().samples();
        for name in names {
            for table in resolve::tables(&all, name, None)? {
                let family = topstat_families::catalogue()
                    .family_of(&table.sample)
                    .map_or_else(String::new, |of| of.name.clone());
                match families.iter_mut().find(|(known, _)| *known == family) {
                    Some((_, tables)) if tables.contains(&table) => {}
                    Some((_, tables)) => tables.push(table),
                    None => families.push((family, vec![table])),
                }
            }
        }
        let families = families.into_iter().map(|(_, tables)| tables).collect();
        Ok(Self { rows: args.rows.unwrap_or(ROWS), families })
    }

    /// All named tables.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableInfo>> {
        self.families.iter().flatten()
    }

    /// Opens the daemon's tables where they exist, and loads the others.
    pub fn open(
        &self,
        args: &EventsArgs,
        backend: &mut dyn Backend,
        console: &mut dyn Console,
    ) -> Result<Vec<Top>, Error> {
        let mut tops = Vec::with_capacity(self.families.len());
        for tables in &self.families {
            let state = match tables.first().filter(|_| !args.private) {
                Some(table) => shared::open(table, &args.pins, &args.mount, backend)?,
                None => None,
            };
            let source = match state {
                Some(state) => {
                    if self.rows > state.top() {
                        return Err(Error::Usage(format!(
                            "--rows {} is more than the {} rows that the daemon's tables keep: use --private for \
                             tables of your own",
                            self.rows,
                            state.top()
                        )));
                    }
                    for table in tables {
                        if let Some(off) = shared::off(state.settings(table)?, table, "") {
                            console.note(&format!("topstat: {off}"));
                        }
                    }
                    state.reader()?
                }
                None => {
                    let options = Options { top: self.rows.max(DEFAULT_TOP), ..Options::default() };
                    backend.load(tables, &options)?
                }
            };
            tops.push(Top::new(tables.clone(), source, self.rows, args.every));
        }
        Ok(tops)
    }
}
