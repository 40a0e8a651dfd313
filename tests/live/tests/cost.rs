// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost that the daemon reports, compared with /proc and the load's own counts; its cost when idle; and the limit of a
//! budget.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libbpf_rs::query::ProgInfoIter;
use rustix::process::Signal;
use serde_json::Value;
use topstat_live::daemon::Place;
use topstat_live::nest::counts_by_functions;
use topstat_live::watch::ENDLESS_MS;
use topstat_live::{Busy, Case, Daemon, Scratch, Transport, Witness, alone, eventually, limits, note, truth};
use topstat_load::{Config, Load, Plan};

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Cpu: figures_are_those_of_proc_and_of_the_load, Root, Fuse),
        alone!(Cpu: an_idle_daemon_costs_next_to_nothing, Root, Fuse),
        alone!(Cpu: a_budget_raises_delays_and_gives_them_back, Root, Fuse; Slow),
        alone!(Cpu: a_budget_that_can_not_be_kept_is_said_once, Root, Fuse; Slow),
        alone!(Cpu: delays_of_a_killed_daemon_are_found_and_taken_back, Root, Fuse),
    ]
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

fn table<'a>(own: &'a Value, sample: &str, table: &str) -> &'a Value {
    let find = |list: &'a Value, key: &str, name: &str| {
        let list = list.as_array().unwrap_or_else(|| panic!("no list: {list}"));
        list.iter().find(|one| one[key] == name).unwrap_or_else(|| panic!("no {name}"))
    };
    find(&find(&own["samples"], "sample", sample)["tables"], "table", table)
}

/// The factor by which one second may differ from another, under the same load on a host that other processes use, too.
const STEADY: f64 = 2.5;

/// The kernel's counts of program runs.
struct Runs {
    runs: f64,
    ns: f64,
    seconds: f64,
}

impl Runs {
    /// Counts for one second, over all programs except `others`.
    fn of_a_second(others: &BTreeSet<u32>) -> Self {
        // SAFETY: the call takes a number, and returns a descriptor or an error.
        let asked = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        assert!(asked >= 0, "BPF_ENABLE_STATS: {}", std::io::Error::last_os_error());
        // SAFETY: the descriptor was just opened, and has no other owner. The kernel counts as long as it is open.
        let _asked = unsafe { OwnedFd::from_raw_fd(asked) };
        let look = || {
            let own = ProgInfoIter::default().filter(|program| !others.contains(&program.id));
            own.fold((0, 0), |(runs, ns), program| (runs + program.run_cnt, ns + program.run_time_ns))
        };
        let (begun, before) = (Instant::now(), look());
        std::thread::sleep(Duration::from_secs(1));
        let (after, seconds) = (look(), begun.elapsed().as_secs_f64());
        Self { runs: (after.0 - before.0) as f64, ns: (after.1 - before.1) as f64, seconds }
    }
}

