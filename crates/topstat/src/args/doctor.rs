// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line of `topstat doctor` as it is parsed.

use std::path::PathBuf;

use super::{ListFormat, Mount, Pins};

/// List all installed, loaded, pinned and running parts of topstat, and the lines of 'topstat check'
///
/// One line each; 'topstat check --help' explains the marks. Exits with 1 if something is missing.
#[derive(Debug, clap::Args)]
#[command(after_long_help = ARCHIVE)]
pub struct DoctorArgs {
    /// Also write these lines, and files that a report of a fault needs, to a new archive: see ARCHIVE
    #[arg(long, value_name = "FILE.tar.gz")]
    pub archive: Option<PathBuf>,

    /// How to write it; json is one document per check and line
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: ListFormat,

    #[command(flatten)]
    pub mount: Mount,

    #[command(flatten)]
    pub pins: Pins,
}

const ARCHIVE: &str = "\
ARCHIVE
  The archive has the lines as text and as JSON, the configuration of the kernel, the name of the distribution, the cost
  of the daemon (self.json) and the names of the pins. It has no environment, no command line, no name of this host, no
  address, no row of a table and no text of a configuration file. A file that exists already is not overwritten.

EXAMPLES
  sudo topstat doctor
  sudo topstat doctor --archive report.tar.gz";
