// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Colours, and when to use them.

use crate::args::ColorWhen;
use crate::console::Facts;

pub const GREEN: &str = "\x1b[32m";
pub const YELLOW: &str = "\x1b[33m";
pub const RED: &str = "\x1b[31m";
pub const BOLD: &str = "\x1b[1m";
pub const RESET: &str = "\x1b[0m";

/// Whether to use colours.
pub fn colors(when: ColorWhen, facts: Facts) -> bool {
    match when {
        ColorWhen::Always => true,
        ColorWhen::Never => false,
        ColorWhen::Auto => facts.terminal && !facts.dumb && !facts.no_color,
    }
}

/// The text in a style, or as it is without colours.
pub fn paint(text: &str, style: &str, colors: bool) -> String {
    if colors { format!("{style}{text}{RESET}") } else { text.to_owned() }
}
