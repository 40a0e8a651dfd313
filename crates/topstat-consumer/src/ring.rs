// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of a BPF ring buffer, as the kernel lays it out (`kernel/bpf/ringbuf.c`):
//!
//! ```text
//! page 0   the consumer's position: the only word that the consumer writes
//! page 1   the producers' position
//! page 2…  the data, mapped twice, so that a record that goes past the end is in one piece
//! ```
//!
//! Positions only grow; modulo the size of the data they are offsets. A record begins with its length, and takes a multiple of
//! eight bytes. Two bits of the length mark a record that is still being written (BUSY) or that readers skip (DISCARD).
//!
//! libbpf's reader frees a record after its callback, too. But it reads until the ring is empty, reports neither the fill nor its
//! position, and has no way to skip a record that was delivered before. Hence this reader.

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
/// Records begin at multiples of this number of bytes.
const ALIGN: u64 = 8;

/// A record that is not freed yet.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    head: stream_record,
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// The head that every record begins with.
    pub fn head(&self) -> &stream_record {
        &self.head
    }

    /// The whole record, with its head.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Its payload, which begins after `fixed` bytes in all records of the source.
    pub fn payload(&self, fixed: usize) -> &'a [u8] {
        let behind = self.bytes.get(fixed..).unwrap_or_default();
        &behind[..behind.len().min(self.head.payload as usize)]
    }
}

/// The content of the ring at the consumer's position.
pub(crate) enum Found<'a> {
    /// No record, or one that is still being written.
    Nothing,
    /// A record that its program has given up; the position of the next record.
    Discarded(u64),
    /// A record, and the position of the next one.
    Record(Record<'a>, u64),
}

/// A mapped ring buffer.
pub struct Ring {
    positions: MmapRaw,
    /// The producers' position, and the data twice.
    data: MmapRaw,
    page: usize,
    size: u64,
    /// The consumer's position. It equals the word in memory, which no other process writes.
    position: u64,
    /// A producers' position that was seen: there are records up to it.
    known: u64,
}

impl Ring {
    /// Maps the ring buffer of this descriptor, which has `size` bytes of data.
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
        // SAFETY: it is the first word of a page that is mapped for as long as `self` lives. It is written by atomic stores
        // alone; the kernel only reads it.
        unsafe { AtomicU64::from_ptr(self.positions.as_mut_ptr().cast()) }
    }

    /// The consumer's position.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The position of the present consumer, which may be another process.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumer().load(Ordering::Acquire)
    }

    /// The producers' position: the bytes that they have ever put in.
    pub fn produced(&self) -> u64 {
        // SAFETY: it is the first word of the second page, mapped for as long as `self` lives. The kernel writes it whole; a
        // relaxed load is allowed in read-only memory.
        let position = unsafe { AtomicU64::from_ptr(self.data.as_mut_ptr().cast()) }.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        position
    }

    /// Bytes that are not freed.
    pub fn unread(&self) -> u64 {
        self.produced() - self.position
    }

    /// Bytes of data that the ring holds.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Finds the record at the consumer's position. It stays there until it is freed.
    pub(crate) fn find(&mut self) -> Result<Found<'_>, Error> {
        if self.position == self.known {
            self.known = self.produced();
            if self.position == self.known {
                return Ok(Found::Nothing);
            }
        }
        let place = (self.position & (self.size - 1)) as usize;
        // SAFETY: the data begins at the second page of this mapping, and is mapped twice. So a range that begins at an offset
        // below the data's size, and is no longer than that, is inside. The offset is a multiple of eight.
        let begin = unsafe { self.data.as_mut_ptr().add(self.page + place) };
        // SAFETY: it is inside, as just said; the kernel writes the word whole, and the load is relaxed, as above.
        let word = unsafe { AtomicU32::from_ptr(begin.cast()) }.load(Ordering::Relaxed);
        // The record was written before its BUSY bit was cleared, by an exchange with a full barrier.
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
        // SAFETY: the record is inside the mapping, as just checked. No producer writes to it until `free` frees its space, and
        // `free` takes `self` mutably: it can't run while the slice is borrowed.
        let bytes = unsafe { std::slice::from_raw_parts(begin.add(LENGTH_BYTES as usize), bytes as usize) };
        // SAFETY: the record is at least as long as the type, which is plain integers.
        let head = unsafe { ptr::read_unaligned(bytes.as_ptr().cast::<stream_record>()) };
        Ok(Found::Record(Record { head, bytes }, next))
    }

    /// Prefetches the data at this position. A record's position is known only after the record before it was read, and each
    /// record has to come from the producer's cache: if records are equally long, two come at a time.
    fn fetch(&self, position: u64) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let place = (position & (self.size - 1)) as usize;
            let begin = self.data.as_ptr().wrapping_add(self.page + place);
            // SAFETY: a prefetch has no effect but on the cache; no address is invalid for it.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(begin.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = position;
    }

    /// Gives producers the space up to `next`, where the next record begins, by one store.
    pub(crate) fn free(&mut self, next: u64) {
        self.position = next;
        // Release: the record was read, and its count was written, before this store (E5).
        self.consumer().store(next, Ordering::Release);
    }
}
