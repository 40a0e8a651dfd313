// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads counters, from the kernel's arrays or, where it does not allow that, from `/proc`; and tells what has come since
//! the reading before.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use topstat_model::counters::Protocol as Counted;
use topstat_model::counters::{Amount, Counter, Counters, CountersLost, Scope, Source};

use super::arrays::Arrays;
use super::files::{self, Shown};
use super::layout::{At, Layout, Of, Place};
use super::netns::{Names, Netns, own_netns};
use super::protocols::{Protocol, protocols};
use crate::Error;

/// What to read.
#[derive(Clone, Debug, Default)]
pub struct Select {
    /// Of which protocols, by name; none: of all.
    pub protocols: Vec<String>,
    /// Of what.
    pub which: Which,
    /// From `/proc` also where the arrays can be read: for comparison.
    pub from_files: bool,
}

/// Of what counters are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Which {
    /// The namespaces, or those of the devices.
    pub netns: Netns,
    /// Of devices, and not of namespaces.
    pub devices: bool,
    /// Of devices of this name only.
    pub device: Option<String>,
}

/// Whose counters some are: the same at every reading, and no other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The inode of the namespace. It may be another one's once this one is gone.
    pub inum: u32,
    /// The cookie of the namespace, which never is, where the kernel has them.
    pub id: u64,
    /// The device's number; of a namespace 0.
    pub ifindex: u32,
}

/// What was read of a namespace or a device.
#[derive(Debug)]
pub struct Holding {
    pub key: Key,
    pub device: Option<String>,
    /// The words of each CPU, and then those that all share.
    pub words: Vec<u64>,
    /// The sums of the words of all CPUs.
    pub sums: Vec<u64>,
}

/// A reading as it comes.
#[derive(Debug)]
pub struct Raw {
    pub time: SystemTime,
    pub instant: Instant,
    pub holdings: Vec<Holding>,
    pub beyond: u64,
    pub unreadable: u64,
}

/// Reads counters again and again.
pub struct Reader {
    way: Way,
    which: Which,
    names: Names,
    /// What namespaces were called when names were last looked up; `None`: they have no name.
    called: HashMap<u32, Option<String>>,
    before: Option<Raw>,
}

/// Where counters are read.
enum Way {
    Arrays(Box<Arrays>),
    Files(Files),
}

/// What is needed to read `/proc`.
struct Files {
    layout: Layout,
    wanted: Vec<&'static Protocol>,
    why: String,
    /// The words of a protocol's counters, by their names.
    places: HashMap<&'static str, HashMap<Arc<str>, usize>>,
}

impl Netns {
    /// The inode that is wanted; `None`: all.
    pub(super) fn inode(&self) -> Result<Option<u32>, Error> {
        Ok(match self {
            Self::Own => Some(own_netns()?),
            Self::Inode(inode) => Some(*inode),
            Self::All => None,
        })
    }
}

impl Reader {
    /// Finds out how counters are read here: from the arrays, if that is allowed.
    ///
    /// # Errors
    /// When a protocol is not known, or `/proc` can't be read either.
    pub fn open(select: &Select) -> Result<Self, Error> {
        let of = if select.which.devices { Of::Devices } else { Of::Namespaces };
        let wanted = wanted(&select.protocols, of)?;
        let arrays = match select.from_files {
            true => Err("asked for".to_owned()),
            false => Arrays::open(of, &wanted).map_err(|e| crate::report::explain(e, "snmp").to_string()),
        };
        let way = match arrays {
            Ok(arrays) => Way::Arrays(Box::new(arrays)),
            Err(why) => Way::Files(Files::open(of, wanted, why)?),
        };
        let (names, called) = (Names::default(), HashMap::new());
        Ok(Self { way, which: select.which.clone(), names, called, before: None })
    }

    /// Reads what is to be read, and keeps it for the next time.
    ///
    /// # Errors
    /// When the kernel does not let it be read.
    pub fn read(&mut self) -> Result<Counters, Error> {
        let raw = self.raw()?;
        self.look_up_names(&raw);
        let counters = self.counters(&raw);
        self.before = Some(raw);
        Ok(counters)
    }

