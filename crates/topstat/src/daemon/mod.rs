// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon: it loads and pins the observers, serves the file tree, and answers signals. What is counted lives in the
//! kernel; the daemon may come and go.

pub mod budget;
pub mod caps;
pub mod config;
pub mod cost;
mod document;
pub mod logging;
pub mod notify;
pub mod own;

use std::path::PathBuf;
use std::sync::Arc;

use crate::console::Console;
use crate::error::Error;

/// Where the tree is mounted.
pub const DEFAULT_MOUNT: &str = "/run/topstat";

/// What the command line and the configuration come to. `config` makes it from a file, the command line overrides it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The mount point of the tree.
    pub mount: PathBuf,
    /// The group that may read the tree, by its id; root alone if none.
    pub group: Option<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { mount: DEFAULT_MOUNT.into(), group: None }
    }
}

/// What a text file of the root says when it is read, such as `self`. Called once per open; may take a millisecond.
#[allow(dead_code)]
pub type Text = Arc<dyn Fn() -> String + Send + Sync>;

/// Runs until a signal ends it.
///
/// # Errors
///
/// When it cannot start: another daemon runs, nothing could be loaded.
pub fn run(settings: Settings, console: &mut dyn Console) -> Result<(), Error> {
    let _ = (settings.group, console);
    Err(Error::Usage(format!("cannot serve {} yet", settings.mount.display())))
}
