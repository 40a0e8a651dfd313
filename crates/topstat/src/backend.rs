// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where snapshots come from.

use topstat_samples::{Check, Options, Source, TableInfo};

/// Makes sources of snapshots.
pub trait Backend {
    /// Loads and attaches what the tables need, for as long as the source lives.
    ///
    /// # Errors
    ///
    /// See [`topstat_samples::load`].
    fn load(&mut self, tables: &[&TableInfo], options: &Options) -> Result<Box<dyn Source>, topstat_samples::Error>;

    /// Looks at everything that the samples need.
    fn check(&mut self) -> Vec<Check>;
}

/// This host's kernel.
#[derive(Debug)]
pub struct Kernel;

impl Backend for Kernel {
    fn load(&mut self, tables: &[&TableInfo], options: &Options) -> Result<Box<dyn Source>, topstat_samples::Error> {
        topstat_samples::load(tables, options)
    }

    fn check(&mut self) -> Vec<Check> {
        topstat_samples::check()
    }
}
