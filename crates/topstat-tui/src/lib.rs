// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The live view: what `topstat` shows on a terminal.
//!
//! | module | what it knows |
//! |---|---|
//! | [`feed`] | where readings come from, and what can be set: a trait, and messages |
//! | [`state`] | all that is shown, and what keys do to it; knows no terminal |
//! | [`past`] | the last ten minutes of each table |
//! | [`rows`] | which rows of a reading are shown, and in which order |
//! | [`keys`] | the key map, which the help is made of |
//! | `draw` | state as a frame |
//! | `terminal` | the terminal: taken, given back whatever happens, and read |
//!
//! A thread draws and takes keys; the thread that calls [`run`] reads. So a key is answered while a reading takes its
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
