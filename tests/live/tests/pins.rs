// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pinned state outlives the process that pinned it, and the builds of its programs: no push is lost or counted twice.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle, Program};
use topstat_kernel::pinned::{self, Adopted};
use topstat_live::attached::{self, Ids};
use topstat_live::harness::disturbed;
use topstat_live::nest::{self, inet};
use topstat_live::netns::{self, Bridged};
use topstat_live::tally::{TABLES, Tally};
use topstat_live::watch::everything;
use topstat_live::{Case, Nest, Role, Transport, Witness, alone, case, drops, eventually, limits, note, truth};
use topstat_load::{Addresses, Config, Limits, Load, Mode, Plan};

pub fn cases() -> Vec<Case> {
    vec![
        case!(found_replaced_and_removed, Root; EveryKernel, Distribution, Gate),
        case!(killed_while_it_loads, Root),
        case!(killed_at_random_moments, Root; Slow),
        case!(replaced_under_load, Root),
        alone!(Totals: replaced_thousands_of_times, Root),
        case!(replaced_while_segments_are_sent_again, Root, Netns; EveryKernel),
    ]
}

/// A random number of a sequence that the seed determines.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let seed =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_nanos() as u64;
        note(format!("random moments of seed {seed}"));
        Self(seed | 1)
    }

    fn below(&mut self, limit: Duration) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        limit.mul_f64((self.0 >> 11) as f64 / (1u64 << 53) as f64)
    }
}

/// Busy-waits for a state that is shorter than the scheduler's pauses.
fn spin(patience: Duration, ask: impl Fn() -> bool) {
    let begun = Instant::now();
    while !ask() && begun.elapsed() < patience {
        std::hint::spin_loop();
    }
}

/// Pinned state is found, its programs are replaced by another build's, and it is gone after its removal.
fn found_replaced_and_removed() {
    let nest = Nest::new("basics");
    assert!(pinned::open(&nest.pins, inet()).unwrap().is_none());
    let mut tally = Tally::new();
    let mut seen = Vec::new();
    for (build, expected) in
        [("", Adopted::Loaded), ("", Adopted::Found), ("other", Adopted::Upgraded), ("other", Adopted::Found)]
    {
        let (state, adopted) = nest.adopt_as(build, &TABLES, &everything());
        assert_eq!(adopted, expected);
        seen.push(ids(&state.programs()));
        drop(state);
        tally.during(|| std::thread::sleep(Duration::from_millis(100)));
        tally.check(&mut nest.watch(), &format!("{adopted:?}"));
        let [status] = &pinned::status(&nest.pins).unwrap()[..] else { panic!("one family is pinned") };
        assert_eq!((status.family.as_str(), status.abi_is_own, status.top), ("inet", Some(true), Some(1024)));
        assert!(status.build.is_some() && status.since.is_some(), "{status:?}");
        note(format!("{adopted:?}: {status:?}"));
    }
    assert!(seen[0] == seen[1] && seen[2] == seen[3], "{seen:?}");
    // The gates stay; all other programs are new.
    let expected = (nest::programs().len(), nest::gates());
    assert_eq!((seen[0].len(), seen[0].intersection(&seen[2]).count()), expected, "{seen:?}");
    let files = nest.files();
    let removed: BTreeSet<_> = pinned::remove(&nest.pins).unwrap().into_iter().collect();
    assert!(files.iter().all(|file| removed.contains(file)) && removed.contains(&nest.dir), "{removed:?}");
    let ids = Ids { programs: seen.concat_ids(), ..Ids::default() };
    assert!(eventually(Duration::from_secs(5), || ids.left().is_empty()), "left: {:?}", ids.left());
    assert!(pinned::open(&nest.pins, inet()).unwrap().is_none() && pinned::remove(&nest.pins).unwrap().is_empty());
}

fn ids(programs: &[topstat_kernel::Program]) -> BTreeSet<u32> {
    programs.iter().map(|p| p.id).collect()
}

trait ConcatIds {
    fn concat_ids(&self) -> BTreeSet<u32>;
}

impl ConcatIds for Vec<BTreeSet<u32>> {
    fn concat_ids(&self) -> BTreeSet<u32> {
        self.iter().flatten().copied().collect()
    }
}