    /// Reads what is to be read, and drops it: for measurements. Returns of how many namespaces or devices it was.
    ///
    /// # Errors
    /// As [`Reader::read`].
    pub fn touch(&mut self) -> Result<usize, Error> {
        Ok(self.raw()?.holdings.len())
    }

    fn raw(&mut self) -> Result<Raw, Error> {
        let mut raw =
            Raw { time: SystemTime::now(), instant: Instant::now(), holdings: Vec::new(), beyond: 0, unreadable: 0 };
        match &self.way {
            Way::Arrays(arrays) => arrays.read(&self.which, &mut raw)?,
            Way::Files(files) => {
                self.names = Names::read();
                files.read(&self.which, &self.names, &mut raw)?;
            }
        }
        Ok(raw)
    }

    /// Looks for names, if there are namespaces that were not there when that was done last.
    fn look_up_names(&mut self, raw: &Raw) {
        let inodes: HashSet<u32> = raw.holdings.iter().map(|holding| holding.key.inum).collect();
        if inodes.iter().any(|inode| !self.called.contains_key(inode)) {
            self.names = Names::read();
            self.called = inodes.into_iter().map(|inode| (inode, self.names.of(inode))).collect();
        }
    }

    fn counters(&self, raw: &Raw) -> Counters {
        let (layout, cpus) = self.way.layout();
        let before = self.before.as_ref();
        let earlier: HashMap<Key, &Holding> =
            before.iter().flat_map(|b| &b.holdings).map(|holding| (holding.key, holding)).collect();
        let scope = |holding: &Holding| {
            let netns = holding.key.inum;
            let earlier = earlier.get(&holding.key).copied();
            let protocols = layout.protocols.iter().map(|(name, places)| Counted {
                name,
                counters: places.iter().filter_map(|place| counter(cpus.len(), place, holding, earlier)).collect(),
            });
            Scope {
                netns,
                name: self.called.get(&netns).cloned().flatten(),
                device: holding.device.clone(),
                protocols: protocols.collect(),
            }
        };
        Counters {
            time: raw.time,
            elapsed: before.map(|before| raw.instant.duration_since(before.instant)),
            source: self.way.source(),
            cpus: cpus.to_vec(),
            scopes: raw.holdings.iter().map(scope).collect(),
            lost: CountersLost { beyond: raw.beyond, unreadable: raw.unreadable, unknown: layout.unknown.clone() },
        }
    }
}

/// The protocols of these names, which are there for devices or for namespaces.
fn wanted(names: &[String], of: Of) -> Result<Vec<&'static Protocol>, Error> {
    let there = |protocol: &&Protocol| of == Of::Namespaces || protocol.device.is_some();
    if let Some(unknown) = names.iter().find(|name| !protocols().iter().any(|protocol| protocol.name == **name)) {
        let known: Vec<_> = protocols().iter().map(|protocol| protocol.name).collect();
        return Err(Error::Option(format!("there are no counters of {unknown}, but of {}", known.join(", "))));
    }
    let wanted: Vec<_> = protocols()
        .iter()
        .filter(there)
        .filter(|protocol| names.is_empty() || names.iter().any(|name| name == protocol.name))
        .collect();
    if wanted.is_empty() {
        let known: Vec<_> = protocols().iter().filter(there).map(|protocol| protocol.name).collect();
        return Err(Error::Option(format!("a device has counters of its own for {} only", known.join(" and "))));
    }
    Ok(wanted)
}

/// A counter of a holding. `None`: it is one of those that are there only once something was counted.
fn counter(cpus: usize, place: &Place, holding: &Holding, earlier: Option<&Holding>) -> Option<Counter> {
    let now = amount(cpus, place.at, holding);
    if place.if_any && now.all == 0 {
        return None;
    }
    let before = earlier.map(|holding| amount(cpus, place.at, holding));
    Some(Counter { name: Arc::clone(&place.name), kind: place.kind, now, before })
}

/// Adds a CPU's counters to the sums, a whole array at a time: the compiler makes a few wide additions of it.
pub fn fold(sums: &mut [u64], cpu: &[u64]) {
    for (sum, counter) in sums.iter_mut().zip(cpu) {
        *sum = sum.wrapping_add(*counter);
    }
}

