// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two network namespaces with a pair of veth devices between. They have no names, and go with the process, however it ends;
//! so does every setting in them. Nothing of the host's own is changed.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::ethtool::{self, Feature};

/// The device of each end.
pub const DEVICE: &str = "lab0";
/// Bits of the network that both are in.
const PREFIX: u32 = 30;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Which sends.
    Left,
    /// Which receives.
    Right,
}

impl End {
    /// Of the network that is set aside for such measurements (RFC 2544).
    pub fn address(self) -> Ipv4Addr {
        match self {
            Self::Left => Ipv4Addr::new(198, 18, 0, 1),
            Self::Right => Ipv4Addr::new(198, 18, 0, 2),
        }
    }
}

/// How the devices of both ends are set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// As the study calls it.
    pub name: &'static str,
    /// Segmentation on sending, and its reverse on receiving, are put off to the device, or to where it would be.
    pub offloads: bool,
    /// Frames of 9000 bytes instead of 1500.
    pub jumbo: bool,
    /// Packets are steered to the CPU that receives them, by the device.
    pub steering: bool,
}

/// Those of the study.
pub const CONFIGURATIONS: [Configuration; 7] = [
    Configuration { name: "no-opts", offloads: false, jumbo: false, steering: false },
    Configuration { name: "tsogro", offloads: true, jumbo: false, steering: false },
    Configuration { name: "jumbo", offloads: false, jumbo: true, steering: false },
    Configuration { name: "tsogro+jumbo", offloads: true, jumbo: true, steering: false },
    Configuration { name: "tsogro+arfs", offloads: true, jumbo: false, steering: true },
    Configuration { name: "jumbo+arfs", offloads: false, jumbo: true, steering: true },
    Configuration { name: "all-opts", offloads: true, jumbo: true, steering: true },
];

impl Configuration {
    fn mtu(&self) -> u32 {
        if self.jumbo { 9000 } else { 1500 }
    }
}

/// Why something can't be measured here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The device or the kernel can't do it: other configurations may be measured.
    Unavailable(String),
    /// Something has failed.
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

/// The two namespaces.
pub struct Host {
    left: File,
    right: File,
}

impl Host {
    /// Makes them, set as this configuration says. What is set is read back.
    ///
    /// # Errors
    ///
    /// When this user may not, `ip` is missing, or the device can't do what the configuration wants.
    pub fn new(configuration: &Configuration) -> Result<Self, Trouble> {
        let host = Self { left: namespace().map_err(Trouble::Failed)?, right: namespace().map_err(Trouble::Failed)? };
        let peer = format!("/proc/{}/fd/{}", std::process::id(), host.right.as_raw_fd());
        host.ip(End::Left, &format!("link add {DEVICE} type veth peer name {DEVICE} netns {peer}"))
            .map_err(Trouble::Failed)?;
        for end in [End::Left, End::Right] {
            host.set(end, configuration)?;
        }
        for end in [End::Left, End::Right] {
            host.ip(end, &format!("address add {}/{PREFIX} dev {DEVICE}", end.address())).map_err(Trouble::Failed)?;
            host.ip(end, &format!("link set {DEVICE} up")).map_err(Trouble::Failed)?;
            host.ip(end, "link set lo up").map_err(Trouble::Failed)?;
        }
        Ok(host)
    }

    fn set(&self, end: End, configuration: &Configuration) -> Result<(), Trouble> {
        self.inside(end, || {
            for feature in [Feature::ScatterGather, Feature::TxChecksum] {
                ethtool::set(DEVICE, feature, true).map_err(Trouble::Unavailable)?;
            }
            for feature in [Feature::Tso, Feature::Gso, Feature::Gro] {
                ethtool::set(DEVICE, feature, configuration.offloads).map_err(Trouble::Unavailable)?;
            }
            if configuration.steering {
                ethtool::set(DEVICE, Feature::Ntuple, true).map_err(Trouble::Unavailable)?;
            }
            Ok(())
        })?;
        // Without it TCP makes large buffers even where nothing segments them but the stack itself.
        if !configuration.offloads {
            self.ip(end, &format!("link set {DEVICE} gso_max_segs 1")).map_err(Trouble::Unavailable)?;
        }
        let mtu = configuration.mtu();
        self.ip(end, &format!("link set {DEVICE} mtu {mtu}")).map_err(Trouble::Unavailable)
    }

    /// Does something in the namespace of an end, on a thread of its own.
    pub fn inside<T: Send>(&self, end: End, work: impl FnOnce() -> Result<T, Trouble> + Send) -> Result<T, Trouble> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter(end).map_err(Trouble::Failed)?;
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Has the calling thread be in the namespace of an end from now on.
    ///
    /// # Errors
    ///
    /// When this user may not.
    pub fn enter(&self, end: End) -> Result<(), String> {
        let namespace = match end {
            End::Left => &self.left,
            End::Right => &self.right,
        };
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|e| format!("cannot enter a network namespace: {e}"))
    }

    /// Runs `ip` with these words in the namespace of an end.
    fn ip(&self, end: End, words: &str) -> Result<(), String> {
        let run = || {
            let output = Command::new("ip").args(words.split_whitespace()).output();
            let output = output.map_err(|e| Trouble::Failed(format!("cannot run ip: {e}; install iproute2")))?;
            match output.status.success() {
                true => Ok(()),
                false => {
                    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
                    Err(Trouble::Failed(format!("ip {words}: {said}")))
                }
            }
        };
        self.inside(end, run).map_err(Trouble::why)
    }
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
