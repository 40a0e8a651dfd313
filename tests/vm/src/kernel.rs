// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bootable kernels, and their way into the cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::Unavailable;
use crate::apt::{self, Apt, Package};
use crate::cache::{Cache, Work};
use crate::qemu::{Arch, Flavour};

/// The package that depends on the current kernel of a suite.
fn metapackage(flavour: Flavour) -> String {
    format!("linux-image-{}", flavour.name())
}

/// The modules that a guest needs before it has a root; modules that a kernel has built in are skipped.
const BOOT_MODULES: &[&str] = &["virtio_pci", "virtiofs", "overlay"];

/// A line of kernels, represented by its latest Debian package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
pub enum Series {
    /// Debian 11: the oldest that the network samples support.
    #[value(name = "5.10")]
    #[serde(rename = "5.10")]
    V5_10,
    /// Debian 12: the oldest that all of topstat supports.
    #[value(name = "6.1")]
    #[serde(rename = "6.1")]
    V6_1,
    /// Debian 13.
    #[value(name = "6.12")]
    #[serde(rename = "6.12")]
    V6_12,
    /// The long-term kernel after Debian 13's.
    #[value(name = "6.18")]
    #[serde(rename = "6.18")]
    V6_18,
    /// The highest version in any suite.
    #[value(name = "newest")]
    #[serde(rename = "newest")]
    Newest,
}

impl Series {
    /// All of them, oldest first.
    pub const ALL: [Self; 5] = [Self::V5_10, Self::V6_1, Self::V6_12, Self::V6_18, Self::Newest];

    /// The name on the command line and in the cache.
    pub fn name(self) -> &'static str {
        match self {
            Self::V5_10 => "5.10",
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::V6_18 => "6.18",
            Self::Newest => "newest",
        }
    }

    fn has(self, version: &str) -> bool {
        self == Self::Newest || version.strip_prefix(self.name()).is_some_and(|rest| rest.starts_with(['.', '-', '~']))
    }
}

impl std::fmt::Display for Series {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// A kernel in the cache, ready to boot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Kernel {
    /// The Debian package of the kernel.
    pub package: String,
    /// The version of that package.
    pub version: String,
    /// The output of `uname -r` on the kernel.
    pub release: String,
    /// The kernel's folder.
    #[serde(skip)]
    pub dir: PathBuf,
    /// The root that guests boot it with; `None`: the host's.
    #[serde(skip)]
    pub root: Option<PathBuf>,
}

/// The file in a kernel's folder that describes the kernel; written last.
const DESCRIPTION: &str = "kernel.json";

impl Kernel {
    /// The compressed image to boot.
    pub fn image(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    /// The modules to load before the root is mounted, in order.
    pub fn boot_modules(&self) -> Result<Vec<PathBuf>> {
        let dir = self.dir.join("boot-modules");
        let mut modules = fs::read_dir(&dir)
            .with_context(|| format!("cannot read {}; run `topstat-vm clean --all` and fetch again", dir.display()))?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<Vec<_>>>()?;
        modules.sort();
        Ok(modules)
    }

    /// The folder that the guest sees as `/lib/modules/<release>`; `None` for a kernel without modules.
    pub fn modules(&self) -> Option<PathBuf> {
        Some(self.dir.join("lib/modules").join(&self.release)).filter(|dir| dir.exists())
    }

    /// Reads a complete kernel from `dir`.
    pub fn open(dir: PathBuf) -> Option<Self> {
        let text = fs::read_to_string(dir.join(DESCRIPTION)).ok()?;
        let kernel: Self = serde_json::from_str(&text).ok()?;
        Some(Self { dir, ..kernel })
    }

    /// Describes the finished kernel in `scratch` and moves it to its place in the cache.
    pub fn install(self, scratch: tempfile::TempDir, dir: PathBuf) -> Result<Self> {
        write_json(&scratch.path().join(DESCRIPTION), &self)?;
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("cannot remove the incomplete {}", dir.display()))?;
        }
        fs::create_dir_all(dir.parent().unwrap_or(Path::new("/")))?;
        let scratch = scratch.keep();
        fs::rename(&scratch, &dir)
            .with_context(|| format!("cannot move {} to {}", scratch.display(), dir.display()))?;
        Ok(Self { dir, ..self })
    }
}

