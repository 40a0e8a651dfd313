// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a snapshot back from the document that [`json::write`](crate::json::write) has made of it.
//!
//! A document has neither the types of columns nor the title of the value. For a known table, the caller passes them as a
//! [`Shape`]. Missing types are inferred: so a document of a newer version, with columns that this version does not know, is read
//! as well. If there is a `stat` file beside the document, that file has the order of all columns ([`Titles`]).

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::{Map, Value};

mod rows;
use rows::{MOST_COLUMNS, RowRead, Rows, Scalar};

use crate::field::{Column, ColumnKind, Field};
use crate::snapshot::{CpuSection, Filter, Lost, Row, Settings, Snapshot, TableType};
use crate::stored::Stored;
use crate::unit::Unit;

/// The largest number of CPUs that Linux supports (`NR_CPUS` on x86).
const MOST_CPUS: usize = 8192;

/// The knowledge of a table that its documents lack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// The columns that describe an object.
    pub columns: Vec<Column>,
    /// The title of the value's column; the table's own name where it is empty.
    pub value_name: String,
    /// How its records are stored; `None`: the caller does not know it.
    pub stored: Option<Stored>,
}

/// The header of the rows in a `stat` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Titles {
    /// The names of the columns that describe an object.
    pub columns: Vec<String>,
    /// The title of the value.
    pub value: String,
}

impl Titles {
    /// The titles of a `stat` file; `None`: the text is no `stat` file.
    pub fn of_stat(stat: &str) -> Option<Self> {
        let (_, all) = stat.split_once("\nall:\n")?;
        let mut columns: Vec<_> = all.lines().next()?.split('\t').map(str::to_owned).collect();
        let value = columns.pop()?;
        Some(Self { columns, value })
    }
}

/// Why a text is no document of a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not JSON, or a key is missing or of another type.
    #[error("not a document of a snapshot: {0}")]
    Json(#[from] serde_json::Error),
    /// A key has a value that it can't have.
    #[error("not a document of a snapshot: {key} is {value:?}")]
    Value {
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
}

#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    time: Cow<'a, str>,
    sample: String,
    table: String,
    #[serde(rename = "type")]
    kind: Cow<'a, str>,
    unit: Cow<'a, str>,
    period_ms: u32,
    delay_ms: u32,
    elapsed_ms: Option<u64>,
    #[serde(default)]
    off: Vec<String>,
    top: u32,
    objects: u64,
    total: u64,
    #[serde(default)]
    shared: u64,
    other: u64,
    proven: u32,
    filter: Option<FilterRead>,
    #[serde(default)]
    lost: Map<String, Value>,
    #[serde(default)]
    lost_now: Map<String, Value>,
    #[serde(borrow)]
    rows: Rows<'a>,
    #[serde(default)]
    cpu_totals: Map<String, Value>,
    #[serde(default)]
    stale_cpus: Vec<u32>,
}

#[derive(Deserialize)]
struct FilterRead {
    text: String,
    matched: u32,
    of: u32,
}

/// Reads a document. A document lacks the rows that each CPU has ordered.
///
/// # Errors
///
/// When the text is no document.
pub fn read(text: &[u8], shape: impl Fn(&str, &str) -> Option<Shape>) -> Result<Snapshot, Error> {
    let document: Document<'_> = serde_json::from_slice(text)?;
    let wrong = |key: &str, value: &str| Error::Value { key: key.to_owned(), value: value.to_owned() };
    let shape = shape(&document.sample, &document.table).unwrap_or_default();
    let rows = document.rows.0;
    let (columns, parts) = columns(shape.columns, &rows)?;
    let value_name = if shape.value_name.is_empty() { document.table.clone() } else { shape.value_name };
    Ok(Snapshot {
        time: time(&document.time).ok_or_else(|| wrong("time", &document.time))?,
        kind: TableType::from_name(&document.kind).ok_or_else(|| wrong("type", &document.kind))?,
        unit: Unit::from_name(&document.unit).ok_or_else(|| wrong("unit", &document.unit))?,
        value_name,
        period_ms: document.period_ms,
        delay_ms: document.delay_ms,
        elapsed: document.elapsed_ms.map(Duration::from_millis),
        top: document.top,
        objects: document.objects,
        total: document.total,
        shared: document.shared,
        other: document.other,
        proven: document.proven,
        filter: document.filter.map(|filter| Filter { text: filter.text, matched: filter.matched, of: filter.of }),
        lost: lost(&document.lost)?,
        lost_now: lost(&document.lost_now)?,
        settings: Settings::with_off(document.sample.clone(), &document.off),
        rows: rows.into_iter().map(|row| read_row(row, &columns, &parts)).collect::<Result<_, _>>()?,
        columns,
        parts,
        cpus: cpus(&document.cpu_totals, &document.stale_cpus)?,
        sample: document.sample,
        table: document.table,
    })
}

