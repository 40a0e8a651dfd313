// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The meaning of the chosen table: its columns, and the words that qualify its figures.

use ratatui::layout::Rect;
use topstat_model::{TableType, human_ms};

use super::pen::{BOLD, Ink, PLAIN, Pen, cells};
use crate::state::App;

/// The meanings of columns that several samples have.
const COLUMNS: &[(&str, &str)] = &[
    ("pid", "the process"),
    ("comm", "the name of the process, as the kernel keeps it: 15 characters"),
    ("cgroup", "the control group of the process: its container, service or pod"),
    ("netns", "the network namespace, by its inode number"),
    ("sip", "the address of this host's end"),
    ("sport", "the port of this host's end"),
    ("dip", "the address of the other end"),
    ("dport", "the port of the other end"),
    ("host", "the address of the other host"),
    ("port", "the port that is served here, or that is connected to"),
    ("proto", "TCP or UDP"),
    ("side", "whether this host serves the port, or connects to it"),
    ("device", "the disk"),
    ("in_flight", "requests that have begun and not ended"),
    ("closed", "the object has ended; its row stays until its last event is older than the period"),
    ("counter", "the name of the kernel's counter"),
];

/// The words that qualify figures.
const WORDS: &[(&str, &str)] = &[
    ("total", "the sum of all objects. Rows and other add up to it, always"),
    ("other", "the part of the total that is in no row"),
    ("objects", "how many objects there are now"),
    ("closed", "rows of objects that have ended"),
    ("proven", "the number of leading rows that are certainly the true top, in the true order"),
    ("lost", "events that could not be counted, ordered or stored, by cause: 0 where all is well"),
    ("contended", "lost: an object was ordered later than it should, because the CPU was ordering already"),
    ("no_memory", "lost: the kernel had no memory for an object; its amounts are in other"),
    ("period", "a value is the sum of this much time; it is shown per second"),
    ("delay", "an object is put into order at most once in this time, which costs less"),
];

pub fn draw(app: &App, pen: &mut Pen<'_>, area: Rect) {
    let Some(data) = app.current() else { return };
    let meta = &data.meta;
    let mut lines: Vec<(String, String, Ink)> = vec![(meta.path(), meta.about.clone(), BOLD)];
    let mut unit = format!("in {}", meta.unit.name());
    match (meta.kind, data.past.last()) {
        (TableType::Static, _) => unit += ", since the object began",
        (TableType::Dynamic, Some(last)) => unit += &format!(", in the last {}", human_ms(last.period_ms)),
        (TableType::Dynamic, None) => {}
    }
    lines.push(("value".to_owned(), unit, PLAIN));
    if let Some(last) = data.past.last() {
        for part in &last.parts {
            let about = match part.as_ref() {
                "rx" => "the part that was received",
                "tx" => "the part that was sent",
                _ => "a part of the value",
            };
            lines.push((part.to_string(), about.to_owned(), PLAIN));
        }
    }
    for name in &meta.columns {
        let about =
            COLUMNS.iter().find(|(column, _)| column == name).map_or("describes the object", |(_, about)| about);
        lines.push((name.clone(), about.to_owned(), PLAIN));
    }
    lines.push((String::new(), String::new(), PLAIN));
    lines.extend(WORDS.iter().map(|(word, about)| ((*word).to_owned(), (*about).to_owned(), PLAIN)));
    let names = lines.iter().skip(1).map(|(name, ..)| cells(name)).max().unwrap_or(0);
    for ((name, about, ink), y) in lines.iter().zip(area.y..area.bottom()) {
        let x = pen.put(area.x, y, area.width, &format!("{name:<names$}  "), BOLD);
        pen.put(x, y, area.right().saturating_sub(x), about, *ink);
    }
}
