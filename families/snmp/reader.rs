// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads counters, from the kernel's arrays or, where the kernel does not allow that, from `/proc`; and computes the increase
//! since the previous reading.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use topstat_model::counters::Protocol as Counted;
use topstat_model::counters::{Amount, Counter, Counters, CountersLost, Scope, Source};

use super::arrays::Arrays;
use super::files::{self, Shown};
use super::layout::{At, Layout, Of, Place};
use super::netns::{FIRST_PROCESS, Names, Netns, inode, own_netns};
use super::protocols::{Protocol, protocols};
use super::raw::{Holder, Keep, Key, Raw, Shape};
use topstat_kernel::Error;

/// A selection of counters.
#[derive(Clone, Debug, Default)]
pub struct Select {
    /// The names of the protocols. Empty: all protocols.
    pub protocols: Vec<String>,
    /// The namespaces or devices.
    pub which: Which,
    /// The counters that are kept of each CPU.
    pub keep: Keep,
    /// Read `/proc` even if the arrays can be read: for comparison.
    pub from_files: bool,
}

/// A selection of namespaces or devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Which {
    /// The namespaces, or the namespaces of the devices.
    pub netns: Netns,
    /// Read devices, and not namespaces.
    pub devices: bool,
    /// Read devices of this name only.
    pub device: Option<String>,
}

/// Reads counters repeatedly.
pub struct Reader {
    way: Way,
    which: Which,
    /// The inode of the only namespace that is read.
    only: Option<u32>,
    keep: Keep,
    names: Names,
    /// Names of namespaces at the last look-up. `None`: the namespace has no name.
    called: HashMap<u32, Option<String>>,
    before: Option<Raw>,
    /// An earlier reading. Its memory is used again.
    old: Option<Raw>,
}

/// A source of counters.
enum Way {
    Arrays(Box<Arrays>),
    Files(Files),
}

/// The state for reading `/proc`.
struct Files {
    layout: Layout,
    wanted: Vec<&'static Protocol>,
    why: String,
    /// The words of a protocol's counters, by their names.
    places: HashMap<&'static str, HashMap<Arc<str>, usize>>,
}

impl Reader {
    /// Opens a reader: on the arrays, if the kernel allows that, else on `/proc`.
    ///
    /// # Errors
    /// When a protocol is unknown, or `/proc` can't be read either.
    pub fn open(select: &Select) -> Result<Self, Error> {
        let of = if select.which.devices { Of::Devices } else { Of::Namespaces };
        let wanted = wanted(&select.protocols, of)?;
        let arrays = match select.from_files {
            true => Err("asked for".to_owned()),
            false => Arrays::open(of, &wanted).map_err(|e| topstat_kernel::report::explain(e, "snmp").to_string()),
        };
        let way = match arrays {
            Ok(arrays) => Way::Arrays(Box::new(arrays)),
            Err(why) => Way::Files(Files::open(of, wanted, why)?),
        };
        // The own namespace is the caller's namespace now, even if the caller enters another one later.
        let only = match &select.which.netns {
            Netns::Own => Some(own_netns()?),
            Netns::Host => Some(way.host()?),
            Netns::Inode(inode) => Some(*inode),
            Netns::All => None,
        };
        let (which, keep) = (select.which.clone(), select.keep.clone());
        Ok(Self { way, which, only, keep, names: Names::default(), called: HashMap::new(), before: None, old: None })
    }

    /// Reads the selected counters, and keeps the reading for the next difference.
    ///
    /// # Errors
    /// When the kernel refuses the reading.
    pub fn read(&mut self) -> Result<Counters, Error> {
        let former = self.old.take();
        let raw = self.raw(former)?;
        self.look_up_names(&raw);
        let counters = self.counters(&raw);
        self.old = self.before.replace(raw);
        Ok(counters)
    }

    /// Reads the selected counters and drops them: for measurements. Returns the number of namespaces or devices.
    ///
    /// # Errors
    /// As [`Reader::read`].
    pub fn touch(&mut self) -> Result<usize, Error> {
        let former = self.old.take();
        let raw = self.raw(former)?;
        let read = raw.read().count();
        self.old = Some(raw);
        Ok(read)
    }

    /// Reads the selected counters, without differences, into the memory of a former reading.
    pub(super) fn raw(&mut self, former: Option<Raw>) -> Result<Raw, Error> {
        let mut raw = Raw::new(self.way.shape(), &self.keep, former);
        match &mut self.way {
            Way::Arrays(arrays) => arrays.read(self.only, &self.which, &mut raw)?,
            Way::Files(files) => {
                self.names = Names::read();
                files.read(self.only, &self.which, &self.names, &mut raw)?;
            }
        }
        Ok(raw)
    }

    /// The inode of the namespace, if only one is read.
    pub(super) fn only(&self) -> Option<u32> {
        self.only
    }

    /// Sets the counters that are kept of each CPU from now on.
    pub(super) fn keep(&mut self, keep: Keep) {
        self.keep = keep;
    }

    /// The places of the counters, and the CPUs.
    pub(super) fn layout(&self) -> (&Layout, &[u32]) {
        self.way.layout()
    }

    /// The name of a namespace at the last look-up.
    pub(super) fn name(&self, inode: u32) -> Option<String> {
        self.called.get(&inode).cloned().flatten()
    }

