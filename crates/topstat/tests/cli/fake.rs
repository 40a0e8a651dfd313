// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A backend with made-up snapshots, always identical: for tests, and for `examples/demo.rs`.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, UNIX_EPOCH};

use topstat::{Account, Backend, Reads, Stream};
use topstat_families::account::AccountOptions;
use topstat_families::custom::{self, Listed, PinnedTable, System, Trouble};
use topstat_families::netstack;
use topstat_families::snmp::Wish;
use topstat_kernel::pinned::{Adopted, Attached, Status};
use topstat_kernel::{
    Check, Error, Family, Options, Outcome, Program, SampleInfo, Setter, Source, State, Streaming, TableInfo,
    TableSettings, events,
};
use topstat_lab::side::Profiling;
use topstat_model::counters::Counters;
use topstat_model::definition::Definition;
use topstat_model::histograms::{Histograms, Subject};
use topstat_model::{Column, ColumnKind, CpuSection, Dump, DumpCpu, DumpSlot, Field, Lost, Row, Settings, Snapshot};

#[path = "account.rs"]
pub mod account;
#[path = "counting.rs"]
pub mod counting;
#[path = "profiling.rs"]
pub mod profiling;
#[path = "streaming.rs"]
pub mod streaming;

use account::{Asked, FakeAccount};
use counting::FakeCounters;
use profiling::{FakeHistograms, FakeStacks};
use streaming::FakeStream;

/// Objects in each table.
const OBJECTS: u32 = 200;
/// The sum of all objects below the top.
const OTHER: u64 = 1000;

/// Makes fake sources, and keeps the options of calls.
#[derive(Default)]
pub struct Fake {
    /// The options of the last load.
    pub options: Option<Options>,
    /// The number of sources that are alive.
    pub loaded: Arc<AtomicU32>,
    /// Loading fails.
    pub refuse: bool,
    /// The number of the snapshot that fails.
    pub fail_at: Option<u64>,
    /// The tables of IPv6 and of IPv4 have different periods.
    pub apart: bool,
    /// The results of a check.
    pub checks: Vec<Check>,
    /// The state that a daemon has pinned, by family.
    pub pinned: HashMap<String, Arc<FakeState>>,
    /// The attached links, with pins anywhere.
    pub attached: Vec<Attached>,
    /// The error of every attempt to open pinned state.
    pub unpinnable: Option<&'static str>,
    /// The family whose pinned state can't be opened now.
    pub broken: Option<&'static str>,
    /// The options of the last account of tasks.
    pub account_options: Option<AccountOptions>,
    /// The calls of that account.
    pub asked: Arc<Mutex<Asked>>,
    /// The last wish for counters.
    pub wish: Option<Wish>,
    /// Some figures are missing.
    pub lossy: bool,
    /// The root of the host's files.
    pub host: PathBuf,
    /// The pinned state of all families.
    pub status: Vec<Status>,
}

impl Fake {
    /// A daemon has pinned all families, with `top` rows in each table.
    pub fn pinned(top: u32) -> Self {
        let state = |family: &Arc<Family>| (family.name.clone(), Arc::new(FakeState::new(family, top)));
        let families = topstat_families::catalogue().families();
        let pinned = families.iter().filter(|family| !family.samples.is_empty());
        Self { pinned: pinned.map(state).collect(), ..Self::default() }
    }

    /// The settings of this table of the daemon.
    pub fn set(&self, path: &str) -> TableSettings {
        let found = self.pinned.values().find_map(|state| state.settings.lock().unwrap().get(path).copied());
        found.unwrap_or_else(|| panic!("no table {path}"))
    }
}

/// The made-up state of a daemon.
pub struct FakeState {
    samples: Vec<Arc<SampleInfo>>,
    top: u32,
    /// The state ranks threads.
    pub threads: bool,
    settings: Mutex<HashMap<String, TableSettings>>,
    /// The lock of a change of settings.
    setting: Mutex<()>,
    /// The table that can't be set.
    pub stubborn: Mutex<Option<&'static str>>,
    /// The number of readers that are alive.
    pub readers: Arc<AtomicU32>,
    /// Whether the rows of every CPU were wanted last.
    pub cpu_rows: Arc<AtomicBool>,
}

