// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The colours and characters of the user's terminal.

use topstat_tui::{Colors, Look};

/// What the terminal can show; without colours, if none are wanted.
pub fn of_terminal(colors: bool) -> Look {
    Look { colors: terminal_colors(colors), utf8: is_utf8() }
}

/// The colours that the terminal supports, where colours are wanted. A terminal with 24-bit colours says so in `COLORTERM`.
fn terminal_colors(wanted: bool) -> Colors {
    let all = || std::env::var("COLORTERM").is_ok_and(|value| value == "truecolor" || value == "24bit");
    match wanted {
        false => Colors::None,
        true if all() => Colors::True,
        true => Colors::Sixteen,
    }
}

/// Whether the terminal takes characters beyond ASCII. As locale(7) says, the first variable that is set decides.
fn is_utf8() -> bool {
    let set = |name: &&str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set).unwrap_or_default().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
