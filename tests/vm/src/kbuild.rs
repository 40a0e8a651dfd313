// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files for building modules for the kernels of guests: headers and kbuild, from Debian's packages. Nothing is
//! installed: packages are unpacked beside the kernel, and references to `/usr/src` in them are changed to the new place.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::Unavailable;
use crate::apt::{self, Apt};
use crate::cache::{Cache, Work};
use crate::kernel::{self, Kernel, Series};
use crate::qemu::{Arch, Flavour, Tier};
use crate::{debug, deps, source};

/// The folder and the arguments for building modules for a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kbuild {
    /// The folder for `make -C`.
    pub dir: PathBuf,
    /// The arguments for that make.
    pub make: Vec<String>,
}

/// The folder beside a kernel that contains all of it; it is complete or absent.
const FOLDER: &str = "kbuild";

/// The source of the debug tier's kernel.
const SOURCE_PACKAGE: &str = debug::SOURCE_PACKAGE;

impl Kbuild {
    /// The build files for the kernel of a tier.
    ///
    /// # Errors
    ///
    /// No suite of Debian has the headers of the cached kernel (any more), or they can't be downloaded. The compiler for the
    /// kernel's architecture is missing.
    pub fn fetch(cache: &Cache, series: Series, tier: Tier) -> Result<Self> {
        let flavour = tier.flavour();
        // Checks that need no download come first.
        let compiler = deps::compiler(flavour.arch())?;
        let of_debug = tier == Tier::Debug;
        let kernel = if of_debug { debug::build(cache)? } else { kernel::fetch(cache, series, flavour, false)? };
        let folder = kernel.dir.join(FOLDER);
        if !folder.exists() {
            let _lock = cache.lock(Work::Fetch)?;
            if !folder.exists() {
                let scratch = match of_debug {
                    true => prepare_source(cache, &kernel)?,
                    false => unpack(cache, &kernel, flavour, &folder)?,
                };
                let scratch = scratch.keep();
                fs::rename(&scratch, &folder).with_context(|| format!("cannot make {}", folder.display()))?;
            }
        }
        Self::at(&folder, &kernel, tier, compiler)
    }

    fn at(folder: &Path, kernel: &Kernel, tier: Tier, compiler: &str) -> Result<Self> {
        // The compiler that Debian names may be of another release than the host's.
        let mut make = vec![format!("CC={compiler}")];
        if tier.arch() == Arch::Arm64 {
            make.extend(["ARCH=arm64".to_owned(), format!("CROSS_COMPILE={}", compiler.trim_end_matches("gcc"))]);
        }
        if tier == Tier::Debug {
            // That kernel has no list of exported symbols, since its modules were not built.
            make.push("KBUILD_MODPOST_WARN=1".to_owned());
            return Ok(Self { dir: folder.to_owned(), make });
        }
        let dir = folder.join("usr/src").join(format!("linux-headers-{}", kernel.release));
        // Types of the module would need a pahole as new as the kernel's.
        make.push("CONFIG_DEBUG_INFO_BTF_MODULES=".to_owned());
        let aligns =
            Command::new(compiler).args(["-fmin-function-alignment=16", "-E", "-x", "c", "/dev/null"]).output();
        if !aligns.with_context(|| format!("cannot run {compiler}"))?.status.success() {
            make.push("CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT=".to_owned());
            // Linux on arm64 since 6.4 keeps data of ftrace before each function, and refuses an entry that is not aligned: gcc before
            // 14 does not align functions that are rarely called. So the module's functions have no entries for ftrace.
            if tier.arch() == Arch::Arm64 {
                make.push("CC_FLAGS_FTRACE=".to_owned());
            }
        }
        Ok(Self { dir, make })
    }
}

