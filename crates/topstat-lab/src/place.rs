// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The place of an end: a device of this host, or one of two veth devices in two network namespaces. These namespaces have no
//! names, and end with the process in any case.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

/// The device in each new namespace.
const DEVICE: &str = "lab0";
/// The addresses of the sender and the receiver, from the network that is reserved for such measurements (RFC 2544).
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)];
/// The prefix length of the network of both addresses.
const PREFIX: u32 = 30;

/// Why a measurement is impossible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// The device or the kernel can't do it: other configurations may be measured.
    Unavailable(String),
    /// A failure.
    Failed(String),
}

impl Trouble {
    /// The reason.
    pub fn why(self) -> String {
        match self {
            Self::Unavailable(why) | Self::Failed(why) => why,
        }
    }
}

/// A device, and its network namespace.
#[derive(Debug)]
pub struct Place {
    /// The namespace; `None`: the namespace of the process.
    namespace: Option<File>,
    /// The device.
    pub device: String,
}

/// The output of `ip` for a device.
#[derive(Clone, Debug, Deserialize)]
pub struct Link {
    /// The device's index, which is not used again in the lifetime of its network namespace.
    pub ifindex: u32,
    /// The hardware address, which a tunnel does not have.
    #[serde(default)]
    pub address: String,
    /// The MTU.
    pub mtu: u32,
    /// The most segments of a buffer that TCP makes.
    #[serde(default)]
    pub gso_max_segs: Option<u32>,
    /// Flags of the device, such as `UP` and `LOWER_UP`: it is up, and its link is there.
    #[serde(default)]
    pub flags: Vec<String>,
    #[serde(default)]
    addr_info: Vec<Address>,
}

#[derive(Clone, Debug, Deserialize)]
struct Address {
    local: Option<IpAddr>,
    scope: Option<String>,
}

impl Link {
    /// The addresses that other hosts can send to, IPv4 first.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let global = self.addr_info.iter().filter(|address| address.scope.as_deref() == Some("global"));
        let mut addresses: Vec<IpAddr> = global.filter_map(|address| address.local).collect();
        addresses.sort_by_key(IpAddr::is_ipv6);
        addresses
    }

    /// Whether packets can pass the device.
    pub fn is_up(&self) -> bool {
        ["UP", "LOWER_UP"].iter().all(|wanted| self.flags.iter().any(|flag| flag == wanted))
    }
}

impl Place {
    /// A device of this host.
    ///
    /// # Errors
    ///
    /// When there is no device of this name.
    pub fn here(device: &str) -> Result<Self, String> {
        let fits = !device.is_empty() && device.len() < libc::IFNAMSIZ && !matches!(device, "." | "..");
        // The kernel does not allow these characters in a name.
        if !fits || device.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control()) {
            return Err(format!("there can't be a network interface '{}'", device.escape_debug()));
        }
        let place = Self { namespace: None, device: device.to_owned() };
        place.link()?;
        Ok(place)
    }

    /// Two new namespaces without names, and a pair of devices between them: for the sender and for the receiver.
    ///
    /// # Errors
    ///
    /// When this user may not create them, or `ip` is missing.
    pub fn pair() -> Result<[Self; 2], String> {
        let made = || Ok::<_, String>(Self { namespace: Some(namespace()?), device: DEVICE.to_owned() });
        let places: [Self; 2] = [made()?, made()?];
        let other = places[1].namespace.as_ref().map_or(0, |namespace| namespace.as_raw_fd());
        let peer = format!("/proc/{}/fd/{other}", std::process::id());
        places[0].ip(&format!("link add {DEVICE} type veth peer name {DEVICE} netns {peer}"))?;
        for (place, address) in places.iter().zip(ADDRESSES) {
            place.ip(&format!("address add {address}/{PREFIX} dev {DEVICE}"))?;
            place.ip(&format!("link set {DEVICE} up"))?;
            place.ip("link set lo up")?;
        }
        Ok(places)
    }

    /// The output of `ip` for the device.
    ///
    /// # Errors
    ///
    /// When the device does not exist.
    pub fn link(&self) -> Result<Link, String> {
        let text = self.ip(&format!("-j -d address show dev {}", self.device))?;
        let links: Result<Vec<Link>, _> = serde_json::from_str(&text);
        let links = links.map_err(|e| format!("ip tells of {} what can't be read: {e}", self.device))?;
        links.into_iter().next().ok_or_else(|| format!("ip tells nothing of {}", self.device))
    }

    /// Does work in the namespace, on a separate thread.
    pub fn inside<T: Send, E: Send + From<String>>(&self, work: impl FnOnce() -> Result<T, E> + Send) -> Result<T, E> {
        if self.namespace.is_none() {
            return work();
        }
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter()?;
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Moves the calling thread into the namespace.
    ///
    /// # Errors
    ///
    /// When this user may not enter it.
    pub fn enter(&self) -> Result<(), String> {
        let Some(namespace) = &self.namespace else { return Ok(()) };
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|e| format!("cannot enter a network namespace: {e}"))
    }

    /// Runs `ip` with these words in the namespace, and returns its output.
    ///
    /// # Errors
    ///
    /// The error output of `ip`.
    pub fn ip(&self, words: &str) -> Result<String, String> {
        self.inside(|| {
            let mut command = Command::new("ip");
            command.args(words.split_whitespace());
            // SAFETY: between fork and exec it makes one system call, and neither allocates nor locks.
            unsafe { command.pre_exec(end_with_parent) };
            let output = command.output();
            let output = output.map_err(|e| format!("cannot run ip: {e}; install iproute2"))?;
            if output.status.success() {
                return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
            }
            let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
            Err(format!("ip {words}: {said}"))
        })
    }
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// Ends a process with its parent. Otherwise, after the parent was killed, it could still change restored settings.
fn end_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?)
}

/// A new network namespace, without a name.
fn namespace() -> Result<File, String> {
    let made = || -> io::Result<File> {
        // SAFETY: it takes a number, and concerns the calling thread alone, which was made for it.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Err(io::Error::last_os_error());
        }
        File::open("/proc/thread-self/ns/net")
    };
    let thread = std::thread::scope(|scope| scope.spawn(made).join());
    let file = thread.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    file.map_err(|e| format!("cannot make a network namespace: {e}; run as root"))
}
