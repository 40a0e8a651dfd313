// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of the live view, compared with other programs that fill a terminal.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use topstat_load::{Config, Limits, Load, Plan};

use crate::refresh::{Output, Running, Terminal, cpu_ns, installed, measured};
use crate::stats::spread;
use crate::tree::Daemon;

#[derive(Args)]
pub struct Options {
    /// Rounds; each program has a turn in each round.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds per turn.
    #[arg(long, default_value_t = 6)]
    seconds: u32,
    /// Keys that are timed in a round.
    #[arg(long, default_value_t = 30)]
    keys: usize,
    /// The topstat to measure [default: the one beside this program]
    #[arg(long)]
    topstat: Option<PathBuf>,
}

/// Connections of the load: more than the 128 rows of a table.
const CONNECTIONS: usize = 200;
/// Transactions per second: all rows change between two readings.
const RATE: f64 = 5000.0;
/// Longer than all rounds: the load ends after the last one.
const CARRIED_FOR: Duration = Duration::from_secs(24 * 3600);
const TABLE: &str = "tcp_v4/conns_pps";
/// The text after the number of rows on the screen of a table.
const ROWS: &str = " rows proven";
/// Longer than any step here takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time between two keys: the view has drawn the effect of a key by then.
const KEYS_EVERY: Duration = Duration::from_millis(200);

/// Other programs that show a host's activity on a terminal, each with a refresh per second.
const OTHERS: [(&str, &[&str]); 3] =
    [("htop", &["-d", "10"]), ("btm", &["--rate", "1000"]), ("below", &["live", "--interval-sec", "1"])];

pub fn run(options: &Options) -> Result<()> {
    let topstat = match &options.topstat {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("topstat"),
    };
    ensure!(topstat.exists(), "{} is missing: build it first (make build)", topstat.display());
    let daemon = Daemon::start()?;
    let program = Program { topstat, daemon: &daemon };
    let mut load = Load::open(Config { connections: CONNECTIONS, ..Config::default() })?;
    let stop = Arc::new(AtomicBool::new(false));
    let limits = Limits { rate: Some(RATE), time: CARRIED_FOR, stop: Some(Arc::clone(&stop)), ..Limits::default() };
    std::thread::scope(|scope| {
        let running = scope.spawn(|| load.run(&Plan::endless(CONNECTIONS), &limits));
        let measured = program.all(options);
        stop.store(true, Ordering::Relaxed);
        let carried = running.join().expect("the load has panicked");
        measured.and(carried.map(drop).map_err(Into::into))
    })
}

/// The program, and the daemon beside it.
struct Program<'a> {
    topstat: PathBuf,
    daemon: &'a Daemon,
}

impl Program<'_> {
    fn all(&self, options: &Options) -> Result<()> {
        println!(
            "## view: the live view on 120×40, {CONNECTIONS} connections that carry {RATE} transactions a second\n"
        );
        println!("({} rounds, interleaved; median, least and most)\n", options.rounds);
        println!("| CPU milliseconds of a refresh | |\n|---|---:|");
        let others: Vec<_> = OTHERS.iter().filter(|(name, _)| installed(name)).collect();
        let mut rounds = vec![Vec::new(); 2 + others.len()];
        let mut frozen = Vec::new();
        for _ in 0..options.rounds {
            rounds[0].push(measured(self.view("1", Some(TABLE)), "topstat", Output::Terminal, options.seconds)?);
            rounds[1].push(measured(self.view("1", None), "topstat", Output::Terminal, options.seconds)?);
            for ((name, arguments), rounds) in others.iter().zip(&mut rounds[2..]) {
                let mut command = Command::new(name);
                command.args(*arguments);
                rounds.push(measured(command, name, Output::Terminal, options.seconds)?);
            }
            frozen.push(self.frozen(options.seconds)?);
        }
        let names = ["topstat view, a table of 128 rows", "topstat view, first screen"].into_iter();
        for (name, rounds) in names.chain(others.iter().map(|(name, _)| *name)).zip(&rounds) {
            println!("| {name} | {} |", quoted(rounds, 2));
        }
        println!("| topstat view, frozen: a second | {} |", quoted(&frozen, 2));
        for (name, _) in OTHERS.iter().filter(|(name, _)| !installed(name)) {
            println!("| {name} | not installed |");
        }
        println!("\n| milliseconds | |\n|---|---:|");
        let (mut keys, mut with, mut alone) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            keys.extend(self.keys(options.keys)?);
            with.push(self.first_rows(self.view("1", Some(TABLE)))?);
            alone.push(self.first_rows(alone_view(&self.topstat))?);
        }
        println!("| from a key to the screen, all CPUs busy | {} |", quoted(&keys, 1));
        println!("| from the start to the first rows, beside a daemon | {} |", quoted(&with, 0));
        println!("| from the start to the first rows, alone | {} |", quoted(&alone, 0));
        Ok(())
    }

    fn view(&self, interval: &str, table: Option<&str>) -> Command {
        command(&self.topstat, interval, table, &self.daemon.mount, &self.daemon.pins)
    }

    /// CPU milliseconds per second while the view draws nothing.
    fn frozen(&self, seconds: u32) -> Result<f64> {
        let mut screen = Screen::start(self.view("1", Some(TABLE)))?;
        screen.wait_for_rows()?;
        screen.press(" ")?;
        screen.wait_for("FROZEN")?;
        let before = cpu_ns(screen.running.0.id());
        std::thread::sleep(Duration::from_secs(seconds.into()));
        Ok((cpu_ns(screen.running.0.id()) - before) as f64 / f64::from(seconds) / 1e6)
    }

    /// Milliseconds from a key to the first byte that it draws, while every CPU is busy with other work.
    fn keys(&self, count: usize) -> Result<Vec<f64>> {
        // The view draws nothing else.
        let mut screen = Screen::start(self.view("3600", Some(TABLE)))?;
        screen.wait_for_rows()?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let mut times = Vec::new();
            let timed = (0..count).try_for_each(|_| {
                let begun = Instant::now();
                screen.press("r")?;
                screen.read(PATIENCE)?;
                times.push(begun.elapsed().as_secs_f64() * 1e3);
                // The rest of the frame.
                let rest = Instant::now();
                while let Some(left) = KEYS_EVERY.checked_sub(rest.elapsed()) {
                    screen.take(left)?;
                }
                Ok(())
            });
            stop.store(true, Ordering::Relaxed);
            timed.map(|()| times)
        })
    }

    fn first_rows(&self, command: Command) -> Result<f64> {
        let begun = Instant::now();
        let mut screen = Screen::start(command)?;
        screen.wait_for_rows()?;
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    }
}

