// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small Debian as the root of guests whose architecture is not the host's.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::apt::Apt;
use crate::cache::{Cache, Work};
use crate::qemu::Arch;

/// The release: of this one the links /bin and /lib are in a package. In earlier releases a script makes them, and the scripts
/// of another architecture can't be run.
const SUITE: &str = "trixie";

/// The programs that the live tests call, and a static busybox, which boots the guest.
const PACKAGES: &[&str] = &[
    "base-files",
    "bash",
    "busybox-static",
    "coreutils",
    "dash",
    "diffutils",
    "e2fsprogs",
    "fio",
    "grep",
    "iperf3",
    "iproute2",
    "kmod",
    "libc-bin",
    "libelf1t64",
    "mawk",
    "mount",
    "ncurses-base",
    "procps",
    "sed",
    "util-linux",
    "wireguard-tools",
    "zlib1g",
];

/// The root's folder: the cached one, or a new one.
pub fn fetch(cache: &Cache, arch: Arch) -> Result<PathBuf> {
    let dir = cache.guest_root(arch);
    // A complete folder was renamed to this name.
    if dir.exists() {
        return Ok(dir);
    }
    let _lock = cache.lock(Work::Fetch)?;
    if dir.exists() {
        return Ok(dir);
    }
    let apt = Apt::open(cache, arch, false)?;
    let scratch = cache.scratch()?;
    apt.unpack_with_dependencies(PACKAGES, SUITE, scratch.path())?;
    // Scripts of packages would write these.
    let write = |path: &str, text: &str| {
        let path = scratch.path().join(path);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write(
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    )?;
    write("etc/group", "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n")?;
    write("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n")?;
    write("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n")?;
    for (name, program) in [("sh", "dash"), ("awk", "mawk")] {
        let path = scratch.path().join("usr/bin").join(name);
        if !path.exists() {
            std::os::unix::fs::symlink(program, &path).with_context(|| format!("cannot make {}", path.display()))?;
        }
    }
    let scratch = scratch.keep();
    fs::rename(&scratch, &dir).with_context(|| format!("cannot move {} to {}", scratch.display(), dir.display()))?;
    Ok(dir)
}