/// The process that loads is killed repeatedly while it loads: the next one does not take the rest for a state, and removes
/// it.
fn killed_while_it_loads() {
    const KILLS: u32 = 6;
    /// The maximum number of kills until one hits the pinning: beside other tests all kills may come too late.
    const MOST_KILLS: u32 = 24;
    let nest = Nest::new("loading");
    let mut random = Random::new();
    let begun = Instant::now();
    drop(nest.adopt(&TABLES, &everything()));
    let takes = begun.elapsed();
    pinned::remove(&nest.pins).unwrap();
    let (mut partial, mut whole) = (0, 0);
    let mut kills = 0;
    while kills < KILLS || (partial == 0 && kills < MOST_KILLS) {
        kills += 1;
        let role = Role::start("adopter", &[nest.dir.to_str().unwrap(), ""]);
        // Most kills come after pinning has begun.
        if kills % 3 != 1 {
            spin(takes * 20, || nest.partial().join("maps/banks").exists());
            std::thread::sleep(random.below(Duration::from_millis(2)));
        } else {
            std::thread::sleep(random.below(takes * 3 / 2));
        }
        role.kill();
        match pinned::open(&nest.pins, inet()).unwrap() {
            Some(state) => {
                assert_eq!(state.programs().len(), nest::programs().len());
                pinned::remove(&nest.pins).unwrap();
                whole += 1;
            }
            None => partial += u32::from(nest.partial().exists()),
        }
    }
    note(format!("killed {kills} times: {partial} left half a state, {whole} a whole one"));
    assert!(partial > 0, "nobody was killed while pinning, so this shows nothing");
    let (_, adopted) = nest.adopt(&TABLES, &everything());
    assert_eq!(adopted, Adopted::Loaded);
    let left: Vec<_> = nest.files().into_iter().filter(|f| f.to_string_lossy().contains("partial")).collect();
    assert!(left.is_empty(), "{left:?}");
    let mut tally = Tally::new();
    tally.during(|| std::thread::sleep(Duration::from_millis(100)));
    tally.check(&mut nest.watch(), "after all");
}

/// 50 times a process adopts the pinned state and is killed while datagrams are sent: 30 times while it reads, 10 times while
/// it loads other programs, 10 times at about the time when it replaces them (pins_faults makes the states that this leaves
/// on purpose). After each kill the counts equal the generator's.
fn killed_at_random_moments() {
    const KILLS: u32 = 50;
    let nest = Nest::new("killed");
    let mut random = Random::new();
    drop(nest.adopt(&TABLES, &everything()));
    let begun = Instant::now();
    drop(nest.adopt_as("other", &TABLES, &everything()));
    let takes = begun.elapsed();
    let mut watch = nest.watch();
    let mut tally = Tally::new();
    let mut amid = 0;
    for round in 0..KILLS {
        // For rounds that replace programs, a build that no process has pinned yet.
        let build = if round % 5 < 3 { "other".to_owned() } else { round.to_string() };
        tally.during(|| {
            let was_whole = nest.family().join("build").is_symlink();
            let mut role = Role::start("adopter", &[nest.dir.to_str().unwrap(), &build]);
            match round % 5 {
                0..3 => {
                    role.expect("");
                    std::thread::sleep(random.below(Duration::from_millis(100)));
                }
                3 => std::thread::sleep(random.below(takes * 3 / 2)),
                _ => {
                    // While programs are replaced, the name of the build is absent.
                    let replacing = || !nest.family().join("build").is_symlink();
                    if was_whole {
                        spin(takes * 5, replacing);
                    }
                    spin(random.below(Duration::from_micros(300)), || false);
                }
            }
            role.kill();
        });
        amid += u32::from(!nest.family().join("build").is_symlink());
        tally.check(&mut watch, &format!("kill {round}"));
    }
    let (state, adopted) = nest.adopt(&TABLES, &everything());
    assert_eq!((adopted, state.programs().len()), (Adopted::Upgraded, nest::programs().len()));
    tally.during(|| std::thread::sleep(Duration::from_millis(50)));
    tally.check(&mut nest.watch(), "at the end");
    let new: Vec<_> = nest.files().into_iter().filter(|f| f.to_string_lossy().ends_with("-new")).collect();
    assert!(new.is_empty(), "{new:?}");
    note(format!("{KILLS} kills, {amid} of them amid replacing: all of {} packets", tally.packets()));
}

