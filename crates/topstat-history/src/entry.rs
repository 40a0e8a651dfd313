// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A line of a log: a snapshot, or a gap.
//!
//! A snapshot's line is the document of `topstat top -o json`. A gap's line has `time`, `sample` and `table` as a document has.
//! Instead of the other fields it says since when records are missing before that time, and the reason:
//!
//! ```json
//! {"time":"2026-11-21T08:00:00.000Z","sample":"tcp_v4","table":"conns_pps",
//!  "gap":{"from":"2026-11-21T07:12:40.000Z","reason":"the recorder did not run"}}
//! ```

use std::path::PathBuf;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use topstat_model::document::{self, Shape};
use topstat_model::{Snapshot, json, rfc3339};

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A snapshot.
    Snapshot(Box<Snapshot>),
    /// There is no snapshot of this time.
    Gap(Gap),
}

/// A time without records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Its end: the time of the record that follows.
    pub time: SystemTime,
    /// The time of the last record before it.
    pub from: SystemTime,
    /// The reason.
    pub reason: String,
    /// The file that could not be read, if that is the reason. It is not written to the log.
    pub unread: Option<PathBuf>,
}

/// Finds the types of a table's columns by the names of its sample and of the table.
pub type Shapes<'a> = &'a dyn Fn(&str, &str) -> Option<Shape>;

#[derive(Serialize, Deserialize)]
struct GapLine {
    time: String,
    sample: String,
    table: String,
    gap: GapPart,
}

#[derive(Serialize, Deserialize)]
struct GapPart {
    from: String,
    reason: String,
}

impl Entry {
    /// The time of the record; of a gap, its end.
    pub fn time(&self) -> SystemTime {
        match self {
            Self::Snapshot(snapshot) => snapshot.time,
            Self::Gap(gap) => gap.time,
        }
    }

    /// The snapshot, if it is one.
    pub fn snapshot(self) -> Option<Snapshot> {
        match self {
            Self::Snapshot(snapshot) => Some(*snapshot),
            Self::Gap(_) => None,
        }
    }

    /// Reads a line.
    ///
    /// # Errors
    ///
    /// The reason why this version can't read it.
    pub fn read(line: &[u8], shapes: Shapes<'_>) -> Result<Self, String> {
        let wrong = match document::read(line, shapes) {
            // Logs have no checksum: the sums find most damage that zstd and JSON let through.
            Ok(snapshot) => match snapshot.check_sums() {
                Ok(()) => return Ok(Self::Snapshot(Box::new(snapshot))),
                Err(fault) => return Err(fault.to_string()),
            },
            Err(wrong) => wrong.to_string(),
        };
        let Ok(line) = serde_json::from_slice::<GapLine>(line) else { return Err(wrong) };
        let (Some(time), Some(from)) = (document::time(&line.time), document::time(&line.gap.from)) else {
            return Err("the times of a gap are wrong".to_owned());
        };
        Ok(Self::Gap(Gap { time, from, reason: line.gap.reason, unread: None }))
    }
}

impl Gap {
    /// Its line, in the log of this table.
    pub fn line(&self, sample: &str, table: &str) -> Vec<u8> {
        let gap = GapPart { from: rfc3339(self.from), reason: self.reason.clone() };
        let line = GapLine { time: rfc3339(self.time), sample: sample.to_owned(), table: table.to_owned(), gap };
        let mut written = Vec::new();
        json::line(&line, &mut written).expect("texts under texts are JSON");
        written
    }
}

/// The time at the beginning of a line. The rest of the line is not read.
pub fn time_of(line: &[u8]) -> Option<SystemTime> {
    const BEFORE: &[u8] = br#"{"time":""#;
    let text = line.strip_prefix(BEFORE)?;
    let end = text.iter().position(|byte| *byte == b'"')?;
    document::time(std::str::from_utf8(&text[..end]).ok()?)
}
