// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The families of samples, as the build found them.

use std::sync::Arc;

use crate::pinned::{Adopted, Pins};
use crate::ranking::{self, Ranked};
use crate::{Check, Error, Options, SampleInfo, Source, State, TableInfo};

/// Samples that share their eBPF programs.
pub trait Family: Sync {
    /// Its folder: `inet`.
    fn name(&self) -> &'static str;

    /// The samples, in the order they are listed.
    fn samples(&self) -> &'static [Arc<SampleInfo>];

    /// Whether the kernel gives it anything to count just now. What is pinned stays of use all the same.
    ///
    /// # Errors
    /// [`Error::SwitchedOff`] or [`Error::Unsupported`].
    fn ready(&self) -> Result<(), Error>;

    /// Loads and attaches what the tables need.
    ///
    /// # Errors
    /// See [`crate::load`].
    fn load(&self, tables: &[Arc<TableInfo>], options: &Options) -> Result<Box<dyn Source>, Error>;

    /// Loads and attaches its observers, for this program alone.
    ///
    /// # Errors
    /// See [`crate::load`].
    fn load_state(&self, tables: &[Arc<TableInfo>], options: &Options) -> Result<Arc<dyn State>, Error>;

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
    fn adopt(
        &self,
        pins: &Pins,
        tables: &[Arc<TableInfo>],
        options: &Options,
    ) -> Result<(Arc<dyn State>, Adopted), Error>;

    /// The names of all programs that it may have attached, gates among them.
    fn programs(&self) -> Vec<String>;

    /// What is left out since this process lacks a privilege, and which; `None` where nothing is.
    fn less(&self) -> Option<String>;

    /// Looks at what the family needs of the kernel, beyond what all need.
    fn check(&self) -> Vec<Check>;
}

/// All families are of ranked tables.
impl<F: Ranked> Family for F {
    fn name(&self) -> &'static str {
        F::NAME
    }

    fn samples(&self) -> &'static [Arc<SampleInfo>] {
        F::samples()
    }

    fn ready(&self) -> Result<(), Error> {
        F::ready()
    }

    fn load(&self, tables: &[Arc<TableInfo>], options: &Options) -> Result<Box<dyn Source>, Error> {
        Arc::new(ranking::load::<F>(tables, options)?).read(options.cpu_rows)
    }

    fn load_state(&self, tables: &[Arc<TableInfo>], options: &Options) -> Result<Arc<dyn State>, Error> {
        Ok(Arc::new(ranking::load::<F>(tables, options)?))
    }

    fn abi(&self) -> u32 {
        F::ABI
    }

    fn open(&self, pins: &Pins) -> Result<Option<Arc<dyn State>>, Error> {
        ranking::open::<F>(pins)
    }

    fn adopt(
        &self,
        pins: &Pins,
        tables: &[Arc<TableInfo>],
        options: &Options,
    ) -> Result<(Arc<dyn State>, Adopted), Error> {
        ranking::adopt::<F>(pins, tables, options)
    }

    fn programs(&self) -> Vec<String> {
        F::HOOKS.iter().flat_map(|hook| [hook.program.to_owned(), hook.enter()]).collect()
    }

    fn less(&self) -> Option<String> {
        F::less()
    }

    fn check(&self) -> Vec<Check> {
        F::check()
    }
}

include!(concat!(env!("OUT_DIR"), "/families.rs"));

/// The family that a sample belongs to.
pub fn of(sample: &str) -> Option<&'static dyn Family> {
    FAMILIES.iter().copied().find(|f| f.samples().iter().any(|s| s.name == sample))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{FAMILIES, LAYOUTS};

    /// What is pinned is read by builds to come. Each family's layout is kept in `families/<family>/abi-<number>.txt`; with
    /// `UPDATE_GOLDEN=1` the file of a number that has none yet is written.
    #[test]
    fn a_layout_that_differs_has_another_abi() {
        for (family, layout) in LAYOUTS {
            let abi = FAMILIES.iter().find(|f| f.name() == *family).expect("each has a layout").abi();
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../families/{family}/abi-{abi}.txt"));
            if std::env::var_os("UPDATE_GOLDEN").is_some() && !file.exists() {
                fs::write(&file, layout).expect("write it");
            }
            let kept = fs::read_to_string(&file).unwrap_or_else(|e| {
                panic!("{}: {e}; UPDATE_GOLDEN=1 writes it, once the ABI has its final layout", file.display())
            });
            let differs: Vec<_> = layout
                .lines()
                .filter(|l| !kept.lines().any(|k| k == *l))
                .map(|l| format!("+ {l}"))
                .chain(kept.lines().filter(|k| !layout.lines().any(|l| l == *k)).map(|k| format!("- {k}")))
                .collect();
            assert!(
                differs.is_empty(),
                "the layout of {family} is not that of its ABI {abi}: what is pinned would be misread. Raise the ABI in \
                 {family}.h, remove {}, and have the new one written by UPDATE_GOLDEN=1. If no release has had ABI {abi}, \
                 only the last two.\n{}",
                file.display(),
                differs.join("\n")
            );
        }
    }
}
