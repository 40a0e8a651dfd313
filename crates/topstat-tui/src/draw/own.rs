// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of topstat on this host, and whether the "now" screen is complete.

use ratatui::layout::Rect;

use super::pen::{BOLD, DIM, Ink, PLAIN, Pen, WRONG, fit};
use crate::feed::Cost;
use crate::state::App;

pub fn draw(app: &App, pen: &mut Pen<'_>, area: Rect) {
    let share = |share: f64| format!("{:.2}% of a CPU", share * 100.0);
    let mut lines: Vec<(String, Ink)> = vec![("What topstat costs".to_owned(), BOLD)];
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
    let doubts = app.doubts();
    if doubts.is_empty() {
        lines.push(("  All rows of the first screen are proven, and nothing was lost.".to_owned(), PLAIN));
    }
    lines.extend(doubts.into_iter().map(|doubt| (format!("  {doubt}"), WRONG)));
    for data in &app.data {
        if let Some(wrong) = &data.wrong {
            lines.push((format!("  {} can't be shown: {wrong}", data.meta.path()), DIM));
        }
    }
    for ((text, ink), y) in lines.iter().zip(area.y..area.bottom()) {
        pen.put(area.x, y, area.width, &fit(text, area.width.into(), false), *ink);
    }
}
