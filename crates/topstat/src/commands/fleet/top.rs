// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat fleet top`.

use serde_json::{Map, Value, json};
use topstat_fleet::bounds::{self, Top};
use topstat_fleet::scan::{BETWEEN, NONE, Scan, Window};
use topstat_model::typeset::escape;
use topstat_model::{Column, ColumnKind, Field, FleetKey, Reach, filter, rfc3339};

use super::live::Live;
use super::{check_by, find, open, report, window};
use crate::args::ListFormat;
use crate::args::fleet::FleetTopArgs;
use crate::commands::events::{parse_filters, wrong_filter};
use crate::console::Console;
use crate::error::{Error, Exit};
use crate::resolve;

pub fn run(args: &FleetTopArgs, console: &mut dyn Console) -> Result<Exit, Error> {
    let typed = parse_filters(&args.filters)?;
    let of_key = |key: &FleetKey| columns(&args.table, key.reach, &key.columns);
    let (columns, scan, window, exit, unread);
    if args.live.is_empty() {
        let roots = open(&args.dirs)?;
        let table = find(&roots, &args.table)?;
        check_by(&args.by, table.columns())?;
        let key = table.key(&args.by);
        columns = of_key(&key);
        // A wrong filter is refused before files are read.
        Filters::new(&typed, &columns)?;
        window = self::window(&args.when, || table.last())?;
        scan = table.scan(key, window);
        unread = ("unread_files", scan.faults.len());
        exit = report(&scan.faults, console);
    } else {
        let live = Live::ask(args, &|key| Filters::new(&typed, &of_key(key)).map(drop))?;
        unread = ("unread_hosts", live.faults.len());
        exit = live.report(console);
        (scan, window) = (live.scan, live.window);
        columns = of_key(&scan.key);
    }
    let filters = Filters::new(&typed, &columns)?;
    let names = &scan.objects;
    let mut top = bounds::top(
        scan.key.reach,
        &scan.hosts,
        names.len(),
        &|object| filters.matches(&names[object as usize]),
        &|a, b| names[a as usize].cmp(&names[b as usize]),
    );
    top.rows.truncate(args.rows as usize);
    let shown = Shown { table: &args.table, columns: &columns, window, scan: &scan, top: &top, unread };
    let written = match args.output {
        ListFormat::Text => shown.text(),
        ListFormat::Json => format!("{}\n", shown.json()),
    };
    console.write(written.as_bytes()).map_err(Error::Output)?;
    Ok(exit)
}

/// The columns that name an object, with their kinds.
fn columns(table: &str, reach: Reach, names: &[String]) -> Vec<Column> {
    let (sample, name) = table.split_once('/').unwrap_or_default();
    let known = resolve::shape(sample, name).unwrap_or_default().columns;
    let kind =
        |name: &String| known.iter().find(|column| column.name == *name).map_or(ColumnKind::Text, |column| column.kind);
    let host = (reach == Reach::Local).then(|| Column::new("host", ColumnKind::Text));
    host.into_iter().chain(names.iter().map(|name| Column::new(name.clone(), kind(name)))).collect()
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
    columns: &'s [Column],
    window: Window,
    scan: &'s Scan,
    top: &'s Top,
    /// The files or the hosts that could not be read, and their name in JSON.
    unread: (&'static str, usize),
}

impl Shown<'_> {
    /// The rows that are shown and proven.
    fn proven(&self) -> usize {
        self.top.proven_to.min(self.top.rows.len())
    }

    fn json(&self) -> Value {
        let row = |(place, row): (usize, &bounds::Bounded)| {
            let name = &self.scan.objects[row.object as usize];
            let fields = fields(self.columns, name).map(|field| match field {
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
        json!({
            "table": self.table,
            "from": rfc3339(self.window.from),
            "at": rfc3339(self.window.at),
            "reach": self.scan.key.reach.name(),
            "reported": self.top.reported,
            self.unread.0: self.unread.1,
            "total": self.top.total,
            "unseen_at_most": self.top.unseen,
            "proven_to": self.proven(),
            "rows": (1..).zip(&self.top.rows).map(row).collect::<Vec<_>>(),
        })
    }

    fn text(&self) -> String {
        let titles = ["", "at least", "at most", "hosts"].map(str::to_owned);
        let mut lines: Vec<Vec<String>> =
            vec![titles.into_iter().chain(self.columns.iter().map(|column| column.name.to_string())).collect()];
        for (place, row) in (1..).zip(&self.top.rows) {
            let numbers = [place, row.lower, row.upper, row.hosts.into()].map(|number: u64| number.to_string());
            let name = &self.scan.objects[row.object as usize];
            let fields = fields(self.columns, name).map(|field| match field {
                Field::Text(text) => escape(&text).into_owned(),
                other => other.to_string(),
            });
            lines.push(numbers.into_iter().chain(fields).collect());
        }
        let width = |place: usize| lines.iter().map(|line| line[place].chars().count()).max().unwrap_or(0);
        let widths: Vec<_> = (0..4 + self.columns.len()).map(width).collect();
        let mut text = format!("{} at {}, over {} hosts\n\n", self.table, rfc3339(self.window.at), self.top.reported);
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
