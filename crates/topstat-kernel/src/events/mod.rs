// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Delivers the events of chosen sources one by one, in one order.
//!
//! ```text
//!   programs ─▶ ring buffer ─▶ pump (a thread) ─▶ batches ─▶ order ─▶ decode ─▶ Event
//!   of a source, stream.h       consumer's law     bounded    EO1…EO3
//!                                                     ▲
//!   tables ─▶ snapshots ─▶ looks (a thread) ──────────┘
//!              X1…X3: which objects enter and leave the top
//! ```

mod decode;
mod looks;
mod order;
mod pump;
mod standing;
mod streaming;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use libbpf_rs::{Link, Object, OpenObject};
use rustix::event::{EventfdFlags, eventfd};
use topstat_consumer::consumer::now_ns;
use topstat_consumer::{Consumer, Maps, Watch};
use topstat_model::events::{Account, Event};

pub use topstat_consumer::Options as Consuming;

use crate::error::Error;
use crate::family::{Family, Kind};
use crate::report::{Check, explain, loads};
use crate::{Catalogue, bpf, cost};
use decode::Decoder;
pub use looks::{Top, kinds as kinds_of_top};
use order::Order;
use pump::{Batch, Shared, Told};
pub use streaming::{EventKind, Payload, Streaming};

/// Default size of the ring buffer of each source.
pub const RING_BYTES: u32 = 8 << 20;
/// The longest time that an event waits for events that may be earlier. A consumer sleeps 30 ms at most while events come, and
/// may then have to wait for its CPU.
pub const ORDER_BOUND: Duration = Duration::from_millis(200);
/// Bytes of waiting events above which the earliest ones wait no longer.
const MOST_WAITING_BYTES: usize = 64 << 20;

/// Options for taking events.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of the ring buffer of each source, a power of two.
    pub ring_bytes: u32,
    /// When the consumer looks into the ring buffer, and how far the buffer may be filled.
    pub consuming: Consuming,
    /// Which payloads are captured, where a source has payloads.
    pub capture: Capture,
}

/// Which payloads of system calls are captured. The kernel does not copy the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Processes whose payloads are captured; empty: all but the capturing process.
    pub pids: Vec<u32>,
    /// Only threads of this name, as far as the kernel keeps names.
    pub comm: Option<String>,
    /// Only the control group of this path in the hierarchy of version 2, and all groups below it.
    pub cgroup: Option<String>,
    /// Only system calls of these names; empty: all known ones.
    pub calls: Vec<String>,
    /// `true`: only payloads that are written or sent; `false`: only the others; `None`: both.
    pub out: Option<bool>,
    /// The most bytes that are captured of a payload.
    pub snaplen: u32,
}

/// Enough for the beginning of most protocols' messages.
const SNAPLEN: u32 = 256;

impl Default for Capture {
    fn default() -> Self {
        Self { pids: Vec::new(), comm: None, cgroup: None, calls: Vec::new(), out: None, snaplen: SNAPLEN }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self { ring_bytes: RING_BYTES, consuming: Consuming::default(), capture: Capture::default() }
    }
}

/// All sources, sorted by name.
pub fn sources(catalogue: &Catalogue) -> Vec<Arc<Streaming>> {
    let mut all: Vec<Arc<Streaming>> = catalogue.families().iter().filter_map(|family| family.kind_as()).collect();
    all.sort_by(|a, b| a.source.cmp(&b.source));
    all
}

impl Kind for Streaming {
    fn programs(&self) -> Vec<String> {
        let open = bpf::open(&self.source, self.object);
        let names =
            |object: OpenObject| object.progs().map(|program| program.name().to_string_lossy().into_owned()).collect();
        open.map(names).unwrap_or_default()
    }

    fn try_load(&self, _family: &Arc<Family>) -> Result<(), Error> {
        try_load(self)
    }

    fn check(&self, _family: &Arc<Family>) -> Vec<Check> {
        let source = &self.source;
        vec![loads(&format!("events {source}"), source, try_load(self), self.about.clone())]
    }
}

/// A capture of the events of some sources. It ends when this is dropped.
pub struct Events {
    sources: Vec<Source>,
    batches: Receiver<Batch>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    order: Order<Waiting>,
}

