// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the objects that the tables rank: the counters of a namespace, namespaces, and devices.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::Path;
use std::time::{Instant, SystemTime};

use topstat_model::Field;
use topstat_model::counters::CounterKind;

use super::devices::{self, Device};
use super::layout::{At, Place};
use super::netns::{Entry, FIRST_PROCESS, Names, Netns, find_netns, inode, own_netns};
use super::protocols::{is_setting, protocols};
use super::raw::{Keep, Raw};
use super::reader::{Reader, Select, Which};
use super::samples::{CHOSEN_UNLESS, DEVICES, NAMESPACES, NORMS, PREFIX, norm};
use topstat_kernel::counting::{Refresh, Tallied, Tallier, Tallies, Tally, Whose};
use topstat_kernel::{Error, Options, TableInfo};

/// The names of the lost counts of protocols and namespaces.
const LOST: [&str; 3] = ["beyond", "unreadable", "unknown"];
/// The names of the lost counts of devices.
const LOST_OF_DEVICES: [&str; 1] = ["beyond"];

/// The names of a table's lost counts.
pub fn lost(table: &TableInfo) -> &'static [&'static str] {
    if table.sample == DEVICES { &LOST_OF_DEVICES } else { &LOST }
}

/// Reads the tables. Each reader is opened when it is first needed.
struct Meter {
    netns: Netns,
    /// The counter by which namespaces are ranked: its protocol and its name.
    by: (String, String),
    one: Option<Shared>,
    all: Option<Shared>,
    devices: Refresh<Devices>,
    names: Names,
}

/// A reader of counters, and the reading that its tables share.
struct Shared {
    reader: Reader,
    refresh: Refresh<Raw>,
}

/// The devices of all namespaces that are read.
struct Devices {
    time: SystemTime,
    instant: Instant,
    /// With the inode and the name of their namespace.
    of: Vec<(u32, Option<String>, Vec<Device>)>,
    /// Devices that were not read.
    beyond: u64,
}

/// Opens a reader of the tables.
///
/// # Errors
/// When the namespace or the counter does not exist.
pub fn open(options: &Options, whose: &Whose) -> Result<Tallier, Error> {
    let netns = match whose {
        Whose::Own => Netns::Own,
        Whose::Host => Netns::Host,
        Whose::Of(name) => find_netns(name)?,
    };
    let by = match &options.by {
        Some(by) => counter_of(by)?,
        None => (CHOSEN_UNLESS.0.to_owned(), CHOSEN_UNLESS.1.to_owned()),
    };
    let (devices, names) = (Refresh::default(), Names::default());
    Ok(Box::new(Meter { netns, by, one: None, all: None, devices, names }))
}

/// Splits a protocol and the name of one of its counters: `tcp/RetransSegs`, also `snmp_tcp/RetransSegs`.
fn counter_of(text: &str) -> Result<(String, String), Error> {
    let split = text.split_once('/').map(|(protocol, name)| (protocol.strip_prefix(PREFIX).unwrap_or(protocol), name));
    match split {
        Some((protocol, name)) if protocols().iter().any(|known| known.name == protocol) && !name.is_empty() => {
            Ok((protocol.to_owned(), name.to_owned()))
        }
        _ => {
            let known: Vec<_> = protocols().iter().map(|protocol| protocol.name).collect();
            Err(Error::Option(format!(
                "{text} is no counter: give a protocol and a name, such as tcp/RetransSegs; protocols are {}",
                known.join(", ")
            )))
        }
    }
}

impl Shared {
    fn open(select: &Select) -> Result<Self, Error> {
        Ok(Self { reader: Reader::open(select)?, refresh: Refresh::default() })
    }

    /// The reading for a table, with the names of its namespaces.
    fn read(&mut self, table: &TableInfo) -> Result<(&Raw, &Reader), Error> {
        let reader = &mut self.reader;
        let raw = self.refresh.of(table.path(), |former| {
            let raw = reader.raw(former)?;
            reader.look_up_names(&raw);
            Ok::<_, Error>(raw)
        })?;
        Ok((raw, reader))
    }
}

impl Tallies for Meter {
    fn tally(&mut self, table: &TableInfo) -> Result<Tally, Error> {
        match table.sample.as_str() {
            DEVICES => self.devices(table),
            NAMESPACES => self.namespaces(table),
            _ => self.counters(table),
        }
    }
}

impl Meter {
    /// The reader of the namespace, or of all namespaces if all are selected.
    fn one(&mut self) -> Result<&mut Shared, Error> {
        match &mut self.one {
            Some(one) => Ok(one),
            none => {
                let which = Which { netns: self.netns.clone(), ..Which::default() };
                Ok(none.insert(Shared::open(&Select { which, ..Select::default() })?))
            }
        }
    }

