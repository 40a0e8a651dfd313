// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs that guests need, and their Debian packages: `scripts/setup vm` installs them, which a test here checks.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::Unavailable;
use crate::qemu::Arch;

/// A program and its Debian package.
struct Need {
    program: &'static str,
    package: &'static str,
}

const fn need(program: &'static str, package: &'static str) -> Need {
    Need { program, package }
}

/// The programs for booting, without [`Virtiofsd`] and without programs of every Debian (dpkg, util-linux).
const BOOT: &[Need] = &[
    need("qemu-system-x86_64", "qemu-system-x86"),
    need("busybox", "busybox-static"),
    need("cpio", "cpio"),
    need("depmod", "kmod"),
    need("xz", "xz-utils"),
];

/// The programs for building the debug tier's kernel, beyond [`BOOT`].
const DEBUG: &[Need] = &[
    need("make", "make"),
    need("gcc", "gcc"),
    need("bc", "bc"),
    need("bison", "bison"),
    need("flex", "flex"),
    need("pahole", "dwarves"),
];

/// Libraries for that build, found by their headers.
const DEBUG_HEADERS: &[(&str, &str)] =
    &[("/usr/include/libelf.h", "libelf-dev"), ("/usr/include/linux/types.h", "libc6-dev")];

/// QEMU for guests of arm64, and its package. Only such guests need it.
pub const QEMU_ARM64: &str = "qemu-system-aarch64";
const QEMU_ARM64_PACKAGE: &str = "qemu-system-arm";

/// Debian's keys, with which apt verifies other suites.
const KEYRING_PACKAGE: &str = "debian-archive-keyring";

/// Process 1 of the systemd tier: the host's program, since guests share the host's root.
const SYSTEMD: &str = "/usr/lib/systemd/systemd";
/// Its package. Installing it does not replace the host's init: another package does that.
const SYSTEMD_PACKAGE: &str = "systemd";

/// The file server for the guest's root, in its two implementations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Virtiofsd {
    /// The C program of QEMU up to 7.x (Debian 12).
    Qemu(PathBuf),
    /// The later Rust program (Debian 13 and later).
    Rust(PathBuf),
}

/// The programs to boot with.
#[derive(Debug, Clone)]
pub struct Tools {
    /// `qemu-system-x86_64`.
    pub qemu: PathBuf,
    /// A static busybox.
    pub busybox: PathBuf,
    /// The file server.
    pub virtiofsd: Virtiofsd,
}

/// The Debian packages to install on this host; with `debug`, also the packages for building the debug tier's kernel.
pub fn packages(debug: bool) -> Vec<&'static str> {
    let mut packages: Vec<_> = BOOT.iter().map(|need| need.package).collect();
    packages.push(KEYRING_PACKAGE);
    packages.push(SYSTEMD_PACKAGE);
    // Debian 12 ships virtiofsd in QEMU's package; on later releases it is a separate package.
    if has_own_virtiofsd_package() {
        packages.push("virtiofsd");
    }
    if debug {
        packages.extend(DEBUG.iter().map(|need| need.package));
        packages.extend(DEBUG_HEADERS.iter().map(|(_, package)| package));
    }
    packages
}

fn has_own_virtiofsd_package() -> bool {
    Command::new("apt-cache")
        .args(["search", "--names-only", "^virtiofsd$"])
        .output()
        .is_ok_and(|output| !output.stdout.is_empty())
}

/// Finds all programs for booting; the error lists everything that is missing, and how to get it.
pub fn tools() -> Result<Tools> {
    if env::consts::ARCH != "x86_64" {
        bail!(Unavailable(format!("guests are x86_64 and this host is {}", env::consts::ARCH)));
    }
    let missing: Vec<_> = BOOT.iter().filter(|need| find(need.program).is_none()).collect();
    let virtiofsd = find_virtiofsd();
    if let (true, Some(qemu), Some(busybox), Some(virtiofsd)) =
        (missing.is_empty(), find("qemu-system-x86_64"), find("busybox"), virtiofsd)
    {
        return Ok(Tools { qemu, busybox, virtiofsd });
    }
    let mut names: Vec<_> = missing.iter().map(|need| need.program).collect();
    if find_virtiofsd().is_none() {
        names.push("virtiofsd");
    }
    bail!(Unavailable(format!(
        "programs are missing: {}; install them: apt-get install {}",
        names.join(", "),
        packages(false).join(" ")
    )))
}

/// Finds the program that is process 1 in the systemd tier; the error says how to get it.
pub fn systemd() -> Result<PathBuf> {
    // On hosts with a separate /lib the program is there.
    let found =
        [SYSTEMD, SYSTEMD.trim_start_matches("/usr")].map(PathBuf::from).into_iter().find(|path| path.is_file());
    found.ok_or_else(|| {
        Unavailable(format!("{SYSTEMD} is missing; install it: apt-get install {SYSTEMD_PACKAGE}")).into()
    })
}

/// The error says how to get QEMU for guests of arm64, if it is missing.
pub fn check_arm64() -> Result<()> {
    check(&need(QEMU_ARM64, QEMU_ARM64_PACKAGE))
}

/// The compiler of modules for kernels of an architecture. The error says how to get it, if it is missing.
pub fn compiler(arch: Arch) -> Result<&'static str> {
    let gcc = match arch {
        Arch::Amd64 => need("gcc", "gcc"),
        Arch::Arm64 => need("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    };
    check(&gcc)?;
    Ok(gcc.program)
}

/// The error says how to get a program, if it is missing.
fn check(need: &Need) -> Result<()> {
    let Need { program, package } = need;
    if find(program).is_none() {
        bail!(Unavailable(format!("{program} is missing; install it: apt-get install {package}")));
    }
    Ok(())
}

/// The error lists what is missing for building the debug tier's kernel.
pub fn check_build_tools() -> Result<()> {
    let programs = DEBUG.iter().filter(|need| find(need.program).is_none()).map(|need| need.package);
    let headers = DEBUG_HEADERS.iter().filter(|(header, _)| !Path::new(header).exists()).map(|(_, package)| *package);
    let missing: Vec<_> = programs.chain(headers).collect();
    if !missing.is_empty() {
        bail!(Unavailable(format!("the debug kernel cannot be built: install {}", missing.join(" "))));
    }
    Ok(())
}

fn find_virtiofsd() -> Option<Virtiofsd> {
    let at = |path: &str| Some(PathBuf::from(path)).filter(|path| path.exists());
    at("/usr/libexec/virtiofsd").map(Virtiofsd::Rust).or_else(|| at("/usr/lib/qemu/virtiofsd").map(Virtiofsd::Qemu))
}

/// Looks `program` up in PATH and in the administrator's folders, which a user's PATH may lack.
fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_needs_more() {
        let (boot, debug) = (packages(false), packages(true));
        assert!(boot.contains(&"qemu-system-x86") && boot.contains(&"busybox-static"));
        assert!(debug.starts_with(&boot));
        assert!(debug.contains(&"dwarves"));
    }

    #[test]
    fn setup_installs_what_is_needed() {
        let setup = include_str!("../../../scripts/setup");
        let vm = setup.split("check_vm()").nth(1).and_then(|rest| rest.split("\n}").next()).unwrap();
        for package in packages(true) {
            assert!(vm.contains(&format!(" {package} ")), "scripts/setup vm does not install {package}");
        }
    }
}
