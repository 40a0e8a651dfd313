// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guarantees of topstat's file tree, whatever provides it: one suite, which runs on the daemon's tree and on
//! `/proc/topstat`. Its traffic is the suite's own TCP connections, which both trees rank. [`Backend`] lists the allowed
//! differences, and docs/kmod.md explains them.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use topstat_live::cgroup::Group;
use topstat_live::modules::{self, Modules};
use topstat_live::tree::{Document, Stat, errno};
use topstat_live::watch::ENDLESS_MS;
use topstat_live::{Busy, Case, Counts, Daemon, Key, Tree, alone, case, limits, note, pace, truth};
use topstat_load::{Config, Dist, Load, Plan};

pub fn cases() -> Vec<Case> {
    vec![alone!(Fills: daemon, Root, Fuse, CgroupV2; Daemon), case!(kernel_module, Root, CgroupV2, KernelModule)]
}

/// A guarantee, and the function that checks it.
type Check = (&'static str, fn(&Backend));

/// Each check begins with the initial settings, and may leave others.
const CHECKS: [Check; 13] = [
    ("the files are there", files_are_there),
    ("no other files can be made", no_others_can_be_made),
    ("settings are read as they were written", settings_are_read_as_written),
    ("bad values change nothing", bad_values_change_nothing),
    ("pieces and offsets set nothing", pieces_and_offsets_set_nothing),
    ("what is shown was carried", what_is_shown_was_carried),
    ("a container is named by its control group", containers_are_named),
    ("each of the three switches stops counting", each_of_the_three_switches_stops_counting),
    ("dynamic values age, static ones stay", dynamic_values_age),
    ("closed connections leave static tables, and are in the total", closed_connections_leave),
    ("closed connections stay in dynamic tables until they have aged out", closed_connections_stay),
    ("a slow reader gets one snapshot", a_slow_reader_gets_one_snapshot),
    ("everything adds up under load, while settings change", all_adds_up_under_load),
];

const BYTES: &str = "tcp_v4/conns_bytes";
const PPS: &str = "tcp_v4/conns_pps";
const PERIOD: &str = "tcp_v4/conns_pps/period";
const TABLES: [&str; 4] = ["conns_pps", "conns_bps", "conns_bytes", "conns_retrans"];
const SETTINGS: [(&str, &str); 4] = [("period", "1000"), ("delay", "0"), ("enabled", "1"), ("sync", "1")];
const READ_ONLY: [&str; 4] = ["type", "stat", "dump", "json"];

struct Backend {
    tree: Tree,
    /// The errors that the tree may return to a call that makes, removes or renames a file.
    unchangeable: &'static [i32],
    /// The files of a sample. Backends differ in nothing else.
    of_a_sample: &'static [&'static str],
}

fn daemon() {
    let daemon = Daemon::start();
    let tree = daemon.tree();
    check(&Backend { tree, unchangeable: &[libc::EPERM], of_a_sample: &["enabled", "json"] });
}

fn kernel_module() {
    let _modules = Modules::load(&["topstat_tcp"]);
    let unchangeable = &[libc::EPERM, libc::ENOENT, libc::EACCES];
    check(&Backend { tree: Tree::at(Path::new(modules::ROOT)), unchangeable, of_a_sample: &["enabled"] });
}

fn check(backend: &Backend) {
    for (what, check) in CHECKS {
        let begun = Instant::now();
        set_all_back(&backend.tree);
        check(backend);
        note(format!("{what}: {:.1} s", begun.elapsed().as_secs_f64()));
    }
}

fn set_all_back(tree: &Tree) {
    tree.write("enabled", 1);
    tree.write("tcp_v4/enabled", 1);
    for (table, (file, value)) in TABLES.iter().flat_map(|table| SETTINGS.map(|setting| (table, setting))) {
        tree.write(&format!("tcp_v4/{table}/{file}"), value);
    }
}

