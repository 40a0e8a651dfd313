// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of containers, pods, network namespaces and hosts. Names of hosts come from the system's resolver (`hosts.rs`), all other
//! names from the host's files: no API, no socket and no credentials are used.
//!
//! [`topstat_model::names`] tells from a path alone which container or unit a control group is. This module adds the names that
//! people gave to them. `runtimes.rs` lists the files. Names of containers of users without privileges are not looked up: a
//! user could claim the id of any other container.
//!
//! # Cost
//!
//! A known path costs one look-up in memory, and every [`RECHECK`] a look at the times of up to six files. A file is read when its
//! time has changed, and at most [`READS`] times within [`RECHECK`]; until then, a path has the name that it has by itself. At most
//! [`PATHS`] paths are kept. A file of more than 4 MiB is not read, and of a directory 4096 entries.

mod files;
mod hosts;
mod netns;
mod runtimes;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use topstat_model::names::{self, Kind, Place};

pub use hosts::Hosts;
pub use netns::Space;
pub use runtimes::Told;
use runtimes::{Kept, Read, Runtimes};

/// How old a name may be.
pub const RECHECK: Duration = Duration::from_secs(2);
/// How many files of single containers are read within [`RECHECK`], at 0.1 ms or less.
pub const READS: u32 = 64;
/// How many paths are kept, at some 300 bytes; those that were used last.
pub const PATHS: NonZeroUsize = NonZeroUsize::new(4096).expect("not 0");

/// The name of a control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// For people, in one or two words: `web`, `shop-7d9f/nginx`, `docker 3b5e1c9f0a2d`.
    pub text: String,
    /// The kind of the place.
    pub kind: Kind,
    /// The names from the host's files.
    pub told: Told,
}

/// Finds names, and keeps them.
#[derive(Debug)]
pub struct Names {
    runtimes: Runtimes,
    spaces: netns::Spaces,
    paths: LruCache<String, Entry>,
    reads: u32,
    reads_since: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    named: Arc<Named>,
    checked: Instant,
    /// The file of this container alone.
    own: Option<(Kept<Told>, Read)>,
}

/// Names from the files and the resolver of this host, for the live view.
pub fn of_host() -> Box<dyn topstat_tui::Names> {
    Box::new(OfHost { names: Names::new(Path::new("/")), hosts: Hosts::of_system() })
}

struct OfHost {
    names: Names,
    hosts: Hosts,
}

impl topstat_tui::Names for OfHost {
    fn group(&mut self, path: &str) -> String {
        self.names.of(path, Instant::now()).text.clone()
    }

    fn host(&mut self, address: IpAddr) -> Option<String> {
        self.hosts.name(address, Instant::now())
    }

    fn is_asking(&self) -> bool {
        self.hosts.is_asking()
    }
}

impl Names {
    /// Names from the files below a root: `/` for the files of this host.
    pub fn new(root: &Path) -> Self {
        Self {
            runtimes: Runtimes::new(root),
            spaces: netns::Spaces::new(root),
            paths: LruCache::new(PATHS),
            reads: 0,
            reads_since: None,
        }
    }

    /// The name of the control group of this path.
    pub fn of(&mut self, path: &str, now: Instant) -> Arc<Named> {
        let fresh = |entry: &&Entry| now.saturating_duration_since(entry.checked) < RECHECK;
        if let Some(entry) = self.paths.get(path).filter(fresh) {
            return entry.named.clone();
        }
        let place = names::of(path);
        let mut own = self.paths.pop(path).and_then(|entry| entry.own);
        let told = self.told(&place, &mut own, now);
        let named = Arc::new(Named { text: text(&place, &told), kind: place.kind, told });
        self.paths.put(path.to_owned(), Entry { named: named.clone(), checked: now, own });
        named
    }

    /// The name of the network namespace with this inode. `pid`: a process that may live in it, so that processes are not
    /// searched. A search takes some 10 ms at worst, and runs every 10 s at most.
    pub fn netns(&mut self, inode: u64, pid: Option<u32>, now: Instant) -> Option<String> {
        Some(match self.spaces.name(inode, pid, now)? {
            Space::Host => "host".to_owned(),
            Space::Named(name) | Space::Process(name) | Space::MadeUp(name) => name,
            Space::Group(path) => self.of(&path, now).text.clone(),
        })
    }

    fn told(&mut self, place: &Place<'_>, own: &mut Option<(Kept<Told>, Read)>, now: Instant) -> Told {
        if place.delegated {
            return Told::default();
        }
        let pod = place.pod.as_ref().filter(|pod| pod.qos.is_some());
        let of_pod = pod.map(|pod| self.runtimes.pod(&pod.uid)).unwrap_or_default();
        let Some(container) = place.container.filter(|container| container.runtime != Kind::Lxc) else { return of_pod };
        let listed = self.runtimes.listed(container.id);
        if listed.container.is_some() {
            return listed.or(of_pod);
        }
        if own.is_none() && self.may_read(now) {
            *own = self.runtimes.own(container.id);
        }
        let told = own.as_mut().map(|(file, read)| file.get(*read).clone()).unwrap_or_default();
        told.or(listed).or(of_pod)
    }

    /// Whether one more file may be searched now.
    fn may_read(&mut self, now: Instant) -> bool {
        if self.reads_since.is_none_or(|since| now.saturating_duration_since(since) >= RECHECK) {
            self.reads_since = Some(now);
            self.reads = 0;
        }
        self.reads += 1;
        self.reads <= READS
    }
}

fn text(place: &Place<'_>, told: &Told) -> String {
    let by_itself = place.to_string();
    match (&told.pod, &told.container, &place.container) {
        (Some(pod), Some(container), _) => format!("{pod}/{container}"),
        // The id is the last word.
        (Some(pod), None, Some(_)) => format!("{pod}/{}", by_itself.rsplit(' ').next().unwrap_or_default()),
        (Some(pod), None, None) => format!("pod {pod}"),
        (None, Some(container), _) => container.clone(),
        (None, None, _) => by_itself,
    }
}
