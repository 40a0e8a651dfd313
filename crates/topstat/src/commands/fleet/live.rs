// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat fleet top --live`: the present tables of hosts, from the servers on them.

use std::fs;
use std::sync::{Mutex, PoisonError};

use topstat_fleet::scan::{Present, Scan, Window, key_by};
use topstat_model::typeset::escape;
use topstat_model::{FleetKey, Snapshot, document, human_ms};
use topstat_serve::client::{Access, Address, Client};

use super::{check_by, directory, known_key};
use crate::args::fleet::FleetTopArgs;
use crate::console::Console;
use crate::error::{Error, Exit};
use crate::lock::lock;
use crate::resolve;

/// The mark before the name of a file with addresses.
const OF_FILE: char = '@';

/// The present snapshots of hosts.
pub struct Live {
    /// Of the hosts that have answered.
    pub scan: Scan,
    /// From the time of the first snapshot to the time of the last.
    pub window: Window,
    /// Hosts without a snapshot that can be added up, and the reasons.
    pub faults: Vec<(String, String)>,
}

/// The answers so far.
struct Answers {
    present: Option<Present>,
    window: Option<Window>,
    faults: Vec<(String, String)>,
    /// The command line does not suit the table, as the first answer has shown.
    wrong: Option<Error>,
}

impl Live {
    /// Asks the hosts of a command line. `check` gets the key of the table before hosts are added up.
    ///
    /// # Errors
    ///
    /// The command line is wrong, a file can't be read, or no host has answered.
    pub fn ask(args: &FleetTopArgs, check: &(dyn Fn(&FleetKey) -> Result<(), Error> + Sync)) -> Result<Self, Error> {
        directory(&args.table)?;
        let all = addresses(&args.live)?;
        let cert = args.tls_cert.as_deref().zip(args.tls_key.as_deref());
        let access = Access { token: args.token_file.as_deref(), ca: args.tls_ca.as_deref(), cert };
        let client = Client::new(access)?;
        let begin = |snapshot: &Snapshot| {
            let columns: Vec<_> = snapshot.columns.iter().map(|column| column.name.to_string()).collect();
            check_by(&args.by, &columns)?;
            let key = key_by(known_key(&args.table).as_ref(), &columns, &args.by);
            check(&key).map(|()| Present::new(key))
        };
        let answers = Mutex::new(Answers { present: None, window: None, faults: vec![], wrong: None });
        client.tables(&all, &args.table, |at, answer| {
            let read = answer.and_then(|text| document::read(&text, resolve::shape).map_err(|error| error.to_string()));
            let mut answers = lock(&answers);
            match read {
                Ok(snapshot) => answers.add(at.host(), &snapshot, begin),
                Err(why) => answers.faults.push((at.host().to_owned(), why)),
            }
        });
        let Answers { present, window, mut faults, wrong } =
            answers.into_inner().unwrap_or_else(PoisonError::into_inner);
        faults.sort();
        match (present, window, wrong) {
            (_, _, Some(wrong)) => Err(wrong),
            (Some(present), Some(window), None) => {
                let (scan, usual, others) = present.finish();
                let why =
                    |period| format!("its period is {}, and most hosts have {}", human_ms(period), human_ms(usual));
                faults.extend(others.into_iter().map(|(host, period)| (host, why(period))));
                Ok(Self { scan, window, faults })
            }
            _ => {
                let (host, why) = faults.first().cloned().unwrap_or_default();
                Err(Error::Daemon(format!("no host has answered: {}: {}", escape(&host), escape(&why))))
            }
        }
    }

    /// Reports hosts without a snapshot. Returns how the command ends.
    pub fn report(&self, console: &mut dyn Console) -> Exit {
        for (host, why) in &self.faults {
            console.note(&format!("topstat: {} is left out: {}", escape(host), escape(why)));
        }
        if self.faults.is_empty() { Exit::Done } else { Exit::Failed }
    }
}

impl Answers {
    /// Adds the snapshot of a host. `begin` makes the sums from the first one.
    fn add(&mut self, host: &str, snapshot: &Snapshot, begin: impl Fn(&Snapshot) -> Result<Present, Error>) {
        if self.present.is_none() && self.wrong.is_none() {
            match begin(snapshot) {
                Ok(present) => self.present = Some(present),
                Err(wrong) => self.wrong = Some(wrong),
            }
        }
        if let Some(present) = &mut self.present {
            present.add(host, snapshot);
            let Window { from, at } = self.window.unwrap_or(Window { from: snapshot.time, at: snapshot.time });
            self.window = Some(Window { from: from.min(snapshot.time), at: at.max(snapshot.time) });
        }
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
