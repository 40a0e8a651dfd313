// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A table of samples as CSV: a record for each row, then the records of samples without a row. `docs/netstack.md` describes it.

use std::io;

use super::{Besides, Category, Picture};
use crate::csv::text;
use crate::sink::Records;
use crate::time::rfc3339;

pub fn columns(picture: &Picture) -> Vec<String> {
    let by = picture.choice.by;
    let categories = Category::ALL.iter().filter(|_| by.is_split()).map(|category| category.name());
    let fixed = ["time", "table", "view"];
    fixed.iter().chain(by.columns()).copied().chain(["samples"]).chain(categories).map(str::to_owned).collect()
}

pub fn records(picture: &Picture, records: &mut Records) -> io::Result<()> {
    let (table, by) = (picture.table(), picture.choice.by);
    let before = [rfc3339(picture.profile.time), by.name().to_owned(), picture.choice.view.name().to_owned()];
    let width = by.columns().len() - 1;
    let parts = if by.is_split() { Category::ALL.len() } else { 0 };
    for row in &table.rows {
        let key = row.key.iter().map(|word| text(word).into_owned());
        let counts = [row.samples].into_iter().chain(row.categories.into_iter().take(parts)).map(|n| n.to_string());
        records.write_record(before.iter().cloned().chain(key).chain(counts))?;
    }
    let Besides { user, idle, lost, missed } = picture.profile.besides;
    for (name, count) in [
        ("other", table.other),
        ("total", table.chosen),
        ("by name", table.by_name),
        ("by caller", table.by_caller),
        ("unclassified", table.unclassified()),
        ("filtered", picture.profile.kernel() - table.chosen),
        ("idle", idle),
        ("user", user),
        ("lost", lost),
        ("missed", missed),
    ] {
        let key = [format!("({name})")].into_iter().chain(std::iter::repeat_n(String::new(), width));
        let counts = [count.to_string()].into_iter().chain(std::iter::repeat_n(String::new(), parts));
        records.write_record(before.iter().cloned().chain(key).chain(counts))?;
    }
    Ok(())
}
