// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the programs that topstat is compared with.

#[path = "../../crates/topstat-samples/clang.rs"]
mod clang;

use std::env;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use libbpf_cargo::SkeletonBuilder;

fn main() -> Result<()> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // The kernel's types, as the samples have them.
    let types = here.join("../../crates/topstat-samples/src/bpf");
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-changed={}", types.display());
    let source = here.join("bpf/hooks.bpf.c");
    SkeletonBuilder::new()
        .source(&source)
        .obj(out.join("hooks.bpf.o"))
        .clang(clang::find()?)
        .clang_args(clang::flags(&types)?)
        .build()
        .with_context(|| format!("cannot compile {}", source.display()))?;
    Ok(())
}
