// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The families of samples, as the build found them. One folder holds a whole family: its eBPF programs, the header that they
//! share with this crate, and the Rust side; see `build.rs`. `topstat-kernel` loads and reads families, and knows none of them.

mod udp;

use topstat_kernel::Catalogue;
use topstat_kernel::family::Family;

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

/// The catalogue of this process. The first call registers all families, so each program calls it at its beginning.
pub fn catalogue() -> &'static Catalogue {
    Catalogue::of(all)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use topstat_kernel::Counting;
    use topstat_kernel::family::{Family, Ranked};

    use super::{LAYOUTS, all, catalogue};

    /// The build script runs again for a changed file of a family that it knows, but not for a new folder.
    #[test]
    fn every_family_is_compiled() {
        let families = Path::new(env!("CARGO_MANIFEST_DIR"));
        let has_programs = |folder: &Path| {
            fs::read_dir(folder).is_ok_and(|mut all| {
                all.any(|file| file.is_ok_and(|file| file.file_name().to_string_lossy().ends_with(".bpf.c")))
            })
        };
        let folders = fs::read_dir(families).expect("the families").map(|entry| entry.expect("a family").path());
        let mut folders: Vec<_> = folders
            .filter(|folder| has_programs(folder))
            .map(|folder| folder.file_name().expect("a name").to_string_lossy().into_owned())
            .collect();
        folders.sort();
        let unlisted = ["custom", "example"].map(str::to_owned);
        let mut compiled: Vec<_> = all().into_iter().map(|family| family.name).chain(unlisted).collect();
        compiled.sort();
        let do_this = "a new family is compiled after `touch families/build.rs`";
        assert_eq!(folders, compiled, "{do_this}");
    }

    /// Later builds read pinned state. Each family's layout is kept in `families/<family>/abi-<number>.txt`. `UPDATE_GOLDEN=1`
    /// writes the file of a number that has no file yet.
    #[test]
    fn a_layout_that_differs_has_another_abi() {
        // The structures for reading counters are never pinned.
        let ranked = |family: &Family| family.kind_as::<Ranked>().is_some();
        for family in all().into_iter().chain([super::example::unlisted()]).filter(ranked) {
            let (name, abi) = (&family.name, family.abi);
            let (_, layout) = LAYOUTS.iter().find(|(family, _)| family == name).expect("each has a layout");
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("{name}/abi-{abi}.txt"));
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

    #[test]
    fn no_column_of_the_events_of_a_table_has_the_name_of_another_one() {
        for table in catalogue().samples().iter().flat_map(|sample| &sample.tables) {
            for kind in topstat_kernel::events::kinds_of_top(table) {
                let mut names: Vec<_> = kind.columns.iter().map(|column| column.column.name.clone()).collect();
                names.extend(["time", "cpu", "seq", "source", "event", "late"].map(Into::into));
                let all = names.len();
                names.sort_unstable();
                names.dedup();
                assert_eq!(names.len(), all, "{} {}", table.path(), kind.name);
            }
        }
    }

    /// Programs of samples and events are found by their names while they are attached.
    #[test]
    fn every_family_that_attaches_programs_names_them() {
        for family in all() {
            // Stacks are sampled by programs that a reader holds open.
            let attaches = family.kind_as::<Counting>().is_none() && family.name != "netstack";
            assert_eq!(!family.programs().is_empty(), attaches, "{}", family.name);
        }
    }
}