/// The cached kernel of `series`, if there is one. Needs no network.
pub fn cached(cache: &Cache, series: Series, flavour: Flavour) -> Option<Kernel> {
    let text = fs::read_to_string(cache.series_file(series.name(), flavour)).ok()?;
    let known: Kernel = serde_json::from_str(&text).ok()?;
    Kernel::open(cache.kernels().join(known.release))
}

/// The kernel of `series`: the cached one, or Debian's latest if none is cached or `update` is set.
pub fn fetch(cache: &Cache, series: Series, flavour: Flavour, update: bool) -> Result<Kernel> {
    if !update && let Some(kernel) = cached(cache, series, flavour) {
        return Ok(kernel);
    }
    let _lock = cache.lock(Work::Fetch)?;
    if !update && let Some(kernel) = cached(cache, series, flavour) {
        return Ok(kernel);
    }
    fetch_locked(cache, series, flavour, update).with_context(|| format!("cannot fetch the kernel {series}"))
}

/// Puts the headers of a cached kernel beside its modules, as `build` and `source`: programs that compile against the running
/// kernel (bcc) look for them there. Does nothing if they are there.
pub fn fetch_headers(cache: &Cache, kernel: &Kernel) -> Result<()> {
    let modules = kernel.modules().with_context(|| format!("{} has no modules", kernel.release))?;
    let (build, source) = (modules.join("build"), modules.join("source"));
    if build.is_dir() {
        return Ok(());
    }
    let _lock = cache.lock(Work::Fetch)?;
    if build.is_dir() {
        return Ok(());
    }
    let apt = Apt::open(cache, Arch::Amd64, false)?;
    let name = format!("linux-headers-{}", kernel.release);
    let mut found = apt.show(&name)?;
    found.retain(|package| package.version == kernel.version);
    let package = found.pop().ok_or_else(|| Unavailable(format!("no suite has {name} {}", kernel.version)))?;
    // The headers that all architectures share are in a separate package.
    let common = package.exact_depends.iter().find(|(name, _)| name.ends_with("-common"));
    let (common, _) = common.with_context(|| format!("{name} depends on no common headers: its layout is unknown"))?;
    let scratch = cache.scratch()?;
    for package in [&name, common] {
        apt.unpack(package, &kernel.version, scratch.path())?;
    }
    // The links in the package would lead to folders of the host.
    for (package, target) in [(common, &source), (&name, &build)] {
        if target.is_symlink() {
            fs::remove_file(target)?;
        }
        let from = scratch.path().join("usr/src").join(package);
        fs::rename(&from, target).with_context(|| format!("cannot move {} to {}", from.display(), target.display()))?;
    }
    Ok(())
}

fn fetch_locked(cache: &Cache, series: Series, flavour: Flavour, update: bool) -> Result<Kernel> {
    let apt = Apt::open(cache, flavour.arch(), update)?;
    let image = resolve(&apt, series, flavour)?;
    let release = image.name.trim_start_matches("linux-image-").to_owned();
    let dir = cache.kernels().join(&release);
    let kernel = match Kernel::open(dir.clone()).filter(|kernel| kernel.version == image.version) {
        Some(kernel) => kernel,
        None => unpack(cache, &apt, &image, release, dir)?,
    };
    let pointer = cache.series_file(series.name(), flavour);
    fs::create_dir_all(pointer.parent().unwrap_or(Path::new("/")))?;
    write_json(&pointer, &kernel)?;
    Ok(kernel)
}

