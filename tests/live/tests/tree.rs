// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's file tree: it shows the traffic that was carried, settings take effect, and the usual file tools work as
//! elsewhere.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use topstat_live::daemon::{Place, samples};
use topstat_live::taskstats::Accounting;
use topstat_live::tree::{Document, Stat};
use topstat_live::watch::ENDLESS_MS;
use topstat_live::{Case, Daemon, Key, Transport, Witness, alone, case, limits, note, pace, truth};
use topstat_load::{Config, Dist, Limits, Load, Plan};

pub fn cases() -> Vec<Case> {
    vec![
        case!(every_file_is_there_with_its_mode, Root, Fuse; Distribution),
        case!(a_group_may_read_and_nobody_else, Root, Fuse),
        case!(what_it_shows_is_what_was_carried, Root, Fuse; Daemon, Distribution),
        case!(tools_find_files_as_they_know_them, Root, Fuse),
        alone!(Totals: many_readers_at_once_get_whole_snapshots, Root, Fuse),
        case!(commands_work_on_the_tree, Root, Fuse),
        case!(commands_work_on_what_is_pinned_while_no_daemon_runs, Root, Fuse),
    ]
}

const BYTES: &str = "tcp_v4/conns_bytes";
const PPS: &str = "tcp_v4/conns_pps";

/// Runs a shell command with the tree in `$T`; returns its output and its exit code.
fn shell(daemon: &Daemon, script: &str) -> (String, i32) {
    let output = Command::new("sh")
        .args(["-c", script])
        .env("T", &daemon.place.mount)
        .env("LC_ALL", "C")
        .output()
        .expect("run a shell");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (text, output.status.code().unwrap_or(-1))
}

