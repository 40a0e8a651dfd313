// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of topstat on this host, and whether the "now" screen is complete.

use ratatui::layout::Rect;

use super::pen::{BOLD, DIM, Ink, PLAIN, Pen, WRONG, wrapped};
use super::scrolled;
use crate::feed::Cost;
use crate::now::Trust;
use crate::state::App;

pub fn draw(app: &mut App, pen: &mut Pen<'_>, area: Rect, trust: &Trust) {
    let share = |share: f64| format!("{:.2}% of a CPU", share * 100.0);
    let mut lines: Vec<(String, Ink)> = vec![("What topstat costs now".to_owned(), BOLD)];
    lines.push((format!("  this view        {}", app.host.own.map_or("not measured yet".to_owned(), share)), PLAIN));
    match app.cost {
        Some(Cost { daemon, programs }) => {
            let daemon = daemon.map_or("not measured yet".to_owned(), share);
            lines.push((format!("  the daemon       {daemon}"), PLAIN));
            let programs =
                programs.map_or("not measured yet".to_owned(), |of| format!("{:.2}% of each CPU", of * 100.0));
            lines.push((format!("  in the kernel    {programs}"), PLAIN));
        }
        None => lines.push((
            "  in the kernel    not measured: no daemon runs, and tables are loaded for this view alone".to_owned(),
            PLAIN,
        )),
    }
    lines.push((String::new(), PLAIN));
    lines.push(("Whether the figures are complete".to_owned(), BOLD));
    let width = usize::from(area.width).saturating_sub(2);
    let mut say = |text: &str, ink| {
        lines.extend(wrapped(text, width).into_iter().map(|line| (format!("  {line}"), ink)));
    };
    match (trust.doubts.is_empty(), trust.settled) {
        (true, true) => say("All rows of the first screen are proven, and nothing was lost.", PLAIN),
        (_, false) => say("Not all tables of the first screen have been read yet.", PLAIN),
        (false, true) => {}
    }
    trust.doubts.iter().for_each(|doubt| say(doubt, WRONG));
    for data in &app.data {
        if let Some(wrong) = &data.wrong {
            say(&format!("{} can't be shown: {wrong}", data.meta.path()), DIM);
        }
    }
    scrolled(app, pen, area, &lines, area.width);
}
