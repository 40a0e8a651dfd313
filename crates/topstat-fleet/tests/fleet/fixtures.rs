// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hosts that record and seal, as recorders do.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use topstat_history::layout::HOUR;
use topstat_history::{Place, Privacy, Root, Table, TableOptions};
use topstat_model::document::Shape;
use topstat_model::{
    Column, ColumnKind, CpuSection, Field, FleetKey, Lost, Reach, Row, Settings, Snapshot, Stored, TableType, Unit,
};

/// A directory that is removed at the end of the test.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("topstat-fleet-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    /// The directory of the hosts' records.
    pub fn fleet(&self) -> PathBuf {
        self.0.join("fleet")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// 2026-11-25T03:00:00Z
pub fn hour() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_575_600)
}

/// Numbers that look random, and are equal in each run.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most.max(1)
    }
}

/// The three tables, one of each reach.
pub const TABLES: [(&str, &str); 3] = [("net_cgroups", "bps"), ("net_ports", "bps"), ("tasks", "cpu")];

pub fn shape(sample: &str, _: &str) -> Option<Shape> {
    let (columns, numbers, key): (_, &[bool], _) = match sample {
        "net_cgroups" => (
            vec![Column::new("cgroup", ColumnKind::Path), Column::optional("container", ColumnKind::Id)],
            &[false, false],
            FleetKey::new(Reach::Spanning, &["cgroup"]),
        ),
        "net_ports" => (
            vec![
                Column::new("port", ColumnKind::Port),
                Column::new("proto", ColumnKind::Text),
                Column::new("netns", ColumnKind::Id),
            ],
            &[true, false, true],
            FleetKey::new(Reach::Part, &["port", "proto"]),
        ),
        "tasks" => (
            vec![Column::new("pid", ColumnKind::Pid), Column::new("comm", ColumnKind::Text)],
            &[true, false],
            FleetKey::new(Reach::Local, &["pid", "comm"]),
        ),
        _ => return None,
    };
    let stored = Stored { numbers: numbers.to_vec(), parts: vec![], lost: vec!["full".into()], key: Some(key) };
    Some(Shape { columns, value_name: "bps".into(), stored: Some(stored) })
}

/// The fields of an object: few of them are popular, and the same on each host.
fn object(sample: &str, number: u64, host: u64) -> Vec<Field> {
    match sample {
        "net_cgroups" if number.is_multiple_of(5) => {
            let id = format!("{host:04x}{number:08x}");
            vec![Field::from(format!("/kubepods/{id}")), Field::from(id)]
        }
        "net_cgroups" => vec![Field::from(format!("/system.slice/s{number}.service")), Field::None],
        "net_ports" => {
            let proto = if number.is_multiple_of(2) { Field::from("tcp") } else { Field::None };
            vec![Field::U64(number / 3), proto, Field::U64(4_026_531_840 + number % 3)]
        }
        _ => vec![Field::U64(100 + number), Field::from(format!("worker {}", number % 7))],
    }
}

/// A snapshot with `rows` of the host's objects.
pub fn snapshot(sample: &str, table: &str, time: SystemTime, host: u64, rows: usize) -> Snapshot {
    let mut chance = Chance(host * 1_000_003 + time.duration_since(UNIX_EPOCH).unwrap().as_secs());
    let shape = shape(sample, table).unwrap();
    let mut objects: Vec<(u64, u64)> =
        (0..60).filter(|_| chance.below(3) > 0).map(|number| (1_000_000 / (number + 1), number)).collect();
    objects.iter_mut().for_each(|(value, _)| *value = *value / 2 + chance.below(*value));
    objects.sort_unstable_by(|a, b| b.cmp(a));
    let total: u64 = objects.iter().map(|(value, _)| value).sum();
    objects.truncate(rows);
    let rows: Vec<_> = (1..)
        .zip(&objects)
        .map(|(rank, (value, number))| Row {
            id: Row::NO_ID,
            rank,
            value: *value,
            object: object(sample, *number, host),
            parts: vec![],
            cpus: vec![0],
        })
        .collect();
    let other = total - rows.iter().map(|row| row.value).sum::<u64>();
    let proven = if host % 7 == 3 { rows.len() / 4 } else { rows.len() };
    // Some hosts lose more from record to record.
    let full = if host % 11 == 4 { time.duration_since(UNIX_EPOCH).unwrap().as_secs() } else { 0 };
    let lost = Lost { further: vec![("full".into(), full)], ..Lost::default() };
    Snapshot {
        time,
        sample: sample.into(),
        table: table.into(),
        kind: TableType::Dynamic,
        unit: Unit::Bits,
        value_name: "bps".into(),
        period_ms: 1000,
        delay_ms: 0,
        elapsed: None,
        top: 128,
        objects: 60,
        total,
        shared: 0,
        other,
        proven: u32::try_from(proven).unwrap(),
        filter: None,
        lost_now: lost.clone(),
        lost,
        settings: Settings { enabled: true, owner: sample.into(), owner_enabled: true, topstat_enabled: true },
        columns: shape.columns,
        parts: vec![],
        cpus: vec![CpuSection { cpu: 0, total, stale: false, rows: vec![] }],
        rows,
    }
}

/// The name of a host. One of them looks like a number.
pub fn name(host: u64) -> String {
    if host == 0 { "007".to_owned() } else { format!("h{host:04}") }
}

/// Records and seals some snapshots of a host, from 03:11:00 on; the last ones are around 03:12:00.
pub fn record(fleet: &Path, host: u64, rows: usize) {
    record_without(fleet, host, rows, &Privacy::default());
}

/// As [`record`], by a host that hides columns.
pub fn record_without(fleet: &Path, host: u64, rows: usize, privacy: &Privacy) {
    fs::create_dir_all(fleet).unwrap();
    let root = Root::guarded(fleet).unwrap();
    let second = Duration::from_secs(1);
    let options = TableOptions { interval: 10 * second, rows, fine_interval: second, seal_every: HOUR };
    for (sample, table) in TABLES {
        let place = Place { host: name(host), sample: sample.into(), table: table.into() };
        let mut recorder = Table::open(&root, place, options, Duration::ZERO).unwrap();
        for number in 0..8 {
            let seconds = 660 + 10 * number + u32::try_from(host % 10).unwrap();
            let rows = if host == 5 && number == 5 { 0 } else { 2 * rows };
            recorder.coarse(snapshot(sample, table, hour() + second * seconds, host, rows)).unwrap();
        }
        recorder.pause().unwrap();
        for log in recorder.to_seal(hour() + 7200 * second).unwrap() {
            assert_eq!(recorder.seal(&log, &shape, privacy).unwrap(), None);
        }
    }
}
