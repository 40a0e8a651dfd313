// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes and control groups that have ended: their rows stay, and are no longer counted as objects.

use std::time::Duration;

use topstat_kernel::Source;
use topstat_live::cgroup::Group;
use topstat_live::watch::{everything, load, snapshot};
use topstat_live::{Case, Role, alone, eventually};
use topstat_model::{Field, Row, Snapshot};

use super::flows::server;

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Totals: ended_processes_are_no_objects, Root, CgroupV2, Sample(PROCS), Sample(GROUPS); EveryKernel, Gate),
    ]
}

const PROCS: &str = "net_procs/bytes";
const GROUPS: &str = "net_cgroups/bytes";
const CLIENTS: usize = 20;
const BYTES: u64 = 5000;
const PATIENCE: Duration = Duration::from_secs(10);

/// The closed and the other rows of the test's objects.
fn rows(snapshot: &Snapshot, is_own: impl Fn(&[Field]) -> bool) -> (Vec<&Row>, Vec<&Row>) {
    snapshot.rows.iter().filter(|row| is_own(&row.object)).partition(|row| snapshot.is_closed(&row.object))
}

fn of_clients(snapshot: &Snapshot) -> (Vec<&Row>, Vec<&Row>) {
    let comm = snapshot.column("comm").expect("a column");
    rows(snapshot, |object| object[comm].to_string() == "tl-ended")
}

fn of_group<'a>(snapshot: &'a Snapshot, path: &str) -> (Vec<&'a Row>, Vec<&'a Row>) {
    let cgroup = snapshot.column("cgroup").expect("a column");
    rows(snapshot, |object| object[cgroup].to_string() == path)
}

/// The kernel frees a process after a grace period of RCU.
fn ended_processes_are_no_objects() {
    let group = Group::new("ended").expect("a cgroup");
    let path = group.path.clone();
    let (server, at) = server("tl-net-server", "127.0.0.1:0");
    let mut source = load(&[PROCS, GROUPS], &everything());
    let source: &mut dyn Source = &mut *source;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = Role::start("net-client", &["tl-ended"]);
        client.expect("ready");
        group.take(client.pid());
        for line in [format!("connect {at}"), BYTES.to_string()] {
            client.tell(&line);
            client.expect("done");
        }
        clients.push(client);
    }
    let (procs, groups) = (snapshot(source, PROCS), snapshot(source, GROUPS));
    assert_eq!(of_clients(&procs).1.len(), CLIENTS, "each has a row, and is there: {:?}", procs.rows);
    assert_eq!(of_group(&groups, &path).1.len(), 1, "{:?}", groups.rows);
    assert!(of_clients(&procs).0.is_empty() && of_group(&groups, &path).0.is_empty());
    assert!(procs.objects > CLIENTS as u64, "{} objects: the clients and the server", procs.objects);
    clients.into_iter().for_each(Role::finish);
    drop(group);
    let closed = |source: &mut dyn Source| {
        let (procs, groups) = (snapshot(source, PROCS), snapshot(source, GROUPS));
        (of_clients(&procs).0.len(), of_group(&groups, &path).0.len())
    };
    let mut last = (0, 0);
    let all = eventually(PATIENCE, || {
        last = closed(source);
        last == (CLIENTS, 1)
    });
    assert!(all, "{} of {CLIENTS} clients and {} of one group are closed", last.0, last.1);
    let (after, groups) = (snapshot(source, PROCS), snapshot(source, GROUPS));
    // A process of an earlier test may have ended, too.
    assert_eq!(after.objects + after.closed(), procs.objects, "{:?}", after.rows);
    assert_eq!(of_clients(&after).0.len(), CLIENTS, "{:?}", after.rows);
    let sent: u64 = of_clients(&after).0.iter().map(|row| row.parts[0]).sum();
    assert_eq!(sent, CLIENTS as u64 * BYTES, "their rows have what they had");
    assert_eq!(of_group(&groups, &path).0.len(), 1, "{:?}", groups.rows);
    server.finish();
}
