// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The settings of a device: set as a configuration of the study says, and restored.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use serde::{Deserialize, Serialize};

use super::ethtool::{self, Feature, Features};
use super::place::{Place, Trouble};

/// The settings of both devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Segmentation of sent data, and merging of received data, are left to the device or to the step before it.
    pub offloads: bool,
    /// Frames have 9000 bytes instead of 1500.
    pub jumbo: bool,
    /// The device steers packets to the CPU that reads them.
    pub steering: bool,
}

const fn as_said(offloads: bool, jumbo: bool, steering: bool) -> Configuration {
    Configuration { offloads, jumbo, steering }
}

/// The configurations of the study, with its names.
pub const CONFIGURATIONS: [(&str, Configuration); 7] = [
    ("no-opts", as_said(false, false, false)),
    ("tsogro", as_said(true, false, false)),
    ("jumbo", as_said(false, true, false)),
    ("tsogro+jumbo", as_said(true, true, false)),
    ("tsogro+arfs", as_said(true, false, true)),
    ("jumbo+arfs", as_said(false, true, true)),
    ("all-opts", as_said(true, true, true)),
];

impl Configuration {
    fn mtu(&self) -> u32 {
        if self.jumbo { 9000 } else { 1500 }
    }

    /// Sets a device, and reads the settings back. A setting that already has its value is left alone, since some devices lose
    /// their link for seconds when they are set.
    ///
    /// # Errors
    ///
    /// When the device can't take the settings, or does not come up again.
    pub fn apply(&self, place: &Place) -> Result<(), Trouble> {
        let device = place.device.as_str();
        place.inside(|| {
            for feature in [Feature::ScatterGather, Feature::TxChecksum] {
                ethtool::set(device, feature, true).map_err(Trouble::Unavailable)?;
            }
            for feature in [Feature::Tso, Feature::Gso, Feature::Gro] {
                ethtool::set(device, feature, self.offloads).map_err(Trouble::Unavailable)?;
            }
            ethtool::set(device, Feature::Ntuple, self.steering).map_err(Trouble::Unavailable)?;
            if self.steering { Steering::switch_on(device).map_err(Trouble::Unavailable) } else { Ok(()) }
        })?;
        let link = place.link()?;
        // Without this, TCP makes large buffers even if only the stack itself segments them.
        if !self.offloads && link.gso_max_segs != Some(1) {
            place.ip(&format!("link set dev {device} gso_max_segs 1")).map_err(Trouble::Unavailable)?;
        }
        let mtu = self.mtu();
        if link.mtu != mtu {
            place.ip(&format!("link set dev {device} mtu {mtu}")).map_err(Trouble::Unavailable)?;
        }
        await_link(place)
    }
}

/// How long a device may take until packets pass it again: some devices negotiate with their peer anew.
const LINK_PATIENCE: Duration = Duration::from_secs(10);

