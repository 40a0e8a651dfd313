// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Made-up events: each look has one event of each kind of each source, with numbers in all columns, for a few looks.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use topstat::Stream;
use topstat_kernel::events::{Top, kinds_of_top};
use topstat_kernel::{Error, Streaming};
use topstat_model::events::{Account, Event, EventKind, Payload, PayloadKind};
use topstat_model::{ColumnKind, Field};

/// The number of looks that have events.
const LOOKS: u64 = 3;

/// Makes up events.
pub struct FakeStream {
    /// The names of the sources, and the kinds of their events.
    sources: Vec<(String, Vec<EventKind>)>,
    /// The tops with the sources that they have loaded.
    _tops: Vec<Top>,
    lossy: bool,
    loaded: Arc<AtomicU32>,
    looks: u64,
    produced: Vec<u64>,
}

impl FakeStream {
    pub fn new(wanted: &[Arc<Streaming>], tops: Vec<Top>, lossy: bool, loaded: Arc<AtomicU32>) -> Self {
        let of = |source: &str, kinds: &[topstat_kernel::EventKind]| {
            let kinds = kinds.iter().map(|kind| kind.shown(source)).collect();
            (source.to_owned(), kinds)
        };
        let mut sources: Vec<_> = wanted.iter().map(|streaming| of(&streaming.source, &streaming.kinds)).collect();
        sources.extend(tops.iter().flat_map(Top::tables).map(|table| of(&table.path(), &kinds_of_top(table))));
        let produced = vec![0; sources.len()];
        Self { sources, _tops: tops, lossy, loaded, looks: 0, produced }
    }
}

impl Drop for FakeStream {
    fn drop(&mut self) {
        self.loaded.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Stream for FakeStream {
    fn take(&mut self, each: &mut dyn FnMut(Event)) -> Result<(), Error> {
        self.looks += 1;
        if self.looks > LOOKS {
            return Ok(());
        }
        for (number, (_, kinds)) in self.sources.iter().enumerate() {
            for kind in kinds {
                let seq = self.produced[number];
                self.produced[number] += 1;
                each(event(kind, seq, self.looks, self.lossy));
            }
        }
        Ok(())
    }

    fn finish(&mut self, each: &mut dyn FnMut(Event)) -> Result<(), Error> {
        self.take(each)
    }

    fn accounts(&self) -> Result<Vec<Account>, Error> {
        let account = |((source, _), delivered): (&(String, Vec<EventKind>), &u64)| {
            let lost = u64::from(self.lossy);
            Account {
                time: UNIX_EPOCH + Duration::from_secs(1_795_248_000),
                source: source.clone(),
                produced: delivered + 2 * lost,
                delivered: *delivered,
                cut: lost,
                dropped: 2 * lost,
                skipped: 3 * lost,
                shown: 0,
                late: lost,
            }
        };
        Ok(self.sources.iter().zip(&self.produced).map(account).collect())
    }

    fn waits(&self) -> (Option<BorrowedFd<'_>>, Option<Duration>) {
        (None, None)
    }
}

fn event(kind: &EventKind, seq: u64, look: u64, lossy: bool) -> Event {
    let shown = Arc::new(kind.clone());
    let field = |column: &topstat_model::Column| match (column.kind, &*column.name) {
        (_, "container" | "tid" | "error" | "signal" | "dumped") => Field::None,
        (_, "comm") => "odd \x1b[31m\"name\"".into(),
        (ColumnKind::Address, _) => Field::Ip("10.0.0.1".parse().unwrap()),
        (ColumnKind::Port, _) => Field::U64(440 + look),
        (ColumnKind::Pid | ColumnKind::Id, _) => Field::U64(1000 * look + 7),
        (ColumnKind::Text, name) => name.into(),
        (ColumnKind::Mark, _) => Field::True,
        (ColumnKind::Path, _) => "/system.slice/nginx.service".into(),
    };
    let payload = kind.payload.as_ref().map(|(_, kind)| *kind == PayloadKind::List).map(|list| Payload {
        bytes: if list { b"one\0two words\0\x1b[31m\0".to_vec() } else { b"GET /\r\n\xff".to_vec() },
        whole: if lossy {
            4000
        } else if list {
            20
        } else {
            8
        },
        cut: lossy,
        fault: false,
    });
    Event {
        // 2026-11-21T08:00:00.000Z, plus a microsecond for each event.
        time: UNIX_EPOCH + Duration::from_secs(1_795_248_000) + Duration::from_nanos(1000 * seq + look),
        // Events of tables have no CPU.
        cpu: (!shown.source.contains('/')).then_some(1),
        seq,
        fields: shown.columns.iter().map(field).collect(),
        kind: shown,
        payload,
        late: lossy && look == 2,
    }
}
