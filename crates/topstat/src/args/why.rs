// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The arguments of `topstat why`.

use super::{Mount, Pins};
use crate::complete;

/// Print all that is known of one row
///
/// The row's value and its parts, its place in the table, its process with command line, memory and files, its control group with
/// limits and pressure, and the rows of other tables with its process or control group. It is the screen that Enter shows in
/// 'topstat view', as text.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct WhyArgs {
    /// The table: SAMPLE/TABLE, as for 'topstat top'
    #[arg(value_name = "TABLE", add = complete::tables())]
    pub table: String,

    /// The row: its rank, or a filter whose first row it is, such as comm:nginx [default: 1]
    #[arg(value_name = "ROW", default_value = "1", add = complete::filters())]
    pub row: String,

    #[command(flatten)]
    pub mount: Mount,

    #[command(flatten)]
    pub pins: Pins,
}

const EXAMPLES: &str = "\
EXAMPLES
  topstat why tasks/cpu                          the process that uses the most CPU time
  topstat why net_procs/bps comm:nginx           the first row of nginx
  topstat why cgroups/cpu cgroup:/system.slice/db.service";
