// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network namespaces of a test, removed when dropped.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::linux::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A named network namespace with its loopback up.
pub struct Netns {
    name: String,
}

/// Runs `ip` with these words; the error is its message.
fn try_ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip").args(words.split_whitespace()).output().map_err(|e| format!("ip: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {words}: {}", String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")))
}

/// Runs `ip` with these words.
pub fn ip(words: &str) {
    try_ip(words).unwrap_or_else(|e| panic!("{e}"));
}

pub(crate) fn missing() -> Option<String> {
    Netns::try_new("probe")
        .and_then(|ns| try_ip(&format!("-n {} link add veth-a type veth peer name veth-b", ns.name)))
        .err()
}

/// The message with which `ip` refuses these commands in a new network namespace; several commands are separated by `; `.
pub(crate) fn refused(commands: &str) -> Option<String> {
    let ns = Netns::try_new("probe");
    ns.and_then(|ns| commands.split("; ").try_for_each(|words| try_ip(&format!("-n {} {words}", ns.name)))).err()
}

pub(crate) fn optmem_missing() -> Option<String> {
    let ns = match Netns::try_new("probe") {
        Ok(ns) => ns,
        Err(e) => return Some(e),
    };
    let there = ns.inside(|| std::path::Path::new("/proc/sys/net/core/optmem_max").exists());
    (!there).then(|| "net.core.optmem_max is the whole host's (before Linux 6.8)".to_owned())
}

impl Netns {
    /// Makes a namespace.
    pub fn new(name: &str) -> Self {
        Self::try_new(name).unwrap_or_else(|e| panic!("{e}"))
    }

    fn try_new(name: &str) -> Result<Self, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("tslive-{}-{}-{name}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        try_ip(&format!("netns add {name}"))?;
        let ns = Self { name };
        try_ip(&format!("-n {} link set lo up", ns.name))?;
        OWN.lock().unwrap_or_else(PoisonError::into_inner).push(ns.number());
        Ok(ns)
    }

    /// The name, as `ip -n` takes it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file with which a thread enters the namespace.
    pub fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }

    /// The number of the namespace, as topstat shows it.
    pub fn number(&self) -> u64 {
        std::fs::metadata(self.path()).expect("the namespace's file").st_ino()
    }

    /// Runs `ip` in the namespace.
    pub fn ip(&self, words: &str) {
        ip(&format!("-n {} {words}", self.name));
    }

    /// Runs `work` in the namespace, on a separate thread: a thread can't leave a namespace again.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        within(&File::open(self.path()).expect("open the namespace"), work)
    }
}

/// The namespace that this process was started in, which is the host's.
static HOST: OnceLock<File> = OnceLock::new();

/// Moves this process to a new namespace, with its loopback up. Without the privilege the process stays where it is; then all
/// tests that need the kernel are skipped.
pub(crate) fn leave_host() {
    let host = File::open("/proc/self/ns/net").expect("open the own namespace");
    // SAFETY: the call touches no memory.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0 {
        ip("link set lo up");
    }
    HOST.set(host).expect("a process leaves the host once");
}

/// Runs `work` in the host's namespace, whose counters a daemon shows: a test may run in another one.
pub fn in_host<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match HOST.get() {
        Some(host) => within(host, work),
        None => work(),
    }
}

fn within<T: Send>(namespace: &File, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("enter the namespace");
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl Drop for Netns {
    fn drop(&mut self) {
        let _ = try_ip(&format!("netns del {}", self.name));
    }
}

/// The number of this process's network namespace.
pub fn own_number() -> u64 {
    std::fs::metadata("/proc/self/ns/net").expect("the own namespace").st_ino()
}

/// The namespaces that this test has made.
static OWN: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// The namespaces of this test: the current one, and the ones that the test has made. Other tests have other namespaces, in
/// which sockets have these addresses, too.
pub fn own() -> Vec<u64> {
    let made = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    made.iter().copied().chain([own_number()]).collect()
}

/// Two namespaces, joined by a bridge in a third.
#[allow(missing_docs)]
pub struct Bridged {
    pub left: Netns,
    pub right: Netns,
    pub bridge: Netns,
}

/// The addresses of the two outer namespaces.
pub const LEFT: std::net::Ipv4Addr = std::net::Ipv4Addr::new(10, 99, 0, 1);
/// See [`LEFT`].
pub const RIGHT: std::net::Ipv4Addr = std::net::Ipv4Addr::new(10, 99, 0, 2);

/// The bridge's ports.
pub const PORT_LEFT: &str = "port-left";
/// See [`PORT_LEFT`].
pub const PORT_RIGHT: &str = "port-right";

impl Bridged {
    /// Makes the namespaces and joins them: left, veth, bridge, veth, right.
    pub fn new() -> Self {
        let (left, right, bridge) = (Netns::new("left"), Netns::new("right"), Netns::new("bridge"));
        bridge.ip("link add br0 type bridge");
        bridge.ip("link set br0 up");
        for (ns, port, address) in [(&left, PORT_LEFT, LEFT), (&right, PORT_RIGHT, RIGHT)] {
            bridge.ip(&format!("link add {port} type veth peer name eth0 netns {}", ns.name));
            bridge.ip(&format!("link set {port} master br0 up"));
            ns.ip(&format!("address add {address}/24 dev eth0"));
            ns.ip("link set eth0 up");
        }
        Self { left, right, bridge }
    }
}

impl Default for Bridged {
    fn default() -> Self {
        Self::new()
    }
}
