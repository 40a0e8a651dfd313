// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat netstack classify`: prints the category of each function, and the rule that gives it.

use std::fmt::Write as _;

use topstat_families::netstack::Classifier;
use topstat_model::typeset::escape;

use crate::console::Console;
use crate::error::{Error, Exit};

/// Prints a line for each of these functions; without functions, for each line of the standard input.
pub fn run(symbols: &[String], classifier: &Classifier, console: &mut dyn Console) -> Result<Exit, Error> {
    if classifier.hidden() {
        console.note(
            "topstat: /proc/kallsyms hides where functions are (kernel.kptr_restrict): only rules of names are asked",
        );
    }
    if !symbols.is_empty() {
        let lines: String = symbols.iter().map(|symbol| line(symbol, classifier)).collect();
        console.write(lines.as_bytes()).map_err(Error::Output)?;
        return Ok(Exit::Done);
    }
    let failed = |source| Error::System { what: "read the standard input", source };
    let input = std::io::read_to_string(std::io::stdin().lock()).map_err(failed)?;
    let lines: String =
        input.lines().filter(|word| !word.trim().is_empty()).map(|symbol| line(symbol, classifier)).collect();
    console.write(lines.as_bytes()).map_err(Error::Output)?;
    Ok(Exit::Done)
}

/// The symbol, its category and its rule, for a function written as `veth_xmit`, `veth_xmit+0x10` or `veth_xmit [veth]`.
fn line(written: &str, classifier: &Classifier) -> String {
    let mut words = written.split_whitespace();
    let symbol = words.next().unwrap_or_default();
    let module = words.next().and_then(|word| word.strip_prefix('[')?.strip_suffix(']'));
    let name = symbol.split('+').next().unwrap_or_default();
    let mut line = escape(symbol).into_owned();
    let _ = match classifier.symbol(name, module) {
        Some((verdict, why)) => writeln!(line, "\t{}\t{}", verdict.name(), why.text()),
        None => writeln!(line, "\t-\t-"),
    };
    line
}
