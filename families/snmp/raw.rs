// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A reading of all namespaces or devices: the sums, and the chosen counters of each CPU. A later reading uses the memory of an
//! earlier one again.

use std::time::{Instant, SystemTime};

use super::layout::At;

/// Identifies a namespace or a device over all readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The inode of the namespace. Once the namespace is gone, another one may get its inode.
    pub inum: u32,
    /// The cookie of the namespace, where the kernel has cookies. No other namespace ever gets it.
    pub id: u64,
    /// The device's number; 0 for a namespace.
    pub ifindex: u32,
}

/// A namespace or a device.
#[derive(Clone, Debug)]
pub struct Holder {
    pub key: Key,
    pub device: Option<String>,
    /// The groups whose messages by type were read: see [`At::ByType`].
    pub groups: u8,
    /// The holder ended while it was read: none of its counters is valid.
    pub gone: bool,
}

/// The number of words that are read of a holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    pub cpus: usize,
    /// Words of each CPU.
    pub cpu_words: usize,
    /// Words that all CPUs share.
    pub shared_words: usize,
}

/// The words that are kept of each CPU. The sums of all words are always kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// All words.
    #[default]
    All,
    /// No words.
    Sums,
    /// These words.
    Words(Vec<usize>),
}

/// Words of single CPUs that are kept, at most: 64 MiB. A reading that would have more keeps only sums.
const MOST_PARTS: usize = 8 << 20;

/// A reading.
#[derive(Debug)]
pub struct Raw {
    pub time: SystemTime,
    pub instant: Instant,
    pub beyond: u64,
    pub unreadable: u64,
    shape: Shape,
    keep: Keep,
    holders: Vec<Holder>,
    /// The sums of each holder, one holder after the other.
    sums: Vec<u64>,
    shared: Vec<u64>,
    /// The kept words of each holder, CPU by CPU.
    parts: Vec<u64>,
}

impl Raw {
    /// A reading that begins now. It uses the memory of an old reading again.
    pub fn new(shape: Shape, keep: &Keep, old: Option<Self>) -> Self {
        let (time, instant) = (SystemTime::now(), Instant::now());
        match old {
            Some(old) if old.shape == shape && old.keep == *keep => {
                Self { time, instant, beyond: 0, unreadable: 0, ..old }
            }
            _ => Self {
                time,
                instant,
                beyond: 0,
                unreadable: 0,
                shape,
                keep: keep.clone(),
                holders: Vec::new(),
                sums: Vec::new(),
                shared: Vec::new(),
                parts: Vec::new(),
            },
        }
    }

    /// Makes room for these holders. Until words are written, they contain values of an older reading.
    pub fn begin(&mut self, holders: impl Iterator<Item = Holder>) {
        self.holders.clear();
        self.holders.extend(holders);
        let count = self.holders.len();
        let Shape { cpus, cpu_words, shared_words } = self.shape;
        let most = match &self.keep {
            Keep::All => cpu_words,
            Keep::Sums => 0,
            Keep::Words(words) => words.len(),
        };
        let parts = Some(count * cpus * most).filter(|words| *words <= MOST_PARTS).unwrap_or(0);
        for (words, length) in
            [(&mut self.sums, count * cpu_words), (&mut self.shared, count * shared_words), (&mut self.parts, parts)]
        {
            words.resize(length, 0);
        }
    }

    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The holders that were listed. Some may be gone since.
    pub fn holders(&self) -> &[Holder] {
        &self.holders
    }

    /// The holders that were read, with their indexes.
    pub fn read(&self) -> impl Iterator<Item = (usize, &Holder)> {
        self.holders.iter().enumerate().filter(|(_, holder)| !holder.gone)
    }

    pub fn gone(&mut self, holder: usize) {
        self.holders[holder].gone = true;
    }

    pub fn set_groups(&mut self, holder: usize, groups: u8) {
        self.holders[holder].groups = groups;
    }

