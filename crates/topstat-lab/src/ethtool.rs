// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The features of a network device: read and set as ethtool(8) does, and read back.

use std::ffi::{c_char, c_void};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::net::{AddressFamily, SocketType, socket};
use serde::{Deserialize, Serialize};

/// A feature of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Accepts packets in pieces.
    ScatterGather,
    /// Computes checksums of sent packets.
    TxChecksum,
    /// Segments TCP.
    Tso,
    /// Accepts packets that the stack segments immediately before the device.
    Gso,
    /// Merges received packets.
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
    /// The name in ethtool(8).
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

    /// The commands that get and set the feature, and the feature's bit in their data.
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
    value: *mut c_void,
    rest: [u64; 2],
}

/// All features of a device, as bits. A requested feature stays requested while another setting keeps it from being active.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// The requested features.
    pub requested: Vec<u32>,
    /// The active features.
    pub active: Vec<u32>,
}

/// `ETHTOOL_GFEATURES`, `ETHTOOL_SFEATURES`
const GET_FEATURES: u32 = 0x3a;
const SET_FEATURES: u32 = 0x3b;
/// The most words of features: the kernel has 2, and reports its number.
const MOST_WORDS: usize = 8;

/// `struct ethtool_gfeatures`
#[repr(C)]
struct AllFeatures {
    command: u32,
    words: u32,
    features: [FeatureWord; MOST_WORDS],
}

/// `struct ethtool_get_features_block`
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct FeatureWord {
    available: u32,
    requested: u32,
    active: u32,
    never_changed: u32,
}

/// `struct ethtool_sfeatures`
#[repr(C)]
struct ChosenFeatures {
    command: u32,
    words: u32,
    features: [ChosenWord; MOST_WORDS],
}

/// `struct ethtool_set_features_block`
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct ChosenWord {
    valid: u32,
    requested: u32,
}

/// `ETHTOOL_GSTRINGS`, and the set of the names of features (`ETH_SS_FEATURES`).
const GET_STRINGS: u32 = 0x1b;
const FEATURES: u32 = 4;
const BITS: usize = u32::BITS as usize;

/// `struct ethtool_gstrings`
#[repr(C)]
struct Strings {
    command: u32,
    set: u32,
    count: u32,
    names: [[u8; 32]; MOST_WORDS * BITS],
}

impl Features {
    /// The names of all bits, as ethtool(8) shows them; empty where the kernel does not give them.
    pub fn names(&self, device: &str) -> Vec<String> {
        // The kernel writes all its names. The number of words bounds their number.
        if self.active.len() >= MOST_WORDS {
            return Vec::new();
        }
        let mut strings =
            Strings { command: GET_STRINGS, set: FEATURES, count: 0, names: [[0; 32]; MOST_WORDS * BITS] };
        if call(device, (&raw mut strings).cast()).is_err() {
            return Vec::new();
        }
        let text = |name: &[u8; 32]| {
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            String::from_utf8_lossy(&name[..end]).into_owned()
        };
        strings.names.iter().take(strings.count as usize).map(text).collect()
    }

    /// The features that differ in `others`, requested or active, each by its name.
    pub fn differences(&self, others: &Self, names: &[String]) -> Vec<String> {
        let word = |words: &[u32], bit: usize| words.get(bit / BITS).copied().unwrap_or(0) >> (bit % BITS) & 1;
        let on = |bit| if bit == 1 { "on" } else { "off" };
        let mut found = Vec::new();
        for bit in 0..BITS * self.requested.len().max(self.active.len()) {
            // If the requested values differ, they are reported; else the active values.
            let asked = [self, others].map(|features| word(&features.requested, bit));
            let does = [self, others].map(|features| word(&features.active, bit));
            let changed = if asked[0] == asked[1] { does } else { asked };
            if changed[0] != changed[1] {
                let name = names.get(bit).filter(|name| !name.is_empty());
                let name = name.map_or_else(|| format!("feature {bit}"), Clone::clone);
                found.push(format!("{name} {} -> {}", on(changed[0]), on(changed[1])));
            }
        }
        found
    }

    /// Reads the features of a device of the calling thread's namespace.
    pub fn read(device: &str) -> io::Result<Self> {
        let words = u32::try_from(MOST_WORDS).unwrap_or(0);
        let mut all = AllFeatures { command: GET_FEATURES, words, features: Default::default() };
        call(device, (&raw mut all).cast())?;
        let known = &all.features[..MOST_WORDS.min(all.words as usize)];
        let of = |part: fn(&FeatureWord) -> u32| known.iter().map(part).collect();
        Ok(Self { requested: of(|word| word.requested), active: of(|word| word.active) })
    }

    /// Requests these features again. A feature that is requested now as it was then is left alone.
    pub fn write(&self, device: &str) -> io::Result<()> {
        let now = Self::read(device)?;
        let mut chosen =
            ChosenFeatures { command: SET_FEATURES, words: 0, features: [ChosenWord::default(); MOST_WORDS] };
        for ((word, wanted), now) in chosen.features.iter_mut().zip(&self.requested).zip(&now.requested) {
            *word = ChosenWord { valid: wanted ^ now, requested: *wanted };
            chosen.words += 1;
        }
        if chosen.features.iter().any(|word| word.valid != 0) {
            call(device, (&raw mut chosen).cast())?;
        }
        Ok(())
    }
}

/// Sets a feature of a device of the calling thread's namespace, and reads it back.
///
/// # Errors
///
/// When the device does not take the value.
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
    let mut value = Value { command, data };
    call(device, (&raw mut value).cast())?;
    Ok(value.data)
}

/// Gives a device a command of `linux/ethtool.h`. `value` is the structure of the command, which begins with the command's
/// number.
fn call(device: &str, value: *mut c_void) -> io::Result<()> {
    let any: OwnedFd = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut request = Request { name: [0; libc::IFNAMSIZ], value, rest: [0; 2] };
    if device.len() >= request.name.len() {
        return Err(io::Error::other("no device has so long a name"));
    }
    for (to, byte) in request.name.iter_mut().zip(device.bytes()) {
        *to = c_char::from_ne_bytes([byte]);
    }
    // SAFETY: the request is as long as the kernel's, and both it and the structure that it points to live through the call.
    match unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) } {
        // A positive result has bits for values that were not set: the caller reads the values back.
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
