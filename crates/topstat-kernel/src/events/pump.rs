// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One thread for each source takes records out of its ring buffer, and hands copies of them on. It does nothing else, so
//! that it is back in time; what is slow (paths of cgroups, filters, writing) is done by whoever takes them.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use topstat_consumer::{Consumer, Error};

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
    /// Records, one after the other, and where each ends.
    pub bytes: Vec<u8>,
    pub ends: Vec<usize>,
    /// The position of the ring buffer at which they end.
    pub position: u64,
    /// It will tell no more.
    pub last: bool,
    /// Why it tells no more.
    pub failed: Option<Error>,
}

impl Batch {
    fn of(source: usize) -> Self {
        Self { source, bytes: Vec::new(), ends: Vec::new(), position: 0, last: false, failed: None }
    }

    /// Its records.
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.bytes[begin..*end])
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
    let pump = Pump { source, shared, to };
    let failed = pump.until_stopped(&mut consumer).err();
    // Nobody may be there to be told.
    pump.send(Batch { failed, last: true, position: consumer.position(), ..Batch::of(source) });
}

struct Pump<'a> {
    source: usize,
    shared: &'a Shared,
    to: &'a SyncSender<Batch>,
}

impl Pump<'_> {
    fn until_stopped(&self, consumer: &mut Consumer) -> Result<(), Error> {
        while !self.shared.stop.load(Ordering::Acquire) {
            if !self.drain(consumer)? {
                return Ok(());
            }
            consumer.wait()?;
        }
        // Programs are detached by now.
        let began = Instant::now();
        while self.drain(consumer)? && consumer.account().under_way() > 0 && began.elapsed() < LAST_EVENTS {
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// Hands on all that there is. Whether anybody takes it.
    fn drain(&self, consumer: &mut Consumer) -> Result<bool, Error> {
        loop {
            let mut batch = Batch::of(self.source);
            let taken = consumer.drain_while(|record| {
                batch.bytes.extend_from_slice(record.bytes());
                batch.ends.push(batch.bytes.len());
                batch.ends.len() < BATCH_RECORDS && batch.bytes.len() < BATCH_BYTES
            })?;
            if taken == 0 {
                return Ok(true);
            }
            batch.position = consumer.position();
            if !self.send(batch) {
                return Ok(false);
            }
        }
    }

    /// Whether anybody takes it.
    fn send(&self, batch: Batch) -> bool {
        while self.shared.waiting.load(Ordering::Acquire) > MOST_BYTES {
            if self.shared.gone.load(Ordering::Acquire) {
                return false;
            }
            std::thread::sleep(FULL);
        }
        self.shared.waiting.fetch_add(batch.bytes.len(), Ordering::AcqRel);
        let sent = self.to.send(batch).is_ok();
        // It can't be full: it counts up to 2^64, and is taken back to 0 by who reads it.
        let _ = rustix::io::write(&self.shared.ready, &1_u64.to_ne_bytes());
        sent
    }
}
