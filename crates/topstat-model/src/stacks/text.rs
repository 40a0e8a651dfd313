// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A table of samples as text for people: the sampling, the rows, and the functions without a category.

use std::fmt::Write as _;

use super::{Besides, By, Category, Picture, Row, Table, percent};
use crate::text::TextOptions;
use crate::time::rfc3339;
use crate::typeset::{Keep, escape, shrink, width};

/// The number of functions without a category that are named.
const UNKNOWN_SHOWN: usize = 5;

/// The lines besides the rows: the title, the sampling, the names of columns, the samples that are not shown, and the unknown
/// functions if there are any.
pub fn lines_besides(table: &Table) -> usize {
    4 + usize::from(!table.unknown.is_empty())
}

pub fn write(picture: &Picture, room: usize, options: TextOptions, written: &mut Vec<u8>) {
    let table = picture.table();
    let mut lines = vec![(title(picture), true), (summary(picture), false)];
    let shown = &table.rows[..room.min(table.rows.len())];
    if table.rows.is_empty() {
        lines.push(("no samples in the kernel".to_owned(), false));
    } else {
        lines.extend(rows(picture, shown));
    }
    let other = table.other + table.rows[shown.len()..].iter().map(|row| row.samples).sum::<u64>();
    if other > 0 {
        lines.push((format!("{other} samples of rows that are not shown"), false));
    }
    if !table.unknown.is_empty() {
        let names: Vec<String> =
            table.unknown.iter().take(UNKNOWN_SHOWN).map(|(name, count)| format!("{} {count}", escape(name))).collect();
        let more = table.unknown.len().saturating_sub(UNKNOWN_SHOWN);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        lines.push((format!("unclassified: {}{more}", names.join(", ")), false));
    }
    for (line, bold) in lines {
        let line = options.width.map_or(line.as_str().into(), |cells| shrink(&line, cells, Keep::Start));
        let (on, off) = if bold && options.color { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        written.extend(format!("{on}{line}{off}\n").bytes());
    }
}

fn title(picture: &Picture) -> String {
    let profile = picture.profile;
    let mut title = format!("netstack {}  {}", picture.choice.by.name(), rfc3339(profile.time));
    let (event, hz) = (profile.event.name(), profile.hz);
    let _ = write!(title, "  in {:.3} s  {event} at {hz} Hz", profile.elapsed.as_secs_f64());
    let _ = write!(title, "  {} view", picture.choice.view.name());
    title
}

fn summary(picture: &Picture) -> String {
    let (profile, table) = (picture.profile, picture.table());
    let Besides { user, idle, lost, missed } = profile.besides;
    let (total, kernel) = (profile.total(), profile.kernel());
    let mut summary = format!("{total} samples: {kernel} kernel, {user} user, {idle} idle");
    for (count, what) in [(lost, "lost"), (missed, "missed besides"), (kernel - table.chosen, "filtered")] {
        if count > 0 {
            let _ = write!(summary, ", {count} {what}");
        }
    }
    let share = |part| percent(part, table.chosen);
    let (caller, unknown) = (share(table.by_caller), share(table.unclassified()));
    let _ = write!(summary, "; {caller:.1}% by caller, {unknown:.1}% unclassified");
    summary
}

/// The line of column names, and the lines of the rows.
fn rows(picture: &Picture, shown: &[Row]) -> Vec<(String, bool)> {
    let (by, chosen) = (picture.choice.by, picture.table().chosen);
    let mut table = vec![Vec::new(); shown.len() + 1];
    let head = ["percent", "samples"].into_iter().map(str::to_owned);
    let categories = Category::ALL.iter().filter(|_| by.is_split()).map(|category| category.name().to_owned());
    table[0] = head.chain(categories).collect();
    for (cells, row) in table[1..].iter_mut().zip(shown) {
        cells.push(format!("{:.1}", percent(row.samples, chosen)));
        cells.push(row.samples.to_string());
        if by.is_split() {
            cells.extend(row.categories.iter().map(|part| format!("{:.1}", percent(*part, row.samples))));
        }
    }
    let widths: Vec<usize> =
        (0..table[0].len()).map(|column| table.iter().map(|cells| width(&cells[column])).max().unwrap_or(0)).collect();
    let keys = keys(by, shown);
    let line = |(number, (cells, key)): (usize, (&Vec<String>, String))| {
        let cells: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, wide)| format!("{}{cell}", " ".repeat(wide - width(cell)))).collect();
        (format!("{}  {key}", cells.join("  ")).trim_end().to_owned(), number == 0)
    };
    table.iter().zip(keys).enumerate().map(line).collect()
}

/// The keys of rows, below the names of their columns.
fn keys(by: By, shown: &[Row]) -> Vec<String> {
    let head: Vec<String> = by.columns().iter().map(|name| (*name).to_owned()).collect();
    let escaped = shown.iter().map(|row| row.key.iter().map(|word| escape(word).into_owned()).collect());
    let table: Vec<Vec<String>> = [head].into_iter().chain(escaped).collect();
    let wide = |column: usize| table.iter().map(|cells: &Vec<String>| width(&cells[column])).max().unwrap_or(0);
    let widths: Vec<usize> = (0..by.columns().len()).map(wide).collect();
    let line = |cells: &Vec<String>| {
        let padded = cells.iter().zip(&widths).map(|(cell, wide)| format!("{cell}{}", " ".repeat(wide - width(cell))));
        padded.collect::<Vec<_>>().join("  ")
    };
    table.iter().map(line).collect()
}
