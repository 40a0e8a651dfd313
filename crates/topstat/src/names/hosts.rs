// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of hosts by their addresses, from the system's resolver: /etc/hosts, DNS, and whatever else /etc/nsswitch.conf lists.
//!
//! A look-up may take as long as the resolver's time-out (10 s by default), so other threads do it, and a caller waits only in
//! [`Hosts::name_in`].
//!
//! # Cost
//!
//! At most [`THREADS`] look-ups run at once, and at most [`WAITING`] addresses wait for one. Of further addresses the name is asked
//! for later. At most [`KEPT`] names are kept, at some 300 bytes.

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use topstat_model::{Field, Snapshot};

use crate::lock::lock;

/// How many look-ups run at once.
pub const THREADS: usize = 8;
/// How many addresses wait for a look-up.
pub const WAITING: usize = 1024;
/// How many addresses are remembered; those that were shown last.
pub const KEPT: NonZeroUsize = NonZeroUsize::new(4096).expect("not 0");
/// How long a name is shown before it is asked for again.
pub const NAME_FOR: Duration = Duration::from_secs(600);
/// How long an address without a name is left alone.
pub const NO_NAME_FOR: Duration = Duration::from_secs(60);

/// How long [`Hosts::name_in`] waits for names, all calls together.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Finds the name of an address. May take long.
type Lookup = dyn Fn(IpAddr) -> Option<String> + Send + Sync;

/// The names of hosts.
pub struct Hosts {
    shared: Arc<Shared>,
    lookup: Arc<Lookup>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// An address waits, a look-up has ended, or the names are not wanted any more.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    known: LruCache<IpAddr, Known>,
    waiting: VecDeque<IpAddr>,
    /// The number of threads, and the number of idle threads.
    threads: usize,
    idle: usize,
    /// The look-ups that wait or run.
    pending: usize,
    /// The rest of [`PATIENCE`].
    patience: Duration,
    ended: bool,
}

/// What is known of an address.
#[derive(Clone, Debug, Default)]
struct Known {
    name: Option<String>,
    /// When the last look-up ended.
    since: Option<Instant>,
    /// A look-up waits or runs.
    asked: bool,
}

impl Known {
    fn is_fresh(&self, now: Instant) -> bool {
        let lasts = if self.name.is_some() { NAME_FOR } else { NO_NAME_FOR };
        self.since.is_some_and(|since| now.saturating_duration_since(since) < lasts)
    }
}

impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosts").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Hosts {
    /// Names from the resolver of this host.
    pub fn of_system() -> Self {
        Self::by(|address| {
            let name = dns_lookup::lookup_addr(&address).ok()?;
            // Without a name, the resolver gives the address as text. The text of an address without a name can have a zone.
            let is_address = name.split('%').next().is_some_and(|text| text.parse::<IpAddr>().is_ok());
            (!is_address).then_some(name)
        })
    }

    /// Names that this function finds.
    fn by(lookup: impl Fn(IpAddr) -> Option<String> + Send + Sync + 'static) -> Self {
        let known = LruCache::new(KEPT);
        let (waiting, patience) = (VecDeque::new(), PATIENCE);
        let state = State { known, waiting, threads: 0, idle: 0, pending: 0, patience, ended: false };
        let shared = Shared { state: Mutex::new(state), changed: Condvar::new() };
        Self { shared: Arc::new(shared), lookup: Arc::new(lookup) }
    }

    /// The name of the host with this address, if it is known. Otherwise it is asked for, and a later call may have it. Never
    /// waits.
    pub fn name(&self, address: IpAddr, now: Instant) -> Option<String> {
        let address = address.to_canonical();
        if address.is_unspecified() {
            return None;
        }
        let mut state = lock(&self.shared.state);
        let room = state.waiting.len() < WAITING;
        let known = state.known.get_or_insert_mut(address, Known::default);
        let name = known.name.clone();
        if !known.asked && !known.is_fresh(now) && room {
            known.asked = true;
            state.waiting.push_back(address);
            state.pending += 1;
            if state.idle == 0 && state.threads < THREADS {
                self.start(&mut state);
            }
            self.shared.changed.notify_all();
        }
        name
    }

    /// Whether a look-up waits or runs.
    pub fn is_asking(&self) -> bool {
        lock(&self.shared.state).pending > 0
    }

    /// Waits until no look-up waits or runs, and at most for this time.
    fn wait(&self, at_most: Duration) {
        let state = lock(&self.shared.state);
        let all = self.shared.changed.wait_timeout_while(state, at_most, |state| state.pending > 0);
        drop(all);
    }

    /// Replaces the addresses of hosts in the rows by their names, as far as they are known. Waits for unknown names for
    /// [`PATIENCE`], all calls together.
    pub fn name_in(&self, snapshot: &mut Snapshot) {
        let now = Instant::now();
        let fields = || snapshot.rows.iter().flat_map(|row| &row.object);
        for address in fields().filter_map(|field| if let Field::Ip(address) = field { Some(*address) } else { None }) {
            self.name(address, now);
        }
        let patience = lock(&self.shared.state).patience;
        self.wait(patience);
        lock(&self.shared.state).patience = patience.saturating_sub(now.elapsed());
        for field in snapshot.rows.iter_mut().flat_map(|row| &mut row.object) {
            let Field::Ip(address) = field else { continue };
            if let Some(name) = self.name(*address, now) {
                *field = Field::Text(topstat_tui::host_text(&name));
            }
        }
    }

    /// Starts a thread that looks up names until they are not wanted any more. Without one, addresses have no names.
    fn start(&self, state: &mut State) {
        let (shared, lookup) = (Arc::clone(&self.shared), Arc::clone(&self.lookup));
        let thread = std::thread::Builder::new().name("hosts".to_owned());
        state.threads += usize::from(thread.spawn(move || shared.work(&*lookup)).is_ok());
    }
}

