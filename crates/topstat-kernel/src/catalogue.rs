// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The list of families, samples and tables: the families that the build has found in `families`, and those added since the
//! program began.

use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use crate::Error;
use crate::families::all as built_in;
use crate::family::{Family, Kind, SampleInfo, TableInfo};

static ALL: LazyLock<RwLock<Vec<Arc<Family>>>> = LazyLock::new(|| {
    let mut all: Vec<_> = built_in().into_iter().map(Arc::new).collect();
    // Families without ranked tables come after the others.
    all.sort_by_key(|family| !matches!(family.kind, Kind::Ranked(_)));
    RwLock::new(all)
});

/// All families, in the order in which they are listed.
pub fn families() -> Vec<Arc<Family>> {
    ALL.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Adds a family. It is listed, loaded and read like a built-in one.
///
/// # Errors
/// Its name, or the name of one of its samples, is taken or can't be a directory's name.
pub fn add(family: Family) -> Result<Arc<Family>, Error> {
    let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
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

/// The longest name: what the kernel allows for a file, less room for suffixes.
const NAME_BYTES: usize = 200;

/// Whether this can be the name of a directory of the tree, and of pins.
fn is_name(name: &str) -> bool {
    let letters = || name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    !name.is_empty() && name.len() <= NAME_BYTES && letters()
}

/// All samples, in the order in which they are listed.
pub fn samples() -> Vec<Arc<SampleInfo>> {
    families().iter().flat_map(|family| &family.samples).cloned().collect()
}

/// The table of this name in a sample.
pub fn find(sample: &str, table: &str) -> Option<Arc<TableInfo>> {
    samples().iter().find(|s| s.name == sample)?.tables.iter().find(|t| t.name == table).cloned()
}

/// The period, in ms, that the definition of a table sets: no option changes it. `None`: the table has the period of the options.
pub fn own_period_ms(table: &TableInfo) -> Option<u32> {
    match &family_of(&table.sample)?.kind {
        Kind::Ranked(ranked) => ranked.own.period_ms,
        _ => None,
    }
}

/// The family that a sample belongs to.
pub fn family_of(sample: &str) -> Option<Arc<Family>> {
    families().into_iter().find(|family| family.samples.iter().any(|own| own.name == sample))
}
