// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat`: what is at the top right now.

use std::process::ExitCode;

use topstat::{Kernel, SystemConsole};

fn main() -> ExitCode {
    // Registers the families.
    topstat_families::catalogue();
    match topstat::answer_shell() {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("topstat: {why}");
            return ExitCode::FAILURE;
        }
    }
    topstat::run(std::env::args_os(), &mut Kernel, &mut SystemConsole::default()).into()
}
