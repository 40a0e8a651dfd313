// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The compiler of eBPF programs and its options: for the build scripts of this crate and of `benches/cost`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

/// The oldest clang whose programs are known to load on all kernels. Programs of clang 14, 15 and 16 take more stack than Linux
/// 6.1 allows, and these versions do not assemble an exchange.
const CLANG_MIN: u32 = 19;

/// `CLANG`, or the newest version that is installed.
pub fn find() -> Result<PathBuf> {
    if let Some(clang) = env::var_os("CLANG") {
        return Ok(clang.into());
    }
    let versioned = (CLANG_MIN..=30).rev().map(|v| format!("clang-{v}"));
    for clang in versioned.chain(["clang".to_owned()]) {
        if version(&clang).is_some_and(|version| version >= CLANG_MIN) {
            return Ok(clang.into());
        }
    }
    bail!("clang is not installed (version {CLANG_MIN} or later); on Debian: apt-get install clang-19")
}

fn version(clang: &str) -> Option<u32> {
    let asked = Command::new(clang).arg("-dumpversion").output().ok().filter(|output| output.status.success())?;
    String::from_utf8(asked.stdout).ok()?.split('.').next()?.trim().parse().ok()
}

/// Its options, with the folders of headers.
pub fn flags(includes: &[&Path]) -> Result<Vec<String>> {
    let arch = match env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        "s390x" => "s390",
        other => bail!("no eBPF programs for architecture {other}: topstat knows x86_64, aarch64 and s390x"),
    };
    let mut flags: Vec<String> = includes.iter().map(|folder| format!("-I{}", folder.display())).collect();
    flags.extend([
        format!("-D__TARGET_ARCH_{arch}"),
        "-mcpu=v3".to_owned(),
        "-Wall".to_owned(),
        "-Wextra".to_owned(),
        "-Werror".to_owned(),
        "-Wno-unused-parameter".to_owned(),
    ]);
    // The objects name their sources in lines of BTF. Builds in two folders are to have equal bytes.
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../..").canonicalize()?;
    flags.push(format!("-ffile-prefix-map={}/=", root.display()));
    // Debian keeps <asm/types.h>, which <linux/bpf.h> includes, in a folder of the machine's. It defines the same types for each
    // architecture.
    let multiarch = PathBuf::from(format!("/usr/include/{}-linux-gnu", env::consts::ARCH));
    if multiarch.exists() {
        flags.push(format!("-I{}", multiarch.display()));
    }
    Ok(flags)
}
