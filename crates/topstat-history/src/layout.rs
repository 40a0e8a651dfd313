// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where files are, and the meaning of their names.
//!
//! ```text
//! host=alpha/table=tcp_v4.conns_pps/date=2026-11-21/03.parquet          an hour, sealed
//!                                                   04.jsonl.zst        the hour that is being written
//!                                                   04-05.parquet       a part of an hour: from 04:05 to the next part
//!                                                   04-10.jsonl.zst     the part that is being written
//!                                                   04-10.fine.jsonl.zst  every second of the ten minutes from 04:10
//!                                                   02.jsonl.zst.unread   a log that this version could not read whole
//! ```
//!
//! Dates and hours are in UTC. DuckDB, pandas, Spark and similar tools make columns of `host=`, `table=` and `date=`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Stat};

use crate::dir::Root;

/// Bytes of a block, the unit of a file's `st_blocks`.
const BLOCK: u64 = 512;
/// The longest span of one log of the coarse records, and of one sealed file. Shorter ones divide it, and end with it.
pub const HOUR: Duration = Duration::from_secs(3600);
/// The span of one log of the fine records: they are kept for hours, and removed a file at a time.
pub const PIECE: Duration = Duration::from_secs(600);

const LOG: &str = ".jsonl.zst";
const FINE: &str = ".fine.jsonl.zst";
const SEALED: &str = ".parquet";
/// The end of a name: a file that is being sealed. A program that is killed during sealing leaves it behind.
pub const UNFINISHED: &str = ".unfinished";

/// The end of a name: a log that could not be read whole. The second log of one hour has `.2` behind it, and so on.
const UNREAD: &str = ".unread";

/// The table, of a host, that records belong to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The host's name.
    pub host: String,
    /// The sample: `tcp_v4`.
    pub sample: String,
    /// The table in it: `conns_pps`.
    pub table: String,
}

impl Place {
    /// The path of the table: `tcp_v4/conns_pps`.
    pub fn path(&self) -> String {
        format!("{}/{}", self.sample, self.table)
    }

    /// Its directory below a history.
    pub fn dir(&self, root: &Path) -> PathBuf {
        root.join(format!("host={}", self.host)).join(format!("table={}.{}", self.sample, self.table))
    }
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An hour in Parquet.
    Sealed,
    /// Coarse records, as they are written.
    Log,
    /// Fine records, as they are written.
    Fine,
    /// A log, coarse or fine, that could not be read whole. It is kept for the user, and not read again.
    Unread,
}

impl Kind {
    /// The longest time that one file of this kind covers.
    pub fn span(self) -> Duration {
        match self {
            Self::Sealed | Self::Log | Self::Unread => HOUR,
            Self::Fine => PIECE,
        }
    }
}

/// A file of a table, as its name describes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct File {
    /// The beginning of its span.
    pub from: SystemTime,
    /// Its kind.
    pub kind: Kind,
    /// Its path.
    pub path: PathBuf,
}

impl File {
    /// The file of this kind for the records of this instant.
    pub fn of(root: &Path, place: &Place, kind: Kind, time: SystemTime) -> Self {
        Self::spanning(root, place, kind, kind.span(), time)
    }

    /// The file of this kind for the records of this instant, if such files cover this time: whole minutes that divide an hour.
    pub fn spanning(root: &Path, place: &Place, kind: Kind, span: Duration, time: SystemTime) -> Self {
        let from = begin(time, span);
        let text = humantime::format_rfc3339_seconds(from).to_string();
        // 2026-11-21T04:10:00Z
        let (date, hour, minute) = (&text[..10], &text[11..13], &text[14..16]);
        let stem = if span == HOUR { hour.to_owned() } else { format!("{hour}-{minute}") };
        let name = match kind {
            Kind::Sealed => format!("{stem}{SEALED}"),
            Kind::Log => format!("{stem}{LOG}"),
            Kind::Unread => format!("{stem}{LOG}{UNREAD}"),
            Kind::Fine => format!("{stem}{FINE}"),
        };
        Self { from, kind, path: place.dir(root).join(format!("date={date}")).join(name) }
    }

