// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the eBPF programs, and generates the Rust side of the headers that they share with this crate. Every folder
//! `families/<family>` that holds a `*.bpf.c` is a family of samples. It has a header `<family>.h` and a `mod.rs` with a function
//! `family()`. No list has to name it.

#[path = "../crates/topstat-kernel/bindings.rs"]
mod bindings;
#[path = "../crates/topstat-kernel/clang.rs"]
mod clang;

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use bindings::{Includes, bindings};
use libbpf_cargo::SkeletonBuilder;

fn main() -> Result<()> {
    let families = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).canonicalize()?;
    let root = families.parent().context("the folder of families has no parent")?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let includes = Includes::below(root);
    let clang = clang::find()?;
    let flags = clang::flags(&includes.folders())?;
    println!("cargo:rerun-if-changed={}", root.join("observe").display());
    for shared in ["bindings.rs", "clang.rs"] {
        println!("cargo:rerun-if-changed=../crates/topstat-kernel/{shared}");
    }
    println!("cargo:rerun-if-changed={}", includes.engine.display());
    println!("cargo:rerun-if-env-changed=CLANG");

    let mut list = String::new();
    let (mut names, mut members) = (Vec::new(), Vec::new());
    for family in folders(&families)? {
        let programs = files(&family, ".bpf.c")?;
        if programs.is_empty() {
            continue;
        }
        // The files, not the folder: a change of its live tests would compile every crate again. A test finds a new family.
        for file in files(&family, "")?.iter().filter(|file| file.is_file()) {
            println!("cargo:rerun-if-changed={}", file.display());
        }
        let name = family.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let family_out = out.join(&name);
        fs::create_dir_all(&family_out)?;
        let plain = [flags.as_slice(), &["-DTOPSTAT_PLAIN".to_owned()]].concat();
        let sources = rust_sources(&family)?;
        for program in programs {
            for (ending, flags) in [(".bpf.o", &flags), (".plain.bpf.o", &plain)] {
                let object = program.file_name().unwrap_or_default().to_string_lossy().replace(".bpf.c", ending);
                // The fallback build is for families that name it: see `Builds::or_fallback`.
                if ending == ".plain.bpf.o" && !sources.contains(&format!("{name}/{object}\"")) {
                    continue;
                }
                let object = family_out.join(object);
                SkeletonBuilder::new()
                    .source(&program)
                    .obj(&object)
                    .clang(&clang)
                    .clang_args(flags)
                    .build()
                    .with_context(|| format!("cannot compile {}", program.display()))?;
                pack(&object)?;
            }
        }
        let header = family.join(format!("{name}.h"));
        let abi = bindings(&header, &includes, &SHARED_TYPES, "topstat_kernel::bpf::Pod")?;
        fs::write(family_out.join("abi.rs"), abi.clone() + &expectations(&abi))?;
        layout(&header, &includes, &family_out.join("layout.txt"))?;
        writeln!(list, "#[path = {:?}]\npub mod {name};", family.join("mod.rs"))?;
        // The example, and families that users define at run time, have no `family()`.
        if sources.contains("pub fn family()") {
            members.push(name.clone());
        }
        names.push(name);
    }
    let members: String = members.iter().map(|n| format!("{n}::family(), ")).collect();
    let layouts: String = names
        .iter()
        .map(|n| format!("(\"{n}\", include_str!(concat!(env!(\"OUT_DIR\"), \"/{n}/layout.txt\"))), "))
        .collect();
    writeln!(
        list,
        "/// The layout of what each of them has in maps.\n#[cfg(test)]\npub static LAYOUTS: &[(&str, &str)] = &[{layouts}];"
    )?;
    writeln!(
        list,
        "/// All families, by the names of their folders.\npub fn all() -> Vec<Family> {{\n    vec![{members}]\n}}"
    )?;
    fs::write(out.join("families.rs"), list)?;
    Ok(())
}

/// Packs an object for the program that contains it: all objects together have 3.7 MB, and 0.9 MB when they are packed.
fn pack(object: &Path) -> Result<()> {
    const BEST: u8 = 9;
    let bytes = fs::read(object).with_context(|| format!("cannot read {}", object.display()))?;
    let packed = object.with_extension("o.deflate");
    fs::write(&packed, miniz_oxide::deflate::compress_to_vec(&bytes, BEST))
        .with_context(|| format!("cannot write {}", packed.display()))
}

/// The text of a family's Rust files.
fn rust_sources(family: &Path) -> Result<String> {
    let read = |file: &PathBuf| fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()));
    files(family, ".rs")?.iter().map(read).collect()
}

