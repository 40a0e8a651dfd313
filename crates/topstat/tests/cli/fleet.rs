// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The real `topstat fleet` and `topstat record check`, on files that recorders have sealed.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use topstat_history::layout::HOUR;
use topstat_history::private::{Hide, Which};
use topstat_history::{Place, Privacy, Root, Table, TableOptions};
use topstat_model::document;
use topstat_model::document::Shape;
use topstat_model::{Column, ColumnKind, FleetKey, Reach, Stored};

use crate::schema::errors;

const TOPSTAT: &str = env!("CARGO_BIN_EXE_topstat");

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("topstat-cli-fleet-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("fleet")).unwrap();
        Self(path)
    }

    /// Records and seals snapshots of a host, 10 s apart.
    fn host(&self, host: &str, documents: &[Value], privacy: &Privacy) {
        let root = Root::guarded(&self.0.join("fleet")).unwrap();
        let name = |what: &str| documents[0][what].as_str().unwrap().to_owned();
        let place = Place { host: host.into(), sample: name("sample"), table: name("table") };
        let second = Duration::from_secs(1);
        let options = TableOptions { interval: 10 * second, rows: 8, fine_interval: second, seal_every: HOUR };
        let mut table = Table::open(&root, place, options, Duration::ZERO).unwrap();
        for (number, document) in (0..).zip(documents) {
            let mut snapshot = document::read(document.to_string().as_bytes(), shape).unwrap();
            snapshot.time += number * 10 * second;
            table.coarse(snapshot).unwrap();
        }
        table.pause().unwrap();
        for log in table.to_seal(SystemTime::now() + Duration::from_secs(1 << 32)).unwrap() {
            table.seal(&log, &shape, privacy).unwrap();
        }
    }

    fn topstat(&self, line: &str) -> (Output, String) {
        let arguments = line.split(' ').map(|word| word.replace("DIR", self.0.join("fleet").to_str().unwrap()));
        let mut command = Command::new(TOPSTAT);
        let output = command.args(arguments).current_dir(&self.0).env("TZ", "UTC").output().unwrap();
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        (output, text)
    }
}

/// A document of control groups and their values.
fn document(rows: &[(&str, u64)], other: u64) -> Value {
    let total = rows.iter().map(|(_, value)| value).sum::<u64>() + other;
    let row = |(rank, (cgroup, value)): (u32, &(&str, u64))| json!({"rank": rank, "value": value, "object": {"cgroup": cgroup}, "rx": 1, "tx": value - 1, "cpus": [0]});
    let rows: Vec<_> = (1..).zip(rows).map(row).collect();
    json!({
        "time": "2026-11-25T03:12:00.000Z", "sample": "net_cgroups", "table": "bps", "type": "dynamic", "unit": "bits",
        "period_ms": 1000, "delay_ms": 0, "top": 8, "objects": 9, "total": total, "other": other, "proven": rows.len(),
        "lost": {"contended": 0, "no_memory": 0}, "lost_now": {"contended": 0, "no_memory": 0}, "rows": rows,
        "cpu_totals": {"0": total},
    })
}

/// Verifies that a document is as its schema says.
fn check(schema: &str, document: &Value) {
    let errors = errors(&[(schema, document.clone())]);
    assert!(errors.is_none_or(|errors| errors == [""]), "{document}");
}

