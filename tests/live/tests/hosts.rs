// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of hosts, as the system's resolver has them: a file, a DNS server of the test, and a server that does not answer.

use std::fs;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount};
use topstat_live::{Case, Netns, case, mounts, role};

pub fn cases() -> Vec<Case> {
    vec![case!(addresses_become_names_and_a_silent_resolver_holds_nothing_up, Root, Netns)]
}

/// A silent server costs the resolver two minutes.
const RESOLVER: &str = "nameserver 127.0.0.1\noptions timeout:30 attempts:4\n";
/// The longest that the program may take. It loads programs, counts for a second and waits for names for two.
const PATIENCE: Duration = Duration::from_secs(60);

/// Replaces /etc for this thread and its processes: names come from a file, and then from DNS.
fn configure_resolver() {
    mounts::keep_to_this_thread();
    mount("tmpfs", "/etc", "tmpfs", MountFlags::empty(), None).expect("a file system over /etc");
    for (file, text) in
        [("hosts", "10.77.0.1 web.example\n"), ("nsswitch.conf", "hosts: files dns\n"), ("resolv.conf", RESOLVER)]
    {
        fs::write(format!("/etc/{file}"), text).expect("a file in /etc");
    }
}

/// The name that a question asks for, and where the question ends: RFC 1035, 4.1.2.
fn question(packet: &[u8]) -> Option<(String, usize)> {
    let (mut name, mut at) = (Vec::new(), 12);
    loop {
        let length = usize::from(*packet.get(at)?);
        at += 1;
        if length == 0 {
            return Some((name.join("."), at + 4));
        }
        name.push(String::from_utf8_lossy(packet.get(at..at + length)?).into_owned());
        at += length;
    }
}

/// Answers questions for 10.77.0.2 with a name, and no others, until the test ends. Returns the names that were asked for.
fn serve(socket: &UdpSocket, ended: &AtomicBool) -> Vec<String> {
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a time-out");
    let (mut asked, mut packet) = (Vec::new(), [0; 512]);
    while !ended.load(Ordering::SeqCst) {
        let Ok((length, from)) = socket.recv_from(&mut packet) else { continue };
        let Some((name, end)) = question(&packet[..length]) else { continue };
        if name == "2.0.77.10.in-addr.arpa" {
            let mut answer = packet[..end].to_vec();
            // A response without an error, with one question, one answer, and nothing else.
            answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
            // The answer: the question's name, PTR, IN, 60 s, and a name of 12 bytes.
            answer.extend_from_slice(&[0xc0, 12, 0, 12, 0, 1, 0, 0, 0, 60, 0, 12]);
            answer.extend_from_slice(b"\x02db\x07example\0");
            socket.send_to(&answer, from).expect("an answer");
        }
        asked.push(name);
    }
    asked
}

/// Ends the threads of the test, also when it fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn addresses_become_names_and_a_silent_resolver_holds_nothing_up() {
    let ns = Netns::new("hosts");
    ns.ip("link set lo up");
    for last in 1..=3 {
        ns.ip(&format!("address add 10.77.0.{last}/32 dev lo"));
    }
    let ended = AtomicBool::new(false);
    let (asked, text, took) = std::thread::scope(|scope| {
        let server =
            scope.spawn(|| ns.inside(|| serve(&UdpSocket::bind("127.0.0.1:53").expect("the port of DNS"), &ended)));
        let sent = scope.spawn(|| {
            ns.inside(|| {
                let from = UdpSocket::bind("10.77.0.1:0").expect("a socket");
                let to = [2, 3].map(|last| UdpSocket::bind(format!("10.77.0.{last}:7")).expect("a socket"));
                while !ended.load(Ordering::SeqCst) {
                    to.iter().for_each(|to| drop(from.send_to(b"x", to.local_addr().expect("its address"))));
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
        });
        let ends = Ends(&ended);
        let (output, took) = ns.inside(|| {
            configure_resolver();
            let begun = Instant::now();
            let line = format!("top udp_v4/conns_pps --private --resolve -f netns:{}", ns.number());
            let output = role::command("topstat").args(line.split(' ')).output().expect("topstat top");
            (output, begun.elapsed())
        });
        drop(ends);
        sent.join().expect("the sender");
        let asked = server.join().expect("the server");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (asked, String::from_utf8_lossy(&output.stdout).into_owned(), took)
    });
    for shown in ["web.example", "db.example", "10.77.0.3"] {
        assert!(text.contains(shown), "no {shown} in:\n{text}");
    }
    for hidden in ["10.77.0.1", "10.77.0.2"] {
        assert!(!text.contains(hidden), "{hidden} in:\n{text}");
    }
    assert!(asked.iter().any(|name| name == "3.0.77.10.in-addr.arpa"), "{asked:?}");
    assert!(took < PATIENCE, "{took:?}");
}