fn every_file_is_there_with_its_mode() {
    let _accounting = Accounting::if_there();
    let mut daemon = Daemon::start();
    let root = &daemon.place.mount;
    let names = |path: &std::path::Path| -> HashSet<String> {
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let set = |names: &[&str]| -> HashSet<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    let mode = |path: &str| {
        let data = fs::metadata(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert_eq!((data.uid(), data.gid(), data.len()), (0, 0, 0), "{path}");
        data.mode()
    };
    const DIRECTORY: u32 = 0o040_700;
    const SETTING: u32 = 0o100_600;
    const READ_ONLY: u32 = 0o100_400;
    assert_eq!((mode(""), mode("enabled"), mode("self")), (DIRECTORY, SETTING, READ_ONLY));
    for sample in samples() {
        let tables: Vec<_> = sample.tables.iter().map(|table| table.name.as_str()).collect();
        let inside = names(&root.join(&sample.name));
        assert_eq!(inside, set(&[&tables[..], &["enabled", "json"]].concat()), "{}", sample.name);
        let documents = daemon.read(&format!("{}/json", sample.name));
        let documents = documents.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let documents: Vec<_> = documents.map(|document| document["table"].as_str().unwrap().to_owned()).collect();
        assert_eq!(documents, tables, "{}: a line for each table", sample.name);
        assert_eq!(mode(&sample.name), DIRECTORY);
        assert_eq!(daemon.read(&format!("{}/enabled", sample.name)), "1\n");
        for table in &sample.tables {
            let at = format!("{}/{}", sample.name, table.name);
            let files = ["type", "period", "delay", "enabled", "sync", "stat", "dump", "json"];
            assert_eq!(names(&root.join(&at)), set(&files), "{at}");
            assert_eq!(mode(&at), DIRECTORY);
            for (file, default) in [("period", "1000\n"), ("delay", "0\n"), ("enabled", "1\n"), ("sync", "1\n")] {
                assert_eq!(daemon.read(&format!("{at}/{file}")), default, "{at}/{file}");
                assert_eq!(mode(&format!("{at}/{file}")), SETTING);
            }
            for file in ["type", "stat", "dump", "json"] {
                assert_eq!(mode(&format!("{at}/{file}")), READ_ONLY);
            }
            assert_eq!(daemon.read(&format!("{at}/type")), format!("{}\n", table.kind.number()));
            let stat = daemon.stat(&at);
            let header = ["name", "type", "delay", "period", "enabled", "owner", "owner enabled", "topstat enabled"];
            assert_eq!(stat.header.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), header);
            assert_eq!((stat.get("name"), stat.get("owner")), (table.name.as_str(), sample.name.as_str()));
            let dump = daemon.read(&format!("{at}/dump"));
            assert!(
                dump.starts_with(&format!("name\t{}\n", table.name)) && dump.contains("\nlost contended\t"),
                "{dump}"
            );
            let json = daemon.json(&at);
            assert_eq!(
                (json.value["sample"].as_str(), json.value["table"].as_str()),
                (Some(sample.name.as_str()), Some(table.name.as_str()))
            );
        }
    }
    assert_eq!(daemon.stop().code(), Some(0), "{}", daemon.log());
    assert!(!daemon.place.mount.exists() && !daemon.place.pid_file.exists(), "what it made is gone");
}

fn a_group_may_read_and_nobody_else() {
    /// Ids without names, which no user of this host has.
    const GROUP: u32 = 54_321;
    const USER: u32 = 54_320;
    let place = Place::configured(&format!("group = \"{GROUP}\""));
    let daemon = Daemon::start_at(Arc::new(place), &[]);
    for (path, mode) in [("", 0o040_750), ("tcp_v4", 0o040_750), ("enabled", 0o100_640), ("self", 0o100_440)] {
        let data = fs::metadata(daemon.path(path)).unwrap();
        assert_eq!((data.uid(), data.gid(), data.mode()), (0, GROUP, mode), "{path}");
    }
    let run = |group: u32, script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("T", &daemon.place.mount).env("LC_ALL", "C").uid(USER).gid(group);
        let output = command.output().expect("run a shell");
        (String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr), output.status)
    };
    let (text, status) = run(GROUP, "cat $T/tcp_v4/conns_pps/period $T/tcp_v4/conns_pps/stat");
    assert!(status.success() && text.starts_with("1000\nname\tconns_pps\n"), "{text}");
    for (group, script) in [
        (GROUP, "echo 5 > $T/tcp_v4/conns_pps/period"),
        (GROUP, "echo 0 > $T/enabled"),
        (USER, "cat $T/enabled"),
        (USER, "ls $T"),
    ] {
        let (text, status) = run(group, script);
        assert!(!status.success() && text.contains("Permission denied"), "{group}, {script}: {text}");
    }
    assert_eq!((daemon.read(&format!("{PPS}/period")), daemon.read("enabled")), ("1000\n".into(), "1\n".into()));
}

fn what_it_shows_is_what_was_carried() {
    const CONNECTIONS: usize = 300;
    let daemon = Daemon::of_sockets();
    let mut load = Load::open(Config { connections: CONNECTIONS, ..Config::default() }).unwrap();
    daemon.write(&format!("{PPS}/period"), ENDLESS_MS);
    let before = truth::settled(&load);
    let plan = Plan::from_dist(&Dist::Zipf { exponent: 0.8, max: 2000 }, CONNECTIONS).unwrap();
    load.run(&plan, &limits()).unwrap();
    let truth = truth::difference(&before, &truth::settled(&load));
    for (table, of) in
        [(BYTES, (|counts| counts.bytes()) as fn(&topstat_live::Counts) -> u64), (PPS, |counts| counts.packets())]
    {
        let (json, stat) = (daemon.json(table), daemon.stat(table));
        assert_eq!(json.rows.len(), 128, "{table}");
        // Any of equal values may be at the border, so the test compares values. Other sockets of the host may be among the
        // rows.
        let mut values: Vec<u64> = truth.values().map(of).collect();
        values.sort_unstable_by(|a, b| b.cmp(a));
        for rows in [&json.rows, &stat.rows] {
            let ours: Vec<_> = rows.iter().filter_map(|(key, value)| Some((value, truth.get(key)?))).collect();
            for (value, counts) in &ours {
                assert_eq!(**value, of(counts), "{table}: {counts:?}");
            }
            let shown: Vec<u64> = ours.iter().map(|(value, _)| **value).collect();
            assert!(!shown.is_empty() && shown == values[..shown.len()], "{table}: {shown:?}, not {values:?}");
        }
        assert!(stat.cpus.iter().all(|(_, rows)| *rows > 0), "only CPUs that have rows: {:?}", stat.cpus);
        note(format!("{table}: rows as carried, total {}, other {}", json.total, json.other));
    }
}

