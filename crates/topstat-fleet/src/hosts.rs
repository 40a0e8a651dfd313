// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which hosts have reported.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use topstat_history::sealed::Sealed;
use topstat_history::{Error, Root};

use crate::files;
use crate::scan::Window;

/// The records of a host in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reported {
    /// The time of its last record.
    pub last: SystemTime,
    /// The tables that have records.
    pub tables: BTreeSet<String>,
}

/// The hosts with records in a window.
#[derive(Debug, Default)]
pub struct Hosts {
    /// By name.
    pub reported: BTreeMap<String, Reported>,
    /// Files that could not be read, with the reason. Their hosts may be missing.
    pub faults: Vec<(PathBuf, String)>,
}

impl Hosts {
    /// Finds the hosts in these directories; by the records of one table, or of all.
    ///
    /// # Errors
    ///
    /// A directory can't be read.
    pub fn find(roots: &[Root], only: Option<&str>, window: Window) -> Result<Self, Error> {
        let mut found = Self::default();
        for root in roots {
            let tables = match only {
                Some(table) => vec![table.to_owned()],
                None => files::tables(root)?,
            };
            for table in tables {
                for file in files::files(root, &table)? {
                    if !file.may_have(window.from, window.at) {
                        continue;
                    }
                    let sealed = root.read(&file.path).and_then(Sealed::open);
                    if let Err(error) = sealed.and_then(|sealed| found.read(&sealed, file.host, &table, window)) {
                        found.faults.push((file.path, error.to_string()));
                    }
                }
            }
        }
        Ok(found)
    }

    fn read(&mut self, sealed: &Sealed, host: Option<String>, table: &str, window: Window) -> io::Result<()> {
        for group in 0..sealed.groups() {
            if sealed.times(group).is_some_and(|(first, last)| last <= window.from || first > window.at) {
                continue;
            }
            let columns = sealed.columns(group, &|name| name == "time" || (name == "host" && host.is_none()))?;
            let Some(times) = columns.cells("time") else { continue };
            let names = columns.cells("host").filter(|_| host.is_none());
            for row in 0..columns.rows() {
                let Some(time) = times.time(row).filter(|time| *time > window.from && *time <= window.at) else {
                    continue;
                };
                let Some(name) = host.as_deref().or_else(|| names?.text(row)) else {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "a row has no host"));
                };
                self.add(name, table, time);
            }
        }
        Ok(())
    }

    fn add(&mut self, host: &str, table: &str, time: SystemTime) {
        if !self.reported.contains_key(host) {
            self.reported.insert(host.to_owned(), Reported { last: time, tables: BTreeSet::new() });
        }
        if let Some(known) = self.reported.get_mut(host) {
            known.last = known.last.max(time);
            if !known.tables.contains(table) {
                known.tables.insert(table.to_owned());
            }
        }
    }

    /// The hosts of an inventory that have not reported, in its order.
    pub fn missing<'i>(&self, inventory: &'i [String]) -> Vec<&'i str> {
        inventory.iter().map(String::as_str).filter(|host| !self.reported.contains_key(*host)).collect()
    }

    /// The hosts that have reported and are not in an inventory.
    pub fn unknown(&self, inventory: &[String]) -> Vec<&str> {
        let known: HashSet<&str> = inventory.iter().map(String::as_str).collect();
        self.reported.keys().map(String::as_str).filter(|host| !known.contains(host)).collect()
    }
}

/// The hosts of an inventory: one name in each line; empty lines, and what follows a `#`, are left out.
pub fn inventory(text: &str) -> Vec<String> {
    let name = |line: &str| line.split('#').next().unwrap_or_default().trim().to_owned();
    text.lines().map(name).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inventory_has_one_host_in_each_line() {
        assert_eq!(inventory("alpha\n\n  beta # spare\n# gamma\n"), ["alpha", "beta"]);
    }

    #[test]
    fn missing_and_unknown_hosts_are_told_apart() {
        let mut hosts = Hosts::default();
        hosts.add("beta", "tasks.cpu", SystemTime::UNIX_EPOCH);
        hosts.add("delta", "tasks.cpu", SystemTime::UNIX_EPOCH);
        let inventory = inventory("alpha\nbeta\n");
        assert_eq!((hosts.missing(&inventory), hosts.unknown(&inventory)), (vec!["alpha"], vec!["delta"]));
    }
}
