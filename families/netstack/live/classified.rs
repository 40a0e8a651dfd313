// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples on the running kernel: functions are compared with the files that define them, loads of one kind with their expected
//! category, and TCP with the share that must be classified.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use topstat_families::netstack::{Classifier, Options, Sampler, Verdict};
use topstat_live::{Case, Netns, alone, note, pace, two_cpus};
use topstat_model::stacks::{By, Category, Choice, Event, Profile, Side, Table, View, percent};

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Cpu: functions_have_the_category_of_their_file, Root; EveryKernel, Gate),
        alone!(Cpu: samples_of_tcp_are_classified, Root, Netns; EveryKernel, Gate),
        alone!(Cpu: copying_comes_out_as_data_copy, Root; EveryKernel),
        alone!(Cpu: system_calls_come_out_as_etc, Root; EveryKernel),
        alone!(Cpu: pages_come_out_as_mm, Root; EveryKernel),
        alone!(Cpu: contention_comes_out_as_lock, Root, TwoCpus, RealTime),
        alone!(Cpu: cache_misses_are_counted_or_unavailable, Root; EveryKernel),
        alone!(Cpu: no_sample_is_forgotten, Root, FullSpeed),
    ]
}

/// Functions, files and categories: see scripts/netstack-truth.
const TRUTH: &str = include_str!("../truth.tsv");
/// A high rate gives many samples in a short time; it is not in step with the timer of 250 Hz.
const HZ: u32 = 997;
/// The least number of samples for a share.
const ENOUGH: u64 = 300;
/// How long to sample at most.
const PATIENCE: Duration = Duration::from_secs(20);

fn functions_have_the_category_of_their_file() {
    let classifier = Classifier::open(None).expect("the kernel's symbols");
    let (mut there, mut right, mut wrong) = (0, 0, Vec::new());
    for line in TRUTH.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split('\t').collect();
        let [name, file, category] = words[..] else { panic!("{line}") };
        if !classifier.has(name) {
            continue;
        }
        there += 1;
        let told = classifier.symbol(name, None);
        if told
            .as_ref()
            .is_some_and(|(verdict, _)| Some(*verdict) == Category::of_name(category).map(Verdict::Category))
        {
            right += 1;
        } else {
            wrong.push(format!("{name} of {file}: {:?}", told.map(|(_, why)| why.text())));
        }
    }
    note(format!("{right} of {there} functions have the category of their file"));
    // Small kernels have fewer functions than the kernel that the set was made from.
    assert!(there >= 200, "only {there} of the functions are in this kernel");
    assert!(right * 100 >= there * 95, "{right} of {there}: {wrong:#?}");
}

