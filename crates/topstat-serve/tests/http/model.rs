// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A source whose tables are made up, and change with each read; and a server for it.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use topstat_model::{
    Column, ColumnKind, CpuSection, Field, Lost, Row, Settings, Snapshot, TableType, Unit, json as document,
};
use topstat_serve::source::Each;
use topstat_serve::{Config, Fault, Listen, Record, Source, Table};

/// Rows of a table of the model.
pub const ROWS: u64 = 32;
/// What all objects without a row have.
pub const OTHER: u64 = 1000;

/// The source. Each read of a table is counted.
#[derive(Default)]
pub struct Model {
    /// How many documents were read.
    pub reads: AtomicU64,
    /// The threads that have read, by their folders in /proc.
    pub threads: Mutex<std::collections::HashSet<PathBuf>>,
    /// There is no daemon.
    pub down: AtomicBool,
    /// The daemon does not answer.
    pub stuck: AtomicBool,
}

fn table(sample: &str, name: &str, kind: TableType, unit: Unit) -> Table {
    Table {
        sample: sample.into(),
        name: name.into(),
        about: format!("{name} of {sample}"),
        kind,
        unit,
        value_name: name.into(),
        columns: vec![
            Column::new("pid", ColumnKind::Pid),
            Column::new("comm", ColumnKind::Text),
            Column::optional("container", ColumnKind::Id),
        ],
    }
}

/// The tables of the model: one of each unit.
pub fn tables() -> Vec<Table> {
    use TableType::{Dynamic, Static};
    vec![
        table("net_procs", "bps", Dynamic, Unit::Bits),
        table("net_procs", "pps", Dynamic, Unit::Packets),
        table("net_procs", "retrans", Dynamic, Unit::Segments),
        table("net_procs", "bytes", Static, Unit::Bytes),
        table("tasks", "cpu", Dynamic, Unit::Nanoseconds),
        table("tasks", "switches", Dynamic, Unit::Count),
    ]
}

/// The table after this number of reads.
pub fn snapshot(table: &Table, reads: u64, time: SystemTime) -> Snapshot {
    // Values grow with the reads, and stay in order.
    let value = |rank: u64| (ROWS - rank) * 8000 + reads * 8;
    let rows: Vec<_> = (0..ROWS)
        .map(|rank| Row {
            id: Row::NO_ID,
            rank: u32::try_from(rank + 1).unwrap(),
            value: value(rank),
            object: vec![Field::U64(100 + rank), Field::from(format!("p\"{rank}\\")), Field::None],
            parts: vec![],
            cpus: vec![0],
        })
        .collect();
    let total = rows.iter().map(|row| row.value).sum::<u64>() + OTHER;
    Snapshot {
        time,
        sample: table.sample.clone(),
        table: table.name.clone(),
        kind: table.kind,
        unit: table.unit,
        value_name: table.value_name.clone(),
        period_ms: if table.kind == TableType::Dynamic { 1000 } else { 0 },
        delay_ms: 0,
        elapsed: None,
        top: 128,
        objects: 5000,
        total,
        shared: 0,
        other: OTHER,
        proven: u32::try_from(ROWS).unwrap(),
        filter: None,
        lost: Lost { contended: 3, ..Lost::default() },
        lost_now: Lost::default(),
        settings: Settings { enabled: true, owner: table.sample.clone(), owner_enabled: true, topstat_enabled: true },
        columns: table.columns.clone(),
        parts: vec![],
        rows,
        cpus: vec![CpuSection { cpu: 0, total, stale: false, rows: vec![] }],
    }
}

/// Since when the model has records: one every ten seconds until now.
pub const RECORDED: Duration = Duration::from_secs(7200);
const EVERY: Duration = Duration::from_secs(10);

impl Model {
    fn there(&self) -> Result<(), Fault> {
        while self.stuck.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
        match self.down.load(Ordering::SeqCst) {
            true => Err(Fault::Unavailable("there is no daemon".into())),
            false => Ok(()),
        }
    }
}

impl Source for Model {
    fn tables(&self) -> Result<Vec<Table>, Fault> {
        self.there().map(|()| tables())
    }

    fn documents(&self, paths: &[String], each: &mut Each<'_>) -> Result<(), Fault> {
        self.threads.lock().unwrap().insert(std::fs::read_link("/proc/thread-self").unwrap());
        self.there()?;
        for (number, path) in paths.iter().enumerate() {
            let tables = tables();
            let table = tables.iter().find(|table| table.path() == *path).expect("a table of the list");
            let reads = self.reads.fetch_add(1, Ordering::SeqCst);
            let mut text = Vec::new();
            document::write(&snapshot(table, reads, SystemTime::now()), &mut text).unwrap();
            each(number, Ok(&text));
        }
        Ok(())
    }

    fn own(&self) -> Result<Vec<u8>, Fault> {
        self.there()?;
        let of = |table: &Table| json!({"table": table.name, "pushed": 123_456_789});
        let samples: Vec<_> =
            tables().iter().map(|table| json!({"sample": table.sample, "tables": [of(table)]})).collect();
        let own = json!({"version": "0.1.0", "cpu_ns": 1_500_000_000_u64, "rss_bytes": 9_000_000, "fds": 60,
            "map_bytes": 500_000, "object_bytes": 888, "samples": samples, "measured": {"share": 0.004}});
        Ok(own.to_string().into_bytes())
    }

