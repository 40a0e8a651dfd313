// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One thread per source takes records out of its ring buffer, and sends copies of them. It does nothing else, so that it is back
//! in time. The receiver does the slow work: paths of cgroups, filters, writing.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use topstat_consumer::Consumer;
use topstat_model::events::Event;

use super::stream;
use crate::error::Error;

/// The most records in a batch: a few hundred kilobytes at most while records are small.
const BATCH_RECORDS: usize = 1024;
/// Bytes of records that end a batch. A batch has at least one record.
const BATCH_BYTES: usize = 1 << 20;
/// The most batches that wait for the receiver, and the most bytes of their records. At either limit the ring buffer fills, and
/// events that find no space in it are counted as dropped.
pub const BATCHES: usize = 1024;
const MOST_BYTES: usize = 64 << 20;
/// The pause before the limit is checked again.
const FULL: Duration = Duration::from_millis(1);
/// The longest wait at the end for events that are being made: a program at a tracepoint runs for microseconds, but a virtual
/// machine may lose the CPU in the middle of it.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// A message of a source.
pub struct Batch {
    /// The number of the source.
    pub source: usize,
    /// The records or events.
    pub told: Told,
    /// The ring position at which the records end.
    pub position: u64,
    /// Whether this is the source's last batch.
    pub last: bool,
    /// The error that ended the source, if there was one.
    pub failed: Option<Error>,
}

/// Records of a ring buffer, or events of another origin.
pub enum Told {
    Records(Records),
    /// Each with its time, in ns of the monotonic clock.
    Events(Vec<(u64, Event)>),
}

/// Records, one after the other, and the end of each.
#[derive(Default)]
pub struct Records {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// Approximate bytes of an event that is no record: its fields, and the texts in them.
pub const EVENT_BYTES: usize = 512;

impl Batch {
    /// An empty batch of this source.
    pub fn of(source: usize) -> Self {
        Self { source, told: Told::Records(Records::default()), position: 0, last: false, failed: None }
    }

    /// Approximate bytes of its records or events.
    pub fn bytes(&self) -> usize {
        match &self.told {
            Told::Records(records) => records.bytes.len(),
            Told::Events(events) => events.len() * EVENT_BYTES,
        }
    }
}

impl Records {
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.bytes[begin..*end])
    }

    /// Adds a record. Returns whether there is room for another one.
    fn put(&mut self, record: &[u8]) -> bool {
        self.bytes.extend_from_slice(record);
        self.ends.push(self.bytes.len());
        self.ends.len() < BATCH_RECORDS && self.bytes.len() < BATCH_BYTES
    }
}

/// State that a pump shares with the thread that started it.
pub struct Shared {
    /// Asks the pump to end after it has sent the records in the ring.
    pub stop: AtomicBool,
    /// Bytes of records that were sent and are not taken yet.
    pub waiting: AtomicUsize,
    /// Whether the receiver is gone.
    pub gone: AtomicBool,
    /// Becomes readable when there is a batch.
    pub ready: OwnedFd,
}

/// Takes records until it is stopped.
pub fn run(source: usize, mut consumer: Consumer, shared: &Shared, to: &SyncSender<Batch>) {
    let pump = Pump { shared, to };
    let failed = pump.until_stopped(source, &mut consumer).err();
    // The receiver may be gone.
    pump.send(Batch { failed, last: true, position: consumer.position(), ..Batch::of(source) });
}

/// Sends batches.
pub struct Pump<'a> {
    pub shared: &'a Shared,
    pub to: &'a SyncSender<Batch>,
}

impl Pump<'_> {
    pub fn is_to_stop(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    fn until_stopped(&self, source: usize, consumer: &mut Consumer) -> Result<(), Error> {
        while !self.is_to_stop() {
            if !self.drain(source, consumer)? {
                return Ok(());
            }
            consumer.wait().map_err(stream)?;
        }
        // Programs are detached by now.
        let began = Instant::now();
        while self.drain(source, consumer)? && consumer.account().under_way() > 0 && began.elapsed() < LAST_EVENTS {
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// Sends all records in the ring. Returns whether the receiver is still there.
    fn drain(&self, source: usize, consumer: &mut Consumer) -> Result<bool, Error> {
        loop {
            let mut records = Records::default();
            let taken = consumer.drain_while(|record| records.put(record.bytes())).map_err(stream)?;
            if taken == 0 {
                return Ok(true);
            }
            let (told, position) = (Told::Records(records), consumer.position());
            if !self.send(Batch { told, position, ..Batch::of(source) }) {
                return Ok(false);
            }
        }
    }

    /// Sends a batch. Returns whether the receiver is still there.
    pub fn send(&self, batch: Batch) -> bool {
        while self.shared.waiting.load(Ordering::Acquire) > MOST_BYTES {
            if self.shared.gone.load(Ordering::Acquire) {
                return false;
            }
            std::thread::sleep(FULL);
        }
        self.shared.waiting.fetch_add(batch.bytes(), Ordering::AcqRel);
        let sent = self.to.send(batch).is_ok();
        // The counter can't be full: it counts up to 2^64, and each read resets it to 0.
        let _ = rustix::io::write(&self.shared.ready, &1_u64.to_ne_bytes());
        sent
    }
}
