// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The arguments of `topstat view`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::record::DEFAULT_HISTORY;
use super::{Mount, Pins};
use crate::{complete, time};

/// Look at all tables, live and in the past
///
/// Shows what is at the top of each table now, in ten minutes of memory, and as far back as 'topstat record' has it. The
/// tables are the daemon's, where one runs; else those of a history that is named; else they are loaded for as long as the
/// view runs. Its keys are shown by '?'.
#[derive(Debug, clap::Args)]
pub struct ViewArgs {
    /// Seconds between two readings (0.5), or a time with a unit (500ms, 2s, 1m) [default: 1]
    #[arg(value_name = "INTERVAL", value_parser = time::interval)]
    pub interval: Option<Duration>,

    /// Begin with the screen of this table
    #[arg(long, value_name = "SAMPLE/TABLE", add = complete::tables())]
    pub table: Option<String>,

    /// Where 'topstat record' has records; where no daemon runs they are shown alone [default: /var/lib/topstat/history]
    #[arg(long, value_name = "DIR")]
    pub history: Option<PathBuf>,

    /// Show the records of this host, and nothing else
    #[arg(long, value_name = "NAME")]
    pub recorded_on: Option<String>,

    /// Show hosts by their names, as the system's resolver knows them: it may ask DNS; 'R' in the view switches it
    #[arg(long)]
    pub resolve: bool,

    /// Let 'K' send a signal to the process of a row, once its pid has been typed
    #[arg(long)]
    pub allow_kill: bool,

    #[command(flatten)]
    pub mount: Mount,

    #[command(flatten)]
    pub pins: Pins,
}

impl ViewArgs {
    /// What is shown without a command on a terminal.
    pub fn default_view() -> Self {
        let (mount, pins) = (Mount::at(None), Pins::default());
        Self {
            interval: None,
            table: None,
            history: None,
            recorded_on: None,
            resolve: false,
            allow_kill: false,
            mount,
            pins,
        }
    }

    /// Where records are.
    pub fn history(&self) -> &Path {
        self.history.as_deref().unwrap_or(Path::new(DEFAULT_HISTORY))
    }
}