/// 10 times another build's programs replace the programs while datagrams are sent; no resource grows.
fn replaced_under_load() {
    const UPGRADES: u32 = 10;
    let nest = Nest::new("replaced");
    // The gate of the hook that comes and goes is loaded anew while it is detached.
    let ids = |programs: Vec<topstat_kernel::Program>| {
        let stays = |p: &&topstat_kernel::Program| p.name.strip_suffix("_enter") != Some(nest::COMES_AND_GOES);
        programs.iter().filter(stays).map(|p| p.id).collect::<BTreeSet<_>>()
    };
    let (state, _) = nest.adopt(&TABLES, &everything());
    let mut seen = vec![ids(state.programs())];
    drop(state);
    let (mut watch, mut tally) = (nest.watch(), Tally::new());
    tally.check(&mut watch, "before");
    let (files, descriptors) = (nest.files(), open_files());
    for round in 0..UPGRADES {
        let build = ["other", ""][round as usize % 2];
        let (state, adopted) = tally.during(|| nest.adopt_as(build, &TABLES, &everything()));
        assert_eq!(adopted, Adopted::Upgraded);
        seen.push(ids(state.programs()));
        drop(state);
        tally.check(&mut watch, &format!("upgrade {round}"));
        assert_eq!((nest.files(), open_files()), (files.clone(), descriptors), "upgrade {round}");
    }
    let kept = seen.last().unwrap().clone();
    let old = Ids { programs: seen.concat_ids().difference(&kept).copied().collect(), ..Ids::default() };
    assert_eq!(old.programs.len(), UPGRADES as usize * nest::hooks());
    assert!(eventually(Duration::from_secs(5), || old.left().is_empty()), "left: {:?}", old.left());
    note(format!("{UPGRADES} upgrades: all of {} packets", tally.packets()));
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("its descriptors").count()
}

/// The attached programs, kept so that they can be attached again.
struct Build(Vec<OwnedFd>);

/// The programs behind gates.
fn gated() -> Vec<&'static str> {
    nest::programs().iter().filter_map(|name| name.strip_suffix("_enter")).collect()
}

/// The other programs, without the programs of disabled samples, which are not attached.
fn ungated(family: &Path) -> Vec<&'static str> {
    let gated = gated();
    let names = nest::programs().iter().map(String::as_str);
    let is_attached = |name: &&str| family.join("links").join(name).exists();
    names.filter(|name| !gated.contains(&name.trim_end_matches("_enter"))).filter(is_attached).collect()
}

impl Build {
    fn of(family: &Path) -> Self {
        let open = |name: &str| Program::fd_from_pinned_path(family.join("programs").join(name)).expect("a program");
        Self(ungated(family).into_iter().chain(gated()).map(open).collect())
    }

    /// Attaches the programs in place of the current ones, in topstat's way.
    fn attach(&self, links: &[Link], gates: &[MapHandle]) {
        let (cgroup, gated) = self.0.split_at(links.len());
        for (link, program) in links.iter().zip(cgroup) {
            let (link, program) = (link.as_fd().as_raw_fd(), program.as_raw_fd());
            // SAFETY: descriptors of a link and of a program; no options.
            let done = unsafe { libbpf_sys::bpf_link_update(link, program, std::ptr::null()) };
            assert_eq!(done, 0, "replace a program");
        }
        for (gate, program) in gates.iter().zip(gated) {
            gate.update(&0_u32.to_ne_bytes(), &program.as_raw_fd().to_ne_bytes(), MapFlags::ANY).expect("replace");
        }
    }
}

