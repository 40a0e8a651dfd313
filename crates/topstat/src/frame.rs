// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A picture that replaces the last one, as bytes for a terminal.
//!
//! New lines overwrite the old ones, and only the rest of an old line is cleared, so that nothing flickers. The alternate screen
//! is not used: the last picture stays when the program ends.

/// Hides the cursor.
const HIDE: &[u8] = b"\x1b[?25l";
/// Undoes all changes of a picture, even of one that was cut off: style, wrapping, cursor.
pub const LEAVE: &[u8] = b"\x1b[0m\x1b[?7h\x1b[?25h";
const HOME: &[u8] = b"\x1b[H";
const CLEAR_LINE: &[u8] = b"\x1b[K";
const CLEAR_BELOW: &[u8] = b"\x1b[J";
/// The terminal cuts off lines that are too wide. The program never shortens addresses, and a line that takes two lines would
/// move all lines below it.
const NO_WRAP: &[u8] = b"\x1b[?7l";
const WRAP: &[u8] = b"\x1b[?7h";

/// The bytes that show the content at the top of a terminal with `lines` lines, whatever it showed before. The last line is for
/// the cursor. Content that does not fit is cut off.
///
/// The first picture lets the earlier content of the terminal scroll away, so that the user can look at it later.
pub fn frame(content: &[u8], lines: usize, first: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(content.len() + 64);
    if first {
        bytes.extend(HIDE);
        bytes.extend(vec![b'\n'; lines]);
    }
    bytes.extend(HOME);
    bytes.extend(NO_WRAP);
    let fitting = content.split_inclusive(|byte| *byte == b'\n').take(lines.saturating_sub(1).max(1));
    for line in fitting {
        bytes.extend(line.strip_suffix(b"\n").unwrap_or(line));
        bytes.extend(CLEAR_LINE);
        bytes.push(b'\n');
    }
    bytes.extend(CLEAR_BELOW);
    bytes.extend(WRAP);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(content: &str, lines: usize, first: bool) -> String {
        String::from_utf8(frame(content.as_bytes(), lines, first)).unwrap()
    }

    #[test]
    fn a_picture_is_written_over_the_last_one() {
        assert_eq!(shown("a\nb\n", 24, false), "\x1b[H\x1b[?7la\x1b[K\nb\x1b[K\n\x1b[J\x1b[?7h");
    }

    #[test]
    fn the_first_one_hides_the_cursor_and_lets_the_rest_scroll_away() {
        assert_eq!(shown("a\n", 3, true), "\x1b[?25l\n\n\n\x1b[H\x1b[?7la\x1b[K\n\x1b[J\x1b[?7h");
    }

    #[test]
    fn what_does_not_fit_is_cut_off() {
        assert_eq!(shown("a\nb\nc\n", 3, false).matches("\x1b[K").count(), 2);
        assert_eq!(shown("a\nb\nc\n", 1, false).matches("\x1b[K").count(), 1);
    }
}
