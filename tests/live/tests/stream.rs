// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The path of events from eBPF programs to their consumer: produced = delivered + dropped, exactly, with slow and killed
//! consumers. The truth comes from the source of the events: a thread that writes numbered buffers to /dev/null.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::{MapHandle, RingBufferBuilder};
use memmap2::MmapMut;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use topstat_consumer::abi::{STREAM_CUT, STREAM_FAULT, STREAM_HEAD_BYTES, stream_record};
use topstat_consumer::law::{LONGEST_NS, Next, Wake};
use topstat_consumer::writes::Writes;
use topstat_consumer::{Account, Consumer, Error, Maps, Options, Record, Woken};
use topstat_live::attached::runs_missed;
use topstat_live::role::{Role, say};
use topstat_live::{Case, Scratch, case, note, pace};

pub fn cases() -> Vec<Case> {
    vec![
        case!(with_each_way_of_waking_what_is_lost_is_counted, Root; EveryKernel, Gate),
        case!(what_is_cut_is_counted, Root; EveryKernel),
        case!(a_payload_that_is_not_in_memory_is_said_to_be, Root; EveryKernel, Gate),
        case!(the_first_event_wakes_a_consumer_that_rests, Root; EveryKernel),
        case!(a_killed_consumer_loses_none_uncounted, Root; EveryKernel, ComeAndGo),
        case!(a_second_reader_is_noticed, Root),
        case!(settings_that_cannot_be_are_named, Root),
    ]
}

/// Room for about 60 records of [`BYTES`]: the ring fills at once.
const RING_BYTES: u32 = 1 << 16;
const BYTES: usize = 1000;
const HEAD: usize = size_of::<stream_record>();

/// A thread that writes, on one CPU, so that the number of an event is the number of the write.
struct Writer {
    null: File,
    next: u64,
}

impl Writer {
    /// The calling thread, watched by this source, and pinned to its current CPU.
    fn here(source: &Writes) -> Self {
        let allowed = sched_getaffinity(None).expect("the CPUs");
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).expect("a CPU"));
        sched_setaffinity(None, &one).expect("stay on a CPU");
        let null = OpenOptions::new().write(true).open("/dev/null").expect("/dev/null");
        source.watch(gettid().as_raw_nonzero().get() as u64, null.as_raw_fd() as u64).expect("watch it");
        Self { null, next: 0 }
    }

    fn write(&mut self, events: u64) {
        let mut buffer = vec![0; BYTES];
        for number in self.next..self.next + events {
            buffer[..8].copy_from_slice(&number.to_ne_bytes());
            assert_eq!(self.null.write(&buffer).expect("write"), BYTES);
        }
        self.next += events;
    }
}

/// Each write is an event, unless the kernel has skipped it.
fn check_produced(account: &Account, written: u64) {
    let skipped = runs_missed("writes_enter");
    let all = written.saturating_sub(skipped)..=written;
    assert!(all.contains(&account.produced), "of {written} writes the kernel has skipped {skipped}: {account:?}");
}

/// Checks that the record is a write, by its number, and returns the number.
fn check(record: &Record<'_>) -> u64 {
    let (head, payload) = (record.head(), record.payload(HEAD));
    let number = u64::from_ne_bytes(payload[..8].try_into().expect("eight bytes"));
    if head.seq != number {
        let skipped = runs_missed("writes_enter");
        assert!(
            (number.saturating_sub(skipped)..number).contains(&head.seq),
            "event {} is of write {number}, and the kernel has skipped {skipped}",
            head.seq
        );
    }
    assert_eq!(head.whole as usize, BYTES);
    let cut = u32::from(head.flags) & STREAM_CUT != 0;
    let bytes = if cut { STREAM_HEAD_BYTES as usize } else { BYTES };
    assert_eq!((payload.len(), usize::from(head.lacking)), (bytes, BYTES - bytes));
    assert!(payload[8..].iter().all(|byte| *byte == 0), "what is in memory behind the payload is not shown");
    number
}

/// The ways of waking a consumer: all that a control law can ask for, and topstat's law, which uses them in turn.
const WAYS: [(&str, Option<Wake>); 4] = [
    ("by time alone", Some(Wake::Nobody)),
    ("at each event", Some(Wake::Each)),
    ("at a fill", Some(Wake::At(RING_BYTES as u64 / 8))),
    ("adaptive", None),
];