    /// The reader of the counters that namespaces are ranked by, of all namespaces or of the selected one. It keeps the words of
    /// all tables of each CPU.
    fn all(&mut self) -> Result<&mut Shared, Error> {
        match &mut self.all {
            Some(all) => Ok(all),
            none => {
                let by = [(self.by.0.as_str(), self.by.1.as_str())];
                let counters = NORMS.iter().flat_map(|norm| norm.of_namespace).chain([&by[..]]);
                let protocols: BTreeSet<_> = counters.clone().flatten().map(|(protocol, _)| *protocol).collect();
                let protocols = protocols.into_iter().map(str::to_owned).collect();
                let netns = if matches!(self.netns, Netns::Inode(_)) { self.netns.clone() } else { Netns::All };
                let which = Which { netns, ..Which::default() };
                let mut all = Shared::open(&Select { protocols, which, ..Select::default() })?;
                let layout = all.reader.layout().0;
                let word = |at| if let At::Cpu(word) = at { Some(word) } else { None };
                let words: BTreeSet<_> = counters.flat_map(|names| layout.find(names)).filter_map(word).collect();
                all.reader.keep(Keep::Words(words.into_iter().collect()));
                Ok(none.insert(all))
            }
        }
    }

    /// The counters of a protocol in the namespace, or summed over all namespaces if all are selected.
    fn counters(&mut self, table: &TableInfo) -> Result<Tally, Error> {
        let protocol = table.sample.strip_prefix(PREFIX).unwrap_or(&table.sample);
        let (raw, reader) = self.one()?.read(table)?;
        let (layout, _) = reader.layout();
        let places = layout.protocols.iter().find(|(name, _)| *name == protocol).map_or(&[][..], |(_, places)| places);
        let tallied = |(number, place): (usize, &Place)| {
            let of = |holder| (raw.sum(holder, place.at), raw.parts(holder, place.at));
            let (sum, parts) = raw.read().map(|(holder, _)| of(holder)).reduce(add_up).unwrap_or_default();
            (!place.if_any || sum != 0).then(|| {
                let gauge = place.kind == CounterKind::Gauge;
                let kind = if gauge { Field::from("gauge") } else { Field::None };
                let object = vec![Field::from(&*place.name), kind];
                Tallied { key: [number as u64, 0], object, parts: vec![sum], cpus: parts, gauge, from_zero: true }
            })
        };
        let counters = places.iter().enumerate().filter(|(_, place)| !is_setting(&place.name));
        Ok(tally_of(raw, counters.filter_map(tallied).collect(), reader))
    }

    /// All namespaces, or the selected one, by the counters of a norm or by the chosen counter.
    fn namespaces(&mut self, table: &TableInfo) -> Result<Tally, Error> {
        let norm = norm(&table.name);
        let by = self.by.clone();
        let chosen = [(by.0.as_str(), by.1.as_str())];
        let (raw, reader) = self.all()?.read(table)?;
        let layout = reader.layout().0;
        let places: Vec<Vec<At>> = match norm {
            Some(norm) => norm.of_namespace.iter().map(|names| layout.find(names)).collect(),
            None => vec![layout.find(&chosen)],
        };
        if norm.is_none() && places[0].is_empty() {
            return Err(Error::Option(format!("this kernel has no counter {} of {}", by.1, by.0)));
        }
        let objects = raw.read().map(|(holder, found)| {
            let sum = |part: &Vec<At>| part.iter().map(|at| raw.sum(holder, *at)).fold(0, u64::wrapping_add);
            let cpus =
                places.iter().flatten().map(|at| (0, raw.parts(holder, *at))).reduce(add_up).unwrap_or_default().1;
            let key = [found.key.inum.into(), found.key.id];
            let object = vec![Field::from(found.key.inum), reader.name(found.key.inum).into()];
            // A namespace's counters begin at 0. Without cookies, an object may be another namespace with the inode of an ended
            // one.
            Tallied { key, object, parts: places.iter().map(sum).collect(), cpus, gauge: false, from_zero: true }
        });
        let value_name = norm.is_none().then(|| by.1.clone());
        Ok(Tally { value_name, ..tally_of(raw, objects.collect(), reader) })
    }