impl FakeState {
    fn new(family: &Family, top: u32) -> Self {
        let tables = family.tables();
        Self {
            samples: family.samples.clone(),
            top,
            threads: false,
            setting: Mutex::default(),
            settings: Mutex::new(tables.iter().map(|table| (table.path(), TableSettings::default())).collect()),
            stubborn: Mutex::default(),
            readers: Arc::default(),
            cpu_rows: Arc::default(),
        }
    }
}

impl State for FakeState {
    fn samples(&self) -> &[Arc<SampleInfo>] {
        &self.samples
    }

    fn top(&self) -> u32 {
        self.top
    }

    fn threads(&self) -> bool {
        self.threads
    }

    fn settings(&self, table: &TableInfo) -> Result<TableSettings, Error> {
        let settings = self.settings.lock().unwrap();
        settings.get(&table.path()).copied().ok_or_else(|| Error::NotLoaded(table.path()))
    }

    fn lock(&self) -> Result<Box<dyn Setter + '_>, Error> {
        Ok(Box::new(FakeSetter { state: self, _alone: self.setting.lock().unwrap() }))
    }

    fn pushed(&self, table: &TableInfo) -> Result<u64, Error> {
        self.settings(table).map(|_| 0)
    }

    fn objects(&self, _: &SampleInfo) -> u64 {
        0
    }

    fn reader(self: Arc<Self>) -> Result<Box<dyn Source>, Error> {
        self.readers.fetch_add(1, Ordering::SeqCst);
        let options = Options { top: self.top, ..Options::default() };
        let (loaded, cpu_rows) = (Arc::clone(&self.readers), Arc::clone(&self.cpu_rows));
        Ok(Box::new(FakeSource { options, loaded, cpu_rows, fail_at: None, apart: false, taken: 0 }))
    }

    fn programs(&self) -> Vec<Program> {
        vec![]
    }

    fn way(&self, _: &SampleInfo) -> Option<&'static str> {
        None
    }
}

struct FakeSetter<'a> {
    state: &'a FakeState,
    _alone: MutexGuard<'a, ()>,
}

impl Setter for FakeSetter<'_> {
    fn set(&self, table: &TableInfo, to: &TableSettings) -> Result<(), Error> {
        if *self.state.stubborn.lock().unwrap() == Some(table.path().as_str()) {
            return Err(Error::Kernel { what: format!("set {}", table.path()), why: "it is stubborn".into() });
        }
        // Gives way to another command that reads the settings before this write and writes them after it: the lock has to
        // exclude that.
        std::thread::yield_now();
        self.state.settings.lock().unwrap().insert(table.path(), *to);
        Ok(())
    }
}

