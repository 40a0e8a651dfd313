// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Generates the Rust side of observe/stream.h. With the feature `writes`, it also compiles the source of events that tests and
//! benches use.

#[cfg(feature = "writes")]
#[path = "../topstat-kernel/clang.rs"]
mod clang;

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

fn main() -> Result<()> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../..").canonicalize()?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    for read in ["observe", "engine/include/topstat/platform.h"] {
        println!("cargo:rerun-if-changed={}", root.join(read).display());
    }
    let header = root.join("observe/stream.h");
    bindgen::Builder::default()
        .header(header.to_string_lossy())
        .clang_args([format!("-I{}", root.join("engine/include").display()), format!("-I{}", root.display())])
        .allowlist_file(header.to_string_lossy())
        .derive_default(true)
        .derive_debug(true)
        .use_core()
        .generate()
        .with_context(|| format!("cannot generate the Rust side of {}", header.display()))?
        .write_to_file(out.join("abi.rs"))?;
    programs(&root, &out)
}

#[cfg(not(feature = "writes"))]
fn programs(_root: &Path, _out: &Path) -> Result<()> {
    Ok(())
}

#[cfg(feature = "writes")]
fn programs(root: &Path, out: &Path) -> Result<()> {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-changed=../topstat-kernel/clang.rs");
    println!("cargo:rerun-if-env-changed=CLANG");
    let source = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("bpf/writes.bpf.c");
    let flags = clang::flags(&[&root.join("engine/include"), root])?;
    libbpf_cargo::SkeletonBuilder::new()
        .source(&source)
        .obj(out.join("writes.bpf.o"))
        .clang(clang::find()?)
        .clang_args(&flags)
        .build()
        .with_context(|| format!("cannot compile {}", source.display()))
}
