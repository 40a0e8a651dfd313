// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text that is safe for a terminal, and fits into it.

use std::borrow::Cow;
use std::fmt::Write;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The mark of a shortened text; one cell wide.
const ELLIPSIS: char = '…';

/// Whether a text consists of visible ASCII and blanks alone, which take a cell each and harm no terminal. Most texts do, and
/// this check does not decode characters.
pub fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Replaces the characters that must not reach a terminal or break a line or a tab-separated column: each byte of such a
/// character becomes `\xHH` (escape is `\x1b`, newline `\x0a`).
///
/// These are the control characters (C0, DEL, C1), line and paragraph separators, and characters that are invisible or
/// reorder the text around them. A backslash stays unchanged, because the names of systemd's cgroups contain many of them
/// (`getty\x2dpre`). A program that must distinguish a backslash from an escape reads JSON.
pub fn escape(text: &str) -> Cow<'_, str> {
    if is_plain(text) || !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unsafe(c) {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                write!(safe, "\\x{byte:02x}").expect("a String takes all");
            }
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// As [`escape`], but newlines stay.
pub fn escape_lines(text: &str) -> Cow<'_, str> {
    if text.split('\n').all(|line| matches!(escape(line), Cow::Borrowed(_))) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.split('\n').map(escape).collect::<Vec<_>>().join("\n"))
}

/// Whether a terminal could obey the character, or the character could mislead a reader.
pub(crate) fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{061c}' // Arabic letter mark
            | '\u{200b}'..='\u{200f}' // zero-width characters, directional marks
            | '\u{2028}'..='\u{202e}' // line and paragraph separators, directional embeddings and overrides
            | '\u{2060}'..='\u{206f}' // word joiner, directional isolates, deprecated formatting
            | '\u{feff}' // byte order mark
            | '\u{fff9}'..='\u{fffb}' // interlinear annotations
            | '\u{e0000}'..='\u{e007f}' // tags
        )
}

/// The number of terminal cells that an escaped text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// The part of a text that stays when it is shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The beginning: `postgre…`.
    Start,
    /// The end: `…e/nginx.service`.
    End,
}

/// Shortens an escaped text to at most `cells` terminal cells, with `…` in place of the removed part.
/// A text that fits stays unchanged; with zero cells the result is empty.
pub fn shrink(text: &str, cells: usize, keep: Keep) -> Cow<'_, str> {
    if text.width() <= cells {
        return Cow::Borrowed(text);
    }
    if cells == 0 {
        return Cow::Borrowed("");
    }
    let mut room = cells - 1;
    let mut fits = |c: &char| {
        let cells = c.width().unwrap_or(0);
        let fits = cells <= room;
        room = room.saturating_sub(cells);
        fits
    };
    Cow::Owned(match keep {
        Keep::Start => text.chars().take_while(|c| fits(c)).chain([ELLIPSIS]).collect(),
        Keep::End => {
            let tail = text.chars().rev().take_while(|c| fits(c)).map(char::len_utf8).sum::<usize>();
            format!("{ELLIPSIS}{}", &text[text.len() - tail..])
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        assert_eq!(escape("a\x1b[31mb\nc\td\x7f\0"), "a\\x1b[31mb\\x0ac\\x09d\\x7f\\x00");
        assert_eq!(escape("\u{9b}31m"), "\\xc2\\x9b31m");
        assert_eq!(escape("\u{202e}gpj.exe"), "\\xe2\\x80\\xaegpj.exe");
    }

    #[test]
    fn lines_stay_lines() {
        assert_eq!(escape_lines("a\n\x1b[31mb\r\n"), "a\n\\x1b[31mb\\x0d\n");
        assert!(matches!(escape_lines("a\nb"), Cow::Borrowed("a\nb")));
    }

    #[test]
    fn what_is_safe_stays() {
        for text in ["nginx: worker \"1\"", "getty\\x2dpre", "näïve 日本 🦀", ""] {
            assert!(matches!(escape(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn shrinking_counts_cells_and_says_where_it_cut() {
        assert_eq!(shrink("postgres", 8, Keep::Start), "postgres");
        assert_eq!(shrink("postgres", 6, Keep::Start), "postg…");
        assert_eq!(shrink("/system.slice/a.service", 10, Keep::End), "…a.service");
        assert_eq!(shrink("日本語", 5, Keep::Start), "日本…");
        assert_eq!(shrink("日本語", 4, Keep::End), "…語");
        assert_eq!(shrink("日本語", 1, Keep::End), "…");
        assert_eq!(shrink("日本語", 0, Keep::Start), "");
    }
}