/// Samples while a load runs on threads of this process, until there are enough samples of this process in the kernel.
fn sampled(threads: usize, load: impl Fn(usize, &AtomicBool) + Sync) -> Profile {
    let stop = AtomicBool::new(false);
    let own = Choice { pids: vec![std::process::id()], ..Choice::default() };
    std::thread::scope(|scope| {
        for number in 0..threads {
            let (stop, load) = (&stop, &load);
            scope.spawn(move || load(number, stop));
        }
        let mut sampler = Sampler::open(&Options { hz: HZ, ..Options::default() }).expect("a sampler");
        let begun = Instant::now();
        let mut profile: Option<Profile> = None;
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let next = sampler.read().expect("samples");
            assert_eq!(next.besides.lost, 0, "samples were lost");
            match &mut profile {
                Some(profile) => profile.append(next),
                None => profile = Some(next),
            }
            let profile = profile.as_ref().expect("just read");
            if Table::of(profile, &own).chosen >= ENOUGH || begun.elapsed() > pace::patience(PATIENCE) {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        profile.expect("samples")
    })
}

/// The share of each category in this process's samples, in percent.
fn shares(profile: &Profile) -> Vec<(String, f64)> {
    let table = Table::of(profile, &Choice { pids: vec![std::process::id()], ..Choice::default() });
    assert!(table.chosen >= ENOUGH / 4, "only {} samples of this process", table.chosen);
    table.rows.iter().map(|row| (row.key[0].clone(), percent(row.samples, table.chosen))).collect()
}

/// Asserts that this category has the largest share of a load.
fn comes_out_as(category: Category, profile: &Profile) {
    let shares = shares(profile);
    let text: Vec<String> = shares.iter().map(|(name, share)| format!("{name} {share:.0}%")).collect();
    note(text.join(", "));
    let own = Choice { pids: vec![std::process::id()], by: By::Symbols, ..Choice::default() };
    let symbols: Vec<String> =
        Table::of(profile, &own).rows.iter().take(12).map(|row| format!("{:?} {}", row.key, row.samples)).collect();
    assert_eq!(shares[0].0, category.name(), "{text:?} of {symbols:#?}");
}

fn running(stop: &AtomicBool) -> bool {
    !stop.load(Ordering::Relaxed)
}

/// Reads a file in memory that no cache can hold: copying a page takes longer than finding it.
fn copying_comes_out_as_data_copy() {
    const BYTES: usize = 64 << 20;
    let file: File = rustix::fs::memfd_create("copied", rustix::fs::MemfdFlags::CLOEXEC).expect("memory").into();
    file.write_all_at(&vec![1; BYTES], 0).expect("write it");
    let load = |_, stop: &AtomicBool| {
        let mut buffer = vec![1; BYTES];
        while running(stop) {
            file.read_exact_at(&mut buffer, 0).expect("read it");
        }
    };
    comes_out_as(Category::DataCopy, &sampled(1, load));
}

fn system_calls_come_out_as_etc() {
    let load = |_, stop: &AtomicBool| {
        while running(stop) {
            for _ in 0..1000 {
                // SAFETY: the call takes no arguments. The C library could answer without a system call.
                unsafe { libc::syscall(libc::SYS_getppid) };
            }
        }
    };
    comes_out_as(Category::Etc, &sampled(1, load));
}

fn pages_come_out_as_mm() {
    const BYTES: usize = 4 << 20;
    let load = |_, stop: &AtomicBool| {
        while running(stop) {
            // Without page faults: where a clock of the host takes the samples, the entry of a fault has as many samples as
            // memory management.
            drop(memmap2::MmapOptions::new().len(BYTES).populate().map_anon().expect("memory"));
        }
    };
    comes_out_as(Category::Mm, &sampled(1, load));
}

/// Two threads write to one file, and only one of them may do so at a time: waiting has a larger share than with one thread,
/// which never waits. The threads are real-time threads; otherwise they would rarely run at once on a busy host. The sampling
/// thread has a higher priority, so that it can end them.
fn contention_comes_out_as_lock() {
    let file: File = rustix::fs::memfd_create("contended", rustix::fs::MemfdFlags::CLOEXEC).expect("memory").into();
    let (one, other) = two_cpus().expect("two CPUs");
    let load = |number: usize, stop: &AtomicBool| {
        run_on([one, other][number]);
        go_before_others(1);
        while running(stop) {
            file.write_all_at(&[1], 0).expect("write it");
        }
    };
    let share = |threads| {
        let shares = shares(&sampled(threads, load));
        shares.into_iter().find(|(name, _)| name == Category::Lock.name()).map_or(0.0, |(_, share)| share)
    };
    let (alone, together) = std::thread::scope(|scope| {
        let shares = scope.spawn(|| {
            go_before_others(2);
            (share(1), share(2))
        });
        shares.join().expect("both shares")
    });
    note(format!("lock {alone:.0}% alone, {together:.0}% together"));
    assert!(together > 2.0 * alone && together > 10.0, "{alone} alone, {together} together");
}

/// Makes the calling thread run on this CPU only.
fn run_on(cpu: usize) {
    let mut only = rustix::thread::CpuSet::new();
    only.set(cpu);
    rustix::thread::sched_setaffinity(None, &only).expect("a CPU of this process");
}

/// Makes the calling thread, and threads that it starts, run before all threads with a lower priority or without real time.
fn go_before_others(priority: i32) {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the call reads the structure, which lives through the call, and concerns the calling thread only.
    assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) }, 0, "SCHED_FIFO");
}

