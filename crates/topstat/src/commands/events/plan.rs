// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `events` is to do: which sources there are, whether filters parse.

use std::sync::Arc;
use std::time::Duration;

use topstat_kernel::Streaming;
use topstat_kernel::events::{Consuming, Options, sources};
use topstat_model::filter::{Fault, Filter};
use topstat_model::typeset::escape;

use super::choice::Choice;
use crate::args::ListFormat;
use crate::args::events::EventsArgs;
use crate::error::Error;
use crate::suggest;

/// What is to be done.
pub struct Plan {
    pub sources: Vec<Arc<Streaming>>,
    pub choice: Choice,
    pub options: Options,
    pub format: ListFormat,
    pub count: Option<u64>,
    pub time: Option<Duration>,
}

impl Plan {
    /// Validates what was parsed.
    pub fn new(args: &EventsArgs) -> Result<Self, Error> {
        let sources = wanted(&args.sources)?;
        let wrong =
            |text: &str, fault: &Fault| Error::Usage(format!("cannot use the filter '{}': {fault}", escape(text)));
        let parse = |text: &String| text.parse::<Filter>().map_err(|fault| wrong(text, &fault));
        let filters = args.filters.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        for filter in &filters {
            Choice::new(std::slice::from_ref(filter), &sources).map_err(|fault| wrong(filter.text(), &fault))?;
        }
        let choice = Choice::new(&filters, &sources).map_err(|fault| Error::Usage(fault.to_string()))?;
        let usual = Consuming::default();
        let consuming = Consuming {
            strategy: args.strategy,
            target_percent: args.target.unwrap_or(usual.target_percent),
            cut_percent: usual.cut_percent.filter(|_| !args.whole),
            real_time: args.real_time,
            ..usual
        };
        let usual = Options::default();
        let ring_bytes = args.buffer.map_or(usual.ring_bytes, |kib| kib << 10);
        let options = Options { ring_bytes, consuming };
        Ok(Self { sources, choice, options, format: args.output, count: args.count, time: args.time })
    }
}

/// The sources of these names, each once; all, if there are none.
fn wanted(names: &[String]) -> Result<Vec<Arc<Streaming>>, Error> {
    let all = sources();
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|source| source.source != **name)) {
        let known: Vec<_> = all.iter().map(|source| source.source.as_str()).collect();
        let known = suggest::either(&known).replace(" or ", " and ");
        return Err(Error::Usage(format!("there are no events of '{}', but of {known}", escape(unknown))));
    }
    let is_wanted = |source: &&Arc<Streaming>| names.is_empty() || names.contains(&source.source);
    Ok(all.iter().filter(is_wanted).cloned().collect())
}
