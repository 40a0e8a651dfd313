// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of a slice of time: written to a file without a name, and read back at once.
//!
//! ```text
//! row   = length time host rank { cell }    the length is that of the bytes behind it
//! cell  = 0 | 1 number | 2 length bytes     null, number, text
//! ```
//!
//! Numbers have 7 bits in a byte, the lowest first; signed ones are folded, so that small ones are short.

use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _, Write as _};
use std::path::Path;

use topstat_history::Root;
use topstat_history::sealed::Value;

/// Spilled rows are read once: the fastest level.
const LEVEL: i32 = 1;
/// 128 KiB: a slice of an hour has an encoder, and there may be hundreds.
const WINDOW_LOG: u32 = 17;

/// What rows are sorted by. The host is its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub time: i64,
    pub host: u32,
    pub rank: u64,
}

/// A slice that gets rows.
pub enum Slice {
    /// The only slice.
    Memory(Vec<u8>),
    Spilled(Box<zstd::stream::Encoder<'static, File>>),
}

/// A slice that has all rows.
pub struct Whole(Vec<u8>);

impl Slice {
    /// A slice without rows, in memory or in a file that has no name after this.
    pub fn new(root: &Root, path: &Path, spilled: bool) -> io::Result<Self> {
        if !spilled {
            return Ok(Self::Memory(vec![]));
        }
        let file = root.create(path)?;
        root.remove(path)?;
        let mut encoder = zstd::stream::Encoder::new(file, LEVEL)?;
        encoder.window_log(WINDOW_LOG)?;
        Ok(Self::Spilled(Box::new(encoder)))
    }

    pub fn add<'v>(&mut self, row: Row, cells: impl Iterator<Item = Value<'v>>) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(256);
        put(&mut bytes, fold(row.time));
        put(&mut bytes, row.host.into());
        put(&mut bytes, row.rank);
        for cell in cells {
            match cell {
                Value::Null => bytes.push(0),
                Value::Number(number) => {
                    bytes.push(1);
                    put(&mut bytes, fold(number));
                }
                Value::Text(text) => {
                    bytes.push(2);
                    put(&mut bytes, text.len() as u64);
                    bytes.extend_from_slice(text.as_bytes());
                }
            }
        }
        let mut length = Vec::with_capacity(4);
        put(&mut length, bytes.len() as u64);
        match self {
            Self::Memory(all) => {
                all.extend_from_slice(&length);
                all.extend_from_slice(&bytes);
                Ok(())
            }
            Self::Spilled(to) => to.write_all(&length).and_then(|()| to.write_all(&bytes)),
        }
    }

    pub fn read(self) -> io::Result<Whole> {
        match self {
            Self::Memory(all) => Ok(Whole(all)),
            Self::Spilled(encoder) => {
                let mut file = encoder.finish()?;
                file.rewind()?;
                let mut all = Vec::new();
                zstd::stream::Decoder::with_buffer(BufReader::new(file))?.read_to_end(&mut all)?;
                Ok(Whole(all))
            }
        }
    }
}

impl Whole {
    /// The rows, each with the place of its cells.
    pub fn rows(&self) -> Vec<(Row, usize)> {
        let (mut found, mut at) = (vec![], 0);
        while at < self.0.len() {
            let length = get(&self.0, &mut at);
            let end = at + usize::try_from(length).unwrap_or(usize::MAX);
            let time = unfold(get(&self.0, &mut at));
            let host = u32::try_from(get(&self.0, &mut at)).unwrap_or(u32::MAX);
            let rank = get(&self.0, &mut at);
            found.push((Row { time, host, rank }, at));
            at = end;
        }
        found
    }

    /// The cells at this place. There are as many as were added; the caller takes no more.
    pub fn cells(&self, mut at: usize) -> impl Iterator<Item = Value<'_>> {
        std::iter::from_fn(move || {
            let kind = *self.0.get(at)?;
            at += 1;
            Some(match kind {
                0 => Value::Null,
                1 => Value::Number(unfold(get(&self.0, &mut at))),
                _ => {
                    let length = usize::try_from(get(&self.0, &mut at)).unwrap_or(0);
                    let text = self.0.get(at..at + length)?;
                    at += length;
                    Value::Text(std::str::from_utf8(text).ok()?)
                }
            })
        })
    }
}

fn fold(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn unfold(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn get(bytes: &[u8], at: &mut usize) -> u64 {
    let (mut number, mut shift) = (0, 0);
    while let Some(byte) = bytes.get(*at) {
        *at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 || shift > 63 {
            break;
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_whole() {
        let mut slice = Slice::Memory(vec![]);
        let rows = [(i64::MIN, 0, 0), (-1, 7, 1), (0, 1 << 20, 300), (i64::MAX, u32::MAX, u64::MAX)];
        for (time, host, rank) in rows {
            let cells = [Value::Null, Value::Number(time), Value::Text("/a b"), Value::Text("")];
            slice.add(Row { time, host, rank }, cells.into_iter()).unwrap();
        }
        let whole = slice.read().unwrap();
        let found = whole.rows();
        assert_eq!(found.iter().map(|(row, _)| (row.time, row.host, row.rank)).collect::<Vec<_>>(), rows);
        for (row, at) in found {
            let cells: Vec<_> = whole.cells(at).take(4).collect();
            assert_eq!(cells, [Value::Null, Value::Number(row.time), Value::Text("/a b"), Value::Text("")]);
        }
    }
}