/// A consumer that is woken up in this way of [`WAYS`].
fn open(maps: &Maps, options: &Options, way: Option<Wake>) -> Consumer {
    let consumer = match way {
        Some(wake) => Consumer::with_law(maps, options, move |_| Next::Sleep { ns: LONGEST_NS, wake }),
        None => Consumer::open(maps, options),
    };
    consumer.expect("a consumer")
}

/// Drains all records.
fn drain(consumer: &mut Consumer, mut each: impl FnMut(&Record<'_>)) {
    while consumer.drain(usize::MAX, &mut each).expect("drain") > 0 {}
}

fn with_each_way_of_waking_what_is_lost_is_counted() {
    let source = Writes::load(RING_BYTES, BYTES as u32).expect("the source");
    let maps = source.maps().expect("its maps");
    let turn = pace::work(20_000, 500);
    let mut delivered = 0;
    let mut written = 0;
    for (i, (name, way)) in WAYS.into_iter().enumerate() {
        // Without cuts more records are dropped.
        let options = Options { cut_percent: (i % 2 == 0).then_some(60), ..Options::default() };
        let mut consumer = open(&maps, &options, way);
        assert_eq!(consumer.account().delivered, delivered, "it knows what the one before it has delivered");
        let before = consumer.account();
        let done = AtomicU64::new(0);
        let (mut seen, mut last) = (0, None);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut writer = Writer { next: written, ..Writer::here(&source) };
                // First without a reader, then with one.
                writer.write(turn);
                done.store(1, Ordering::Release);
                writer.write(turn);
                done.store(2, Ordering::Release);
            });
            while done.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            let mut each = |record: &Record<'_>| {
                let number = check(record);
                assert!(last.is_none_or(|last| last < number), "{number} comes after {last:?}");
                last = Some(number);
                seen += 1;
            };
            while done.load(Ordering::Acquire) < 2 {
                drain(&mut consumer, &mut each);
                let account = consumer.account();
                assert!(account.produced >= account.delivered + account.dropped, "{account:?}");
                consumer.wait().expect("sleep");
            }
            drain(&mut consumer, &mut each);
            writer.join().expect("the writer");
        });
        let account = consumer.account();
        written += 2 * turn;
        delivered += seen;
        check_produced(&account, written);
        assert_eq!(account.delivered, delivered, "{name}");
        assert_eq!(account.under_way(), 0, "{name}: {account:?}");
        assert!(account.dropped > before.dropped, "{name}: the ring was not full: {account:?}");
        let by_cpu = consumer.counts().iter().map(|count| (count.produced, count.dropped)).collect::<Vec<_>>();
        assert!(by_cpu.contains(&(account.produced, account.dropped)), "one CPU has made all: {by_cpu:?}");
        note(format!("{name}: of {} events {} were dropped", 2 * turn, account.dropped - before.dropped));
    }
}

fn what_is_cut_is_counted() {
    let source = Writes::load(RING_BYTES, BYTES as u32).expect("the source");
    let mut consumer = Consumer::open(&source.maps().expect("its maps"), &Options::default()).expect("a consumer");
    // More records than the ring holds, even if they are cut.
    Writer::here(&source).write(1000);
    let (mut whole, mut cut, mut unread) = (0, 0, consumer.unread());
    assert!(unread > u64::from(RING_BYTES) * 9 / 10, "{unread} bytes");
    drain(&mut consumer, |record| {
        check(record);
        match u32::from(record.head().flags) & STREAM_CUT {
            0 => whole += 1,
            _ => cut += 1,
        }
    });
    let account = consumer.account();
    check_produced(&account, 1000);
    let produced = account.produced;
    let expected = Account { produced, delivered: whole + cut, cut, dropped: produced - whole - cut };
    assert_eq!(account, expected);
    // 60% of the ring are whole records, of 1064 bytes; the rest are cut to 120.
    let fits = u64::from(RING_BYTES) * 60 / 100 / 1064;
    assert!((fits..=fits + 1).contains(&whole), "{whole} whole records, not {fits}");
    let fits = (u64::from(RING_BYTES) - whole * 1064) / 120;
    assert!((fits - 1..=fits).contains(&cut), "{cut} cut records, not {fits}");
    unread = consumer.unread();
    assert_eq!(unread, 0);
}

