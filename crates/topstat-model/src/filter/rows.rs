// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Filters on the rows of tables: the keys are the columns of the object, and the row's figures.

use super::{Fault, Filter, Key, Resolved, parse};
use crate::field::{Column, ColumnKind, Field};
use crate::snapshot::{Row, Snapshot};
use crate::unit::Unit;

/// The keys of the rows of a table: its columns; then the rank, the value (also by the table's own name for it) and the value's
/// parts.
pub fn keys<'a>(
    columns: &[Column],
    unit: Unit,
    value_name: &str,
    parts: impl IntoIterator<Item = &'a str>,
) -> Vec<Key> {
    let ns = (unit == Unit::Nanoseconds).then_some(1);
    let figure = |name: &str, alias: Option<&str>, ns| Key {
        column: Column::new(name.to_owned(), ColumnKind::Id),
        alias: alias.filter(|alias| *alias != name).map(str::to_owned),
        is_figure: true,
        ns,
    };
    let mut keys: Vec<_> = columns.iter().map(|column| Key::new(column.clone(), alias(column))).collect();
    keys.extend([figure("rank", None, None), figure("value", Some(value_name), ns)]);
    keys.extend(parts.into_iter().map(|part| figure(part, None, ns)));
    keys
}

/// A value of a table as filters have it: a number, perhaps with a unit.
///
/// # Errors
///
/// It is no such number, or has a unit that the table's values don't have.
pub fn amount(text: &str, unit: Unit) -> Result<u64, String> {
    let mut key = Key::new(Column::new("value", ColumnKind::Id), None);
    key.ns = (unit == Unit::Nanoseconds).then_some(1);
    parse::number(text, &key)
}

/// The common name of both ends of a connection: `ip`, `port`.
fn alias(column: &Column) -> Option<String> {
    let end = match column.kind {
        ColumnKind::Address => "ip",
        ColumnKind::Port => "port",
        _ => return None,
    };
    (column.name != end && column.name.ends_with(end)).then(|| end.to_owned())
}

/// Filters that are bound to a table: a row must match all of them.
#[derive(Clone, Debug)]
pub struct RowFilter(Vec<Resolved>);

