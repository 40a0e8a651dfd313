// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events that are made up: one of each kind of each source at each look, with numbers in all columns, until a few looks
//! are over.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use topstat::Stream;
use topstat_kernel::{Error, Streaming};
use topstat_model::events::{Account, Event, Payload};
use topstat_model::{ColumnKind, Field};

/// How often there are events.
const LOOKS: u64 = 3;

/// Makes them up.
pub struct FakeStream {
    sources: Vec<Arc<Streaming>>,
    lossy: bool,
    loaded: Arc<AtomicU32>,
    looks: u64,
    produced: Vec<u64>,
}

impl FakeStream {
    pub fn new(sources: &[Arc<Streaming>], lossy: bool, loaded: Arc<AtomicU32>) -> Self {
        Self { sources: sources.to_vec(), lossy, loaded, looks: 0, produced: vec![0; sources.len()] }
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
        for (number, source) in self.sources.iter().enumerate() {
            for kind in &source.kinds {
                let seq = self.produced[number];
                self.produced[number] += 1;
                each(event(source, kind, seq, self.looks, self.lossy));
            }
        }
        Ok(())
    }

    fn finish(&mut self, each: &mut dyn FnMut(Event)) -> Result<(), Error> {
        self.take(each)
    }

    fn accounts(&self) -> Result<Vec<Account>, Error> {
        let account = |(source, delivered): (&Arc<Streaming>, &u64)| {
            let lost = u64::from(self.lossy);
            Account {
                time: UNIX_EPOCH + Duration::from_secs(1_795_248_000),
                source: source.source.clone(),
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

fn event(source: &Streaming, kind: &topstat_kernel::EventKind, seq: u64, look: u64, lossy: bool) -> Event {
    let shown = Arc::new(kind.shown(&source.source));
    let field = |column: &topstat_model::Column| match (column.kind, &*column.name) {
        (_, "container" | "tid" | "error" | "signal" | "dumped") => Field::None,
        (_, "comm") => "odd \x1b[31m\"name\"".into(),
        (ColumnKind::Address, _) => Field::Ip("10.0.0.1".parse().unwrap()),
        (ColumnKind::Port, _) => Field::U64(440 + look),
        (ColumnKind::Pid | ColumnKind::Id, _) => Field::U64(1000 * look + 7),
        (ColumnKind::Text, name) => name.into(),
        (ColumnKind::Path, _) => "/system.slice/nginx.service".into(),
    };
    let payload = kind.payload.map(|payload| Payload {
        bytes: if payload.list { b"one\0two words\0\x1b[31m\0".to_vec() } else { b"GET /\r\n\xff".to_vec() },
        whole: if lossy {
            4000
        } else if payload.list {
            20
        } else {
            8
        },
        cut: lossy,
        fault: false,
    });
    Event {
        // 2026-11-21T08:00:00.000Z, and a microsecond for each.
        time: UNIX_EPOCH + Duration::from_secs(1_795_248_000) + Duration::from_nanos(1000 * seq + look),
        cpu: 1,
        seq,
        fields: shown.columns.iter().map(field).collect(),
        kind: shown,
        payload,
        late: lossy && look == 2,
    }
}
