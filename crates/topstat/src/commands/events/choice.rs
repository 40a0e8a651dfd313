// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which events are shown.

use std::sync::Arc;

use topstat_kernel::Streaming;
use topstat_kernel::events::keys;
use topstat_model::Field;
use topstat_model::events::Event;
use topstat_model::filter::{Fault, Filter, Resolved};

/// The filters of a command line, for each kind of events.
pub struct Choice {
    kinds: Vec<Kind>,
}

struct Kind {
    source: Field,
    event: Field,
    filters: Vec<Resolved>,
}

impl Choice {
    /// For these sources.
    pub fn new(filters: &[Filter], sources: &[Arc<Streaming>]) -> Result<Self, Fault> {
        let of_all: Vec<_> = sources.iter().flat_map(|source| &source.kinds).flat_map(keys).collect();
        filters.iter().try_for_each(|filter| filter.check(&of_all))?;
        let mut kinds = Vec::new();
        for source in sources {
            for kind in &source.kinds {
                let filters = filters.iter().map(|filter| filter.resolve(&keys(kind)));
                kinds.push(Kind {
                    source: source.source.as_str().into(),
                    event: kind.name.into(),
                    filters: filters.collect::<Result<_, _>>()?,
                });
            }
        }
        Ok(Self { kinds })
    }

    pub fn matches(&self, event: &Event) -> bool {
        let is = |field: &Field, name: &str| matches!(field, Field::Text(text) if text == name);
        let of = |kind: &&Kind| is(&kind.source, &event.kind.source) && is(&kind.event, &event.kind.event);
        // Of a kind that is not known nothing can be asked for.
        let Some(kind) = self.kinds.iter().find(of) else { return true };
        if kind.filters.is_empty() {
            return true;
        }
        let cpu = Field::from(event.cpu);
        let fields: Vec<&Field> = [&kind.source, &kind.event, &cpu].into_iter().chain(&event.fields).collect();
        kind.filters.iter().all(|filter| filter.matches(&fields))
    }
}