impl RowFilter {
    /// Filters for the table of a snapshot.
    ///
    /// # Errors
    ///
    /// A value that a column can't have.
    pub fn new(filters: &[Filter], snapshot: &Snapshot) -> Result<Self, Fault> {
        let keys = snapshot.keys();
        filters.iter().map(|filter| filter.resolve(&keys)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether a row matches.
    pub fn matches(&self, row: &Row) -> bool {
        let parts: Vec<_> = row.parts.iter().map(|part| Field::U64(*part)).collect();
        self.match_fields(&row.object, Some(row.rank), row.value, &parts)
    }

    fn match_fields(&self, object: &[Field], rank: Option<u32>, value: u64, parts: &[Field]) -> bool {
        let (rank, value) = (Field::from(rank), Field::U64(value));
        let fields: Vec<&Field> = object.iter().chain([&rank, &value]).chain(parts).collect();
        self.0.iter().all(|filter| filter.matches(&fields))
    }
}

impl Snapshot {
    /// The keys of its rows.
    pub fn keys(&self) -> Vec<Key> {
        keys(&self.columns, self.unit, &self.value_name, self.parts.iter().map(AsRef::as_ref))
    }

    /// Shows only the rows that match all of these filters, as [`Snapshot::retain`] does. The rows of single CPUs have no rank
    /// and no parts to filter by.
    ///
    /// # Errors
    ///
    /// See [`RowFilter::new`].
    pub fn select(&mut self, filters: &[Filter]) -> Result<(), Fault> {
        let filter = RowFilter::new(filters, self)?;
        let rows = self.rows.iter().map(|row| filter.matches(row)).collect::<Vec<_>>();
        let mut rows = rows.into_iter();
        let text = filters.iter().map(Filter::text).filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
        // `retain` calls the closure for the rows of all CPUs first, and then for the rows of each CPU.
        self.retain(text, |object, value| rows.next().unwrap_or_else(|| filter.match_fields(object, None, value, &[])));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{CpuRow, CpuSection, Lost, Settings, TableType};

    fn snapshot(unit: Unit) -> Snapshot {
        let object = |port: u16, comm: &str| vec![Field::Ip("10.0.0.1".parse().unwrap()), port.into(), comm.into()];
        let row = |rank: u32, value: u64, object: Vec<Field>| Row {
            id: Row::NO_ID,
            rank,
            value,
            object,
            parts: vec![value / 2, value - value / 2],
            cpus: vec![0],
        };
        let rows = vec![
            row(1, 5_000_000, object(443, "nginx")),
            row(2, 443, object(22, "sshd")),
            row(3, 10, object(80, "nginx")),
        ];
        let of_cpu = rows.iter().map(|row| CpuRow { value: row.value, object: row.object.clone() }).collect();
        Snapshot {
            time: std::time::UNIX_EPOCH,
            sample: "tcp_v4".into(),
            table: "conns_pps".into(),
            kind: TableType::Dynamic,
            unit,
            value_name: "pps".into(),
            period_ms: 1000,
            delay_ms: 0,
            elapsed: None,
            top: 128,
            objects: 3,
            total: 5_000_453,
            shared: 0,
            other: 0,
            proven: 3,
            filter: None,
            lost: Lost::default(),
            lost_now: Lost::default(),
            settings: Settings { enabled: true, owner: "tcp_v4".into(), owner_enabled: true, topstat_enabled: true },
            columns: vec![
                Column::new("dip", ColumnKind::Address),
                Column::new("dport", ColumnKind::Port),
                Column::new("comm", ColumnKind::Text),
            ],
            parts: vec!["rx".into(), "tx".into()],
            rows,
            cpus: vec![CpuSection { cpu: 0, total: 5_000_453, stale: false, rows: of_cpu }],
        }
    }

    fn ranks(text: &str, unit: Unit) -> Vec<u32> {
        let filter: Filter = text.parse().unwrap_or_else(|fault| panic!("{text}: {fault}"));
        let mut snapshot = snapshot(unit);
        filter.check(&snapshot.keys()).unwrap_or_else(|fault| panic!("{text}: {fault}"));
        snapshot.select(&[filter]).unwrap();
        assert_eq!(snapshot.check(), Ok(()), "{text}");
        snapshot.rows.iter().map(|row| row.rank).collect()
    }

    #[test]
    fn rows_are_chosen_by_columns_and_figures() {
        for (text, chosen) in [
            ("", &[1, 2, 3][..]),
            ("port:443,80 comm:nginx", &[1, 3]),
            ("ip:10.0.0.0/8 !port:22", &[1, 3]),
            ("value>1k", &[1]),
            ("pps>1k", &[1]),
            ("rank<=2 tx<1M", &[2]),
            ("rx:5", &[3]),
            // A term without a key does not match the value 443.
            ("443", &[1]),
            ("!nginx", &[2]),
        ] {
            assert_eq!(ranks(text, Unit::Packets), chosen, "{text}");
        }
        assert_eq!(ranks("value>1ms", Unit::Nanoseconds), [1]);
        assert_eq!(ranks("tx<1us tx>0.1us", Unit::Nanoseconds), [2]);
    }

    #[test]
    fn what_cpus_have_ordered_is_chosen_by_what_is_known_of_it() {
        let left = |text: &str| {
            let mut snapshot = snapshot(Unit::Packets);
            snapshot.select(&[text.parse().unwrap()]).unwrap();
            (snapshot.rows.len(), snapshot.cpus[0].rows.len())
        };
        assert_eq!(left("comm:nginx"), (2, 2));
        assert_eq!(left("value<1k"), (2, 2));
        assert_eq!(left("rank:1"), (1, 0));
        assert_eq!(left("rx>0"), (3, 0));
    }

    #[test]
    fn all_filters_must_match_and_all_are_told() {
        let mut snapshot = snapshot(Unit::Packets);
        let filters = ["comm:nginx", " ", "port:80"].map(|text| text.parse().unwrap());
        snapshot.select(&filters).unwrap();
        let filter = snapshot.filter.unwrap();
        assert_eq!((filter.text.as_str(), filter.matched, filter.of), ("comm:nginx port:80", 1, 3));
    }

    #[test]
    fn what_is_wrong_is_told() {
        let keys = snapshot(Unit::Packets).keys();
        let fault = |text: &str| text.parse::<Filter>().unwrap().check(&keys).unwrap_err().to_string();
        assert_eq!(
            fault("prot:1"),
            "at character 1: there is no column \"prot\"; there are: comm, dip, dport, ip, port, pps, rank, rx, tx, value"
        );
        assert_eq!(fault("value>1ms"), "at character 7: value is no time, and has no unit ms");
    }
}