impl Backend for Fake {
    fn load(&mut self, tables: &[Arc<TableInfo>], options: &Options) -> Result<Box<dyn Source>, Error> {
        if self.refuse {
            return Err(Error::Unsupported {
                sample: tables[0].sample.clone(),
                reason: "kernel has no BTF (/sys/kernel/btf/vmlinux missing)".into(),
                advice: "build with CONFIG_DEBUG_INFO_BTF=y".into(),
            });
        }
        self.options = Some(options.clone());
        self.loaded.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(FakeSource {
            options: options.clone(),
            loaded: Arc::clone(&self.loaded),
            cpu_rows: Arc::default(),
            fail_at: self.fail_at,
            apart: self.apart,
            taken: 0,
        }))
    }

    fn define(&mut self, sample: &str, table: &str, definition: &Definition) -> Result<(), Trouble> {
        custom::add(sample, table, definition, &System::at("/nowhere")).map(drop)
    }

    fn defined(&mut self, _pins: &Path) -> Result<Vec<PinnedTable>, Error> {
        Ok(Vec::new())
    }

    fn keep_defined(&mut self, _pins: &Path, _paths: &[&str]) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    fn events_of(&mut self, _pattern: &str) -> Result<Vec<(String, Vec<Listed>)>, String> {
        Ok(vec![])
    }

    fn open(&mut self, pins: &Path, family: &Arc<Family>) -> Result<Option<Arc<dyn State>>, Error> {
        if let Some(why) = self.unpinnable {
            return Err(Error::Denied { path: pins.to_owned(), why: why.into() });
        }
        if self.broken == Some(family.name.as_str()) {
            let (path, why) = (pins.join(family.name.as_str()), "Too many open files (os error 24)".to_owned());
            return Err(Error::Pins { path, why, advice: "look at what is there, or remove it".to_owned() });
        }
        Ok(self.pinned.get(&family.name).map(|state| Arc::clone(state) as Arc<dyn State>))
    }

    fn adopt(
        &mut self,
        _: &Path,
        _: &Arc<Family>,
        _: &[Arc<TableInfo>],
        _: &Options,
    ) -> Result<(Arc<dyn State>, Adopted), Error> {
        Err(Error::Option("a fake is not adopted".into()))
    }

    fn status(&mut self, _pins: &Path) -> Result<Vec<Status>, Error> {
        Ok(self.status.clone())
    }

    fn host(&self) -> PathBuf {
        self.host.clone()
    }

    fn remove(&mut self, pins: &Path) -> Result<Vec<PathBuf>, Error> {
        Ok(self.pinned.drain().map(|(name, _)| pins.join(name)).collect())
    }

    fn attached(&mut self) -> Result<Vec<Attached>, Error> {
        Ok(self.attached.clone())
    }

    fn account(&mut self, options: &AccountOptions, exact: &[u32]) -> Result<Box<dyn Account>, Error> {
        if self.refuse {
            return Err(Error::Unsupported {
                sample: "tasks".into(),
                reason: "loading eBPF programs is not permitted".into(),
                advice: "run as root, or with the capabilities CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and CAP_SYS_ADMIN"
                    .into(),
            });
        }
        self.account_options = Some(*options);
        self.loaded.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(FakeAccount {
            asked: Arc::clone(&self.asked),
            loaded: Arc::clone(&self.loaded),
            fail_at: self.fail_at,
            lossy: self.lossy,
            exact: exact.to_vec(),
        }))
    }

    fn counters(&mut self, wish: &Wish) -> Result<Reads<Counters>, Error> {
        self.wish = Some(wish.clone());
        if self.refuse {
            return Err(Error::Option("nothing is called so".into()));
        }
        let mut counters = FakeCounters { lossy: self.lossy, fail_at: self.fail_at, taken: 0 };
        Ok(Box::new(move || counters.read()))
    }

    fn events(
        &mut self,
        wanted: &[Arc<Streaming>],
        tops: Vec<events::Top>,
        _: &events::Options,
    ) -> Result<Box<dyn Stream>, Error> {
        if self.refuse {
            return Err(Error::Kernel { what: "load the eBPF programs of tcp".into(), why: "no".into() });
        }
        self.loaded.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(FakeStream::new(wanted, tops, self.lossy, Arc::clone(&self.loaded))))
    }

    fn stacks(&mut self, _: &netstack::Options) -> Result<Box<dyn Profiling>, Error> {
        if self.refuse {
            return Err(Error::Kernel { what: "sample stacks of the kernel".into(), why: "not permitted".into() });
        }
        Ok(Box::new(FakeStacks { lossy: self.lossy, fail_at: self.fail_at, taken: 0 }))
    }

    fn histograms(&mut self, subject: Subject, _: &netstack::Chosen) -> Result<Reads<Histograms>, Error> {
        if self.refuse {
            return Err(Error::Kernel { what: "attach histograms".into(), why: "not permitted".into() });
        }
        let mut histograms = FakeHistograms { subject, lossy: self.lossy, taken: 0 };
        Ok(Box::new(move || histograms.read()))
    }

    fn check(&mut self, samples: &[Arc<SampleInfo>]) -> Vec<Check> {
        let of_another = |check: &&Check| {
            let sample = check.name.strip_prefix("sample ");
            !samples.is_empty() && sample.is_some_and(|name| samples.iter().all(|wanted| wanted.name != name))
        };
        self.checks.iter().filter(|check| !of_another(check)).cloned().collect()
    }
}

/// A check with this result.
pub fn check(name: &str, outcome: Outcome, found: &str, advice: &str) -> Check {
    Check { name: name.into(), outcome, found: found.into(), advice: advice.into() }
}

struct FakeSource {
    options: Options,
    loaded: Arc<AtomicU32>,
    cpu_rows: Arc<AtomicBool>,
    fail_at: Option<u64>,
    apart: bool,
    taken: u64,
}

