// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Properties of every snapshot: hiding rows keeps the sums, and JSON is lossless.

use proptest::prelude::*;
use serde_json::Value;
use topstat_model::document::{self, Shape};
use topstat_model::{Field, Format, Reading, Sink, Snapshot, Space, json, stat, text};

use crate::fixtures;

fn field() -> impl Strategy<Value = Field> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(|ip| Field::Ip(ip.into())),
        any::<[u8; 16]>().prop_map(|ip| Field::Ip(ip.into())),
        any::<u64>().prop_map(Field::U64),
        (i64::MIN..0).prop_map(Field::Negative),
        any::<String>().prop_map(Field::Text),
        Just(Field::True),
        Just(Field::None),
    ]
}

/// Snapshots of up to 23 rows with any fields, in which not all rows need to be proven.
fn snapshots() -> impl Strategy<Value = Snapshot> {
    let object = prop::collection::vec(field(), fixtures::connection_columns().len());
    let rows = prop::collection::vec((0..u64::MAX / 64, object), 0..24);
    (rows, 0..u64::MAX / 64, any::<prop::sample::Index>()).prop_map(|(mut rows, other, proven)| {
        rows.sort_by_key(|(value, _)| std::cmp::Reverse(*value));
        let total = rows.iter().map(|(value, _)| value).sum::<u64>() + other;
        let mut snapshot = fixtures::with_rows(rows, total);
        snapshot.proven = proven.index(snapshot.rows.len() + 1) as u32;
        snapshot
    })
}

fn parsed(snapshot: &Snapshot) -> Value {
    let mut line = Vec::new();
    json::write(snapshot, &mut line).unwrap();
    assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1, "one line");
    serde_json::from_slice(&line).unwrap()
}

fn as_json(field: &Field) -> Value {
    match field {
        Field::Ip(ip) => ip.to_string().into(),
        Field::U64(number) => (*number).into(),
        Field::Negative(number) => (*number).into(),
        Field::Text(text) => text.as_str().into(),
        Field::True => true.into(),
        Field::None => Value::Null,
    }
}

