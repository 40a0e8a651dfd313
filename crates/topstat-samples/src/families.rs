// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The families of samples, as the build found them.

use crate::{Check, Error, Options, SampleInfo, Source, TableInfo};

/// Samples that share their eBPF programs.
pub trait Family: Sync {
    /// The samples, in the order they are listed.
    fn samples(&self) -> &'static [SampleInfo];

    /// Loads and attaches what the tables need.
    ///
    /// # Errors
    /// See [`crate::load`].
    fn load(&self, tables: &[&TableInfo], options: &Options) -> Result<Box<dyn Source>, Error>;

    /// Looks at what the family needs of the kernel, beyond what all need.
    fn check(&self) -> Vec<Check>;
}

include!(concat!(env!("OUT_DIR"), "/families.rs"));

/// The family that a sample belongs to.
pub fn of(sample: &str) -> Option<&'static dyn Family> {
    FAMILIES.iter().copied().find(|f| f.samples().iter().any(|s| s.name == sample))
}
