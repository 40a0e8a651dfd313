// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which events are shown.

use std::sync::Arc;

use topstat_model::Field;
use topstat_model::events::{Event, EventKind};
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
    /// Resolves the filters for each of these kinds of events.
    pub fn new(filters: &[Filter], kinds: &[Arc<EventKind>]) -> Result<Self, Fault> {
        let of_all: Vec<_> = kinds.iter().flat_map(|kind| kind.keys()).collect();
        filters.iter().try_for_each(|filter| filter.check(&of_all))?;
        let resolved = |kind: &Arc<EventKind>| {
            let filters = filters.iter().map(|filter| filter.resolve(&kind.keys()));
            Ok(Kind {
                source: kind.source.as_str().into(),
                event: kind.event.as_str().into(),
                filters: filters.collect::<Result<_, _>>()?,
            })
        };
        Ok(Self { kinds: kinds.iter().map(resolved).collect::<Result<_, _>>()? })
    }

    pub fn matches(&self, event: &Event) -> bool {
        let is = |field: &Field, name: &str| matches!(field, Field::Text(text) if text == name);
        let of = |kind: &&Kind| is(&kind.event, &event.kind.event) && is(&kind.source, &event.kind.source);
        // An event of an unknown kind passes all filters.
        let Some(kind) = self.kinds.iter().find(of) else { return true };
        if kind.filters.is_empty() {
            return true;
        }
        let cpu = Field::from(event.cpu);
        let fields: Vec<&Field> = [&kind.source, &kind.event, &cpu].into_iter().chain(&event.fields).collect();
        kind.filters.iter().all(|filter| filter.matches(&fields))
    }
}
