// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where snapshots come from.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use topstat_samples::pinned::{self, Adopted, Pins};
use topstat_samples::{Check, Error, Family, Options, Source, State, TableInfo};

/// Makes sources of snapshots.
pub trait Backend {
    /// Loads and attaches what the tables need, for as long as the source lives.
    ///
    /// # Errors
    ///
    /// See [`topstat_samples::load`].
    fn load(&mut self, tables: &[&TableInfo], options: &Options) -> Result<Box<dyn Source>, Error>;

    /// Opens what is pinned of a family, for reading and setting; `None` where nothing is.
    ///
    /// # Errors
    ///
    /// When it is not permitted, or what is pinned can't be used.
    fn open(&mut self, pins: &Path, family: &dyn Family) -> Result<Option<Arc<dyn State>>, Error>;

    /// As [`Backend::open`]; loads and pins what is not there, with these tables on.
    ///
    /// # Errors
    ///
    /// As those two.
    fn adopt(
        &mut self,
        pins: &Path,
        family: &dyn Family,
        tables: &[&TableInfo],
        options: &Options,
    ) -> Result<(Arc<dyn State>, Adopted), Error>;

    /// Removes all that is pinned, and says what that was.
    ///
    /// # Errors
    ///
    /// When something can't be removed.
    fn remove(&mut self, pins: &Path) -> Result<Vec<PathBuf>, Error>;

    /// Looks at everything that the samples need.
    fn check(&mut self) -> Vec<Check>;
}

/// This host's kernel.
#[derive(Debug)]
pub struct Kernel;

impl Backend for Kernel {
    fn load(&mut self, tables: &[&TableInfo], options: &Options) -> Result<Box<dyn Source>, Error> {
        topstat_samples::load(tables, options)
    }

    fn open(&mut self, pins: &Path, family: &dyn Family) -> Result<Option<Arc<dyn State>>, Error> {
        pinned::open(&Pins::at(pins), family)
    }

    fn adopt(
        &mut self,
        pins: &Path,
        family: &dyn Family,
        tables: &[&TableInfo],
        options: &Options,
    ) -> Result<(Arc<dyn State>, Adopted), Error> {
        pinned::adopt(&Pins::at(pins), family, tables, options)
    }

    fn remove(&mut self, pins: &Path) -> Result<Vec<PathBuf>, Error> {
        pinned::remove(&Pins::at(pins))
    }

    fn check(&mut self) -> Vec<Check> {
        topstat_samples::check()
    }
}
