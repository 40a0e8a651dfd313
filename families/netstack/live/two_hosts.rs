// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat lab` between two hosts, which are two network namespaces here. Both hosts measure equal values. A host without the
//! key is refused. All settings are restored on both hosts, whichever ends first, and however it ends.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use topstat_live::role::{command, started};
use topstat_live::{Case, Netns, case, eventually, note};

use super::laboratory::{Folder, PATIENCE, documents, programs};

pub fn cases() -> Vec<Case> {
    vec![
        case!(two_hosts_agree_on_what_was_carried, Root, Netns),
        case!(who_has_not_the_key_changes_nothing, Root, Netns),
        case!(settings_are_put_back_whichever_host_ends, Root, Netns; Slow),
    ]
}

/// The interfaces and addresses of both hosts: the asking host, then the serving host.
const DEVICES: [&str; 2] = ["two0", "two1"];
const ADDRESSES: [&str; 2] = ["198.18.1.1", "198.18.1.2"];
/// The default port of `topstat lab serve`.
const PORT: u16 = 4719;
/// How long a host may take to notice that the other host has ended, and to restore its settings. It does so at once, except for
/// a step in progress, and for the time that the kernel takes to remove an XDP program.
const NOTICE: Duration = Duration::from_secs(20);

/// Commands of `linux/ethtool.h`.
const GET_FEATURES: u32 = 0x3a;
const SET_TSO: u32 = 0x1f;
const SET_TX: u32 = 0x17;

/// Applies an ethtool command to a device of the calling thread's namespace.
fn ethtool(device: &str, words: &mut [u32]) {
    #[repr(C)]
    struct Request {
        name: [u8; libc::IFNAMSIZ],
        words: *mut u32,
        rest: [u64; 2],
    }
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None).expect("a socket");
    let mut request = Request { name: [0; libc::IFNAMSIZ], words: words.as_mut_ptr(), rest: [0; 2] };
    request.name[..device.len()].copy_from_slice(device.as_bytes());
    // SAFETY: it is as large as `struct ifreq`, and the words are at least as many as the command takes.
    let done = unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    assert!(done >= 0, "{device}, {:#x}: {}", words[0], std::io::Error::last_os_error());
}

/// The settings of a host's interface, read without topstat.
fn settings(host: &Netns, device: &str) -> BTreeMap<String, String> {
    let output = Command::new("ip").args(["-n", host.name(), "-j", "-d", "link", "show", device]).output().expect("ip");
    let links: Vec<BTreeMap<String, Value>> = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut found: BTreeMap<String, String> =
        links.into_iter().flatten().map(|(name, value)| (name, value.to_string())).collect();
    host.inside(|| {
        let mut words = [0; 2 + 4 * 4];
        (words[0], words[1]) = (GET_FEATURES, 4);
        ethtool(device, &mut words);
        found.insert("features".to_owned(), format!("{words:08x?}"));
        let path = format!("/proc/sys/net/ipv6/conf/{device}/mtu");
        found.insert(path.clone(), fs::read_to_string(path).unwrap_or_default());
    });
    found
}

struct Hosts {
    namespaces: [Netns; 2],
    folder: Folder,
    key: PathBuf,
    before: [BTreeMap<String, String>; 2],
}

impl Hosts {
    /// Two hosts whose interfaces have settings that cannot come about by chance.
    fn new(name: &str) -> Self {
        let namespaces = [Netns::new("asks"), Netns::new("serves")];
        let [one, two] = &namespaces;
        one.ip(&format!("link add {} type veth peer name {} netns {}", DEVICES[0], DEVICES[1], two.name()));
        for ((host, device), address) in namespaces.iter().zip(DEVICES).zip(ADDRESSES) {
            host.ip(&format!("address add {address}/24 dev {device}"));
            host.ip(&format!("link set {device} up"));
            host.ip(&format!("link set {device} gso_max_segs 1000 mtu 2000"));
            host.inside(|| {
                // Without checksums TSO is off, too, but still requested.
                ethtool(device, &mut [SET_TX, 0]);
                let mtu = format!("/proc/sys/net/ipv6/conf/{device}/mtu");
                // Only if the host has IPv6.
                assert!(!Path::new(&mtu).exists() || fs::write(&mtu, "1300").is_ok());
            });
        }
        one.inside(|| ethtool(DEVICES[0], &mut [SET_TSO, 0]));
        let folder = Folder::new(name);
        fs::create_dir_all(&folder.0).expect("a directory");
        let key = folder.0.join("key");
        let made = command("topstat").arg("lab").arg("key").arg(&key).output().expect("topstat runs").status;
        assert!(made.success());
        let mut hosts = Self { namespaces, folder, key, before: [BTreeMap::new(), BTreeMap::new()] };
        // IPv6 addresses appear by themselves: wait until they have.
        assert!(eventually(PATIENCE, || {
            let now = hosts.now();
            let same = now == hosts.before;
            hosts.before = now;
            same
        }));
        hosts
    }

