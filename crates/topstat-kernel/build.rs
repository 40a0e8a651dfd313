// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Generates the Rust side of the header of processes, which the observers of all families include.

mod bindings;

use std::env;
use std::fs;
use std::path::PathBuf;

use anyhow::Result;

fn main() -> Result<()> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../..").canonicalize()?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let header = root.join("observe/process.h");
    println!("cargo:rerun-if-changed={}", header.display());
    println!("cargo:rerun-if-changed=bindings.rs");
    let includes = bindings::Includes::below(&root);
    println!("cargo:rerun-if-changed={}", includes.engine.display());
    fs::write(out.join("process.rs"), bindings::bindings(&header, &includes, &[], "crate::bpf::Pod")?)?;
    Ok(())
}
