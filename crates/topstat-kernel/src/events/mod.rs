// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events of chosen sources, one by one and in one order.
//!
//! ```text
//!   programs ─▶ ring buffer ─▶ pump (a thread) ─▶ batches ─▶ order ─▶ decode ─▶ Event
//!   of a source, stream.h       consumer's law     bounded    O1…O3
//! ```

mod decode;
mod order;
mod pump;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use libbpf_rs::{Link, Object};
use rustix::event::{EventfdFlags, eventfd};
use topstat_consumer::consumer::now_ns;
use topstat_consumer::{Consumer, Maps, Watch};
use topstat_model::events::{Account, Event};

pub use topstat_consumer::{Options as Consuming, Strategy};

use crate::error::Error;
use crate::family::{Kind, Streaming};
use crate::report::explain;
use crate::{bpf, catalogue, cost};
use decode::Decoder;
use order::Order;
use pump::{Batch, Shared};

/// The ring buffer of each source, unless something else is asked for.
pub const RING_BYTES: u32 = 8 << 20;
/// An event waits for others, which may be earlier, for so long at most. Whoever consumes sleeps 30 ms at most while
/// events come, and may then have to wait for its CPU.
pub const ORDER_BOUND: Duration = Duration::from_millis(200);
/// Bytes of events that wait for others: then the earliest don't wait any more.
const MOST_WAITING_BYTES: usize = 64 << 20;

/// How events are taken.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of the ring buffer of each source, a power of two.
    pub ring_bytes: u32,
    /// When it is looked into, and how far it may be filled.
    pub consuming: Consuming,
    /// What is captured, where payloads are.
    pub capture: Capture,
}

/// Which payloads of system calls are captured; the kernel does not even copy the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Of these processes; none: of all but the one that captures.
    pub pids: Vec<u32>,
    /// Of threads of this name, as far as the kernel keeps names.
    pub comm: Option<String>,
    /// Of the control group of this path, in the hierarchy of version 2, and of all below it.
    pub cgroup: Option<String>,
    /// By system calls of these names; none: by all that are known.
    pub calls: Vec<String>,
    /// Only what is written or sent, or what is not.
    pub out: Option<bool>,
    /// So many bytes of each.
    pub snaplen: u32,
}

/// As much as the beginning of most protocols' messages.
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

/// The sources that there are, by their names, in the order of their names.
pub fn sources() -> Vec<Arc<Streaming>> {
    let streaming = |family: &Arc<crate::Family>| match &family.kind {
        Kind::Events(streaming) => Some(Arc::clone(streaming)),
        _ => None,
    };
    let mut all: Vec<_> = catalogue::families().iter().filter_map(streaming).collect();
    all.sort_by(|a, b| a.source.cmp(&b.source));
    all
}

/// Events of some sources, for as long as it is held.
pub struct Events {
    sources: Vec<Source>,
    batches: Receiver<Batch>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    order: Order<Waiting>,
}

/// A record that waits for others.
struct Waiting {
    source: usize,
    record: Box<[u8]>,
}

struct Source {
    name: String,
    loaded: Loaded,
    decoder: Decoder,
    watch: Watch,
    /// Until which position of its ring buffer records were handed on.
    position: u64,
    /// Once it has handed on all until this position, it has told all until this time (O1).
    goal: Option<(u64, u64)>,
    /// It will hand on no more.
    ended: bool,
}

/// Programs that are attached, until their links are dropped.
struct Loaded {
    object: Object,
    links: Vec<Link>,
    /// The programs again, to be asked how often the kernel has not run them.
    programs: Vec<OwnedFd>,
}

/// Loads and attaches a source, and drops it.
pub fn try_load(streaming: &Streaming) -> Result<(), Error> {
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

    /// How often the kernel has kept an event from a program, which would have had to interrupt itself. Kernels before 5.12
    /// don't tell.
    fn skipped(&self) -> u64 {
        self.programs.iter().filter_map(|fd| cost::program_info(fd, None).ok()).map(|info| info.recursion_misses).sum()
    }
}

