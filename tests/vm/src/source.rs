// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The source of a kernel, from Debian's package of it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::Unavailable;
use crate::apt::{self, Apt, Package};
use crate::cache::{Cache, Work};
use crate::kernel::Series;
use crate::qemu::Arch;

/// Unpacks the source of the newest kernel of `series` into the empty or missing folder `tree`. Returns the version of Debian's
/// package.
///
/// # Errors
///
/// [`Unavailable`] if no suite of Debian has the source of the series; a folder that is not empty; a download or an archive that
/// fails.
pub fn unpack(cache: &Cache, series: Series, tree: &Path) -> Result<String> {
    let lock = cache.lock(Work::Fetch)?;
    let apt = Apt::open(cache, Arch::Amd64, false)?;
    let source = package(&apt, series)?;
    fs::create_dir_all(tree).with_context(|| format!("cannot make {}", tree.display()))?;
    ensure!(fs::read_dir(tree)?.next().is_none(), "{} is not empty", tree.display());
    apt.unpack(&source.name, &source.version, tree)?;
    drop(lock);
    extract(&source.name, tree)?;
    Ok(source.version)
}

/// Extracts the archive of the unpacked package `name` into the same folder.
pub(crate) fn extract(name: &str, tree: &Path) -> Result<()> {
    let archive = tree.join("usr/src").join(format!("{name}.tar.xz"));
    let unpacked = Command::new("tar").arg("-xf").arg(&archive).arg("--strip-components=1").current_dir(tree).status();
    ensure!(unpacked.context("cannot run tar")?.success(), "cannot unpack {}", archive.display());
    // What the package has beside the archive; a kernel has a folder `usr`, too, but nothing below it is called so.
    fs::remove_dir_all(tree.join("usr/src"))?;
    let _ = fs::remove_dir_all(tree.join("usr/share"));
    Ok(())
}

fn package(apt: &Apt, series: Series) -> Result<Package> {
    let names = match series {
        Series::Newest => apt.search("^linux-source-[0-9.]+$")?,
        other => vec![format!("linux-source-{}", other.name())],
    };
    let mut versions = Vec::new();
    for name in &names {
        versions.extend(apt.show(name)?);
    }
    let missing =
        || Unavailable(format!("no suite on this host's Debian mirror has the source of Linux {}", series.name()));
    Ok(apt::newest(versions)?.ok_or_else(missing)?)
}