fn tools_find_files_as_they_know_them() {
    let _accounting = Accounting::if_there();
    let daemon = Daemon::start();
    let tables: usize = samples().iter().map(|sample| sample.tables.len()).sum();
    let samples = samples().len();
    // Two files of the root show topstat's cost, beside its switch. A sample has its switch and all of its documents.
    let files = 3 + 2 * samples + 8 * tables;
    let settings = 1 + samples + 4 * tables;
    let copy = std::env::temp_dir().join(format!("topstat-copy-{}", std::process::id()));
    let copy = copy.display();
    for (script, printed) in [
        ("cat $T/tcp_v4/conns_pps/period", "1000\n".to_owned()),
        ("head -c 4 $T/tcp_v4/conns_pps/stat", "name".to_owned()),
        ("head -n 1 $T/tcp_v4/conns_pps/stat", "name\tconns_pps\n".to_owned()),
        ("tail -n 9 $T/tcp_v4/conns_pps/stat | grep -c ^other", "1\n".to_owned()),
        ("dd bs=1 if=$T/tcp_v4/conns_pps/type status=none", "1\n".to_owned()),
        ("wc -c < $T/tcp_v4/conns_pps/period", "5\n".to_owned()),
        ("while read -r line; do echo \"$line\"; done < $T/tcp_v4/conns_pps/period", "1000\n".to_owned()),
        (
            "grep -r . $T/udp_v4 --include=enabled | sort | sed 's/.*udp_v4/udp_v4/'",
            "udp_v4/conns_bps/enabled:1\nudp_v4/conns_bytes/enabled:1\nudp_v4/conns_pps/enabled:1\nudp_v4/enabled:1\n"
                .to_owned(),
        ),
        ("find $T -type f | wc -l", format!("{files}\n")),
        ("find $T -ls | grep -c -- '-rw-------'", format!("{settings}\n")),
        (
            &format!(
                "cp -r $T {copy} && find {copy} -type f -size +0 | wc -l; cat {copy}/tcp_v4/conns_pps/period; rm -r {copy}"
            ),
            format!("{files}\n1000\n"),
        ),
        ("echo 250 > $T/tcp_v4/conns_pps/period; cat $T/tcp_v4/conns_pps/period", "250\n".to_owned()),
        ("printf 300 > $T/tcp_v4/conns_pps/period; cat $T/tcp_v4/conns_pps/period", "300\n".to_owned()),
        ("echo ' 350 ' >> $T/tcp_v4/conns_pps/period; cat $T/tcp_v4/conns_pps/period", "350\n".to_owned()),
        (
            "(echo 0; echo 1; echo 0) >> $T/tcp_v4/enabled; cat $T/tcp_v4/enabled; echo 1 | tee $T/tcp_v4/enabled",
            "0\n1\n".to_owned(),
        ),
        (
            ": > $T/tcp_v4/conns_pps/period; truncate -s 0 $T/tcp_v4/conns_pps/period; cat $T/tcp_v4/conns_pps/period",
            "350\n".to_owned(),
        ),
        // `tail` neither hangs nor spins nor repeats text without end.
        ("timeout 3 tail -n +1 -f $T/tcp_v4/conns_pps/stat 2>/dev/null | grep -c ^total", "1\n".to_owned()),
    ] {
        assert_eq!(shell(&daemon, script), (printed, 0), "{script}");
    }
    // `watch` repeats a command, on a terminal that does not exist.
    let (text, _) = shell(&daemon, "TERM=vt100 timeout 3 watch -t -n 0.5 cat $T/tcp_v4/conns_pps/period < /dev/null");
    assert!(text.contains("350"), "{text:?}");
}

