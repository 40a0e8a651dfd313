// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of a BPF ring buffer, as the kernel lays it out (`kernel/bpf/ringbuf.c`):
//!
//! ```text
//! page 0   the consumer's position: the only word that the consumer writes
//! page 1   the producers' position
//! page 2…  the data, mapped twice, so that a record that goes past the end is in one piece
//! ```
//!
//! Positions only grow; modulo the size of the data they are places. A record begins with its length, in which two bits
//! say that it is still being written (BUSY), or is to be skipped (DISCARD), and takes a multiple of eight bytes.
//!
//! libbpf's reader frees a record after its callback, too, but it reads until the ring is empty, says neither how far it
//! is filled nor where it stands, and can't be told that a record was delivered before: therefore this one.

use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};

use crate::abi::stream_record;
use crate::error::{Error, kernel};

/// BPF_RINGBUF_BUSY_BIT, BPF_RINGBUF_DISCARD_BIT and BPF_RINGBUF_HDR_SZ of the kernel's interface.
const BUSY: u32 = libbpf_rs::libbpf_sys::BPF_RINGBUF_BUSY_BIT;
const DISCARD: u32 = libbpf_rs::libbpf_sys::BPF_RINGBUF_DISCARD_BIT;
const LENGTH_BYTES: u64 = libbpf_rs::libbpf_sys::BPF_RINGBUF_HDR_SZ as u64;
/// Records begin at multiples of this.
const ALIGN: u64 = 8;

/// A record that is not freed yet.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    head: stream_record,
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// How every record begins.
    pub fn head(&self) -> &stream_record {
        &self.head
    }

    /// All of it, with its head.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Its payload, which comes after the `fixed` bytes that the source's records have before it.
    pub fn payload(&self, fixed: usize) -> &'a [u8] {
        let behind = self.bytes.get(fixed..).unwrap_or_default();
        &behind[..behind.len().min(self.head.payload as usize)]
    }
}

/// What there is at the consumer's position.
pub(crate) enum Found<'a> {
    /// Nothing, or a record that is still being written.
    Nothing,
    /// A record that its program has given up; where the next one begins.
    Discarded(u64),
    /// A record, and where the next one begins.
    Record(Record<'a>, u64),
}

/// A mapped ring buffer.
pub struct Ring {
    positions: MmapRaw,
    /// The producers' position, and the data twice.
    data: MmapRaw,
    page: usize,
    size: u64,
    /// Where the consumer is: the same as in memory, which nobody else writes.
    position: u64,
    /// A producers' position that was seen: until then there are records.
    known: u64,
}

impl Ring {
    /// Maps the ring buffer of this descriptor, which has so many bytes of data.
    pub fn map(fd: BorrowedFd<'_>, size: u64) -> Result<Self, Error> {
        let page = rustix::param::page_size();
        let what = || kernel(format!("map a ring buffer of {size} bytes"));
        let positions = MmapOptions::new().len(page).map_raw(&fd).map_err(what())?;
        let data = page + 2 * size as usize;
        let data = MmapOptions::new().offset(page as u64).len(data).map_raw_read_only(&fd).map_err(what())?;
        let mut ring = Self { positions, data, page, size, position: 0, known: 0 };
        ring.position = ring.consumer().load(Ordering::Acquire);
        ring.known = ring.position;
        Ok(ring)
    }

    fn consumer(&self) -> &AtomicU64 {
        // SAFETY: the first word of a page that is mapped for as long as `self` lives, and written by atomic stores
        // alone; the kernel only reads it.
        unsafe { AtomicU64::from_ptr(self.positions.as_mut_ptr().cast()) }
    }

    /// Where the consumer is.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Where whoever consumes is, who may be another one.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumer().load(Ordering::Acquire)
    }

    /// Where producers are: how many bytes they have ever put in.
    pub fn produced(&self) -> u64 {
        // SAFETY: the first word of the second page, mapped for as long as `self` lives. The kernel writes it whole; a
        // relaxed load is what memory that may only be read allows.
        let position = unsafe { AtomicU64::from_ptr(self.data.as_mut_ptr().cast()) }.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        position
    }

    /// How many bytes are not freed.
    pub fn unread(&self) -> u64 {
        self.produced() - self.position
    }

    /// How many bytes of data it has.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What there is at the consumer's position. It stays there until it is freed.
    pub(crate) fn find(&mut self) -> Result<Found<'_>, Error> {
        if self.position == self.known {
            self.known = self.produced();
            if self.position == self.known {
                return Ok(Found::Nothing);
            }
        }
        let place = (self.position & (self.size - 1)) as usize;
        // SAFETY: the data begins at the second page of this mapping and is there twice, so that what begins at a place
        // below its size, and is no longer than that, is inside. The place is a multiple of eight.
        let begin = unsafe { self.data.as_mut_ptr().add(self.page + place) };
        // SAFETY: inside, as just said; the kernel writes the word whole, and the load is relaxed, as above.
        let word = unsafe { AtomicU32::from_ptr(begin.cast()) }.load(Ordering::Relaxed);
        // The record was written before its BUSY bit was taken away, which is an exchange with a full barrier.
        fence(Ordering::Acquire);
        if word & BUSY != 0 {
            return Ok(Found::Nothing);
        }
        let bytes = u64::from(word & !DISCARD);
        let least = size_of::<stream_record>() as u64;
        let most = (self.known - self.position).min(self.size).saturating_sub(LENGTH_BYTES);
        if bytes > most || (bytes < least && word & DISCARD == 0) {
            return Err(Error::Record { position: self.position, bytes, least, most });
        }
        let next = self.position + (bytes + LENGTH_BYTES).next_multiple_of(ALIGN);
        if word & DISCARD != 0 {
            return Ok(Found::Discarded(next));
        }
        self.fetch(next + (next - self.position));
        // SAFETY: the record is inside of the mapping, as just checked, and no producer writes to it until its space is
        // freed, which `free` does, and that takes `self` mutably: not while the slice is borrowed.
        let bytes = unsafe { std::slice::from_raw_parts(begin.add(LENGTH_BYTES as usize), bytes as usize) };
        // SAFETY: it has at least so many bytes, and the type is plain integers.
        let head = unsafe { ptr::read_unaligned(bytes.as_ptr().cast::<stream_record>()) };
        Ok(Found::Record(Record { head, bytes }, next))
    }

    /// Has the CPU fetch what is at this position meanwhile. Where a record is, is known when the one before it was read,
    /// and each has to come from the producer's cache: if records are as long as each other, two come at a time.
    fn fetch(&self, position: u64) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let place = (position & (self.size - 1)) as usize;
            let begin = self.data.as_ptr().wrapping_add(self.page + place);
            // SAFETY: it only fetches; no address is wrong.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(begin.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = position;
    }

    /// Gives producers the space up to where the next record begins, by one store.
    pub(crate) fn free(&mut self, next: u64) {
        self.position = next;
        // Release: what was read from the record was read before, and what was written down of it is written (E5).
        self.consumer().store(next, Ordering::Release);
    }
}
