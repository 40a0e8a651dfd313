// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel module, in a guest.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

/// The variable with the folder of the modules for the guest's kernel.
pub const FOLDER: &str = "TOPSTAT_KMOD";

/// The folder in which `make kmod KERNEL=…` puts the modules for a kernel.
pub fn folder(kernel: &str) -> Result<PathBuf> {
    let here = env::current_dir().context("cannot tell the current folder")?;
    Ok(here.join("target/kmod").join(kernel).join("kmod"))
}

/// topstat.ko and topstat_tcp.ko, loaded until this value is dropped.
pub struct Module;

const LOADED: [&str; 2] = ["topstat", "topstat_tcp"];

/// Whether the module watches receiving calls, which it does for some seconds after its load, and after the accept of a
/// connection.
const LOOKS_AT_READS: &str = "/sys/module/topstat_tcp/parameters/reads_seen";
/// Far longer than these seconds.
const CALM_LIMIT: Duration = Duration::from_secs(60);

impl Module {
    /// Loads both modules, and waits until they watch only as much as lasting connections need.
    pub fn load() -> Result<Self> {
        let folder = PathBuf::from(env::var_os(FOLDER).with_context(|| format!("{FOLDER} is not set"))?);
        let built = |name: &&str| folder.join(format!("{name}.ko")).exists();
        ensure!(LOADED.iter().all(built), "no modules in {}: make kmod KERNEL=…", folder.display());
        let module = Self;
        for name in LOADED {
            run(Command::new("insmod").arg(folder.join(format!("{name}.ko"))))?;
        }
        let begun = Instant::now();
        while fs::read_to_string(LOOKS_AT_READS).with_context(|| format!("cannot read {LOOKS_AT_READS}"))? != "N\n" {
            ensure!(begun.elapsed() < CALM_LIMIT, "{LOOKS_AT_READS} stays: the owner of some connection is not known");
            sleep(Duration::from_millis(100));
        }
        Ok(module)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        for name in LOADED.iter().rev() {
            if let Err(error) = run(Command::new("rmmod").arg(name)) {
                eprintln!("{error:#}");
            }
        }
    }
}

fn run(command: &mut Command) -> Result<()> {
    let what = format!("{command:?}");
    let status = command.status().with_context(|| format!("cannot run {what}"))?;
    ensure!(status.success(), "{what}: {status}");
    Ok(())
}
