// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The families of samples, as the build found them.

use crate::family::Family;

/// The types that a family's programs and this crate share, generated from the family's header. Its structures begin with the
/// structures that all families have in maps, and the compiler checks the layout against clang's.
macro_rules! abi {
    ($family:literal) => {
        #[allow(
            non_camel_case_types,
            missing_docs,
            unreachable_pub,
            dead_code,
            unused_imports,
            clippy::undocumented_unsafe_blocks
        )]
        mod abi {
            include!(concat!(env!("OUT_DIR"), "/", $family, "/abi.rs"));
        }
    };
}

/// The compiled programs of a family: `object!("inet/probe.bpf.o")`.
macro_rules! object {
    ($path:literal) => {
        include_bytes!(concat!(env!("OUT_DIR"), "/", $path, ".deflate")).as_slice()
    };
}

include!(concat!(env!("OUT_DIR"), "/families.rs"));

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{LAYOUTS, all};

    /// The build script runs again for a changed file of a family that it knows, but not for a new folder.
    #[test]
    fn every_family_is_compiled() {
        let families = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../families");
        let has_programs = |folder: &Path| {
            fs::read_dir(folder).is_ok_and(|mut all| {
                all.any(|file| file.is_ok_and(|file| file.file_name().to_string_lossy().ends_with(".bpf.c")))
            })
        };
        let folders = fs::read_dir(&families).expect("the families").map(|entry| entry.expect("a family").path());
        let mut folders: Vec<_> = folders
            .filter(|folder| has_programs(folder))
            .map(|folder| folder.file_name().expect("a name").to_string_lossy().into_owned())
            .collect();
        folders.sort();
        let unlisted = ["custom", "example"].map(str::to_owned);
        let mut compiled: Vec<_> = all().into_iter().map(|family| family.name).chain(unlisted).collect();
        compiled.sort();
        let do_this = "a new family is compiled after `touch crates/topstat-kernel/build.rs`";
        assert_eq!(folders, compiled, "{do_this}");
    }

    /// Later builds read pinned state. Each family's layout is kept in `families/<family>/abi-<number>.txt`. `UPDATE_GOLDEN=1`
    /// writes the file of a number that has no file yet.
    #[test]
    fn a_layout_that_differs_has_another_abi() {
        // The structures for reading counters are never pinned.
        for family in all()
            .into_iter()
            .chain([super::example::unlisted()])
            .filter(|family| matches!(family.kind, crate::family::Kind::Ranked(_)))
        {
            let (name, abi) = (&family.name, family.abi);
            let (_, layout) = LAYOUTS.iter().find(|(family, _)| family == name).expect("each has a layout");
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../families/{name}/abi-{abi}.txt"));
            if std::env::var_os("UPDATE_GOLDEN").is_some() && !file.exists() {
                fs::write(&file, layout).expect("write it");
            }
            let kept = fs::read_to_string(&file).unwrap_or_else(|e| {
                panic!("{}: {e}; UPDATE_GOLDEN=1 writes it, once the ABI has its final layout", file.display())
            });
            let differs: Vec<_> = layout
                .lines()
                .filter(|l| !kept.lines().any(|k| k == *l))
                .map(|l| format!("+ {l}"))
                .chain(kept.lines().filter(|k| !layout.lines().any(|l| l == *k)).map(|k| format!("- {k}")))
                .collect();
            assert!(
                differs.is_empty(),
                "the layout of {name} is not that of its ABI {abi}: what is pinned would be misread. Raise the ABI in \
                 {name}.h, remove {}, and have the new one written by UPDATE_GOLDEN=1. If no release has had ABI {abi}, \
                 only the last two.\n{}",
                file.display(),
                differs.join("\n")
            );
        }
    }
}
