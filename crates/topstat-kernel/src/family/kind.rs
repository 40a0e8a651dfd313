// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A kind of families.

use std::any::Any;
use std::sync::Arc;

use super::{Family, SampleInfo, TableInfo};
use crate::report::Check;
use crate::{Error, Options, Source, State};

/// How the families of one kind are loaded, read and checked.
pub trait Kind: Any + Send + Sync {
    /// The names of all programs that the family may have attached, including gates.
    fn programs(&self) -> Vec<String> {
        Vec::new()
    }

    /// The samples of the family that this kernel has.
    fn available_samples(&self, family: &Family) -> Vec<Arc<SampleInfo>> {
        family.samples.clone()
    }

    /// The names of the parts of a table's values.
    fn parts(&self, _table: &TableInfo) -> Vec<String> {
        Vec::new()
    }

    /// The names of a table's lost counts, in the order of the outputs, without the two that each table has.
    fn lost(&self, _table: &TableInfo) -> Vec<String> {
        Vec::new()
    }

    /// Loads tables of the family for this program alone, and reads them: see [`crate::load`].
    ///
    /// # Errors
    /// See [`Error`]. A kind without tables is [`Error::NotLoaded`].
    fn load(
        &self,
        family: &Arc<Family>,
        _tables: &[Arc<TableInfo>],
        _options: &Options,
    ) -> Result<Box<dyn Source>, Error> {
        Err(Error::NotLoaded(family.name.clone()))
    }

    /// Loads the observers of the family for this program alone: see [`crate::load_state`].
    ///
    /// # Errors
    /// As [`Self::load`].
    fn load_state(
        &self,
        family: &Arc<Family>,
        _tables: &[Arc<TableInfo>],
        _options: &Options,
    ) -> Result<Arc<dyn State>, Error> {
        Err(Error::NotLoaded(family.name.clone()))
    }

    /// Loads every program of the family, which may attach it for a moment.
    ///
    /// # Errors
    /// The reason why a program does not load.
    fn try_load(&self, family: &Arc<Family>) -> Result<(), Error>;

    /// Whether a check of a sample is also a check of the family.
    fn is_checked_with(&self, family: &Family, sample: &str) -> bool {
        family.samples.iter().any(|own| own.name == sample)
    }

    /// The checks for all families of the kind; [`Family::check`] has those of one family.
    fn check(&self, _family: &Arc<Family>) -> Vec<Check> {
        Vec::new()
    }
}