    /// The devices of the namespace, or of all namespaces that can be entered.
    fn devices(&mut self, table: &TableInfo) -> Result<Tally, Error> {
        let words = norm(&table.name).ok_or_else(|| Error::NotLoaded(table.path()))?.of_device;
        let mut refresh = std::mem::take(&mut self.devices);
        let read = refresh.of(table.path(), |_| self.read_devices())?;
        let mut objects = Vec::new();
        for (inum, name, devices) in &read.of {
            objects.extend(devices.iter().map(|device| Tallied {
                key: key_of(*inum, &device.name),
                parts: words.map(|word| device.numbers[word - 1]).to_vec(),
                object: vec![Field::from(&*device.name), (*inum).into(), name.clone().into()],
                ..Tallied::default()
            }));
        }
        let lost = vec![(LOST_OF_DEVICES[0].into(), read.beyond)];
        let (time, instant) = (read.time, read.instant);
        self.devices = refresh;
        Ok(Tally { time, instant, cpus: Vec::new(), objects, value_name: None, lost })
    }

    fn read_devices(&mut self) -> Result<Devices, Error> {
        let mut read = Devices { time: SystemTime::now(), instant: Instant::now(), of: Vec::new(), beyond: 0 };
        let mut room = devices::MOST;
        for (inum, place) in self.places()? {
            let (mut devices, more) = match place.with(devices::read) {
                Ok(found) => found,
                // The namespace's last process has ended since the look-up.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => {
                    let what = format!("read the devices of network namespace {inum}");
                    return Err(Error::Kernel { what, why: e.to_string() });
                }
            };
            read.beyond += more + devices.len().saturating_sub(room) as u64;
            devices.truncate(room);
            room -= devices.len();
            read.of.push((inum, self.names.of(inum), devices));
        }
        Ok(read)
    }

    /// The namespaces whose devices are read, and where `/proc` shows each of them.
    fn places(&mut self) -> Result<Vec<(u32, Entry)>, Error> {
        let of = |path: &str| Entry::Shown(Path::new(path).join("net"));
        if matches!(self.netns, Netns::Inode(_) | Netns::All) || self.names.are_unknown() {
            self.names = Names::read();
        }
        match self.netns {
            Netns::Own => return Ok(vec![(own_netns()?, of("/proc/thread-self"))]),
            Netns::Host => {
                // Without permission to look into that process, the kernel is asked.
                let inum = match inode(&Path::new(FIRST_PROCESS).join("ns/net")) {
                    Ok(inum) => inum,
                    Err(_) => self.one()?.reader.only().unwrap_or(0),
                };
                return Ok(vec![(inum, of(FIRST_PROCESS))]);
            }
            Netns::Inode(_) | Netns::All => {}
        }
        let mut known: Vec<_> = self.names.known().into_iter().collect();
        if let Netns::Inode(only) = self.netns {
            known.retain(|(inum, _)| *inum == only);
        }
        known.sort_unstable_by_key(|(inum, _)| *inum);
        Ok(known)
    }
}

/// The key of a device: its namespace and its name.
fn key_of(inum: u32, name: &str) -> [u64; 2] {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    [inum.into(), hasher.finish()]
}

fn add_up(one: (u64, Vec<u64>), other: (u64, Vec<u64>)) -> (u64, Vec<u64>) {
    let (mut sum, more) = (one.1, other.1);
    topstat_engine::fold(&mut sum, &more);
    (one.0.wrapping_add(other.0), sum)
}

fn tally_of(raw: &Raw, objects: Vec<Tallied>, reader: &Reader) -> Tally {
    let (layout, cpus) = reader.layout();
    let lost = LOST.into_iter().zip([raw.beyond, raw.unreadable, layout.unknown.len() as u64]);
    let lost = lost.map(|(name, count)| (name.into(), count)).collect();
    Tally { time: raw.time, instant: raw.instant, cpus: cpus.to_vec(), objects, value_name: None, lost }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_named_by_its_protocol_and_its_name() {
        let of =
            |text| counter_of(text).map(|(protocol, name)| format!("{protocol} {name}")).map_err(|e| e.to_string());
        assert_eq!(of("tcp/RetransSegs").as_deref(), Ok("tcp RetransSegs"));
        assert_eq!(of("snmp_tcpext/ListenDrops").as_deref(), Ok("tcpext ListenDrops"));
        for wrong in ["", "RetransSegs", "tcp/", "tpc/RetransSegs", "/x"] {
            assert!(of(wrong).is_err_and(|why| why.contains("is no counter: give a protocol and a name")), "{wrong}");
        }
    }

    #[test]
    fn devices_of_a_name_in_two_namespaces_are_two() {
        let keys = [(1, "lo"), (2, "lo"), (1, "eth0")].map(|(net, name)| key_of(net, name));
        assert_eq!(std::collections::HashSet::from(keys).len(), 3);
    }
}
