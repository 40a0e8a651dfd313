// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes the sealed records of a fleet, for measurements: `generate DIR HOSTS ROWS [SNAPSHOTS]`.
//!
//! Each host runs 300 of 2,000 services, whose traffic falls as 1/n, and 40 containers of its own. It records one snapshot shortly
//! before 2026-11-25T03:12:00Z, or several snapshots, 10 s apart, up to that time.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use topstat_history::layout::HOUR;
use topstat_history::{Place, Privacy, Root, Table, TableOptions};
use topstat_model::document::Shape;
use topstat_model::{
    Column, ColumnKind, Field, FleetKey, Lost, Reach, Row, Settings, Snapshot, Stored, TableType, Unit,
};

const SERVICES: u64 = 2000;
const HERE: usize = 300;
const CONTAINERS: u64 = 40;
const INTERVAL: Duration = Duration::from_secs(10);

/// Numbers that look random, and are equal in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most.max(1)
    }
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("cgroup", ColumnKind::Path),
        Column::optional("container", ColumnKind::Id),
        Column::optional("closed", ColumnKind::Mark),
    ]
}

fn shape(_: &str, _: &str) -> Option<Shape> {
    let lost = ["crowded", "skipped", "opaque", "full", "unseen"].map(str::to_owned).to_vec();
    let parts = ["rx", "tx"].map(str::to_owned).to_vec();
    let key = Some(FleetKey::new(Reach::Spanning, &["cgroup"]));
    let stored = Stored { numbers: vec![false; 3], parts, lost, key };
    Some(Shape { columns: columns(), value_name: "bps".into(), stored: Some(stored) })
}

/// The snapshot that is `before` snapshots before the last.
fn snapshot(host: u64, rows: usize, before: u32) -> Snapshot {
    let mut chance = Chance(host);
    let offset = chance.below(10_000);
    let mut objects = std::collections::BTreeMap::new();
    while objects.len() < HERE {
        // Popular services run on more hosts.
        let service = chance.below(SERVICES).min(chance.below(SERVICES));
        let base = 100_000_000 / (service + 1);
        objects.insert((service, false), base / 4 + chance.below(2 * base));
    }
    for container in 0..CONTAINERS {
        objects.insert((container, true), 20_000 + chance.below(400_000));
    }
    // Up to a quarter more or less than in the last snapshot.
    let mut chance = Chance(host ^ u64::from(before) << 32);
    let mut now = |value: u64| if before == 0 { value } else { value - value / 4 + chance.below(value / 2) };
    let mut objects: Vec<_> = objects.into_iter().map(|(object, value)| (now(value), object)).collect();
    objects.sort_unstable_by(|a, b| b.cmp(a));
    let total: u64 = objects.iter().map(|(value, _)| value).sum();
    let count = objects.len() as u64;
    objects.truncate(rows);
    let object = |number: u64, contained: bool| {
        if !contained {
            return vec![Field::from(format!("/system.slice/svc-{number:04}.service")), Field::None, Field::None];
        }
        let id = format!("{host:06x}{number:06x}");
        vec![Field::from(format!("/kubepods.slice/kubepods-pod{id}.slice")), Field::from(id), Field::None]
    };
    let rows: Vec<_> = (1..)
        .zip(objects)
        .map(|(rank, (value, (number, contained)))| Row {
            id: Row::NO_ID,
            rank,
            value,
            object: object(number, contained),
            parts: vec![value / 3, value - value / 3],
            cpus: vec![0, 1],
        })
        .collect();
    let other = total - rows.iter().map(|row| row.value).sum::<u64>();
    let further = ["crowded", "skipped", "opaque", "full", "unseen"].map(|name| (name.into(), 0)).to_vec();
    let lost = Lost { further, ..Lost::default() };
    Snapshot {
        time: UNIX_EPOCH + Duration::from_secs(1_795_576_320) - Duration::from_millis(offset) - INTERVAL * before,
        sample: "net_cgroups".into(),
        table: "bps".into(),
        kind: TableType::Dynamic,
        unit: Unit::Bits,
        value_name: "bps".into(),
        period_ms: 1000,
        delay_ms: 0,
        elapsed: None,
        top: 128,
        objects: count,
        total,
        shared: total,
        other,
        proven: u32::try_from(rows.len()).expect("few rows"),
        filter: None,
        lost_now: lost.clone(),
        lost,
        settings: Settings { enabled: true, owner: String::new(), owner_enabled: true, topstat_enabled: true },
        columns: columns(),
        parts: vec!["rx".into(), "tx".into()],
        cpus: vec![],
        rows,
    }
}

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    let (dir, hosts, rows, snapshots) = match &arguments[..] {
        [_, dir, hosts, rows] => (dir, hosts, rows, "1"),
        [_, dir, hosts, rows, snapshots] => (dir, hosts, rows, snapshots.as_str()),
        _ => panic!("usage: generate DIR HOSTS ROWS [SNAPSHOTS]"),
    };
    let (hosts, rows): (u64, usize) = (hosts.parse().expect("a number"), rows.parse().expect("a number"));
    let snapshots: u32 = snapshots.parse().expect("a number");
    let root = Root::make(Path::new(dir)).expect("a directory");
    let second = Duration::from_secs(1);
    let options = TableOptions { interval: INTERVAL, rows, fine_interval: second, seal_every: HOUR };
    for host in 0..hosts {
        let place = Place { host: format!("h{host:05}"), sample: "net_cgroups".into(), table: "bps".into() };
        let mut table = Table::open(&root, place, options, Duration::ZERO).expect("a table");
        let mut over = UNIX_EPOCH;
        for before in (0..snapshots).rev() {
            let snapshot = snapshot(host, rows, before);
            over = snapshot.time + 3600 * second;
            table.coarse(snapshot).expect("a record");
        }
        table.pause().expect("a whole log");
        for log in table.to_seal(over).expect("a log") {
            table.seal(&log, &shape, &Privacy::default()).expect("a sealed file");
        }
    }
}