    /// The file that this log is sealed to.
    #[must_use]
    pub fn sealed(&self) -> Self {
        let path = self.path.with_file_name(format!("{}{SEALED}", self.stem()));
        Self { from: self.from, kind: Kind::Sealed, path }
    }

    /// Its name without endings: `04`, `04-10`.
    fn stem(&self) -> &str {
        let name = self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.split('.').next().unwrap_or_default()
    }

    /// The latest end of its span. A part of an hour may end before: its name says when it begins.
    pub fn until(&self) -> SystemTime {
        begin(self.from, self.kind.span()) + self.kind.span()
    }

    /// Whether it is a whole hour's, or fine: then its span ends with [`until`](Self::until).
    pub(crate) fn is_whole(&self) -> bool {
        self.kind == Kind::Fine || !self.stem().contains('-')
    }

    /// The file of this path in the directory of a date; `None`: its name is no name of a history's file.
    fn read(date: &str, path: PathBuf) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let whole = name.split_once(UNREAD).filter(|(_, number)| {
            number.is_empty() || number.strip_prefix('.').is_some_and(|number| number.parse::<u32>().is_ok())
        });
        if let Some((log, _)) = whole {
            let of_log = Self::read(date, path.with_file_name(log)).filter(|log| log.kind != Kind::Sealed)?;
            return Some(Self { kind: Kind::Unread, path, ..of_log });
        }
        let (stem, kind) = [(SEALED, Kind::Sealed), (FINE, Kind::Fine), (LOG, Kind::Log)]
            .into_iter()
            .find_map(|(ending, kind)| Some((name.strip_suffix(ending)?, kind)))?;
        let (hour, minute) = match (kind, stem.split_once('-')) {
            (Kind::Fine, None) => return None,
            (_, Some(parts)) => parts,
            (_, None) => (stem, "00"),
        };
        let two = |text: &str| text.len() == 2 && text.bytes().all(|digit| digit.is_ascii_digit());
        let from = (two(hour) && two(minute)).then(|| format!("{date}T{hour}:{minute}:00Z"))?;
        Some(Self { from: humantime::parse_rfc3339(&from).ok()?, kind, path })
    }
}

/// The beginning of the span that contains an instant.
pub fn begin(time: SystemTime, span: Duration) -> SystemTime {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    UNIX_EPOCH + Duration::from_secs(since - since % span.as_secs())
}

/// A name that a directory can have, and a value that tools take unchanged.
pub fn safe_name(name: &str) -> String {
    let safe: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
    if safe.is_empty() || safe.starts_with('.') { format!("_{safe}") } else { safe }
}

/// The name under which a log is kept that could not be read whole. No file has it yet.
pub fn unread_name(root: &Root, log: &Path) -> PathBuf {
    let numbered = |number: u32| match number {
        1 => UNREAD.to_owned(),
        _ => format!("{UNREAD}.{number}"),
    };
    let named = |number| {
        let mut name = log.as_os_str().to_owned();
        name.push(numbered(number));
        PathBuf::from(name)
    };
    (1..).map(named).find(|path| !root.exists(path)).unwrap_or_else(|| named(0))
}

/// The tables that have records, in order.
///
/// # Errors
///
/// A directory can't be read. A missing directory has no tables or files.
pub fn places(root: &Root) -> io::Result<Vec<Place>> {
    let mut places = Vec::new();
    for (host, below) in keyed(root, root.path(), "host=")? {
        for (table, _) in keyed(root, &below, "table=")? {
            if let Some((sample, table)) = table.split_once('.') {
                places.push(Place { host: host.clone(), sample: sample.to_owned(), table: table.to_owned() });
            }
        }
    }
    places.sort();
    Ok(places)
}

/// The files of a table, the oldest first.
///
/// # Errors
///
/// As [`places`].
pub fn files(root: &Root, place: &Place) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    for (date, below) in keyed(root, &place.dir(root.path()), "date=")? {
        files.extend(root.entries(&below)?.into_iter().filter_map(|path| File::read(&date, path)));
    }
    files.sort();
    Ok(files)
}