/// The package of the latest kernel of `series`.
///
/// The metapackage of a suite names its current kernel. If no current kernel belongs to the series (backports has moved on,
/// but still holds its former kernels), the function searches the kernel packages themselves.
fn resolve(apt: &Apt, series: Series, flavour: Flavour) -> Result<Package> {
    let metapackage = metapackage(flavour);
    let current = apt.show(&metapackage)?.into_iter().filter(|package| series.has(&package.version));
    if let Some(package) = apt::newest(current.collect())? {
        let image = package.exact_depends.into_iter().find(|(name, _)| is_image(name, flavour));
        let (name, version) =
            image.with_context(|| format!("{metapackage} {} depends on no kernel", package.version))?;
        let mut found = apt.show(&name)?;
        found.retain(|package| package.version == version);
        return found.pop().with_context(|| format!("{metapackage} depends on {name} {version}, which no suite has"));
    }
    let mut images = Vec::new();
    for name in
        apt.search(&format!(r"^linux-image-{}\.[0-9].*-{}$", series.name().replace('.', r"\."), flavour.name()))?
    {
        if is_image(&name, flavour) {
            images.extend(apt.show(&name)?.into_iter().filter(|package| series.has(&package.version)));
        }
    }
    apt::newest(images)?.ok_or_else(|| {
        let flavour = flavour.name();
        let why = format!("no suite on this host's Debian mirror has a kernel {series} for {flavour} (any more)");
        Unavailable(why).into()
    })
}

/// Whether a package contains a kernel (or stands for one that is split into parts): `linux-image-6.1.0-52-cloud-amd64`.
fn is_image(name: &str, flavour: Flavour) -> bool {
    name.strip_prefix("linux-image-").is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        && name.strip_suffix(flavour.name()).is_some_and(|rest| rest.ends_with('-'))
}

fn unpack(cache: &Cache, apt: &Apt, image: &Package, release: String, dir: PathBuf) -> Result<Kernel> {
    let scratch = cache.scratch()?;
    let unpacked = scratch.path().join("unpacked");
    fs::create_dir(&unpacked)?;
    apt.unpack(&image.name, &image.version, &unpacked)?;
    let find = |candidates: &[String]| {
        candidates.iter().map(|path| unpacked.join(path)).find(|path| path.exists()).with_context(|| {
            format!("{} {} has none of {}: its layout is unknown", image.name, image.version, candidates.join(", "))
        })
    };
    let images = [
        format!("boot/vmlinuz-{release}"),
        format!("usr/lib/modules/{release}/vmlinuz"),
        format!("usr/lib/linux/{release}/vmlinuz"),
    ];
    // Since 6.19 the image package is empty: binary, modules and the index of built-in modules are its dependencies. Before,
    // the package is complete; its dependencies may have left the suite while the package is still there.
    if find(&images).is_err() {
        let parts = image.exact_depends.iter();
        for (name, version) in parts.filter(|(name, _)| name.ends_with(&format!("-{release}"))) {
            apt.unpack(name, version, &unpacked)?;
        }
    }
    let vmlinuz = find(&images)?;
    extract_zboot(&vmlinuz)?;
    fs::rename(vmlinuz, scratch.path().join("vmlinuz"))?;
    if let Ok(config) = find(&[
        format!("boot/config-{release}"),
        format!("usr/lib/modules/{release}/config"),
        format!("usr/lib/linux/{release}/config"),
    ]) {
        fs::rename(config, scratch.path().join("config"))?;
    }
    let modules = find(&[format!("lib/modules/{release}"), format!("usr/lib/modules/{release}")])?;
    fs::create_dir_all(scratch.path().join("lib/modules"))?;
    fs::rename(modules, scratch.path().join("lib/modules").join(&release))?;
    fs::remove_dir_all(&unpacked)?;

    let status = Command::new("depmod").arg("-b").arg(scratch.path()).arg(&release).status();
    ensure!(
        status.context("cannot run depmod (package kmod)")?.success(),
        "cannot index the modules of {release}: depmod failed"
    );
    extract_boot_modules(scratch.path(), &release)?;
    Kernel { package: image.name.clone(), version: image.version.clone(), release, dir: PathBuf::new(), root: None }
        .install(scratch, dir)
}