/// A real `topstat serve` of a tree with a document.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(scratch: &Scratch, host: &str, document: &Value) -> Self {
        let tree = scratch.0.join(host);
        let table = tree.join("net_cgroups/bps");
        fs::create_dir_all(&table).unwrap();
        for folder in [&tree, &tree.join("net_cgroups"), &table] {
            fs::write(folder.join("enabled"), "1\n").unwrap();
        }
        fs::write(table.join("json"), format!("{document}\n")).unwrap();
        // The port is free, and taken by the server a moment later.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut command = Command::new(TOPSTAT);
        command.args(["serve", "--listen", &address]).arg("--socket").arg(scratch.0.join(format!("{host}.sock")));
        command.arg("--mount").arg(&tree).arg("--token-file").arg(scratch.0.join("token"));
        let server = Self { child: command.spawn().unwrap(), address };
        let begun = Instant::now();
        while TcpStream::connect(&server.address).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(30), "it does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn shape(sample: &str, _: &str) -> Option<Shape> {
    if sample == "tasks" {
        let columns = vec![Column::new("pid", ColumnKind::Pid), Column::new("comm", ColumnKind::Text)];
        let key = Some(FleetKey::new(Reach::Local, &["pid", "comm"]));
        let stored = Stored { numbers: vec![true, false], parts: vec![], lost: vec![], key };
        return Some(Shape { columns, value_name: "cpu".into(), stored: Some(stored) });
    }
    let columns = vec![Column::new("cgroup", ColumnKind::Path), Column::optional("container", ColumnKind::Id)];
    let key = Some(FleetKey::new(Reach::Spanning, &["cgroup"]));
    let parts = ["rx", "tx"].map(str::to_owned).to_vec();
    let stored = Stored { numbers: vec![false, false], parts, lost: vec![], key };
    Some(Shape { columns, value_name: "bps".into(), stored: Some(stored) })
}

/// The rows of two hosts, and the sum of all other groups: a web server on both, a database on one.
fn tops() -> [([(&'static str, u64); 2], u64); 2] {
    [
        ([("/system.slice/web.service", 900), ("/system.slice/db.service", 500)], 70),
        ([("/system.slice/web.service", 400), ("/system.slice/mail.service", 30)], 10),
    ]
}

/// The records of these hosts.
fn fleet(name: &str) -> Scratch {
    let scratch = Scratch::new(name);
    for (host, (rows, other)) in ["alpha", "beta"].into_iter().zip(tops()) {
        scratch.host(host, &[document(&rows, other)], &Privacy::default());
    }
    scratch
}

#[test]
fn the_top_of_two_hosts_has_bounds() {
    let scratch = fleet("top");
    let (output, text) = scratch.topstat("fleet top net_cgroups/bps --at 2026-11-25T03:12:30Z DIR");
    assert!(output.status.success(), "{output:?}");
    let expected = "\
net_cgroups/bps at 2026-11-25T03:12:30.000Z, over 2 hosts

   at least  at most  hosts  cgroup
1      1300     1300      2  /system.slice/web.service
2       500      510      1  /system.slice/db.service
3        30      100      1  /system.slice/mail.service

2 of 3 rows proven to be the first ones
total 1910; an object that no host shows has at most 80
";
    assert_eq!(text.replace("+00:00", "Z"), expected);
    let (_, text) = scratch.topstat("fleet top net_cgroups/bps -n 1 -f cgroup:db -o json DIR");
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&found["reach"], &found["reported"], &found["proven_to"]), (&json!("spanning"), &json!(2), &json!(1)));
    let row = json!({"place": 1, "object": {"cgroup": "/system.slice/db.service"}, "hosts": 1, "at_least": 500, "at_most": 510});
    assert_eq!(found["rows"], json!([row]));
    // What is beside the key is a part of it.
    let (_, text) = scratch.topstat("fleet top net_cgroups/bps --by container -o json DIR");
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&found["reach"], &found["rows"][0]["at_most"]), (&json!("part"), &json!(1910)));
}

