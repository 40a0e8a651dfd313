// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kind of families of ranked tables.

use std::sync::Arc;

use super::{RankedFamily, check, load};
use crate::family::{BankId, Family, Kind, Ranked, TableInfo};
use crate::report::Check;
use crate::{Error, Options, Source, State};

/// The family, with its kind.
fn of(family: &Arc<Family>) -> Result<RankedFamily, Error> {
    RankedFamily::of(family).ok_or_else(|| Error::NotLoaded(family.name.clone()))
}

impl Kind for Ranked {
    fn programs(&self) -> Vec<String> {
        self.builds.hooks().into_iter().flat_map(|hook| [hook.enter(), hook.program]).collect()
    }

    fn parts(&self, _table: &TableInfo) -> Vec<String> {
        self.parts.clone()
    }

    fn lost(&self, table: &TableInfo) -> Vec<String> {
        self.causes(table).into_iter().map(|cause| cause.name().into_owned()).collect()
    }

    fn load(
        &self,
        family: &Arc<Family>,
        tables: &[Arc<TableInfo>],
        options: &Options,
    ) -> Result<Box<dyn Source>, Error> {
        if let Some(other) = tables.iter().find(|table| !family.samples.iter().any(|s| s.name == table.sample)) {
            return Err(Error::NotLoaded(other.path()));
        }
        (family.ready)()?;
        Arc::new(load(&of(family)?, tables, options)?).read(options.cpu_rows)
    }

    fn load_state(
        &self,
        family: &Arc<Family>,
        tables: &[Arc<TableInfo>],
        options: &Options,
    ) -> Result<Arc<dyn State>, Error> {
        (family.ready)()?;
        Ok(Arc::new(load(&of(family)?, tables, options)?))
    }

    fn try_load(&self, family: &Arc<Family>) -> Result<(), Error> {
        let state = Arc::new(load(&of(family)?, &family.tables(), &Options::default())?);
        // Programs that leave pending amounts leave some of the first bank.
        state.settle([BankId(0)])?;
        state.read(false).map(drop)
    }

    fn check(&self, family: &Arc<Family>) -> Vec<Check> {
        of(family).map_or_else(|_| Vec::new(), |of| check(&of))
    }
}
