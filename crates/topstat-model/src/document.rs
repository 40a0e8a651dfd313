// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A snapshot from what [`json::write`](crate::json::write) has written: of a tree of files that another program, or the
//! kernel, has made.
//!
//! The document has all that is shown but the order of columns and the title of values, which the `stat` file has
//! ([`Titles`]); and the rows of each CPU, which are not in it.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::field::{Column, ColumnKind, Field};
use crate::snapshot::{CpuSection, Lost, Row, Settings, Snapshot, TableType};
use crate::unit::Unit;

/// What the header of the rows in a `stat` file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Titles {
    /// The names of the columns that describe an object.
    pub columns: Vec<String>,
    /// The title of the value.
    pub value: String,
}

impl Titles {
    /// Those of a `stat` file; `None`: it is none.
    pub fn of_stat(stat: &str) -> Option<Self> {
        let (_, all) = stat.split_once("\nall:\n")?;
        let mut columns: Vec<_> = all.lines().next()?.split('\t').map(str::to_owned).collect();
        let value = columns.pop()?;
        Some(Self { columns, value })
    }
}

/// Reads a snapshot. `known` are columns of which more is known than their names: what others hold is seen by their fields.
///
/// # Errors
///
/// What is wrong with the document, which may be of another version: also where its numbers don't add up.
pub fn read(document: &[u8], titles: &Titles, known: &[Column], settings: &Settings) -> Result<Snapshot, String> {
    let document: Document = serde_json::from_slice(document).map_err(|error| error.to_string())?;
    let columns: Vec<_> = titles.columns.iter().map(|name| column(name, known, &document.rows)).collect();
    let unit = Unit::ALL.into_iter().find(|unit| unit.name() == document.unit);
    let kind = [TableType::Dynamic, TableType::Static].into_iter().find(|kind| kind.name() == document.kind);
    let parts: Vec<Cow<'static, str>> =
        document.rows.first().into_iter().flat_map(|row| row.parts.keys().cloned().map(Cow::Owned)).collect();
    let rows = document.rows.iter().map(|row| row.read(&columns, &parts)).collect::<Result<_, _>>()?;
    let snapshot = Snapshot {
        time: humantime::parse_rfc3339(&document.time).map_err(|error| format!("time {:?}: {error}", document.time))?,
        kind: kind.ok_or_else(|| format!("type {:?} is unknown", document.kind))?,
        unit: unit.ok_or_else(|| format!("unit {:?} is unknown", document.unit))?,
        sample: document.sample,
        table: document.table,
        value_name: titles.value.clone(),
        period_ms: document.period_ms,
        delay_ms: document.delay_ms,
        elapsed: document.elapsed_ms.map(Duration::from_millis),
        top: document.top,
        objects: document.objects,
        total: document.total,
        shared: document.shared,
        other: document.other,
        proven: document.proven,
        filter: None,
        lost: lost(&document.lost)?,
        lost_now: lost(&document.lost_now)?,
        settings: settings.clone(),
        columns,
        parts,
        rows,
        cpus: cpus(&document.cpu_totals, &document.stale_cpus)?,
    };
    snapshot.check().map_err(|fault| fault.to_string())?;
    Ok(snapshot)
}

#[derive(Deserialize)]
struct Document {
    time: String,
    sample: String,
    table: String,
    #[serde(rename = "type")]
    kind: String,
    unit: String,
    period_ms: u32,
    delay_ms: u32,
    elapsed_ms: Option<u64>,
    top: u32,
    objects: u64,
    total: u64,
    #[serde(default)]
    shared: u64,
    other: u64,
    proven: u32,
    lost: Map<String, Value>,
    lost_now: Map<String, Value>,
    rows: Vec<RowDocument>,
    cpu_totals: Map<String, Value>,
    #[serde(default)]
    stale_cpus: Vec<u32>,
}

#[derive(Deserialize)]
struct RowDocument {
    rank: u32,
    value: u64,
    object: Map<String, Value>,
    cpus: Vec<u32>,
    /// What else there is: what the value is made of.
    #[serde(flatten)]
    parts: Map<String, Value>,
}

