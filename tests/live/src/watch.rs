// SPDX-License-Identifier: Apache-2.0 OR MIT
//! topstat, loaded by a test. Every snapshot that any test takes is checked.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use topstat_kernel::{Options, Source, TableInfo};
use topstat_model::{Field, Row, Snapshot, TableType, Unit};

use crate::{Key, netns};

/// A period that no test outlasts: nothing ages, so a dynamic table holds all that was pushed.
pub const ENDLESS_MS: u32 = 600_000;

/// How many snapshots were taken and checked.
pub static CHECKED: AtomicU64 = AtomicU64::new(0);

/// Observers that are loaded and attached until this is dropped.
pub struct Watch {
    source: Box<dyn Source>,
}

/// The table of that path: `tcp_v4/conns_pps`.
pub fn table(path: &str) -> Arc<TableInfo> {
    let (sample, table) = path.split_once('/').expect("SAMPLE/TABLE");
    topstat_kernel::find(sample, table).unwrap_or_else(|| panic!("there is no table {path}"))
}

/// As many rows as there can be, nothing aging, everything ordered.
pub fn everything() -> Options {
    Options { top: topstat_kernel::MAX_TOP, period_ms: ENDLESS_MS, cpu_rows: true, ..Options::default() }
}

/// The default number of rows, nothing aging.
pub fn endless() -> Options {
    Options { period_ms: ENDLESS_MS, ..Options::default() }
}

/// Loads the tables of these paths, of any sample.
pub fn load(paths: &[&str], options: &Options) -> Box<dyn Source> {
    let tables: Vec<_> = paths.iter().map(|path| table(path)).collect();
    topstat_kernel::load(&tables, options).unwrap_or_else(|e| panic!("{e}"))
}

/// Takes a snapshot of a table of any sample, and checks it.
pub fn snapshot(source: &mut dyn Source, path: &str) -> Snapshot {
    let snapshot = source.snapshot(&table(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    assert_eq!(snapshot.check(), Ok(()));
    snapshot
}

impl Watch {
    /// Loads the tables of these paths.
    pub fn load(paths: &[&str], options: &Options) -> Self {
        Self { source: load(paths, options) }
    }

    /// Watches what is loaded already.
    pub fn of(source: Box<dyn Source>) -> Self {
        Self { source }
    }

    /// Takes a snapshot that is proven, if need be by looking at all objects.
    pub fn snapshot(&mut self, path: &str) -> View {
        View::of(self.source.snapshot(&table(path)).unwrap_or_else(|e| panic!("{path}: {e}")))
    }

    /// Takes a snapshot of what is in the tables.
    pub fn peek(&mut self, path: &str) -> View {
        View::of(self.source.peek(&table(path)).unwrap_or_else(|e| panic!("{path}: {e}")))
    }

    /// The source itself.
    pub fn source(&mut self) -> &mut dyn Source {
        &mut *self.source
    }
}

/// A row of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Socket {
    pub rank: u32,
    pub value: u64,
    pub rx: u64,
    pub tx: u64,
    pub key: Key,
    pub pid: Option<u64>,
    pub comm: Option<String>,
    pub cgroup: Option<String>,
    pub netns: u64,
    /// Whether it is a connection that has closed. One that is open may have the same addresses.
    pub closed: bool,
}

/// A snapshot that was checked.
pub struct View {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Its rows of sockets in the test's network namespaces. The rows of other tests and programs are in the snapshot alone.
    pub sockets: Vec<Socket>,
}

impl View {
    /// Checks a snapshot, and reads its rows.
    pub fn of(snapshot: Snapshot) -> Self {
        let name = format!("{}/{}", snapshot.sample, snapshot.table);
        snapshot.check().unwrap_or_else(|fault| panic!("{name}: {fault}"));
        let sockets: Vec<_> = snapshot.rows.iter().map(|row| socket(&snapshot, row)).collect();
        for s in &sockets {
            // An object that another CPU was writing all the while has the value of its last ordering, without parts. Its row
            // is not proven.
            let written = s.rx + s.tx == 0 && s.rank > snapshot.proven;
            assert!(s.rx + s.tx == s.value || written, "{name}: rx and tx are not the value of {s:?}");
            assert!(s.value > 0, "{name}: nothing was pushed to {s:?}");
        }
        // A row of all sockets must have its parts and be there once; a test looks at its own.
        let unique: std::collections::HashSet<_> = sockets.iter().map(|s| (s.netns, s.key)).collect();
        // A UDP port can be shared, a TCP connection (and its listener) is there once.
        if snapshot.sample.starts_with("tcp") && snapshot.kind == TableType::Static {
            assert_eq!(unique.len(), sockets.len(), "{name}: an object is there twice");
        }
        if snapshot.unit == Unit::Bits {
            assert!(sockets.iter().all(|s| s.value % 8 == 0), "{name}: bits are no whole bytes");
        }
        CHECKED.fetch_add(1, Ordering::Relaxed);
        let own = netns::own();
        let sockets = sockets.into_iter().filter(|s| own.contains(&s.netns)).collect();
        Self { snapshot, sockets }
    }

    /// What there is besides the rows, for failures.
    pub fn summary(&self) -> String {
        let s = &self.snapshot;
        let cpus: Vec<_> = s.cpus.iter().map(|c| (c.cpu, c.total, c.rows.len(), c.stale)).collect();
        format!(
            "{}/{}: {} rows ({} proven), {} objects, total {}, other {}, lost {:?}, cpus (total, rows, stale) {cpus:?}",
            s.sample,
            s.table,
            s.rows.len(),
            s.proven,
            s.objects,
            s.total,
            s.other,
            s.lost,
        )
    }

    /// The rows by their sockets.
    pub fn by_key(&self) -> HashMap<Key, &Socket> {
        self.sockets.iter().map(|s| (s.key, s)).collect()
    }

    /// The row of a socket.
    pub fn find(&self, key: Key) -> Option<&Socket> {
        self.sockets.iter().find(|s| s.key == key)
    }

    /// The row of a socket, which must be there.
    pub fn get(&self, key: Key) -> &Socket {
        self.find(key).unwrap_or_else(|| {
            let shown: Vec<_> = self.sockets.iter().take(20).collect();
            panic!("{}/{} has no row {key:?}; its first are {shown:#?}", self.snapshot.sample, self.snapshot.table)
        })
    }
}

fn socket(snapshot: &Snapshot, row: &Row) -> Socket {
    let field = |name: &str| &row.object[snapshot.column(name).unwrap_or_else(|| panic!("no column {name}"))];
    let ip = |name: &str| match field(name) {
        Field::Ip(ip) => *ip,
        other => panic!("{name} is {other:?}"),
    };
    let number = |name: &str| match field(name) {
        Field::U64(number) => Some(*number),
        _ => None,
    };
    let text = |name: &str| match field(name) {
        Field::None => None,
        other => Some(other.to_string()),
    };
    let address = |ip: IpAddr, port: Option<u64>| {
        SocketAddr::new(ip, u16::try_from(port.expect("a port")).expect("a port of 16 bits"))
    };
    Socket {
        rank: row.rank,
        value: row.value,
        rx: row.parts[0],
        tx: row.parts[1],
        key: Key::new(address(ip("sip"), number("sport")), address(ip("dip"), number("dport"))),
        pid: number("pid"),
        comm: text("comm"),
        cgroup: text("cgroup"),
        netns: number("netns").expect("a network namespace"),
        closed: snapshot.column("closed").is_some_and(|place| row.object[place] == Field::True),
    }
}
