// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A reading as JSON: one document per line. `docs/snmp.md` describes it.

use std::io;

use serde::Serialize;
use serde::ser::SerializeMap;

use super::{Choice, Counter, CounterKind, Counters, Picture, Scope, Source, rate};
use crate::time::rfc3339;

#[derive(Serialize)]
struct Document<'a> {
    time: String,
    elapsed_ns: Option<u64>,
    source: &'static str,
    why: Option<&'a str>,
    cpus: &'a [u32],
    scopes: Vec<ScopeView<'a>>,
    lost: LostView<'a>,
}

#[derive(Serialize)]
struct LostView<'a> {
    beyond: u64,
    unreadable: u64,
    unknown: &'a [String],
}

#[derive(Serialize)]
struct ScopeView<'a> {
    netns: u32,
    name: Option<&'a str>,
    device: Option<&'a str>,
    hidden: usize,
    samples: Samples<'a>,
}

/// `{"snmp_tcp":{"InSegs":{…}}}`
struct Samples<'a>(Vec<(&'static str, Vec<CounterView<'a>>)>);

struct CounterView<'a> {
    name: &'a str,
    view: View<'a>,
}

#[derive(Serialize)]
struct View<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    gauge: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus: Option<&'a [u64]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_changes: Option<Vec<u64>>,
}

impl Serialize for Samples<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut samples = serializer.serialize_map(Some(self.0.len()))?;
        for (name, counters) in &self.0 {
            samples.serialize_entry(&format!("snmp_{name}"), &Views(counters))?;
        }
        samples.end()
    }
}

struct Views<'a>(&'a [CounterView<'a>]);

impl Serialize for Views<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|counter| (counter.name, &counter.view)))
    }
}

/// Appends a reading as a line of JSON.
pub fn write(picture: &Picture, written: &mut Vec<u8>) -> io::Result<()> {
    let Picture { counters, choice, cpus } = *picture;
    let (source, why) = match &counters.source {
        Source::Arrays => ("arrays", None),
        Source::Proc(why) => ("proc", Some(why.as_str())),
    };
    let document = Document {
        time: rfc3339(counters.time),
        elapsed_ns: counters.elapsed.map(|elapsed| u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)),
        source,
        why,
        cpus: if cpus { &counters.cpus } else { &[] },
        scopes: counters.scopes.iter().map(|scope| view(counters, scope, choice, cpus)).collect(),
        lost: LostView {
            beyond: counters.lost.beyond,
            unreadable: counters.lost.unreadable,
            unknown: &counters.lost.unknown,
        },
    };
    crate::json::line(&document, written)
}

fn view<'a>(counters: &Counters, scope: &'a Scope, choice: &Choice, cpus: bool) -> ScopeView<'a> {
    let (lines, hidden) = choice.lines(scope);
    let mut samples: Vec<(&'static str, Vec<CounterView>)> = Vec::new();
    for (protocol, counter) in lines {
        let counter = CounterView { name: &counter.name, view: counter_view(counters, counter, cpus) };
        match samples.iter_mut().find(|(name, _)| *name == protocol) {
            Some((_, of)) => of.push(counter),
            None => samples.push((protocol, vec![counter])),
        }
    }
    ScopeView {
        netns: scope.netns,
        name: scope.name.as_deref(),
        device: scope.device.as_deref(),
        hidden,
        samples: Samples(samples),
    }
}

fn counter_view<'a>(counters: &Counters, counter: &'a Counter, cpus: bool) -> View<'a> {
    let gauge = counter.kind == CounterKind::Gauge;
    let change = counter.change();
    let parts = cpus && !gauge && !counter.now.cpus.is_empty();
    View {
        gauge: gauge.then(|| counter.level()),
        total: (!gauge).then_some(counter.now.all),
        change,
        per_second: change.zip(counters.elapsed).map(|(change, elapsed)| rate(change, elapsed)),
        cpus: parts.then_some(&counter.now.cpus),
        cpu_changes: if parts { counter.cpu_changes() } else { None },
    }
}