    fn now(&self) -> [BTreeMap<String, String>; 2] {
        [0, 1].map(|host| settings(&self.namespaces[host], DEVICES[host]))
    }

    fn is_as_before(&self, host: usize) -> bool {
        settings(&self.namespaces[host], DEVICES[host]) == self.before[host]
    }

    fn assert_as_before(&self, when: &str) {
        for (host, (now, before)) in self.now().iter().zip(&self.before).enumerate() {
            assert_eq!(now, before, "{} after {when}", DEVICES[host]);
        }
    }

    fn start(&self, host: usize, words: &str, more: &[&Path]) -> Running {
        let mut command = command("topstat");
        command.arg("lab").args(words.split_whitespace()).args(more);
        Running::start(&self.namespaces[host], command)
    }

    /// Starts the server, and waits until it listens.
    fn serve(&self) -> Running {
        let server = self.start(1, &format!("serve --interface {} --key", DEVICES[1]), &[&self.key]);
        assert!(eventually(PATIENCE, || server.has_said("serves ")), "{}", server.said());
        server
    }

    fn ask(&self, words: &str, out: &Path) -> Running {
        let own = format!("--peer {} --interface {}", ADDRESSES[1], DEVICES[0]);
        self.start(0, &format!("{words} {own} --key"), &[&self.key, Path::new("--out"), out])
    }

    /// Runs `topstat lab restore` on a host, and returns its output.
    fn restore(&self, host: usize) -> String {
        let mut restore = self.start(host, "restore", &[]);
        assert!(restore.end().success(), "{}", restore.said());
        restore.said()
    }
}

/// A process of topstat, and its output. Dropping it kills the process.
struct Running {
    child: Child,
    said: Arc<Mutex<String>>,
    readers: Vec<std::thread::JoinHandle<()>>,
}