/// Attaches two builds in turn at full speed for the given time. Returns the number of replacements.
fn take_turns(nest: &Nest, time: Duration) -> u32 {
    let family = nest.family();
    let one = Build::of(&family);
    assert_eq!(nest.adopt_as("other", &TABLES, &everything()).1, Adopted::Upgraded);
    let two = Build::of(&family);
    let link = |name: &str| Link::open(family.join("links").join(name)).expect("a link");
    let gate = |name: &str| MapHandle::from_pinned_path(family.join("maps").join(format!("{name}_gate"))).unwrap();
    let links: Vec<_> = ungated(&family).into_iter().map(link).collect();
    let gates: Vec<_> = gated().into_iter().map(gate).collect();
    let (begun, mut turns) = (Instant::now(), 0);
    while begun.elapsed() < time {
        one.attach(&links, &gates);
        two.attach(&links, &gates);
        turns += 2;
        // The load needs CPU time, too.
        std::thread::sleep(Duration::from_micros(500));
    }
    turns
}

/// A replacement of a program is one atomic step: in thousands of replacements nothing is lost.
fn replaced_thousands_of_times() {
    let nest = Nest::new("turns");
    drop(nest.adopt(&TABLES, &everything()));
    let witness = Witness::new(Transport::Udp);
    let (mut watch, mut tally) = (nest.watch(), Tally::new());
    let turns = tally.during(|| take_turns(&nest, Duration::from_secs(2)));
    assert!(turns > 10, "only {turns} turns");
    tally.check_alone(&mut watch, &witness, "turns");
    note(format!("{turns} turns: all of {} packets", tally.packets()));
}

/// As [`replaced_thousands_of_times`], for a count behind a gate, while one packet in twenty is lost and its segment
/// retransmitted. The kernel skips an event that comes while the same program runs on that CPU, and counts the skipped event;
/// the socket's next event makes up for it. So for each skipped event the last packets of one socket may be missing, and no
/// more.
fn replaced_while_segments_are_sent_again() {
    const RETRANS: &str = "tcp_v4/conns_retrans";
    const CONNECTIONS: usize = 40;
    const UNTRACED: u64 = 2;
    let net = Bridged::new();
    net.bridge.inside(|| drops::drop_one_in(netns::PORT_LEFT, 20).expect("attach the program that drops"));
    let nest = Nest::new("retrans");
    drop(nest.adopt(&[RETRANS], &everything()));
    let config = Config {
        connections: CONNECTIONS,
        mode: Mode::Bulk,
        request_size: 20_000,
        sources: Addresses::List(vec![netns::LEFT.into()]),
        destinations: Addresses::List(vec![netns::RIGHT.into()]),
        allow_addresses: vec![netns::LEFT.into(), netns::RIGHT.into()],
        client_netns: Some(net.left.path()),
        server_netns: Some(net.right.path()),
        ..Config::default()
    };
    let mut load = Load::open(config).unwrap();
    let mut watch = nest.watch();
    let left_out = attached::runs_missed("inet_retransmit");
    let limits = Limits { time: Duration::from_secs(6), ..limits() };
    let turns = std::thread::scope(|scope| {
        let running = scope.spawn(|| load.run(&Plan::endless(CONNECTIONS), &limits).unwrap());
        let turns = take_turns(&nest, Duration::from_secs(4));
        running.join().unwrap();
        turns
    });
    let truth = truth::settled(&load);
    let view = watch.snapshot(RETRANS);
    let left_out = attached::runs_missed("inet_retransmit") - left_out;
    let (mut again, mut behind) = (0, 0);
    for (key, truth) in &truth {
        let counted = view.find(*key).map_or((0, 0), |s| (s.rx, s.tx));
        assert!(counted.0 == 0 && counted.1 <= truth.total_retrans, "{key:?}: {counted:?}, {truth:?}");
        behind += u64::from(counted.1 < truth.total_retrans);
        again += truth.total_retrans;
    }
    if (left_out + 1..=left_out + UNTRACED).contains(&behind) {
        disturbed(format!("{behind} sockets lack segments, and the kernel says that it left out {left_out} events"));
    }
    assert!(
        behind <= left_out,
        "{behind} sockets lack segments, and {left_out} events were left out: {}",
        view.summary()
    );
    note(format!(
        "{turns} turns, {again} segments sent again: {behind} of {} sockets lack their last ones, {left_out} events were \
         left out by the kernel",
        truth.len()
    ));
    assert!(turns > 10 && again > 100, "only {turns} turns and {again} segments sent again, so this shows nothing");
}
