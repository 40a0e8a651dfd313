// SPDX-License-Identifier: Apache-2.0 OR MIT
//! topstat, loaded by a test. Every snapshot that any test takes is checked.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use topstat_kernel::{Options, Source, TableInfo};
use topstat_model::{Field, Row, Snapshot, TableType, Unit};

use crate::{Key, netns};

/// A period that no test outlasts: nothing ages, so a dynamic table holds everything that was pushed.
pub const ENDLESS_MS: u32 = 600_000;

/// The number of snapshots that were taken and checked.
pub static CHECKED: AtomicU64 = AtomicU64::new(0);

/// Observers that are loaded and attached until this value is dropped.
pub struct Watch {
    source: Box<dyn Source>,
}

/// The table with this path: `tcp_v4/conns_pps`.
pub fn table(path: &str) -> Arc<TableInfo> {
    let (sample, table) = path.split_once('/').expect("SAMPLE/TABLE");
    topstat_families::catalogue().find(sample, table).unwrap_or_else(|| panic!("there is no table {path}"))
}

/// Options with the maximum number of rows, no aging, and rows of CPUs.
pub fn everything() -> Options {
    Options { top: topstat_kernel::MAX_TOP, period_ms: ENDLESS_MS, cpu_rows: true, ..Options::default() }
}

/// Options with the default number of rows, and no aging.
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

    /// Watches state that is already loaded.
    pub fn of(source: Box<dyn Source>) -> Self {
        Self { source }
    }

    /// Takes a proven snapshot; if necessary, topstat looks at all objects.
    pub fn snapshot(&mut self, path: &str) -> View {
        View::of(self.source.snapshot(&table(path)).unwrap_or_else(|e| panic!("{path}: {e}")))
    }

    /// Takes a snapshot of the current contents of the table.
    pub fn peek(&mut self, path: &str) -> View {
        View::of(self.source.peek(&table(path)).unwrap_or_else(|e| panic!("{path}: {e}")))
    }

    /// The source of the snapshots.
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
    /// Whether the row is a closed connection. An open one may have the same addresses.
    pub closed: bool,
}

/// A snapshot that was checked.
pub struct View {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// The rows of sockets in the test's network namespaces. The rows of other tests and programs are in the snapshot only.
    pub sockets: Vec<Socket>,
}

impl View {
    /// Checks a snapshot, and reads its rows.
    pub fn of(snapshot: Snapshot) -> Self {
        let name = format!("{}/{}", snapshot.sample, snapshot.table);
        snapshot.check().unwrap_or_else(|fault| panic!("{name}: {fault}"));
        let sockets: Vec<_> = snapshot.rows.iter().map(|row| socket(&snapshot, row)).collect();
        for s in &sockets {
            // If another CPU was writing an object during the whole read, its row has the value of the last ordering, without
            // parts. The row is not proven.
            let written = s.rx + s.tx == 0 && s.rank > snapshot.proven;
            assert!(s.rx + s.tx == s.value || written, "{name}: rx and tx are not the value of {s:?}");
            assert!(s.value > 0, "{name}: nothing was pushed to {s:?}");
        }
        // Every socket's row must have its parts and be unique; a test looks at its own rows.
        let unique: std::collections::HashSet<_> = sockets.iter().map(|s| (s.netns, s.key)).collect();
        // A UDP port can be shared; a TCP connection (and its listener) is unique.
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

    /// The snapshot without its rows, for messages of failures.
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

    /// The row of a socket, which must exist.
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
