// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of the daemon that open files may take, counted by user.
//!
//! A member of the tree's group may open files and stop reading. That must not keep other users, least of all root, from reading.
//! Subordinate uids count as their owner ([`Owners`]). So these rules hold for each [`Pool`]:
//!
//! - **SH1** all taken amounts together are at most `root` + `users`, the sizes with which the pool was made.
//! - **SH2** only uid 0 takes amounts from `root`.
//! - **SH3** any other uid takes an amount only if it then has at most an eighth (`FRACTION`) of the free rest of `users`. So
//!   `n` uids, however greedy, leave (8/9)ⁿ of `users` free, and the next uid can have a ninth of this rest.
//! - **SH4** the drop of a [`Share`] gives its amount back. The pool keeps no entry for a uid without an amount.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use super::owners::Owners;

use crate::lock::lock;

/// See SH3. The first uid can have a ninth of all. After 32 greedy uids the next one can still have a four-hundredth.
const FRACTION: usize = 8;

/// Bytes of kept text. A snapshot of 128 rows on a few CPUs has some 50 KB: a uid may keep a hundred snapshots, and two if 32
/// other uids keep all they can.
const TEXTS: Most = Most { root: 16 << 20, users: 48 << 20 };
/// Bytes of kept text of `self`, which has some 5 KB. This is a separate pool, so that a user without room for other text can
/// still see why.
const OWN: Most = Most { root: 1 << 20, users: 3 << 20 };
/// Open files. Each takes some 300 bytes beside its text, so all of them take some 6 MB. A uid may have 1,820 open files.
const HANDLES: Most = Most { root: 4096, users: 16_384 };

/// The sizes of the parts of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    /// The part that only root may take.
    pub root: usize,
    /// The part that all other uids may take together.
    pub users: usize,
}

/// An amount of bytes or files. Each uid may take a part.
#[derive(Debug)]
pub struct Pool {
    /// The unit of the amount, for messages.
    what: &'static str,
    most: Most,
    taken: Mutex<Taken>,
}

/// The amounts that are taken from a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// By root.
    pub root: usize,
    /// By all other uids together.
    pub users: usize,
    /// By each other uid that has an amount.
    pub by_uid: HashMap<u32, usize>,
}

/// A taken amount. The drop of this value gives it back.
#[derive(Debug)]
pub struct Share {
    pool: Arc<Pool>,
    uid: u32,
    amount: usize,
}

/// A uid gets no more for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Full {
    what: &'static str,
    uid: u32,
    has: usize,
    /// The free rest of root's part, or of the other uids' part.
    free: usize,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, uid, has, free } = self;
        let whose = if *uid == 0 { "of root's part" } else { "to all users but root" };
        write!(
            f,
            "open files of uid {uid} have {has} {what}, and {free} are left {whose}; close some (self lists users)"
        )
    }
}

impl Pool {
    fn new(what: &'static str, most: Most) -> Arc<Self> {
        Arc::new(Self { what, most, taken: Mutex::default() })
    }

    /// Takes an amount for a uid.
    ///
    /// # Errors
    ///
    /// [`Full`], by SH1 … SH3. Then nothing was taken.
    pub fn take(self: &Arc<Self>, uid: u32, amount: usize) -> Result<Share, Full> {
        let mut taken = self.lock();
        let has = if uid == 0 { taken.root } else { taken.by_uid.get(&uid).copied().unwrap_or(0) };
        let free = if uid == 0 { self.most.root - taken.root } else { self.most.users - taken.users };
        let after = |amount: usize| Some((has.checked_add(amount)?, free.checked_sub(amount)?));
        match after(amount) {
            Some(_) if uid == 0 => taken.root += amount,
            Some((has, free)) if has.saturating_mul(FRACTION) <= free => {
                taken.users += amount;
                if has > 0 {
                    taken.by_uid.insert(uid, has);
                }
            }
            _ => return Err(Full { what: self.what, uid, has, free }),
        }
        Ok(Share { pool: Arc::clone(self), uid, amount })
    }

    /// The amounts that are taken now.
    pub fn taken(&self) -> Taken {
        self.lock().clone()
    }