fn figures_are_those_of_proc_and_of_the_load() {
    const CONNECTIONS: usize = 50;
    const TURNS: u64 = 200;
    // The first window is the daemon's first second, so the load starts before the daemon, and goes on during the kernel's
    // count.
    let others: BTreeSet<u32> = ProgInfoIter::default().map(|program| program.id).collect();
    let busy = Busy::new(CONNECTIONS);
    let daemon = Daemon::start();
    assert!(eventually(Duration::from_secs(10), || daemon.own()["measured"].is_object()), "{}", daemon.log());
    let truth = Runs::of_a_second(&others);
    busy.end();
    let own = daemon.own();
    assert!(own["error"].is_null() && own["budget"].is_null(), "{own}");

    // The process.
    assert_eq!(own["pid"], daemon.pid());
    let rss = daemon.status_kb("VmRSS") as f64 * 1024.0;
    let said = number(&own["rss_bytes"]);
    assert!((said / rss - 1.0).abs() < 0.2, "{said} bytes, and {rss} by /proc");
    let cpu = daemon.cpu_time().as_secs_f64();
    let said = number(&own["cpu_ns"]) / 1e9;
    assert!(said <= cpu + 0.001 && said > cpu * 0.5, "{said} s, and {cpu} s by the scheduler");
    let fds = daemon.fds() as f64;
    assert!((number(&own["fds"]) - fds).abs() <= 3.0, "{} descriptors, and {fds} by /proc", own["fds"]);

    // The programs, compared with the kernel's own count in another second of the same load.
    let measured = &own["measured"];
    let (runs, per_run) = (number(&measured["runs"]), number(&measured["ns_per_run"]));
    let seconds = number(&measured["seconds"]);
    let alike = |ours: f64, truth: f64, what: &str| {
        assert!(
            (1.0 / STEADY..STEADY).contains(&(ours / truth)),
            "{what}: {ours:.1}, and {truth:.1} by the kernel: {measured}"
        );
    };
    // The kernel's figure includes the cost of counting a run, which is most of it for programs that do this little.
    alike(per_run + number(&measured["empty_run_ns"]), truth.ns / truth.runs, "ns of a run");
    alike(runs / seconds, truth.runs / truth.seconds, "runs in a second");
    assert!((0.9..5.0).contains(&seconds), "{measured}");
    let share = runs * per_run / 1e9 / seconds / number(&measured["cpus"]);
    assert!((number(&measured["share"]) / share - 1.0).abs() < 0.01, "{measured}");
    let programs = measured["programs"].as_array().unwrap();
    let sum: f64 = programs.iter().map(|program| number(&program["runs"])).sum();
    assert_eq!(sum, runs);
    let runs_of = |name: &str| number(&programs.iter().find(|p| p["name"] == name).expect(name)["runs"]);
    if counts_by_functions() {
        // Nearly all traffic is TCP, and no UDP program sees it.
        let datagrams = ["inet_received", "inet_sent", "inet_sent6"].map(runs_of).iter().sum::<f64>();
        assert!(datagrams < runs / 100.0, "{datagrams} of {runs} runs are for datagrams");
    } else {
        // A packet on loopback leaves once and arrives once.
        let (ingress, egress) = (runs_of("inet_ingress"), runs_of("inet_egress"));
        assert!((ingress / egress - 1.0).abs() < 0.2, "{ingress} in, {egress} out");
    }
    note(format!(
        "{runs} runs in a second, {per_run:.1} ns each, {:.2}% of each CPU; by the kernel {} runs of {:.1} ns",
        share * 100.0,
        truth.runs,
        truth.ns / truth.runs
    ));

    // The maps: the sum over all descriptors of the daemon's maps is larger, since it includes readers' maps.
    let map_bytes = number(&own["map_bytes"]);
    assert!(map_bytes > 100_000.0 && map_bytes <= maps_of(daemon.pid()) as f64, "{map_bytes}");

    // The pushes: every packet, exactly. A reader leaves what a silent connection has received since its last record until the next
    // record if the period has passed in between: here it never passes.
    daemon.write("tcp_v4/conns_pps/period", ENDLESS_MS);
    let pushed = |daemon: &Daemon| {
        // A read of the table makes the programs push all counted but pending packets.
        daemon.read("tcp_v4/conns_pps/stat");
        number(&table(&daemon.own(), "tcp_v4", "conns_pps")["pushed"])
    };
    let mut load = Load::open(Config { connections: CONNECTIONS, ..Config::default() }).unwrap();
    let (before, witness, begun) = (truth::settled(&load), Witness::new(Transport::Tcp), pushed(&daemon));
    load.run(&Plan::new(vec![TURNS; CONNECTIONS]), &limits()).unwrap();
    let carried: u64 = truth::difference(&before, &truth::settled(&load)).values().map(|counts| counts.packets()).sum();
    let counted = pushed(&daemon) - begun;
    witness.assert_packets(counted as u64, carried, "pushes");

    // The text file has the same figures.
    let text = daemon.read("self");
    assert!(text.contains(&format!("\npid\t{}\n", daemon.pid())), "{text}");
    assert!(text.contains("\nbudget\toff\n") && text.contains("\ntcp_v4/conns_pps\t"), "{text}");
}

/// The memory of all maps that a process has descriptors of; each map counts once.
fn maps_of(pid: u32) -> u64 {
    let mut maps = std::collections::BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap().flatten() {
        let Ok(text) = fs::read_to_string(entry.path()) else { continue };
        let number = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        if let (Some(id), Some(bytes)) = (number("map_id:"), number("memlock:")) {
            maps.insert(id, bytes);
        }
    }
    maps.values().sum()
}

fn an_idle_daemon_costs_next_to_nothing() {
    /// The share of one CPU.
    const MOST: f64 = 0.001;
    const MOST_RSS_KB: u64 = 20 * 1024;
    const TIME: Duration = Duration::from_secs(10);
    let daemon = Daemon::start();
    // The daemon measures once, when it starts.
    assert!(eventually(Duration::from_secs(10), || daemon.log().contains("in a second")), "{}", daemon.log());
    std::thread::sleep(Duration::from_millis(200));
    let (begun, before) = (Instant::now(), daemon.cpu_time());
    std::thread::sleep(TIME);
    let used = (daemon.cpu_time() - before).as_secs_f64() / begun.elapsed().as_secs_f64();
    let rss = daemon.resident_kb();
    note(format!("{:.4}% of one CPU, {rss} kB resident besides the program's file", used * 100.0));
    assert!(used < MOST, "{:.4}% of one CPU", used * 100.0);
    assert!(rss < MOST_RSS_KB, "{rss} kB resident");
}

