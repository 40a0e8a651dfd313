// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's own description of taskstats, which tests take for the truth.

use std::env;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

fn main() -> Result<()> {
    let out = PathBuf::from(env::var("OUT_DIR")?).join("taskstats.rs");
    println!("cargo:rerun-if-changed=build.rs");
    bindgen::Builder::default()
        .header_contents("taskstats.h", "#include <linux/taskstats.h>")
        .allowlist_type("taskstats")
        .allowlist_var("TASKSTATS_.*")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_default(true)
        .layout_tests(false)
        .generate()
        .context("cannot read linux/taskstats.h (on Debian: apt-get install linux-libc-dev)")?
        .write_to_file(out)?;
    Ok(())
}