impl Drop for FakeSource {
    fn drop(&mut self) {
        self.loaded.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Source for FakeSource {
    fn list_cpu_rows(&mut self, wanted: bool) {
        self.cpu_rows.store(wanted, Ordering::SeqCst);
    }

    fn peek(&mut self, table: &TableInfo) -> Result<Snapshot, Error> {
        self.snapshot(table)
    }

    fn refill(&mut self, _: &TableInfo) -> Result<u64, Error> {
        Ok(0)
    }

    fn dump(&mut self, table: &TableInfo) -> Result<Dump, Error> {
        let snapshot = self.snapshot(table)?;
        let slot = |row: &Row| DumpSlot {
            index: row.rank - 1,
            value: row.value,
            time: self.taken,
            count: 1,
            object: row.object.clone(),
        };
        Ok(Dump {
            table: snapshot.table,
            kind: snapshot.kind,
            value_name: snapshot.value_name,
            period_ms: snapshot.period_ms,
            delay_ms: snapshot.delay_ms,
            settings: snapshot.settings,
            ticks_per_slide: 25,
            now: self.taken,
            objects: snapshot.objects,
            entries: 2 * snapshot.top,
            unkept: None,
            lost: snapshot.lost,
            columns: snapshot.columns,
            cpus: vec![DumpCpu { cpu: 0, slots: snapshot.rows.iter().map(slot).collect() }],
        })
    }

    fn snapshot(&mut self, table: &TableInfo) -> Result<Snapshot, Error> {
        self.taken += 1;
        if self.fail_at == Some(self.taken) {
            return Err(Error::Kernel {
                what: format!("take a snapshot of {}/{}", table.sample, table.name),
                why: "Invalid argument (EINVAL)".into(),
            });
        }
        let rows: Vec<_> = (1..=self.options.top.min(OBJECTS))
            .map(|rank| row(rank, table.sample.ends_with("_v6"), self.taken))
            .collect();
        let total = OTHER + rows.iter().map(|row| row.value).sum::<u64>();
        let snapshot = Snapshot {
            // 2026-11-21T08:00:00.000Z, plus a second for each snapshot.
            time: UNIX_EPOCH + Duration::from_secs(1_795_248_000 + self.taken),
            sample: table.sample.clone(),
            table: table.name.clone(),
            kind: table.kind,
            unit: table.unit,
            value_name: table.value_name.clone(),
            period_ms: self.options.period_ms + u32::from(self.apart && table.sample.ends_with("_v6")),
            delay_ms: self.options.delay_ms,
            elapsed: None,
            top: self.options.top,
            objects: OBJECTS.into(),
            total,
            shared: 0,
            other: OTHER,
            proven: rows.len() as u32,
            filter: None,
            lost: Lost::default(),
            lost_now: Lost::default(),
            settings: Settings {
                enabled: true,
                owner: table.sample.clone(),
                owner_enabled: true,
                topstat_enabled: true,
            },
            columns: vec![
                Column::new("sip", ColumnKind::Address),
                Column::new("sport", ColumnKind::Port),
                Column::new("dip", ColumnKind::Address),
                Column::new("dport", ColumnKind::Port),
                Column::new("pid", ColumnKind::Pid),
                Column::new("comm", ColumnKind::Text),
                Column::new("cgroup", ColumnKind::Path),
                Column::new("netns", ColumnKind::Id),
                Column::optional("closed", ColumnKind::Mark),
            ],
            parts: vec!["rx".into(), "tx".into()],
            rows,
            cpus: vec![CpuSection { cpu: 0, total, stale: false, rows: vec![] }],
        };
        assert_eq!(snapshot.check(), Ok(()));
        Ok(snapshot)
    }
}

/// Every fifth object has ended.
const CLOSED: u32 = 5;

/// The object of this rank: nginx (pid 80, port 443) and postgres (pid 54, port 5432) in turn.
fn row(rank: u32, v6: bool, taken: u64) -> Row {
    let value = 1_000_000 / u64::from(rank) + taken;
    let host = rank as u8;
    let address = |host: u8| -> IpAddr {
        if v6 {
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into()).into()
        } else {
            Ipv4Addr::new(10, 0, 0, host).into()
        }
    };
    let (pid, comm, port, cgroup) = match rank % 2 {
        1 => (80_u32, "nginx", 443_u16, "/system.slice/nginx.service"),
        _ => (54, "postgres", 5432, "/system.slice/postgresql.service"),
    };
    Row {
        id: [rank.into(), 0],
        rank,
        value,
        object: vec![
            Field::Ip(address(0)),
            Field::from(port),
            Field::Ip(address(host)),
            Field::from(40_000 + rank),
            Field::from(pid),
            Field::from(comm),
            Field::from(cgroup),
            Field::from(4_026_531_840_u32),
            if rank.is_multiple_of(CLOSED) { Field::True } else { Field::None },
        ],
        parts: vec![value / 4, value - value / 4],
        cpus: vec![0],
    }
}