impl RowDocument {
    fn read(&self, columns: &[Column], parts: &[Cow<'static, str>]) -> Result<Row, String> {
        let part = |name: &Cow<'static, str>| number(name, self.parts.get(name.as_ref()));
        Ok(Row {
            rank: self.rank,
            value: self.value,
            object: columns.iter().map(|column| field(column, self.object.get(column.name.as_ref()))).collect(),
            parts: parts.iter().map(part).collect::<Result<_, _>>()?,
            cpus: self.cpus.clone(),
        })
    }
}

/// A column whose kind nobody knows is one of names, or of numbers that name something.
fn column(name: &str, known: &[Column], rows: &[RowDocument]) -> Column {
    if let Some(column) = known.iter().find(|column| column.name == name) {
        return column.clone();
    }
    let numbers = rows.iter().any(|row| row.object.get(name).is_some_and(Value::is_number));
    let kind = if numbers { ColumnKind::Id } else { ColumnKind::Text };
    let optional = rows.iter().any(|row| !row.object.contains_key(name));
    Column { name: name.to_owned().into(), kind, optional }
}

fn field(column: &Column, value: Option<&Value>) -> Field {
    match value {
        Some(Value::Number(number)) => number.as_u64().into(),
        Some(Value::String(text)) if column.kind == ColumnKind::Address => {
            text.parse().map_or_else(|_| text.as_str().into(), Field::Ip)
        }
        Some(Value::String(text)) => text.as_str().into(),
        _ => Field::None,
    }
}

fn number(name: &str, value: Option<&Value>) -> Result<u64, String> {
    value.and_then(Value::as_u64).ok_or_else(|| format!("{name:?} is no number"))
}

fn lost(document: &Map<String, Value>) -> Result<Lost, String> {
    let mut lost = Lost::default();
    for (name, value) in document {
        let count = number(name, Some(value))?;
        match name.as_str() {
            "contended" => lost.contended = count,
            "no_memory" => lost.no_memory = count,
            _ => lost.further.push((name.clone().into(), count)),
        }
    }
    Ok(lost)
}

fn cpus(totals: &Map<String, Value>, stale: &[u32]) -> Result<Vec<CpuSection>, String> {
    let section = |(name, total): (&String, &Value)| {
        let cpu: u32 = name.parse().map_err(|_| format!("{name:?} is no CPU"))?;
        Ok(CpuSection { cpu, total: number(name, Some(total))?, stale: stale.contains(&cpu), rows: vec![] })
    };
    totals.iter().map(section).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str =
        "name\trate\n\ncpu 0:\nnumber\tname\tpps\n7\ta\t5\n\nall:\nnumber\tname\tpps\n7\ta\t5\n\ntotal\t5\n";

    const DOCUMENT: &str = r#"{"time":"2026-11-21T08:00:00.000Z","sample":"trial","table":"rate","type":"dynamic","unit":"packets","period_ms":1000,"delay_ms":0,"top":16,"objects":2,"total":12,"other":1,"proven":2,"lost":{"contended":1,"no_memory":0,"cut":2},"lost_now":{"contended":0,"no_memory":0,"cut":0},"rows":[{"rank":1,"value":6,"object":{"number":18446744073709551615,"name":"1.2.3.4"},"rx":1,"tx":5,"cpus":[0,3]},{"rank":2,"value":5,"object":{"number":7,"name":null},"rx":0,"tx":5,"cpus":[]}],"cpu_totals":{"0":4,"3":8},"stale_cpus":[3]}
"#;

    fn settings() -> Settings {
        Settings { enabled: true, owner: "trial".into(), owner_enabled: true, topstat_enabled: true }
    }

    fn read_it(document: &str) -> Result<Snapshot, String> {
        read(document.as_bytes(), &Titles::of_stat(STAT).unwrap(), &[], &settings())
    }

    #[test]
    fn what_was_written_is_read_and_written_again() {
        let snapshot = read_it(DOCUMENT).unwrap();
        assert_eq!((snapshot.value_name.as_str(), snapshot.parts.len()), ("pps", 2));
        assert_eq!(snapshot.rows[0].object, [Field::U64(u64::MAX), "1.2.3.4".into()]);
        let mut written = Vec::new();
        crate::json::write(&snapshot, &mut written).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), DOCUMENT);
    }

    #[test]
    fn columns_that_are_known_are_what_they_are() {
        let known = [Column::new("name", ColumnKind::Address)];
        let titles = Titles::of_stat(STAT).unwrap();
        let snapshot = read(DOCUMENT.as_bytes(), &titles, &known, &settings()).unwrap();
        assert_eq!(snapshot.rows[0].object[1], Field::Ip("1.2.3.4".parse().unwrap()));
        let left_out = read_it(&DOCUMENT.replace(r#","name":null"#, "")).unwrap();
        assert!(left_out.columns[1].optional && !left_out.columns[0].optional);
    }

    #[test]
    fn what_is_no_snapshot_is_refused() {
        for (from, to, why) in [
            (r#""total":12"#, r#""total":13"#, "13"),
            (r#""packets""#, r#""flops""#, "unit \"flops\" is unknown"),
            (r#""dynamic""#, r#""lively""#, "type \"lively\" is unknown"),
            (r#""rx":1"#, r#""rx":"1""#, "\"rx\" is no number"),
            (r#""3":8"#, r#""x":8"#, "\"x\" is no CPU"),
            ("2026-11-21T", "2026-13-99T", "time"),
            (r#""rank":2"#, r#""rank":-2"#, "-2"),
            ("{", "[", "expected"),
        ] {
            let error = read_it(&DOCUMENT.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(why), "{from} -> {to}: {error}");
        }
        assert_eq!(Titles::of_stat("name\tx\n"), None);
    }
}
