// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The top of a fleet as SQL, for engines that read Parquet: one view, which differs between engines, and one query.
//!
//! The query has the bounds of [`bounds`](crate::bounds): its comments name them.

use std::fmt::Write as _;
use std::time::SystemTime;

use topstat_model::{FleetKey, Reach};

use crate::bounds::MOST_PLACES;
use crate::scan::{CONTAINER, NONE, WITHOUT_OBJECT, Window};

/// An engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// DuckDB.
    DuckDb,
    /// Apache Spark.
    Spark,
    /// ClickHouse, and chdb.
    ClickHouse,
}

/// A question to an engine.
#[derive(Clone, Debug)]
pub struct Question<'q> {
    /// The table: `net_cgroups.bps`.
    pub table: &'q str,
    /// The columns that name an object.
    pub key: &'q FleetKey,
    /// The names of these columns in files.
    pub stored: &'q [String],
    /// Whether files have the column of containers.
    pub has_container: bool,
    /// The names of lost counts in files.
    pub lost: &'q [String],
    /// The directory or bucket of the fleet.
    pub fleet: &'q str,
    /// Whether the files are compacted.
    pub compacted: bool,
    /// The window of time.
    pub window: Window,
    /// Whether the mean of each host's snapshots in the window is asked for, and not the last one.
    pub mean: bool,
    /// The number of rows.
    pub rows: usize,
}

/// The statements, for this engine.
pub fn statements(engine: Engine, question: &Question<'_>) -> String {
    let mut sql = engine.view(question);
    sql.push_str(&query(engine, question));
    sql
}

impl Engine {
    fn name(self, name: &str) -> String {
        match self {
            Self::Spark => format!("`{}`", name.replace('`', "``")),
            Self::DuckDb | Self::ClickHouse => format!("\"{}\"", name.replace('"', "\"\"")),
        }
    }

    fn instant(self, time: SystemTime) -> String {
        let text = humantime::format_rfc3339_micros(time).to_string().replace('T', " ").replace('Z', "");
        match self {
            Self::DuckDb => format!("TIMESTAMPTZ '{text}+00'"),
            Self::Spark => format!("TIMESTAMP '{text} UTC'"),
            Self::ClickHouse => format!("toDateTime64('{text}', 6, 'UTC')"),
        }
    }

    /// A number that may be null: 0 then.
    fn number(self, name: &str) -> String {
        let kind = if self == Self::ClickHouse { "Int64" } else { "BIGINT" };
        let name = self.name(name);
        format!("CAST(coalesce({name}, 0) AS {kind})")
    }

    fn text(self, name: &str) -> String {
        let name = self.name(name);
        match self {
            Self::DuckDb => format!("coalesce(CAST({name} AS VARCHAR), '{NONE}')"),
            Self::Spark => format!("coalesce(CAST({name} AS STRING), '{NONE}')"),
            Self::ClickHouse => format!("coalesce(toString({name}), '{NONE}')"),
        }
    }

