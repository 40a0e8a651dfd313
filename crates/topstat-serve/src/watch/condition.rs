// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Conditions on a table, as users type them: filters, and a comparison at the end.
//!
//! ```text
//! condition  = table [ filter ] [ quantity ] op number [ "for" time ]
//! quantity   = "value" | "share" | "total" | "objects"
//! op         = "<" "<=" ">" ">="
//! number     = as in filters; of a share 0 to 1, or with %
//! ```

use std::time::Duration;

use topstat_model::filter::{self, Filter, RowFilter};
use topstat_model::{Row, Snapshot, Unit};

/// The quantity that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// The value of the largest row that matches.
    Value,
    /// The part of the total that this row has.
    Share,
    /// The total of the table.
    Total,
    /// The number of objects.
    Objects,
}

const QUANTITIES: [(&str, Quantity); 4] = [
    ("value", Quantity::Value),
    ("share", Quantity::Share),
    ("total", Quantity::Total),
    ("objects", Quantity::Objects),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Less,
    AtMost,
    More,
    AtLeast,
}

/// The longest come first.
const OPS: [(&str, Op); 4] = [("<=", Op::AtMost), (">=", Op::AtLeast), ("<", Op::Less), (">", Op::More)];

/// The longest time that a condition must be met: a day.
const LONGEST: Duration = Duration::from_secs(86400);

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The text.
    pub text: String,
    /// The path of the table, or the common name of several tables: `tcp/conns_pps`.
    pub table: String,
    filter: Filter,
    /// The quantity.
    pub quantity: Quantity,
    op: Op,
    number: String,
    /// How long it must be met.
    pub lasts: Duration,
}

/// The state of tables as a condition sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen<'a> {
    /// Whether the condition is met.
    pub met: bool,
    /// The quantity; a share is from 0 to 1.
    pub number: f64,
    /// The row that it is of, if it is a row's.
    pub row: Option<&'a Row>,
    /// The table that has this row; without a row, the table with the largest part.
    pub table: &'a Snapshot,
}

impl std::str::FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "a condition is SAMPLE/TABLE [FILTER] [value|share|total|objects] OP NUMBER [for TIME], with < <= > or >= as OP";
        let text = text.trim();
        let (table, rest) = text.split_once(char::is_whitespace).ok_or(form)?;
        if table.split('/').count() != 2 || table.split('/').any(str::is_empty) {
            return Err(format!("{table:?} is not SAMPLE/TABLE; {form}"));
        }
        let (rest, lasts) = match rest.rsplit_once(" for ") {
            None => (rest, Duration::ZERO),
            Some((rest, time)) => {
                let lasts = humantime::parse_duration(time.trim()).ok().filter(|lasts| *lasts <= LONGEST);
                (rest, lasts.ok_or_else(|| format!("{time:?} is no time up to a day, such as 30s"))?)
            }
        };
        // The comparison is at the end, and may have spaces: `share > 0.5`. The number has neither a space nor an operator.
        let at = rest.rfind(['<', '>']).ok_or(form)?;
        let (mut before, mut number) = (&rest[..at], &rest[at..]);
        let (sign, op) = *OPS.iter().find(|(sign, _)| number.starts_with(sign)).ok_or(form)?;
        number = number[sign.len()..].trim();
        if number.is_empty() || number.contains(char::is_whitespace) {
            return Err(format!("{number:?} is no number; {form}"));
        }
        before = before.trim_end();
        let word = before.rsplit(char::is_whitespace).next().unwrap_or_default();
        let named = QUANTITIES.iter().find(|(name, _)| *name == word);
        // A misspelt quantity would be a filter for a text, which no row has.
        if named.is_none() && !word.is_empty() && word.chars().all(char::is_alphanumeric) {
            return Err(format!(
                "{word:?} is no quantity: {form}; to filter for a text, write {word} value {sign} {number}"
            ));
        }
        let quantity = named.map_or(Quantity::Value, |(_, quantity)| *quantity);
        let filter = named.map_or(before, |(name, _)| &before[..before.len() - name.len()]);
        let filter: Filter = filter.parse().map_err(|fault| format!("filter {filter:?}: {fault}"))?;
        if !filter.is_empty() && matches!(quantity, Quantity::Total | Quantity::Objects) {
            return Err("total and objects describe the whole table: a filter has no effect on them".to_owned());
        }
        let condition = Self {
            text: text.to_owned(),
            table: table.to_owned(),
            filter,
            quantity,
            op,
            number: number.to_owned(),
            lasts,
        };
        // The unit of the table is not known yet; times are accepted until it is.
        condition.limit(Unit::Nanoseconds)?;
        Ok(condition)
    }
}