fn amount(cpus: usize, at: At, holding: &Holding) -> Amount {
    let stride = holding.sums.len();
    match at {
        At::Shared(word) => Amount { all: holding.words[cpus * stride + word], cpus: Vec::new() },
        At::Cpu(word) => {
            let parts = (0..cpus).map(|cpu| holding.words[cpu * stride + word]);
            Amount { all: holding.sums[word], cpus: parts.collect() }
        }
    }
}

impl Way {
    fn layout(&self) -> (&Layout, &[u32]) {
        match self {
            Self::Arrays(arrays) => (&arrays.layout, &arrays.cpus),
            Self::Files(files) => (&files.layout, &[]),
        }
    }

    fn source(&self) -> Source {
        match self {
            Self::Arrays(_) => Source::Arrays,
            Self::Files(files) => Source::Proc(files.why.clone()),
        }
    }
}

impl Files {
    fn open(of: Of, wanted: Vec<&'static Protocol>, why: String) -> Result<Self, Error> {
        let net = Path::new("/proc/thread-self/net");
        let shown = match of {
            Of::Namespaces => files::namespace(net, &wanted),
            Of::Devices => files::device(net, "lo", &wanted),
        };
        let shown =
            shown.map_err(|e| Error::Kernel { what: "read /proc/thread-self/net".to_owned(), why: e.to_string() })?;
        let layout = Layout::of_files(&shown);
        let shared = |place: &Place| match place.at {
            At::Shared(word) => Some((Arc::clone(&place.name), word)),
            At::Cpu(_) => None,
        };
        let of = |counters: &Vec<Place>| counters.iter().filter_map(shared).collect();
        let places = layout.protocols.iter().map(|(protocol, counters)| (*protocol, of(counters))).collect();
        Ok(Self { layout, wanted, why, places })
    }

    /// Reads the files of each namespace: by a process that is in it, or from inside.
    fn read(&self, which: &Which, names: &Names, raw: &mut Raw) -> Result<(), Error> {
        let chosen = which.netns.inode()?;
        let own = own_netns()?;
        let known = names.known();
        let mut inodes: Vec<u32> = match chosen {
            Some(inode) => vec![inode],
            None => known.keys().copied().collect(),
        };
        inodes.sort_unstable();
        for inum in inodes {
            let read = |net: &Path| self.holdings(net, inum, which);
            let read = match known.get(&inum) {
                _ if inum == own => read(Path::new("/proc/thread-self/net")),
                Some(entry) => entry.with(read),
                None => continue,
            };
            match read {
                Ok(holdings) => raw.holdings.extend(holdings),
                // Its last process has ended meanwhile.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => {
                    let what = format!("read the counters of network namespace {inum}");
                    return Err(Error::Kernel { what, why: e.to_string() });
                }
            }
        }
        Ok(())
    }

    fn holdings(&self, net: &Path, inum: u32, which: &Which) -> io::Result<Vec<Holding>> {
        let key = |ifindex| Key { inum, id: 0, ifindex };
        if !which.devices {
            let shown = files::namespace(net, &self.wanted)?;
            return Ok(vec![Holding { key: key(0), device: None, words: self.words(&shown), sums: Vec::new() }]);
        }
        let mut all = Vec::new();
        for entry in fs::read_dir(net.join("dev_snmp6"))?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if which.device.as_ref().is_some_and(|wanted| *wanted != name) {
                continue;
            }
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            let ifindex = text.split_whitespace().nth(1).and_then(|index| index.parse().ok()).unwrap_or(0);
            let shown = files::device(net, &name, &self.wanted)?;
            // One that is gone meanwhile shows nothing.
            if !shown.is_empty() {
                all.push(Holding {
                    key: key(ifindex),
                    device: Some(name),
                    words: self.words(&shown),
                    sums: Vec::new(),
                });
            }
        }
        Ok(all)
    }

    fn words(&self, shown: &Shown) -> Vec<u64> {
        let mut words = vec![0; self.layout.words(true)];
        for (protocol, counters) in shown {
            let Some(places) = self.places.get(protocol.name) else { continue };
            for (name, value) in counters {
                if let Some(word) = places.get(name.as_str()) {
                    words[*word] = *value;
                }
            }
        }
        words
    }
}
