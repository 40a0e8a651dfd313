// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat top --at` and `--from`: the tops of the past, from the records of `topstat record`.

use std::path::Path;
use std::time::{Duration, SystemTime};

use topstat_history::{Around, Entry, Gap, Grain, History, Place};
use topstat_kernel::TableInfo;
use topstat_model::{Snapshot, rfc3339};

use super::one_ranking;
use super::selection::Selection;
use crate::args::record::PastArgs;
use crate::args::{ColorWhen, TopArgs};
use crate::commands::record;
use crate::console::Console;
use crate::error::{Error, Exit};
use crate::output::Output;
use crate::view::{View, catch_signals};
use crate::{instant, resolve};

pub fn run(args: &TopArgs, name: &str, color: ColorWhen, console: &mut dyn Console) -> Result<Exit, Error> {
    for (option, given) in [
        ("--period", args.period.is_some()),
        ("--delay", args.delay.is_some()),
        ("--top", args.top.is_some()),
        ("--threads", args.threads),
        ("--private", args.private),
        ("--netns", args.netns.is_some()),
        ("--by", args.by.is_some()),
        ("--depth", args.depth.is_some()),
        ("--root", args.root.is_some()),
    ] {
        if given {
            return Err(Error::Usage(format!("{option} is for what is counted now: the past stays as it is")));
        }
    }
    let when = When::new(args, SystemTime::now())?;
    let tables = resolve::tables(&topstat_families::catalogue().samples(), name, args.choice.only)?;
    let mut output = Output::new((None, Some(1)), args.output, color, console.facts());
    output.in_place = false;
    catch_signals(&output, console)?;
    let history = History::open(args.past.dir()).map_err(|error| no_history(args.past.dir(), &error))?;
    let mut shown = Shown {
        selection: Selection::new(args, &tables)?,
        left: args.count,
        view: View::new(output, true),
        exit: Exit::Done,
        console,
    };
    let (mut found, mut at) = (false, Vec::new());
    for table in &tables {
        let Some(place) = place(&history, table, &args.past)? else { continue };
        found = true;
        if place.host != record::host() {
            shown.console.note(&format!("topstat: these are records of {place}"));
        }
        match &when {
            When::At(time) => at.extend(take_at(&history, &place, *time, &mut shown)?),
            When::Range(range) => range.show(&history, &place, &mut shown)?,
        }
    }
    for snapshot in one_ranking(name, at) {
        shown.snapshot(snapshot)?;
    }
    if found {
        Ok(shown.exit)
    } else {
        Err(Error::Daemon(format!("there are no records of {} in {}", name, history.root().display())))
    }
}

fn no_history(dir: &Path, error: &topstat_history::Error) -> Error {
    let advice = match error.source.kind() {
        std::io::ErrorKind::NotFound => "; topstat record makes records, and --history says where they are",
        std::io::ErrorKind::PermissionDenied => "; only their owner may: the user as whom topstat record runs",
        _ => "",
    };
    Error::Daemon(format!("cannot read records in {}: {}{advice}", dir.display(), error.source))
}

/// The place of a table's records: on the named host, on this host, or on the only host with records.
fn place(history: &History, table: &TableInfo, args: &PastArgs) -> Result<Option<Place>, Error> {
    let of_table = |place: &&Place| place.sample == table.sample && place.table == table.name;
    let places: Vec<_> = history.places().iter().filter(of_table).collect();
    let own = record::host();
    let wanted = args.recorded_on.as_deref().unwrap_or(&own);
    let found = places.iter().find(|place| place.host == wanted).copied();
    match (found, &places[..]) {
        (Some(place), _) => Ok(Some(place.clone())),
        (None, [only]) if args.recorded_on.is_none() => Ok(Some((*only).clone())),
        (None, []) => Ok(None),
        (None, several) => {
            let hosts: Vec<_> = several.iter().map(|place| place.host.as_str()).collect();
            Err(Error::Usage(format!(
                "there are no records of host {wanted}: name one with --recorded-on, of {}",
                hosts.join(", ")
            )))
        }
    }
}

/// The times whose records are wanted.
enum When {
    At(SystemTime),
    Range(Range),
}

struct Range {
    from: SystemTime,
    to: SystemTime,
    every: Option<Duration>,
}

impl When {
    fn new(args: &TopArgs, now: SystemTime) -> Result<Self, Error> {
        let time = |option: &str, text: &str| {
            instant::parse(text, now).map_err(|wrong| Error::Usage(format!("{option} {text:?}: {wrong}")))
        };
        if let Some(at) = &args.past.at {
            if args.interval.is_some() {
                return Err(Error::Usage("--at shows one instant: use --from with an INTERVAL".to_owned()));
            }
            return Ok(Self::At(time("--at", at)?));
        }
        let from = args.past.from.as_deref().map_or(Ok(now), |from| time("--from", from))?;
        let to = args.past.to.as_deref().map_or(Ok(now), |to| time("--to", to))?;
        if from > to {
            return Err(Error::Usage(format!(
                "--from is {} and --to {}, which is before it",
                rfc3339(from),
                rfc3339(to)
            )));
        }
        Ok(Self::Range(Range { from, to, every: args.interval }))
    }
}

