// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decodes the bytes of a record into an event.

use std::mem::{offset_of, size_of};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use topstat_consumer::abi::{STREAM_CUT, STREAM_FAULT, stream_record};
use topstat_consumer::consumer::now_ns;
use topstat_model::events::{Event, EventKind, Payload};

use super::Streaming;
use crate::cgroup::{self, Paths};
use crate::family::{RowColumn, describe};

/// Converts times of the monotonic clock, by which records are timed, to the host's clock. It is made anew for each batch, so it
/// follows a clock that is set.
pub struct Clock {
    time: SystemTime,
    monotonic_ns: u64,
}

impl Clock {
    /// Reads both clocks. Another program may run between the two reads, for milliseconds: then they are read again.
    pub fn now() -> Self {
        /// The most that reads take which nothing interrupts, in ns.
        const TOGETHER_NS: u64 = 10_000;
        const TRIES: u32 = 8;
        let read = || {
            let (before, time) = (now_ns(), SystemTime::now());
            let took = now_ns() - before;
            (took, Self { time, monotonic_ns: before + took / 2 })
        };
        let mut best = read();
        for _ in 1..TRIES {
            if best.0 <= TOGETHER_NS {
                break;
            }
            let again = read();
            if again.0 < best.0 {
                best = again;
            }
        }
        best.1
    }

    /// The host's time at a moment of the monotonic clock.
    pub fn of(&self, monotonic_ns: u64) -> SystemTime {
        let ns = |later: u64, earlier: u64| Duration::from_nanos(later - earlier);
        match monotonic_ns > self.monotonic_ns {
            true => self.time + ns(monotonic_ns, self.monotonic_ns),
            false => self.time - ns(self.monotonic_ns, monotonic_ns),
        }
    }
}

/// The time of a record's event, in ns of the monotonic clock.
pub fn time_ns(record: &[u8]) -> u64 {
    word(record, offset_of!(stream_record, time))
}

fn word(record: &[u8], at: usize) -> u64 {
    record.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u64::from_ne_bytes)
}

fn half(record: &[u8], at: usize) -> u32 {
    record.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u32::from_ne_bytes)
}

fn short(record: &[u8], at: usize) -> u16 {
    record.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u16::from_ne_bytes)
}

/// Turns the records of a source into events.
pub struct Decoder {
    kinds: Vec<Known>,
    unknown: Arc<EventKind>,
    paths: Paths,
}

struct Known {
    kind: Arc<EventKind>,
    columns: Vec<RowColumn>,
    bytes: usize,
}

impl Decoder {
    pub fn new(streaming: &Streaming) -> Self {
        let source = &streaming.source;
        let kinds = streaming.kinds.iter().map(|kind| Known {
            kind: Arc::new(kind.shown(source)),
            columns: kind.columns.clone(),
            bytes: kind.bytes,
        });
        let unknown = EventKind {
            source: source.clone(),
            event: "unknown".to_owned(),
            columns: Vec::new(),
            aliases: Vec::new(),
            payload: None,
        };
        Self { kinds: kinds.collect(), unknown: Arc::new(unknown), paths: Paths::new(cgroup::v1_controller()) }
    }

    /// The event of a record. The ring buffer's reader has checked that the record has a head.
    pub fn event(&mut self, record: &[u8], late: bool, clock: &Clock) -> Event {
        debug_assert!(record.len() >= size_of::<stream_record>());
        let known = self.kinds.get(usize::from(short(record, offset_of!(stream_record, kind))));
        let (kind, fields) = match known {
            Some(known) => (&known.kind, describe(&known.columns, record, &mut self.paths)),
            None => (&self.unknown, Vec::new()),
        };
        let payload = known.filter(|known| known.kind.payload.is_some()).map(|known| payload(record, known.bytes));
        Event {
            time: clock.of(time_ns(record)),
            cpu: Some(half(record, offset_of!(stream_record, cpu))),
            seq: word(record, offset_of!(stream_record, seq)),
            kind: Arc::clone(kind),
            fields,
            payload,
            late,
        }
    }
}

fn payload(record: &[u8], fixed: usize) -> Payload {
    let flags = u32::from(short(record, offset_of!(stream_record, flags)));
    let behind = record.get(fixed..).unwrap_or_default();
    let bytes = usize::from(short(record, offset_of!(stream_record, payload)));
    Payload {
        bytes: behind[..behind.len().min(bytes)].to_vec(),
        whole: half(record, offset_of!(stream_record, whole)).into(),
        cut: flags & STREAM_CUT != 0,
        fault: flags & STREAM_FAULT != 0,
    }
}

#[cfg(test)]
mod tests {
    use topstat_model::{ColumnKind, Field};

    use super::*;
    use crate::family::FieldAt;

    fn streaming() -> Streaming {
        let at = size_of::<stream_record>();
        let number = RowColumn::new("number", ColumnKind::Id, FieldAt::U64(at));
        let payload = crate::events::Payload { name: "data", list: false };
        Streaming {
            source: "test".to_owned(),
            about: String::new(),
            object: &[],
            adopt: None,
            asked: false,
            constants: |_| Ok(Vec::new()),
            kinds: vec![crate::events::EventKind {
                payload: Some(payload),
                ..crate::events::EventKind::new("one", "", at + 8, vec![number])
            }],
        }
    }

    fn record(head: stream_record, behind: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<stream_record>()];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(offset_of!(stream_record, time), &head.time.to_ne_bytes());
        put(offset_of!(stream_record, seq), &head.seq.to_ne_bytes());
        put(offset_of!(stream_record, cpu), &head.cpu.to_ne_bytes());
        put(offset_of!(stream_record, kind), &head.kind.to_ne_bytes());
        put(offset_of!(stream_record, flags), &head.flags.to_ne_bytes());
        put(offset_of!(stream_record, payload), &head.payload.to_ne_bytes());
        put(offset_of!(stream_record, whole), &head.whole.to_ne_bytes());
        [&bytes, behind].concat()
    }

    #[test]
    fn a_record_is_an_event() {
        let clock = Clock::now();
        let head = stream_record {
            time: clock.monotonic_ns - 1_000_000_000,
            seq: 7,
            cpu: 3,
            payload: 5,
            whole: 9,
            flags: STREAM_CUT as u16,
            ..stream_record::default()
        };
        let bytes = record(head, &[&77_u64.to_ne_bytes()[..], b"hello behind"].concat());
        let event = Decoder::new(&streaming()).event(&bytes, true, &clock);
        assert_eq!(event.time, clock.time - Duration::from_secs(1));
        assert_eq!((event.cpu, event.seq, event.late), (Some(3), 7, true));
        assert_eq!((event.kind.event.as_str(), event.fields), ("one", vec![Field::U64(77)]));
        let payload = Payload { bytes: b"hello".to_vec(), whole: 9, cut: true, fault: false };
        assert_eq!(event.payload, Some(payload));
    }

    #[test]
    fn a_record_that_is_too_short_has_what_it_has() {
        let head = stream_record { payload: 100, kind: 0, ..stream_record::default() };
        let event = Decoder::new(&streaming()).event(&record(head, &[1, 2]), false, &Clock::now());
        assert_eq!((event.fields, event.payload.map(|p| p.bytes)), (vec![Field::None], Some(vec![])));
        let head = stream_record { kind: 9, ..stream_record::default() };
        let event = Decoder::new(&streaming()).event(&record(head, &[]), false, &Clock::now());
        assert_eq!((event.kind.event.as_str(), event.payload), ("unknown", None));
    }
}
