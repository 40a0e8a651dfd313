// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where an event's program is attached.

use libbpf_sys::{
    PERF_COUNT_HW_BRANCH_MISSES, PERF_COUNT_HW_CACHE_MISSES, PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS,
    PERF_COUNT_SW_CONTEXT_SWITCHES, PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_CPU_MIGRATIONS, PERF_COUNT_SW_PAGE_FAULTS,
    PERF_COUNT_SW_PAGE_FAULTS_MAJ, PERF_COUNT_SW_PAGE_FAULTS_MIN, PERF_COUNT_SW_TASK_CLOCK, PERF_TYPE_HARDWARE,
    PERF_TYPE_SOFTWARE,
};
use topstat_model::Unit;
use topstat_model::definition::EventKind;

use super::resolve::{file, usdt};
use topstat_kernel::clock::online_cpus;
use topstat_kernel::hooks::{Hook, Place};

/// A counter of `perf_event_open`.
pub struct Counter {
    name: &'static str,
    kind: u32,
    config: u64,
    /// The period, unless the definition has one: some hundred samples a second of a busy CPU, or each event.
    period: u64,
    pub unit: Unit,
}

const fn counter(name: &'static str, kind: u32, config: u32, period: u64, unit: Unit) -> Counter {
    Counter { name, kind, config: config as u64, period, unit }
}

const SOFTWARE: u32 = PERF_TYPE_SOFTWARE;
const HARDWARE: u32 = PERF_TYPE_HARDWARE;
const CLOCK_NS: u64 = 10_000_000;
const EACH: u64 = 1;
const MANY: u64 = 1_000_000;

const COUNTERS: [Counter; 11] = [
    counter("cpu-clock", SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, CLOCK_NS, Unit::Nanoseconds),
    counter("task-clock", SOFTWARE, PERF_COUNT_SW_TASK_CLOCK, CLOCK_NS, Unit::Nanoseconds),
    counter("page-faults", SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS, EACH, Unit::Count),
    counter("minor-faults", SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MIN, EACH, Unit::Count),
    counter("major-faults", SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MAJ, EACH, Unit::Count),
    counter("context-switches", SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES, EACH, Unit::Count),
    counter("cpu-migrations", SOFTWARE, PERF_COUNT_SW_CPU_MIGRATIONS, EACH, Unit::Count),
    counter("cycles", HARDWARE, PERF_COUNT_HW_CPU_CYCLES, MANY, Unit::Count),
    counter("instructions", HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, MANY, Unit::Count),
    counter("cache-misses", HARDWARE, PERF_COUNT_HW_CACHE_MISSES, MANY / 100, Unit::Count),
    counter("branch-misses", HARDWARE, PERF_COUNT_HW_BRANCH_MISSES, MANY / 100, Unit::Count),
];

/// The counter of this name.
///
/// # Errors
/// There is none, in the words for the user.
pub fn counter_of(name: &str) -> Result<&'static Counter, String> {
    COUNTERS.iter().find(|counter| counter.name == name).ok_or_else(|| {
        let all: Vec<_> = COUNTERS.iter().map(|counter| counter.name).collect();
        format!("there is no counter {name}; there are {}", all.join(", "))
    })
}

/// The counter of an event, and the amount that each of its samples stands for.
pub fn sampled(event: &EventKind) -> Option<(&'static Counter, u64)> {
    let EventKind::Perf { name, period } = event else { return None };
    let counter = counter_of(name).ok()?;
    Some((counter, period.unwrap_or(counter.period)))
}

/// The hooks of a program at an event: one, or one for each CPU.
///
/// # Errors
/// There is no event of this name, in the words for the user.
pub fn hooks(program: &str, event: &EventKind) -> Result<Vec<Hook>, String> {
    let title = event.to_string();
    let place = match event {
        EventKind::Tracepoint { group, name } => Place::Tracepoint { group: group.clone(), name: name.clone() },
        EventKind::Btf { name } => Place::Btf(name.clone()),
        EventKind::Kprobe { function, at_return } => Place::Function { name: function.clone(), at_return: *at_return },
        EventKind::Uprobe { path, function, offset, at_return } => Place::User {
            path: file::of(path)?,
            function: Some(function.clone()),
            offset: usize::try_from(*offset).map_err(|_| format!("+{offset:#x} is no offset in a function"))?,
            at_return: *at_return,
            semaphore: 0,
        },
        EventKind::Usdt { path, provider, name } => {
            let file = file::of(path)?;
            let at = |place: usdt::At| Place::User {
                path: file.clone(),
                function: None,
                offset: place.offset,
                at_return: false,
                semaphore: place.semaphore,
            };
            let probe = usdt::Probe::open(path, provider, name)?;
            return Ok(probe.places.into_iter().map(|place| Hook::at(program, at(place), &title)).collect());
        }
        EventKind::Perf { name, .. } => {
            let counter = counter_of(name)?;
            let (_, period) = sampled(event).unwrap_or((counter, counter.period));
            let cpus = online_cpus().map_err(|e| e.to_string())?;
            let at = |cpu| Place::Counter { kind: counter.kind, config: counter.config, period, cpu };
            return Ok(cpus.into_iter().map(|cpu| Hook::at(program, at(cpu), &title)).collect());
        }
    };
    Ok(vec![Hook::at(program, place, &title)])
}