impl Range {
    fn show(&self, history: &History, place: &Place, shown: &mut Shown<'_>) -> Result<(), Error> {
        let &Self { from, to, every } = self;
        let grain = Grain::of(to.duration_since(from).unwrap_or_default(), every);
        let (mut next, mut result, mut covered) = (from, Ok(()), None);
        history.range(place, (from, to), grain, &resolve::shape, &mut |entry| {
            match entry {
                Entry::Gap(gap) => shown.gap(place, &gap),
                Entry::Snapshot(snapshot) if snapshot.time >= next => {
                    let (number, first, _) = covered.unwrap_or((0_u64, snapshot.time, snapshot.time));
                    covered = Some((number + 1, first, snapshot.time));
                    next = every.map_or(snapshot.time, |every| after(next, snapshot.time, every));
                    result = shown.snapshot(*snapshot);
                }
                Entry::Snapshot(_) => {}
            }
            result.is_ok() && shown.left != Some(0)
        })?;
        if result.is_ok() {
            let path = place.path();
            shown.console.note(&match covered {
                None => format!("topstat: there are no records of {path} from {} to {}", rfc3339(from), rfc3339(to)),
                Some((1, first, _)) => format!("topstat: one record of {path}, of {}", rfc3339(first)),
                Some((number, first, last)) => {
                    format!("topstat: {number} records of {path}, from {} to {}", rfc3339(first), rfc3339(last))
                }
            });
        }
        result
    }
}

/// The first of the instants `first`, `first + every`, … that is later than `time`.
fn after(first: SystemTime, time: SystemTime, every: Duration) -> SystemTime {
    let late = time.duration_since(first).unwrap_or_default();
    let missed = late.as_nanos() / every.as_nanos().max(1);
    first + every * u32::try_from(missed + 1).unwrap_or(u32::MAX)
}

/// The record of an instant. `None`: nothing was recorded then, which is said.
fn take_at(
    history: &History,
    place: &Place,
    time: SystemTime,
    shown: &mut Shown<'_>,
) -> Result<Option<Snapshot>, Error> {
    let Around { before, gap, after } = history.around(place, time, &resolve::shape)?;
    let ago = |record: SystemTime| time.duration_since(record).unwrap_or_default();
    match (before, gap) {
        (before, Some(gap)) => {
            shown.gap(place, &gap);
            let before = before.map(|before| rfc3339(before.time));
            let nearest: Vec<_> = before.into_iter().chain(after.map(rfc3339)).collect();
            if !nearest.is_empty() {
                shown.console.note(&format!("topstat: the nearest records are of {}", nearest.join(" and ")));
            }
            shown.exit = Exit::Failed;
            Ok(None)
        }
        (Some(last), None)
            if after.is_none() && ago(last.time) > history.late(place, last.time, &resolve::shape)? =>
        {
            shown.console.note(&format!(
                "topstat: nothing of {} was recorded at {}; the nearest record is of {}, {} s before",
                place.path(),
                rfc3339(time),
                rfc3339(last.time),
                ago(last.time).as_secs()
            ));
            shown.exit = Exit::Failed;
            Ok(None)
        }
        (Some(snapshot), None) => Ok(Some(*snapshot)),
        (None, None) => {
            let since = history.first(place, &resolve::shape)?;
            let since = since.map(|first| format!(", which begin at {}", rfc3339(first)));
            Err(Error::Daemon(format!(
                "there are no records of {} as old as {}{}",
                place.path(),
                rfc3339(time),
                since.unwrap_or_default()
            )))
        }
    }
}

/// The output of records.
struct Shown<'a> {
    selection: Selection,
    /// The number of records that are still wanted; `None`: no limit.
    left: Option<u64>,
    view: View,
    exit: Exit,
    console: &'a mut dyn Console,
}

impl Shown<'_> {
    fn snapshot(&mut self, mut snapshot: Snapshot) -> Result<(), Error> {
        self.selection.apply(&mut snapshot)?;
        self.left = self.left.map(|left| left.saturating_sub(1));
        self.view.show(&[&snapshot], self.console)
    }

    fn gap(&mut self, place: &Place, gap: &Gap) {
        let (from, to) = (rfc3339(gap.from), rfc3339(gap.time));
        let path = place.path();
        let what = if gap.unread.is_some() { "can be read" } else { "was recorded" };
        self.console.note(&format!("topstat: nothing of {path} {what} from {from} to {to}: {}", gap.reason));
        if gap.unread.is_some() {
            self.exit = Exit::Failed;
        }
    }
}
