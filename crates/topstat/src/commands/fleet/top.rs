// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat fleet top`.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use topstat_fleet::bounds::{self, Host, Top};
use topstat_fleet::scan::{BETWEEN, NONE, Scan, Window};
use topstat_model::typeset::escape;
use topstat_model::{Column, ColumnKind, Field, FleetKey, Reach, filter, rfc3339};

use super::live::Live;
use super::{check_by, check_mean, find, of_mean, open, report, window};
use crate::args::ListFormat;
use crate::args::fleet::FleetTopArgs;
use crate::commands::events::{parse_filters, wrong_filter};
use crate::console::Console;
use crate::error::{Error, Exit};
use crate::resolve;

pub fn run(args: &FleetTopArgs, console: &mut dyn Console) -> Result<Exit, Error> {
    let typed = parse_filters(&args.filters)?;
    // A wrong filter is refused before files are read or hosts are asked.
    let check = |key: &FleetKey| Filters::new(&typed, &columns(&args.table, key)).map(drop);
    let (shown, exit);
    if args.live.is_empty() {
        let roots = open(&args.dirs)?;
        let table = find(&roots, &args.table)?;
        check_by(&args.by, table.columns())?;
        check_mean(&table, &args.table, args.over)?;
        let key = table.key(&args.by);
        check(&key)?;
        let window = self::window(&args.when, || table.last())?;
        if let Some(window) = of_mean(window, args.over) {
            let scan = table.mean(key, window);
            let snapshots = scan.hosts.iter().map(|host| host.snapshots).sum();
            let unread = ("unread_files", scan.faults.len());
            exit = report(&scan.faults, console);
            shown = Shown { mean_of: Some(snapshots), ..Shown::new(args, &typed, window, scan, unread)? };
        } else {
            let scan = table.scan(key, window);
            let unread = ("unread_files", scan.faults.len());
            exit = report(&scan.faults, console);
            shown = Shown::new(args, &typed, window, scan, unread)?;
        }
    } else {
        let live = Live::ask(args, &check)?;
        exit = live.report(console);
        let unread = ("unread_hosts", live.faults.len());
        shown = Shown::new(args, &typed, live.window, live.scan, unread)?;
    }
    let written = match args.output {
        ListFormat::Text => shown.text(),
        ListFormat::Json => format!("{}\n", shown.json()),
    };
    console.write(written.as_bytes()).map_err(Error::Output)?;
    Ok(exit)
}

/// The columns that name an object, with their kinds.
fn columns(table: &str, key: &FleetKey) -> Vec<Column> {
    let (sample, name) = table.split_once('/').unwrap_or_default();
    let known = resolve::shape(sample, name).unwrap_or_default().columns;
    let kind =
        |name: &String| known.iter().find(|column| column.name == *name).map_or(ColumnKind::Text, |column| column.kind);
    let host = (key.reach == Reach::Local).then(|| Column::new("host", ColumnKind::Text));
    host.into_iter().chain(key.columns.iter().map(|name| Column::new(name.clone(), kind(name)))).collect()
}

/// The values of an object's columns.
fn fields<'n>(columns: &'n [Column], name: &'n str) -> impl Iterator<Item = Field> + 'n {
    columns.iter().zip(name.splitn(columns.len(), BETWEEN)).map(|(column, text)| match column.kind {
        _ if text == NONE => Field::None,
        ColumnKind::Address => text.parse().map_or_else(|_| text.into(), Field::Ip),
        ColumnKind::Port | ColumnKind::Pid | ColumnKind::Id => text.parse().map_or_else(|_| text.into(), Field::U64),
        ColumnKind::Mark => Field::True,
        ColumnKind::Text | ColumnKind::Path => text.into(),
    })
}

struct Filters<'c> {
    columns: &'c [Column],
    all: Vec<filter::Resolved>,
}

impl<'c> Filters<'c> {
    fn new(typed: &[filter::Filter], columns: &'c [Column]) -> Result<Self, Error> {
        let keys: Vec<_> = columns.iter().map(|column| filter::Key::new(column.clone(), None)).collect();
        let resolve = |typed: &filter::Filter| {
            let checked = typed.check(&keys).and_then(|()| typed.resolve(&keys));
            checked.map_err(|fault| wrong_filter(typed.text(), &fault))
        };
        Ok(Self { columns, all: typed.iter().map(resolve).collect::<Result<_, _>>()? })
    }

