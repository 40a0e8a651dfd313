// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables that are pinned, as the daemon's are.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use topstat_kernel::pinned::{Pins, adopt, remove};
use topstat_kernel::{Options, State, TableInfo};

use crate::overhead::family_of;

/// Pinned tables. Dropping them removes the pins, and detaches the programs.
pub struct Pinned {
    pins: Pins,
    states: Vec<Arc<dyn State>>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Err(e) = remove(&self.pins) {
            eprintln!("cannot remove {}: {e}", self.pins.dir().display());
        }
    }
}

impl Pinned {
    /// Loads, attaches and pins these tables, each item those of one family. A family that borrows maps comes after its lender, whose
    /// tables stay off otherwise.
    ///
    /// # Errors
    /// No family has the tables, or the kernel refuses.
    pub fn load(families: &[Vec<Arc<TableInfo>>]) -> Result<Self> {
        let pins = Pins::at(Path::new(&format!("/sys/fs/bpf/topstat-bench-{}", std::process::id())));
        // From here on, what is pinned is removed, also after an error.
        let mut pinned = Self { pins, states: Vec::new() };
        for tables in families {
            pinned.states.push(adopt(&pinned.pins, &family_of(tables)?, tables, &Options::default())?.0);
        }
        Ok(pinned)
    }

    /// The state of each family.
    pub fn states(&self) -> &[Arc<dyn State>] {
        &self.states
    }
}