    /// The sizes of the pool's parts.
    pub fn most(&self) -> Most {
        self.most
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // No code under this lock panics half way.
        lock(&self.taken)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.pool.lock();
        if self.uid == 0 {
            taken.root -= self.amount;
            return;
        }
        taken.users -= self.amount;
        if let Some(has) = taken.by_uid.get_mut(&self.uid) {
            *has -= self.amount;
            if *has == 0 {
                taken.by_uid.remove(&self.uid);
                // Frees the memory of a map that a thousand uids have filled.
                if taken.by_uid.is_empty() {
                    taken.by_uid.shrink_to_fit();
                }
            }
        }
    }
}

/// The pools of a daemon. A tree that is mounted again uses the same pools.
#[derive(Debug)]
pub struct Shares {
    /// Open files.
    pub handles: Arc<Pool>,
    /// Bytes of the texts that open files keep, except the texts of `self`.
    pub texts: Arc<Pool>,
    /// Bytes of the texts of `self` that open files keep.
    pub own: Arc<Pool>,
    /// The owners of subordinate uids. The pools don't know them.
    pub owners: Owners,
}

impl Shares {
    /// The pools of a daemon on this host.
    pub fn of_host() -> Self {
        Self { owners: Owners::of_host(), ..Self::default() }
    }
}

impl Default for Shares {
    fn default() -> Self {
        Self {
            handles: Pool::new("handles", HANDLES),
            texts: Pool::new("bytes of text", TEXTS),
            own: Pool::new("bytes of self", OWN),
            owners: Owners::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: Most = Most { root: 1000, users: 9000 };

    fn pool() -> Arc<Pool> {
        Pool::new("beans", MOST)
    }

    #[test]
    fn one_uid_gets_a_ninth_and_the_next_a_ninth_of_the_rest() {
        let pool = pool();
        let first = pool.take(7, 1000).unwrap();
        let full = pool.take(7, 1).unwrap_err();
        assert_eq!(
            full.to_string(),
            "open files of uid 7 have 1000 beans, and 8000 are left to all users but root; close some (self lists users)"
        );
        let _second = pool.take(8, 888).unwrap();
        assert!(pool.take(8, 1).is_err());
        drop(first);
        assert_eq!(pool.taken(), Taken { root: 0, users: 888, by_uid: [(8, 888)].into() });
        let _first = pool.take(7, 800).unwrap();
    }

    #[test]
    fn roots_part_is_roots() {
        let pool = pool();
        let mut users = Vec::new();
        for uid in 1..500 {
            while let Ok(share) = pool.take(uid, 1) {
                users.push(share);
            }
        }
        assert!(pool.taken().users <= MOST.users);
        let root = pool.take(0, 1000).unwrap();
        let full = pool.take(0, 1).unwrap_err();
        assert!(full.to_string().contains("0 are left of root's part"), "{full}");
        assert!(pool.take(0, usize::MAX).is_err() && pool.take(600, usize::MAX).is_err());
        drop((root, users));
        assert_eq!(pool.taken(), Taken::default());
    }

    proptest! {
        /// SH1 … SH4 hold for all uids, amounts and orders of taking and giving back.
        #[test]
        fn whoever_is_greedy_leaves_room_for_the_next(steps in prop::collection::vec((0..20_u32, 0..700_usize, any::<prop::sample::Index>()), 0..400)) {
            let pool = pool();
            let mut shares: Vec<Share> = Vec::new();
            for (uid, amount, which) in steps {
                if amount < 200 && !shares.is_empty() {
                    shares.swap_remove(which.index(shares.len()));
                }
                shares.extend(pool.take(uid, amount));
                let taken = pool.taken();
                let sum = |root: bool| shares.iter().filter(|s| (s.uid == 0) == root).map(|s| s.amount).sum::<usize>();
                prop_assert_eq!((taken.root, taken.users), (sum(true), sum(false)));
                prop_assert!(taken.root <= MOST.root && taken.users <= MOST.users);
                prop_assert_eq!(taken.by_uid.values().sum::<usize>(), taken.users);
                prop_assert!(!taken.by_uid.contains_key(&0));
                let left = (0..taken.by_uid.len()).fold(MOST.users as f64, |left, _| left * 8.0 / 9.0);
                prop_assert!((MOST.users - taken.users) as f64 >= left - 1.0, "{:?}", taken);
            }
            drop(shares);
            prop_assert_eq!(pool.taken().users, 0);
        }
    }
}