    fn tab(self) -> &'static str {
        if self == Self::ClickHouse { "char(9)" } else { "chr(9)" }
    }

    /// The quotient of two integers that are not negative, rounded down.
    fn quotient(self, dividend: &str, divisor: &str) -> String {
        match self {
            Self::DuckDb => format!("(({dividend}) // {divisor})"),
            Self::Spark => format!("(({dividend}) div {divisor})"),
            Self::ClickHouse => format!("intDiv({dividend}, {divisor})"),
        }
    }

    /// The same, rounded up.
    fn rounded_up(self, dividend: &str, divisor: &str) -> String {
        self.quotient(&format!("{dividend} + {divisor} - 1"), divisor)
    }

    fn view(self, question: &Question<'_>) -> String {
        let Question { table, key, compacted, .. } = question;
        let fleet = question.fleet.trim_end_matches('/').replace('\'', "''");
        let hosts = if *compacted { "" } else { "host=*/" };
        let files = format!("{fleet}/{hosts}table={table}/date=*/*.parquet");
        let mut object: Vec<String> = question.stored.iter().map(|column| self.text(column)).collect();
        if key.reach == Reach::Local {
            object.insert(0, "host".to_owned());
        }
        let object = object.join(&format!(" || {} || ", self.tab()));
        let spans = match key.reach {
            Reach::Local => "0".to_owned(),
            Reach::Spanning if question.has_container => {
                format!("CASE WHEN {} IS NULL THEN 1 ELSE 0 END", self.name(CONTAINER))
            }
            Reach::Spanning | Reach::Part => "1".to_owned(),
        };
        let (begin, from) = match self {
            Self::DuckDb => (
                "SET TimeZone = 'UTC';\nCREATE OR REPLACE TEMPORARY VIEW records AS\n".to_owned(),
                format!("read_parquet('{files}', hive_partitioning = true, hive_types_autocast = false)"),
            ),
            Self::Spark => (
                format!(
                    "SET spark.sql.session.timeZone = UTC;\nSET spark.sql.sources.partitionColumnTypeInference.enabled = \
                     false;\nCREATE OR REPLACE TEMPORARY VIEW files USING parquet\nOPTIONS (path \
                     '{files}', basePath '{fleet}');\nCREATE OR REPLACE TEMPORARY VIEW records AS\n"
                ),
                "files".to_owned(),
            ),
            Self::ClickHouse => (
                "SET prefer_column_name_to_alias = 1;\nCREATE OR REPLACE VIEW records AS\n".to_owned(),
                format!("file('{files}', Parquet)"),
            ),
        };
        let number = |name: &str| self.number(name);
        // Running totals have no mean.
        let only = if question.mean { format!(" AND {} <> 'static'", self.name("type")) } else { String::new() };
        format!(
            "{begin}SELECT host, time, {} AS rank,\n       {object} AS object,\n       {spans} AS spans, {} AS value, {} AS total, {} \
             AS other,\n       {} AS proven, {} AS doubt\nFROM {from}\nWHERE gap IS NULL{only};\n\n",
            number("rank"),
            number("value"),
            number("total"),
            number("other"),
            number("proven"),
            self.doubt(question.lost),
        )
    }

    /// Whether amounts had no object.
    fn doubt(self, lost: &[String]) -> String {
        let counts = |before: &str| {
            let names = WITHOUT_OBJECT.iter().filter(|name| lost.iter().any(|known| known == *name));
            names.map(|name| format!("coalesce({before}{name}, 0)")).collect::<Vec<_>>().join(" + ")
        };
        let (all, now) = (counts("lost_"), counts("lost_now_"));
        if all.is_empty() {
            return "0".to_owned();
        }
        let kind = self.name("type");
        format!("CASE WHEN CASE WHEN {kind} = 'static' THEN {all} ELSE {now} END > 0 THEN 1 ELSE 0 END")
    }
}

