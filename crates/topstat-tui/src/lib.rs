// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The live view: what `topstat` shows on a terminal.
//!
//! | module | content |
//! |---|---|
//! | [`feed`] | the source of readings and settings: a trait and its messages |
//! | [`state`] | the state of the view, and the effect of keys on it; independent of a terminal |
//! | [`now`] | the content of the first screen, made of the readings of several tables |
//! | [`host`] | the CPUs, memory, network and disks of the host |
//! | [`past`] | the last ten minutes of each table |
//! | [`rows`] | the rows of a reading that are shown, and their order |
//! | [`keys`] | the key map, from which the help is made |
//! | [`signal`] | processes, and the signals that are sent to them |
//! | `details` | what the files of a process and of a control group tell |
//! | `draw` | draws the state as a frame |
//! | `terminal` | the terminal: taken, read, and always given back |
//!
//! One thread draws and takes keys; the thread that calls [`run`] reads tables. So a key is answered while a reading takes its
//! time.

#![warn(missing_docs)]

mod details;
mod draw;
pub mod feed;
pub mod host;
pub mod keys;
pub mod now;
pub mod past;
pub mod rows;
pub mod signal;
pub mod state;
mod terminal;

pub use draw::{Colors, Look, draw, text_of};
pub use feed::{Feed, TableMeta};
pub use state::{App, Effect, Names, OfPaths, host_text};
pub use terminal::{Options, run};
