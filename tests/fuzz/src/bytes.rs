// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes that are decoded: every input means something, and a byte changed in one place changes little elsewhere.

/// Bytes, and zeroes when they have run out.
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    /// All of these.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether there are none left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next one.
    pub fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    /// A number of eight bytes.
    pub fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// One of so many.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// At most so many.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}
