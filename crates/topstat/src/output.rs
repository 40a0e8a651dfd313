// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `[INTERVAL [COUNT]]`, `--output` and `--color` come to, for a command that shows something again and again.

use std::time::Duration;

use crate::args::{ColorWhen, TopFormat};
use crate::console::Facts;
use crate::style::colors;

/// The interval where none is given.
const INTERVAL: Duration = Duration::from_secs(1);

/// How often something is shown, and in which form.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// The time from one to the next.
    pub interval: Duration,
    /// How many; without end if none.
    pub count: Option<u64>,
    /// Text, JSON or CSV.
    pub format: TopFormat,
    /// Text is for a terminal: its width, and no more rows than fit unless asked for.
    pub terminal: bool,
    /// Each takes the place of the last.
    pub in_place: bool,
    /// Bold and dim.
    pub color: bool,
}

impl Output {
    /// By what was given, for this output.
    pub fn new(
        (interval, count): (Option<Duration>, Option<u64>),
        format: TopFormat,
        color: ColorWhen,
        facts: Facts,
    ) -> Self {
        // Programs that read JSON or CSV find the same on a terminal as in a pipe.
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

    /// A terminal goes on, and a pipe gets one: asserts it of a command, which makes this of these arguments.
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