/// Reads a document of a table whose columns a `stat` file has named. `known` are the columns whose kinds are known.
///
/// # Errors
///
/// As [`read`].
pub fn read_titled(text: &[u8], titles: &Titles, known: &[Column]) -> Result<Snapshot, Error> {
    let shape = || Shape { columns: known.to_vec(), value_name: titles.value.clone(), stored: None };
    let mut snapshot = read(text, |_, _| Some(shape()))?;
    let places: Vec<_> = titles.columns.iter().map(|name| snapshot.column(name)).collect();
    // A column that the document lacks is empty in all rows.
    let column = |(name, place): (&String, &Option<usize>)| {
        place.map_or_else(|| Column::optional(name.clone(), ColumnKind::Text), |place| snapshot.columns[place].clone())
    };
    snapshot.columns = titles.columns.iter().zip(&places).map(column).collect();
    for row in &mut snapshot.rows {
        row.object = places.iter().map(|place| place.map_or(Field::None, |place| row.object[place].clone())).collect();
    }
    Ok(snapshot)
}

/// The instant of a text such as `2026-11-21T08:00:00.000Z` or `2026-11-21T09:00:00.000+01:00`.
pub fn time(text: &str) -> Option<SystemTime> {
    crate::time::parse_rfc3339(text)
}

/// The known columns, followed by the unknown columns that rows have; and the parts.
fn columns(mut columns: Vec<Column>, rows: &[RowRead<'_>]) -> Result<(Vec<Column>, Vec<Cow<'static, str>>), Error> {
    for row in rows {
        let mut next = 0;
        for (name, value) in row.object.iter() {
            // Rows have their columns in one order: the next column nearly always follows the previous one.
            let rest = columns.get(next..).unwrap_or_default();
            if let Some(place) = rest.iter().position(|column| column.name == name) {
                next += place + 1;
            } else if !columns.iter().any(|column| column.name == name) {
                if columns.len() == MOST_COLUMNS {
                    let value = format!("more than {MOST_COLUMNS} columns");
                    return Err(Error::Value { key: "object".to_owned(), value });
                }
                let mut column = Column::new(name.to_owned(), inferred(value));
                column.optional = rows.iter().any(|row| row.object.get(name).is_none());
                columns.push(column);
            }
        }
    }
    let parts = rows.first().into_iter().flat_map(|row| row.parts.iter());
    Ok((columns, parts.map(|(part, _)| Cow::Owned(part.to_owned())).collect()))
}

fn inferred(value: &Scalar<'_>) -> ColumnKind {
    match value {
        Scalar::Other(Value::Bool(true)) => ColumnKind::Mark,
        Scalar::Number(_) => ColumnKind::Id,
        Scalar::Other(Value::Number(_)) => ColumnKind::Id,
        Scalar::Text(text) if text.parse::<IpAddr>().is_ok() => ColumnKind::Address,
        Scalar::Text(text) if text.starts_with('/') => ColumnKind::Path,
        _ => ColumnKind::Text,
    }
}

fn read_row(mut row: RowRead<'_>, columns: &[Column], parts: &[Cow<'static, str>]) -> Result<Row, Error> {
    let rank = count("rank", &row.rank)?;
    let rank = u32::try_from(rank).map_err(|_| wrong("rank", &row.rank))?;
    let value = count("value", &row.value)?;
    // A row of another version may lack a part that the first row has.
    let part = |name: &Cow<'static, str>| match row.parts.take(name) {
        Scalar::Null => Ok(0),
        part => count(name, &part),
    };
    let parts = parts.iter().map(part).collect::<Result<_, _>>()?;
    let object = columns.iter().map(|column| field(row.object.take(&column.name), column.kind)).collect();
    Ok(Row { id: Row::NO_ID, rank, value, object, parts, cpus: row.cpus })
}

fn wrong(key: &str, value: &Scalar<'_>) -> Error {
    Error::Value { key: key.to_owned(), value: value.to_json() }
}

fn count(key: &str, value: &Scalar<'_>) -> Result<u64, Error> {
    match value {
        Scalar::Number(number) => Ok(*number),
        _ => Err(wrong(key, value)),
    }
}

fn number(key: &str, value: &Value) -> Result<u64, Error> {
    value.as_u64().ok_or_else(|| Error::Value { key: key.to_owned(), value: value.to_string() })
}

fn field(value: Scalar<'_>, kind: ColumnKind) -> Field {
    match value {
        Scalar::Text(text) if kind == ColumnKind::Address => match text.parse() {
            Ok(ip) => Field::Ip(ip),
            Err(_) => Field::Text(text.into_owned()),
        },
        Scalar::Text(text) => Field::Text(text.into_owned()),
        Scalar::Number(number) => Field::U64(number),
        Scalar::Null => Field::None,
        Scalar::Other(Value::Bool(true)) => Field::True,
        Scalar::Other(Value::Number(number)) if number.is_i64() => number.as_i64().map_or(Field::None, Field::from),
        Scalar::Other(other) => Field::Text(other.to_string()),
    }
}