proptest! {
    #[test]
    fn truncating_keeps_the_sums(mut snapshot in snapshots(), rows in 0..30_usize) {
        let before = snapshot.clone();
        snapshot.truncate(rows);
        prop_assert_eq!(snapshot.check(), Ok(()));
        prop_assert_eq!(&snapshot.rows[..], &before.rows[..rows.min(before.rows.len())]);
        prop_assert_eq!(snapshot.proven, before.proven.min(snapshot.rows.len() as u32));
        prop_assert!(snapshot.cpus.iter().all(|section| section.rows.len() <= rows));
    }

    #[test]
    fn filtering_keeps_the_sums(mut snapshot in snapshots(), picks in any::<u64>()) {
        let before = snapshot.clone();
        let keep = |_: &[Field], value: u64| (value ^ picks).is_multiple_of(3);
        snapshot.retain("picked", keep);
        prop_assert_eq!(snapshot.check(), Ok(()));
        let expected: Vec<_> =
            before.rows.iter().filter(|row| keep(&row.object, row.value)).cloned().collect();
        prop_assert_eq!(&snapshot.rows, &expected);
        let proven = expected.iter().filter(|row| row.rank <= before.proven).count();
        prop_assert_eq!(snapshot.proven as usize, proven);
        let filter = snapshot.filter.unwrap();
        prop_assert_eq!(filter.matched as usize, expected.len());
        prop_assert_eq!(filter.of as usize, before.rows.len());
    }

    #[test]
    fn hiding_in_steps_keeps_the_sums(
        mut snapshot in snapshots(),
        first in 0..30_usize,
        least in any::<u64>(),
        second in 0..30_usize,
    ) {
        let of = snapshot.rows.len().min(first) as u32;
        snapshot.truncate(first);
        snapshot.retain("some", |_, value| value >= least / 64);
        snapshot.retain("odd", |_, value| value % 2 == 1);
        snapshot.truncate(second);
        prop_assert_eq!(snapshot.check(), Ok(()));
        let filter = snapshot.filter.unwrap();
        prop_assert_eq!(filter.text, "some and odd");
        prop_assert_eq!(filter.of, of);
    }

    #[test]
    fn json_loses_nothing(snapshot in snapshots()) {
        let document = parsed(&snapshot);
        let rows = document["rows"].as_array().unwrap();
        prop_assert_eq!(rows.len(), snapshot.rows.len());
        for (written, row) in rows.iter().zip(&snapshot.rows) {
            prop_assert_eq!(written["rank"].as_u64(), Some(row.rank.into()));
            prop_assert_eq!(written["value"].as_u64(), Some(row.value));
            prop_assert_eq!(written["rx"].as_u64(), Some(row.parts[0]));
            // rank, value, object, rx, tx, cpus: a duplicate key would be missing here.
            prop_assert_eq!(written.as_object().unwrap().len(), 6);
            for (column, field) in snapshot.columns.iter().zip(&row.object) {
                let there = written["object"].get(column.name.as_ref());
                if column.optional && field.is_none() {
                    prop_assert_eq!(there, None);
                } else {
                    prop_assert_eq!(there, Some(&as_json(field)));
                }
            }
        }
        let values = rows.iter().map(|row| row["value"].as_u64().unwrap()).sum::<u64>();
        let total = document["total"].as_u64().unwrap();
        prop_assert_eq!(values + document["other"].as_u64().unwrap(), total);
        let cpus = document["cpu_totals"].as_object().unwrap().values();
        prop_assert_eq!(cpus.map(|cpu| cpu.as_u64().unwrap()).sum::<u64>(), total);
    }

    #[test]
    fn a_document_is_read_back(snapshot in snapshots()) {
        let written = |snapshot: &Snapshot| {
            let mut written = Vec::new();
            json::write(snapshot, &mut written).unwrap();
            String::from_utf8(written).unwrap()
        };
        let document = written(&snapshot);
        let shape = Shape { columns: snapshot.columns.clone(), value_name: snapshot.value_name.clone(), stored: None };
        let found = document::read(document.as_bytes(), |_, _| Some(shape.clone())).unwrap();
        prop_assert_eq!(written(&found), document.clone());
        prop_assert_eq!((&found.columns, &found.value_name), (&snapshot.columns, &snapshot.value_name));
        // Unknown properties of the table are inferred. If no field is missing, the result is complete.
        let inferred = document::read(document.as_bytes(), |_, _| None).unwrap();
        prop_assert_eq!((inferred.total, inferred.rows.len()), (snapshot.total, snapshot.rows.len()));
        let missing = snapshot.rows.iter().flat_map(|row| &row.object).any(Field::is_none);
        prop_assert!(missing || written(&inferred) == document);
    }

    #[test]
    fn every_writer_takes_every_snapshot(snapshot in snapshots(), width in 0..300_usize) {
        let mut csv = Sink::new(Format::Csv, text::TextOptions::default());
        let written = csv.write(&[&snapshot], Space::default()).unwrap();
        let lines = 1 + snapshot.rows.len() + 2 + usize::from(!snapshot.is_proven());
        prop_assert_eq!(String::from_utf8(written).unwrap().lines().count(), lines);

        let mut written = Vec::new();
        stat::write(&snapshot, &mut written).unwrap();
        let written = String::from_utf8(written).unwrap();
        let all = written.split("\n\n").find(|paragraph| paragraph.starts_with("all:\n")).unwrap();
        prop_assert_eq!(all.lines().count(), snapshot.rows.len() + 2);

        let options = text::TextOptions { human: true, color: false, width: Some(width) };
        let mut written = Vec::new();
        text::write(&snapshot, options, &mut written).unwrap();
        let lines = snapshot.lines_besides(options) + snapshot.rows.len();
        prop_assert_eq!(String::from_utf8(written).unwrap().lines().count(), lines);
    }
}
