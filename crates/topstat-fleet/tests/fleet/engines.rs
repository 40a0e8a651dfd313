// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other engines, with the SQL that is printed, have the rows of `fleet top`.
//!
//! `scripts/setup test` installs DuckDB where the test looks for it, and `scripts/setup readers` ClickHouse (chdb) and Spark. These two
//! take a gigabyte, so their tests run by `make readers`.

use std::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use topstat_fleet::Root;
use topstat_fleet::bounds::{self, Bounded, Host, top};
use topstat_fleet::compact;
use topstat_fleet::scan::{CONTAINER, Scan, Table};
use topstat_fleet::sql::{Engine, Question, statements};

use crate::fixtures::{Scratch, TABLES, hour, record, shape};
use crate::scanning::window;

/// The folder of the job for Spark.
const JOB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/spark");

/// The Python of an environment that scripts/setup has made, if it has these modules.
fn python(environment: &str, modules: &str) -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
    let python = cache.join("topstat").join(environment).join("bin/python");
    let has_all = Command::new(&python).args(["-c", &format!("import {modules}")]).output();
    has_all.is_ok_and(|output| output.status.success()).then_some(python)
}

/// A question as SQL, and the rows of `fleet top`.
struct Case {
    name: String,
    sql: String,
    rows: Vec<String>,
}

/// The rows of a table over all hosts, as the SQL has them.
fn rows<H: Host>(scan: &Scan<H>) -> Vec<String> {
    let names = &scan.objects;
    let order = |a: u32, b: u32| names[a as usize].cmp(&names[b as usize]);
    let bounds::Top { rows, proven_to, reported, total, .. } =
        top(scan.key.reach, &scan.hosts, names.len(), &|_| true, &order);
    assert!(rows.len() > 6 && reported == 25, "{rows:?}");
    let row = |(place, row): (usize, Bounded)| {
        let (object, hosts, least, most) = (&names[row.object as usize], row.hosts, row.lower, row.upper);
        format!("{place}|{object}|{hosts}|{least}|{most}|{proven_to}|{reported}|{total}")
    };
    (1..).zip(rows).map(row).collect()
}

/// Questions about all tables, in both layouts: the last snapshots, and the means.
fn cases(scratch: &Scratch, engine: Engine) -> Vec<Case> {
    (0..25).for_each(|host| record(&scratch.fleet(), host, 10));
    let compacted = scratch.0.join("compacted");
    let sources = [Root::open(&scratch.fleet()).unwrap()];
    compact::run(&sources, &Root::make(&compacted).unwrap(), hour() + Duration::from_secs(3600)).unwrap();
    let mut cases = Vec::new();
    for dir in [scratch.fleet(), compacted] {
        let roots = [Root::open(&dir).unwrap()];
        for ((sample, of_sample), by) in TABLES.map(|table| (table, vec![])).into_iter().chain([
            (("tasks", "cpu"), vec!["comm".to_owned()]),
            (("net_cgroups", "bps"), vec!["container".to_owned()]),
        ]) {
            let name = format!("{sample}.{of_sample}");
            let table = Table::find(&roots, &name, None).unwrap();
            let key = table.key(&by);
            let columns = shape(sample, of_sample).unwrap().columns;
            for mean in [false, true] {
                let window = window(if mean { 60 } else { 30 });
                let question = Question {
                    table: &name,
                    key: &key,
                    stored: &key.columns,
                    has_container: columns.iter().any(|column| column.name == CONTAINER),
                    lost: &["no_memory", "full"].map(str::to_owned),
                    fleet: dir.to_str().unwrap(),
                    compacted: !table.has_host_directories(),
                    window,
                    mean,
                    rows: 1000,
                };
                let rows =
                    if mean { rows(&table.mean(key.clone(), window)) } else { rows(&table.scan(key.clone(), window)) };
                let name = format!("{name} by {by:?} in {}, mean: {mean}", dir.display());
                cases.push(Case { name, sql: statements(engine, &question), rows });
            }
        }
    }
    cases
}

/// Runs the questions in an engine, and compares the rows.
fn compare(python: &Path, engine: &str, cases: &[Case], master: &str) {
    let mut command = Command::new(python);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fleet/engines.py")).arg(engine);
    command.env("MASTER", master).env("PYTHONPATH", JOB).env("PYTHONDONTWRITEBYTECODE", "1").env("TZ", "Asia/Tokyo");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let texts: Vec<_> = cases.iter().map(|case| &case.sql).collect();
    child.stdin.take().unwrap().write_all(serde_json::to_string(&texts).unwrap().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let answers: Vec<Vec<String>> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answers.len(), cases.len());
    for (case, answer) in cases.iter().zip(answers) {
        assert_eq!(answer, case.rows, "{}:\n{}", case.name, case.sql);
    }
}

