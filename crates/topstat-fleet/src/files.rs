// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files of a fleet.
//!
//! ```text
//! host=alpha/table=net_cgroups.bps/date=2026-11-25/03.parquet      as the recorder of a host seals them
//!            table=net_cgroups.bps/date=2026-11-25/03.parquet      compacted: of all hosts, with the host as a column
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::FileType;
use topstat_history::layout::{HOUR, keyed};
use topstat_history::{Error, Root};

/// A sealed or compacted file of a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableFile {
    /// The beginning of its hour; `None`: its name does not say it.
    pub from: Option<SystemTime>,
    /// The host; `None`: the file is compacted, and has a column of hosts.
    pub host: Option<String>,
    /// The date in its path: `2026-11-25`.
    pub date: String,
    /// Its path.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: u64,
}

impl TableFile {
    /// Whether it may have records after one instant and up to another.
    pub fn may_have(&self, after: SystemTime, to: SystemTime) -> bool {
        self.from.is_none_or(|from| from <= to && from + HOUR > after)
    }
}

/// The names of all tables (`net_cgroups.bps`), in order.
///
/// # Errors
///
/// A directory can't be read.
pub fn tables(root: &Root) -> Result<Vec<String>, Error> {
    let read = || {
        let mut found: Vec<String> = keyed(root, root.path(), "table=")?.into_iter().map(|(table, _)| table).collect();
        for (_, below) in keyed(root, root.path(), "host=")? {
            found.extend(keyed(root, &below, "table=")?.into_iter().map(|(table, _)| table));
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    };
    read().map_err(Error::of("read", root.path()))
}

/// The Parquet files of a table, in both layouts, by time and host.
///
/// # Errors
///
/// A directory can't be read.
pub fn files(root: &Root, table: &str) -> Result<Vec<TableFile>, Error> {
    let read = || {
        let mut found = Vec::new();
        let name = format!("table={table}");
        dates(root, &root.path().join(&name), None, &mut found)?;
        for (host, below) in keyed(root, root.path(), "host=")? {
            dates(root, &below.join(&name), Some(&host), &mut found)?;
        }
        found.sort_unstable();
        Ok(found)
    };
    read().map_err(Error::of("read", root.path()))
}

fn dates(root: &Root, table: &Path, host: Option<&str>, found: &mut Vec<TableFile>) -> io::Result<()> {
    for (date, below) in keyed(root, table, "date=")? {
        for (path, stat) in root.stats(&below)? {
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|_| is_file) else { continue };
            let Some(stem) = name.strip_suffix(".parquet") else { continue };
            let from = hour(&date, stem);
            let bytes = u64::try_from(stat.st_size).unwrap_or(0);
            found.push(TableFile { from, host: host.map(str::to_owned), date: date.clone(), path, bytes });
        }
    }
    Ok(())
}

/// The hour that a name begins with: `03`, `03-10`, `03-part2`.
fn hour(date: &str, stem: &str) -> Option<SystemTime> {
    let hour = stem.get(..2).filter(|_| stem.len() == 2 || stem.as_bytes()[2] == b'-')?;
    humantime::parse_rfc3339(&format!("{date}T{hour}:00:00Z")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_begins_with_its_hour() {
        let three = humantime::parse_rfc3339("2026-11-25T03:00:00Z").ok();
        for (stem, from) in [("03", three), ("03-10", three), ("03-part2", three), ("033", None), ("x", None)] {
            assert_eq!(hour("2026-11-25", stem), from, "{stem}");
        }
    }
}
