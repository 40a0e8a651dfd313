// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events as topstat tells them, while something is done.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use topstat_kernel::events::{Events, Options, Top, sources};
use topstat_model::Field;
use topstat_model::events::{Account, Event};

use crate::harness::disturbed;

/// What was told.
pub struct Told {
    /// All events, in the order in which they were told.
    pub events: Vec<Event>,
    /// What became of them, by source.
    pub accounts: HashMap<String, Account>,
}

impl Told {
    /// Ends an attempt of which the kernel has kept events from the programs, which it says: what is asked for may be among
    /// them. It does that where tracepoints are preemptible.
    pub fn undisturbed(&self) {
        if let Some(account) = self.accounts.values().find(|account| account.skipped > 0) {
            disturbed(format!("the kernel has kept {} events from {}", account.skipped, account.source));
        }
    }
}

/// Tells the events of these sources while something is done, until all is told. The accounts add up, and so do they with
/// what was told; what was told is in order.
pub fn during<T: Send>(wanted: &[&str], work: impl FnOnce() -> T + Send) -> (Told, T) {
    during_with(wanted, &Options::default(), work)
}

/// The same with these options.
pub fn during_with<T: Send>(wanted: &[&str], options: &Options, work: impl FnOnce() -> T + Send) -> (Told, T) {
    during_all(wanted, Vec::new(), options, work)
}

/// The same of the top of tables.
pub fn during_tops<T: Send>(tops: Vec<Top>, work: impl FnOnce() -> T + Send) -> (Told, T) {
    during_all(&[], tops, &Options::default(), work)
}

fn during_all<T: Send>(
    wanted: &[&str],
    tops: Vec<Top>,
    options: &Options,
    work: impl FnOnce() -> T + Send,
) -> (Told, T) {
    let wanted: Vec<_> = sources().into_iter().filter(|source| wanted.contains(&source.source.as_str())).collect();
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
    // The host's clock, which is asked for with each batch, goes a little differently from the events'.
    let slack = Duration::from_millis(1);
    assert!(in_time.windows(2).all(|pair| pair[0].time <= pair[1].time + slack), "they are in order");
    (Told { events, accounts: accounts.into_iter().map(|account| (account.source.clone(), account)).collect() }, result)
}

/// A field of an event, by the name of its column.
pub fn field<'a>(event: &'a Event, name: &str) -> &'a Field {
    let place = event.kind.columns.iter().position(|column| column.name == name);
    &event.fields[place.unwrap_or_else(|| panic!("{} has no {name}", event.kind.event))]
}

/// The same of a number; what is not known is 0.
pub fn number(event: &Event, name: &str) -> u64 {
    match field(event, name) {
        Field::U64(number) => *number,
        Field::None => 0,
        other => panic!("{name} is {other}, and no number"),
    }
}

/// The same as a text; what is not known is `-`.
pub fn text(event: &Event, name: &str) -> String {
    field(event, name).to_string()
}
