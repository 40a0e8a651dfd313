// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line: its output, its end, and its handling of terminals, pipes and signals. Made-up numbers replace the kernel;
//! tests that need a real kernel are elsewhere.

mod completion;
mod console;
mod doctor;
mod documents;
mod emulated;
mod events;
mod fake;
mod files;
mod fleet;
mod golden;
mod live;
mod netstack;
mod panicking;
mod pinned;
mod program;
mod record;
mod rooms;
mod schema;
mod served;
mod service;
mod snmp;
mod tasks;
mod terminal;
mod top;
