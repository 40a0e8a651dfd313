// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pushes the pending amounts of objects: usage that the programs of a family have counted, and not pushed to tables yet.

use std::mem::size_of;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libbpf_rs::{Link, Object, ProgramInput};

use crate::bpf::Shared;
use crate::clock::possible_cpus;
use crate::family::{BankId, Settle};
use crate::maps::Maps;
use crate::{Error, bpf};

/// The most repetitions where another CPU holds usage that it has taken, and does not go on: it is a virtual CPU that its host
/// does not run. The first comes after 1 ms, each further one after twice as long, 15 ms in all. After that no row is proven.
const TRIES_AGAIN: u32 = 4;

/// The usage that is outstanding after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The programs of the family leave no pending amounts.
    NothingPending,
    /// Nothing is outstanding: all that was pushed is ordered, whatever the delay.
    All,
    /// A CPU that does not run still holds some usage.
    NotAll,
}

/// The program that pushes pending amounts, loaded with the first reader.
pub struct Settler {
    how: Option<Settle>,
    loaded: Mutex<Option<Loaded>>,
}

/// The moment of a run, by both clocks that tables use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    pub jiffies: u64,
    pub ns: u64,
}

struct Loaded {
    // Dropped before `object`.
    links: Vec<Link>,
    object: Object,
    /// The map `.data.moment`: see [`Settle::since`].
    moment: Option<Shared>,
    listed: Option<Listed>,
}

/// See [`Settle::listed`].
struct Listed {
    count: Shared,
    /// The name of the program for an empty list.
    none: String,
}

impl Loaded {
    /// Runs the programs once. Returns whether amounts are outstanding.
    fn run(&self) -> std::io::Result<bool> {
        if let Some(listed) = &self.listed
            && listed.count.read::<u32>(0, 0) == 0
        {
            let program = bpf::program(&self.object, &listed.none).map_err(std::io::Error::other)?;
            let returned = program.test_run(ProgramInput::default()).map_err(std::io::Error::other)?;
            return Ok(returned.return_value != 0);
        }
        let mut waits = false;
        for link in &self.links {
            waits |= !bpf::read_out(link)?.is_empty();
            if self.has_found_all() {
                break;
            }
        }
        Ok(waits)
    }

    /// Whether the last program has found all objects with pending amounts.
    fn has_found_all(&self) -> bool {
        let all_found = |moment: &Shared| moment.read::<u64>(0, 2 * size_of::<u64>()) != 0;
        self.listed.is_some() && self.moment.as_ref().is_some_and(all_found)
    }
}

impl Settler {
    /// A settler. `how` is `None` for a build whose programs leave no pending amounts.
    pub fn new(how: Option<Settle>) -> Self {
        Self { how, loaded: Mutex::default() }
    }

    /// Loads the program, which takes up to half a second, unless it is loaded. A reader calls this when it is made, so that
    /// no read waits for it.
    ///
    /// # Errors
    /// The kernel refuses the program, or a map is missing.
    pub fn prepare(&self, maps: &Maps) -> Result<(), Error> {
        let Some(how) = &self.how else { return Ok(()) };
        loaded(&mut self.lock(), how, maps).map(|_| ())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Loaded>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The moment of the latest run. Usage before it was counted by the settings of that time. `None`: it is not needed.
    pub fn moment(&self) -> Option<Moment> {
        let place = self.lock();
        let moment = place.as_ref()?.moment.as_ref()?;
        Some(Moment { jiffies: moment.read(0, 0), ns: moment.read(0, size_of::<u64>()) })
    }

    /// Whether the programs of this bank leave pending amounts. Snapshots of other banks need no run.
    pub fn is_for(&self, bank: BankId) -> bool {
        self.how.as_ref().is_some_and(|how| bank.0 < how.banks)
    }

    /// Pushes pending amounts, and orders their objects.
    pub fn run(&self, maps: &Maps) -> Result<Settled, Error> {
        let Some(how) = &self.how else { return Ok(Settled::NothingPending) };
        // One run at a time: a waiting thread would go over the same objects.
        let mut place = self.lock();
        let loaded = loaded(&mut place, how, maps)?;
        let failed = |e: std::io::Error| Error::Kernel { what: format!("run {}", how.program), why: e.to_string() };
        for again in 0..=TRIES_AGAIN {
            if !loaded.run().map_err(failed)? {
                return Ok(Settled::All);
            }
            if again < TRIES_AGAIN {
                std::thread::sleep(Duration::from_millis(1 << again));
            }
        }
        Ok(Settled::NotAll)
    }
}

/// The loaded program in `place`, which is loaded if the place is empty.
fn loaded<'a>(place: &'a mut Option<Loaded>, how: &Settle, maps: &Maps) -> Result<&'a Loaded, Error> {
    Ok(match place.take() {
        Some(ready) => place.insert(ready),
        None => place.insert(load(how, maps)?),
    })
}

fn load(how: &Settle, maps: &Maps) -> Result<Loaded, Error> {
    let mut object = bpf::open("settle", how.object)?;
    maps.share(&mut object)?;
    for size in &how.sizes {
        size.set(&mut object, possible_cpus()?, 0)?;
    }
    let object = bpf::load("settle", object)?;
    let shared = |name: &str| {
        let missing =
            || Error::Kernel { what: format!("attach {}", how.program), why: format!("the map {name} is missing") };
        maps.get(name).ok_or_else(missing)
    };
    let links = bpf::sockets::iterate(&object, shared(how.over)?, how.program)?;
    let listed = match how.listed {
        Some(listed) => Some(Listed { count: Shared::new(shared(listed)?)?, none: format!("{}_none", how.program) }),
        None => None,
    };
    let moment = match how.since {
        Some(_) => Some(Shared::new(&bpf::map(&object, ".data.moment")?)?),
        None => None,
    };
    Ok(Loaded { links, object, moment, listed })
}
