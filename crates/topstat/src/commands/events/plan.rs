// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plan of `topstat events`: its sources, filters and options, validated.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use topstat_kernel::Streaming;
use topstat_kernel::events::{Capture, Consuming, Options, kinds_of_top, sources};
use topstat_model::events::EventKind;
use topstat_model::filter::{Fault, Filter};
use topstat_model::typeset::escape;

use super::choice::Choice;
use super::tops::Tops;
use crate::args::ListFormat;
use crate::args::events::{Direction, EventsArgs};
use crate::error::Error;
use crate::recording::Limits;
use crate::suggest;

/// The validated arguments.
pub struct Plan {
    pub sources: Vec<Arc<Streaming>>,
    pub tops: Tops,
    pub kinds: Vec<Arc<EventKind>>,
    pub choice: Choice,
    pub options: Options,
    pub format: ListFormat,
    pub count: Option<u64>,
    pub time: Option<Duration>,
    pub record: Option<Record>,
}

/// Where and how events are recorded.
pub struct Record {
    pub path: PathBuf,
    pub limits: Limits,
    /// Events are recorded only, not shown.
    pub quiet: bool,
}

/// The number of finished files that are kept besides the file that is written, unless `--keep` gives another number.
const KEEP: u32 = 10;

impl Record {
    fn new(args: &EventsArgs) -> Result<Option<Self>, Error> {
        let limits = Limits {
            bytes: args.rotate_size.map(|mib| mib << 20),
            age: args.rotate_age,
            keep: args.keep.unwrap_or(KEEP),
        };
        let Some(path) = args.record.clone() else {
            let asked = args.quiet || args.keep.is_some() || limits.bytes.is_some() || limits.age.is_some();
            let why = "--quiet, --rotate-size, --rotate-age and --keep are of a recording: give --record FILE, too";
            return if asked { Err(Error::Usage(why.to_owned())) } else { Ok(None) };
        };
        Ok(Some(Self { path, limits, quiet: args.quiet }))
    }

    /// The error text for a recording that cannot be made.
    pub fn cannot(&self, why: &std::io::Error) -> String {
        let advice = match why.kind() {
            std::io::ErrorKind::AlreadyExists => "; a recording is not written over: remove it, or choose another name",
            _ => "",
        };
        format!("cannot record to {}: {why}{advice}", escape(&self.path.display().to_string()))
    }
}

/// Parses all filters of a command line.
pub fn parse_filters(texts: &[String]) -> Result<Vec<Filter>, Error> {
    let parse = |text: &String| text.parse().map_err(|fault| wrong_filter(text, &fault));
    texts.iter().map(parse).collect()
}

/// The error for a filter that cannot be used.
pub fn wrong_filter(text: &str, fault: &Fault) -> Error {
    Error::Usage(format!("cannot use the filter '{}': {fault}", escape(text)))
}

impl Plan {
    /// Validates the parsed arguments.
    pub fn new(args: &EventsArgs) -> Result<Self, Error> {
        let (tables, names): (Vec<_>, Vec<_>) = args.sources.iter().partition(|name| name.contains('/'));
        let tops = Tops::new(args, &tables)?;
        // Where only tables are named, no other source is read.
        let sources = if names.is_empty() && !tables.is_empty() { Vec::new() } else { wanted(&names)? };
        let filters = parse_filters(&args.filters)?;
        let kinds: Vec<_> = sources
            .iter()
            .flat_map(|source| source.kinds.iter().map(|kind| kind.shown(&source.source)))
            .chain(tops.tables().flat_map(|table| kinds_of_top(table).map(|kind| kind.shown(&table.path()))))
            .map(Arc::new)
            .collect();
        for filter in &filters {
            Choice::new(std::slice::from_ref(filter), &kinds).map_err(|fault| wrong_filter(filter.text(), &fault))?;
        }
        let choice = Choice::new(&filters, &kinds).map_err(|fault| wrong_filter("", &fault))?;
        let usual = Consuming::default();
        let consuming = Consuming {
            target_percent: args.target.unwrap_or(usual.target_percent),
            cut_percent: usual.cut_percent.filter(|_| !args.whole),
            real_time: args.real_time,
            ..usual
        };
        let usual = Options::default();
        let ring_bytes = args.buffer.map_or(usual.ring_bytes, |kib| kib << 10);
        let options = Options { ring_bytes, consuming, capture: capture(args, &sources)? };
        let record = Record::new(args)?;
        let (format, count, time) = (args.output, args.count, args.time);
        Ok(Self { sources, tops, kinds, choice, options, format, count, time, record })
    }
}

/// The options of a capture. They are an error where no source is a capture.
fn capture(args: &EventsArgs, sources: &[Arc<Streaming>]) -> Result<Capture, Error> {
    let usual = Capture::default();
    let wanted = Capture {
        pids: args.pid.clone(),
        comm: args.comm.clone(),
        cgroup: args.cgroup.clone(),
        calls: args.call.clone(),
        out: args.direction.map(|direction| direction == Direction::Out),
        snaplen: args.snaplen.unwrap_or(usual.snaplen),
    };
    if wanted != usual && !sources.iter().any(|source| source.asked) {
        let why = "--pid, --comm, --cgroup, --call, --direction and --snaplen choose what is captured: name the source \
                   capture, or use --filter";
        return Err(Error::Usage(why.to_owned()));
    }
    Ok(wanted)
}

/// The sources of these names, each once. Without names: all sources that do not have to be named.
fn wanted(names: &[&String]) -> Result<Vec<Arc<Streaming>>, Error> {
    let all = sources(topstat_families::catalogue());
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|source| source.source != ***name)) {
        let known: Vec<_> = all.iter().map(|source| source.source.as_str()).collect();
        let known = suggest::either(&known).replace(" or ", " and ");
        return Err(Error::Usage(format!(
            "there are no events of '{}', but of {known}, and of the top of each table (SAMPLE/TABLE)",
            escape(unknown)
        )));
    }
    let is_wanted =
        |source: &&Arc<Streaming>| if names.is_empty() { !source.asked } else { names.contains(&&source.source) };
    Ok(all.iter().filter(is_wanted).cloned().collect())
}