/// Replaces an image that unpacks itself under EFI by the kernel in it: QEMU before 8.1 can't boot such an image. Its header is
/// described in the kernel's `drivers/firmware/efi/libstub/zboot-header.S`.
fn extract_zboot(path: &Path) -> Result<()> {
    let image = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    if image.get(4..8) != Some(b"zimg") {
        return Ok(());
    }
    let word = |at: usize| image.get(at..at + 4)?.try_into().ok().map(|bytes| u32::from_le_bytes(bytes) as usize);
    let payload = word(8).zip(word(12)).and_then(|(at, bytes)| image.get(at..at.checked_add(bytes)?));
    let payload = payload.with_context(|| format!("{} ends before its payload", path.display()))?;
    let kind = &image[24..image.len().min(32)];
    let program = match kind.split(|byte| *byte == 0).next() {
        Some(b"gzip") => "gzip",
        Some(b"zstd") => "zstd",
        _ => bail!("cannot unpack {}: unknown compression", path.display()),
    };
    let compressed = path.with_extension("payload");
    fs::write(&compressed, payload)?;
    // gzip ends with 2 where data follows that is no part of the stream: the length of the kernel does.
    expand(program, &compressed, path, &[0, 2])?;
    fs::remove_file(&compressed)?;
    Ok(())
}

/// Expands a compressed file by this program. `codes` are the exit codes of success.
fn expand(program: &str, from: &Path, to: &Path, codes: &[i32]) -> Result<()> {
    let packed = fs::File::open(from).with_context(|| format!("cannot read {}", from.display()))?;
    let file = fs::File::create(to).with_context(|| format!("cannot create {}", to.display()))?;
    let status = Command::new(program).arg("-dc").stdin(packed).stdout(file).status();
    let status = status.with_context(|| format!("cannot run {program} to unpack {}", from.display()))?;
    let is_done = status.code().is_some_and(|code| codes.contains(&code));
    ensure!(is_done, "cannot unpack {}: {program} failed ({status})", from.display());
    Ok(())
}