fn names(path: &Path) -> HashSet<String> {
    fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn files_are_there(backend: &Backend) {
    const DIRECTORY: u32 = 0o040_000;
    const FILE: u32 = 0o100_000;
    let tree = &backend.tree;
    let mode = |path: &str| {
        let data = fs::metadata(tree.path(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert_eq!((data.uid(), data.gid()), (0, 0), "{path}");
        // No other user may do anything.
        assert_eq!(data.mode() & 0o077, 0, "{path}");
        data.mode()
    };
    let set = |names: &[&str]| -> HashSet<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    assert_eq!(mode("enabled"), FILE | 0o600);
    assert_eq!(names(&tree.path("tcp_v4")), set(&[&TABLES[..], backend.of_a_sample].concat()));
    for (table, number) in TABLES.into_iter().zip(["1", "1", "2", "1"]) {
        let at = format!("tcp_v4/{table}");
        assert_eq!(mode(&at) & DIRECTORY, DIRECTORY);
        assert_eq!(names(&tree.path(&at)), set(&[&SETTINGS.map(|(file, _)| file)[..], &READ_ONLY].concat()), "{at}");
        for (file, value) in SETTINGS {
            assert_eq!(tree.read(&format!("{at}/{file}")), format!("{value}\n"), "{at}/{file}");
            assert_eq!(mode(&format!("{at}/{file}")), FILE | 0o600, "{at}/{file}");
        }
        for file in READ_ONLY {
            assert_eq!(mode(&format!("{at}/{file}")), FILE | 0o400, "{at}/{file}");
        }
        assert_eq!(tree.read(&format!("{at}/type")), format!("{number}\n"), "{at}");
        let stat = tree.stat(&at);
        let header = [
            ("name", table),
            ("type", number),
            ("delay", "0"),
            ("period", "1000"),
            ("enabled", "1"),
            ("owner", "tcp_v4"),
            ("owner enabled", "1"),
            ("topstat enabled", "1"),
        ];
        assert_eq!(stat.header, header.map(|(key, value)| (key.to_owned(), value.to_owned())), "{at}");
        let dump = tree.read(&format!("{at}/dump"));
        assert!(dump.starts_with(&format!("name\t{table}\n")) && dump.contains("\nlost contended\t"), "{dump}");
        let json = tree.json(&at).value;
        assert_eq!((json["sample"].as_str(), json["table"].as_str()), (Some("tcp_v4"), Some(table)), "{json}");
        for key in DOCUMENT {
            assert!(json.get(key).is_some(), "{at}: no {key} in {json}");
        }
    }
}

/// The keys of each document.
const DOCUMENT: [&str; 5] = ["rows", "total", "other", "cpu_totals", "lost"];

fn no_others_can_be_made(backend: &Backend) {
    let tree = &backend.tree;
    let at = |path: &str| tree.path(path);
    let refused = |what: &str, result: io::Result<()>| {
        let found = errno(result).unwrap_or_else(|| panic!("{what} is not refused"));
        assert!(backend.unchangeable.contains(&found), "{what}: {}", io::Error::from_raw_os_error(found));
    };
    refused("mkdir", fs::create_dir(at("x")));
    refused("create", File::create(at("tcp_v4/x")).map(drop));
    refused("unlink", fs::remove_file(at(PERIOD)));
    refused("rmdir", fs::remove_dir(at(PPS)));
    refused("rename", fs::rename(at(PERIOD), at("tcp_v4/x")));
    refused("link", fs::hard_link(at(PERIOD), at("x")));
    refused("symlink", std::os::unix::fs::symlink("y", at("x")));
    assert_eq!(errno(fs::metadata(at("tcp_v4/conns_pps/x"))), Some(libc::ENOENT));
    assert_eq!(errno(fs::metadata(at("tcp_v4/enabled/x"))), Some(libc::ENOTDIR));
    assert_eq!(errno(OpenOptions::new().write(true).open(at("tcp_v4"))), Some(libc::EISDIR));
    assert_eq!((names(&at(PPS)).len(), tree.read(PERIOD)), (SETTINGS.len() + READ_ONLY.len(), "1000\n".to_owned()));
}

fn settings_are_read_as_written(backend: &Backend) {
    let tree = &backend.tree;
    for (path, values) in [
        (PERIOD, &["1", "3600000", "250"][..]),
        ("tcp_v4/conns_pps/delay", &["3600000", "1", "0"]),
        ("tcp_v4/conns_pps/sync", &["0", "1"]),
        ("tcp_v4/conns_pps/enabled", &["0", "1"]),
        ("tcp_v4/enabled", &["0", "1"]),
        ("enabled", &["0", "1"]),
    ] {
        for value in values {
            tree.write(path, value);
            assert_eq!(tree.read(path), format!("{value}\n"), "{path}");
        }
    }
    let stat = tree.stat(PPS);
    assert_eq!((stat.get("period"), stat.get("delay")), ("250", "0"));
}

/// The traffic of each connection in one run of a load.
fn carry(load: &mut Load, plan: &Plan) -> HashMap<Key, Counts> {
    let before = truth::settled(load);
    load.run(plan, &limits()).unwrap();
    truth::difference(&before, &truth::settled(load))
}

/// With a delay and without, and both if CPUs are asked and if their tables are read as they are. At rest no value is
/// pending.
fn what_is_shown_was_carried(backend: &Backend) {
    let tree = &backend.tree;
    // The sockets of all connections fit into a table.
    let connections = usize::try_from(pace::work(40, 20)).unwrap();
    for (delay, sync) in [(0, 1), (0, 0), (100, 1)] {
        // Setting another period makes connections that have closed leave the table.
        tree.write(PERIOD, 1000);
        tree.write(PERIOD, ENDLESS_MS);
        for table in [BYTES, PPS] {
            tree.write(&format!("{table}/delay"), delay);
            tree.write(&format!("{table}/sync"), sync);
        }
        let mut load = Load::open(Config { connections, ..Config::default() }).unwrap();
        truth::settled(&load);
        let begin = [BYTES, PPS].map(|table| tree.json(table).rows.into_iter().collect::<HashMap<_, _>>());
        let plan = Plan::from_dist(&Dist::Zipf { exponent: 0.8, max: pace::work(500, 20) }, connections).unwrap();
        let truth = carry(&mut load, &plan);
        let of: [fn(&Counts) -> u64; 2] = [Counts::bytes, Counts::packets];
        for ((table, of), begin) in [BYTES, PPS].into_iter().zip(of).zip(begin) {
            let (json, stat) = (tree.json(table), tree.stat(table));
            for rows in [&json.rows, &stat.rows] {
                let ours: Vec<_> = rows.iter().filter_map(|(key, value)| Some((key, value, truth.get(key)?))).collect();
                assert_eq!(ours.len(), truth.len(), "{table}, delay {delay}");
                for (key, value, counts) in ours {
                    let expected = begin.get(key).copied().unwrap_or(0) + of(counts);
                    assert_eq!(*value, expected, "{table}, delay {delay}, sync {sync}: {key:?}");
                }
            }
        }
    }
}

/// Where the tree finds no path of a control group, as in the module of an old kernel, there is no container either.
fn containers_are_named(backend: &Backend) {
    let tree = &backend.tree;
    tree.write(PERIOD, ENDLESS_MS);
    let id = "0123456789abcdef".repeat(4);
    let above = Group::below_root("containers").unwrap();
    let group = above.child(&format!("docker-{id}.scope")).unwrap();
    let (truth, document) = group.inside(|| {
        let mut load = Load::open(Config { connections: 3, ..Config::default() }).unwrap();
        let truth = carry(&mut load, &Plan::new(vec![10; 3]));
        (truth, tree.json(PPS))
    });
    let shown = document.rows.iter().zip(document.value["rows"].as_array().unwrap());
    let ours: Vec<_> = shown.filter(|((key, _), _)| truth.contains_key(key)).map(|(_, row)| &row["object"]).collect();
    assert_eq!(ours.len(), truth.len(), "{document:?}");
    for object in ours {
        match object["cgroup"].as_str() {
            Some(unknown) if unknown.starts_with("cgroup:") => assert!(object["container"].is_null(), "{object}"),
            path => assert_eq!((path, object["container"].as_str()), (Some(&*group.path), Some(&*id)), "{object}"),
        }
    }
}

/// The parameter of dynamic tables is the period.
fn dynamic_values_age(backend: &Backend) {
    let tree = &backend.tree;
    let mut load = Load::open(Config { connections: 5, ..Config::default() }).unwrap();
    tree.write(PERIOD, ENDLESS_MS);
    let truth = carry(&mut load, &Plan::new(vec![20; 5]));
    let ours = |table: &str| tree.json(table).rows.into_iter().filter(|(key, _)| truth.contains_key(key)).count();
    assert_eq!((ours(PPS), ours(BYTES)), (truth.len(), truth.len()));
    tree.write(PERIOD, 200);
    carry(&mut load, &Plan::new(vec![1; 5]));
    let aged = topstat_live::eventually(Duration::from_secs(30), || ours(PPS) == 0);
    assert!(aged, "they stay: {:?}", tree.json(PPS));
    assert_eq!(ours(BYTES), truth.len(), "static values are for good");
}

fn closed_connections_leave(backend: &Backend) {
    let tree = &backend.tree;
    let mut load = Load::open(Config { connections: 10, ..Config::default() }).unwrap();
    let before = tree.json(BYTES).total;
    let truth = carry(&mut load, &Plan::new(vec![30; 10]));
    let carried: u64 = truth.values().map(Counts::bytes).sum();
    drop(load);
    let left = || tree.json(BYTES).rows.iter().filter(|(key, _)| truth.contains_key(key)).count();
    assert!(topstat_live::eventually(Duration::from_secs(30), || left() == 0), "they stay: {:?}", tree.json(BYTES));
    let total = tree.json(BYTES).total;
    assert!(total >= before + carried, "{total}, and it was {before} before {carried}");
}

fn closed_connections_stay(backend: &Backend) {
    let tree = &backend.tree;
    assert!(tree.read(&format!("{PPS}/dump")).contains("\nunkept\t"));
    tree.write(PERIOD, ENDLESS_MS);
    let mut load = Load::open(Config { connections: 10, ..Config::default() }).unwrap();
    let truth = carry(&mut load, &Plan::new(vec![30; 10]));
    drop(load);
    // The number of rows, and the number of marked rows.
    let rows = || {
        let document = tree.json(PPS);
        let shown = document.value["rows"].as_array().unwrap();
        let ours = document.rows.iter().zip(shown).filter(|((key, _), _)| truth.contains_key(key));
        let marks: Vec<_> = ours.map(|(_, row)| row["object"]["closed"] == true).collect();
        (marks.len(), marks.iter().filter(|marked| **marked).count())
    };
    let wanted = (truth.len(), truth.len());
    assert!(topstat_live::eventually(Duration::from_secs(30), || rows() == wanted), "{:?}, not {wanted:?}", rows());
    let stat = tree.read(&format!("{PPS}/stat"));
    let columns = "netns\tcontainer\tclosed\tpps\n";
    assert!(stat.contains(columns), "{stat}");
    tree.write(PERIOD, 200);
    assert!(topstat_live::eventually(Duration::from_secs(30), || rows().0 == 0), "they stay: {:?}", tree.json(PPS));
}

/// Every reading is complete: [`Document::of`] and [`Stat::of`] check it.
fn all_adds_up_under_load(backend: &Backend) {
    let tree = &backend.tree;
    let busy = Busy::new(usize::try_from(pace::work(50, 10)).unwrap());
    let begun = Instant::now();
    let mut readings = 0;
    while begun.elapsed() < Duration::from_secs(2) {
        tree.write(&format!("{PPS}/delay"), [0, 10, 100][readings % 3]);
        tree.write(&format!("{PPS}/sync"), readings % 2);
        tree.write(PERIOD, [1000, 100, 60_000][readings / 3 % 3]);
        for table in [PPS, BYTES] {
            tree.json(table);
            tree.stat(table);
            assert!(!tree.read(&format!("{table}/dump")).is_empty());
        }
        readings += 1;
    }
    assert!(busy.end() > 0);
    note(format!("{readings} readings of each file"));
}

/// Objects stay registered, and resume: their values continue from the last value.
fn each_of_the_three_switches_stops_counting(backend: &Backend) {
    let tree = &backend.tree;
    const CONNECTIONS: usize = 10;
    const TURNS: u64 = 50;
    let mut load = Load::open(Config { connections: CONNECTIONS, ..Config::default() }).unwrap();
    let ours: HashSet<Key> = truth::settled(&load).keys().copied().collect();
    let plan = Plan::new(vec![TURNS; CONNECTIONS]);
    let values =
        || -> HashMap<Key, u64> { tree.json(BYTES).rows.into_iter().filter(|(key, _)| ours.contains(key)).collect() };
    let mut expected = values();
    for switch in ["enabled", "tcp_v4/enabled", "tcp_v4/conns_bytes/enabled"] {
        for (key, counts) in carry(&mut load, &plan) {
            *expected.entry(key).or_default() += counts.bytes();
        }
        assert_eq!(values(), expected, "before {switch} is off");
        tree.write(switch, 0);
        assert_eq!(tree.read(switch), "0\n");
        carry(&mut load, &plan);
        assert_eq!(values(), expected, "{switch} is off");
        let named = ["topstat", "sample", "table"][switch.matches('/').count()];
        assert_eq!(tree.json(BYTES).value["off"], serde_json::json!([named]), "{switch}");
        let stat = tree.stat(BYTES);
        let off = match switch {
            "enabled" => "topstat enabled",
            "tcp_v4/enabled" => "owner enabled",
            _ => "enabled",
        };
        for key in ["enabled", "owner enabled", "topstat enabled"] {
            assert_eq!(stat.get(key), if key == off { "0" } else { "1" }, "{key}, {switch}");
        }
        tree.write(switch, 1);
        assert!(tree.json(BYTES).value["off"].is_null(), "{switch} is on");
        for (key, counts) in carry(&mut load, &plan) {
            *expected.entry(key).or_default() += counts.bytes();
        }
        assert_eq!(values(), expected, "{switch} is on again, and nothing was forgotten");
    }
}

fn a_slow_reader_gets_one_snapshot(backend: &Backend) {
    let tree = &backend.tree;
    tree.write(PERIOD, 60_000);
    let busy = Busy::new(200);
    // Until each socket has a row.
    assert!(topstat_live::eventually(Duration::from_secs(60), || tree.json(PPS).rows.len() == 128));
    // Byte by byte, unless that takes thousands of calls of a slow kernel.
    let least = pace::slowdown() as usize;
    for (name, size, pause) in [("stat", least, 0), ("stat", 977, 20), ("json", 100, 1), ("json", 4096, 100)] {
        let mut file = File::open(tree.path(&format!("{PPS}/{name}"))).unwrap();
        let whole = |file: &mut File| {
            let (mut text, mut piece) = (Vec::new(), vec![0; size]);
            loop {
                match file.read(&mut piece).unwrap() {
                    0 => break String::from_utf8(text).unwrap(),
                    read => text.extend(&piece[..read]),
                }
                std::thread::sleep(Duration::from_micros(pause * 10));
            }
        };
        let first = whole(&mut file);
        // A read that does not start at the beginning gets the same text.
        let mut end = vec![0; 100];
        file.read_exact_at(&mut end, first.len() as u64 - 100).unwrap();
        assert_eq!(end, first.as_bytes()[first.len() - 100..]);
        assert_eq!(file.read(&mut end).unwrap(), 0, "the end stays the end, as for tail -f");
        file.rewind().unwrap();
        let second = whole(&mut file);
        assert_ne!(first, second, "from the beginning: a new one");
        for text in [first, second] {
            let rows = if name == "stat" { Stat::of(&text).rows } else { Document::of(&text).rows };
            assert_eq!(rows.len(), 128, "{name} in pieces of {size}");
        }
    }
    assert!(busy.end() > 0);
}

fn bad_values_change_nothing(backend: &Backend) {
    let tree = &backend.tree;
    tree.write(PERIOD, 1234);
    let random: Vec<u8> = (0..200_u32).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()[3] | 0x80).collect();
    for (path, values) in [
        (PERIOD, &[&b"0\n"[..], b"0", b"3600001\n", b"99999999", b"99999999999999999999\n", b"-1\n", b"abc\n"][..]),
        (PERIOD, &[b"\n", b" ", b"\0", b"5\0", b"1 2\n", b"1\n2\n", b"+5\n", b"0x10\n", b"1e3\n", b"5t\n"]),
        (PERIOD, &[&random, &[b'5'; 33], &[b'0'; 4096], &[b'7'; 4097], &[0; 1 << 20]]),
        ("tcp_v4/conns_pps/delay", &[b"3600001\n", b"-1\n", b"x"]),
        ("tcp_v4/conns_pps/sync", &[b"2\n", b"-1\n", b"true\n"]),
        ("tcp_v4/conns_pps/enabled", &[b"2\n", b"yes\n"]),
        ("tcp_v4/enabled", &[b"2\n", b"10\n"]),
        ("enabled", &[b"2\n", b"\n"]),
    ] {
        let before = tree.read(path);
        for value in values {
            let shown = String::from_utf8_lossy(&value[..value.len().min(40)]).into_owned();
            assert_eq!(errno(tree.try_write(path, value)), Some(libc::EINVAL), "{path}: {shown:?}");
            assert_eq!(tree.read(path), before, "{path}: {shown:?}");
        }
    }
    // An empty write changes nothing.
    assert_eq!(errno(tree.try_write(PERIOD, b"")), None);
    assert_eq!(tree.read(PERIOD), "1234\n");
    for path in READ_ONLY.map(|name| format!("tcp_v4/conns_pps/{name}")) {
        assert_eq!(errno(OpenOptions::new().write(true).open(tree.path(&path))), Some(libc::EACCES), "{path}");
        assert_eq!(
            errno(OpenOptions::new().read(true).write(true).open(tree.path(&path))),
            Some(libc::EACCES),
            "{path}"
        );
        assert_eq!(errno(fs::write(tree.path(&path), "1\n")), Some(libc::EACCES), "{path}, truncated");
    }
}

fn pieces_and_offsets_set_nothing(backend: &Backend) {
    let tree = &backend.tree;
    tree.write(PERIOD, 1234);
    let open = || OpenOptions::new().write(true).open(tree.path(PERIOD)).unwrap();
    let unchanged = |what: &str| assert_eq!(tree.read(PERIOD), "1234\n", "{what}");
    for offset in [1, 4, 4096, 1 << 40] {
        assert_eq!(errno(open().write_at(b"5\n", offset)), Some(libc::EINVAL), "offset {offset}");
    }
    unchanged("offsets");
    let mut file = open();
    file.write_all(b"5").unwrap();
    unchanged("more may come");
    assert_eq!(errno(file.write(b"0")), Some(libc::EINVAL));
    assert_eq!(errno(file.write(b"\n")), Some(libc::EINVAL));
    drop(file);
    unchanged("half a number");
    let mut file = OpenOptions::new().append(true).open(tree.path(PERIOD)).unwrap();
    file.write_all(b"5").unwrap();
    assert_eq!(errno(file.write(b"0\n")), Some(libc::EINVAL));
    drop(file);
    unchanged("half a number, appended");
    let output =
        Command::new("sh").args(["-c", "printf '50\\n' | dd bs=1 of=$P"]).env("P", tree.path(PERIOD)).output().unwrap();
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("Invalid argument"));
    unchanged("dd bs=1");
    // A value without a newline takes effect when the file is closed.
    let mut file = open();
    file.write_all(b"77").unwrap();
    unchanged("not closed yet");
    drop(file);
    assert_eq!(tree.read(PERIOD), "77\n");
}
