// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The library of tables: which of them this kernel can have. The `library_` modules beside this one compare tables with what the
//! kernel and the tests themselves have counted.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use topstat_families::custom::{self, System};
use topstat_kernel::Source;
use topstat_live::watch::{endless, everything, load, snapshot};
use topstat_live::{Case, case, note};
use topstat_model::{Field, definition};

pub fn cases() -> Vec<Case> {
    vec![
        case!(some_tables_of_the_library_load, Root, Tracefs; EveryKernel, Gate),
        case!(every_table_of_the_library_loads, Root, Tracefs; EveryKernel, Slow),
    ]
}

/// A table of the library that counts from now on.
pub struct Known {
    name: &'static str,
    path: String,
    source: Box<dyn Source>,
}

/// The sum over some rows of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// In the table's unit. The true sum is between `value` and `most`.
    pub value: u64,
    /// More than `value` only if an amount was refused: two CPUs made the object of a key at one time.
    pub most: u64,
    /// The number of events. A table that counts events has it in `value` alone.
    pub events: u64,
    /// The largest amount of one event.
    pub longest: u64,
    /// Runs of the table's programs that the kernel has skipped: where it preempts one, it skips the others on that CPU.
    pub skipped: u64,
    /// Everything else that the table has lost.
    pub lost: u64,
    /// The value is the number of events.
    pub counts: bool,
}

impl Known {
    /// Loads the table as the library has it. `None`, with a note: this kernel has no event or field of that name.
    pub fn try_load(name: &'static str) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let sample = format!("known_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let (_, text) = entries().into_iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no {name}"));
        let definition = definition::parse(&text).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        if let Err(trouble) = custom::add(&sample, "table", &definition, &System::new()) {
            note(format!("{name}: {trouble:?}"));
            return None;
        }
        let path = format!("{sample}/table");
        let source = load(&[&path], &everything());
        Some(Self { name, path, source })
    }

    pub fn load(name: &'static str) -> Self {
        Self::try_load(name).unwrap_or_else(|| panic!("{name}: not on this kernel"))
    }

    /// The sum of the rows whose columns have these values.
    pub fn sum(&mut self, wanted: &[(&str, Field)]) -> Sum {
        let found = snapshot(&mut *self.source, &self.path);
        let at = |column: &str| found.column(column);
        let named = |column| at(column).unwrap_or_else(|| panic!("{}: no column {column}", self.name));
        let wanted: Vec<_> = wanted.iter().map(|(column, value)| (named(column), value)).collect();
        let lost = found.lost.counters().filter(|(cause, _)| *cause != "skipped").map(|(_, count)| count).sum();
        let counts = at("events").is_none();
        let mut sum = Sum { skipped: found.lost.count("skipped"), lost, counts, ..Sum::default() };
        for row in found.rows.iter().filter(|row| wanted.iter().all(|(column, value)| row.object[*column] == **value)) {
            let number = |column| match at(column).map(|at| &row.object[at]) {
                Some(Field::U64(number)) => *number,
                _ => 0,
            };
            sum.value += row.value;
            sum.most += number("at_most").max(row.value);
            sum.events += number("events");
            sum.longest = sum.longest.max(number("longest"));
        }
        sum
    }

    /// Asserts the sum of the values of these rows. The amount of a skipped event is unknown.
    pub fn has(&mut self, wanted: &[(&str, Field)], truth: RangeInclusive<u64>) {
        let sum = self.sum(wanted);
        let is_all = match sum.counts {
            true => sum.most + sum.skipped >= *truth.start(),
            false => sum.most >= *truth.start() || sum.skipped > 0,
        };
        let right = sum.value <= *truth.end() && is_all;
        assert!(right, "{}: {sum:?} of {wanted:?}, not {truth:?}", self.name);
    }

    /// Asserts the number of events and the sum of their times in ns.
    pub fn took(&mut self, wanted: &[(&str, Field)], events: RangeInclusive<u64>, ns: RangeInclusive<u64>) {
        let sum = self.sum(wanted);
        let is_exact = sum.most == sum.value;
        let least = |least: u64, found: u64| found >= least || !is_exact;
        let right = sum.events <= *events.end() && sum.value <= *ns.end() && sum.longest <= sum.value;
        let right = right && least(*events.start(), sum.events + sum.skipped) && least(*ns.start(), sum.most);
        assert!(right, "{}: {sum:?} of {wanted:?}, not {events:?} in {ns:?} ns", self.name);
    }
}

