// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cache of cgroups' paths, so that not every row of every snapshot asks the kernel again.
//!
//! Users to whom a subtree is delegated choose the names of its cgroups: they may be long, and there may be many. So the cache is
//! bounded in bytes, and in time:
//!
//! - **PC1** the entries take at most [`MOST_BYTES`] together; the least recently used entry makes room.
//! - **PC2** after any use of the cache, it has no entry that was unused for [`UNUSED`].
//! - **PC3** a look-up gives the path that was last entered for that id.

use std::time::{Duration, Instant};

use lru::LruCache;

use super::V1Controller;

/// The most bytes of all entries. A thousand usual paths, of 80 bytes, take a fifth of it. It holds 250 of the kernel's longest
/// paths, which have 4 KiB: more than a table has rows.
pub const MOST_BYTES: usize = 1 << 20;

/// A path that no snapshot has shown for this long is forgotten: ten times the usual period.
pub const UNUSED: Duration = Duration::from_secs(10);

/// Bytes of an entry beside its path: a node of the list and a slot of the hash table, each with the allocator's overhead.
const ENTRY_BYTES: usize = 128;

/// The size of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// Number of cgroups.
    pub entries: usize,
    /// Bytes of their entries.
    pub bytes: usize,
}

/// The hierarchy that an id belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hierarchy {
    V1(V1Controller),
    V2,
}

/// A cgroup: its hierarchy, and its id in it.
pub type Key = (Hierarchy, u64);

/// Paths by ids, the most recently used first.
pub struct PathCache {
    known: LruCache<Key, Known>,
    bytes: usize,
}

struct Known {
    /// `None`: the cgroup was gone before the kernel was asked.
    path: Option<Box<str>>,
    used: Instant,
}

impl Known {
    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.path.as_ref().map_or(0, |path| path.len())
    }
}

impl PathCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self { known: LruCache::unbounded(), bytes: 0 }
    }

    /// The path that was entered for a cgroup; the inner `None`: the cgroup was gone then.
    #[allow(clippy::option_option)]
    pub fn get(&mut self, key: Key, now: Instant) -> Option<Option<String>> {
        self.forget_unused(now);
        let known = self.known.get_mut(&key)?;
        known.used = now;
        Some(known.path.as_deref().map(str::to_owned))
    }

    /// Enters the result of a look-up.
    pub fn insert(&mut self, key: Key, path: Option<&str>, now: Instant) {
        self.forget_unused(now);
        let known = Known { path: path.map(Into::into), used: now };
        let bytes = known.bytes();
        if let Some(before) = self.known.pop(&key) {
            self.bytes -= before.bytes();
        }
        while self.bytes + bytes > MOST_BYTES && self.forget_oldest() {}
        if self.bytes + bytes <= MOST_BYTES {
            self.bytes += bytes;
            self.known.put(key, known);
        }
    }

    /// Forgets entries that were not used for [`UNUSED`].
    pub fn forget_unused(&mut self, now: Instant) {
        while self.known.peek_lru().is_some_and(|(_, known)| now.saturating_duration_since(known.used) >= UNUSED) {
            self.forget_oldest();
        }
    }

    /// Forgets the least recently used entry. Returns whether there was one.
    fn forget_oldest(&mut self) -> bool {
        let oldest = self.known.pop_lru();
        self.bytes -= oldest.as_ref().map_or(0, |(_, known)| known.bytes());
        oldest.is_some()
    }

    /// The size of the cache.
    pub fn remembered(&self) -> Remembered {
        Remembered { entries: self.known.len(), bytes: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const KEY: Key = (Hierarchy::V2, 1);
    const V1_KEY: Key = (Hierarchy::V1(V1Controller::Memory), 1);

    #[test]
    fn what_no_snapshot_shows_is_forgotten() {
        let (mut cache, begun) = (PathCache::new(), Instant::now());
        cache.insert(KEY, Some("/a"), begun);
        cache.insert(V1_KEY, None, begun);
        assert_eq!(cache.get(V1_KEY, begun), Some(None), "that it is gone is known");
        let soon = begun + UNUSED - Duration::from_millis(1);
        assert_eq!(cache.get(KEY, soon), Some(Some("/a".to_owned())));
        cache.forget_unused(begun + UNUSED);
        assert_eq!(cache.remembered(), Remembered { entries: 1, bytes: ENTRY_BYTES + 2 }, "one was used since");
        cache.forget_unused(soon + UNUSED);
        assert_eq!(cache.remembered(), Remembered::default());
    }

    #[test]
    fn three_thousand_long_names_take_no_more_than_the_bound() {
        let (mut cache, now) = (PathCache::new(), Instant::now());
        let path = "/".repeat(4095);
        for id in 0..3000 {
            cache.insert((Hierarchy::V2, id), Some(&path), now);
        }
        let Remembered { entries, bytes } = cache.remembered();
        assert!(bytes <= MOST_BYTES && bytes > MOST_BYTES - 5000 && entries > 200, "{entries} entries, {bytes} bytes");
        assert_eq!(cache.get((Hierarchy::V2, 0), now), None);
        assert_eq!(cache.get((Hierarchy::V2, 2999), now), Some(Some(path)));
        cache.insert(KEY, Some(&"/".repeat(MOST_BYTES)), now);
        assert_eq!((cache.get(KEY, now), cache.remembered().bytes), (None, 0), "what never fits is not kept");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Get(u64),
        Insert(u64, Option<usize>),
        Wait(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..60_u64).prop_map(Step::Get),
            (0..60_u64, prop::option::of(0..60_000_usize)).prop_map(|(id, length)| Step::Insert(id, length)),
            (0..6_000_u64).prop_map(Step::Wait),
        ];
        prop::collection::vec(step, 0..300)
    }

    proptest! {
        #[test]
        fn it_is_bounded_in_bytes_and_in_time_and_never_wrong(steps in steps()) {
            let (mut cache, mut now) = (PathCache::new(), Instant::now());
            let mut model: HashMap<u64, (Option<String>, Instant)> = HashMap::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Wait(ms) => {
                        now += Duration::from_millis(ms);
                        cache.forget_unused(now);
                    }
                    Step::Get(id) => {
                        let got = cache.get((Hierarchy::V2, id), now);
                        if let Some(path) = got {
                            let (entered, used) = model.get_mut(&id).expect("it was entered");
                            prop_assert_eq!(&path, &*entered); // PC3
                            prop_assert!(now - *used < UNUSED); // PC2
                            *used = now;
                        }
                    }
                    Step::Insert(id, length) => {
                        let path = length.map(|length| format!("{number}{}", "x".repeat(length)));
                        cache.insert((Hierarchy::V2, id), path.as_deref(), now);
                        model.insert(id, (path, now));
                    }
                }
                let known: Vec<_> = cache.known.iter().collect();
                prop_assert_eq!(cache.bytes, known.iter().map(|(_, known)| known.bytes()).sum::<usize>());
                prop_assert!(cache.bytes <= MOST_BYTES); // PC1
                prop_assert!(known.iter().all(|(_, known)| now - known.used < UNUSED)); // PC2
            }
        }
    }
}