fn lost(counters: &Map<String, Value>) -> Result<Lost, Error> {
    let mut lost = Lost::default();
    for (name, count) in counters {
        let count = number(name, count)?;
        match name.as_str() {
            "contended" => lost.contended = count,
            "no_memory" => lost.no_memory = count,
            _ => lost.further.push((name.clone().into(), count)),
        }
    }
    Ok(lost)
}

fn cpus(totals: &Map<String, Value>, stale: &[u32]) -> Result<Vec<CpuSection>, Error> {
    if totals.len().max(stale.len()) > MOST_CPUS {
        return Err(Error::Value { key: "cpu_totals".to_owned(), value: format!("more than {MOST_CPUS} CPUs") });
    }
    let section = |(name, total): (&String, &Value)| {
        let cpu = name.parse().map_err(|_| Error::Value { key: "cpu_totals".to_owned(), value: name.clone() })?;
        Ok(CpuSection { cpu, total: number(name, total)?, stale: stale.contains(&cpu), rows: vec![] })
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

    fn read_it(document: &str) -> Result<Snapshot, Error> {
        read_titled(document.as_bytes(), &Titles::of_stat(STAT).unwrap(), &[])
    }

    #[test]
    fn what_was_written_is_read_and_written_again() {
        let snapshot = read_it(DOCUMENT).unwrap();
        assert_eq!((snapshot.value_name.as_str(), snapshot.parts.len()), ("pps", 2));
        assert_eq!(snapshot.rows[0].object, [Field::U64(u64::MAX), Field::Ip("1.2.3.4".parse().unwrap())]);
        let mut written = Vec::new();
        crate::json::write(&snapshot, &mut written).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), DOCUMENT);
    }

    #[test]
    fn columns_that_are_known_are_what_they_are() {
        let known = [Column::new("name", ColumnKind::Text)];
        let titles = Titles::of_stat(STAT).unwrap();
        let snapshot = read_titled(DOCUMENT.as_bytes(), &titles, &known).unwrap();
        assert_eq!(snapshot.rows[0].object[1], "1.2.3.4".into());
        let left_out = read_it(&DOCUMENT.replace(r#","name":null"#, "")).unwrap();
        assert!(left_out.columns[1].optional && !left_out.columns[0].optional);
    }

    #[test]
    fn documents_that_would_take_much_memory_or_time_are_refused() {
        let with = |from: &str, to: &str| read_it(&DOCUMENT.replacen(from, to, 1)).unwrap_err().to_string();
        let keys = |name: &str, count: usize| -> String { (0..count).map(|n| format!("\"{name}{n}\":1,")).collect() };
        let many = with("\"object\":{", &format!("\"object\":{{{}", keys("c", 300)));
        assert!(many.contains("an object has more than 256 columns"), "{many}");
        let many = with("\"rx\":1", &format!("{}\"rx\":1", keys("p", 300)));
        assert!(many.contains("a row has more than 256 parts"), "{many}");
        let row = |number: usize| format!("{{\"rank\":1,\"value\":0,\"object\":{{\"c{number}\":1}},\"cpus\":[]}},");
        let rows = |count: usize| -> String { (0..count).map(row).collect() };
        let many = with("\"rows\":[", &format!("\"rows\":[{}", rows(400)));
        assert!(many.contains("object is \"more than 256 columns\""), "{many}");
        let many = with("\"rows\":[", &format!("\"rows\":[{}", rows(20_000)));
        assert!(many.contains("there are more than 16384 rows"), "{many}");
        let cpus: String = (0..9000).map(|cpu| format!("\"{cpu}\":1,")).collect();
        let many = with("\"cpu_totals\":{", &format!("\"cpu_totals\":{{{cpus}"));
        assert!(many.contains("more than 8192 CPUs"), "{many}");
    }

    #[test]
    fn what_is_no_snapshot_is_refused() {
        for (from, to, why) in [
            (r#""packets""#, r#""flops""#, "unit is \"flops\""),
            (r#""dynamic""#, r#""lively""#, "type is \"lively\""),
            (r#""rx":1"#, r#""rx":"1""#, "rx is "),
            (r#""3":8"#, r#""x":8"#, "cpu_totals is \"x\""),
            ("2026-11-21T", "2026-13-99T", "time"),
            (r#""rank":2"#, r#""rank":-2"#, "-2"),
            ("{", "[", "expected"),
        ] {
            let error = read_it(&DOCUMENT.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(why), "{from} -> {to}: {error}");
        }
        assert_eq!(Titles::of_stat("name\tx\n"), None);
    }
}
