// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a network device does by itself: read and set as ethtool(8) does, and read back.

use std::ffi::c_char;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::net::{AddressFamily, SocketType, socket};

/// Something that a device may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Takes packets in pieces.
    ScatterGather,
    /// Computes checksums of what is sent.
    TxChecksum,
    /// Segments TCP.
    Tso,
    /// Takes packets that the stack segments just before.
    Gso,
    /// Merges packets that have arrived.
    Gro,
    /// Steers packets to CPUs by filters, which aRFS needs.
    Ntuple,
}

/// Commands of `linux/ethtool.h`.
const GET_FLAGS: u32 = 0x25;
const SET_FLAGS: u32 = 0x26;
/// `ETH_FLAG_NTUPLE`
const NTUPLE: u32 = 1 << 27;

impl Feature {
    /// As ethtool(8) calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ScatterGather => "sg",
            Self::TxChecksum => "tx",
            Self::Tso => "tso",
            Self::Gso => "gso",
            Self::Gro => "gro",
            Self::Ntuple => "ntuple",
        }
    }

    /// The commands that get and set it, and the bit that it is of what they take.
    fn commands(self) -> (u32, u32, u32) {
        match self {
            Self::TxChecksum => (0x16, 0x17, 1),
            Self::ScatterGather => (0x18, 0x19, 1),
            Self::Tso => (0x1e, 0x1f, 1),
            Self::Gso => (0x23, 0x24, 1),
            Self::Gro => (0x2b, 0x2c, 1),
            Self::Ntuple => (GET_FLAGS, SET_FLAGS, NTUPLE),
        }
    }
}

/// `struct ethtool_value`
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ifreq`, as far as it is used here.
#[repr(C)]
struct Request {
    name: [c_char; libc::IFNAMSIZ],
    value: *mut Value,
    rest: [u64; 2],
}

/// Sets what a device of the calling thread's namespace does, and reads it back.
///
/// # Errors
///
/// That the device does not do it.
pub fn set(device: &str, feature: Feature, on: bool) -> Result<(), String> {
    let (word, name) = (if on { "on" } else { "off" }, feature.name());
    let refused = |why: &dyn std::fmt::Display| format!("{device} does not take {name} {word}: {why}");
    let (get, set, bit) = feature.commands();
    let before = command(device, get, 0).map_err(|e| refused(&e))?;
    let wanted = if on { before | bit } else { before & !bit };
    if wanted != before {
        command(device, set, wanted).map_err(|e| refused(&e))?;
    }
    let after = command(device, get, 0).map_err(|e| refused(&e))?;
    if after & bit == wanted & bit { Ok(()) } else { Err(refused(&"it stays as it is")) }
}

fn command(device: &str, command: u32, data: u32) -> io::Result<u32> {
    let any: OwnedFd = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut value = Value { command, data };
    let mut request = Request { name: [0; libc::IFNAMSIZ], value: &raw mut value, rest: [0; 2] };
    if device.len() >= request.name.len() {
        return Err(io::Error::other("no device has so long a name"));
    }
    for (to, byte) in request.name.iter_mut().zip(device.bytes()) {
        *to = c_char::from_ne_bytes([byte]);
    }
    // SAFETY: the request is as long as the kernel's, and both it and the value that it points to live through the call.
    match unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) } {
        0 => Ok(value.data),
        _ => Err(io::Error::last_os_error()),
    }
}
