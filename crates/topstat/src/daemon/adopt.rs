// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the pinned state of each family, or loads the family, when the daemon starts.

use std::sync::Arc;

use topstat_families::custom::PinnedTable;
use topstat_kernel::State;
use topstat_kernel::pinned::Adopted;
use topstat_model::definition::Definition;

use super::{Settings, apply};
use crate::backend::Backend;
use crate::error::Error;
use crate::{custom, library};

/// The states of all families, pinned or newly loaded. A family that can't be loaded is left out.
///
/// # Errors
///
/// The error of the last family that failed, if no family that needs loading was adopted. Families that only read the kernel's
/// own counters do not count here. Any process that can read `/proc` can read these counters, and a daemon that serves only them
/// would hide that it has no permission for anything else.
pub fn adopt(settings: &Settings, backend: &mut dyn Backend) -> Result<Vec<Arc<dyn State>>, Error> {
    define(settings, backend)?;
    let mut states = Vec::new();
    let (mut failed, mut loaded) = (None, 0);
    let all = topstat_families::catalogue().families();
    // A family without tables is never pinned: each process that reads it loads it.
    let mut order: Vec<_> = all.iter().enumerate().filter(|(_, family)| !family.samples.is_empty()).collect();
    // Finding the kernel's own counters takes 40 MB for a moment. These families come first, before the tables of other families
    // take memory.
    order.sort_by_key(|(_, family)| !family.samples.iter().all(|sample| sample.is_counted()));
    for (place, family) in order {
        if !settings.config.wants(&family.samples) {
            log::info!("{}: not loaded, for the configuration has all its samples off", family.name);
            continue;
        }
        let name = &family.name;
        let options = apply::options(&settings.config, &family.samples);
        match backend.adopt(&settings.pins, family, &family.tables(), &options) {
            Ok((state, how)) => {
                match how {
                    Adopted::Loaded => log::info!("{name}: loaded"),
                    Adopted::Found => log::info!("{name}: found pinned, and adopted"),
                    Adopted::Upgraded => log::info!("{name}: found pinned, and its programs replaced"),
                }
                for note in topstat_kernel::pinned::kept(state.as_ref(), &options) {
                    log::warn!("{name}: {note}");
                }
                for program in state.programs() {
                    log::info!("{name}: program {} ({}) at {}", program.name, program.id, program.hook);
                }
                loaded += usize::from(!state.samples().iter().all(|sample| sample.is_counted()));
                states.push((place, state));
            }
            Err(error) => {
                // A feature that the administrator has not switched on may be missing.
                let level = match error {
                    topstat_kernel::Error::SwitchedOff { .. } => log::Level::Info,
                    _ => log::Level::Error,
                };
                log::log!(level, "{name}: {error}");
                failed = Some(error);
            }
        }
    }
    match (loaded == 0, failed) {
        (true, Some(error)) => Err(error.into()),
        _ => {
            // In the order of the catalogue, in which states are locked and shown.
            states.sort_by_key(|(place, _)| *place);
            Ok(states.into_iter().map(|(_, state)| state).collect())
        }
    }
}

/// Adds the tables of the configuration to the catalogue. Removes pinned tables that it no longer has, and tables of the library whose
/// definition is another one in this version. A table that its user has defined otherwise is refused later, with both definitions.
fn define(settings: &Settings, backend: &mut dyn Backend) -> Result<(), Error> {
    let defined = settings.config.defined();
    let library = library::all().unwrap_or_default();
    let pinned = backend.defined(&settings.pins)?;
    let is_renewed = |path: &str, definition: &Definition| {
        let is_other = |table: &PinnedTable| table.name == path && table.definition != definition.text;
        library.iter().any(|entry| entry.table == definition.text) && pinned.iter().any(is_other)
    };
    let (renewed, kept): (Vec<_>, Vec<_>) = defined.iter().partition(|(path, definition)| is_renewed(path, definition));
    let paths: Vec<_> = kept.iter().map(|(path, _)| path.as_str()).collect();
    for removed in backend.keep_defined(&settings.pins, &paths)? {
        match renewed.iter().any(|(path, _)| *path == removed) {
            true => log::info!("{removed}: begun anew, for its definition in the library has changed"),
            false => log::info!("{removed}: removed, for the configuration does not have it any more"),
        }
    }
    for wrong in custom::add_configured(defined, backend) {
        log::error!("{wrong}");
    }
    Ok(())
}
