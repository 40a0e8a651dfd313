// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The live view: what `topstat` shows on a terminal.
//!
//! | module | content |
//! |---|---|
//! | [`feed`] | the source of readings and settings: a trait and its messages |
//! | [`state`] | the state of the view, and the effect of keys on it; independent of a terminal |
//! | [`past`] | the last ten minutes of each table |
//! | [`rows`] | the rows of a reading that are shown, and their order |
//! | [`keys`] | the key map, from which the help is made |
//! | `draw` | draws the state as a frame |
//! | `terminal` | the terminal: taken, read, and always given back |
//!
//! One thread draws and takes keys; the thread that calls [`run`] reads tables. So a key is answered while a reading takes its
//! time.

#![warn(missing_docs)]

mod draw;
pub mod feed;
pub mod host;
pub mod keys;
pub mod past;
pub mod rows;
pub mod state;
mod terminal;

pub use draw::{Colors, Look, draw};
pub use feed::{Feed, TableMeta};
pub use state::{App, Effect};
pub use terminal::{Options, run};
