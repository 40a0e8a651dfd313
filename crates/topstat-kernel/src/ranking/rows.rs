// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows as the programs that read write them: each begins with a `ts_row`, and is as long as the family says.

use std::mem::size_of;

use topstat_engine::abi::ts_row;

use crate::bpf;

/// A row: what all have, and its bytes.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    pub head: ts_row,
    pub bytes: &'a [u8],
}

/// Rows of the same length, one after the other.
#[derive(Clone, Debug)]
pub struct Rows {
    bytes: Vec<u8>,
    size: usize,
}

impl Rows {
    /// Those in these bytes, of so many each: a `ts_row` at least.
    pub fn new(bytes: Vec<u8>, size: usize) -> Self {
        Self { bytes, size: size.max(size_of::<ts_row>()) }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Row<'_>> {
        self.bytes.chunks_exact(self.size).map(|bytes| Row { head: bpf::from_bytes(bytes), bytes })
    }
}