/// All entries below the dates of a table, in order, each with the meaning of its name; `None`: it has none.
///
/// # Errors
///
/// As [`places`].
pub(crate) fn all_files(root: &Root, place: &Place) -> io::Result<Vec<(PathBuf, Option<File>)>> {
    let mut found = Vec::new();
    for (date, below) in keyed(root, &place.dir(root.path()), "date=")? {
        found.extend(root.entries(&below)?.into_iter().map(|path| (path.clone(), File::read(&date, path))));
    }
    found.sort();
    Ok(found)
}

/// The files of a table in no order, and the bytes that each takes on the disk.
///
/// # Errors
///
/// As [`places`].
pub fn sized_files(root: &Root, place: &Place) -> io::Result<Vec<(u64, File)>> {
    let mut files = Vec::new();
    for (date, below) in keyed(root, &place.dir(root.path()), "date=")? {
        let sized = |(path, stat): (PathBuf, Stat)| {
            let bytes = u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK;
            Some((bytes, File::read(&date, path)?))
        };
        files.extend(root.stats(&below)?.into_iter().filter_map(sized));
    }
    Ok(files)
}

/// Directories with this key, without links to directories: the value behind the `=`, and the path.
///
/// # Errors
///
/// As [`places`].
pub fn keyed(root: &Root, dir: &Path, key: &str) -> io::Result<Vec<(String, PathBuf)>> {
    let is_dir = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let value = |(path, stat): (PathBuf, Stat)| {
        let value = path.file_name()?.to_str()?.strip_prefix(key)?.to_owned();
        is_dir(&stat).then_some((value, path))
    };
    Ok(root.stats(dir)?.into_iter().filter_map(value).collect())
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} of {}", self.sample, self.table, self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_a_file_is() {
        let place = Place { host: "alpha".into(), sample: "tcp_v4".into(), table: "conns_pps".into() };
        // 2026-11-21T04:17:09Z
        let time = UNIX_EPOCH + Duration::from_secs(1_795_234_629);
        for (kind, name, from) in [
            (Kind::Sealed, "04.parquet", 1_795_233_600),
            (Kind::Log, "04.jsonl.zst", 1_795_233_600),
            (Kind::Fine, "04-10.fine.jsonl.zst", 1_795_234_200),
            (Kind::Unread, "04.jsonl.zst.unread", 1_795_233_600),
        ] {
            let file = File::of(Path::new("/h"), &place, kind, time);
            let below = "/h/host=alpha/table=tcp_v4.conns_pps/date=2026-11-21";
            assert_eq!(file.path, Path::new(below).join(name));
            assert_eq!(file.from, UNIX_EPOCH + Duration::from_secs(from));
            assert_eq!(File::read("2026-11-21", file.path.clone()), Some(file));
        }
        let read = |name: &str| File::read("2026-11-21", name.into()).map(|file| file.kind);
        for unread in ["04.jsonl.zst.unread.2", "04-10.fine.jsonl.zst.unread"] {
            assert_eq!(read(unread), Some(Kind::Unread), "{unread}");
        }
        let part = File::spanning(Path::new("/h"), &place, Kind::Log, Duration::from_secs(300), time);
        assert_eq!(
            (part.path.file_name().unwrap(), part.until()),
            ("04-15.jsonl.zst".as_ref(), part.from + HOUR - 3 * PIECE / 2)
        );
        assert_eq!(File::read("2026-11-21", part.path.clone()), Some(part.clone()));
        let sealed = part.sealed();
        assert_eq!((sealed.path.file_name().unwrap(), sealed.from), ("04-15.parquet".as_ref(), part.from));
        assert_eq!(File::read("2026-11-21", sealed.path.clone()), Some(sealed));
        for other in [
            "04.jsonl.zst.unread.x",
            "04.parquet.unread",
            "x.unread",
            "4.parquet",
            "04.parquet.unfinished",
            "04-1.fine.jsonl.zst",
            "04-1.parquet",
            "04-10-5.parquet",
            "04.fine.jsonl.zst",
            "ab.jsonl.zst",
            "25.parquet",
            "x",
        ] {
            assert_eq!(File::read("2026-11-21", other.into()), None, "{other}");
        }
    }

    #[test]
    fn hosts_have_names_that_are_directories() {
        for (name, safe) in [("alpha.example", "alpha.example"), ("a/b=c", "a_b_c"), ("..", "_.."), ("", "_")] {
            assert_eq!(safe_name(name), safe);
        }
    }
}