#[test]
fn a_mean_is_over_the_records_of_each_host() {
    let scratch = Scratch::new("mean");
    let web = "/system.slice/web.service";
    let of_alpha = [document(&[(web, 900)], 100), document(&[(web, 401)], 300), document(&[("/batch", 50)], 40)];
    scratch.host("alpha", &of_alpha, &Privacy::default());
    scratch.host("beta", &[document(&[(web, 70)], 0)], &Privacy::default());
    let (output, text) = scratch.topstat("fleet top net_cgroups/bps --at 2026-11-25T03:12:30Z --over 1m DIR");
    assert!(output.status.success(), "{output:?}");
    // On alpha (900 + 401) / 3, and at most 40 more in its third record; /batch may have 100 and 300 in the two before.
    let expected = "\
net_cgroups/bps, mean of 4 records from 2026-11-25T03:11:30.000Z to 2026-11-25T03:12:30.000Z, over 2 hosts

   at least  at most  hosts  cgroup
1       503      518      2  /system.slice/web.service
2        16      151      1  /batch

1 of 2 rows proven to be the first ones
total 667; an object that no host shows has at most 147
";
    assert_eq!(text.replace("+00:00", "Z"), expected);
    let (_, text) = scratch.topstat("fleet top net_cgroups/bps --over 5s -o json DIR");
    let found: Value = serde_json::from_str(&text).unwrap();
    check("fleet-top", &found);
    assert_eq!((&found["mean_of"], &found["rows"][0]["object"]["cgroup"]), (&json!(1), &json!("/batch")));
    let (_, sql) = scratch.topstat("fleet sql net_cgroups/bps --engine duckdb --over 1h --at 2026-11-25T04:00:00Z DIR");
    let window =
        "time > TIMESTAMPTZ '2026-11-25 03:00:00.000000+00' AND r.time <= TIMESTAMPTZ '2026-11-25 04:00:00.000000+00'";
    assert!(sql.contains(window) && !sql.contains("JOIN latest"), "{sql}");
    let mut running = document(&[(web, 70)], 0);
    running["type"] = json!("static");
    running["table"] = json!("bytes");
    scratch.host("alpha", &[running], &Privacy::default());
    for line in
        ["fleet top net_cgroups/bytes --over 1h DIR", "fleet sql net_cgroups/bytes --over 1h --engine spark DIR"]
    {
        let (output, _) = scratch.topstat(line);
        let said = String::from_utf8_lossy(&output.stderr);
        let expected = "--over: net_cgroups/bytes has running totals, which have no mean: name a table of rates";
        assert!(output.status.code() == Some(2) && said.contains(expected), "{line}: {output:?}");
    }
}

#[test]
fn a_host_that_hides_a_column_leaves_the_others_in_their_places() {
    let scratch = Scratch::new("hidden");
    let task = |pid: u64| {
        let mut task = document(&[], 0);
        (task["sample"], task["table"]) = (json!("tasks"), json!("cpu"));
        task["rows"] = json!([{"rank": 1, "value": pid, "object": {"pid": pid, "comm": "worker"}, "cpus": [0]}]);
        (task["proven"], task["total"], task["cpu_totals"]) = (json!(1), json!(pid), json!({"0": pid}));
        task
    };
    scratch.host("alpha", &[task(7)], &Privacy::new(vec![(Which::Named("pid".into()), Hide::Drop)], b""));
    scratch.host("beta", &[task(9)], &Privacy::default());
    for over in ["", " --over 1m"] {
        let (output, text) = scratch.topstat(&format!("fleet top tasks/cpu -o json{over} DIR"));
        assert!(output.status.success(), "{output:?}");
        let found: Value = serde_json::from_str(&text).unwrap();
        let objects: Vec<_> = found["rows"].as_array().unwrap().iter().map(|row| row["object"].clone()).collect();
        let expected = [json!({"pid": 9, "comm": "worker"}), json!({"pid": null, "comm": "worker"})];
        assert_eq!((found["reach"].as_str(), &objects[..]), (Some("part"), &expected[..]));
    }
}

