// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Draws the pictures of README and docs: `pictures FOLDER PROGRAM`, or `make pictures`.
//!
//! The live view runs on terminals of three sizes, beside a daemon and under a load; the program writes the contents of each
//! terminal as SVG, on a dark and on a light ground. Nothing is made up. The first screen shows this
//! host, with all that runs on it: look at the pictures before you commit them.

mod demo;
mod svg;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use demo::Demo;
use topstat_live::daemon::Place;
use topstat_live::{Daemon, role};

#[allow(dead_code)] // the tests of the command line use all of it
#[path = "../../../../crates/topstat/tests/cli/emulated.rs"]
mod emulated;
use emulated::Terminal;

/// The terminals' sizes: rows and columns.
const SIZES: [(u16, u16); 3] = [(24, 80), (40, 120), (60, 200)];
/// The time until a chart shows a curve.
const WATCHED: Duration = Duration::from_secs(40);
/// The time until a screen has drawn what a key has asked for.
const SOON: Duration = Duration::from_secs(2);
/// The time between two readings, in seconds.
const INTERVAL_S: &str = "0.5";

fn main() -> ExitCode {
    if let Some((role, arguments)) = role::own() {
        if role == "topstat" {
            role::name("topstat");
            let line = std::iter::once("topstat").chain(arguments.iter().map(String::as_str)).map(Into::into);
            return topstat::run(line, &mut topstat::Kernel, &mut topstat::SystemConsole::default()).into();
        }
        return demo::play(&role, &arguments).unwrap_or_else(|| panic!("there is no role {role}"));
    }
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [folder, program] = &arguments[..] else {
        eprintln!("pictures: name the folder in which to draw, and the topstat whose view to draw");
        return ExitCode::from(2);
    };
    draw_all(Path::new(folder), Path::new(program));
    ExitCode::SUCCESS
}

/// The view on terminals of all sizes.
struct Screens<'a> {
    folder: &'a Path,
    terminals: Vec<Terminal>,
}

impl<'a> Screens<'a> {
    fn start(folder: &'a Path, program: &Path, daemon: &Daemon) -> Self {
        let begin = |size| {
            let mut view = Command::new(program);
            view.args(["view", INTERVAL_S, "--mount"]).arg(&daemon.place.mount).arg("--pins").arg(&daemon.place.pins);
            view.env("COLORTERM", "truecolor");
            Terminal::start(view, size)
        };
        Self { folder, terminals: SIZES.map(begin).into() }
    }

    /// Reads the terminals for that long. A terminal that is not read shows an old frame, and its program waits.
    fn watch(&mut self, time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time {
            for terminal in &mut self.terminals {
                let turn = Instant::now();
                terminal.wait_until("the turn", |_| turn.elapsed() >= Duration::from_millis(50));
            }
        }
    }

    fn press(&mut self, keys: &str) {
        self.terminals.iter_mut().for_each(|terminal| terminal.press(keys));
        self.watch(SOON);
    }

    fn wait_for(&mut self, text: &str) {
        self.terminals.iter_mut().for_each(|terminal| terminal.wait_for(text));
    }

    /// Draws what the terminals show.
    fn save(&mut self, name: &str) {
        std::fs::create_dir_all(self.folder).expect("a folder for pictures");
        for ((rows, columns), terminal) in SIZES.into_iter().zip(&self.terminals) {
            for ground in &svg::GROUNDS {
                let path = self.folder.join(format!("{name}-{columns}x{rows}-{}.svg", ground.name));
                std::fs::write(&path, svg::draw(terminal.screen(), ground)).expect("a picture");
            }
        }
        println!("{name}");
    }

    fn end(mut self) {
        for terminal in &mut self.terminals {
            terminal.press("q");
            assert_eq!(terminal.end(), Some(0), "the view ends by q");
        }
    }
}

fn draw_all(folder: &Path, program: &Path) {
    let _accounting = demo::DelayAccounting::on();
    let demo = Demo::start();
    demo.beside(|| draw_beside(&demo, folder, program));
}

/// The daemon and the views are in a group of the load: the pictures show its path.
fn draw_beside(demo: &Demo, folder: &Path, program: &Path) {
    let daemon = Daemon::start_at(Arc::new(Place::new()), &[]);
    let mut screens = Screens::start(folder, program, &daemon);
    screens.wait_for("ended in the last");
    screens.watch(WATCHED);
    screens.save("first");
    screens.press("j-10s\r");
    screens.save("past");
    screens.press("l");
    // Hides other processes of this host.
    screens.press(&format!("/cgroup:{}\r", demo.path()));
    screens.press("1");
    screens.watch(WATCHED);
    screens.save("network");
    screens.press("0");
    screens.watch(WATCHED / 4);
    screens.save("overview");
    screens.press(":tcp/conns_bps\r");
    // A spike in the middle of the chart.
    screens.watch(WATCHED / 2);
    let spike = demo.spike();
    screens.watch(WATCHED / 4);
    drop(spike);
    screens.watch(WATCHED / 2);
    screens.save("table");
    screens.press("i");
    screens.save("meaning");
    screens.press("\x1b");
    screens.press("\r");
    screens.watch(WATCHED / 4);
    screens.save("object");
    screens.press("\x1b");
    screens.press("S");
    screens.save("settings");
    screens.press("\x1b");
    screens.press("?");
    screens.save("help");
    screens.press("\x1b");
    screens.press("7");
    screens.watch(SOON);
    screens.save("own");
    screens.end();
}