impl Running {
    fn start(host: &Netns, mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = host.inside(|| command.spawn().expect("topstat runs"));
        started(child.id());
        let said = Arc::new(Mutex::new(String::new()));
        let (out, err) = (child.stdout.take().expect("its output"), child.stderr.take().expect("its notes"));
        let streams: [Box<dyn std::io::Read + Send>; 2] = [Box::new(out), Box::new(err)];
        let read = |stream| {
            let said = Arc::clone(&said);
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                    *said += &line;
                    said.push('\n');
                }
            })
        };
        let readers = streams.map(read).into();
        Self { child, said, readers }
    }

    fn said(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn has_said(&self, what: &str) -> bool {
        self.said().contains(what)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a signal");
    }

    fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for the process's end, and for all of its output.
    fn end(&mut self) -> ExitStatus {
        let ended = eventually(PATIENCE, || !self.is_alive());
        assert!(ended, "it does not end: {}", self.said());
        self.readers.drain(..).for_each(|reader| reader.join().expect("all that it says"));
        self.child.wait().expect("it has ended")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The bytes that the server reports for each run: sent, and read.
fn counted(said: &str) -> Vec<[u64; 2]> {
    let number = |line: &str, word: &str| -> Option<u64> { line.split_once(word)?.0.rsplit_once(' ')?.1.parse().ok() };
    said.lines().filter_map(|line| Some([number(line, " bytes sent")?, number(line, " bytes read")?])).collect()
}

fn two_hosts_agree_on_what_was_carried() {
    let hosts = Hosts::new("agree");
    let mut server = hosts.serve();
    let directions = [("", "no-opts,all-opts"), ("--reverse", "tsogro+jumbo,all-opts")];
    for (number, (direction, configurations)) in directions.into_iter().enumerate() {
        let out = hosts.folder.0.join(format!("out{number}"));
        let words = format!("mixed --flows 2 --size 4096 --config {configurations} --runs 1 --time 1s {direction}");
        let mut lab = hosts.ask(&words, &out);
        assert!(lab.end().success(), "{}", lab.said());
        hosts.assert_as_before("a whole lab");
        let runs = documents(&out);
        assert_eq!(runs.len(), 2, "{}", lab.said());
        // The server's own figures: of the run of throughput, and of the run of samples.
        let own = usize::from(direction.is_empty());
        let said: Vec<[u64; 2]> = counted(&server.said()).split_off(number * 2);
        assert_eq!(said.len(), 2, "{}", server.said());
        for (run, said) in runs.iter().zip(said.first()) {
            let count = |name: &str| run[name].as_u64().unwrap_or_else(|| panic!("{name}: {run}"));
            assert!(count("bytes") > 0 && count("responses") > 0, "{run}");
            assert_eq!(count("sent"), count("read"), "{run}");
            assert_eq!((said[own], said[1 - own]), (count("read"), 0), "{run}");
            assert!(count("bytes") <= count("read"), "{run}");
            let ends = run["hosts"].as_array().expect("two hosts");
            let devices: Vec<&str> = ends.iter().filter_map(|end| end["device"].as_str()).collect();
            assert_eq!(devices, [DEVICES[1 - own], DEVICES[own]]);
            for end in ends {
                let seconds = |name: &str| end[name].as_f64().unwrap_or_else(|| panic!("{name}: {run}"));
                assert!(seconds("threads_seconds") > 0.0 && seconds("busy_seconds") > 0.0, "{run}");
                let sides = end["sides"].as_object().expect("samples");
                let samples: u64 =
                    sides.values().filter_map(Value::as_object).flatten().filter_map(|s| s.1.as_u64()).sum();
                assert!(samples > 0, "{run}");
            }
        }
        let why = runs[1]["unavailable"].as_str().unwrap_or_else(|| panic!("{}", runs[1]));
        assert!(why.contains("ntuple"), "{why}");
        assert!(lab.has_said("\nhosts\n") && lab.has_said("Gbit/s per core"), "{}", lab.said());
    }
    server.signal(Signal::INT);
    assert!(server.end().success(), "{}", server.said());
    assert!(hosts.restore(1).contains("nothing was left"));
}

/// Sends bytes to the control port, and returns the answer.
fn say(hosts: &Hosts, words: &[u8]) -> String {
    hosts.namespaces[0].inside(|| {
        let mut socket = TcpStream::connect((ADDRESSES[1], PORT)).expect("the server listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        socket.write_all(words).expect("it hears");
        let mut answer = Vec::new();
        match socket.read_to_end(&mut answer) {
            // Input that the server has not read resets the connection.
            Err(e) if e.kind() != ErrorKind::ConnectionReset => panic!("it does not end the connection: {e}"),
            _ => String::from_utf8_lossy(&answer).into_owned(),
        }
    })
}

fn framed(text: &str) -> Vec<u8> {
    [&u32::try_from(text.len()).expect("a length").to_be_bytes()[..], text.as_bytes()].concat()
}

fn who_has_not_the_key_changes_nothing() {
    let mut hosts = Hosts::new("key");
    let words = "single-flow --config no-opts --runs 1 --time 1s --hz 0";
    let out = hosts.folder.0.join("out");
    let refused = |hosts: &Hosts, expected: &str| {
        let mut lab = hosts.ask(words, &out);
        let ended = lab.end();
        assert!(ended.code() == Some(1) && lab.has_said(expected), "{expected}: {ended}: {}", lab.said());
        assert!(!out.exists(), "a lab that was refused makes no directory");
        hosts.assert_as_before(expected);
    };
    refused(&hosts, "cannot reach the peer 198.18.1.2: Connection refused");
    let server = hosts.serve();
    // Another key, no key, and a key that other users may read.
    let right = std::mem::replace(&mut hosts.key, hosts.folder.0.join("wrong"));
    refused(&hosts, "cannot use the key");
    assert!(command("topstat").arg("lab").arg("key").arg(&hosts.key).output().expect("topstat runs").status.success());
    refused(&hosts, "it refuses: it has another key");
    fs::copy(&right, &hosts.key).expect("a copy");
    fs::set_permissions(&hosts.key, fs::Permissions::from_mode(0o644)).expect("a mode");
    refused(&hosts, "(mode 0644): chmod 600");
    hosts.key = right;
    assert!(eventually(PATIENCE, || server.has_said("refused") && server.has_said("it has another key")));
    // Senders that are no lab: random bytes, an endless length, another version.
    let noise: Vec<u8> = (0..5000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]).collect();
    for garbage in [&noise[..], &[0xff; 4096], b"GET / HTTP/1.0\r\n\r\n"] {
        say(&hosts, garbage);
    }
    assert!(eventually(PATIENCE, || server.said().matches("what it says is not of 'topstat lab'").count() == 3));
    let other = say(&hosts, &framed(r#"{"hello":{"topstat-lab":99,"version":"7.7.7"}}"#));
    assert!(other.contains("7.7.7") && other.contains("install the same version on both hosts"), "{other}");
    // A proof that the server has not requested.
    let proof = say(&hosts, &framed(&format!(r#"{{"proof":"{}"}}"#, "0".repeat(64))));
    assert!(proof.contains("refused"), "{proof}");
    hosts.assert_as_before("garbage");
    // A second lab, from the same host and from another host.
    let first_out = hosts.folder.0.join("first");
    let mut first = hosts.ask("single-flow --config no-opts --runs 100 --time 1s --hz 0", &first_out);
    assert!(eventually(PATIENCE, || first_out.join("run-0001.json").exists()), "{}", first.said());
    let mut second = hosts.ask(words, &out);
    assert!(!second.end().success() && second.has_said("another lab is at work here (process"), "{}", second.said());
    // On the server's own host: another lab holds the lock of its network namespace.
    let key = hosts.key.to_string_lossy().into_owned();
    let mut beside = hosts.start(1, &format!("serve --interface {} --listen 0.0.0.0:0 --key {key}", DEVICES[1]), &[]);
    assert!(!beside.end().success() && beside.has_said("another lab is at work here"), "{}", beside.said());
    let third = Netns::new("third");
    hosts.namespaces[1].ip(&format!("link add two2 type veth peer name two3 netns {}", third.name()));
    for (host, device, address) in [(&hosts.namespaces[1], "two2", "198.18.2.1"), (&third, "two3", "198.18.2.2")] {
        host.ip(&format!("address add {address}/24 dev {device}"));
        host.ip(&format!("link set {device} up"));
    }
    let mut other = command("topstat");
    other.args(["lab", "single-flow", "--peer", "198.18.2.1", "--interface", "two3", "--key", &key, "--out"]).arg(&out);
    let mut other = Running::start(&third, other);
    assert!(!other.end().success() && other.has_said("it serves another lab of 198.18.1.1"), "{}", other.said());
    assert!(first.is_alive(), "the first goes on: {}", first.said());
    first.signal(Signal::INT);
    assert!(first.end().success(), "{}", first.said());
    assert!(eventually(NOTICE, || hosts.is_as_before(1)), "{}", server.said());
    hosts.assert_as_before("the first lab");
}

/// How often a host is ended, unless TOPSTAT_LAB_KILLS sets the number. Each time takes some seconds.
const KILLS: usize = 4;

/// Both hosts are killed and interrupted, at moments all over a run. The surviving host notices, ends, and restores the settings
/// that it has changed. `topstat lab restore`, or the next start, restores the settings of the ended host.
fn settings_are_put_back_whichever_host_ends() {
    let hosts = Hosts::new("ends");
    let programs_before = programs();
    let times: usize = std::env::var("TOPSTAT_LAB_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let mut left = 0;
    for number in 0..times {
        let (victim, signal) = (number % 2, if number / 2 % 2 == 0 { Signal::KILL } else { Signal::INT });
        let mut server = hosts.serve();
        let out = hosts.folder.0.join(format!("out{number}"));
        let mut lab = hosts.ask("loss --loss 1 --config no-opts,jumbo,tsogro --runs 9 --time 500ms --histograms", &out);
        if number < 2 {
            // A change of features alone may come from the other end.
            let mtu = || settings(&hosts.namespaces[victim], DEVICES[victim])["mtu"].clone();
            assert!(
                eventually(PATIENCE, || mtu() != hosts.before[victim]["mtu"]),
                "nothing is changed: {}",
                lab.said()
            );
        } else {
            // Spread over the first runs, but not random: a failure can be repeated.
            std::thread::sleep(Duration::from_millis(20 + (number as u64 * 1733) % 8000));
        }
        let (ended, stays) = if victim == 0 { (&mut lab, &mut server) } else { (&mut server, &mut lab) };
        let when = format!("number {number}: {} of {}", signal.as_raw(), DEVICES[victim]);
        ended.signal(signal);
        let status = ended.end();
        assert!(signal == Signal::KILL || status.success(), "{when}: {status}: {}", ended.said());
        // The surviving host ends by itself, or serves the next lab.
        if victim == 1 {
            let status = stays.end();
            let told = stays.has_said("has gone") || stays.has_said("cannot reach the peer");
            assert!(status.code() == Some(1) && told, "{when}: {status}: {}", stays.said());
        } else {
            // The lab may not have begun.
            let over = |server: &Running| !server.has_said("begins") || server.has_said("has ended");
            assert!(eventually(NOTICE, || over(stays)), "{when}: {}", stays.said());
        }
        assert!(eventually(NOTICE, || hosts.is_as_before(1 - victim)), "{when}: {:?}", hosts.now()[1 - victim]);
        if signal == Signal::KILL {
            left += usize::from(!hosts.is_as_before(victim));
            if number % 4 == 0 {
                // The next start restores: the start of a lab, which then finds no server, or of a server.
                drop(server);
                let mut next = hosts.ask("single-flow", &out);
                assert!(!next.end().success() && next.has_said("cannot reach the peer"), "{}", next.said());
            } else {
                hosts.restore(victim);
            }
            drop(lab);
        } else {
            drop((lab, server));
        }
        hosts.assert_as_before(&when);
        assert!((0..2).all(|host| hosts.restore(host).contains("nothing was left")), "{when}");
        assert!(eventually(PATIENCE, || programs() <= programs_before), "programs stay after {when}");
    }
    note(format!("{times} ended, {left} of them left settings that were put back"));
    assert!(left >= times.min(2), "the first two leave something");
}
