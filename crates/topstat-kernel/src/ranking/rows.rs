// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows as the reading programs write them: each begins with a `ts_row`, and has the length that the family defines.

use std::mem::size_of;

use topstat_engine::abi::ts_row;

use crate::bpf;

/// A row: the head that all rows have, and its bytes.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    pub head: ts_row,
    pub bytes: &'a [u8],
}

/// Rows of equal length, one after the other.
#[derive(Clone, Debug)]
pub struct Rows {
    bytes: Vec<u8>,
    size: usize,
}

impl Rows {
    /// The rows in these bytes, of `size` bytes each: at least a `ts_row`.
    pub fn new(bytes: Vec<u8>, size: usize) -> Self {
        Self { bytes, size: size.max(size_of::<ts_row>()) }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Row<'_>> {
        self.bytes.chunks_exact(self.size).map(|bytes| Row { head: bpf::from_bytes(bytes), bytes })
    }
}