#[test]
fn duckdb_has_the_rows_of_fleet_top() {
    let Some(python) = python("python", "duckdb, pytz") else {
        println!("skipped: no Python with duckdb (scripts/setup test)");
        return;
    };
    let scratch = Scratch::new("duckdb");
    compare(&python, "duckdb", &cases(&scratch, Engine::DuckDb), "");
}

#[test]
#[ignore = "wants ClickHouse, a download of 200 MB: make readers"]
fn clickhouse_has_the_rows_of_fleet_top() {
    let python = python("readers", "chdb").expect("no Python with chdb: scripts/setup readers");
    let scratch = Scratch::new("clickhouse");
    compare(&python, "clickhouse", &cases(&scratch, Engine::ClickHouse), "");
}

/// A master and two workers of Spark on this host. They end with the test.
struct Cluster {
    processes: Vec<Child>,
    address: String,
}

impl Cluster {
    fn start(python: &Path, scratch: &Scratch) -> Self {
        let home = Command::new(python).args(["-c", "import pyspark; print(*pyspark.__path__)"]).output().unwrap();
        let home = PathBuf::from(String::from_utf8(home.stdout).unwrap().trim());
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut cluster = Self { processes: vec![], address: format!("spark://127.0.0.1:{port}") };
        let mut start = |name: &str, arguments: &[&str]| {
            let log = std::fs::File::create(scratch.0.join(format!("{name}.log"))).unwrap();
            let mut command = Command::new(home.join("bin/spark-class"));
            command.arg(format!("org.apache.spark.deploy.{}", name.trim_end_matches(char::is_numeric)));
            command.args(["--host", "127.0.0.1", "--webui-port", "0"]).args(arguments).env("SPARK_HOME", &home);
            command.env("SPARK_DAEMON_MEMORY", "256m").stdout(log.try_clone().unwrap()).stderr(log);
            cluster.processes.push(command.spawn().unwrap());
        };
        start("master.Master", &["--port", &port.to_string()]);
        let begun = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(120), "the master does not listen");
            std::thread::sleep(Duration::from_millis(100));
        }
        for worker in ["worker.Worker1", "worker.Worker2"] {
            let work = scratch.0.join(worker);
            let address = format!("spark://127.0.0.1:{port}");
            start(worker, &["--cores", "1", "--memory", "512m", "--work-dir", work.to_str().unwrap(), &address]);
        }
        cluster
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

#[test]
#[ignore = "wants Spark, a download of 500 MB: make readers"]
fn a_cluster_of_spark_has_the_rows_of_fleet_top() {
    let python = python("readers", "pyspark").expect("no Python with pyspark: scripts/setup readers");
    let scratch = Scratch::new("spark");
    // Spark takes seconds for each: here are both layouts, all reaches, instants and means.
    let cases: Vec<_> = cases(&scratch, Engine::Spark).into_iter().step_by(3).collect();
    let cluster = Cluster::start(&python, &scratch);
    compare(&python, "spark", &cases, &cluster.address);
    // The job alone, as a user submits it.
    let sql = scratch.0.join("top.sql");
    let to = scratch.0.join("answer");
    std::fs::write(&sql, &cases[1].sql).unwrap();
    let submit = python.parent().unwrap().join("spark-submit");
    for to in [None, Some(&to)] {
        let mut command = Command::new(&submit);
        command.args(["--master", &cluster.address, "--executor-memory", "512m", "--conf", "spark.ui.enabled=false"]);
        command.args(["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"]);
        command.arg(Path::new(JOB).join("topstat_top.py")).arg(&sql);
        command.args(to.iter().flat_map(|to| [Path::new("--to"), to]));
        let output = command.env("PYSPARK_PYTHON", &python).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = match to {
            None => String::from_utf8(output.stdout).unwrap(),
            Some(to) => {
                let parts = std::fs::read_dir(to).unwrap().map(|entry| entry.unwrap().path());
                let parts = parts.filter(|path| path.extension().is_some_and(|name| name == "json"));
                parts.map(|path| std::fs::read_to_string(path).unwrap()).collect()
            }
        };
        let found: Vec<_> =
            lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()).collect();
        let places: Vec<_> = (1..=cases[1].rows.len()).map(serde_json::Value::from).collect();
        assert_eq!(found.iter().map(|row| row["place"].clone()).collect::<Vec<_>>(), places);
        let first: Vec<_> = cases[1].rows[0].split('|').collect();
        assert_eq!((&found[0]["object"], found[0]["lower_bound"].to_string()), (&first[1].into(), first[3].to_owned()));
    }
}
