// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lists in documents have to be complete. `UPDATE_GOLDEN=1 cargo test -p topstat documents` writes the lists anew.

use std::fs;
use std::path::{Path, PathBuf};

use topstat_model::TableType;

fn document(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Compares the lines of a table, from the line that begins with `first` to the last line of the table.
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
fn the_page_of_samples_lists_every_sample_and_table() {
    let mut wanted = "| sample | what is ranked | tables |\n|---|---|---|\n".to_owned();
    for sample in topstat_families::catalogue().samples() {
        let tables = sample.tables.iter().map(|table| match table.kind {
            TableType::Dynamic => format!("`{}`", table.name),
            TableType::Static => format!("`{}` (running total)", table.name),
        });
        let tables = tables.collect::<Vec<_>>().join(", ");
        wanted += &format!("| `{}` | {} | {tables} |\n", sample.name, sample.about);
    }
    check_table("docs/samples.md", "| sample | what is ranked | tables |", &wanted);
}

#[test]
fn every_family_has_a_page_of_its_samples() {
    for family in topstat_families::catalogue().families() {
        let page = format!("families/{}/README.md", family.name);
        assert!(document(&page).exists(), "there is no {page}");
        let text = fs::read_to_string(document(&page)).expect("just seen");
        for sample in &family.samples {
            let common = sample.variant.as_ref().is_some_and(|variant| text.contains(&variant.of));
            assert!(common || text.contains(&sample.name), "{page} says nothing of {}", sample.name);
        }
    }
}

/// All documents of the project, by path.
fn documents() -> Vec<PathBuf> {
    /// Folders with build results and caches, which are not part of the project.
    const OTHERS: [&str; 3] = ["target", ".git", ".cache"];
    let root = document("").canonicalize().expect("the project");
    let mut folders = vec![root];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry")) {
            let (path, kind) = (entry.path(), entry.file_type().expect("its type"));
            if kind.is_dir() && !OTHERS.iter().any(|other| entry.file_name() == *other) {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                found.push(path);
            }
        }
    }
    found
}

/// The anchors that GitHub makes of headings.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    headings.map(|heading| heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
}

#[test]
fn what_documents_link_to_is_there() {
    let (mut dead, mut links) = (Vec::new(), 0);
    for path in documents() {
        let text = fs::read_to_string(&path).expect("a document");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            links += 1;
            let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
            let to = if file.is_empty() { path.clone() } else { path.with_file_name(file) };
            let has =
                |anchor: &str| fs::read_to_string(&to).is_ok_and(|text| anchors(&text).iter().any(|a| a == anchor));
            if !to.exists() || anchor.is_some_and(|anchor| !has(anchor)) {
                dead.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(links > 50, "only {links} links are found: the test is wrong");
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}
