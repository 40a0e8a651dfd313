// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel of the debug tier: built here, from Debian's source, with checks that no distribution enables.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use crate::cache::{Cache, Work};
use crate::deps;
use crate::kernel::{Kernel, Series};
use crate::source;

/// The series of the kernel.
pub const SERIES: Series = Series::V6_1;

/// The package with the kernel's source.
pub const SOURCE_PACKAGE: &str = "linux-source-6.1";

/// The configuration, on top of `tinyconfig`.
const CONFIG: &str = include_str!("../debug.config");

/// The beginning of the kernel's name in the cache; the version and a hash of [`CONFIG`] follow.
const PREFIX: &str = "debug-";

/// The cached kernel with the current configuration, if there is one. Needs no network.
pub fn cached(cache: &Cache) -> Option<Kernel> {
    let ours = config_hash();
    let candidates = fs::read_dir(cache.kernels()).ok()?.filter_map(|entry| {
        let path = entry.ok()?.path();
        let name = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.to_owned();
        (name.rsplit('-').next() == Some(&ours)).then(|| Kernel::open(path)).flatten()
    });
    // The version stands before the hash: of several kernels any is right, and the comparison picks the newest among versions
    // of equal length.
    candidates.max_by(|a, b| a.version.cmp(&b.version))
}

/// The first digits of the configuration's hash, which distinguish the few configurations in the cache. The hash omits
/// comments, because a new build takes minutes.
fn config_hash() -> String {
    let options = CONFIG.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let digest = Sha256::digest(options.collect::<Vec<_>>().join("\n").as_bytes());
    digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// The cached kernel, or a new one, whose build takes minutes.
pub fn build(cache: &Cache) -> Result<Kernel> {
    if let Some(kernel) = cached(cache) {
        return Ok(kernel);
    }
    deps::check_build_tools()?;
    let _lock = cache.lock(Work::Build)?;
    if let Some(kernel) = cached(cache) {
        return Ok(kernel);
    }
    build_locked(cache).context("cannot build the debug kernel")
}

fn build_locked(cache: &Cache) -> Result<Kernel> {
    let scratch = cache.scratch()?;
    let tree = scratch.path().join("source");
    let version = source::unpack(cache, SERIES, &tree)?;

    eprintln!("topstat-vm: building the debug kernel {version}: this takes some minutes");
    let log = scratch.path().join("build.log");
    let fragment = tree.join("topstat-debug.config");
    fs::write(&fragment, CONFIG)?;
    make(&tree, &log, &["tinyconfig"])?;
    let merged = Command::new("scripts/kconfig/merge_config.sh")
        .args(["-m", ".config", "topstat-debug.config"])
        .current_dir(&tree)
        .stdout(Stdio::null())
        .status()
        .context("cannot run merge_config.sh of the kernel's source")?;
    ensure!(merged.success(), "cannot merge tests/vm/debug.config into the kernel's configuration");
    make(&tree, &log, &["olddefconfig"])?;
    let config = fs::read_to_string(tree.join(".config"))?;
    let lost = lost_options(CONFIG, &config);
    ensure!(
        lost.is_empty(),
        "the kernel's configuration does not take these of tests/vm/debug.config (what they depend on is off): {}",
        lost.join(" ")
    );
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    make(&tree, &log, &[&format!("-j{jobs}"), "bzImage"])?;
    let release = fs::read_to_string(tree.join("include/config/kernel.release"))?.trim().to_owned();

    fs::copy(tree.join("arch/x86/boot/bzImage"), scratch.path().join("vmlinuz"))?;
    fs::write(scratch.path().join("config"), config)?;
    // System.map resolves addresses in a report; the source itself is not kept.
    fs::copy(tree.join("System.map"), scratch.path().join("System.map"))?;
    fs::create_dir(scratch.path().join("boot-modules"))?;
    fs::remove_dir_all(&tree)?;
    let dir = cache.kernels().join(format!("{PREFIX}{version}-{}", config_hash()));
    Kernel { package: SOURCE_PACKAGE.to_owned(), version, release, dir: dir.clone(), root: None }.install(scratch, dir)
}

fn make(tree: &Path, log: &Path, arguments: &[&str]) -> Result<()> {
    let file = File::options()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("cannot open {}", log.display()))?;
    let status = Command::new("nice")
        .args(["-n", "10", "make", "-s", "ARCH=x86_64", "KBUILD_BUILD_USER=topstat", "KBUILD_BUILD_HOST=vm"])
        .args(arguments)
        .current_dir(tree)
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .status()
        .context("cannot run make")?;
    if !status.success() {
        let text = fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(20)..].join("\n");
        anyhow::bail!("make {} failed ({status}):\n{tail}", arguments.join(" "));
    }
    Ok(())
}

/// The lines of `wanted` that `config` lacks.
fn lost_options<'a>(wanted: &'a str, config: &str) -> Vec<&'a str> {
    let has = |line: &str| match line.strip_suffix("=n") {
        Some(name) => !config.lines().any(|have| have.starts_with(&format!("{name}="))),
        None => config.lines().any(|have| have == line),
    };
    wanted.lines().map(str::trim).filter(|line| line.starts_with("CONFIG_") && !has(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_are_not_taken_are_named() {
        let config = "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_D=\"x\"\n";
        assert_eq!(lost_options("# note\nCONFIG_A=y\nCONFIG_B=n\nCONFIG_D=\"x\"\n", config), [""; 0]);
        assert_eq!(lost_options("CONFIG_A=n\nCONFIG_B=y\n", config), ["CONFIG_A=n", "CONFIG_B=y"]);
    }

    #[test]
    fn the_name_in_the_cache_has_the_configurations_hash() {
        assert_eq!(config_hash().len(), 12);
    }
}
