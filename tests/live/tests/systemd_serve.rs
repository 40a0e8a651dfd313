// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat serve` as a service of systemd: the first client of its socket starts it, without a privilege, and it goes on with the
//! next daemon.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use topstat_live::{Case, case, eventually, note};

use crate::systemd_unit::{SERVICE, Service, property_of, run, systemctl};

pub fn cases() -> Vec<Case> {
    vec![case!(the_first_client_starts_it_and_it_has_no_privilege, Root, Fuse, Systemd; Service)]
}

const SERVER: &str = "topstat-serve.service";
const SOCKET: &str = "topstat-serve.socket";
const ADDRESS: &str = "/run/topstat-serve/serve.sock";
/// A user and a group without rights.
const STRANGER: u32 = 65534;
/// How long an emulated guest may take for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The socket's unit. It and the server stop when it is dropped.
struct Listening;

impl Listening {
    fn start() -> Self {
        systemctl(&["start", SOCKET]);
        Self
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", run("journalctl", &["--boot", "--quiet", "--no-pager", "--unit", SERVER]));
        }
        systemctl(&["stop", SOCKET, SERVER]);
    }
}

/// The answer to a request over the socket, with its head.
fn get(path: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(ADDRESS)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Whether the user without rights may connect to the socket.
fn a_stranger_may_connect() -> bool {
    let mut command = Command::new("test");
    command.args(["-w", ADDRESS]).uid(STRANGER).gid(STRANGER);
    command.status().expect("test").success()
}

/// A line of the status of the server's process.
fn status(name: &str) -> String {
    let pid = property_of(SERVER, "MainPID");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name}: {status}")).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn the_first_client_starts_it_and_it_has_no_privilege() {
    let service = Service::new("", "group = \"topstat\"\n");
    // The group, which `make install` describes.
    run("systemd-sysusers", &[]);
    service.start();
    let _listening = Listening::start();
    assert_eq!(property_of(SERVER, "ActiveState"), "inactive");
    let socket = fs::metadata(ADDRESS).expect("the socket");
    let group = run("getent", &["group", "topstat"]);
    assert_eq!(socket.mode() & 0o777, 0o660);
    assert!(group.contains(&format!(":{}:", socket.gid())), "{group}");
    assert!(!a_stranger_may_connect());

    let begun = Instant::now();
    let tables = get("/api/v1/tables").expect("an answer");
    note(format!("the first answer, with the start of the server: {:.1} s", begun.elapsed().as_secs_f64()));
    assert!(tables.starts_with("HTTP/1.1 200") && tables.contains("\"conns_pps\""), "{tables}");
    assert_eq!(property_of(SERVER, "ActiveState"), "active");
    for set in ["CapEff:", "CapPrm:", "CapInh:", "CapBnd:", "CapAmb:"] {
        assert_eq!(status(set), "0000000000000000", "{set}");
    }
    assert_eq!(status("NoNewPrivs:"), "1");
    let users = status("Uid:");
    assert!(users.split(' ').all(|uid| uid != "0" && uid != STRANGER.to_string()), "{users}");
    let table = get("/api/v1/tables/tcp_v4/conns_pps").expect("an answer");
    assert!(table.starts_with("HTTP/1.1 200") && table.contains("\"sample\":\"tcp_v4\""), "{table}");
    let metrics = get("/metrics").expect("an answer");
    assert!(metrics.contains("\ntopstat_up 1\n"), "{metrics}");

    // The next daemon mounts the tree anew, which the server's mount namespace must see.
    systemctl(&["restart", SERVICE]);
    let again = eventually(PATIENCE, || get("/metrics").is_ok_and(|answer| answer.contains("\ntopstat_up 1\n")));
    assert!(again, "{:?}", get("/metrics"));
    // Without a daemon the answer says so, once the list of tables that the server keeps is old.
    systemctl(&["stop", SERVICE]);
    let missing = eventually(PATIENCE, || get("/healthz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 503")));
    assert!(missing, "{:?}", get("/healthz"));
    service.start();
    assert!(eventually(PATIENCE, || get("/healthz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))));

    // A server that is killed is there for the next client: systemd has kept the socket.
    let pid = property_of(SERVER, "MainPID");
    systemctl(&["kill", "--signal=SIGKILL", SERVER]);
    let answers = || get("/healthz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"));
    assert!(eventually(PATIENCE, || answers() && property_of(SERVER, "MainPID") != pid));
}
