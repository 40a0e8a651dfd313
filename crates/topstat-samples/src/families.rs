// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The families of samples, as the build found them.

use std::sync::Arc;

use crate::pinned::{Adopted, Pins};
use crate::{Check, Error, Options, SampleInfo, Source, State, TableInfo};

/// Samples that share their eBPF programs.
pub trait Family: Sync {
    /// Its folder: `inet`.
    fn name(&self) -> &'static str;

    /// The samples, in the order they are listed.
    fn samples(&self) -> &'static [SampleInfo];

    /// Loads and attaches what the tables need.
    ///
    /// # Errors
    /// See [`crate::load`].
    fn load(&self, tables: &[&TableInfo], options: &Options) -> Result<Box<dyn Source>, Error>;

    /// Loads and attaches its observers, for this program alone.
    ///
    /// # Errors
    /// See [`crate::load`].
    fn load_state(&self, tables: &[&TableInfo], options: &Options) -> Result<Arc<dyn State>, Error>;

    /// The version of its structures: what is pinned of another one can't be used.
    fn abi(&self) -> u32;

    /// Opens what is pinned of it: see [`pinned::open`](crate::pinned::open).
    ///
    /// # Errors
    /// As there.
    fn open(&self, pins: &Pins) -> Result<Option<Arc<dyn State>>, Error>;

    /// Adopts what is pinned of it, or loads and pins it: see [`pinned::adopt`](crate::pinned::adopt).
    ///
    /// # Errors
    /// As there.
    fn adopt(&self, pins: &Pins, tables: &[&TableInfo], options: &Options) -> Result<(Arc<dyn State>, Adopted), Error>;

    /// Looks at what the family needs of the kernel, beyond what all need.
    fn check(&self) -> Vec<Check>;
}

include!(concat!(env!("OUT_DIR"), "/families.rs"));

/// The family that a sample belongs to.
pub fn of(sample: &str) -> Option<&'static dyn Family> {
    FAMILIES.iter().copied().find(|f| f.samples().iter().any(|s| s.name == sample))
}
