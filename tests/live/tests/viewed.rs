// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The live view beside a daemon, on a terminal: the screen shows the traffic that was carried, and typed settings take
//! effect.

use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use topstat_live::busy::Busy;
use topstat_live::daemon::Place;
use topstat_live::watch::ENDLESS_MS;
use topstat_live::{Case, Daemon, case, eventually, limits, note, pace, role, truth};
use topstat_load::{Config, Dist, Load, Plan};
use topstat_model::human_ms;

#[allow(dead_code)] // the tests of the command line use all of it
#[path = "../../../crates/topstat/tests/cli/emulated.rs"]
mod emulated;
use emulated::Terminal;

pub fn cases() -> Vec<Case> {
    vec![
        case!(the_first_screen_shows_the_host, Root, Fuse; Daemon),
        case!(the_screen_shows_what_was_carried, Root, Fuse; Daemon),
        case!(settings_are_those_of_the_tree_and_what_is_refused_changes_nothing, Root, Fuse; Daemon),
    ]
}

const SAMPLE: &str = "tcp_v4";
const TABLE: &str = "tcp_v4/conns_pps";
/// The size of the screen: wide enough for the addresses of a row.
const SIZE: (u16, u16) = (40, 140);

/// The group that may read the tree, and a member: the ids need no names.
const GROUP: u32 = 54_341;
const MEMBER: u32 = 54_342;

/// Plays the role, if it is the role of this file.
pub fn play(role: &str, arguments: &[String]) -> Option<ExitCode> {
    if role != MEMBERS_TOPSTAT {
        return None;
    }
    let (uid, gid) = (rustix::process::Uid::from_raw(MEMBER), rustix::process::Gid::from_raw(GROUP));
    rustix::thread::set_thread_groups(&[]).expect("leave all groups");
    rustix::thread::set_thread_gid(gid).expect("become a member");
    rustix::thread::set_thread_uid(uid).expect("become a user of no privilege");
    let line = std::iter::once("topstat").chain(arguments.iter().map(String::as_str)).map(Into::into);
    Some(topstat::run(line, &mut topstat::Kernel, &mut topstat::SystemConsole::default()).into())
}

/// The role of the program when a member of the group runs it.
const MEMBERS_TOPSTAT: &str = "members-topstat";

/// A daemon whose tree the group may read.
fn daemon() -> Daemon {
    Daemon::start_at(Arc::new(Place::configured(&format!("group = \"{GROUP}\""))), &[])
}

/// The view of this daemon, run in this role.
fn view(role: &str, daemon: &Daemon) -> Command {
    let mut view = role::command(role);
    view.args(["view", "0.2", "--mount"]).arg(&daemon.place.mount).arg("--pins").arg(&daemon.place.pins);
    view
}

