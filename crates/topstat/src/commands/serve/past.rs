// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The records of `topstat record`, as what is served.

use std::io;
use std::path::Path;
use std::time::SystemTime;

use topstat_history::{Entry, Gap, Grain, History, Place};
use topstat_model::rfc3339;
use topstat_serve::{Fault, Record};

use crate::commands::record;
use crate::resolve;

/// The record of an instant.
pub fn at(dir: &Path, table: &str, time: SystemTime) -> Result<Record, Fault> {
    let (history, place) = open(dir, table)?;
    let around = history.around(&place, time, &resolve::shape).map_err(|error| failed(dir, &error))?;
    let is_late = |last: SystemTime| {
        let late = history.late(&place, last, &resolve::shape).map_err(|error| failed(dir, &error));
        late.map(|late| time.duration_since(last).unwrap_or_default() > late)
    };
    match (around.before, around.gap) {
        (_, Some(gap)) => Ok(of_gap(gap)),
        (Some(last), None) if around.after.is_none() && is_late(last.time)? => {
            let (then, last) = (rfc3339(time), rfc3339(last.time));
            Err(Fault::Missing(format!("nothing of {table} was recorded at {then}; the last record is of {last}")))
        }
        (Some(snapshot), None) => Ok(Record::Snapshot(snapshot)),
        (None, None) => Err(Fault::Missing(format!("there are no records of {table} as old as {}", rfc3339(time)))),
    }
}

/// The records of a time.
pub fn range(
    dir: &Path,
    table: &str,
    (from, to): (SystemTime, SystemTime),
    each: &mut dyn FnMut(Record) -> bool,
) -> Result<(), Fault> {
    let (history, place) = open(dir, table)?;
    let grain = Grain::of(to.duration_since(from).unwrap_or_default(), None);
    let mut each = |entry| {
        each(match entry {
            Entry::Snapshot(snapshot) => Record::Snapshot(snapshot),
            Entry::Gap(gap) => of_gap(gap),
        })
    };
    history.range(&place, (from, to), grain, &resolve::shape, &mut each).map_err(|error| failed(dir, &error))
}

fn of_gap(Gap { time, from, reason, .. }: Gap) -> Record {
    Record::Gap { from, to: time, reason }
}

/// The history, and the place of a table in it: of this host, or of the only host with records.
fn open(dir: &Path, table: &str) -> Result<(History, Place), Fault> {
    let history = History::open(dir).map_err(|error| failed(dir, &error))?;
    let places: Vec<_> = history.places().iter().filter(|place| place.path() == table).collect();
    let own = record::host();
    let place = match (places.iter().find(|place| place.host == own), &places[..]) {
        (Some(place), _) | (None, [place]) => Place::clone(place),
        (None, []) => return Err(Fault::Missing(format!("there are no records of {table} in {}", dir.display()))),
        (None, _) => return Err(Fault::Missing(format!("there are records of several hosts, and none of {own}"))),
    };
    Ok((history, place))
}

fn failed(dir: &Path, error: &topstat_history::Error) -> Fault {
    let advice = match error.source.kind() {
        io::ErrorKind::NotFound => "; topstat record makes records, and --history says where they are",
        io::ErrorKind::PermissionDenied => "; let this user's group read them (docs/serve.md)",
        _ => "",
    };
    let why = format!("cannot read records in {}: {}{advice}", dir.display(), error.source);
    // A host that records nothing has no history; that is no failure.
    if error.source.kind() == io::ErrorKind::NotFound { Fault::Missing(why) } else { Fault::Unavailable(why) }
}