/// The types of other headers that families' headers include: the prefix of their names, and their Rust module. There is one Rust
/// type for each.
const SHARED_TYPES: [(&str, &str); 3] =
    [("ts", "topstat_engine::abi"), ("process", "topstat_kernel::process::abi"), ("stream", "topstat_consumer::abi")];

/// Checks for what readers expect of the structures of all families of ranked tables.
fn expectations(bindings: &str) -> String {
    let mut all = String::new();
    for (structure, field, must) in [
        ("_row", "row: ts_row", "offset_of!({}, row) == 0"),
        ("_row", "row: ts_row", "size_of::<{}>().is_multiple_of(8)"),
        ("_section", "head: ts_section", "offset_of!({}, head) == 0"),
        ("_settings", "all: ts_settings", "offset_of!({}, config) == size_of::<ts_settings>()"),
        ("_constants", "shape: ts_shape", "offset_of!({}, shape) == 0"),
    ] {
        for found in bindings.split("pub struct ").skip(1) {
            let Some((name, rest)) = found.split_once(" {") else { continue };
            let fields = rest.split_once("\n}").map_or(rest, |(fields, _)| fields);
            if name.ends_with(structure) && fields.contains(&format!("pub {field},")) {
                all += &format!("const _: () = assert!({});\n", must.replace("{}", name));
            }
        }
    }
    if all.is_empty() { all } else { format!("use core::mem::{{offset_of, size_of}};\n{all}") }
}

/// Writes the layout of the maps that a header describes, a line for each size, offset and number. A test compares it with the
/// layout at the time when the family's ABI last got another number.
fn layout(header: &Path, includes: &Includes, out: &Path) -> Result<()> {
    // Structures that are only in sections of readers, arguments, records and the benchmark are never pinned.
    let mut passing =
        vec!["_head", "_row", "_section", "_section_args", "_refill", "_found", "_bench", "_value", "_view"];
    // These are not pinned where nothing is kept of ended objects.
    if !fs::read_to_string(header)?.contains(" ts_kept ") {
        passing.extend(["ts_kept", "ts_ended"]);
    }
    let bindings = bindgen::Builder::default()
        .header(header.to_string_lossy())
        .clang_args(includes.flags())
        .allowlist_file(header.to_string_lossy())
        // Headers that families share: an object may hold their structures.
        .allowlist_file(".*/observe/[a-z]+\\.h")
        .allowlist_file(format!("{}/.*", includes.engine.display()))
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .use_core()
        .generate()
        .with_context(|| format!("cannot lay out {}", header.display()))?
        .to_string();
    let mut lines = std::collections::BTreeSet::new();
    for line in bindings.lines().map(str::trim) {
        // ["Offset of field: inet_object::id"][core::mem::offset_of!(inet_object, id) - 0usize];
        if let Some((what, rest)) = line.strip_prefix("[\"").and_then(|l| l.split_once("\"]["))
            && let Some((_, number)) = rest.rsplit_once(" - ")
        {
            let name = what.rsplit(' ').next().unwrap_or_default();
            let structure = name.split("::").next().unwrap_or_default();
            if !passing.iter().any(|p| structure.ends_with(p)) {
                lines.insert(format!("{name} {} {}", kind(what), number.trim_end_matches("usize];")));
            }
        } else if let Some((name, rest)) = line.strip_prefix("pub const ").and_then(|l| l.split_once(':'))
            && name.starts_with(|c: char| c.is_ascii_uppercase())
            && let Some((_, value)) = rest.split_once(" = ")
        {
            lines.insert(format!("{name} = {}", value.trim_end_matches(';')));
        }
    }
    fs::write(out, lines.into_iter().fold(String::new(), |all, line| all + &line + "\n"))?;
    Ok(())
}

/// The kind of a line by which bindgen checks a layout.
fn kind(what: &str) -> &'static str {
    match what.split(' ').next() {
        Some("Size") => "size",
        Some("Alignment") => "alignment",
        _ => "at",
    }
}

fn folders(families: &Path) -> Result<Vec<PathBuf>> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(families)?.filter_map(|e| e.ok().map(|e| e.path())).filter(|p| p.is_dir()).collect();
    all.sort();
    Ok(all)
}

fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut all: Vec<PathBuf> = fs::read_dir(folder)?
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.to_string_lossy().ends_with(ending))
        .collect();
    all.sort();
    Ok(all)
}
