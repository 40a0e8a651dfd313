// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hooks that are attached only while there are objects that need them.
//!
//! The owner of an accepted connection is known at its first read. The hook for that passes each call that receives, whether or
//! not an owner is missing. So it is attached while a word that the programs keep counts connections without a known owner.
//! Programs can't attach programs, so readers do it: an owner is known after the next snapshot of its table, and the next read of
//! the connection. Without readers the hook stays as it is. This is for labels of rows alone: amounts that count to an owner may not
//! wait for a reader.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Attached;
use crate::Error;
use crate::bpf::Shared;
use crate::hooks::Hook;
use crate::maps::Maps;

/// A hook is detached after no object has needed it for this long: to attach or detach it interrupts all CPUs.
const CALM: Duration = Duration::from_secs(5);
/// Another process may detach the hook in between. While objects need it, each process makes sure this often that it is attached.
const LOOK: Duration = Duration::from_secs(1);

/// A hook that objects need at times.
pub struct Wanted {
    hook: Hook,
    /// The number of objects that need it.
    count: Shared,
    seen: Mutex<Seen>,
}

/// What a process has last done with the hook, which is attached when the programs are loaded.
enum Seen {
    Attached {
        /// The last time that an object needed the hook, or the first read.
        needed: Option<Instant>,
        /// The last time that this process made sure that the hook is attached.
        sure: Option<Instant>,
    },
    Detached,
}

impl Default for Seen {
    fn default() -> Self {
        Self::Attached { needed: None, sure: None }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Leave,
    Attach,
    Detach,
}

impl Seen {
    /// What is to be done where `count` objects need the hook.
    fn next(&mut self, count: u64, now: Instant) -> Step {
        if count > 0 {
            let sure = match *self {
                Self::Attached { sure, .. } => sure.filter(|at| now.duration_since(*at) < LOOK),
                Self::Detached => None,
            };
            *self = Self::Attached { needed: Some(now), sure: sure.or(Some(now)) };
            return if sure.is_some() { Step::Leave } else { Step::Attach };
        }
        let Self::Attached { needed, .. } = self else { return Step::Leave };
        if now.duration_since(*needed.get_or_insert(now)) < CALM {
            return Step::Leave;
        }
        *self = Self::Detached;
        Step::Detach
    }
}

impl Wanted {
    /// Those among `hooks`.
    ///
    /// # Errors
    /// A word can't be mapped.
    pub fn of(hooks: Vec<Hook>, maps: &Maps) -> Result<Vec<Self>, Error> {
        let mut wanted = Vec::new();
        for hook in hooks {
            let Some(map) = hook.while_counted.and_then(|word| maps.get(word)) else { continue };
            wanted.push(Self { count: Shared::new(map)?, hook, seen: Mutex::default() });
        }
        Ok(wanted)
    }

    /// Attaches or detaches the hook, as the number of objects asks for. A failure is no error of the read: without the hook the rows
    /// show the owners that are known, and a later read tries again; a hook that stays costs time alone.
    pub fn follow(&self, attached: &dyn Attached) {
        self.follow_at(Instant::now(), attached);
    }

    /// As after a while without objects that need it.
    #[cfg(feature = "bench")]
    pub fn calm(&self, attached: &dyn Attached) {
        let now = Instant::now();
        [now, now + CALM].into_iter().for_each(|now| self.follow_at(now, attached));
    }

    fn follow_at(&self, now: Instant, attached: &dyn Attached) {
        let count = self.count.read(0, 0);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = match seen.next(count, now) {
            Step::Leave => Ok(()),
            Step::Attach => attached.attach(&self.hook),
            Step::Detach => attached.detach(&self.hook),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_attached_while_objects_need_it_and_some_time_longer() {
        let begun = Instant::now();
        let mut seen = Seen::default();
        let mut at = |ms: u64, count: u64| seen.next(count, begun + Duration::from_millis(ms));
        assert_eq!(at(0, 0), Step::Leave, "it is attached when the programs are loaded");
        assert_eq!(at(4999, 0), Step::Leave);
        assert_eq!(at(5000, 0), Step::Detach);
        assert_eq!(at(20_000, 0), Step::Leave, "once");
        assert_eq!(at(20_001, 1), Step::Attach);
        assert_eq!(at(21_000, 3), Step::Leave);
        assert_eq!(at(21_001, 3), Step::Attach, "another process may have detached it");
        assert_eq!(at(21_500, 3), Step::Leave);
        assert_eq!(at(26_499, 0), Step::Leave);
        assert_eq!(at(26_500, 1), Step::Attach, "the last second is over");
        assert_eq!(at(31_499, 0), Step::Leave);
        assert_eq!(at(31_500, 0), Step::Detach);
        assert_eq!(at(31_501, 1), Step::Attach, "at once, though it was attached a moment ago");
    }
}
