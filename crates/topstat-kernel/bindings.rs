// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Generates the Rust side of a header that eBPF programs include. The build scripts of this crate and of the families include it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use bindgen::callbacks::{DeriveTrait, ImplementsTrait, ParseCallbacks};

/// The folders of headers: `topstat/window.h`, `observe/process.h`.
pub struct Includes {
    /// The engine's.
    pub engine: PathBuf,
    root: PathBuf,
}

impl Includes {
    /// Those of the sources below `root`.
    pub fn below(root: &Path) -> Self {
        Self { engine: root.join("engine/include"), root: root.to_owned() }
    }

    /// In the order in which a compiler searches them.
    pub fn folders(&self) -> [&Path; 2] {
        [&self.engine, &self.root]
    }

    /// As flags of a compiler.
    pub fn flags(&self) -> Vec<String> {
        self.folders().iter().map(|folder| format!("-I{}", folder.display())).collect()
    }
}

/// Types from elsewhere are plain, so types that contain them are plain, too.
#[derive(Debug)]
struct PlainTypes;

impl ParseCallbacks for PlainTypes {
    fn blocklisted_type_implements_trait(&self, _name: &str, what: DeriveTrait) -> Option<ImplementsTrait> {
        let derived = matches!(what, DeriveTrait::Copy | DeriveTrait::Debug | DeriveTrait::Default);
        derived.then_some(ImplementsTrait::Yes)
    }
}

/// Generates the structures and constants of a header, except those that are `elsewhere`: by the prefix of their names, the Rust
/// module that has them. `pod` is the path of the trait of plain old data.
///
/// # Errors
/// A header that does not compile, or has a structure with bytes that belong to no member.
pub fn bindings(header: &Path, includes: &Includes, elsewhere: &[(&str, &str)], pod: &str) -> Result<String> {
    let mut builder = bindgen::Builder::default();
    for (prefix, module) in elsewhere {
        builder = builder
            .blocklist_item(format!("{prefix}_.*"))
            .blocklist_item(format!("{}_.*", prefix.to_uppercase()))
            .raw_line(format!("pub use {module}::*;"));
    }
    let bindings = builder
        .header(header.to_string_lossy())
        .clang_args(includes.flags())
        .allowlist_file(header.to_string_lossy())
        .parse_callbacks(Box::new(PlainTypes))
        .derive_default(true)
        .derive_debug(true)
        .explicit_padding(true)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .use_core()
        .wrap_unsafe_ops(true)
        .generate()
        .with_context(|| format!("cannot generate the Rust side of {}", header.display()))?;
    let bindings = bindings.to_string();
    // Bytes that belong to no member have any value, and constants are compared byte by byte.
    let is_padded = bindings.contains("__bindgen_padding");
    ensure!(!is_padded, "a structure of {} has bytes that belong to no member: add members 'pad'", header.display());
    Ok(format!("{bindings}\n{}", plain_old_data(&bindings, pod)))
}

/// Declares each structure as plain old data: integers and arrays of them, with explicit padding. A structure of unknown length
/// has no values.
fn plain_old_data(bindings: &str, pod: &str) -> String {
    let mut all = String::new();
    for structure in bindings.split("pub struct ").skip(1) {
        let Some((name, rest)) = structure.split_once(" {") else { continue };
        let fields = rest.split_once("\n}").map_or(rest, |(fields, _)| fields);
        if !["*const", "*mut", "__IncompleteArrayField", "bool"].iter().any(|no| fields.contains(no)) {
            let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            assert!(is_name, "{name} is no structure of C");
            all += &format!("// SAFETY: integers and arrays of them.\nunsafe impl {pod} for {name} {{}}\n");
        }
    }
    all
}