fn a_payload_that_is_not_in_memory_is_said_to_be() {
    let source = Writes::load(RING_BYTES, BYTES as u32).expect("the source");
    let mut consumer = Consumer::open(&source.maps().expect("its maps"), &Options::default()).expect("a consumer");
    // Memory that was never touched, also not by /dev/null.
    let untouched = MmapMut::map_anon(1 << 16).expect("memory");
    assert_eq!(Writer::here(&source).null.write(&untouched).expect("write"), untouched.len());
    let mut seen = 0;
    drain(&mut consumer, |record| {
        seen += 1;
        assert_eq!(u32::from(record.head().flags), STREAM_FAULT);
        assert_eq!(record.head().whole as usize, untouched.len());
        assert!(record.payload(HEAD).is_empty());
    });
    assert_eq!(consumer.account(), Account { produced: 1, delivered: seen, cut: 0, dropped: 0 });
    assert_eq!(seen, 1);
}

fn the_first_event_wakes_a_consumer_that_rests() {
    let source = Writes::load(RING_BYTES, BYTES as u32).expect("the source");
    let mut consumer = Consumer::open(&source.maps().expect("its maps"), &Options::default()).expect("a consumer");
    let asked = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = Writer::here(&source);
            while asked.load(Ordering::Acquire) < u64::MAX {
                if writer.next < asked.load(Ordering::Acquire) {
                    writer.write(1);
                }
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        });
        let mut woken = false;
        // An event may come while the consumer is awake for a moment, so the test repeats the attempt.
        for _ in 0..20 {
            // The consumer rests after a long time without events.
            while consumer.drain(usize::MAX, |_| ()).expect("drain") > 0 {}
            for _ in 0..3 {
                consumer.wait().expect("sleep");
            }
            asked.fetch_add(1, Ordering::Release);
            while consumer.unread() == 0 && !woken {
                woken = matches!(consumer.wait().expect("sleep"), Woken::Producer { .. });
            }
            if woken {
                break;
            }
        }
        asked.store(u64::MAX, Ordering::Release);
        assert!(woken, "no event has woken it");
    });
}

/// A test's BPF file system, unmounted on drop.
struct Pins(Scratch);

impl Pins {
    fn new() -> Self {
        let scratch = Scratch::new("stream-pins");
        mount("bpf", scratch.path(), "bpf", MountFlags::empty(), None).expect("mount a BPF file system");
        Self(scratch)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let _ = unmount(self.path(), UnmountFlags::DETACH);
    }
}

/// A file with a byte for each event: how often it was delivered.
fn marks(path: &Path) -> MmapMut {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("the marks");
    // SAFETY: other processes write to it, too, in single bytes, one process at a time.
    unsafe { MmapMut::map_mut(&file) }.expect("map the marks")
}

/// Plays a role, if it is the role of this file.
pub fn play(role: &str, arguments: &[String]) -> Option<ExitCode> {
    let argument = |i: usize| arguments.get(i).map(String::as_str).expect("an argument");
    (role == "stream-consumer").then(|| consumer(argument(0), argument(1), argument(2), argument(3)))
}

/// Consumes the pinned ring until it is killed. It stops inside the record with the number `amid`, counted from 1; with 0 it
/// goes on.
fn consumer(pins: &str, marked: &str, way: &str, amid: &str) -> ! {
    let amid: u64 = amid.parse().expect("a number");
    let mut marks = marks(Path::new(marked));
    let maps = Maps::pinned(Path::new(pins)).expect("the pinned maps");
    let (_, way) = WAYS[way.parse::<usize>().expect("a number")];
    let mut consumer = open(&maps, &Options::default(), way);
    say("ready");
    let mut seen = 0;
    loop {
        let each = |record: &Record<'_>| {
            marks[check(record) as usize] += 1;
            seen += 1;
            if seen == amid {
                say("amid");
                loop {
                    std::thread::park();
                }
            }
        };
        consumer.drain(usize::MAX, each).expect("drain");
        consumer.wait().expect("sleep");
    }
}

