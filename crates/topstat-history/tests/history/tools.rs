// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other tools read sealed files: DuckDB and pandas run the queries of docs/history.md, unchanged.
//!
//! scripts/setup installs both where the tests look for them.

use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use topstat_history::{Privacy, Root, Table, check, sealed};
use topstat_model::{Field, json};

use crate::fixtures::{OPTIONS, Scratch, at, place, shape, snapshot};

/// The path of records in the document.
const DOCUMENTED: &str = "/var/lib/topstat/history";

/// The Python that scripts/setup has made, if there is one.
fn python() -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
    let python = cache.join("topstat/python/bin/python");
    let has_all = Command::new(&python).args(["-c", "import duckdb, pandas, pyarrow, pytz"]).output();
    has_all.is_ok_and(|output| output.status.success()).then_some(python)
}

fn run(python: &Path, program: &str) -> String {
    let output = Command::new(python).args(["-c", program]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}\n{said}");
    String::from_utf8(output.stdout).unwrap()
}

/// The blocks of the document in this language.
fn blocks(language: &str) -> Vec<String> {
    let document = include_str!("../../../../docs/history.md");
    let begin = format!("```{language}\n");
    document.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Records two hours with a gap and an empty snapshot, which are sealed, and a minute of fine records. Returns the largest value
/// of the first rows of all coarse snapshots.
fn record(root: &Path) -> u64 {
    let mut table = Table::open(&Root::guarded(root).unwrap(), place(), OPTIONS, Duration::ZERO).unwrap();
    let mut most = 0;
    for second in (0..7200).step_by(10).filter(|second| !(1000..1500).contains(second)) {
        let snapshot = snapshot(at(second * 1000), if second == 500 { 0 } else { 32 });
        most = most.max(snapshot.rows.first().map_or(0, |row| row.value));
        table.coarse(snapshot).unwrap();
    }
    for second in 7200..7260 {
        let snapshot = snapshot(at(second * 1000), 128);
        let mut document = Vec::new();
        json::write(&snapshot, &mut document).unwrap();
        table.fine(snapshot.time, &document).unwrap();
    }
    table.sync().unwrap();
    let over = table.to_seal(at(9_000_000)).unwrap();
    assert_eq!(over.len(), 2, "both hours are over");
    for file in over {
        assert_eq!(table.seal(&file, &shape, &Privacy::default()).unwrap(), None);
    }
    most
}

#[test]
fn the_queries_of_the_document_run_and_find_what_was_recorded() {
    let Some(python) = python() else {
        println!("skipped: no Python with duckdb, pandas and pyarrow (scripts/setup test)");
        return;
    };
    let scratch = Scratch::new("tools");
    let most = record(&scratch.0);
    let here = |text: &str| text.replace(DOCUMENTED, scratch.0.to_str().unwrap());
    let sql = |query: &str| {
        // Values as Python writes them, one row in each line.
        let program = format!("import duckdb\nfor row in duckdb.sql({:?}).fetchall(): print(row)", here(query));
        run(&python, &program).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let queries = blocks("sql");
    assert_eq!(queries.len(), 5);
    let found: Vec<_> = queries.iter().map(|query| sql(query)).collect();
    assert!(found[0].len() == 10 && found[0][0].contains(&format!(", {most}, ")), "{most}: {:?}", found[0]);
    assert_eq!(found[1], [""; 0], "all of them add up");
    assert_eq!(found[2].len(), 1, "{:?}", found[2]);
    assert!(found[2][0].contains("the recorder was late"), "{:?}", found[2]);
    // 120 minutes: the gap has seven of them whole, and a part of the eighth and ninth.
    assert!(found[3].len() > 100 * 3 && found[3].len() <= 120 * 3, "{}", found[3].len());
    assert_eq!(found[4].len(), 10, "{:?}", found[4]);
    let rows = "SELECT count(*) FROM read_parquet('/var/lib/topstat/history/**/*.parquet') WHERE rank > 0";
    assert_eq!(sql(rows), [format!("({},)", (720 - 50 - 1) * 32)]);
    // pandas reads through pyarrow.
    let programs = blocks("python");
    assert_eq!(programs.len(), 1);
    let printed = run(&python, &here(&programs[0]));
    assert!(printed.contains(&most.to_string()), "{most}: {printed}");
}

/// Two hours of a table: in the first one, most columns of objects have no value in any row.
fn record_sparsely(root: &Path) {
    let mut table = Table::open(&Root::guarded(root).unwrap(), place(), OPTIONS, Duration::ZERO).unwrap();
    for second in [10, 20, 3610, 3620] {
        let mut snapshot = snapshot(at(second * 1000), 8);
        if second < 3600 {
            for row in &mut snapshot.rows {
                row.object[2..].fill(Field::None);
            }
            if second == 20 {
                snapshot.truncate(0);
            }
        }
        table.coarse(snapshot).unwrap();
    }
    table.pause().unwrap();
    for file in table.to_seal(at(9_000_000)).unwrap() {
        assert_eq!(table.seal(&file, &shape, &Privacy::default()).unwrap(), None);
    }
}

#[test]
fn an_hour_without_values_has_the_columns_of_all_others() {
    let scratch = Scratch::new("sparse");
    record_sparsely(&scratch.0);
    let files: Vec<_> = ["08", "09"]
        .map(|hour| place().dir(&scratch.0).join("date=2026-11-21").join(format!("{hour}.parquet")))
        .to_vec();
    let schemas = files.iter().map(|file| sealed::Sealed::open(File::open(file).unwrap()).unwrap().schema());
    let schemas: Vec<_> = schemas.collect();
    assert_eq!(schemas[0], schemas[1]);
    let of = |name: &str| schemas[0].iter().find(|(own, _)| own == name).map(|(_, kind)| *kind);
    for (name, kind) in [("time", "time"), ("value", "number"), ("rx", "number"), ("dport", "number"), ("dip", "text")]
    {
        assert_eq!(of(name), Some(kind), "{name}");
    }
    assert!(check::check(&scratch.root(), &shape).unwrap().faults.is_empty());
    let Some(python) = python() else {
        println!("skipped: no Python with duckdb, pandas and pyarrow (scripts/setup test)");
        return;
    };
    let program = format!(
        "import duckdb, pandas, pyarrow, pyarrow.parquet as pq\n\
         files = {files:?}\n\
         types = 'typeof(time), typeof(rank), typeof(value), typeof(dip), typeof(dport), typeof(container)'\n\
         print(duckdb.sql(f'SELECT DISTINCT {{types}} FROM read_parquet({{files}})').fetchall())\n\
         print(duckdb.sql(f'SELECT count(*), sum(value), max(comm) FROM read_parquet({{files}}) WHERE dip IS NOT NULL').fetchall()[0][0])\n\
         one, two = map(pq.read_schema, files)\n\
         assert one.equals(two), (one, two)\n\
         print(one.field('time').type, one.field('value').type, pq.ParquetDataset(files).read().num_rows)\n\
         print(pandas.read_parquet(files).time.dtype)\n\
         print([(c.column_index, c.descending) for c in pq.ParquetFile(files[1]).metadata.row_group(0).sorting_columns])\n\
         print(pq.ParquetFile(files[1]).metadata.row_group(0).column(0).statistics.has_min_max)\n"
    );
    let printed = run(&python, &program);
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(
        lines,
        [
            "[('TIMESTAMP WITH TIME ZONE', 'BIGINT', 'BIGINT', 'VARCHAR', 'BIGINT', 'VARCHAR')]",
            "16",
            // One row is the gap between the hours, and one the snapshot without rows.
            "timestamp[us, tz=UTC] int64 26",
            "datetime64[us, UTC]",
            "[(0, False), (1, False)]",
            "True",
        ]
    );
}