fn await_link(place: &Place) -> Result<(), Trouble> {
    let begun = Instant::now();
    while !place.link()?.is_up() {
        if begun.elapsed() > LINK_PATIENCE {
            let (device, seconds) = (&place.device, LINK_PATIENCE.as_secs());
            return Err(Trouble::Failed(format!("{device} is not up {seconds} s after it was set: see 'ip link'")));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The original values of all settings that a configuration changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    features: Features,
    mtu: u32,
    gso_max_segs: Option<u32>,
    /// The MTU of IPv6, which the kernel changes together with the device's.
    ipv6_mtu: Option<u32>,
    steering: Steering,
}

/// How long restored settings may take to be active: an XDP program, which ends with its process, keeps some of them inactive
/// until the kernel has removed the program.
const RESTORE_PATIENCE: Duration = Duration::from_secs(5);

impl Settings {
    /// Reads the settings of a device.
    ///
    /// # Errors
    ///
    /// When the settings can't be read.
    pub fn read(place: &Place) -> Result<Self, String> {
        let link = place.link()?;
        let device = place.device.as_str();
        place.inside(|| {
            Ok(Self {
                features: Features::read(device).map_err(|e| format!("cannot read what {device} does: {e}"))?,
                mtu: link.mtu,
                gso_max_segs: link.gso_max_segs,
                ipv6_mtu: number(&ipv6_mtu(device)),
                steering: Steering::read(device)?,
            })
        })
    }

    /// Restores the settings, reads them back, and returns the changes.
    ///
    /// # Errors
    ///
    /// When settings could not be restored; the error names them.
    pub fn restore(&self, place: &Place) -> Result<Vec<String>, String> {
        let before = Self::read(place)?;
        let names = place.inside(|| Ok::<_, String>(before.features.names(&place.device)))?;
        let changed = || before.differences(self, &names);
        let begun = Instant::now();
        loop {
            let tried = self.write(place);
            let now = Self::read(place)?;
            let left = now.differences(self, &names);
            if left.is_empty() {
                return Ok(changed());
            }
            if begun.elapsed() > RESTORE_PATIENCE {
                if now.asked() == self.asked() {
                    // The requested settings are restored. Another cause, such as another user's XDP program, keeps some of them
                    // inactive, or did before.
                    let does = left.into_iter().map(|left| format!("but asked for the same it has {left}"));
                    return Ok(changed().into_iter().chain(does).collect());
                }
                let why = tried.err().map_or_else(String::new, |why| format!(": {why}"));
                return Err(format!("cannot put back of {}: {}{why}", place.device, left.join(", ")));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn write(&self, place: &Place) -> Result<(), String> {
        let (now, device) = (Self::read(place)?, place.device.as_str());
        place.inside(|| {
            self.features.write(device).map_err(|e| format!("what {device} does: {e}"))?;
            self.steering.write(device, &now.steering)
        })?;
        if let Some(segments) = self.gso_max_segs.filter(|_| self.gso_max_segs != now.gso_max_segs) {
            place.ip(&format!("link set dev {device} gso_max_segs {segments}"))?;
        }
        if self.mtu != now.mtu {
            place.ip(&format!("link set dev {device} mtu {}", self.mtu))?;
        }
        // The MTU of IPv6 is restored after the device's, which changes it.
        let path = ipv6_mtu(device);
        if let Some(mtu) = self.ipv6_mtu {
            place.inside(|| if number(&path) == Some(mtu) { Ok(()) } else { write(&path, mtu) })?;
        }
        Ok(())
    }

    /// The requested settings, without the active features.
    fn asked(&self) -> Self {
        let features = Features { active: Vec::new(), ..self.features.clone() };
        Self { features, ..self.clone() }
    }

    /// The settings that differ in `others`: `mtu 1500 -> 9000`.
    fn differences(&self, others: &Self, names: &[String]) -> Vec<String> {
        let mut found = self.features.differences(&others.features, names);
        let mut add = |name: &str, here: String, there: String| {
            if here != there {
                found.push(format!("{name} {here} -> {there}"));
            }
        };
        let maybe = |number: Option<u32>| number.map_or_else(|| "none".to_owned(), |number| number.to_string());
        add("mtu", self.mtu.to_string(), others.mtu.to_string());
        add("gso_max_segs", maybe(self.gso_max_segs), maybe(others.gso_max_segs));
        add("IPv6's mtu", maybe(self.ipv6_mtu), maybe(others.ipv6_mtu));
        add("rps_sock_flow_entries", maybe(self.steering.entries), maybe(others.steering.entries));
        let (here, there) = (&self.steering.counts, &others.steering.counts);
        for queue in here.keys().chain(there.keys().filter(|queue| !here.contains_key(*queue))) {
            let of = |counts: &BTreeMap<String, u32>| maybe(counts.get(queue).copied());
            add(&format!("{queue}/rps_flow_cnt"), of(here), of(there));
        }
        found
    }
}

fn ipv6_mtu(device: &str) -> PathBuf {
    PathBuf::from("/proc/sys/net/ipv6/conf").join(device).join("mtu")
}

fn number(path: &PathBuf) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn write(path: &PathBuf, number: u32) -> Result<(), String> {
    fs::write(path, number.to_string()).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// The steering of packets to the CPU that reads them, besides the device's filters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Steering {
    /// The flows of sockets that the kernel remembers; `None`: the kernel does not remember flows, or this namespace has no
    /// access to the number.
    entries: Option<u32>,
    /// The number of flows of each queue, by the queue's name.
    counts: BTreeMap<String, u32>,
}

/// A setting of the whole host.
const ENTRIES: &str = "/proc/sys/net/core/rps_sock_flow_entries";
/// The number of flows of all queues together that the kernel's Documentation/networking/scaling.rst advises.
const FLOWS: u32 = 32_768;

impl Steering {
    /// The receive queues of a device; empty where `/sys` shows another network namespace.
    fn queues(device: &str) -> Vec<PathBuf> {
        let folder = PathBuf::from("/sys/class/net").join(device);
        let own = socket(AddressFamily::INET, SocketType::DGRAM, None).and_then(|any| name_to_index(any, device)).ok();
        if own.is_none() || number(&folder.join("ifindex")) != own {
            return Vec::new();
        }
        let entries = fs::read_dir(folder.join("queues")).into_iter().flatten().flatten();
        let mut queues: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        queues.retain(|queue| queue.join("rps_flow_cnt").exists());
        queues.sort();
        queues
    }

    fn read(device: &str) -> Result<Self, String> {
        let named = |queue: PathBuf| {
            let count = number(&queue.join("rps_flow_cnt"))?;
            Some((queue.file_name()?.to_string_lossy().into_owned(), count))
        };
        let counts = Self::queues(device).into_iter().filter_map(named).collect();
        Ok(Self { entries: number(&PathBuf::from(ENTRIES)), counts })
    }

    fn switch_on(device: &str) -> Result<(), String> {
        let now = Self::read(device)?;
        let queues = u32::try_from(now.counts.len()).unwrap_or(u32::MAX);
        let Some(entries) = now.entries.filter(|_| queues > 0) else {
            return Err(format!(
                "packets of {device} can't be steered: the kernel shows no {ENTRIES}, or no rps_flow_cnt"
            ));
        };
        let counts = now.counts.keys().map(|queue| (queue.clone(), FLOWS / queues.next_power_of_two())).collect();
        Self { entries: Some(entries.max(FLOWS)), counts }.write(device, &now)
    }

    /// Writes the settings that differ from `now`.
    fn write(&self, device: &str, now: &Self) -> Result<(), String> {
        if let Some(entries) = self.entries.filter(|_| self.entries != now.entries) {
            write(&PathBuf::from(ENTRIES), entries)?;
        }
        for queue in Self::queues(device) {
            let name = queue.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if let Some(count) = self.counts.get(&name).filter(|count| now.counts.get(&name) != Some(count)) {
                write(&queue.join("rps_flow_cnt"), *count)?;
            }
        }
        Ok(())
    }
}

/// The lock of tests that change settings of the whole host, until it is dropped. A file, for tests may run in processes of their own.
#[cfg(test)]
pub fn whole_host() -> fs::File {
    let file = fs::File::create(std::env::temp_dir().join("topstat-lab.lock")).expect("make a lock");
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).expect("lock it");
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test makes a separate device, in the network namespace that may set the steering of the whole host.
    #[test]
    fn steering_is_switched_on_and_put_back() {
        let _alone = whole_host();
        let device = format!("tslab{}", std::process::id() % 1_000_000);
        let run = |words: String| std::process::Command::new("ip").args(words.split_whitespace()).output();
        if !run(format!("link add {device} type veth peer name {device}p")).is_ok_and(|made| made.status.success()) {
            eprintln!("left out: this user may make no device");
            return;
        }
        let tested = std::panic::catch_unwind(|| {
            let place = Place::here(&device).unwrap();
            let was = Settings::read(&place).unwrap();
            assert!(!was.steering.counts.is_empty(), "{was:?}");
            let switched = Steering::switch_on(&device);
            if was.steering.entries.is_none() {
                assert!(switched.unwrap_err().contains("can't be steered"));
                return;
            }
            switched.unwrap();
            let is = Settings::read(&place).unwrap();
            assert!(is.steering.entries.unwrap() >= FLOWS && is.steering.counts.values().all(|count| *count > 0));
            let changed = was.restore(&place).unwrap();
            assert!(changed.iter().any(|change| change.starts_with("rx-0/rps_flow_cnt ")), "{changed:?}");
            assert_eq!(Settings::read(&place).unwrap(), was);
        });
        run(format!("link delete {device}")).unwrap();
        tested.unwrap();
    }

    #[test]
    fn what_differs_is_named() {
        let features = Features { requested: vec![1, 2], active: vec![1, 0] };
        let counts = [("rx-0".to_owned(), 0), ("rx-1".to_owned(), 7)].into();
        let steering = Steering { entries: Some(0), counts };
        let was = Settings { features, mtu: 1500, gso_max_segs: Some(65_535), ipv6_mtu: Some(1280), steering };
        let names = ["sg", "tso", "gso"].map(str::to_owned);
        assert!(was.differences(&was.clone(), &names).is_empty());
        let mut is = was.clone();
        (is.mtu, is.ipv6_mtu, is.steering.entries) = (9000, None, Some(32_768));
        // Requested and active, active alone, requested alone, and a feature without a name.
        (is.features.requested, is.features.active) = (vec![0b11, 0x8000_0002], vec![0b110, 0]);
        is.steering.counts.insert("rx-1".to_owned(), 4096);
        let found = [
            "sg off -> on",
            "tso on -> off",
            "gso on -> off",
            "feature 63 on -> off",
            "mtu 9000 -> 1500",
            "IPv6's mtu none -> 1280",
            "rps_sock_flow_entries 32768 -> 0",
            "rx-1/rps_flow_cnt 4096 -> 7",
        ];
        assert_eq!(is.differences(&was, &names), found);
    }
}