/// 8 readers take 1,000 snapshots a second, each of them complete, while pushes go on and are all counted.
fn many_readers_at_once_get_whole_snapshots() {
    const READERS: usize = 8;
    const TIME: Duration = Duration::from_secs(4);
    // The snapshots of all readers, per second.
    let reads = pace::work(1000, 40);
    let step = Duration::from_micros(1_000_000 * READERS as u64 / reads);
    let daemon = Daemon::of_sockets();
    let mut load = Load::open(Config { connections: 200, ..Config::default() }).unwrap();
    let before = truth::settled(&load);
    let witness = Witness::new(Transport::Tcp);
    let (fds, carried_before) = (daemon.fds(), daemon.json(BYTES).total);
    let (taken, settings) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let limits = Limits { stop: Some(Arc::clone(&stop)), rate: Some(pace::rate(3000.0)), ..limits() };
    let mut late = Duration::ZERO;
    std::thread::scope(|scope| {
        let load = &mut load;
        let running = scope.spawn(move || load.run(&Plan::endless(200), &limits).unwrap());
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                let (daemon, taken) = (&daemon, &taken);
                scope.spawn(move || {
                    let begun = Instant::now();
                    for turn in 0.. {
                        let due = step * turn;
                        if due >= TIME {
                            break;
                        }
                        std::thread::sleep(due.saturating_sub(begun.elapsed()));
                        // Parsing a file checks it.
                        match (turn + reader as u32) % 3 {
                            0 => drop(daemon.stat(BYTES)),
                            1 => drop(daemon.stat(PPS)),
                            _ => drop(daemon.json(BYTES)),
                        }
                        taken.fetch_add(1, Ordering::Relaxed);
                    }
                    begun.elapsed()
                })
            })
            .collect();
        // Settings don't wait for readers.
        let begun = Instant::now();
        while begun.elapsed() < TIME {
            let turn = Instant::now();
            let delay = settings.fetch_add(1, Ordering::Relaxed) % 2 * 10;
            daemon.write("udp_v6/conns_pps/delay", delay);
            assert_eq!(daemon.read("udp_v6/conns_pps/delay"), format!("{delay}\n"));
            late = late.max(turn.elapsed());
            std::thread::sleep(Duration::from_millis(20));
        }
        let slowest = readers.into_iter().map(|reader| reader.join().unwrap()).max().unwrap();
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap();
        let rate = taken.load(Ordering::Relaxed) as f64 / slowest.as_secs_f64();
        note(format!("{rate:.0} snapshots a second, all whole; slowest set and get beside them {late:?}"));
        // A slow host takes longer for the same number of snapshots; benchmarks measure the speed.
        let wanted = READERS as u128 * TIME.as_micros().div_ceil(step.as_micros());
        assert_eq!(u128::from(taken.load(Ordering::Relaxed)), wanted, "each reader has got all of its snapshots");
    });
    let truth = truth::difference(&before, &truth::settled(&load));
    let after = daemon.json(BYTES);
    let carried: u64 = truth.values().map(topstat_live::Counts::bytes).sum();
    let packets = truth.values().map(topstat_live::Counts::packets).sum();
    witness.assert_bytes(after.total - carried_before, carried, packets, "pushes counted under readers");
    // Readers that were made in the test are kept.
    assert!(daemon.fds() <= fds + 40, "{} descriptors, {fds} before", daemon.fds());
}

/// Runs the program with the daemon's mount point and pins; returns its output and its exit code.
fn topstat(place: &Place, arguments: &[&str]) -> (String, Option<i32>) {
    let output = topstat_live::role::command("topstat")
        .args(arguments)
        .args(&place.options()[..4])
        .output()
        .expect("run topstat");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (text, output.status.code())
}

