// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A table of samples as JSON: one document per line. `docs/netstack.md` describes it.

use std::io;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Category, Picture, Row, percent};
use crate::time::rfc3339;

#[derive(Serialize)]
struct Document {
    time: String,
    elapsed_ns: u64,
    event: &'static str,
    hz: u32,
    cpus: Vec<u32>,
    table: &'static str,
    view: &'static str,
    samples: Samples,
    rows: Vec<Value>,
    other: u64,
    unclassified: Vec<Value>,
}

/// `total` is the sum of `kernel`, `idle`, `user` and `lost`; `kernel` of `shown` and `filtered`; `shown` of `by_name`,
/// `by_caller` and `unclassified`.
#[derive(Serialize)]
struct Samples {
    total: u64,
    kernel: u64,
    idle: u64,
    user: u64,
    lost: u64,
    missed: u64,
    shown: u64,
    filtered: u64,
    by_name: u64,
    by_caller: u64,
    unclassified: u64,
}

/// Appends a table as a line of JSON.
pub fn write(picture: &Picture, written: &mut Vec<u8>) -> io::Result<()> {
    let (profile, table) = (picture.profile, picture.table());
    let document = Document {
        time: rfc3339(profile.time),
        elapsed_ns: u64::try_from(profile.elapsed.as_nanos()).unwrap_or(u64::MAX),
        event: profile.event.name(),
        hz: profile.hz,
        cpus: profile.cpus.clone(),
        table: picture.choice.by.name(),
        view: picture.choice.view.name(),
        samples: Samples {
            total: profile.total(),
            kernel: profile.kernel(),
            idle: profile.besides.idle,
            user: profile.besides.user,
            lost: profile.besides.lost,
            missed: profile.besides.missed,
            shown: table.chosen,
            filtered: profile.kernel() - table.chosen,
            by_name: table.by_name,
            by_caller: table.by_caller,
            unclassified: table.unclassified(),
        },
        rows: table.rows.iter().map(|row| self::row(picture, row)).collect(),
        other: table.other,
        unclassified: table.unknown.iter().map(|(symbol, n)| json!({"symbol": symbol, "samples": n})).collect(),
    };
    crate::json::line(&document, written)
}

fn row(picture: &Picture, row: &Row) -> Value {
    let mut map = Map::new();
    for (column, word) in picture.choice.by.columns().iter().zip(&row.key) {
        let number = matches!(*column, "pid" | "cpu").then(|| word.parse::<u64>().ok()).flatten();
        map.insert((*column).to_owned(), number.map_or_else(|| word.as_str().into(), Value::from));
    }
    map.insert("samples".to_owned(), row.samples.into());
    map.insert("percent".to_owned(), percent(row.samples, picture.table().chosen).into());
    if picture.choice.by.is_split() {
        let parts =
            Category::ALL.iter().zip(row.categories).map(|(category, n)| (category.name().to_owned(), n.into()));
        map.insert("categories".to_owned(), Value::Object(parts.collect()));
    }
    Value::Object(map)
}
