// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the daemon has its tree and its pinned state.

use std::path::PathBuf;

use topstat_tui::feed::quoted;

use super::DAEMON;
use crate::config::{self, Config};

/// Where the state of the daemon is pinned.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Pins {
    /// Where the daemon pins its state [default: as it is configured, or /sys/fs/bpf/topstat]
    #[arg(id = "pins", long, value_name = "DIR", help_heading = DAEMON)]
    dir: Option<PathBuf>,
}

impl Pins {
    /// The directory. A configuration that is wrong is the daemon's to complain about.
    pub fn dir(&self) -> PathBuf {
        let configured = || Config::find(None).ok()?.0.pins;
        self.dir.clone().or_else(configured).unwrap_or_else(|| config::DEFAULT_PINS.into())
    }

    /// The option as it was given, after a blank; empty where it was not given.
    pub fn option(&self) -> String {
        self.dir.as_deref().map_or(String::new(), |dir| format!(" --pins {}", quoted(dir.display())))
    }
}

/// Where the tree of the daemon is mounted.
#[derive(Clone, Debug, clap::Args)]
pub struct Mount {
    /// Where the daemon mounts its tree [default: as it is configured, or /run/topstat]
    #[arg(id = "mount", long, value_name = "DIR", help_heading = DAEMON)]
    dir: Option<PathBuf>,
}

impl Mount {
    /// The directory, as [`Pins::dir`].
    pub fn dir(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(config::mount)
    }

    /// This directory, as if the user had named it; `None`: the default.
    pub fn at(dir: Option<PathBuf>) -> Self {
        Self { dir }
    }

    /// Whether the user has named the directory.
    pub fn is_given(&self) -> bool {
        self.dir.is_some()
    }

    /// As [`Pins::option`].
    pub fn option(&self) -> String {
        self.dir.as_deref().map_or(String::new(), |dir| format!(" --mount {}", quoted(dir.display())))
    }
}