/// A record or an event that waits for others.
struct Waiting {
    source: usize,
    what: What,
}

enum What {
    Record(Box<[u8]>),
    Event(Box<Event>),
}

struct Source {
    name: String,
    from: Origin,
    /// Whether the source has sent its last batch.
    ended: bool,
}

/// Where the events of a source come from.
enum Origin {
    Ring(Box<Ring>),
    /// Looks at a table. `table` is its number among the tables of the looking thread.
    Looks {
        state: Arc<looks::State>,
        table: usize,
        delivered: u64,
        /// The time until which the thread has reported all events, once the batches that it has sent are taken.
        told_ns: u64,
    },
}

/// A ring buffer, and the programs that fill it.
struct Ring {
    loaded: Loaded,
    decoder: Decoder,
    watch: Watch,
    /// The ring position up to which records have arrived here.
    position: u64,
    /// A ring position and a time: once all records up to this position have arrived, all events until this time have (EO1).
    goal: Option<(u64, u64)>,
}

/// Programs that stay attached until their links are dropped.
struct Loaded {
    object: Object,
    links: Vec<Link>,
    /// The programs again, to read how often the kernel has skipped them.
    programs: Vec<OwnedFd>,
}

/// Loads and attaches a source, then drops it.
fn try_load(streaming: &Streaming) -> Result<(), Error> {
    Loaded::load(streaming, &Options::default()).map(drop)
}

fn stream(error: topstat_consumer::Error) -> Error {
    match error {
        topstat_consumer::Error::Kernel { what, why } => Error::Kernel { what, why },
        other => Error::Option(other.to_string()),
    }
}

impl Loaded {
    fn load(streaming: &Streaming, options: &Options) -> Result<Self, Error> {
        let name = streaming.source.as_str();
        let mut open = bpf::open(name, streaming.object)?;
        topstat_consumer::prepare(&mut open, options.ring_bytes).map_err(stream)?;
        bpf::set_constants(&mut open, ".rodata.constants", &(streaming.constants)(options)?)?;
        let object = bpf::load(name, open).map_err(|e| explain(e, name))?;
        let names: Vec<_> = object.progs().map(|program| program.name().to_string_lossy().into_owned()).collect();
        let mut links = Vec::new();
        for program in names.iter().filter(|program| streaming.adopt != Some(program.as_str())) {
            let attached = bpf::program(&object, program)?.attach();
            links.push(
                attached.map_err(|e| Error::Kernel { what: format!("attach {program}"), why: format!("{e:#}") })?,
            );
        }
        if let Some(iterator) = streaming.adopt {
            bpf::iterate(&object, iterator, &format!("look for what events of {name} are of"))?;
        }
        let programs = object.progs_mut().map(|program| program.as_fd().try_clone_to_owned());
        let programs = programs.collect::<io::Result<_>>();
        let failed =
            |e: io::Error| Error::Kernel { what: format!("open the programs of {name} again"), why: e.to_string() };
        let programs = programs.map_err(failed)?;
        Ok(Self { object, links, programs })
    }

    /// How often the kernel has skipped a program for an event because the program would have interrupted itself. Kernels before
    /// 5.12 don't report it.
    fn skipped(&self) -> u64 {
        self.programs.iter().filter_map(|fd| cost::program_info(fd, None).ok()).map(|info| info.recursion_misses).sum()
    }
}

