// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An app as its tests see it: moments of its readings, frames as text, and keys.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use topstat_tui::state::Effect;
use topstat_tui::{App, Colors, Look, draw};

pub const PLAIN: Look = Look { colors: Colors::None, utf8: true };

pub fn at(second: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_248_000 + second)
}

/// The text of the frame. No line ends with a space.
pub fn frame(app: &mut App, (width, height): (u16, u16), look: Look) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(app, frame, look)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect::<Vec<_>>().join("\n")
}

/// Presses these keys. Returns the effect of the last one.
pub fn press(app: &mut App, keys: &str) -> Option<Effect> {
    let mut last = None;
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\u{1b}' => KeyCode::Esc,
            '↓' => KeyCode::Down,
            '↑' => KeyCode::Up,
            c => KeyCode::Char(c),
        };
        last = app.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
    last
}
