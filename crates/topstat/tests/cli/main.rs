// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line: what it prints, how it ends, and how it treats terminals, pipes and signals. The kernel is
//! replaced by made-up numbers; what needs the real one is tested elsewhere.

mod console;
mod documents;
mod emulated;
mod events;
mod fake;
mod files;
mod golden;
mod live;
mod netstack;
mod panicking;
mod pinned;
mod program;
mod record;
mod rooms;
mod service;
mod snmp;
mod tasks;
mod terminal;
mod top;