fn query(engine: Engine, question: &Question<'_>) -> String {
    let (from, at) = (engine.instant(question.window.from), engine.instant(question.window.at));
    let (hidden, further) = match question.key.reach {
        Reach::Part => ("other", "other"),
        Reach::Local | Reach::Spanning => (
            "CASE WHEN doubt = 1 THEN other ELSE least(other, proven_row) END",
            "CASE WHEN doubt = 1 THEN other ELSE 0 END",
        ),
    };
    let unseen = if question.key.reach == Reach::Local { "max" } else { "sum" };
    let rows = question.rows.min(MOST_PLACES);
    let columns = ["host", "time", "rank", "object", "spans", "value", "total", "other", "proven", "doubt"];
    let columns = columns.map(|name| format!("r.{name} AS {name}")).join(", ");
    let in_window = |time: &str| format!("{time} > {from} AND {time} <= {at}");
    let (asked, latest, only_latest) = if question.mean {
        ("The mean of each host's snapshots", String::new(), "")
    } else {
        let latest = format!(
            "latest AS (\n  SELECT host, max(time) AS time FROM records WHERE {} GROUP BY host\n), ",
            in_window("time")
        );
        ("The last snapshot of each host", latest, " JOIN latest l ON r.host = l.host AND r.time = l.time")
    };
    let quotient = |dividend, divisor| engine.quotient(dividend, divisor);
    let mut sql = String::new();
    write!(
        sql,
        "-- {asked} after {from}, up to {at}.
WITH {latest}shown AS (
  SELECT {columns}
  FROM records r{only_latest}
  WHERE {in_time}
), snapshots AS (
  SELECT host, time, max(total) AS total, max(other) AS other, max(doubt) AS doubt,
         coalesce(min(CASE WHEN rank BETWEEN 1 AND proven THEN value END), max(other)) AS proven_row
  FROM shown GROUP BY host, time
), bounds AS (
  -- B1, B2: the most that an object without a row has there; B3: the most that one with a row has there in addition.
  SELECT host, time, total, {hidden} AS hidden,
         {further} AS further
  FROM snapshots
), sums AS (
  SELECT host, count(*) AS snapshots, sum(total) AS total, sum(hidden) AS hidden FROM bounds GROUP BY host
), fleet AS (
  SELECT count(*) AS reported, sum({total}) AS total,
         sum({hidden_up}) AS hidden, {unseen}({hidden_up}) AS unseen
  FROM sums
), at_once AS (
  SELECT host, time, object, sum(value) AS value, max(spans) AS spans FROM shown WHERE rank > 0 GROUP BY host, time, object
), on_host AS (
  SELECT a.host AS host, a.object AS object, max(a.spans) AS spans, sum(a.value) AS value,
         sum(a.value + b.further) AS most, sum(b.hidden) AS hidden
  FROM at_once a JOIN bounds b ON b.host = a.host AND b.time = a.time GROUP BY a.host, a.object
), found AS (
  -- B4: the means. An object of one host may be hidden in the snapshots that do not show it.
  SELECT o.object AS object, count(*) AS hosts, max(o.spans) AS spans, sum({value}) AS lower_bound,
         sum({most}) AS most,
         sum({hidden_here}) AS hidden_here
  FROM on_host o JOIN sums s ON s.host = o.host GROUP BY o.object
), bounded AS (
  SELECT b.object AS object, b.hosts AS hosts, b.lower_bound AS lower_bound,
         b.most + b.spans * (f.hidden - b.hidden_here) AS upper_bound,
         f.reported AS reported, f.total AS total, f.unseen AS unseen
  FROM found b CROSS JOIN fleet f
), head AS (
  SELECT * FROM bounded ORDER BY lower_bound DESC, object LIMIT {MOST_PLACES}
), tail AS (
  -- All further objects as one: the most that any of them can have.
  SELECT coalesce(max(upper_bound), 0) AS upper_bound FROM bounded WHERE object NOT IN (SELECT object FROM head)
), ranked AS (
  SELECT h.*, row_number() OVER (ORDER BY h.lower_bound DESC, h.object) AS place,
         greatest(h.unseen, t.upper_bound,
                  coalesce(max(h.upper_bound) OVER (ORDER BY h.lower_bound DESC, h.object
                           ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING), 0)) AS others
  FROM head h CROSS JOIN tail t
), verdict AS (
  -- The first k are the top k if the k-th has at least what any other object, shown or not, can have.
  SELECT coalesce(max(CASE WHEN lower_bound >= others THEN place END), 0) AS proven_to FROM ranked
)
SELECT place, object, hosts, lower_bound, upper_bound, proven_to, reported, total
FROM ranked CROSS JOIN verdict WHERE place <= {rows} ORDER BY place;
",
        in_time = in_window("r.time"),
        total = quotient("total", "snapshots"),
        hidden_up = engine.rounded_up("hidden", "snapshots"),
        value = quotient("o.value", "s.snapshots"),
        most = engine.rounded_up("o.most + (1 - o.spans) * (s.hidden - o.hidden)", "s.snapshots"),
        hidden_here = quotient("o.hidden", "s.snapshots"),
    )
    .expect("a String takes all");
    sql
}