/// A connection over loopback, in a separate namespace.
fn samples_of_tcp_are_classified() {
    let ns = Netns::new("classified");
    let profile = ns.inside(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("its address");
        sampled(2, |number, stop| {
            let mut buffer = vec![0; 1 << 16];
            // The threads end each other: the sender stops, and the receiver finds the end.
            if number == 0 {
                let mut to = TcpStream::connect(address).expect("connect");
                while running(stop) && to.write_all(&buffer).is_ok() {}
            } else {
                let (mut from, _) = listener.accept().expect("accept");
                while from.read(&mut buffer).is_ok_and(|read| read > 0) {}
            }
        })
    });
    let own = |view, by| Choice { pids: vec![std::process::id()], view, by, ..Choice::default() };
    for view in View::ALL {
        let table = Table::of(&profile, &own(view, By::Categories));
        let (all, named) =
            (percent(table.chosen - table.unclassified(), table.chosen), percent(table.by_name, table.chosen));
        let shares: Vec<String> = table.rows.iter().map(|row| format!("{} {}", row.key[0], row.samples)).collect();
        note(format!("{}: {all:.1}% classified, {named:.1}% by name: {}", view.name(), shares.join(", ")));
        assert!(all >= 97.0 && named >= 90.0, "{:?}", table.unknown);
    }
    let sides = Table::of(&profile, &own(View::default(), By::Sides));
    for side in [Side::Send, Side::Receive, Side::SoftirqReceive] {
        assert!(sides.rows.iter().any(|row| row.key[0] == side.name()), "nothing of {}: {:?}", side.name(), sides.rows);
    }
    // All samples of the process have its cgroup, and are on CPUs that were sampled.
    for sample in profile.samples.iter().filter(|sample| sample.pid == std::process::id()) {
        assert!(profile.cpus.contains(&sample.cpu) && sample.cgroup.is_some(), "{sample:?}");
    }
}

/// If there is a counter of cache misses, samples are taken by it; else the error says so, and no number is given.
fn cache_misses_are_counted_or_unavailable() {
    let options = Options { event: Some(Event::CacheMisses), hz: HZ, ..Options::default() };
    let mut sampler = match Sampler::open(&options) {
        Ok(sampler) => sampler,
        Err(e) => {
            let text = e.to_string();
            note(text.clone());
            assert!(text.contains("cache-misses") && text.contains("unavailable"), "{text}");
            return;
        }
    };
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        std::hint::black_box(vec![1_u8; 1 << 24]);
    }
    let profile = sampler.read().expect("samples");
    note(format!("{} samples of cache misses", profile.total()));
    assert!(profile.event == Event::CacheMisses && profile.total() > 0, "{}", profile.total());
}

/// The samples taken and missed are the samples due, between the shortest and the longest time that the timer can have run.
fn no_sample_is_forgotten() {
    let before_open = Instant::now();
    let mut sampler = Sampler::open(&Options { hz: HZ, ..Options::default() }).expect("a sampler");
    let after_open = Instant::now();
    let (mut taken, mut missed, mut cpus, mut shortest) = (0, 0, 0, Duration::ZERO);
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(500));
        shortest = after_open.elapsed();
        let profile = sampler.read().expect("samples");
        taken += profile.total();
        missed += profile.besides.missed;
        cpus = profile.cpus.len();
    }
    let longest = before_open.elapsed();
    if sampler.event() != Event::CpuClock {
        topstat_live::harness::skip("how often a counter of cycles samples goes up and down");
    }
    let [least, most] = [shortest, longest].map(|time| f64::from(HZ) * cpus as f64 * time.as_secs_f64());
    note(format!("{taken} taken and {missed} missed of {least:.0} to {most:.0}"));
    // The tolerance: one sample more or less on each CPU, depending on when its timer began within a period, and the error of a
    // clock.
    let (sum, slack) = ((taken + missed) as f64, 2.0 * cpus as f64 + most * 0.001);
    assert!(sum >= least - slack && sum <= most + slack, "{sum} of {least} to {most}");
}
