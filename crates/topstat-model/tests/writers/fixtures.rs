// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Snapshots to test with.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use topstat_model::{Column, ColumnKind, CpuRow, CpuSection, Field, Lost, Row, Settings, Snapshot, TableType, Unit};

/// 2026-11-21T08:00:00.000Z
pub fn eight_o_clock() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_248_000)
}

/// The columns of connections.
pub fn connection_columns() -> Vec<Column> {
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

/// A connection from port 80 of `sip` to port `dport` of `dip`.
pub fn connection(sip: &str, dip: &str, dport: u16, comm: &str, cgroup: &str) -> Vec<Field> {
    vec![
        Field::Ip(sip.parse().unwrap()),
        Field::from(80_u16),
        Field::Ip(dip.parse().unwrap()),
        Field::from(dport),
        Field::from(77_u32),
        Field::from(comm),
        Field::from(cgroup),
        Field::from(4_026_531_840_u32),
        Field::None,
    ]
}

/// A table without rows, in good order.
pub fn empty() -> Snapshot {
    Snapshot {
        time: eight_o_clock(),
        sample: "tcp_v4".into(),
        table: "conns_pps".into(),
        kind: TableType::Dynamic,
        unit: Unit::Packets,
        value_name: "pps".into(),
        period_ms: 1000,
        delay_ms: 0,
        elapsed: None,
        top: 128,
        objects: 0,
        total: 0,
        shared: 0,
        other: 0,
        proven: 0,
        filter: None,
        lost: Lost::default(),
        lost_now: Lost::default(),
        settings: Settings { enabled: true, owner: "tcp_v4".into(), owner_enabled: true, topstat_enabled: true },
        columns: connection_columns(),
        parts: vec!["rx".into(), "tx".into()],
        rows: vec![],
        cpus: vec![],
    }
}

/// A snapshot with these objects and values. A third of each value is rx. All objects were pushed on CPU 0, the first also on CPU
/// 3. `other` is the rest of the total.
pub fn with_rows(objects: Vec<(u64, Vec<Field>)>, total: u64) -> Snapshot {
    let mut snapshot = empty();
    snapshot.objects = objects.len() as u64 + 4000;
    snapshot.proven = objects.len() as u32;
    snapshot.total = total;
    let cpu_rows: Vec<_> =
        objects.iter().map(|(value, object)| CpuRow { value: *value, object: object.clone() }).collect();
    snapshot.cpus = vec![
        CpuSection { cpu: 0, total: total - total / 3, stale: false, rows: cpu_rows.clone() },
        CpuSection { cpu: 2, total: 0, stale: false, rows: vec![] },
        CpuSection { cpu: 3, total: total / 3, stale: false, rows: cpu_rows.into_iter().take(1).collect() },
    ];
    snapshot.rows = (1..)
        .zip(objects)
        .map(|(rank, (value, object))| Row {
            id: Row::NO_ID,
            rank,
            value,
            object,
            parts: vec![value / 3, value - value / 3],
            cpus: if rank == 1 { vec![0, 3] } else { vec![0] },
        })
        .collect();
    snapshot.settle().unwrap();
    snapshot.check().unwrap();
    snapshot
}

/// Three IPv4 connections, one of them in a container.
pub fn v4() -> Snapshot {
    let nginx = "/system.slice/nginx.service";
    let mut in_container =
        connection("172.17.0.2", "192.168.100.200", 443, "postgres", "/system.slice/docker-4f2a.scope");
    *in_container.last_mut().unwrap() = Field::from("db");
    with_rows(
        vec![
            (98_765, connection("10.0.0.1", "10.0.0.2", 4242, "nginx", nginx)),
            (990, in_container),
            (7, connection("10.0.0.1", "10.0.0.3", 50_123, "nginx", nginx)),
        ],
        123_456,
    )
}

/// Two IPv6 connections, and one of IPv4 on an IPv6 socket; a static table of bytes with values beyond 2^53.
pub fn v6() -> Snapshot {
    let cgroup = "/user.slice/user-1000.slice/session-2.scope";
    let local = "2001:db8:0:0:0:0:0:1";
    let mut snapshot = with_rows(
        vec![
            (9_007_199_254_740_993, connection(local, "2001:db8::dead:beef", 443, "curl", cgroup)),
            (1_610_612_736, connection("fe80::1", "fe80::aaaa:bbbb:cccc:dddd", 22, "sshd", cgroup)),
            (1023, connection("::ffff:192.0.2.1", "::ffff:192.0.2.2", 8080, "java", cgroup)),
        ],
        9_007_201_000_000_001,
    );
    snapshot.sample = "tcp_v6".into();
    snapshot.settings.owner = "tcp_v6".into();
    snapshot.table = "conns_bytes".into();
    snapshot.kind = TableType::Static;
    snapshot.unit = Unit::Bytes;
    snapshot.value_name = "bytes".into();
    snapshot
}

/// Names made to break terminals, lines, tab-separated columns and spreadsheets.
pub fn weird() -> Snapshot {
    let connection = |dport, comm, cgroup| connection("10.0.0.1", "10.0.0.2", dport, comm, cgroup);
    let mut unknown = connection(5, "", "");
    unknown[4..8].fill(Field::None);
    with_rows(
        vec![
            (50, connection(1, "\x1b]0;owned\x07\x1b[31m", "/a\tb\nc\r\n,\"d\"")),
            (40, connection(2, "=cmd|'/C calc'!A0", "-1+1")),
            (30, connection(3, "日本語 🦀 \u{202e}cod.exe", "/system.slice/getty\\x2dpre.slice")),
            (20, connection(4, "a,b \"c\" 'd'", "@SUM(A1)\u{9b}2J")),
            (10, unknown),
        ],
        150,
    )
}

/// A table with all kinds of losses and qualifications, over a period that is not a second.
pub fn troubled() -> Snapshot {
    let mut snapshot = v4();
    snapshot.period_ms = 5000;
    snapshot.delay_ms = 100;
    snapshot.proven = 2;
    snapshot.lost_now.contended = 3;
    snapshot.lost_now.further.push(("ring_full".into(), 12));
    snapshot.lost = Lost { contended: 40, no_memory: 5, ..snapshot.lost_now.clone() };
    snapshot.settings.owner_enabled = false;
    snapshot.cpus[2].stale = true;
    snapshot
}

/// Two of three connections have closed.
pub fn closed() -> Snapshot {
    let mut snapshot = v4();
    snapshot.columns.push(Column::optional("closed", ColumnKind::Mark));
    let mark = |place: usize| if place > 0 { Field::True } else { Field::None };
    for (place, row) in snapshot.rows.iter_mut().enumerate() {
        row.object.push(mark(place));
    }
    for (place, row) in snapshot.cpus.iter_mut().flat_map(|cpu| cpu.rows.iter_mut().enumerate()) {
        row.object.push(mark(place));
    }
    snapshot
}

/// Two of three rows match a filter.
pub fn filtered() -> Snapshot {
    let mut snapshot = v4();
    let comm = snapshot.column("comm").unwrap();
    snapshot.retain("comm=nginx", |object, _| object[comm] == Field::from("nginx"));
    snapshot
}

/// CPU time of tasks: no parts, nanoseconds.
pub fn tasks() -> Snapshot {
    let mut snapshot = with_rows(vec![], 1_500_000_000);
    snapshot.sample = "tasks".into();
    snapshot.settings.owner = "tasks".into();
    snapshot.table = "cpu".into();
    snapshot.unit = Unit::Nanoseconds;
    snapshot.value_name = "ns".into();
    snapshot.columns = vec![Column::new("pid", ColumnKind::Pid), Column::new("comm", ColumnKind::Text)];
    snapshot.parts = vec![];
    snapshot.rows = [(1, 912_345_678, "rustc"), (2, 1_234_567, "kworker/0:1"), (3, 800, "init")]
        .map(|(rank, value, comm)| Row {
            id: Row::NO_ID,
            rank,
            value,
            object: vec![Field::from(1000 + rank), Field::from(comm)],
            parts: vec![],
            cpus: vec![0],
        })
        .into();
    snapshot.proven = 3;
    snapshot.settle().unwrap();
    snapshot.check().unwrap();
    snapshot
}
