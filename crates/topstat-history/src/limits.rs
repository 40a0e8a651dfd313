// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The most that a reader accepts. A file of a few KB can decode to GB, and a reader has 256 MB (the recorder's unit).

/// Bytes of a line, and of the lines that a reader of events takes at once. The longest document has 1,024 rows, each with a
/// path of 4 KiB.
pub const MOST_LINE_BYTES: usize = 8 << 20;
/// Bytes of lines after which a writer ends a frame.
pub const FRAME_BYTES: u64 = 64 << 20;
/// Bytes of lines in a frame. Versions before [`FRAME_BYTES`] wrote a minute of documents into each.
pub const MOST_FRAME_BYTES: u64 = 512 << 20;
/// Bytes of lines in a log: more than an hour of the longest documents. Decoding them takes about 16 s.
pub const MOST_LOG_BYTES: u64 = 16 << 30;
/// Rows in a row group of Parquet. A writer makes groups of 4,096 rows, and a larger group only of one snapshot.
pub const MOST_GROUP_ROWS: usize = 1 << 16;
/// Bytes of a row group of Parquet before compression, by its metadata.
pub const MOST_GROUP_BYTES: i64 = 128 << 20;
