// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Snapshots to record, and directories to record them in.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use topstat_history::layout::HOUR;
use topstat_history::{Place, Root, TableOptions};
use topstat_model::document::Shape;
use topstat_model::{
    Column, ColumnKind, CpuSection, Field, FleetKey, Lost, Reach, Row, Settings, Snapshot, Stored, TableType, Unit,
};

/// A directory that is removed at the end of the test.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("topstat-history-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    /// The directory, as a recorder opens it.
    pub fn root(&self) -> Root {
        Root::guarded(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// 2026-11-21T08:00:00Z, and `ms` after it.
pub fn at(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_248_000) + Duration::from_millis(ms)
}

pub const OPTIONS: TableOptions = TableOptions {
    interval: Duration::from_secs(10),
    rows: 32,
    fine_interval: Duration::from_secs(1),
    seal_every: HOUR,
};

pub fn place() -> Place {
    Place { host: "alpha".into(), sample: "tcp_v4".into(), table: "conns_bps".into() }
}

pub fn columns() -> Vec<Column> {
    vec![
        Column::new("sip", ColumnKind::Address),
        Column::new("sport", ColumnKind::Port),
        Column::new("dip", ColumnKind::Address),
        Column::new("dport", ColumnKind::Port),
        Column::new("pid", ColumnKind::Pid),
        Column::new("comm", ColumnKind::Text),
        Column::new("cgroup", ColumnKind::Path),
        Column::new("netns", ColumnKind::Id),
        Column::optional("container", ColumnKind::Text),
    ]
}

pub fn shape(sample: &str, _: &str) -> Option<Shape> {
    (sample == "tcp_v4").then(|| Shape { columns: columns(), value_name: "bps".into(), stored: Some(stored()) })
}

/// How the table is stored, by its definition.
pub fn stored() -> Stored {
    let is_number = |column: &Column| matches!(column.kind, ColumnKind::Port | ColumnKind::Pid | ColumnKind::Id);
    Stored {
        numbers: columns().iter().map(is_number).collect(),
        parts: vec!["rx".into(), "tx".into()],
        lost: vec!["crowded".into()],
        key: Some(FleetKey::new(Reach::Local, &["sip", "sport", "dip", "dport", "pid"])),
    }
}

/// Numbers that look random, and are equal in each run.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most.max(1)
    }
}

/// A snapshot of `rows` connections of a busy server: peers and ports come and go, and values change all the time.
pub fn snapshot(time: SystemTime, rows: u32) -> Snapshot {
    let since = time.duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let mut chance = Chance(since);
    let mut values: Vec<u64> = (0..rows).map(|_| 8 * chance.below(1_000_000_000)).collect();
    values.sort_unstable_by(|a, b| b.cmp(a));
    let other = 8 * chance.below(1 << 40);
    let total = values.iter().sum::<u64>() + other;
    let rows = (1..).zip(&values).map(|(rank, value)| Row {
        id: Row::NO_ID,
        rank,
        value: *value,
        object: vec![
            Field::Ip("10.0.0.1".parse().unwrap()),
            Field::from(443_u16),
            Field::Ip(std::net::Ipv4Addr::new(192, 0, 2, chance.below(250) as u8).into()),
            Field::U64(32_768 + chance.below(28_000)),
            Field::U64(1000 + chance.below(8)),
            Field::from(["nginx", "envoy", "postgres"][chance.below(3) as usize]),
            Field::from(format!("/system.slice/service-{}.service", chance.below(20))),
            Field::U64(4_026_531_840),
            if chance.below(4) == 0 { Field::from("6d2f1c7e9a30") } else { Field::None },
        ],
        parts: vec![value / 3, value - value / 3],
        cpus: if chance.below(2) == 0 { vec![0] } else { vec![0, 1] },
    });
    let rows: Vec<_> = rows.collect();
    let lost = Lost { contended: since / 7000, no_memory: 0, further: vec![("crowded".into(), 3)] };
    Snapshot {
        time,
        sample: "tcp_v4".into(),
        table: "conns_bps".into(),
        kind: TableType::Dynamic,
        unit: Unit::Bits,
        value_name: "bps".into(),
        period_ms: 1000,
        delay_ms: 0,
        elapsed: None,
        top: 128,
        objects: 5000 + chance.below(100),
        total,
        shared: 0,
        other,
        proven: rows.len() as u32,
        filter: None,
        lost_now: Lost { contended: 0, ..lost.clone() },
        lost,
        settings: Settings { enabled: true, owner: "tcp_v4".into(), owner_enabled: true, topstat_enabled: true },
        columns: columns(),
        parts: vec!["rx".into(), "tx".into()],
        cpus: vec![
            CpuSection { cpu: 0, total: total / 2, stale: false, rows: vec![] },
            CpuSection { cpu: 1, total: total - total / 2, stale: rows.is_empty(), rows: vec![] },
        ],
        rows,
    }
}