    /// Looks names up again, if the reading contains namespaces that the last look-up did not have.
    pub(super) fn look_up_names(&mut self, raw: &Raw) {
        let inodes: HashSet<u32> = raw.read().map(|(_, holder)| holder.key.inum).collect();
        if inodes.iter().any(|inode| !self.called.contains_key(inode)) {
            self.names = Names::read();
            self.called = inodes.into_iter().map(|inode| (inode, self.names.of(inode))).collect();
        }
    }

    fn counters(&self, raw: &Raw) -> Counters {
        let (layout, cpus) = self.way.layout();
        let before = self.before.as_ref();
        let earlier: HashMap<Key, usize> =
            before.iter().flat_map(|b| b.read()).map(|(number, holder)| (holder.key, number)).collect();
        let scope = |(number, holder): (usize, &Holder)| {
            let netns = holder.key.inum;
            let earlier = before.zip(earlier.get(&holder.key).copied());
            let protocols = layout.protocols.iter().map(|(name, places)| Counted {
                name,
                counters: places.iter().filter_map(|place| counter(place, (raw, number), earlier)).collect(),
            });
            Scope {
                netns,
                name: self.called.get(&netns).cloned().flatten(),
                device: holder.device.clone(),
                protocols: protocols.collect(),
            }
        };
        Counters {
            time: raw.time,
            elapsed: before.map(|before| raw.instant.duration_since(before.instant)),
            source: self.way.source(),
            cpus: cpus.to_vec(),
            scopes: raw.read().map(scope).collect(),
            lost: CountersLost { beyond: raw.beyond, unreadable: raw.unreadable, unknown: layout.unknown.clone() },
        }
    }
}

/// The protocols of these names that exist for devices or for namespaces.
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

/// A holder's part of a reading.
type OfHolder<'a> = (&'a Raw, usize);

/// A counter of a holder. `None`: the counter is shown only if it is not 0, and it is 0.
fn counter(place: &Place, now: OfHolder<'_>, earlier: Option<OfHolder<'_>>) -> Option<Counter> {
    if place.if_any && now.0.sum(now.1, place.at) == 0 {
        return None;
    }
    let amount =
        |(raw, holder): OfHolder<'_>| Amount { all: raw.sum(holder, place.at), cpus: raw.parts(holder, place.at) };
    let (name, kind) = (Arc::clone(&place.name), place.kind);
    Some(Counter { name, kind, now: amount(now), before: earlier.map(amount) })
}

impl Way {
    /// The inode of the host's namespace.
    fn host(&self) -> Result<u32, Error> {
        match self {
            Self::Arrays(arrays) => arrays.host(),
            // The first process is in it. Without permission to look into that process, its inode is taken as 0.
            Self::Files(_) => Ok(inode(Path::new(FIRST_PROCESS).join("ns/net").as_path()).unwrap_or(0)),
        }
    }

    fn shape(&self) -> Shape {
        match self {
            Self::Arrays(arrays) => arrays.shape(),
            Self::Files(files) => Shape { shared_words: files.layout.words(true), ..Shape::default() },
        }
    }

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
            At::Cpu(_) | At::ByType { .. } => None,
        };
        let of = |counters: &Vec<Place>| counters.iter().filter_map(shared).collect();
        let places = layout.protocols.iter().map(|(protocol, counters)| (*protocol, of(counters))).collect();
        Ok(Self { layout, wanted, why, places })
    }

    /// Reads the files of each namespace, by a process that is in it or from inside.
    fn read(&self, chosen: Option<u32>, which: &Which, names: &Names, raw: &mut Raw) -> Result<(), Error> {
        let own = own_netns()?;
        let known = names.known();
        let mut inodes: Vec<u32> = match chosen {
            Some(inode) => vec![inode],
            None => known.keys().copied().collect(),
        };
        inodes.sort_unstable();
        let mut all = Vec::new();
        for inum in inodes {
            let read = |net: &Path| self.holdings(net, inum, which);
            let read = match known.get(&inum) {
                _ if inum == own => read(Path::new("/proc/thread-self/net")),
                _ if which.netns == Netns::Host => read(&Path::new(FIRST_PROCESS).join("net")),
                Some(entry) => entry.with(read),
                None => continue,
            };
            match read {
                Ok(holdings) => all.extend(holdings),
                // The namespace's last process has ended since the look-up.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => {
                    let what = format!("read the counters of network namespace {inum}");
                    return Err(Error::Kernel { what, why: e.to_string() });
                }
            }
        }
        let (holders, words): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        raw.begin(holders.into_iter());
        for (holder, words) in words.iter().enumerate() {
            raw.set_shared(holder, 0, words);
        }
        Ok(())
    }

    /// A namespace or its devices, with their counters.
    fn holdings(&self, net: &Path, inum: u32, which: &Which) -> io::Result<Vec<(Holder, Vec<u64>)>> {
        let holder = |ifindex, device| Holder { key: Key { inum, id: 0, ifindex }, device, groups: 0, gone: false };
        if !which.devices {
            let shown = files::namespace(net, &self.wanted)?;
            return Ok(vec![(holder(0, None), self.words(&shown))]);
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
            // A device that has ended since the look-up shows nothing.
            if !shown.is_empty() {
                all.push((holder(ifindex, Some(name)), self.words(&shown)));
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