    fn host(&self) -> Value {
        json!({"cpus": [0.25, 0.5]})
    }

    fn at(&self, path: &str, time: SystemTime) -> Result<Record, Fault> {
        let tables = tables();
        let table = tables.iter().find(|table| table.path() == path);
        let table = table.ok_or_else(|| Fault::Missing(format!("no records of {path}")))?;
        match SystemTime::now().duration_since(time) {
            Ok(ago) if ago < RECORDED => Ok(Record::Snapshot(Box::new(snapshot(table, 0, time)))),
            _ => Err(Fault::Missing(format!("no records of {path} then"))),
        }
    }

    fn range(
        &self,
        path: &str,
        (from, to): (SystemTime, SystemTime),
        each: &mut dyn FnMut(Record) -> bool,
    ) -> Result<(), Fault> {
        let mut time = from;
        while time <= to {
            if let Ok(record) = self.at(path, time)
                && !each(record)
            {
                break;
            }
            time += EVERY;
        }
        Ok(())
    }
}

/// A server on a separate thread. The drop of this value ends the server.
pub struct Server {
    /// The source. Only what it shares with the server's threads can be changed: the server is a thread of this process.
    pub model: Arc<Model>,
    /// The socket in the file system.
    pub unix: PathBuf,
    /// The TCP port, if there is one.
    pub tcp: Option<SocketAddr>,
    pub end: topstat_serve::End,
    thread: Option<std::thread::JoinHandle<()>>,
    folder: PathBuf,
}

static COUNT: AtomicU64 = AtomicU64::new(0);
/// Ports are looked for one at a time.
static PORT: Mutex<()> = Mutex::new(());

impl Server {
    pub fn start() -> Self {
        Self::with(false, |_| {})
    }

    /// Starts a server, on a free TCP port, too, if `tcp` says so.
    pub fn with(tcp: bool, change: impl FnOnce(&mut Config)) -> Self {
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let folder = std::env::temp_dir().join(format!("topstat-serve-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let unix = folder.join("serve.sock");
        let _port = PORT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let tcp = tcp.then(free);
        let mut config = Config { listen: vec![Listen::Unix(unix.clone(), 0o660)], ..Config::default() };
        config.listen.extend(tcp.map(Listen::Tcp));
        change(&mut config);
        let model = Arc::new(Model::default());
        let (end, ending) = topstat_serve::End::new();
        let source: Arc<dyn Source> = model.clone();
        let thread = std::thread::spawn(move || topstat_serve::serve_until(config, source, ending).unwrap());
        let begun = Instant::now();
        let there = || UnixStream::connect(&unix).is_ok() && tcp.is_none_or(|tcp| TcpStream::connect(tcp).is_ok());
        while !there() {
            assert!(begun.elapsed() < Duration::from_secs(30) && !thread.is_finished(), "the server does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { model, unix, tcp, end, thread: Some(thread), folder }
    }

    /// Sends bytes to the socket in the file system, and returns all of the answer.
    pub fn raw(&self, request: &[u8]) -> Vec<u8> {
        exchange(UnixStream::connect(&self.unix).unwrap(), request)
    }

    pub fn raw_tcp(&self, request: &[u8]) -> Vec<u8> {
        exchange(TcpStream::connect(self.tcp.unwrap()).unwrap(), request)
    }

    pub fn get(&self, path: &str) -> Reply {
        self.get_with(path, "")
    }

    /// Gets a path; `headers` are whole lines.
    pub fn get_with(&self, path: &str, headers: &str) -> Reply {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
        Reply::of(&self.raw(request.as_bytes()))
    }

    pub fn get_tcp(&self, path: &str, headers: &str) -> Reply {
        Reply::of(&self.raw_tcp(format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n").as_bytes()))
    }

    /// A metric's value, by the beginning of its line.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").body;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}")).trim().parse().unwrap()
    }

    /// Asks the server to end, and waits until it has. Returns how long it took.
    pub fn stop(&mut self) -> Duration {
        let begun = Instant::now();
        self.end.end();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        begun.elapsed()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.model.stuck.store(false, Ordering::SeqCst);
        self.end.end();
        if let Some(thread) = self.thread.take() {
            let joined = thread.join();
            assert!(joined.is_ok() || std::thread::panicking(), "the server has failed");
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A client gives up after this time.
pub const PATIENCE: Duration = Duration::from_secs(60);

trait Socket: std::io::Read + std::io::Write {
    fn patient(&self);
}

impl Socket for UnixStream {
    fn patient(&self) {
        self.set_read_timeout(Some(PATIENCE)).unwrap();
    }
}

impl Socket for TcpStream {
    fn patient(&self) {
        self.set_read_timeout(Some(PATIENCE)).unwrap();
    }
}

fn exchange(mut socket: impl Socket, request: &[u8]) -> Vec<u8> {
    socket.patient();
    // A server that refuses a request may close while it is written.
    let _ = socket.write_all(request);
    let mut reply = Vec::new();
    match socket.read_to_end(&mut reply) {
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        read => drop(read.expect("an answer, or an end")),
    }
    reply
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    pub fn of(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}: ");
        self.head.lines().find_map(|line| line.strip_prefix(prefix.as_str()))
    }
}