fn commands_work_on_the_tree() {
    let daemon = Daemon::of_sockets();
    let run = |arguments: &[&str]| topstat(&daemon.place, arguments);
    let nothing = (String::new(), Some(0));
    assert_eq!(run(&["set", "tcp_v4/conns_pps/period", "2s"]), nothing);
    assert_eq!(run(&["get", "tcp_v4/conns_pps/period"]), ("2000\n".to_owned(), Some(0)));
    assert_eq!(daemon.read("tcp_v4/conns_pps/period"), "2000\n");
    let path = daemon.path("udp_v4/enabled");
    assert_eq!(run(&["set", path.to_str().unwrap(), "0"]), nothing);
    assert_eq!(daemon.read("udp_v4/enabled"), "0\n");
    let (all, _) = run(&["get"]);
    assert!(all.contains("tcp_v4/conns_pps/period 2000\n") && all.contains("udp_v4/enabled 0\n"), "{all}");
    let (stat, _) = run(&["get", "tcp_v4/conns_pps/stat"]);
    assert_eq!(Stat::of(&stat).get("period"), "2000");
    let (error, code) = run(&["set", "tcp_v4/conns_pps/period", "0"]);
    assert_eq!((error.contains("not in 1ms to 3600s"), code), (true, Some(2)), "{error}");
}

/// The daemon is killed: counting goes on, and commands work without the tree. The next daemon finds all state unchanged.
fn commands_work_on_what_is_pinned_while_no_daemon_runs() {
    const CONNECTIONS: usize = 20;
    let mut daemon = Daemon::of_sockets();
    let place = Arc::clone(&daemon.place);
    let run = |arguments: &[&str]| topstat(&place, arguments);
    let nothing = (String::new(), Some(0));
    let mut load = Load::open(Config { connections: CONNECTIONS, ..Config::default() }).unwrap();
    let before = truth::settled(&load);
    let plan = Plan::new(vec![30; CONNECTIONS]);
    load.run(&plan, &limits()).unwrap();
    daemon.write(&format!("{PPS}/period"), 2000);
    daemon.kill();
    assert_eq!(run(&["get", "tcp_v4/conns_pps/period"]), ("2000\n".to_owned(), Some(0)));
    assert_eq!(run(&["set", "tcp_v4/conns_pps/period", "3s"]), nothing);
    assert_eq!(run(&["set", "udp_v6/enabled", "0"]), nothing);
    load.run(&plan, &limits()).unwrap();
    let truth = truth::difference(&before, &truth::settled(&load));
    let carried = |text: &str| {
        let rows: HashMap<Key, u64> = Document::of(text).rows.into_iter().collect();
        for (key, counts) in &truth {
            assert_eq!(rows.get(key), Some(&counts.bytes()), "{key:?}");
        }
    };
    let begun = Instant::now();
    let (json, code) = run(&["top", BYTES, "-o", "json"]);
    assert_eq!(code, Some(0), "{json}");
    // A newly made table would have no counts yet.
    carried(&json);
    note(format!("topstat top on pinned state: the first rows after {:?}", begun.elapsed()));
    carried(&run(&["get", "tcp_v4/conns_bytes/json"]).0);
    let list = topstat_live::role::command("topstat").args(["ls", "-o", "json"]).args(&place.options()[2..4]).output();
    let list = String::from_utf8(list.expect("run topstat").stdout).unwrap();
    assert!(list.contains("\"period_ms\":3000") && list.contains("\"sample_enabled\":false"), "{list}");
    let (error, code) = run(&["top", PPS, "--period", "1s"]);
    assert!(code == Some(2) && error.contains("--private"), "{error}");

    let mut next = Daemon::start_at(Arc::clone(&place), &[]);
    assert!(next.says("found pinned, and adopted"), "{}", next.log());
    carried(&next.read(&format!("{BYTES}/json")));
    assert_eq!((next.read("tcp_v4/conns_pps/period"), next.read("udp_v6/enabled")), ("3000\n".into(), "0\n".into()));
    let pid_file = ["--pid-file", place.pid_file.to_str().unwrap()];
    let unload = || {
        let options = place.options();
        let output = topstat_live::role::command("topstat").arg("unload").args(&options[2..4]).args(pid_file).output();
        output.expect("run topstat")
    };
    assert_eq!(unload().status.code(), Some(1), "not under a daemon that runs");
    assert_eq!(next.stop().code(), Some(0));
    assert!(place.pins.exists(), "a stop removes nothing");
    let output = unload();
    assert!(output.status.success() && !output.stdout.is_empty(), "{output:?}");
    assert!(!place.pins.exists());
    assert_eq!(run(&["get", "enabled"]).1, Some(1));
}