/// Writes the modules that [`BOOT_MODULES`] need to `boot-modules/`, uncompressed and numbered in the order of loading.
fn extract_boot_modules(dir: &Path, release: &str) -> Result<()> {
    let target = dir.join("boot-modules");
    fs::create_dir(&target)?;
    let mut done: Vec<PathBuf> = Vec::new();
    for module in BOOT_MODULES {
        let output = Command::new("modprobe")
            .arg("-d")
            .arg(dir)
            .args(["-S", release, "--show-depends", module])
            .output()
            .context("cannot run modprobe (package kmod)")?;
        ensure!(
            output.status.success(),
            "kernel {release} lacks the module {module}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        for path in insmod_paths(&String::from_utf8_lossy(&output.stdout)) {
            if done.contains(&path) {
                continue;
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let plain =
                target.join(format!("{:02}-{}", done.len(), name.trim_end_matches(".xz").trim_end_matches(".zst")));
            decompress(&path, &plain)?;
            done.push(path);
        }
    }
    Ok(())
}

/// The files that `modprobe --show-depends` would load: lines `insmod <path> [options]`.
fn insmod_paths(show_depends: &str) -> Vec<PathBuf> {
    show_depends
        .lines()
        .filter_map(|line| line.strip_prefix("insmod ")?.split_whitespace().next().map(PathBuf::from))
        .collect()
}

/// Copies a module, uncompressed.
fn decompress(from: &Path, to: &Path) -> Result<()> {
    match from.extension().and_then(|ext| ext.to_str()) {
        Some("xz") => expand("xz", from, to, &[0]),
        Some("zst") => expand("zstd", from, to, &[0]),
        Some("ko") => fs::copy(from, to).map(drop).with_context(|| format!("cannot copy {}", from.display())),
        _ => bail!("cannot unpack the module {}: unknown compression", from.display()),
    }
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    fs::write(path, serde_json::to_string_pretty(value)? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Removes kernels without a series, or the whole cache. Returns the removed paths.
pub fn clean(cache: &Cache, all: bool) -> Result<Vec<PathBuf>> {
    let _locks = [cache.lock(Work::Build)?, cache.lock(Work::Fetch)?];
    let kept: Vec<PathBuf> = if all {
        Vec::new()
    } else {
        let debug = crate::debug::cached(cache).map(|kernel| kernel.dir);
        Flavour::ALL
            .iter()
            .flat_map(|&flavour| Series::ALL.iter().filter_map(move |&series| cached(cache, series, flavour)))
            .map(|kernel| kernel.dir)
            .chain(debug)
            .collect()
    };
    let mut removed = Vec::new();
    let mut remove = |path: PathBuf| -> Result<()> {
        fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        removed.push(path);
        Ok(())
    };
    for entry in fs::read_dir(cache.kernels()).into_iter().flatten() {
        let path = entry?.path();
        if !kept.contains(&path) {
            remove(path)?;
        }
    }
    for entry in fs::read_dir(cache.root())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // The rest of an interrupted fetch is always removed.
        if name.starts_with("new-") || (all && path.is_dir() && path != cache.kernels()) {
            remove(path)?;
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_has_its_versions_only() {
        assert!(Series::V6_1.has("6.1.159-1"));
        assert!(!Series::V6_1.has("6.12.95-1~bpo12+1"));
        assert!(!Series::V6_1.has("6.18.5-1"));
        assert!(Series::V5_10.has("5.10.262-1"));
        assert!(Series::Newest.has("7.3.4-1~bpo13+1"));
    }

    #[test]
    fn images_are_told_from_their_companions() {
        assert!(is_image("linux-image-6.1.0-52-cloud-amd64", Flavour::CloudAmd64));
        assert!(!is_image("linux-image-cloud-amd64", Flavour::CloudAmd64));
        assert!(!is_image("linux-image-6.1.0-52-cloud-amd64-dbg", Flavour::CloudAmd64));
        assert!(!is_image("linux-image-5.10.0-46-cloud-amd64-unsigned", Flavour::CloudAmd64));
        assert!(!is_image("linux-base-7.3.4+deb13-cloud-amd64", Flavour::CloudAmd64));
        assert!(is_image("linux-image-7.3.4+deb13-cloud-arm64", Flavour::CloudArm64));
        assert!(!is_image("linux-image-7.3.4+deb13-cloud-arm64", Flavour::CloudAmd64));
        assert!(is_image("linux-image-6.12.48+deb13-arm64-16k", Flavour::Arm64Pages16k));
        assert!(!is_image("linux-image-arm64-16k", Flavour::Arm64Pages16k));
    }

    #[test]
    fn built_in_modules_are_not_loaded() {
        let shown =
            "insmod /c/lib/modules/6.1/kernel/fs/fuse/fuse.ko \nbuiltin virtio_pci\ninsmod /c/virtiofs.ko dax=0\n";
        assert_eq!(
            insmod_paths(shown),
            [Path::new("/c/lib/modules/6.1/kernel/fs/fuse/fuse.ko"), Path::new("/c/virtiofs.ko")]
        );
    }

    #[test]
    fn cleaning_keeps_the_kernels_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        for (series, release) in [(Some("6.1"), "6.1.0-1"), (None, "6.1.0-0")] {
            let scratch = cache.lock(Work::Fetch).and_then(|_| cache.scratch()).unwrap();
            let kernel = Kernel {
                package: "p".into(),
                version: "v".into(),
                release: release.into(),
                dir: PathBuf::new(),
                root: None,
            };
            let kernel = kernel.install(scratch, cache.kernels().join(release)).unwrap();
            if let Some(series) = series {
                fs::create_dir_all(folder.path().join("series")).unwrap();
                write_json(&cache.series_file(series, Flavour::CloudAmd64), &kernel).unwrap();
            }
        }
        let removed = clean(&cache, false).unwrap();
        assert_eq!(removed, [cache.kernels().join("6.1.0-0")]);
        assert_eq!(cached(&cache, Series::V6_1, Flavour::CloudAmd64).unwrap().release, "6.1.0-1");
        fs::create_dir(folder.path().join("root-arm64")).unwrap();
        clean(&cache, true).unwrap();
        assert!(cached(&cache, Series::V6_1, Flavour::CloudAmd64).is_none());
        let left = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let left: std::collections::BTreeSet<_> = left.collect();
        assert_eq!(left, ["build.lock", "fetch.lock", "kernels"].map(Into::into).into());
    }
}