#[test]
fn hosts_that_are_asked_now_have_the_bounds_of_records() {
    let scratch = fleet("live");
    fs::write(scratch.0.join("token"), "0123456789abcdef0123\n").unwrap();
    fs::set_permissions(scratch.0.join("token"), PermissionsExt::from_mode(0o600)).unwrap();
    let [alpha, beta] = tops();
    let alpha = Server::start(&scratch, "alpha", &document(&alpha.0, alpha.1));
    let beta = Server::start(&scratch, "beta", &document(&beta.0, beta.1));
    let addresses = format!("# two hosts\nhttp://{}\n\nhttp://{}\n", alpha.address, beta.address);
    fs::write(scratch.0.join("hosts.txt"), addresses).unwrap();
    let parsed = |line: &str| {
        let (output, text) = scratch.topstat(line);
        let document = serde_json::from_str::<Value>(&text);
        let document = document.unwrap_or_else(|error| panic!("{error}: {output:?}"));
        check("fleet-top", &document);
        (document, output)
    };
    for more in ["", " -n 1", " -f cgroup:db", " --by container"] {
        let (live, output) =
            parsed(&format!("fleet top net_cgroups/bps -o json --live @hosts.txt --token-file token{more}"));
        assert!(output.status.success(), "{output:?}");
        let (recorded, _) = parsed(&format!("fleet top net_cgroups/bps -o json{more} DIR"));
        for name in ["reach", "reported", "total", "unseen_at_most", "proven_to", "rows"] {
            assert_eq!(live[name], recorded[name], "{name}{more}");
        }
        assert_eq!(live["unread_hosts"], 0);
    }
    // Hosts that can't be added up are named and left out: one that does not answer, and one whose table has another period.
    let mut other = document(&[("/a", 5)], 0);
    other["period_ms"] = json!(5000);
    let gamma = Server::start(&scratch, "gamma", &other);
    let line = format!(
        "fleet top net_cgroups/bps -o json --token-file token --live @hosts.txt,http://127.0.0.1:1,http://{}",
        gamma.address
    );
    let (live, output) = parsed(&line);
    assert_eq!((output.status.code(), &live["reported"], &live["unread_hosts"]), (Some(1), &json!(2), &json!(2)));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("127.0.0.1:1 is left out: "), "{said}");
    assert!(
        said.contains(&format!("{} is left out: its period is 5s, and most hosts have 1s", gamma.address)),
        "{said}"
    );
    // A row is a lower bound where an amount was lost.
    let mut lossy = document(&[("/system.slice/web.service", 900)], 70);
    lossy["lost"]["no_memory"] = json!(1);
    let delta = Server::start(&scratch, "delta", &lossy);
    let (live, _) =
        parsed(&format!("fleet top net_cgroups/bps -o json --token-file token --live http://{}", delta.address));
    assert_eq!((&live["rows"][0]["at_least"], &live["rows"][0]["at_most"]), (&json!(900), &json!(970)));
    // Without the token no host answers.
    let (output, _) = scratch.topstat("fleet top net_cgroups/bps --live @hosts.txt");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("the server wants its token: --token-file"), "{said}");
}

#[test]
fn hosts_are_compared_with_an_inventory_and_files_are_merged() {
    let scratch = fleet("hosts");
    fs::write(scratch.0.join("hosts.txt"), "alpha\ngamma # new\n").unwrap();
    let (output, text) = scratch.topstat("fleet hosts --inventory hosts.txt DIR");
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("beta  2026-11-25T03:12:00.000") && text.contains("not in the inventory"), "{text}");
    assert!(text.ends_with("gamma  missing\n2 hosts reported, 1 missing, 1 not in the inventory\n"), "{text}");
    let (output, _) = scratch.topstat("fleet hosts DIR");
    assert!(output.status.success(), "{output:?}");
    let (_, text) = scratch.topstat("fleet hosts -o json --inventory hosts.txt DIR");
    text.lines().for_each(|line| check("fleet-hosts", &serde_json::from_str(line).unwrap()));
    assert_eq!(text.lines().count(), 3, "{text}");
    let (output, text) = scratch.topstat("fleet compact DIR --to DIR/merged");
    assert!(output.status.success(), "{output:?}");
    assert!(text.ends_with("table=net_cgroups.bps/date=2026-11-25/03.parquet: 4 rows of 2 hosts\n"), "{text}");
    let top = |dir| scratch.topstat(&format!("fleet top net_cgroups/bps -o json {dir}")).1;
    assert_eq!(top("DIR/merged"), top("DIR"));
    let (_, sql) = scratch.topstat("fleet sql net_cgroups/bps --engine duckdb DIR/merged");
    assert!(sql.contains("merged/table=net_cgroups.bps/date=*/*.parquet") && !sql.contains("host=*"), "{sql}");
    assert!(sql.contains("TIMESTAMPTZ '2026-11-25 03:12:00.000000+00'"), "{sql}");
    for (engine, view) in [("spark", "USING parquet"), ("clickhouse", "file('s3a://b/host=*/table=net_hosts.bps")] {
        let (output, sql) = scratch.topstat(&format!("fleet sql net_hosts/bps --engine {engine} --at -1h s3a://b/"));
        assert!(output.status.success() && sql.contains(view) && sql.contains("object_host"), "{output:?}");
    }
}