impl Events {
    /// Loads and attaches these sources, and begins to take their events.
    ///
    /// # Errors
    /// A source that is not there, options that can't be, or what the kernel refuses.
    pub fn open(wanted: &[Arc<Streaming>], options: &Options) -> Result<Self, Error> {
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
        let order = Order::new(wanted.len(), ORDER_BOUND.as_nanos() as u64, MOST_WAITING_BYTES);
        let (sources, threads) = (Vec::new(), Vec::new());
        // From here on whatever fails ends the threads that were begun.
        let mut events = Self { sources, batches, shared, threads, order };
        for (number, streaming) in wanted.iter().enumerate() {
            let loaded = Loaded::load(streaming, options)?;
            let maps = Maps::of(&loaded.object).map_err(stream)?;
            let (shared, to, consuming) = (Arc::clone(&events.shared), to.clone(), options.consuming.clone());
            events.sources.push(Source {
                name: streaming.source.clone(),
                decoder: Decoder::new(streaming),
                watch: maps.watch().map_err(stream)?,
                loaded,
                position: 0,
                goal: None,
                ended: false,
            });
            // The consumer is opened by the thread itself: what is asked of the scheduler is asked for that one.
            let (opened, open) = sync_channel(1);
            let thread = std::thread::Builder::new().name(format!("events {}", streaming.source));
            let run = move || match Consumer::open(&maps, &consuming) {
                Ok(consumer) => {
                    // It is waited for.
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
        Ok(events)
    }

    /// The events that are there by now, in order: each is given once.
    ///
    /// # Errors
    /// When a source can't be read any more.
    pub fn take(&mut self, each: &mut dyn FnMut(Event)) -> Result<(), Error> {
        let mut count = [0; 8];
        // There is something, or there is not: it does not block.
        let _ = rustix::io::read(&self.shared.ready, &mut count);
        let now = now_ns();
        for source in &mut self.sources {
            source.goal.get_or_insert_with(|| (source.watch.produced(), now));
        }
        while let Ok(batch) = self.batches.try_recv() {
            self.put(batch, now)?;
            // More than one batch at a time could be more than there is room for.
            self.give(now, each);
        }
        for (number, source) in self.sources.iter_mut().enumerate() {
            if source.ended {
                self.order.told(number, u64::MAX);
            } else if let Some((_, told_ns)) = source.goal.take_if(|(goal, _)| *goal <= source.position) {
                self.order.told(number, told_ns);
            }
        }
        self.give(now, each);
        Ok(())
    }

    fn put(&mut self, batch: Batch, now: u64) -> Result<(), Error> {
        self.shared.waiting.fetch_sub(batch.bytes.len(), Ordering::AcqRel);
        let source = &mut self.sources[batch.source];
        source.position = source.position.max(batch.position);
        source.ended |= batch.last;
        for record in batch.records() {
            let waiting = Waiting { source: batch.source, record: record.into() };
            self.order.put(decode::time_ns(record), record.len(), now, waiting);
        }
        batch.failed.map_or(Ok(()), |error| Err(stream(error)))
    }

    fn give(&mut self, now: u64, each: &mut dyn FnMut(Event)) {
        let clock = decode::Clock::now();
        while let Some((waiting, late)) = self.order.next(now, |waiting| waiting.source) {
            each(self.sources[waiting.source].decoder.event(&waiting.record, late, &clock));
        }
    }

    /// Becomes readable when there is something to [`Events::take`].
    pub fn ready(&self) -> BorrowedFd<'_> {
        self.shared.ready.as_fd()
    }

    /// How long events may be held back while nothing becomes ready; `None`: there are none.
    pub fn waits(&self) -> Option<Duration> {
        // A tenth of the bound: what another source might tell of before is mostly known much sooner.
        (!self.order.is_empty()).then_some(ORDER_BOUND / 10)
    }

    /// What became of the events of each source so far; nobody here knows how many were shown.
    ///
    /// # Errors
    /// When somebody else has read from a source.
    pub fn accounts(&self) -> Result<Vec<Account>, Error> {
        let time = SystemTime::now();
        let account = |(number, source): (usize, &Source)| {
            let account = source.watch.account().map_err(stream)?;
            Ok(Account {
                time,
                source: source.name.clone(),
                produced: account.produced,
                delivered: account.delivered,
                cut: account.cut,
                dropped: account.dropped,
                skipped: source.loaded.skipped(),
                shown: 0,
                late: self.order.late(number),
            })
        };
        self.sources.iter().enumerate().map(account).collect()
    }

    /// Detaches the programs, and gives all events that there still are. After that all accounts add up.
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
            // More than one batch at a time could be more than there is room for.
            self.give(now, each);
        }
        self.take(each)
    }

    fn stop(&mut self) {
        for source in &mut self.sources {
            source.loaded.links.clear();
        }
        self.shared.stop.store(true, Ordering::Release);
    }
}

/// At the end a thread looks up from its sleep within 200 ms, and may wait for two seconds for events that are being made.
const LAST_BATCH: Duration = Duration::from_secs(10);

impl Drop for Events {
    fn drop(&mut self) {
        self.stop();
        // Whoever waits to hand something on finds nobody.
        self.shared.gone.store(true, Ordering::Release);
        let (_, nobody) = sync_channel(0);
        self.batches = nobody;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