impl Events {
    /// Loads and attaches these sources, and begins to take their events and the events of the top of these tables.
    ///
    /// # Errors
    /// A source is missing, an option is invalid, or the kernel refuses an operation.
    pub fn open(wanted: &[Arc<Streaming>], tops: Vec<Top>, options: &Options) -> Result<Self, Error> {
        let failed = |what: &str| {
            let what = what.to_owned();
            move |e: io::Error| Error::Kernel { what, why: e.to_string() }
        };
        let ready = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let ready = ready.map_err(|e| failed("make an event descriptor")(e.into()))?;
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            gone: AtomicBool::new(false),
            ready,
        });
        let (to, batches) = sync_channel(pump::BATCHES);
        let tables: usize = tops.iter().map(|top| top.tables.len()).sum();
        let order = Order::new(wanted.len() + tables, ORDER_BOUND.as_nanos() as u64, MOST_WAITING_BYTES);
        let (sources, threads) = (Vec::new(), Vec::new());
        // From here on, an error drops `events`, which ends the threads that were started.
        let mut events = Self { sources, batches, shared, threads, order };
        for (number, streaming) in wanted.iter().enumerate() {
            let loaded = Loaded::load(streaming, options)?;
            let maps = Maps::of(&loaded.object).map_err(stream)?;
            let (shared, to, consuming) = (Arc::clone(&events.shared), to.clone(), options.consuming.clone());
            let decoder = Decoder::new(streaming);
            let ring = Ring { decoder, watch: maps.watch().map_err(stream)?, loaded, position: 0, goal: None };
            let from = Origin::Ring(Box::new(ring));
            events.sources.push(Source { name: streaming.source.clone(), from, ended: false });
            // The thread opens the consumer itself: scheduling requests apply to the calling thread.
            let (opened, open) = sync_channel(1);
            let thread = std::thread::Builder::new().name(format!("events {}", streaming.source));
            let run = move || match Consumer::open(&maps, &consuming) {
                Ok(consumer) => {
                    // The receiver is waiting for this.
                    let _ = opened.send(None);
                    pump::run(number, consumer, &shared, &to);
                }
                Err(error) => drop(opened.send(Some(error))),
            };
            events.threads.push(thread.spawn(run).map_err(failed("begin a thread"))?);
            if let Ok(Some(error)) = open.recv() {
                return Err(stream(error));
            }
        }
        for top in tops {
            let (first, state) = (events.sources.len(), Arc::new(looks::State::new(top.tables.len())));
            for (number, table) in top.tables.iter().enumerate() {
                let from = Origin::Looks { state: Arc::clone(&state), table: number, delivered: 0, told_ns: 0 };
                events.sources.push(Source { name: table.path(), from, ended: false });
            }
            let (shared, to) = (Arc::clone(&events.shared), to.clone());
            let thread = std::thread::Builder::new().name("events of tops".to_owned());
            let run = move || looks::run(top, first, &state, &shared, &to);
            events.threads.push(thread.spawn(run).map_err(failed("begin a thread"))?);
        }
        Ok(events)
    }

    /// Gives the events that are ready by now, in order. Each is given once.
    ///
    /// # Errors
    /// A source can't be read any more.
    pub fn take(&mut self, each: &mut dyn FnMut(Event)) -> Result<(), Error> {
        let mut count = [0; 8];
        // The read does not block: it fails if no batch has come.
        let _ = rustix::io::read(&self.shared.ready, &mut count);
        let now = now_ns();
        for source in &mut self.sources {
            match &mut source.from {
                Origin::Ring(ring) => {
                    ring.goal.get_or_insert_with(|| (ring.watch.produced(), now));
                }
                Origin::Looks { state, told_ns, .. } => *told_ns = state.told_ns(now),
            }
        }
        while let Ok(batch) = self.batches.try_recv() {
            self.put(batch, now)?;
            // Two batches at a time could exceed the room for waiting events.
            self.give(now, each);
        }
        for (number, source) in self.sources.iter_mut().enumerate() {
            let told_ns = match &mut source.from {
                _ if source.ended => Some(u64::MAX),
                Origin::Ring(ring) => ring.goal.take_if(|(goal, _)| *goal <= ring.position).map(|(_, told_ns)| told_ns),
                Origin::Looks { told_ns, .. } => Some(*told_ns),
            };
            if let Some(told_ns) = told_ns {
                self.order.told(number, told_ns);
            }
        }
        self.give(now, each);
        Ok(())
    }

    fn put(&mut self, batch: Batch, now: u64) -> Result<(), Error> {
        self.shared.waiting.fetch_sub(batch.bytes(), Ordering::AcqRel);
        let number = batch.source;
        let source = &mut self.sources[number];
        source.ended |= batch.last;
        match &mut source.from {
            Origin::Ring(ring) => ring.position = ring.position.max(batch.position),
            Origin::Looks { delivered, .. } => {
                *delivered += if let Told::Events(events) = &batch.told { events.len() as u64 } else { 0 };
            }
        }
        let mut put = |time_ns, bytes, what| self.order.put(time_ns, bytes, now, Waiting { source: number, what });
        match batch.told {
            Told::Records(records) => {
                records.iter().for_each(|r| put(decode::time_ns(r), r.len(), What::Record(r.into())));
            }
            Told::Events(events) => {
                events.into_iter().for_each(|(time, e)| put(time, pump::EVENT_BYTES, What::Event(Box::new(e))));
            }
        }
        batch.failed.map_or(Ok(()), Err)
    }

    fn give(&mut self, now: u64, each: &mut dyn FnMut(Event)) {
        let clock = decode::Clock::now();
        while let Some((waiting, late)) = self.order.next(now, |waiting| waiting.source) {
            match (waiting.what, &mut self.sources[waiting.source].from) {
                (What::Record(record), Origin::Ring(ring)) => each(ring.decoder.event(&record, late, &clock)),
                (What::Event(event), _) => each(Event { late, ..*event }),
                (What::Record(_), Origin::Looks { .. }) => {}
            }
        }
    }

    /// A descriptor that becomes readable when there is something for [`Events::take`].
    pub fn ready(&self) -> BorrowedFd<'_> {
        self.shared.ready.as_fd()
    }

    /// The longest time that events may be held back while nothing becomes ready; `None`: no event waits.
    pub fn waits(&self) -> Option<Duration> {
        // A tenth of the bound: mostly it is known much sooner whether another source has earlier events.
        (!self.order.is_empty()).then_some(ORDER_BOUND / 10)
    }

    /// The account of each source so far. `shown` stays 0: the number of shown events is not known here.
    ///
    /// # Errors
    /// Another process has read from a source.
    pub fn accounts(&self) -> Result<Vec<Account>, Error> {
        let time = SystemTime::now();
        let account = |(number, source): (usize, &Source)| {
            let of = |produced, delivered, skipped| Account {
                time,
                source: source.name.clone(),
                produced,
                delivered,
                cut: 0,
                dropped: 0,
                skipped,
                shown: 0,
                late: self.order.late(number),
            };
            Ok(match &source.from {
                Origin::Ring(ring) => {
                    let account = ring.watch.account().map_err(stream)?;
                    let all = of(account.produced, account.delivered, ring.loaded.skipped());
                    Account { cut: account.cut, dropped: account.dropped, ..all }
                }
                Origin::Looks { state, table, delivered, .. } => {
                    of(state.produced(*table), *delivered, state.skipped())
                }
            })
        };
        self.sources.iter().enumerate().map(account).collect()
    }

    /// Detaches the programs, stops looking at tables, and gives all remaining events. After that all accounts add up.
    ///
    /// # Errors
    /// As [`Events::take`].
    pub fn finish(&mut self, each: &mut dyn FnMut(Event)) -> Result<(), Error> {
        self.stop();
        while !self.sources.iter().all(|source| source.ended) {
            let batch = self.batches.recv_timeout(LAST_BATCH).map_err(|e| Error::Kernel {
                what: "take the last events".to_owned(),
                why: format!("their thread does not hand them on: {e}"),
            })?;
            let now = now_ns();
            self.put(batch, now)?;
            // Two batches at a time could exceed the room for waiting events.
            self.give(now, each);
        }
        self.take(each)
    }

    fn stop(&mut self) {
        for source in &mut self.sources {
            if let Origin::Ring(ring) = &mut source.from {
                ring.loaded.links.clear();
            }
        }
        self.shared.stop.store(true, Ordering::Release);
        // A thread that looks at tables sleeps until the next look.
        self.threads.iter().for_each(|thread| thread.thread().unpark());
    }
}

/// At the end a thread wakes from its sleep within 200 ms, and may then wait for two seconds for events that are being made.
const LAST_BATCH: Duration = Duration::from_secs(10);

impl Drop for Events {
    fn drop(&mut self) {
        self.stop();
        // A thread that waits to send a batch finds the receiver gone.
        self.shared.gone.store(true, Ordering::Release);
        let (_, nobody) = sync_channel(0);
        self.batches = nobody;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
