// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be said on the command line.

use std::path::PathBuf;

use clap::ValueEnum as _;
use clap::{Args, Parser, Subcommand};
use topstat_vm::kernel::Series;
use topstat_vm::matrix::{Cell, cell};
use topstat_vm::qemu::{Cgroup, Tier};

/// Runs commands on other kernels: Debian's, booted by QEMU, with this host's root shared read-only
#[derive(Debug, Parser)]
#[command(name = "topstat-vm", version, max_term_width = 110)]
pub struct Cli {
    /// Fail where guests cannot be run at all (no QEMU, no network), instead of ending with 77 for "skipped"
    #[arg(long, global = true)]
    pub require: bool,
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a command in a guest; its output and exit code are this program's
    ///
    /// Other exit codes: 77 skipped, 124 timed out, 125 the guest crashed, its kernel log has a report, or it could not be run.
    Run(RunArgs),
    /// A shell on a guest's console
    Shell(ShellArgs),
    /// Run commands on several kernels, print a table; exit 1 if any failed
    Matrix(MatrixArgs),
    /// Bring kernels into the cache (all, if none is named)
    Fetch {
        /// Which kernels
        #[arg(value_enum)]
        kernels: Vec<Series>,
        /// Also build the debug tier's kernel
        #[arg(long)]
        debug: bool,
        /// Look for newer ones even where the cache has one
        #[arg(long)]
        update: bool,
    },
    /// Bring what modules are built with for a kernel into the cache; print its folder, then arguments for make, a line each
    Kbuild {
        /// Which kernel
        #[arg(value_enum)]
        kernel: Series,
        /// The tier: debug has another kernel than stock, and so have the tiers of arm64
        #[arg(long, value_enum, default_value = "stock")]
        tier: Tier,
    },
    /// Unpack the source of a kernel into a folder
    Source {
        /// Which kernel
        #[arg(value_enum)]
        kernel: Series,
        /// Empty or missing; takes 1.5 GB
        folder: PathBuf,
    },
    /// What the cache holds
    List,
    /// Remove kernels that are no longer used
    Clean {
        /// Remove all that was fetched and built
        #[arg(long)]
        all: bool,
    },
    /// Print the Debian packages that guests need, for apt-get install
    Deps {
        /// Also those to build the debug tier's kernel
        #[arg(long)]
        debug: bool,
    },
}

#[derive(Debug, Args)]
pub struct MachineArgs {
    /// Number of CPUs (the icount tier always has one)
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub cpus: u32,
    /// Memory in MiB; half of it can be written to as files
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(256..=65536))]
    pub memory: u32,
    /// Which control groups to mount at /sys/fs/cgroup
    #[arg(long, value_enum, default_value = "v2")]
    pub cgroup: Cgroup,
    /// A variable for the command; without a value, as it is here
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// More arguments for the kernel
    #[arg(long, value_name = "ARGUMENT")]
    pub append: Vec<String>,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Which kernel [default: 6.12]
    #[arg(long, value_enum)]
    pub kernel: Option<Series>,
    /// How strictly to run it
    #[arg(long, value_enum, default_value = "stock")]
    pub tier: Tier,
    /// Time limit of the command, in seconds
    #[arg(long, value_name = "S", default_value_t = 300)]
    pub timeout: u64,
    /// Keep the kernel log, the outputs and what the command puts into $TOPSTAT_VM_OUT in this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the kernel log at the end
    #[arg(long)]
    pub log: bool,
    /// Print how long boot and command took
    #[arg(long)]
    pub time: bool,
    /// More reports in the kernel log that are no failure, in the format of allow.toml
    #[arg(long, value_name = "FILE")]
    pub allow: Option<PathBuf>,
    #[command(flatten)]
    pub machine: MachineArgs,
    /// The command, run in the current folder
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct ShellArgs {
    /// Which kernel [default: 6.12]
    #[arg(long, value_enum)]
    pub kernel: Option<Series>,
    /// How strictly to run it
    #[arg(long, value_enum, default_value = "stock")]
    pub tier: Tier,
    #[command(flatten)]
    pub machine: MachineArgs,
}

#[derive(Debug, Args)]
pub struct MatrixArgs {
    /// Which kernels [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub kernels: Vec<Series>,
    /// Which tiers; debug has one kernel only
    #[arg(long, value_enum, value_delimiter = ',', default_value = "stock")]
    pub tiers: Vec<Tier>,
    /// One more kernel and tier, as 6.1:slub; may be given several times
    #[arg(long, value_name = "KERNEL:TIER", value_parser = parse_cell)]
    pub also: Vec<Cell>,
    /// A shell command line; may be given several times
    #[arg(long = "cmd", value_name = "LINE")]
    pub shell_commands: Vec<String>,
    /// A shell command line that has a guest for itself, beside the guest of the other commands; may be given several times
    #[arg(long, value_name = "LINE")]
    pub apart: Vec<String>,
    /// Guests at a time
    #[arg(long, default_value_t = 2)]
    pub guests: usize,
    /// Time limit of each command, in seconds; the slower tiers get two to four times as long
    #[arg(long, value_name = "S", default_value_t = 120)]
    pub timeout: u64,
    /// Keep logs and outputs in this folder, one folder for each kernel and tier
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Also print what commands printed that passed
    #[arg(long, short)]
    pub verbose: bool,
    /// More reports in the kernel log that are no failure, in the format of allow.toml
    #[arg(long, value_name = "FILE")]
    pub allow: Option<PathBuf>,
    #[command(flatten)]
    pub machine: MachineArgs,
    /// A command, run in the current folder
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

fn parse_cell(text: &str) -> Result<Cell, String> {
    let (series, tier) = text.split_once(':').ok_or("a kernel and a tier, as 6.1:slub")?;
    let (series, tier) = (Series::from_str(series, false)?, Tier::from_str(tier, false)?);
    cell(Some(series), tier).map_err(|error| error.to_string())
}
