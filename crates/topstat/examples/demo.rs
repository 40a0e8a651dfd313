// SPDX-License-Identifier: Apache-2.0 OR MIT
//! topstat on made-up numbers: for a look at its outputs without privileges, and for the tests of how the program
//! treats its terminal and its signals.
//!
//!     cargo run -p topstat --example demo -- top tcp/conns_pps

use std::process::ExitCode;

use topstat::SystemConsole;

// Tests use more of it.
#[allow(dead_code)]
#[path = "../tests/cli/fake.rs"]
mod fake;

fn main() -> ExitCode {
    topstat::run(std::env::args_os(), &mut fake::Fake::default(), &mut SystemConsole::default()).into()
}