#[test]
fn what_is_wrong_with_records_is_said() {
    let scratch = fleet("check");
    let (output, text) = scratch.topstat("record check DIR");
    assert_eq!((output.status.code(), text.as_str()), (Some(0), "2 files of 2 tables: 0 faults, 0 gaps\n"));
    let below = |host: &str| scratch.0.join(format!("fleet/host={host}/table=net_cgroups.bps/date=2026-11-25"));
    fs::write(below("alpha").join("04.parquet"), "PAR1").unwrap();
    fs::write(below("beta").join("05.parquet.unfinished"), "").unwrap();
    fs::write(below("beta").join("notes.txt"), "").unwrap();
    let (output, text) = scratch.topstat("record check DIR");
    assert_eq!(output.status.code(), Some(1));
    for expected in [
        "04.parquet: it can't be read: ",
        "05.parquet.unfinished: it is not finished",
        "notes.txt: it has no name of a recorder's file",
        "3 files of 2 tables: 3 faults, 0 gaps",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    // A damaged file is named, and the others are shown.
    let (output, text) = scratch.topstat("fleet top net_cgroups/bps --at 2026-11-25T03:12:30Z -o json --within 1h DIR");
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("\"reported\":2"), "{text}");
    fs::write(below("alpha").join("03.parquet"), "PAR1").unwrap();
    let (output, text) = scratch.topstat("fleet top net_cgroups/bps --at 2026-11-25T03:12:30Z -o json DIR");
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("\"reported\":1") && text.contains("\"unread_files\":1"), "{text}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("03.parquet: "), "{output:?}");
}

#[test]
fn wrong_questions_are_refused() {
    let scratch = fleet("wrong");
    for (line, code, expected) in [
        ("fleet top net_cgroups DIR", 2, "net_cgroups is not SAMPLE/TABLE"),
        ("fleet top tcp/conns_bps DIR", 2, "tcp means several samples"),
        ("fleet top net_hosts/bps DIR", 1, "there are no sealed records of net_hosts/bps in "),
        ("fleet top net_cgroups/bps --by comm DIR", 2, "--by comm: the table has the columns cgroup, container"),
        ("fleet top net_cgroups/bps -f pid:7 DIR", 2, "there is no column \"pid\""),
        ("fleet top net_cgroups/bps --at noon DIR", 2, "--at \"noon\": not a time"),
        ("fleet top net_cgroups/bps -n 2000 DIR", 2, "2000 is not in 1..=1000"),
        ("fleet top net_cgroups/bps DIR/nosuch", 1, "nosuch"),
        ("fleet hosts --inventory nosuch.txt DIR", 1, "cannot read the inventory nosuch.txt"),
        (
            "fleet top net_cgroups/bps --live web-1:9899",
            2,
            "--live \"web-1:9899\" is no address such as https://web-1:9899",
        ),
        ("fleet top net_cgroups/bps --live http://a:1,http://a:1", 2, "--live http://a:1: it is there twice"),
        ("fleet top net_cgroups/bps --live @nosuch.txt", 2, "--live: cannot read nosuch.txt"),
        ("fleet top net_cgroups/bps --live http://a:1 DIR", 2, "cannot be used with"),
        ("fleet top net_cgroups/bps --live http://a:1 --over 1m", 2, "cannot be used with"),
        ("fleet top net_cgroups/bps --over 1m --within 1m DIR", 2, "cannot be used with"),
        ("fleet sql own/table --engine duckdb", 2, "this version does not know the table"),
        ("record check DIR/nosuch", 1, "nosuch"),
    ] {
        let (output, _) = scratch.topstat(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(expected), "{line}: {output:?}");
    }
}