impl Drop for Hosts {
    /// A look-up that runs ends later, by itself.
    fn drop(&mut self) {
        lock(&self.shared.state).ended = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn work(&self, lookup: &Lookup) {
        let mut state = lock(&self.state);
        while !state.ended {
            let Some(address) = state.waiting.pop_front() else {
                state.idle += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                continue;
            };
            drop(state);
            let name = lookup(address);
            state = lock(&self.state);
            state.known.put(address, Known { name, since: Some(Instant::now()), asked: false });
            state.pending -= 1;
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn ip(last: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0x0a00_0000 + last).into()
    }

    #[test]
    fn a_name_is_asked_for_once_and_again_when_it_is_old() {
        let asked = Arc::new(AtomicUsize::new(0));
        let of = Arc::clone(&asked);
        let hosts = Hosts::by(move |address| {
            of.fetch_add(1, Ordering::SeqCst);
            (address == ip(1)).then(|| "web.example".to_owned())
        });
        let now = Instant::now();
        for (address, name) in [(ip(1), Some("web.example")), (ip(2), None)] {
            for _ in 0..3 {
                hosts.name(address, now);
                hosts.wait(SOON);
            }
            assert_eq!(hosts.name(address, now).as_deref(), name);
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        let later = Instant::now() + NO_NAME_FOR;
        assert_eq!(hosts.name(ip(1), later).as_deref(), Some("web.example"));
        assert_eq!(hosts.name(ip(2), later), None);
        hosts.wait(SOON);
        assert_eq!(asked.load(Ordering::SeqCst), 3, "only the address without a name was asked for again");
        assert_eq!(
            hosts.name(ip(1), later + NAME_FOR).as_deref(),
            Some("web.example"),
            "an old name is shown meanwhile"
        );
        hosts.wait(SOON);
        assert_eq!(asked.load(Ordering::SeqCst), 4);
        // An address of IPv4 that IPv6 maps is one host.
        assert_eq!(hosts.name("::ffff:10.0.0.1".parse().unwrap(), now).as_deref(), Some("web.example"));
        assert_eq!(hosts.name("0.0.0.0".parse().unwrap(), now), None);
        assert_eq!(asked.load(Ordering::SeqCst), 4);
    }

    #[test]
    fn a_resolver_that_does_not_answer_holds_nothing_up() {
        let (release, held) = channel::<()>();
        let held = Mutex::new(held);
        let hosts = Hosts::by(move |address| {
            // All look-ups wait here for the first message, and pass once the sender is gone.
            let _ = lock(&held).recv();
            Some(address.to_string() + ".example")
        });
        let (begun, now) = (Instant::now(), Instant::now());
        let all = 3 * u32::try_from(WAITING).unwrap();
        for last in 0..all {
            assert_eq!(hosts.name(ip(last), now), None);
        }
        assert!(hosts.is_asking());
        {
            let state = lock(&hosts.shared.state);
            assert!(
                state.threads <= THREADS && state.waiting.len() <= WAITING,
                "{} {}",
                state.threads,
                state.waiting.len()
            );
        }
        hosts.wait(Duration::from_millis(10));
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        drop(release);
        // Addresses that found no room to wait are asked for later.
        for _ in 0..4 {
            hosts.wait(SOON);
            (0..all).for_each(|last| drop(hosts.name(ip(last), now)));
        }
        hosts.wait(SOON);
        assert!(!hosts.is_asking());
        let names = (0..all).filter_map(|last| hosts.name(ip(last), now)).count();
        assert_eq!(names, all as usize);
    }
}
