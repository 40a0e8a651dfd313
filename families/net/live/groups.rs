// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control groups of processes in different places of the host's hierarchies.

use std::net::SocketAddr;

use topstat_kernel::Source;
use topstat_live::cgroup::Group;
use topstat_live::watch::{everything, load, snapshot};
use topstat_live::{Case, Role, alone, cgroup};
use topstat_model::Field;

use super::flows::{parts, pid, server};
use super::roles::REQUEST;

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Totals: groups_of_one_parent_are_told_apart, Root, CgroupV2, Sample(BYTES); EveryKernel),
        alone!(Totals: a_process_moves_between_groups, Root, CgroupV2, Sample(BYTES); EveryKernel),
        alone!(Totals: processes_in_different_places_of_both_versions, Root, CgroupsOfBoth, Sample(BYTES); EveryKernel),
        alone!(Totals: all_families_say_the_same_group, Root, CgroupV2, Sample(BYTES), Sample("tasks/cpu"); EveryKernel),
    ]
}

const BYTES: &str = "net_cgroups/bytes";

/// A client that connects and asks a server on command.
struct Client(Role);

impl Client {
    /// A client that is in these groups before it has a socket.
    fn start(comm: &str, groups: &[&Group]) -> Self {
        let mut role = Role::start("net-client", &[comm]);
        role.expect("ready");
        groups.iter().for_each(|group| group.take(role.pid()));
        Self(role)
    }

    fn tell(&mut self, line: &str) {
        self.0.tell(line);
        self.0.expect("done");
    }

    /// Makes a connection and receives `bytes` bytes.
    fn receive(&mut self, at: SocketAddr, bytes: usize) {
        self.tell(&format!("connect {at}"));
        self.tell(&bytes.to_string());
    }

    /// The client's group, as the kernel shows it.
    fn group(&self) -> String {
        cgroup::expected(self.0.pid()).expect("each process is in a group")
    }
}

/// The bytes that a group is shown to have received and sent.
fn shown(source: &mut dyn Source, path: &str) -> [u64; 2] {
    parts(&snapshot(source, BYTES), &[("cgroup", Field::from(path))])
}

/// The bytes of clients after `times` answers with `bytes` bytes in all.
fn of_clients(times: usize, bytes: usize) -> [u64; 2] {
    [bytes as u64, (times * REQUEST) as u64]
}

/// On a host that has v1, too, both are in one group of v1.
fn groups_of_one_parent_are_told_apart() {
    let (one, two) = (Group::new("one").expect("a cgroup"), Group::new("two").expect("a cgroup"));
    let (server, at) = server("tl-net-server", "127.0.0.1:0");
    let mut source = load(&[BYTES], &everything());
    let mut clients = [Client::start("tl-one", &[&one]), Client::start("tl-two", &[&two])];
    for _ in 0..3 {
        clients[0].receive(at, 80_000);
        clients[1].receive(at, 20_000);
    }
    let found = [&one, &two].map(|group| shown(&mut *source, &group.path));
    assert_eq!(found, [of_clients(3, 240_000), of_clients(3, 60_000)]);
    clients.into_iter().for_each(|client| client.0.finish());
    server.finish();
}

/// A connection stays with the group in which it was made, as in the kernel's own accounts. The next connection is the new
/// group's.
fn a_process_moves_between_groups() {
    let (before, after) = (Group::new("before").expect("a cgroup"), Group::new("after").expect("a cgroup"));
    let (server, at) = server("tl-net-server", "127.0.0.1:0");
    let mut source = load(&[BYTES], &everything());
    let mut client = Client::start("tl-moves", &[&before]);
    client.receive(at, 30_000);
    after.take(client.0.pid());
    client.tell("7000");
    let found = [&before, &after].map(|group| shown(&mut *source, &group.path));
    assert_eq!(found, [of_clients(2, 37_000), [0, 0]], "its connection is as it was");
    client.receive(at, 500);
    let found = [&before, &after].map(|group| shown(&mut *source, &group.path));
    assert_eq!(found, [of_clients(2, 37_000), of_clients(1, 500)]);
    client.0.finish();
    server.finish();
}

/// Two clients are in one group of v2, and in different groups of v1. Two are in one group of v1, and one of these two is in v2's
/// root.
fn processes_in_different_places_of_both_versions() {
    let v2 = Group::new("both").expect("a cgroup of v2");
    let (one, two) = (Group::of_v1("one").expect("a cgroup of v1"), Group::of_v1("two").expect("a cgroup of v1"));
    let (server, at) = server("tl-net-server", "127.0.0.1:0");
    let mut source = load(&[BYTES], &everything());
    let mut clients = [
        (Client::start("tl-v2-one", &[&v2, &one]), 1000),
        (Client::start("tl-v2-two", &[&v2, &two]), 20_000),
        (Client::start("tl-v1-one", &[&one]), 300_000),
    ];
    for (client, bytes) in &mut clients {
        client.receive(at, *bytes);
    }
    assert_eq!(clients.each_ref().map(|(client, _)| client.group()), [&*v2.path, &v2.path, &one.path]);
    let found = [&v2, &one, &two].map(|group| shown(&mut *source, &group.path));
    assert_eq!(found, [of_clients(2, 21_000), of_clients(1, 300_000), [0, 0]]);
    // The client moves to another group of v1; in v2 it stays in the root.
    let (client, _) = &mut clients[2];
    two.take(client.0.pid());
    client.receive(at, 40);
    let found = [&v2, &one, &two].map(|group| shown(&mut *source, &group.path));
    assert_eq!(found, [of_clients(2, 21_000), of_clients(1, 300_000), of_clients(1, 40)]);
    clients.into_iter().for_each(|(client, _)| client.0.finish());
    server.finish();
}

/// A process, in a group of v2 or not in one: every family shows it in the group that the kernel shows.
fn all_families_say_the_same_group() {
    const TABLES: [&str; 3] = ["net_procs/bytes", "tcp_v4/conns_bytes", "tasks/cpu_total"];
    let group = Group::new("same").expect("a cgroup");
    let (server, at) = server("tl-net-server", "127.0.0.1:0");
    let mut sources = TABLES.map(|path| (path, load(&[path], &everything())));
    let mut groups = load(&[BYTES, "net_cgroups/pps"], &everything());
    for places in [&[&group][..], &[]] {
        let mut client = Client::start("tl-same", places);
        client.receive(at, 1000);
        let expected = Field::from(client.group());
        for (path, source) in &mut sources {
            let snapshot = snapshot(&mut **source, path);
            let [cgroup, own] = ["cgroup", "pid"].map(|name| snapshot.column(name).expect("a column"));
            let rows: Vec<_> = snapshot.rows.iter().filter(|row| row.object[own] == pid(client.0.pid())[0].1).collect();
            assert!(!rows.is_empty(), "{path}: no row of the client");
            assert!(rows.iter().all(|row| row.object[cgroup] == expected), "{path}: {rows:?}, not {expected}");
        }
        let found = shown(&mut *groups, &client.group());
        assert!(found[0] >= 1000, "{expected}: {found:?}");
        client.0.finish();
    }
    server.finish();
}
