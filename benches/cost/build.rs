// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the programs that topstat is compared with.

#[path = "../../crates/topstat-kernel/clang.rs"]
mod clang;

use std::env;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use libbpf_cargo::SkeletonBuilder;

fn main() -> Result<()> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // The kernel's types, as observers have them.
    let root = here.join("../..");
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-changed={}", root.join("observe").display());
    for name in ["hooks", "tasks"] {
        let source = here.join(format!("bpf/{name}.bpf.c"));
        SkeletonBuilder::new()
            .source(&source)
            .obj(out.join(format!("{name}.bpf.o")))
            .clang(clang::find()?)
            .clang_args(clang::flags(&[&root])?)
            .build()
            .with_context(|| format!("cannot compile {}", source.display()))?;
    }
    Ok(())
}
