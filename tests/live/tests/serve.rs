// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat serve` beside a daemon, as a user without privileges in the tree's group: documents over HTTP and from
//! `topstat top` show the traffic that was carried; the ranks of a metric add up to the total.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use topstat_live::daemon::Place;
use topstat_live::tree::Document;
use topstat_live::watch::ENDLESS_MS;
use topstat_live::{Case, Daemon, Scratch, case, eventually, limits, note, role, truth};
use topstat_load::{Config, Dist, Load, Plan};

pub fn cases() -> Vec<Case> {
    vec![case!(what_is_served_is_what_was_carried, Root, Fuse; Daemon)]
}

const TABLE: &str = "tcp_v4/conns_pps";
/// The group of the tree, and of the role `members-topstat`.
const GROUP: u32 = 54_341;
/// How long a server may take to start and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longer than the time for which requests share a document: 100 ms.
const SHARED: Duration = Duration::from_millis(200);

/// A server, which is killed on drop.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(daemon: &Daemon, folder: &Path) -> Self {
        let socket = folder.join("serve.sock");
        let mut command = role::command("members-topstat");
        command.arg("serve").arg("--socket").arg(&socket).arg("--mount").arg(&daemon.place.mount);
        let child = command.stdin(Stdio::null()).spawn().expect("start the server");
        role::started(child.id());
        let server = Self { child, socket };
        assert!(eventually(PATIENCE, || UnixStream::connect(&server.socket).is_ok()), "no socket");
        server
    }

    /// The body of an answer.
    fn get(&self, path: &str) -> String {
        let mut socket = UnixStream::connect(&self.socket).expect("connect");
        write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("ask");
        let mut text = String::new();
        socket.read_to_string(&mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("an answer");
        assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {text}");
        body.to_owned()
    }

    /// What the ranks of the table add up to, per second.
    fn ranks(&self) -> (usize, f64) {
        let (sample, table) = TABLE.split_once('/').expect("a path");
        let prefix = format!("topstat_rank_packets_per_second{{sample=\"{sample}\",table=\"{table}\",rank=");
        let text = self.get("/metrics");
        let ranks = text.lines().filter(|line| line.starts_with(&prefix));
        let numbers: Vec<f64> = ranks.map(|line| line.rsplit_once(' ').expect("a number").1.parse().unwrap()).collect();
        (numbers.len(), numbers.iter().sum())
    }
}

fn top(daemon: &Daemon) -> Document {
    let mut command = role::command("topstat");
    command.args(["top", TABLE, "-o", "json", "--root"]).arg(&daemon.place.mount);
    let output = command.output().expect("run topstat top");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Document::of(&String::from_utf8(output.stdout).expect("JSON"))
}

fn what_is_served_is_what_was_carried() {
    const CONNECTIONS: usize = 200;
    let scratch = Scratch::new("serve");
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o777)).expect("let the member make a socket");
    let daemon = Daemon::start_at(Arc::new(Place::configured(&format!("group = \"{GROUP}\""))), &[]);
    let mut server = Server::start(&daemon, scratch.path());
    let mut load = Load::open(Config { connections: CONNECTIONS, ..Config::default() }).unwrap();
    daemon.write(&format!("{TABLE}/period"), ENDLESS_MS);
    let before = truth::settled(&load);
    let plan = Plan::from_dist(&Dist::Zipf { exponent: 0.8, max: 500 }, CONNECTIONS).unwrap();
    load.run(&plan, &limits()).unwrap();
    let truth = truth::difference(&before, &truth::settled(&load));
    let served = || Document::of(&server.get(&format!("/api/v1/tables/{TABLE}")));
    for (by, document) in [("serve", served()), ("top", top(&daemon))] {
        // The rows may include other sockets of the host.
        let ours: Vec<_> =
            document.rows.iter().filter_map(|(key, value)| Some((*value, truth.get(key)?.packets()))).collect();
        assert!(!ours.is_empty() && ours.iter().all(|(value, carried)| value == carried), "{by}: {ours:?}");
    }
    // Nothing ages in this period, so that the total only grows, with other traffic of the host.
    let per_second = |document: &Document| document.total as f64 * 1000.0 / f64::from(ENDLESS_MS);
    let (least, (count, sum)) = (per_second(&served()), server.ranks());
    // Requests of this time share a document, which may be older than that of the ranks.
    std::thread::sleep(SHARED);
    let most = per_second(&served());
    assert_eq!(count, 11);
    assert!(least * (1.0 - 1e-9) <= sum && sum <= most * (1.0 + 1e-9), "{least} {sum} {most}");
    assert!(server.get("/metrics").contains("\ntopstat_up 1\n"));
    let filtered = server.get(&format!("/api/v1/tables/{TABLE}?filter=value%3E0&n=3"));
    assert_eq!(Document::of(&filtered).rows.len(), 3);
    // A daemon that stops and starts again, under a server that stays.
    let place = Arc::clone(&daemon.place);
    drop(daemon);
    let down = || server.get("/metrics").contains("\ntopstat_up 0\n");
    assert!(eventually(PATIENCE, down), "a tree without a daemon can't be read");
    let daemon = Daemon::start_at(place, &[]);
    let up = || server.get("/metrics").contains("\ntopstat_up 1\n");
    assert!(eventually(PATIENCE, up), "the tree of the next daemon is read");
    let pid = i32::try_from(server.child.id()).ok().and_then(Pid::from_raw).expect("a pid");
    kill_process(pid, Signal::TERM).expect("ask it to end");
    let mut status = None;
    eventually(PATIENCE, || {
        status = server.child.try_wait().expect("ask for its end");
        status.is_some()
    });
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    assert!(!server.socket.exists(), "its socket stays");
    drop(daemon);
    note(format!("{count} series, {sum:.3} packets per second"));
}