fn a_killed_consumer_loses_none_uncounted() {
    let kills = pace::work(40, 10);
    let turn = 1000;
    let (pins, scratch) = (Pins::new(), Scratch::new("stream"));
    let source = Writes::load(RING_BYTES, BYTES as u32).expect("the source");
    let mut maps = source.maps().expect("its maps");
    maps.pin(pins.path()).expect("pin them");
    let path = scratch.path().join("marks");
    File::create(&path).and_then(|file| file.set_len(kills * turn)).expect("marks");
    let (pins_path, path_text) = (pins.path().to_str().expect("a path"), path.to_str().expect("a path"));
    let mut writer = Writer::here(&source);
    let mut killed_amid = 0;
    for kill in 0..kills {
        let way = (kill as usize % WAYS.len()).to_string();
        // Every other consumer is killed inside a record; the others wherever they are after this number of writes.
        let amid = if kill % 2 == 0 { 1 + kill % 7 } else { 0 };
        let mut role = Role::start("stream-consumer", &[pins_path, path_text, &way, &amid.to_string()]);
        role.expect("ready");
        let at = if amid > 0 { turn } else { turn * (1 + kill % 5) / 6 };
        writer.write(at);
        if amid > 0 {
            role.expect("amid");
            killed_amid += 1;
        }
        role.kill();
        writer.write(turn - at);
    }
    let mut marks = marks(&path);
    let mut consumer = Consumer::open(&maps, &Options::default()).expect("the last consumer");
    assert!(consumer.waiting_at_first() > 0, "nothing was left by who was killed");
    let before = consumer.account();
    check_produced(&before, kills * turn);
    let mut seen = 0;
    drain(&mut consumer, |record| {
        marks[check(record) as usize] += 1;
        seen += 1;
    });
    let account = consumer.account();
    assert_eq!(account.delivered, before.delivered + seen);
    assert_eq!(account.under_way(), 0, "{account:?}");
    // The truth: the delivered events, by the marks that consumers made.
    let delivered = marks.iter().filter(|times| **times > 0).count() as u64;
    assert_eq!(delivered, account.delivered, "each that was delivered is counted once: {account:?}");
    let again: u64 = marks.iter().map(|times| u64::from(times.saturating_sub(1))).sum();
    // At most one for each kill: the record that was not freed yet.
    assert!((killed_amid..=kills).contains(&again), "{again} were delivered again, after {kills} kills");
    assert!(account.dropped > 0, "the ring was never full: {account:?}");
    note(format!("{kills} kills, {killed_amid} amid a record: {account:?}, {again} delivered again"));
}

fn a_second_reader_is_noticed() {
    let pins = Pins::new();
    let source = Writes::load(RING_BYTES, BYTES as u32).expect("the source");
    let mut maps = source.maps().expect("its maps");
    maps.pin(pins.path()).expect("pin them");
    Writer::here(&source).write(10);
    drop(Consumer::open(&maps, &Options::default()).expect("nobody has read yet"));
    let ring = MapHandle::from_pinned_path(pins.path().join("stream_ring")).expect("the ring buffer");
    let mut other = RingBufferBuilder::new();
    other.add(&ring, |_| 0).expect("another reader");
    other.build().and_then(|other| other.consume()).expect("it reads");
    let refused = Consumer::open(&maps, &Options::default()).err().expect("who reads else is noticed");
    assert!(matches!(refused, Error::Foreign { position } if position > 0), "{refused}");
    assert!(refused.to_string().contains("somebody else has read from it"), "{refused}");
}

fn settings_that_cannot_be_are_named() {
    let refused = Writes::load(100_000, 80).err().expect("no power of two");
    let text =
        "cannot use 100000 bytes as the size of the ring buffer: it has to be a power of two from 65536 to 536870912";
    assert_eq!(refused.to_string(), text);
    let source = Writes::load(RING_BYTES, 80).expect("the source");
    let maps = source.maps().expect("its maps");
    for (options, text) in [
        (
            Options { target_percent: 0, ..Options::default() },
            "cannot use 0% as the target fill: it has to be from 1% to 90%",
        ),
        (
            Options { target_percent: 90, margin_percent: 6, ..Options::default() },
            "cannot use 96% as the fill at which producers wake the consumer: it has to be at most 95%",
        ),
        (
            Options { cut_percent: Some(100), ..Options::default() },
            "cannot use 100% as the fill above which payloads are cut: it has to be from 1% to 99%",
        ),
        (
            Options { real_time: Some(100), ..Options::default() },
            "cannot use 100 as the real-time priority: it has to be from 1 to 99",
        ),
    ] {
        let refused = Consumer::open(&maps, &options).err().expect("it can't be");
        assert_eq!(refused.to_string(), text);
    }
}