/// Unpacks the packages of a kernel's headers. `folder` is their final place.
fn unpack(cache: &Cache, kernel: &Kernel, flavour: Flavour, folder: &Path) -> Result<tempfile::TempDir> {
    let apt = Apt::open(cache, flavour.arch(), false)?;
    let headers = format!("linux-headers-{}", kernel.release);
    let has = |name: &str| Ok::<_, anyhow::Error>(apt.show(name)?.iter().any(|p| p.version == kernel.version));
    if !has(&headers)? {
        let why = format!("no suite on this host's Debian mirror has {headers} {} (any more)", kernel.version);
        return Err(Unavailable(why).into());
    }
    let abi = kernel.release.strip_suffix(flavour.name()).and_then(|rest| rest.strip_suffix('-'));
    let abi = abi.with_context(|| format!("{} is no release of {}", kernel.release, flavour.name()))?;
    // Before 6.12, one package of kbuild served all releases of a series.
    let series: Vec<_> = abi.split('.').take(2).collect();
    let names = [format!("linux-kbuild-{abi}"), format!("linux-kbuild-{}", series.join("."))];
    // Its programs run here.
    let here = Apt::open(cache, Arch::Amd64, false)?;
    let all = names.iter().map(|name| here.show(name)).collect::<Result<Vec<_>>>()?.concat();
    // The archive has kbuild of the next revision days before it has the kernel of that revision. It does as well.
    let kbuild = match all.iter().find(|package| package.version == kernel.version) {
        Some(exact) => Some(exact.clone()),
        None => apt::newest(all)?,
    };
    let kbuild = kbuild.with_context(|| format!("no suite has {}", names.join(" or ")))?;
    let scratch = cache.scratch()?;
    for package in [&headers, &format!("linux-headers-{abi}-common")] {
        apt.unpack(package, &kernel.version, scratch.path())?;
    }
    here.unpack(&kbuild.name, &kbuild.version, scratch.path())?;
    for part in [format!("{headers}/Makefile"), format!("linux-headers-{abi}-common/Makefile")] {
        let file = scratch.path().join("usr/src").join(part);
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let there = format!("{}/usr/src/linux-headers", folder.display());
        fs::write(&file, text.replace("/usr/src/linux-headers", &there))?;
    }
    run_with_their_libc(&here, scratch.path(), folder)?;
    Ok(scratch)
}

/// Gives programs of kbuild that need a newer C library than the host's such a library.
fn run_with_their_libc(apt: &Apt, root: &Path, folder: &Path) -> Result<()> {
    let mut later = Vec::new();
    for program in executables(&root.join("usr/lib"))? {
        let linked = Command::new("ldd").arg(&program).output().context("cannot run ldd")?;
        if String::from_utf8_lossy(&[linked.stdout, linked.stderr].concat()).contains("GLIBC_") {
            later.push(program);
        }
    }
    if later.is_empty() {
        return Ok(());
    }
    let libc = apt::newest(apt.show("libc6")?)?.context("no suite has libc6")?;
    apt.unpack("libc6", &libc.version, &root.join("libc"))?;
    let loader = "libc/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";
    ensure!(root.join(loader).exists(), "libc6 {} has no {loader}: its layout is unknown", libc.version);
    for program in later {
        // Appends, since names like `objtool.real-x86` differ after the dot.
        let moved = PathBuf::from(format!("{}.elf", program.display()));
        fs::rename(&program, &moved)?;
        let at = folder.join(moved.strip_prefix(root)?);
        let loader = folder.join(loader);
        let library = loader.parent().unwrap_or(Path::new("/"));
        let script = format!(
            "#!/bin/sh\nexec '{}' --library-path '{}' '{}' \"$@\"\n",
            loader.display(),
            library.display(),
            at.display()
        );
        fs::write(&program, script)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// All ELF programs below a folder.
fn executables(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            let meta = fs::symlink_metadata(&path)?;
            if meta.is_dir() {
                folders.push(path);
            } else if meta.is_file() && meta.permissions().mode() & 0o100 != 0 && is_elf(&path) {
                found.push(path);
            }
        }
    }
    Ok(found)
}

fn is_elf(path: &Path) -> bool {
    use std::io::Read as _;
    let mut magic = [0; 4];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF"
}

/// Unpacks the source of the debug tier's kernel and prepares it with its configuration, as far as modules need it.
fn prepare_source(cache: &Cache, kernel: &Kernel) -> Result<tempfile::TempDir> {
    deps::check_build_tools()?;
    let apt = Apt::open(cache, Arch::Amd64, false)?;
    let scratch = cache.scratch()?;
    apt.unpack(SOURCE_PACKAGE, &kernel.version, scratch.path())?;
    source::extract(SOURCE_PACKAGE, scratch.path())?;
    fs::copy(kernel.dir.join("config"), scratch.path().join(".config"))?;
    let mut make = Command::new("nice");
    make.args(["make", "-s", "ARCH=x86_64", "olddefconfig", "modules_prepare"]).current_dir(scratch.path());
    ensure!(make.status().context("cannot run make")?.success(), "make modules_prepare failed");
    Ok(scratch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_are_looked_at() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b");
        fs::create_dir_all(&dir).unwrap();
        for (name, bytes, mode) in
            [("program", "\x7fELF rest", 0o755), ("library", "\x7fELF", 0o644), ("script", "#!/bin/sh\n", 0o755)]
        {
            fs::write(dir.join(name), bytes).unwrap();
            fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        assert_eq!(executables(root.path()).unwrap(), [dir.join("program")]);
    }
}