/// A time in ns.
pub fn ns(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_nanos()).expect("a short time")
}

/// A thread whose name, which tables show as `comm`, no other thread has. Between two pieces of work it waits.
pub struct Worker {
    pub name: String,
    pub tid: u32,
    work: Option<Sender<Box<dyn FnOnce() + Send>>>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a thread whose name begins with `name`, of at most 8 bytes.
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // The kernel keeps 15 bytes.
        let name = format!("{name}{}x{}", std::process::id() % 10_000, COUNT.fetch_add(1, Ordering::Relaxed));
        let (work, received) = channel::<Box<dyn FnOnce() + Send>>();
        let (says, done) = channel();
        let (tells, told) = channel();
        let body = move || {
            tells.send(rustix::thread::gettid().as_raw_pid().unsigned_abs()).expect("the test waits");
            for piece in received {
                piece();
                says.send(()).expect("the test waits");
            }
        };
        let thread = std::thread::Builder::new().name(name.clone()).spawn(body).expect("a thread");
        Self { name, tid: told.recv().expect("the thread runs"), work: Some(work), done, thread: Some(thread) }
    }

    /// Runs `work` on the thread, and waits until it is done.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, result) = channel();
        let piece = Box::new(move || answer.send(work()).expect("the test waits"));
        self.work.as_ref().expect("it runs").send(piece).expect("the thread runs");
        let result = result.recv().expect("the work does not fail");
        self.done.recv().expect("the thread runs");
        result
    }

    /// The column that has the thread's name.
    pub fn comm(&self) -> (&'static str, Field) {
        ("comm", Field::from(self.name.as_str()))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.work.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_none_or(|ended| ended.is_ok()), "the work failed");
    }
}

fn some_tables_of_the_library_load() {
    /// A usual run loads one in this number of tables.
    const STEP: usize = 10;
    library_loads(STEP, 4);
}

fn every_table_of_the_library_loads() {
    library_loads(1, 25);
}

/// Each table whose events this kernel has is loaded, attached and read; every `step`th table is tried.
fn library_loads(step: usize, least: u32) {
    /// What this machine's kernel or CPU may not have: counters of the CPU, and libraries at these paths.
    const MAY_LACK: [&str; 3] = ["cache-misses", "malloc-bytes", "name-lookup"];
    let (mut loaded, mut lacking) = (0, Vec::new());
    let system = System::new();
    for (name, table) in entries().into_iter().step_by(step) {
        let definition = definition::parse(&table).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        let sample = format!("{}_{step}", name.replace('-', "_"));
        let table = match custom::add(&sample, "table", &definition, &system) {
            Ok(family) => family.tables(),
            Err(trouble) => {
                lacking.push(format!("{name}: {trouble:?}"));
                continue;
            }
        };
        match topstat_kernel::load(&table, &endless()) {
            Ok(mut source) => {
                let found = source.snapshot(&table[0]).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert_eq!(found.check(), Ok(()), "{name}");
                loaded += 1;
            }
            Err(error) if MAY_LACK.iter().any(|part| name.contains(part)) => lacking.push(format!("{name}: {error}")),
            Err(error) => panic!("{name}: {error}"),
        }
    }
    note(format!("{loaded} tables loaded, {} not on this kernel: {}", lacking.len(), lacking.join("; ")));
    assert!(loaded >= least, "{loaded} tables were loaded: {lacking:?}");
}

/// The names and definitions of the library.
fn entries() -> Vec<(String, String)> {
    let text = include_str!("../library.toml");
    let mut all = Vec::new();
    let mut name = String::new();
    for line in text.lines() {
        if let Some(found) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name = found.to_owned();
        }
        if let Some(table) = line.strip_prefix("table = ") {
            let quote = &table[..1];
            all.push((name.clone(), table.trim_matches(|c| quote.starts_with(c)).replace("\\\"", "\"")));
        }
    }
    all
}