    /// Adds the counters of a CPU. CPU 0 must come first.
    pub fn add_cpu(&mut self, holder: usize, cpu: usize, counters: &[u64]) {
        let words = self.shape.cpu_words;
        let sums = &mut self.sums[holder * words..][..words];
        match cpu {
            0 => sums.copy_from_slice(counters),
            _ => topstat_engine::fold(sums, counters),
        }
        if self.parts.is_empty() {
            return;
        }
        let kept = self.kept();
        let parts = &mut self.parts[(holder * self.shape.cpus + cpu) * kept..][..kept];
        match &self.keep {
            Keep::Words(words) => parts.iter_mut().zip(words).for_each(|(part, word)| *part = counters[*word]),
            Keep::All => parts.copy_from_slice(counters),
            Keep::Sums => {}
        }
    }

    /// Sets words that all CPUs share, starting at word `from`.
    pub fn set_shared(&mut self, holder: usize, from: usize, words: &[u64]) {
        self.shared[holder * self.shape.shared_words + from..][..words.len()].copy_from_slice(words);
    }

    /// The number of words that are kept of a holder on a CPU.
    fn kept(&self) -> usize {
        self.parts.len().checked_div(self.holders.len() * self.shape.cpus).unwrap_or(0)
    }

    /// The value of a counter, over all CPUs.
    pub fn sum(&self, holder: usize, at: At) -> u64 {
        let shared = |word| self.shared[holder * self.shape.shared_words + word];
        match at {
            At::Cpu(word) => self.sums[holder * self.shape.cpu_words + word],
            At::Shared(word) => shared(word),
            At::ByType { group, .. } if self.holders[holder].groups & group == 0 => 0,
            At::ByType { word, .. } => shared(word),
        }
    }

    /// The value of a counter on each CPU. Empty if these are not kept, or if all CPUs share the counter.
    pub fn parts(&self, holder: usize, at: At) -> Vec<u64> {
        let place = match (at, &self.keep) {
            (At::Cpu(word), Keep::All) => Some(word),
            (At::Cpu(word), Keep::Words(words)) => words.iter().position(|kept| *kept == word),
            _ => None,
        };
        let (kept, cpus) = (self.kept(), self.shape.cpus);
        match place.filter(|_| kept > 0) {
            Some(place) => (0..cpus).map(|cpu| self.parts[(holder * cpus + cpu) * kept + place]).collect(),
            None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(inum: u32) -> Holder {
        Holder { key: Key { inum, id: 0, ifindex: 0 }, device: None, groups: 0, gone: false }
    }

    #[test]
    fn memory_is_used_again_and_says_nothing_of_what_was_in_it() {
        let shape = Shape { cpus: 2, cpu_words: 3, shared_words: 2 };
        let mut old = None;
        for round in 1..4 {
            let mut raw = Raw::new(shape, &Keep::Words(vec![2]), old.take());
            raw.begin((0..round).map(holder));
            for of in 0..round as usize {
                let many = u64::from(round) * 10;
                raw.add_cpu(of, 0, &[1, many, 5]);
                raw.add_cpu(of, 1, &[2, many, u64::MAX]);
                raw.set_shared(of, 0, &[many]);
                // The last holder's messages by type were counted in an earlier round only.
                raw.set_groups(of, u8::from(round == 1));
                assert_eq!((raw.sum(of, At::Cpu(0)), raw.sum(of, At::Cpu(1))), (3, 2 * many));
                assert_eq!((raw.sum(of, At::Cpu(2)), raw.parts(of, At::Cpu(2))), (4, vec![5, u64::MAX]));
                assert!(raw.parts(of, At::Cpu(0)).is_empty());
                assert_eq!(raw.sum(of, At::Shared(0)), many);
                let by_type = raw.sum(of, At::ByType { word: 0, group: 1 });
                assert_eq!(by_type, if round == 1 { many } else { 0 });
            }
            raw.gone(0);
            assert_eq!(raw.read().count(), round as usize - 1);
            old = Some(raw);
        }
    }

    #[test]
    fn more_parts_than_there_is_room_for_are_left_out() {
        let mut raw = Raw::new(Shape { cpus: 1024, cpu_words: 700, shared_words: 0 }, &Keep::All, None);
        raw.begin((0..100).map(holder));
        raw.add_cpu(1, 0, &[7; 700]);
        assert_eq!((raw.sum(1, At::Cpu(3)), raw.parts(1, At::Cpu(3))), (7, Vec::new()));
    }
}