impl Condition {
    /// The number that the quantity is compared with.
    #[allow(clippy::cast_precision_loss)] // the difference is below any that matters
    fn limit(&self, unit: Unit) -> Result<f64, String> {
        match self.quantity {
            Quantity::Value | Quantity::Total => filter::amount(&self.number, unit).map(|number| number as f64),
            Quantity::Objects => filter::amount(&self.number, Unit::Count).map(|number| number as f64),
            Quantity::Share => {
                let (digits, scale) =
                    self.number.strip_suffix('%').map_or((&*self.number, 1.0), |digits| (digits, 100.0));
                let share = digits.parse::<f64>().ok().map(|share| share / scale);
                let share = share.filter(|share| (0.0..=1.0).contains(share));
                share.ok_or_else(|| format!("{:?} is no share: 0 to 1, or 0% to 100%", self.number))
            }
        }
    }

    /// Looks at tables of one kind, as at one table with the rows of all. Without a row that matches, the value and the share are
    /// 0.
    ///
    /// # Errors
    ///
    /// The filter or the number is not one for these tables.
    #[allow(clippy::cast_precision_loss)] // as for the limit
    pub fn look<'a>(&self, first: &'a Snapshot, further: &[&'a Snapshot]) -> Result<Seen<'a>, String> {
        let limit = self.limit(first.unit)?;
        let all = || std::iter::once(first).chain(further.iter().copied());
        let sum = |part: fn(&Snapshot) -> u64| all().map(|table| part(table) as f64).sum::<f64>();
        let most = |part: fn(&Snapshot) -> u64| all().max_by_key(|table| part(table)).unwrap_or(first);
        let (number, row, table) = match self.quantity {
            Quantity::Total => (sum(|table| table.total), None, most(|table| table.total)),
            Quantity::Objects => (sum(|table| table.objects), None, most(|table| table.objects)),
            Quantity::Value | Quantity::Share => {
                let mut largest: Option<(&Row, &Snapshot)> = None;
                for table in all() {
                    self.filter.check(&table.keys()).map_err(|fault| fault.to_string())?;
                    let filter = RowFilter::new(std::slice::from_ref(&self.filter), table);
                    let filter = filter.map_err(|fault| fault.to_string())?;
                    let row = table.rows.iter().find(|row| filter.matches(row));
                    let larger = |row: &&Row| largest.is_none_or(|(largest, _)| row.value > largest.value);
                    largest = row.filter(larger).map(|row| (row, table)).or(largest);
                }
                let value = largest.map_or(0.0, |(row, _)| row.value as f64);
                let whole = if self.quantity == Quantity::Share { sum(|table| table.total).max(1.0) } else { 1.0 };
                (value / whole, largest.map(|(row, _)| row), largest.map_or(first, |(_, table)| table))
            }
        };
        let met = match self.op {
            Op::Less => number < limit,
            Op::AtMost => number <= limit,
            Op::More => number > limit,
            Op::AtLeast => number >= limit,
        };
        Ok(Seen { met, number, row, table })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topstat_model::{Column, ColumnKind, Field, Lost, Settings, TableType};

    fn snapshot(unit: Unit, values: &[(&str, u64)], other: u64) -> Snapshot {
        let row = |(rank, (comm, value)): (usize, &(&str, u64))| Row {
            id: Row::NO_ID,
            rank: rank as u32 + 1,
            value: *value,
            object: vec![Field::from(*comm)],
            parts: vec![],
            cpus: vec![],
        };
        let total = values.iter().map(|(_, value)| value).sum::<u64>() + other;
        Snapshot {
            time: std::time::UNIX_EPOCH,
            sample: "a".into(),
            table: "b".into(),
            kind: TableType::Dynamic,
            unit,
            value_name: "bps".into(),
            period_ms: 1000,
            delay_ms: 0,
            elapsed: None,
            top: 128,
            objects: 7,
            total,
            shared: total,
            other,
            proven: 0,
            filter: None,
            lost: Lost::default(),
            lost_now: Lost::default(),
            settings: Settings { enabled: true, owner: "a".into(), owner_enabled: true, topstat_enabled: true },
            columns: vec![Column::new("comm", ColumnKind::Text)],
            parts: vec![],
            rows: values.iter().enumerate().map(row).collect(),
            cpus: vec![],
        }
    }

    fn look(text: &str, snapshot: &Snapshot) -> (bool, f64, String) {
        let condition: Condition = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        let seen = condition.look(snapshot, &[]).unwrap_or_else(|error| panic!("{text}: {error}"));
        (seen.met, seen.number, seen.row.map(|row| row.object[0].to_string()).unwrap_or_default())
    }

    #[test]
    fn conditions_compare_the_largest_row_that_matches_or_the_table() {
        let table = snapshot(Unit::Bits, &[("curl", 6_000_000), ("nginx", 3_000_000)], 1_000_000);
        for (text, met, number, row) in [
            ("a/b > 5M", true, 6e6, "curl"),
            ("a/b value>6M", false, 6e6, "curl"),
            ("a/b value >= 6M", true, 6e6, "curl"),
            ("a/b share > 0.5 for 30s", true, 0.6, "curl"),
            ("a/b share>=60%", true, 0.6, "curl"),
            ("a/b comm:nginx share > 50%", false, 0.3, "nginx"),
            ("a/b comm:nginx > 2M", true, 3e6, "nginx"),
            ("a/b comm:none > 0", false, 0.0, ""),
            ("a/b comm:none <= 0", true, 0.0, ""),
            ("a/b value<4M value > 1M", true, 3e6, "nginx"),
            ("a/b total > 9M", true, 1e7, ""),
            ("a/b objects < 8", true, 7.0, ""),
        ] {
            assert_eq!(look(text, &table), (met, number, row.to_owned()), "{text}");
        }
        let empty = snapshot(Unit::Bits, &[], 0);
        assert_eq!(look("a/b share > 0", &empty), (false, 0.0, String::new()));
        assert!(look("a/b total > 1ms", &snapshot(Unit::Nanoseconds, &[], 2_000_000)).0);
        let lasts = |text: &str| text.parse::<Condition>().unwrap().lasts;
        assert_eq!(lasts("a/b share > 0.5 for 30s"), Duration::from_secs(30));
        assert_eq!(lasts("a/b share > 0.5"), Duration::ZERO);
    }

    #[test]
    fn several_tables_are_one_ranking() {
        let v4 = snapshot(Unit::Bits, &[("curl", 6), ("nginx", 3)], 1);
        let v6 = snapshot(Unit::Bits, &[("nginx", 9)], 1);
        for (text, number, row, table) in [
            ("a/b > 8", 9.0, "nginx", &v6),
            ("a/b comm:curl > 8", 6.0, "curl", &v4),
            ("a/b share > 40%", 0.45, "nginx", &v6),
            ("a/b total > 10", 20.0, "", &v6),
            ("a/b objects > 10", 14.0, "", &v6),
            ("a/b comm:none > 1", 0.0, "", &v4),
        ] {
            let condition: Condition = text.parse().unwrap();
            let seen = condition.look(&v4, &[&v6]).unwrap();
            let found = seen.row.map(|row| row.object[0].to_string()).unwrap_or_default();
            assert_eq!((seen.number, found.as_str()), (number, row), "{text}");
            assert!(std::ptr::eq(seen.table, table) || seen.table == table, "{text}");
        }
    }

    #[test]
    fn mistakes_are_told() {
        for (text, why) in [
            ("", "a condition is SAMPLE/TABLE"),
            ("a/b", "a condition is SAMPLE/TABLE"),
            ("ab > 5", "\"ab\" is not SAMPLE/TABLE"),
            ("a/b 5", "a condition is SAMPLE/TABLE"),
            ("a/b > ", "\"\" is no number"),
            ("a/b > x", "\"x\" is no number"),
            ("a/b > 5 6", "\"5 6\" is no number"),
            ("a/b share > 2", "\"2\" is no share"),
            ("a/b share > 101%", "\"101%\" is no share"),
            ("a/b share > nan", "\"nan\" is no share"),
            ("a/b > 5 for ever", "\"ever\" is no time"),
            ("a/b > 5 for 2days", "no time up to a day"),
            ("a/b shar > 0.5", "\"shar\" is no quantity"),
            ("a/b comm: > 5", "filter \"comm:\""),
            ("a/b comm:x total > 5", "a filter has no effect"),
            ("a/b objects > 5ms", "is no time, and has no unit ms"),
        ] {
            let error = text.parse::<Condition>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        let table = snapshot(Unit::Bits, &[("curl", 6)], 0);
        for (text, why) in [("a/b > 5ms", "has no unit ms"), ("a/b port:1 > 5", "there is no column \"port\"")] {
            let error = text.parse::<Condition>().unwrap().look(&table, &[]).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
