// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the verifier of the running kernel has to do for topstat's programs: most of the time until counting begins.

use anyhow::{Result, ensure};
use topstat_samples::verify;

/// Prints a line for each program. Fails if there is none, or one that the kernel does not take.
pub fn run() -> Result<()> {
    let verified = verify()?;
    ensure!(!verified.is_empty(), "no program was loaded");
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    println!("## verified: instructions processed by the verifier of Linux {release} (at most 1000000)\n");
    println!("| object | program | instructions |\n|---|---|---:|");
    for program in &verified {
        let instructions = program.instructions.map_or("not told".to_owned(), |number| number.to_string());
        println!("| {} | {} | {instructions} |", program.object, program.program);
    }
    let sum: u64 = verified.iter().filter_map(|program| program.instructions).sum();
    println!("| | all | {sum} |");
    Ok(())
}
