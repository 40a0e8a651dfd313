// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The live view beside a daemon, on a terminal: what is carried is what the screen shows, and what is typed takes effect.

use std::fmt::Write as _;
use std::sync::Arc;

use topstat_live::daemon::Place;
use topstat_live::watch::ENDLESS_MS;
use topstat_live::{Case, Daemon, Scratch, case, limits, note, pace, role, truth};
use topstat_load::{Config, Dist, Load, Plan};

#[allow(dead_code)] // the tests of the command line use all of it
#[path = "../../../crates/topstat/tests/cli/emulated.rs"]
mod emulated;
use emulated::Terminal;

pub fn cases() -> Vec<Case> {
    vec![case!(the_screen_shows_what_was_carried, Root, Fuse; Daemon)]
}

const SAMPLE: &str = "tcp_v4";
const TABLE: &str = "tcp_v4/conns_pps";
/// The screen: as wide as the addresses of a row need.
const SIZE: (u16, u16) = (40, 140);

/// A daemon that loads no more than the sample's family.
fn daemon(scratch: &Scratch) -> Daemon {
    let mut text = String::new();
    for sample in topstat_kernel::samples().iter().filter(|sample| sample.name != SAMPLE) {
        writeln!(text, "[samples.{}]\nenabled = false", sample.name).expect("a String takes all");
    }
    let file = scratch.path().join("topstat.toml");
    std::fs::write(&file, text).expect("a configuration");
    Daemon::start_at(Arc::new(Place::new()), &["--config", file.to_str().expect("a path in UTF-8")])
}

fn the_screen_shows_what_was_carried() {
    const CONNECTIONS: usize = 50;
    let scratch = Scratch::new("viewed");
    let daemon = daemon(&scratch);
    let mut load = Load::open(Config { connections: CONNECTIONS, ..Config::default() }).unwrap();
    let mut view = role::command("topstat");
    view.args(["view", "0.2", "--mount"]).arg(&daemon.place.mount).arg("--pins").arg(&daemon.place.pins);
    let mut terminal = Terminal::start(view, SIZE);
    terminal.wait_for(TABLE);
    // The overview, and then one table after the other.
    terminal.press("\r");
    terminal.wait_for("  other ");
    for _ in 0..topstat_kernel::samples().len() {
        let title = terminal.text().lines().nth(1).unwrap_or_default().to_owned();
        if title.starts_with(TABLE) {
            break;
        }
        terminal.press("\t");
        terminal.wait_until("another table", |screen| !screen.contents().contains(&title));
    }
    terminal.wait_for(&format!("{TABLE}  total"));
    // What is typed is set.
    terminal.press(&format!("p{ENDLESS_MS}\r"));
    terminal.wait_for(&format!("{TABLE}/period is {ENDLESS_MS}"));
    assert_eq!(daemon.read(&format!("{TABLE}/period")).trim(), ENDLESS_MS.to_string());
    let before = truth::settled(&load);
    let max = pace::work(500, 50);
    let plan = Plan::from_dist(&Dist::Zipf { exponent: 0.8, max }, CONNECTIONS).unwrap();
    load.run(&plan, &limits()).unwrap();
    let truth = truth::difference(&before, &truth::settled(&load));
    let (key, counts) = truth.iter().max_by_key(|(key, counts)| (counts.packets(), **key)).expect("connections");
    // Of all rows the one of this socket, in exact numbers: packets in all, received and sent.
    terminal.press(&format!("x/sport:{} dport:{}\r", key.local.port(), key.remote.port()));
    terminal.wait_for("1 of the ");
    let numbers = [counts.packets(), counts.packets_rx, counts.packets_tx].map(|number| number.to_string());
    terminal.wait_until("the largest connection", |screen| {
        screen.contents().lines().any(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.get(1..4).is_some_and(|found| found == numbers) && line.contains(&key.local.port().to_string())
        })
    });
    terminal.press("q");
    assert_eq!(terminal.end(), Some(0));
    terminal.assert_given_back();
    note(format!("{TABLE}: {} packets of {} as carried", numbers[0], key.local));
}
