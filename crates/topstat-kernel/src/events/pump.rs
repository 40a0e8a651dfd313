// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One thread for each source takes records out of its ring buffer, and hands copies of them on. It does nothing else, so
//! that it is back in time; what is slow (paths of cgroups, filters, writing) is done by whoever takes them.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use topstat_consumer::Consumer;
use topstat_model::events::Event;

use super::stream;
use crate::error::Error;

/// Records that are handed on at a time. A batch is a few hundred kilobytes at most while records are small.
const BATCH_RECORDS: usize = 1024;
/// Bytes of records that are handed on at a time, at least one record.
const BATCH_BYTES: usize = 1 << 20;
/// Batches that wait for whoever takes them, and the bytes of their records. When there are so many the ring buffer fills, and
/// what finds no place in it is counted as dropped.
pub const BATCHES: usize = 1024;
const MOST_BYTES: usize = 64 << 20;
/// How long to wait then before looking again.
const FULL: Duration = Duration::from_millis(1);
/// At the end, an event that is just being made is waited for so long: a program at a tracepoint runs for microseconds, but
/// the CPU may be taken from a virtual machine amid it.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// What a source tells.
pub struct Batch {
    /// Which source.
    pub source: usize,
    /// What it is.
    pub told: Told,
    /// The position of the ring buffer at which they end.
    pub position: u64,
    /// It will tell no more.
    pub last: bool,
    /// Why it tells no more.
    pub failed: Option<Error>,
}

/// Records of a ring buffer, or events that were found out otherwise.
pub enum Told {
    Records(Records),
    /// With their times, by the monotonic clock.
    Events(Vec<(u64, Event)>),
}

/// Records, one after the other, and where each ends.
#[derive(Default)]
pub struct Records {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// About what an event takes that is no record: its fields, and the texts in them.
pub const EVENT_BYTES: usize = 512;

impl Batch {
    /// Nothing yet, of this source.
    pub fn of(source: usize) -> Self {
        Self { source, told: Told::Records(Records::default()), position: 0, last: false, failed: None }
    }

    /// About what it takes of memory.
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

    /// Whether there is room for one more.
    fn put(&mut self, record: &[u8]) -> bool {
        self.bytes.extend_from_slice(record);
        self.ends.push(self.bytes.len());
        self.ends.len() < BATCH_RECORDS && self.bytes.len() < BATCH_BYTES
    }
}

/// What a pump and whoever has started it share.
pub struct Shared {
    /// To end once what is there was handed on.
    pub stop: AtomicBool,
    /// Bytes of records that were handed on and not taken yet.
    pub waiting: AtomicUsize,
    /// Nobody takes any more.
    pub gone: AtomicBool,
    /// Becomes readable when there is a batch.
    pub ready: OwnedFd,
}

/// Takes records until it is to stop.
pub fn run(source: usize, mut consumer: Consumer, shared: &Shared, to: &SyncSender<Batch>) {
    let pump = Pump { shared, to };
    let failed = pump.until_stopped(source, &mut consumer).err();
    // Nobody may be there to be told.
    pump.send(Batch { failed, last: true, position: consumer.position(), ..Batch::of(source) });
}

/// Hands batches on.
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

    /// Hands on all that there is. Whether anybody takes it.
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

    /// Whether anybody takes it.
    pub fn send(&self, batch: Batch) -> bool {
        while self.shared.waiting.load(Ordering::Acquire) > MOST_BYTES {
            if self.shared.gone.load(Ordering::Acquire) {
                return false;
            }
            std::thread::sleep(FULL);
        }
        self.shared.waiting.fetch_add(batch.bytes(), Ordering::AcqRel);
        let sent = self.to.send(batch).is_ok();
        // It can't be full: it counts up to 2^64, and is taken back to 0 by who reads it.
        let _ = rustix::io::write(&self.shared.ready, &1_u64.to_ne_bytes());
        sent
    }
}
