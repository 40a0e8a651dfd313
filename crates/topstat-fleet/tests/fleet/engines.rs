// SPDX-License-Identifier: Apache-2.0 OR MIT
//! DuckDB, with the SQL that is printed, has the rows of `fleet top`.
//!
//! scripts/setup installs DuckDB where the test looks for it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use topstat_fleet::Root;
use topstat_fleet::bounds::top;
use topstat_fleet::compact;
use topstat_fleet::scan::{CONTAINER, Table};
use topstat_fleet::sql::{Engine, Question, statements};

use crate::fixtures::{Scratch, TABLES, hour, record, shape};
use crate::scanning::window;

/// The Python that scripts/setup has made, if it has DuckDB.
fn python() -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
    let python = cache.join("topstat/python/bin/python");
    let has_all = Command::new(&python).args(["-c", "import duckdb, pytz"]).output();
    has_all.is_ok_and(|output| output.status.success()).then_some(python)
}

fn duckdb(python: &Path, sql: &str) -> Vec<String> {
    let program = format!(
        "import duckdb\nfor row in duckdb.connect().execute({sql:?}).fetchall(): print(*map(str, row), sep='|')"
    );
    let output = Command::new(python).args(["-c", &program]).output().unwrap();
    assert!(output.status.success(), "{sql}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn duckdb_has_the_rows_of_fleet_top() {
    let Some(python) = python() else {
        println!("skipped: no Python with duckdb (scripts/setup test)");
        return;
    };
    let scratch = Scratch::new("engines");
    (0..25).for_each(|host| record(&scratch.fleet(), host, 10));
    let compacted = scratch.0.join("compacted");
    let sources = [Root::open(&scratch.fleet()).unwrap()];
    compact::run(&sources, &Root::make(&compacted).unwrap(), hour() + Duration::from_secs(3600)).unwrap();
    for dir in [scratch.fleet(), compacted] {
        let roots = [Root::open(&dir).unwrap()];
        for ((sample, of_sample), by) in TABLES.map(|table| (table, vec![])).into_iter().chain([
            (("tasks", "cpu"), vec!["comm".to_owned()]),
            (("net_cgroups", "bps"), vec!["container".to_owned()]),
        ]) {
            let name = format!("{sample}.{of_sample}");
            let table = Table::find(&roots, &name, None).unwrap();
            let scan = table.scan(table.key(&by), window(30));
            let names = &scan.objects;
            let order = |a: u32, b: u32| names[a as usize].cmp(&names[b as usize]);
            let found = top(scan.key.reach, &scan.hosts, names.len(), &|_| true, &order);
            let row = |(place, row): (usize, &topstat_fleet::bounds::Bounded)| {
                let object = &names[row.object as usize];
                let (proven_to, reported, total) = (found.proven_to, found.reported, found.total);
                format!("{place}|{object}|{}|{}|{}|{proven_to}|{reported}|{total}", row.hosts, row.lower, row.upper)
            };
            let expected: Vec<_> = (1..).zip(&found.rows).map(row).collect();
            let columns = shape(sample, of_sample).unwrap().columns;
            let question = Question {
                table: &name,
                key: &scan.key,
                stored: &scan.key.columns,
                has_container: columns.iter().any(|column| column.name == CONTAINER),
                lost: &["no_memory", "full"].map(str::to_owned),
                fleet: dir.to_str().unwrap(),
                compacted: !table.has_host_directories(),
                window: window(30),
                rows: 1000,
            };
            let rows = duckdb(&python, &statements(Engine::DuckDb, &question));
            assert!(expected.len() > 6 && found.reported == 25, "{name}: {expected:?}");
            assert_eq!(rows, expected, "{name} by {by:?} in {}", dir.display());
        }
    }
}
