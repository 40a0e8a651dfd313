// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events as topstat reports them while a test acts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use topstat_kernel::events::{Events, Options, Top, sources};
use topstat_model::Field;
use topstat_model::events::{Account, Event};

use crate::harness::disturbed;

/// The reported events.
pub struct Told {
    /// All events, in the order of their reports.
    pub events: Vec<Event>,
    /// The account of each source, by its name.
    pub accounts: HashMap<String, Account>,
}

impl Told {
    /// Ends the attempt as disturbed if the kernel has skipped runs of the programs, as the accounts show: the events that
    /// the test looks for may be among the skipped ones. The kernel skips runs where tracepoints are preemptible.
    pub fn undisturbed(&self) {
        if let Some(account) = self.accounts.values().find(|account| account.skipped > 0) {
            disturbed(format!("the kernel has kept {} events from {}", account.skipped, account.source));
        }
    }
}

/// Reports the events of these sources while `work` runs, until all events are reported. Checks that the accounts add up and
/// agree with the reported events, and that the events are in order.
pub fn during<T: Send>(wanted: &[&str], work: impl FnOnce() -> T + Send) -> (Told, T) {
    during_with(wanted, &Options::default(), work)
}

/// As [`during`], with these options.
pub fn during_with<T: Send>(wanted: &[&str], options: &Options, work: impl FnOnce() -> T + Send) -> (Told, T) {
    during_all(wanted, Vec::new(), options, work)
}

/// As [`during`], for the top of tables.
pub fn during_tops<T: Send>(tops: Vec<Top>, work: impl FnOnce() -> T + Send) -> (Told, T) {
    during_all(&[], tops, &Options::default(), work)
}

fn during_all<T: Send>(
    wanted: &[&str],
    tops: Vec<Top>,
    options: &Options,
    work: impl FnOnce() -> T + Send,
) -> (Told, T) {
    let wanted: Vec<_> = sources(topstat_families::catalogue())
        .into_iter()
        .filter(|source| wanted.contains(&source.source.as_str()))
        .collect();
    let mut stream = Events::open(&wanted, tops, options).unwrap_or_else(|e| panic!("{e}"));
    let mut events = Vec::new();
    let done = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            done.store(true, Ordering::Release);
            result
        });
        while !done.load(Ordering::Acquire) {
            stream.take(&mut |event| events.push(event)).expect("take events");
            std::thread::sleep(Duration::from_millis(2));
        }
        worker.join().expect("the panic was caught").unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    stream.finish(&mut |event| events.push(event)).expect("take the last events");
    let accounts = stream.accounts().expect("what became of them");
    for account in &accounts {
        let told = events.iter().filter(|event| event.kind.source == account.source).count() as u64;
        assert_eq!(account.produced, account.delivered + account.dropped, "{account:?}");
        assert_eq!(account.delivered, told, "{account:?}");
        let late = events.iter().filter(|event| event.late && event.kind.source == account.source).count() as u64;
        assert_eq!(account.late, late, "{account:?}");
    }
    let in_time: Vec<_> = events.iter().filter(|event| !event.late).collect();
    // The host's clock, read with each batch, differs a little from the clock of the events.
    let slack = Duration::from_millis(1);
    assert!(in_time.windows(2).all(|pair| pair[0].time <= pair[1].time + slack), "they are in order");
    (Told { events, accounts: accounts.into_iter().map(|account| (account.source.clone(), account)).collect() }, result)
}

/// A field of an event, by the name of its column.
pub fn field<'a>(event: &'a Event, name: &str) -> &'a Field {
    let place = event.kind.columns.iter().position(|column| column.name == name);
    &event.fields[place.unwrap_or_else(|| panic!("{} has no {name}", event.kind.event))]
}

/// A field that is a number; an unknown number is 0.
pub fn number(event: &Event, name: &str) -> u64 {
    match field(event, name) {
        Field::U64(number) => *number,
        Field::None => 0,
        other => panic!("{name} is {other}, and no number"),
    }
}

/// A field as a text; an unknown value is `-`.
pub fn text(event: &Event, name: &str) -> String {
    field(event, name).to_string()
}
