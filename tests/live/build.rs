// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the tests in `tests` and in `families/<name>/live`, and generates bindings of the kernel's description of taskstats,
//! which tests compare topstat with.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

fn main() -> Result<()> {
    let own = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo:rerun-if-changed=build.rs");
    fs::write(out.join("modules.rs"), modules(&own.join("tests"), &own.join("../../families").canonicalize()?)?)?;
    taskstats(&out.join("taskstats.rs"))
}

/// A file of tests, or of the code that other processes run for them.
struct Module {
    file: PathBuf,
    name: String,
    cases: bool,
    roles: bool,
}

/// The source of all modules, and the lists of their cases and roles.
fn modules(own: &Path, families: &Path) -> Result<String> {
    let (mut text, mut cases, mut roles) = (String::new(), String::new(), String::new());
    let mut enter = |path: &str, module: &Module| {
        if module.cases {
            cases += &format!("    (\"{path}\", {path}::cases()),\n");
        }
        if module.roles {
            roles += &format!("    {path}::play,\n");
        }
    };
    for folder in sorted(families)?.iter().map(|family| family.join("live")).filter(|folder| folder.is_dir()) {
        let family = name(folder.parent().context("a family")?);
        writeln!(text, "mod {family} {{")?;
        for module in found(&folder)? {
            writeln!(text, "    #[path = {:?}]\n    pub mod {};", module.file, module.name)?;
            enter(&format!("{family}::{}", module.name), &module);
        }
        writeln!(text, "}}")?;
    }
    for module in found(own)?.iter().filter(|module| module.name != "main") {
        writeln!(text, "#[path = {:?}]\nmod {};", module.file, module.name)?;
        enter(&module.name, module);
    }
    // The date of `families` changes with a new folder of a family.
    println!("cargo:rerun-if-changed={}", families.display());
    println!("cargo:rerun-if-changed={}", own.display());
    writeln!(text, "/// All tests, by the names of their modules.")?;
    writeln!(text, "fn cases() -> Vec<(&'static str, Vec<topstat_live::Case>)> {{\n    vec![\n{cases}    ]\n}}")?;
    writeln!(text, "/// What plays the roles of other processes.")?;
    writeln!(text, "const ROLES: &[Play] = &[\n{roles}];")?;
    Ok(text)
}

fn found(folder: &Path) -> Result<Vec<Module>> {
    let files = sorted(folder)?.into_iter().filter(|file| file.extension().is_some_and(|ending| ending == "rs"));
    files
        .map(|file| {
            let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let has = |function: &str| text.lines().any(|line| line.trim_start().starts_with(function));
            let (cases, roles) = (has("pub fn cases()"), has("pub fn play("));
            Ok(Module { name: name(&file), cases, roles, file })
        })
        .collect()
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut all = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    all.sort();
    Ok(all)
}

/// The name of a folder, or of a module's file.
fn name(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn taskstats(out: &Path) -> Result<()> {
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
