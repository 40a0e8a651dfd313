// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What documents list is what there is. `UPDATE_GOLDEN=1 cargo test -p topstat documents` writes the lists anew.

use std::fs;
use std::path::{Path, PathBuf};

use topstat_model::TableType;

fn document(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The lines from the one that begins with `first` to the last of the table.
fn check_table(path: &str, first: &str, wanted: &str) {
    let file = document(path);
    let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{path}: {e}"));
    let begin = text.find(first).unwrap_or_else(|| panic!("{path} has no line {first:?}"));
    let end = text[begin..].find("\n\n").map_or(text.len(), |length| begin + length + 1);
    let found = &text[begin..end];
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        return fs::write(&file, text.replacen(found, wanted, 1)).unwrap_or_else(|e| panic!("{path}: {e}"));
    }
    assert_eq!(found, wanted, "{path} does not list what there is (UPDATE_GOLDEN=1 writes it anew)");
}

#[test]
fn the_readme_lists_every_sample_and_table() {
    let mut wanted = "| sample | what is ranked | tables |\n|---|---|---|\n".to_owned();
    for sample in topstat_kernel::samples() {
        let tables = sample.tables.iter().map(|table| match table.kind {
            TableType::Dynamic => format!("`{}`", table.name),
            TableType::Static => format!("`{}` (running total)", table.name),
        });
        let tables = tables.collect::<Vec<_>>().join(", ");
        wanted += &format!("| `{}` | {} | {tables} |\n", sample.name, sample.about);
    }
    check_table("README.md", "| sample |", &wanted);
}

#[test]
fn every_family_has_a_page_of_its_samples() {
    for family in topstat_kernel::families() {
        let page = format!("families/{}/README.md", family.name);
        assert!(document(&page).exists(), "there is no {page}");
        let text = fs::read_to_string(document(&page)).expect("just seen");
        for sample in &family.samples {
            let common = sample.variant.as_ref().is_some_and(|variant| text.contains(&variant.of));
            assert!(common || text.contains(&sample.name), "{page} says nothing of {}", sample.name);
        }
    }
}
