// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The result of `[INTERVAL [COUNT]]`, `--output` and `--color`, for a command that shows readings again and again.

use std::time::Duration;

use crate::args::{ColorWhen, TopFormat};
use crate::console::Facts;
use crate::style::colors;

/// The default interval.
const INTERVAL: Duration = Duration::from_secs(1);

/// How often readings are shown, and in which form.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// The time from one reading to the next.
    pub interval: Duration,
    /// The number of readings; `None` is without end.
    pub count: Option<u64>,
    /// Text, JSON or CSV.
    pub format: TopFormat,
    /// The text is for a terminal: it has the terminal's width, and no more rows than fit, unless the user asks for more.
    pub terminal: bool,
    /// Each reading replaces the last.
    pub in_place: bool,
    /// The text uses bold and dim.
    pub color: bool,
}

impl Output {
    /// Makes this from the arguments and the properties of the output.
    pub fn new(
        (interval, count): (Option<Duration>, Option<u64>),
        format: TopFormat,
        color: ColorWhen,
        facts: Facts,
    ) -> Self {
        // JSON and CSV are the same on a terminal and in a pipe.
        let terminal = facts.terminal && format == TopFormat::Text;
        let count = match (interval, count) {
            (_, Some(count)) => Some(count),
            (None, None) if !terminal => Some(1),
            _ => None,
        };
        Self {
            interval: interval.unwrap_or(INTERVAL),
            count,
            format,
            terminal,
            in_place: terminal && !facts.dumb && count != Some(1),
            color: colors(color, facts),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub const TERMINAL: Facts = Facts { terminal: true, notes: true, dumb: false, no_color: false };
    pub const PIPE: Facts = Facts { terminal: false, ..TERMINAL };
    pub const DUMB: Facts = Facts { dumb: true, ..TERMINAL };

    /// Asserts that a command goes on for a terminal, and shows one reading in a pipe. `output` gives the command's `Output` for
    /// a line of arguments.
    pub fn goes_on_for_a_terminal(output: impl Fn(&str, Facts) -> Output) {
        for (line, facts, count, in_place) in [
            ("", TERMINAL, None, true),
            ("5", TERMINAL, None, true),
            ("5 2", TERMINAL, Some(2), true),
            ("5 1", TERMINAL, Some(1), false),
            ("", DUMB, None, false),
            ("", PIPE, Some(1), false),
            ("5", PIPE, None, false),
            ("5 2", PIPE, Some(2), false),
            ("-o json", TERMINAL, Some(1), false),
            ("-o csv 5", TERMINAL, None, false),
        ] {
            let output = output(line, facts);
            assert_eq!((output.count, output.in_place), (count, in_place), "{line}");
        }
    }
}
