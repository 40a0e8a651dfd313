// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat fleet top --live`: the present tables of hosts, from the servers on them.

use std::collections::BTreeMap;
use std::fs;
use std::time::SystemTime;

use topstat_fleet::scan::{Scan, Window, key_by};
use topstat_model::typeset::escape;
use topstat_model::{FleetKey, Snapshot, document, human_ms};
use topstat_serve::client::{Access, Address, Client};

use super::{check_by, directory, known_key};
use crate::args::fleet::FleetTopArgs;
use crate::console::Console;
use crate::error::{Error, Exit};
use crate::resolve;

/// The mark before the name of a file with addresses.
const OF_FILE: char = '@';

/// The present snapshots of hosts.
pub struct Live {
    /// Each host with its snapshot. All have one period.
    shown: Vec<(String, Snapshot)>,
    /// The columns of the table.
    columns: Vec<String>,
    /// The key by its definition; `None`: the table has no definition here.
    known: Option<FleetKey>,
    /// Hosts without a snapshot that can be added up, and the reasons.
    pub faults: Vec<(String, String)>,
}

impl Live {
    /// Asks the hosts of a command line.
    ///
    /// # Errors
    ///
    /// The command line is wrong, a file can't be read, or no host has answered.
    pub fn ask(args: &FleetTopArgs) -> Result<Self, Error> {
        directory(&args.table)?;
        let all = addresses(&args.live)?;
        let cert = args.tls_cert.as_deref().zip(args.tls_key.as_deref());
        let access = Access { token: args.token_file.as_deref(), ca: args.tls_ca.as_deref(), cert };
        let client = Client::new(access)?;
        let (mut shown, mut faults) = (Vec::new(), Vec::new());
        for (at, answer) in all.iter().zip(client.tables(&all, &args.table)) {
            let read = answer.and_then(|text| document::read(&text, resolve::shape).map_err(|error| error.to_string()));
            match read {
                Ok(snapshot) => shown.push((at.host().to_owned(), snapshot)),
                Err(why) => faults.push((at.host().to_owned(), why)),
            }
        }
        keep_one_period(&mut shown, &mut faults);
        let Some((_, first)) = shown.first() else {
            let (host, why) = faults.first().cloned().unwrap_or_default();
            return Err(Error::Daemon(format!("no host has answered: {}: {}", escape(&host), escape(&why))));
        };
        let columns = first.columns.iter().map(|column| column.name.to_string()).collect();
        Ok(Self { columns, known: known_key(&args.table), shown, faults })
    }

    /// The columns that name an object.
    ///
    /// # Errors
    ///
    /// The table has no such column.
    pub fn key(&self, by: &[String]) -> Result<FleetKey, Error> {
        check_by(by, &self.columns)?;
        Ok(key_by(self.known.as_ref(), &self.columns, by))
    }

    /// The hosts by this key, and the times of the first and the last snapshot.
    pub fn scan(&self, key: FleetKey) -> (Scan, Window) {
        let times = || self.shown.iter().map(|(_, snapshot)| snapshot.time);
        let now = SystemTime::now();
        let window = Window { from: times().min().unwrap_or(now), at: times().max().unwrap_or(now) };
        (Scan::of_hosts(key, &self.shown), window)
    }

    /// Reports hosts without a snapshot. Returns how the command ends.
    pub fn report(&self, console: &mut dyn Console) -> Exit {
        for (host, why) in &self.faults {
            console.note(&format!("topstat: {} is left out: {}", escape(host), escape(why)));
        }
        if self.faults.is_empty() { Exit::Done } else { Exit::Failed }
    }
}

/// The addresses on the command line and in files.
fn addresses(given: &[String]) -> Result<Vec<Address>, Error> {
    let mut all: Vec<Address> = Vec::new();
    let mut add = |text: &str| {
        let address: Address = text.parse().map_err(|why| Error::Usage(format!("--live {why}")))?;
        if all.iter().any(|other| other.host() == address.host()) {
            return Err(Error::Usage(format!("--live {}: it is there twice", escape(text))));
        }
        all.push(address);
        Ok(())
    };
    for text in given {
        match text.strip_prefix(OF_FILE) {
            None => add(text)?,
            Some(path) => {
                let read = fs::read_to_string(path);
                let read = read.map_err(|error| Error::Usage(format!("--live: cannot read {path}: {error}")))?;
                let lines = read.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
                lines.into_iter().try_for_each(&mut add)?;
            }
        }
    }
    Ok(all)
}

/// Leaves out the hosts whose table has another period than most hosts have: their values can't be added.
fn keep_one_period(shown: &mut Vec<(String, Snapshot)>, faults: &mut Vec<(String, String)>) {
    let mut hosts: BTreeMap<u32, usize> = BTreeMap::new();
    for (_, snapshot) in shown.iter() {
        *hosts.entry(snapshot.period_ms).or_default() += 1;
    }
    let Some((usual, _)) = hosts.into_iter().max_by_key(|(_, hosts)| *hosts) else { return };
    let (kept, others) = std::mem::take(shown).into_iter().partition(|(_, snapshot)| snapshot.period_ms == usual);
    *shown = kept;
    let why = |period| format!("its period is {}, and most hosts have {}", human_ms(period), human_ms(usual));
    let others: Vec<(String, Snapshot)> = others;
    faults.extend(others.into_iter().map(|(host, snapshot)| (host, why(snapshot.period_ms))));
}
