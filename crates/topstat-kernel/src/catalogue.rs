// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The list of families, samples and tables: the families that a program has registered at its beginning, and those added since.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use crate::Error;
use crate::family::{Family, Ranked, SampleInfo, TableInfo};

/// The list of families, in the order in which they are listed.
pub struct Catalogue(RwLock<Vec<Arc<Family>>>);

static REGISTERED: OnceLock<Catalogue> = OnceLock::new();

/// All families, in the order in which they are listed; none, if the program has registered none.
pub(crate) fn families() -> Vec<Arc<Family>> {
    REGISTERED.get().map(Catalogue::families).unwrap_or_default()
}

/// As [`Catalogue::family_of`].
pub(crate) fn family_of(sample: &str) -> Option<Arc<Family>> {
    REGISTERED.get()?.family_of(sample)
}

impl Catalogue {
    /// The catalogue of this process. The first call registers its families; later calls do not call `families`.
    pub fn of(families: fn() -> Vec<Family>) -> &'static Self {
        REGISTERED.get_or_init(|| {
            let mut all: Vec<_> = families().into_iter().map(Arc::new).collect();
            // Families without ranked tables come after the others.
            all.sort_by_key(|family| family.kind_as::<Ranked>().is_none());
            Self(RwLock::new(all))
        })
    }

    /// All families.
    pub fn families(&self) -> Vec<Arc<Family>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds a family. It is listed, loaded and read like a registered one.
    ///
    /// # Errors
    /// Its name, or the name of one of its samples, is taken or can't be a directory's name.
    pub fn add(&self, family: Family) -> Result<Arc<Family>, Error> {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let samples = || all.iter().flat_map(|other| &other.samples).map(|sample| &sample.name);
        let wrong = |name: &str, why: &str| Err(Error::Option(format!("cannot add the family {name:?}: {why}")));
        if all.iter().any(|other| other.name == family.name) {
            return wrong(&family.name, "there is one of this name");
        }
        if let Some(taken) = family.samples.iter().find(|sample| samples().any(|name| *name == sample.name)) {
            return wrong(&family.name, &format!("there is a sample {} already", taken.name));
        }
        let tables = family.samples.iter().flat_map(|sample| &sample.tables).map(|table| &table.name);
        let names = tables.chain(family.samples.iter().map(|sample| &sample.name)).chain([&family.name]);
        if let Some(bad) = names.into_iter().find(|name| !is_name(name)) {
            return wrong(&family.name, &format!("{bad:?} is no name: letters, digits and _, at most {NAME_BYTES}"));
        }
        let family = Arc::new(family);
        all.push(Arc::clone(&family));
        Ok(family)
    }

    /// All samples.
    pub fn samples(&self) -> Vec<Arc<SampleInfo>> {
        self.families().iter().flat_map(|family| &family.samples).cloned().collect()
    }

    /// The table of this name in a sample.
    pub fn find(&self, sample: &str, table: &str) -> Option<Arc<TableInfo>> {
        self.samples().iter().find(|s| s.name == sample)?.tables.iter().find(|t| t.name == table).cloned()
    }

    /// The period, in ms, that the definition of a table sets: no option changes it. `None`: the table has the period of the
    /// options.
    pub fn own_period_ms(&self, table: &TableInfo) -> Option<u32> {
        self.family_of(&table.sample)?.kind_as::<Ranked>()?.own.period_ms
    }

    /// The family that a sample belongs to.
    pub fn family_of(&self, sample: &str) -> Option<Arc<Family>> {
        self.families().into_iter().find(|family| family.samples.iter().any(|own| own.name == sample))
    }
}

/// The longest name: what the kernel allows for a file, less room for suffixes.
const NAME_BYTES: usize = 200;

/// Whether this can be the name of a directory of the tree, and of pins.
fn is_name(name: &str) -> bool {
    let letters = || name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    !name.is_empty() && name.len() <= NAME_BYTES && letters()
}
