// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks after the pins while the daemon runs: pins all states again when the BPF file system was unmounted.
//!
//! After `umount -l` the kernel keeps a BPF file system, and the pins in it, while the daemon has directories of it open. No
//! other process finds these pins, and they would end with the daemon.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use topstat_kernel::State;

use super::caps;

use crate::lock::lock;

/// The reason why states are not pinned, for `self`. Empty while all are pinned.
#[derive(Clone, Debug, Default)]
pub struct Fault(Arc<Mutex<Option<String>>>);

impl Fault {
    /// The present reason.
    pub fn get(&self) -> Option<String> {
        lock(&self.0).clone()
    }

    /// Sets the reason, and returns the one before.
    fn set(&self, to: Option<String>) -> Option<String> {
        std::mem::replace(&mut *lock(&self.0), to)
    }
}

/// The states of a daemon, and the directory of their pins.
pub struct Kept {
    pins: PathBuf,
    states: Vec<Arc<dyn State>>,
    fault: Fault,
}

impl Kept {
    /// These states, which are pinned in this directory.
    pub fn new(pins: &Path, states: &[Arc<dyn State>], fault: Fault) -> Self {
        Self { pins: pins.to_owned(), states: states.to_vec(), fault }
    }

    /// Looks whether all states are pinned, and pins the others again. Logs a new reason once; the next look tries again.
    pub fn look(&self) {
        let (mut again, mut failed) = (Vec::new(), None);
        for state in &self.states {
            match caps::raised(|| state.keep_pinned()) {
                Ok(false) => {}
                Ok(true) => again.extend(state.samples().iter().map(|sample| sample.name.as_str())),
                Err(error) => failed = Some(error.to_string()),
            }
        }
        if !again.is_empty() {
            log::warn!(
                "the BPF file system of {} was unmounted: pinned again, without loss: {}",
                self.pins.display(),
                again.join(", ")
            );
        }
        let before = self.fault.set(failed.clone());
        match (before, failed) {
            (before, Some(error)) if before.as_ref() != Some(&error) => log::error!(
                "statistics are not pinned any more, and can't be pinned again: {error}; counting goes on while this daemon \
                 runs (SIGHUP tries again)"
            ),
            (Some(_), None) => log::info!("all statistics are pinned again at {}", self.pins.display()),
            _ => {}
        }
    }
}
