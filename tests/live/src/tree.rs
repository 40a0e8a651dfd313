// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file tree of topstat, the daemon's or `/proc/topstat`, and the contents of its files.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::Key;

/// A tree, by its root.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The tree with this root.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The path of a file in the tree.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The text of a file.
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    /// Writes a line to a file, as `echo` does.
    pub fn write(&self, path: &str, value: impl std::fmt::Display) {
        fs::write(self.path(path), format!("{value}\n")).unwrap_or_else(|e| panic!("{path}: {e}"));
    }

    /// Writes to a file in one call, which the file may refuse.
    pub fn try_write(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(self.path(path))?;
        match file.write(bytes)? {
            written if written == bytes.len() => Ok(()),
            written => panic!("{path}: {written} of {} bytes", bytes.len()),
        }
    }

    /// The `json` of a table.
    pub fn json(&self, table: &str) -> Document {
        Document::of(&self.read(&format!("{table}/json")))
    }

    /// The `stat` of a table.
    pub fn stat(&self, table: &str) -> Stat {
        Stat::of(&self.read(&format!("{table}/stat")))
    }
}

/// The error number of a refused system call; `None` for a successful one.
pub fn errno(result: io::Result<impl Sized>) -> Option<i32> {
    result.err().map(|error| error.raw_os_error().unwrap_or_else(|| panic!("{error}")))
}

/// A `json` file.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Document {
    pub value: serde_json::Value,
    pub total: u64,
    pub other: u64,
    /// Socket and value; empty if the objects are not sockets.
    pub rows: Vec<(Key, u64)>,
}

impl Document {
    /// Parses a `json` file, and checks that it adds up.
    pub fn of(text: &str) -> Self {
        assert!(text.ends_with("}\n") && text.lines().count() == 1, "not one line: {text}");
        let value: serde_json::Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let number =
            |of: &serde_json::Value, name: &str| of[name].as_u64().unwrap_or_else(|| panic!("no {name}: {of}"));
        let address = |object: &serde_json::Value, ip: &str, port: &str| {
            let ip: IpAddr = object[ip].as_str().and_then(|ip| ip.parse().ok()).expect("an address");
            SocketAddr::new(ip, u16::try_from(number(object, port)).expect("a port"))
        };
        let row = |row: &serde_json::Value| {
            let object = &row["object"];
            (Key::new(address(object, "sip", "sport"), address(object, "dip", "dport")), number(row, "value"))
        };
        let all = value["rows"].as_array().expect("rows");
        let rows: Vec<_> = all.iter().filter(|row| row["object"].get("sip").is_some()).map(row).collect();
        let (total, other) = (number(&value, "total"), number(&value, "other"));
        let sum: u64 = all.iter().map(|row| number(row, "value")).sum();
        assert_eq!(sum + other, total, "rows and other are the total: {text}");
        let cpus = value["cpu_totals"].as_object().expect("cpu_totals");
        let of_cpus: u64 = cpus.values().filter_map(serde_json::Value::as_u64).sum();
        // `shared`, the part that belongs to no CPU, exists only where the kernel does the counting itself.
        let shared = value.get("shared").and_then(serde_json::Value::as_u64).unwrap_or(0);
        assert_eq!(of_cpus + shared, total, "{text}");
        Self { total, other, rows, value }
    }
}

/// A `stat` file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Stat {
    /// Keys and values.
    pub header: Vec<(String, String)>,
    /// The sections of CPUs, and the number of rows of each.
    pub cpus: Vec<(u32, usize)>,
    pub total: u64,
    pub other: u64,
    /// The rows of `all`: socket and value; empty if the objects are not sockets.
    pub rows: Vec<(Key, u64)>,
    /// Lines after `other`.
    pub further: Vec<(String, String)>,
}

impl Stat {
    /// Parses a `stat` file, and checks that it is complete and adds up.
    pub fn of(text: &str) -> Self {
        assert!(text.ends_with('\n'), "cut off: {text:?}");
        let pair = |line: &str| {
            let (key, value) = line.split_once('\t').unwrap_or_else(|| panic!("no tab in {line:?} of {text}"));
            (key.to_owned(), value.to_owned())
        };
        let paragraphs: Vec<Vec<&str>> = text.split("\n\n").map(|paragraph| paragraph.lines().collect()).collect();
        let [header, sections @ .., all, sums] = &paragraphs[..] else { panic!("not a stat: {text}") };
        let cpu = |lines: &Vec<&str>| {
            let number = lines[0].strip_prefix("cpu ").and_then(|number| number.trim_end_matches(':').parse().ok());
            (number.unwrap_or_else(|| panic!("not a section: {lines:?}")), lines.len() - 2)
        };
        assert_eq!(all[0], "all:", "{text}");
        let row = |line: &&str| {
            let cells: Vec<&str> = line.split('\t').collect();
            let address = |i: usize| SocketAddr::new(cells[i].parse().unwrap(), cells[i + 1].parse().unwrap());
            (Key::new(address(0), address(2)), cells.last().unwrap().parse().unwrap())
        };
        let value = |line: &&str| line.rsplit('\t').next().unwrap().parse::<u64>().unwrap();
        let values: Vec<u64> = all[2..].iter().map(value).collect();
        let sockets = all[1].starts_with("sip\t");
        let rows: Vec<(Key, u64)> = all[2..].iter().filter(|_| sockets).map(row).collect();
        let mut sums: Vec<_> = sums.iter().map(|line| pair(line)).collect();
        let further = sums.split_off(2);
        let number = |i: usize, name: &str| {
            assert_eq!(sums[i].0, name, "{text}");
            sums[i].1.parse::<u64>().unwrap()
        };
        let (total, other) = (number(0, "total"), number(1, "other"));
        assert_eq!(values.iter().sum::<u64>() + other, total, "rows and other are the total: {text}");
        assert!(values.is_sorted_by(|a, b| a >= b), "highest first: {text}");
        Self {
            header: header.iter().map(|line| pair(line)).collect(),
            cpus: sections.iter().map(cpu).collect(),
            total,
            other,
            rows,
            further,
        }
    }

    /// A value of the header.
    pub fn get(&self, key: &str) -> &str {
        let found = self.header.iter().find(|(name, _)| name == key);
        found.map_or_else(|| panic!("no {key} in {:?}", self.header), |(_, value)| value)
    }
}
