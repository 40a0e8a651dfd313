// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat`: what is at the top right now.

use std::process::ExitCode;

use topstat::{Kernel, SystemConsole};

fn main() -> ExitCode {
    topstat::run(std::env::args_os(), &mut Kernel, &mut SystemConsole::default()).into()
}