fn the_screen_shows_what_was_carried() {
    const CONNECTIONS: usize = 50;
    let daemon = daemon();
    let mut load = Load::open(Config { connections: CONNECTIONS, ..Config::default() }).unwrap();
    let mut terminal = Terminal::start(view("topstat", &daemon), SIZE);
    // The daemon's own measurement of its programs.
    terminal.wait_for("  kernel ");
    // The overview, and then one table after the other.
    terminal.press("0");
    terminal.wait_for(TABLE);
    terminal.press("\r");
    terminal.wait_for("  other ");
    for _ in 0..topstat_families::catalogue().samples().len() {
        let title = terminal.text().lines().nth(1).unwrap_or_default().to_owned();
        if title.starts_with(TABLE) {
            break;
        }
        terminal.press("\t");
        terminal.wait_until("another table", |screen| !screen.contents().contains(&title));
    }
    terminal.wait_for(&format!("{TABLE}  total"));
    // A typed value is set.
    terminal.press(&format!("p{ENDLESS_MS}\r"));
    terminal.wait_for(&format!("{TABLE}/period is {ENDLESS_MS}"));
    assert_eq!(daemon.read(&format!("{TABLE}/period")).trim(), ENDLESS_MS.to_string());
    let before = truth::settled(&load);
    let max = pace::work(500, 50);
    let plan = Plan::from_dist(&Dist::Zipf { exponent: 0.8, max }, CONNECTIONS).unwrap();
    load.run(&plan, &limits()).unwrap();
    let truth = truth::difference(&before, &truth::settled(&load));
    let (key, counts) = truth.iter().max_by_key(|(key, counts)| (counts.packets(), **key)).expect("connections");
    // Selects the row of this socket, in exact numbers: packets in total, received and sent.
    terminal.press(&format!("x/sport:{} dport:{}\r", key.local.port(), key.remote.port()));
    terminal.wait_for("1 of the ");
    let numbers = [counts.packets(), counts.packets_rx, counts.packets_tx].map(|number| number.to_string());
    terminal.wait_until("the largest connection", |screen| {
        screen.contents().lines().any(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.get(1..4).is_some_and(|found| found == numbers) && line.contains(&key.local.port().to_string())
        })
    });
    terminal.press("q");
    assert_eq!(terminal.end(), Some(0));
    terminal.assert_given_back();
    note(format!("{TABLE}: {} packets of {} as carried", numbers[0], key.local));
}

/// A process that uses a CPU. Killed when dropped.
struct Spinner(Child);

impl Spinner {
    fn start() -> Self {
        Self::again_and_again(":")
    }