    fn matches(&self, name: &str) -> bool {
        if self.all.is_empty() {
            return true;
        }
        let fields: Vec<_> = fields(self.columns, name).collect();
        self.all.iter().all(|filter| filter.matches(&fields))
    }
}

struct Shown<'s> {
    table: &'s str,
    columns: Vec<Column>,
    window: Window,
    reach: Reach,
    /// The names of all objects.
    objects: Vec<Arc<str>>,
    top: Top,
    /// The number of snapshots that the values are the means of.
    mean_of: Option<u64>,
    /// The files or the hosts that could not be read, and their name in JSON.
    unread: (&'static str, usize),
}

impl<'s> Shown<'s> {
    fn new<H: Host>(
        args: &'s FleetTopArgs,
        typed: &[filter::Filter],
        window: Window,
        scan: Scan<H>,
        unread: (&'static str, usize),
    ) -> Result<Self, Error> {
        // A host that hides a column has changed the key.
        let columns = columns(&args.table, &scan.key);
        let filters = Filters::new(typed, &columns)?;
        let (reach, objects) = (scan.key.reach, scan.objects);
        let mut top = bounds::top(
            reach,
            &scan.hosts,
            objects.len(),
            &|object| filters.matches(&objects[object as usize]),
            &|a, b| objects[a as usize].cmp(&objects[b as usize]),
        );
        top.rows.truncate(args.rows as usize);
        Ok(Self { table: &args.table, columns, window, reach, objects, top, mean_of: None, unread })
    }

    /// The rows that are shown and proven.
    fn proven(&self) -> usize {
        self.top.proven_to.min(self.top.rows.len())
    }

    fn json(&self) -> Value {
        let row = |(place, row): (usize, &bounds::Bounded)| {
            let name = &self.objects[row.object as usize];
            let fields = fields(&self.columns, name).map(|field| match field {
                Field::U64(number) => json!(number),
                Field::None => Value::Null,
                Field::True => json!(true),
                Field::Text(text) => json!(text),
                other => json!(other.to_string()),
            });
            let object: Map<String, Value> =
                self.columns.iter().map(|column| column.name.to_string()).zip(fields).collect();
            json!({"place": place, "object": object, "hosts": row.hosts, "at_least": row.lower, "at_most": row.upper})
        };
        let mut document = json!({
            "table": self.table,
            "from": rfc3339(self.window.from),
            "at": rfc3339(self.window.at),
            "reach": self.reach.name(),
            "reported": self.top.reported,
            self.unread.0: self.unread.1,
            "total": self.top.total,
            "unseen_at_most": self.top.unseen,
            "proven_to": self.proven(),
            "rows": (1..).zip(&self.top.rows).map(row).collect::<Vec<_>>(),
        });
        if let Some(snapshots) = self.mean_of {
            document["mean_of"] = json!(snapshots);
        }
        document
    }

    fn text(&self) -> String {
        let titles = ["", "at least", "at most", "hosts"].map(str::to_owned);
        let mut lines: Vec<Vec<String>> =
            vec![titles.into_iter().chain(self.columns.iter().map(|column| column.name.to_string())).collect()];
        for (place, row) in (1..).zip(&self.top.rows) {
            let numbers = [place, row.lower, row.upper, row.hosts.into()].map(|number: u64| number.to_string());
            let name = &self.objects[row.object as usize];
            let fields = fields(&self.columns, name).map(|field| match field {
                Field::Text(text) => escape(&text).into_owned(),
                other => other.to_string(),
            });
            lines.push(numbers.into_iter().chain(fields).collect());
        }
        let width = |place: usize| lines.iter().map(|line| line[place].chars().count()).max().unwrap_or(0);
        let widths: Vec<_> = (0..4 + self.columns.len()).map(width).collect();
        let at = rfc3339(self.window.at);
        let when = match self.mean_of {
            None => format!(" at {at}"),
            Some(snapshots) => format!(", mean of {snapshots} records from {} to {at}", rfc3339(self.window.from)),
        };
        let mut text = format!("{}{when}, over {} hosts\n\n", self.table, self.top.reported);
        for line in &lines {
            let cells = line.iter().zip(&widths).enumerate().map(|(place, (cell, width))| match place {
                0..4 => format!("{cell:>width$}"),
                _ => format!("{cell:width$}"),
            });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        let (proven, rows) = (self.proven(), self.top.rows.len());
        text.push_str(&format!("\n{proven} of {rows} rows proven to be the first ones\n"));
        text.push_str(&format!(
            "total {}; an object that no host shows has at most {}\n",
            self.top.total, self.top.unseen
        ));
        text
    }
}