/// The view that loads its table, where no daemon has its tree at the default place.
fn alone_view(topstat: &Path) -> Command {
    let mut command = Command::new(topstat);
    command.args(["view", "1", "--pins", "/nonexistent", "--table", TABLE]);
    command
}

fn command(topstat: &Path, interval: &str, table: Option<&str>, mount: &Path, pins: &Path) -> Command {
    let mut command = Command::new(topstat);
    command.args(["view", interval, "--mount"]).arg(mount).arg("--pins").arg(pins);
    command.args(table.iter().flat_map(|table| ["--table", table]));
    command
}

fn quoted(values: &[f64], digits: usize) -> String {
    let s = spread(values);
    format!("{:.digits$} ({:.digits$}–{:.digits$})", s.median, s.low, s.high)
}

/// A program on a terminal, and the reader of the terminal.
struct Screen {
    running: Running,
    terminal: Terminal,
    parser: vt100::Parser,
}

impl Screen {
    fn start(mut command: Command) -> Result<Self> {
        let terminal = Terminal::new()?;
        command.env("TERM", "xterm").env("LC_ALL", "C").stdin(terminal.end()?).stdout(terminal.end()?);
        let running = Running(command.stderr(Stdio::null()).spawn()?);
        let cells = |count| std::num::NonZero::new(count).expect("a screen has cells");
        Ok(Self { running, terminal, parser: vt100::Parser::new(cells(40), cells(120), 0) })
    }

    fn press(&mut self, keys: &str) -> Result<()> {
        Ok(self.terminal.controller.write_all(keys.as_bytes())?)
    }

    /// Reads the output that comes within that time; returns whether any came.
    fn take(&mut self, within: Duration) -> Result<bool> {
        let within = Timespec { tv_sec: within.as_secs().cast_signed(), tv_nsec: within.subsec_nanos().into() };
        if poll(&mut [PollFd::new(&self.terminal.controller, PollFlags::IN)], Some(&within))? == 0 {
            return Ok(false);
        }
        let mut buffer = [0; 65536];
        let read = self.terminal.controller.read(&mut buffer)?;
        self.parser.process(&buffer[..read]);
        Ok(read > 0)
    }

    fn read(&mut self, patience: Duration) -> Result<()> {
        ensure!(self.take(patience)?, "nothing is drawn:\n{}", self.parser.screen().contents());
        Ok(())
    }

    fn wait_for(&mut self, text: &str) -> Result<()> {
        self.wait_until(text, |contents| contents.contains(text))
    }

    /// Waits until the table has rows: a screen that explains why it is empty does not count.
    fn wait_for_rows(&mut self) -> Result<()> {
        self.wait_until("rows", has_rows)
    }

    fn wait_until(&mut self, what: &str, enough: impl Fn(&str) -> bool) -> Result<()> {
        let begun = Instant::now();
        loop {
            let contents = self.parser.screen().contents();
            if enough(&contents) {
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE, "no {what:?} in\n{contents}");
            self.take(Duration::from_millis(500))?;
        }
    }
}

/// Whether the screen reports a number of proven or unproven rows above 0.
fn has_rows(contents: &str) -> bool {
    let rows = contents.split_once(ROWS).and_then(|(before, _)| before.rsplit(' ').next()?.parse::<u32>().ok());
    rows.is_some_and(|rows| rows > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_there_once_there_is_one() {
        assert!(has_rows("tcp_v4/conns_pps\nall 128 rows proven · nothing lost"));
        assert!(has_rows("counts for 101ms only · the first 3 of 5 rows proven - nothing lost"));
        assert!(!has_rows("all 0 rows proven · nothing lost"));
        assert!(!has_rows("waiting for the first reading"));
    }
}