    fn again_and_again(command: &str) -> Self {
        Self(Command::new("sh").args(["-c", &format!("while :; do {command}; done")]).spawn().expect("a shell"))
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The CPU time of a process, from /proc.
fn cpu_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let ticks: u64 =
        stat.rsplit(')').next().expect("a name").split(' ').skip(12).take(2).map(|t| t.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

/// The line of the screen with all of these words, and the words of it.
fn line_with(terminal: &Terminal, wanted: &[&str]) -> Option<Vec<String>> {
    let text = terminal.text();
    let line = text.lines().find(|line| wanted.iter().all(|word| line.contains(word)))?;
    Some(line.split_whitespace().map(str::to_owned).collect())
}

/// Reads the screen for a time: a terminal that is not read shows an old frame, and its program waits.
fn watch(terminal: &mut Terminal, time: Duration) {
    let begun = Instant::now();
    terminal.wait_until("the time", |_| begun.elapsed() >= time);
}

/// Takes the filter away. The next key waits: together with Escape it would be another key.
fn unfilter(terminal: &mut Terminal) {
    terminal.press("\x1b");
    watch(terminal, Duration::from_millis(500));
    terminal.wait_until("no filter", |screen| !screen.contents().contains("none is like"));
}

/// At 80 columns and 24 lines, each question takes one screen or a few keys, and the answer is the one of /proc and of the test.
fn the_first_screen_shows_the_host() {
    let daemon = Daemon::start();
    let busy = Busy::new(4);
    let spinner = Spinner::start();
    let mut terminal = Terminal::start(view("topstat", &daemon), (24, 80));
    for title in [
        "CPU, % of all CPUs",
        "network, bit/s",
        "disk, byte/s",
        "waits, per second",
        "errors and drops",
        "ended in the last",
    ] {
        terminal.wait_for(title);
    }
    terminal.wait_for("MEM");
    // Which process uses the CPUs? The filter leaves this one.
    terminal.press(&format!("/pid:{}\r", spinner.0.id()));
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    // The figure is of the last second before the frame, and so is the one of /proc, up to the time between the two.
    let (mut seen, mut shown) = (Vec::new(), 0.0);
    let is_right = eventually(Duration::from_secs(30), || {
        let (before, begun) = (cpu_time(spinner.0.id()), Instant::now());
        watch(&mut terminal, Duration::from_millis(1200));
        let used = (cpu_time(spinner.0.id()) - before).as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0 / cpus;
        let line = line_with(&terminal, &[" sh "]);
        shown = line.and_then(|words| words.first()?.parse().ok()).unwrap_or(0.0);
        seen.push((shown, used));
        used > 5.0 && (shown - used).abs() < 0.2 * used
    });
    assert!(is_right, "shown, and by /proc: {seen:?}\n{}", terminal.text());
    // Which process uses the network, and at which port?
    unfilter(&mut terminal);
    terminal.press(&format!("/pid:{}\r", std::process::id()));
    // Until the filter is in effect, the screen shows connections of other processes, perhaps in other network namespaces.
    let ports = std::fs::read_to_string("/proc/self/net/tcp").expect("the connections")
        + &std::fs::read_to_string("/proc/self/net/tcp6").unwrap_or_default();
    terminal.wait_until("a port of this process", |screen| {
        let text = screen.contents();
        let rest = text.split("lo:").nth(1);
        let port = rest.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u16>().ok());
        port.is_some_and(|port| ports.contains(&format!(":{port:04X} ")))
    });
    // Which processes of short life were there? Shells end until they are seen: the screen shows ten seconds, and a busy host may take
    // longer than that from the last shell to the filter.
    let shells = Spinner::again_and_again("sh -c 'i=0; while [ $i -lt 100 ]; do i=$((i+1)); done'");
    unfilter(&mut terminal);
    terminal.press("/comm:sh\r");
    terminal.wait_until("ended shells", |screen| {
        let lines = screen.contents();
        let line = lines.lines().find(|line| line.contains(" sh ") && line.contains('×'));
        let count = line.and_then(|line| line.split('×').nth(1)?.split_whitespace().next()?.parse::<u32>().ok());
        // An emulated CPU that the load shares runs one in a second or two.
        count.is_some_and(|count| count >= 3)
    });
    drop(shells);
    unfilter(&mut terminal);
    // All that is known of the spinner: its row, and its command line.
    terminal.press(&format!(":sh ({})\r", spinner.0.id()));
    terminal.wait_for("while :; do :; done");
    terminal.press("\x1b");
    terminal.wait_for("proven");
    terminal.press("\x1b");
    terminal.wait_for("CPU, % of all CPUs");
    // What does topstat cost, and is the screen complete?
    terminal.press("7");
    terminal.wait_for("the daemon");
    terminal.wait_for("Whether the figures are complete");
    terminal.press("q");
    assert_eq!(terminal.end(), Some(0));
    terminal.assert_given_back();
    note(format!("{} transactions, and a spinner of {shown}%", busy.end()));
}

/// The settings of a table in the tree, in the format of the screen.
fn settings(daemon: &Daemon, table: &str) -> [String; 3] {
    let read = |path: &str| daemon.read(path).trim().parse::<u32>().expect("a number");
    let sample = table.split('/').next().expect("a path");
    let above = read("enabled") == 1 && read(&format!("{sample}/enabled")) == 1;
    let on = match (read(&format!("{table}/enabled")) == 1, above) {
        (true, true) => "on",
        (true, false) => "(on)",
        (false, _) => "off",
    };
    let period = match read(&format!("{table}/type")) {
        1 => human_ms(read(&format!("{table}/period"))),
        _ => "-".to_owned(),
    };
    [on.to_owned(), period, human_ms(read(&format!("{table}/delay")))]
}

/// The tables of the daemon that are in its tree, and their settings.
fn all_settings(daemon: &Daemon) -> Vec<(String, [String; 3])> {
    let samples = topstat_families::catalogue().samples();
    let tables = samples.iter().flat_map(|sample| {
        sample.tables.iter().map(|table| format!("{}/{}", sample.name, table.name)).collect::<Vec<_>>()
    });
    let there = tables.filter(|table| daemon.path(table).is_dir());
    there.map(|table| (table.clone(), settings(daemon, &table))).collect()
}

/// Waits until the screen shows the settings of these tables in the tree.
fn wait_for_settings(terminal: &mut Terminal, all: &[(String, [String; 3])]) {
    for (table, wanted) in all {
        terminal.wait_until(&format!("{table} {wanted:?}"), |screen| {
            screen.contents().lines().any(|line| {
                let mut words = line.split_whitespace();
                words.next() == Some(table) && words.take(3).eq(wanted)
            })
        });
    }
}

/// The view on its screen of settings, with [`TABLE`] selected.
fn settings_screen(role: &str, daemon: &Daemon) -> Terminal {
    let mut command = view(role, daemon);
    command.args(["--table", TABLE]);
    let mut terminal = Terminal::start(command, SIZE);
    terminal.wait_for(&format!("{TABLE}  total"));
    terminal.press("S");
    terminal
}

fn settings_are_those_of_the_tree_and_what_is_refused_changes_nothing() {
    let daemon = daemon();
    let other = format!("{SAMPLE}/conns_retrans");
    daemon.write(&format!("{other}/enabled"), 0);
    let mut terminal = settings_screen("topstat", &daemon);
    let begun = all_settings(&daemon);
    assert!(begun.iter().any(|(table, [on, ..])| *table == other && on == "off"), "{begun:?}");
    wait_for_settings(&mut terminal, &begun);
    // A typed value is set for the selected table, and for no other.
    for (keys, file, value) in [("p2500\r", "period", "2500"), ("d40ms\r", "delay", "40"), ("eoff\r", "enabled", "0")] {
        terminal.press(keys);
        terminal.wait_for(&format!("{TABLE}/{file} is {value}"));
        assert_eq!(daemon.read(&format!("{TABLE}/{file}")).trim(), value);
        wait_for_settings(&mut terminal, &all_settings(&daemon));
    }
    let set = all_settings(&daemon);
    let differ: Vec<_> = set.iter().zip(&begun).filter(|(set, begun)| set != begun).map(|(set, _)| set).collect();
    assert_eq!(differ, [&(TABLE.to_owned(), ["off", "2.5s", "40ms"].map(str::to_owned))]);
    // The view refuses an invalid value itself.
    for (keys, why) in [("p0\r", "1 to 3600000 ms"), ("d3600001\r", "0 to 3600000 ms"), ("e2\r", "0 or 1")] {
        terminal.press(keys);
        terminal.wait_for(why);
        terminal.press("\x1b");
        terminal.wait_for("? keys");
    }
    assert_eq!(all_settings(&daemon), set);
    // A changed switch above the table appears when the screen is opened again.
    daemon.write(&format!("{SAMPLE}/enabled"), 0);
    terminal.press("SS");
    wait_for_settings(&mut terminal, &all_settings(&daemon));
    terminal.wait_for("turned off above");
    // The table's own screen shows it, too; the table has no rows left after a period.
    terminal.press("\r");
    terminal.wait_for(&format!("{TABLE}  total"));
    daemon.write(&format!("{TABLE}/enabled"), 1);
    terminal.wait_for(&format!("{SAMPLE} is off, and counts nothing"));
    daemon.write(&format!("{TABLE}/enabled"), 0);
    terminal.wait_for("it is off, and counts nothing");
    daemon.write(&format!("{SAMPLE}/enabled"), 1);
    terminal.press("q");
    assert_eq!(terminal.end(), Some(0));
    // The view tells a user with read permission only that settings need root.
    let mut terminal = settings_screen(MEMBERS_TOPSTAT, &daemon);
    wait_for_settings(&mut terminal, &set);
    for keys in ["p9s\r", "d9s\r", "eon\r"] {
        terminal.press(keys);
        terminal.wait_for("only root may set anything");
        wait_for_settings(&mut terminal, &set);
        terminal.press("\x1b[A");
        terminal.wait_for("? keys");
        terminal.press("\x1b[B");
    }
    assert_eq!(all_settings(&daemon), set);
    terminal.press("q");
    assert_eq!(terminal.end(), Some(0));
    terminal.assert_given_back();
    note(format!("{} tables as the tree has them", set.len()));
}