const DELAY: &str = "tcp_v4/conns_pps/delay";

fn raised(daemon: &Daemon) -> u64 {
    table(&daemon.own(), "tcp_v4", "conns_pps")["raised_ms"].as_u64().expect("a number")
}

fn a_budget_raises_delays_and_gives_them_back() {
    /// The first budget is below any load, and the second above any load, whatever other processes run on the host.
    const BUDGETS: [&str; 2] = ["0.01%", "50%"];
    // Switches of tasks cost more than that even on an idle host.
    const OFF: &str = "[samples.tasks]\nenabled = false\n[samples.cgroups]\nenabled = false\n";
    let scratch = Scratch::new("budget");
    let file = scratch.path().join("topstat.toml");
    let write = |budget: &str| fs::write(&file, format!("overhead_budget = \"{budget}\"\n{OFF}")).unwrap();
    write(BUDGETS[0]);
    let daemon = Daemon::start_at(Arc::new(Place::new()), &["--config", file.to_str().unwrap()]);
    daemon.write(DELAY, 3);
    assert_eq!(raised(&daemon), 0);
    let busy = Busy::new(20);
    assert!(eventually(Duration::from_secs(30), || raised(&daemon) >= 20), "{}", daemon.log());
    // The user's own delay, and the file, keep their value; the snapshot shows the delay in effect.
    assert_eq!(daemon.read(DELAY), "3\n");
    assert!(daemon.json("tcp_v4/conns_pps").value["delay_ms"].as_u64() >= Some(20));
    daemon.write(DELAY, 4);
    assert_eq!(daemon.read(DELAY), "4\n");
    assert!(raised(&daemon) >= 20, "to set it takes nothing from the budget");
    let own = daemon.own();
    let budget = &own["budget"];
    let changes = budget["changes"].as_array().expect("changes");
    assert!(changes.len() >= 2 && number(&budget["share"]) == 0.0001, "{budget}");
    for (index, change) in changes.iter().enumerate() {
        assert_eq!((&change["from"], &change["to"]), (&Value::from(index), &Value::from(index + 1)), "{budget}");
        assert!(number(&change["share"]) > 0.0001, "{budget}");
    }
    assert!(daemon.log().contains("delays raised from level 0 to 1 of 7"), "{}", daemon.log());
    assert!(daemon.read("self").contains("\nchanged\tfrom_level\tto_level\t"));
    // Only here, since with less load the daemon begins to lower the delays.
    busy.end();
    write(BUDGETS[1]);
    daemon.signal(Signal::HUP);
    let begun = Instant::now();
    assert!(eventually(Duration::from_secs(90), || raised(&daemon) == 0), "{}", daemon.log());
    assert_eq!(daemon.json("tcp_v4/conns_pps").value["delay_ms"], 4);
    note(format!("{} steps up, all taken back within {:.0} s", changes.len(), begun.elapsed().as_secs_f64()));
}

fn a_budget_that_can_not_be_kept_is_said_once() {
    let daemon = Daemon::start_at(Arc::new(Place::new()), &["--overhead-budget", "0.01%"]);
    let _busy = Busy::new(20);
    let enough = |daemon: &Daemon| !daemon.own()["budget"]["exhausted"].as_bool().expect("a truth value");
    assert!(enough(&daemon));
    assert!(eventually(Duration::from_secs(60), || !enough(&daemon)), "{}", daemon.log());
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!(daemon.log().matches("with the longest delays").count(), 1, "{}", daemon.log());
    assert_eq!(raised(&daemon), 1000, "never longer than the period");
    assert!(daemon.read("self").contains("\nbudget_enough\t0\n"));
}

fn delays_of_a_killed_daemon_are_found_and_taken_back() {
    let place = Arc::new(Place::new());
    let budget = ["--overhead-budget", "0.01%"];
    let mut daemon = Daemon::start_at(Arc::clone(&place), &budget);
    daemon.write(DELAY, 3);
    let busy = Busy::new(20);
    assert!(eventually(Duration::from_secs(30), || raised(&daemon) >= 10), "{}", daemon.log());
    daemon.kill();
    // The budget continues at its last level, and the user's delay is known.
    let mut daemon = Daemon::start_at(Arc::clone(&place), &budget);
    assert!(daemon.says("delays begin at level "), "{}", daemon.log());
    assert!(!daemon.log().contains("delays begin at level 0"), "{}", daemon.log());
    assert!(raised(&daemon) >= 10);
    assert_eq!(daemon.read(DELAY), "3\n");
    daemon.kill();
    busy.end();
    // Without a budget no later step would lower the delays.
    let daemon = Daemon::start_at(place, &[]);
    assert!(eventually(Duration::from_secs(5), || raised(&daemon) == 0), "{}", daemon.log());
    assert_eq!(daemon.read(DELAY), "3\n");
}
