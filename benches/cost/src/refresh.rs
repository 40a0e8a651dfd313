// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of one refresh of the tasks while nearly all of them sleep: topstat compared with the usual programs.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::stats::spread;

#[derive(Args)]
pub struct Options {
    /// Numbers of sleeping processes.
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 20_000])]
    sleepers: Vec<u32>,
    /// Rounds; each program has a turn in each round.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds per turn; each program refreshes once a second, and is measured by its actual refreshes.
    #[arg(long, default_value_t = 6)]
    seconds: u32,
    /// The topstat to measure [default: the one beside this program]
    #[arg(long)]
    topstat: Option<PathBuf>,
}

#[derive(Args)]
pub struct Sleep {
    count: u32,
}

/// Refreshes of a program before its measurement: the first one covers all tasks so far, and no interval.
const WARM_UP: usize = 2;
/// The maximum wait until a program has made the refreshes of a measurement.
const PATIENCE: Duration = Duration::from_secs(120);
/// A program draws a refresh on a terminal without a break; a byte after this pause begins a new refresh.
const PAUSE: Duration = Duration::from_millis(150);

/// A program that shows tasks, with a refresh per second.
struct Tool {
    name: &'static str,
    arguments: &'static [&'static str],
    output: Output,
}

/// The way to recognise the beginning of a refresh.
#[derive(Clone, Copy)]
pub enum Output {
    /// A line with this beginning.
    Begins(&'static str),
    /// A line that contains this text.
    Contains(&'static str),
    /// The program draws on a terminal, without such a line: see [`PAUSE`].
    Terminal,
}

/// topstat is first: the others are compared with it.
const TOOLS: [Tool; 5] = [
    Tool { name: "topstat", arguments: &["tasks", "1"], output: Output::Begins("tasks  ") },
    Tool { name: "top", arguments: &["-b", "-d", "1"], output: Output::Begins("top - ") },
    Tool { name: "pidstat", arguments: &["1"], output: Output::Contains("  Command") },
    Tool { name: "htop", arguments: &["-d", "10"], output: Output::Terminal },
    Tool { name: "atop", arguments: &["1"], output: Output::Begins("ATOP - ") },
];

pub fn run(options: &Options) -> Result<()> {
    let topstat = match &options.topstat {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("topstat"),
    };
    ensure!(topstat.exists(), "{} is missing: build it first (make build)", topstat.display());
    let (tools, missing): (Vec<&Tool>, Vec<&Tool>) =
        TOOLS.iter().partition(|tool| tool.name == "topstat" || installed(tool.name));
    println!("## refresh: CPU time of one refresh, in milliseconds, by sleeping processes");
    println!(
        "({} rounds of {} s each, interleaved; median, least and most. By the refreshes that were made: who takes longer \
         than a second for one makes fewer)\n",
        options.rounds, options.seconds
    );
    for tool in &missing {
        println!("{} is not installed: left out\n", tool.name);
    }
    print!("| sleepers |");
    for tool in &tools {
        print!(" {} |", tool.name);
    }
    println!(" top / topstat |\n|---:|{}---:|", "---:|".repeat(tools.len()));
    for &count in &options.sleepers {
        let _sleepers = Sleepers::new(count)?;
        let mut rounds = vec![Vec::new(); tools.len()];
        for _ in 0..options.rounds {
            for (tool, rounds) in tools.iter().zip(&mut rounds) {
                rounds.push(turn(tool, &topstat, options.seconds)?);
            }
        }
        print!("| {count} |");
        for rounds in &rounds {
            let s = spread(rounds);
            print!(" {:.2} ({:.2}–{:.2}) |", s.median, s.low, s.high);
        }
        match tools.iter().position(|tool| tool.name == "top") {
            Some(top) => println!(" {:.0} |", spread(&rounds[top]).median / spread(&rounds[0]).median),
            None => println!(" |"),
        }
    }
    Ok(())
}

/// Whether a program of this name is installed.
pub fn installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// CPU milliseconds per refresh: from the beginning of one refresh to the beginning of a later one, divided by their number.
fn turn(tool: &Tool, topstat: &Path, seconds: u32) -> Result<f64> {
    let program = if tool.name == "topstat" { topstat.to_owned() } else { tool.name.into() };
    let mut command = Command::new(program);
    command.args(tool.arguments);
    measured(command, tool.name, tool.output, seconds)
}

/// As `turn`, for any command.
pub fn measured(mut command: Command, name: &str, output: Output, seconds: u32) -> Result<f64> {
    command.env("TERM", "xterm").env("COLUMNS", "120").env("LINES", "40").env("LC_ALL", "C");
    let mut terminal = match output {
        Output::Terminal => Some(Terminal::new()?),
        _ => None,
    };
    match &terminal {
        Some(terminal) => command.stdin(terminal.end()?).stdout(terminal.end()?),
        None => command.stdin(Stdio::null()).stdout(Stdio::piped()),
    };
    let child = command.stderr(Stdio::null()).spawn().with_context(|| format!("cannot run {name}"))?;
    let mut running = Running(child);
    let pid = running.0.id();
    // The CPU time of the program at the beginning of each refresh.
    let (begun, refreshes) = mpsc::channel();
    match (terminal.as_mut(), running.0.stdout.take()) {
        (Some(terminal), _) => terminal.watch(pid, begun),
        (None, Some(from)) => watch_lines(from, output, pid, begun),
        (None, None) => bail!("{name} has no output"),
    }
    let next = || {
        let at = refreshes.recv_timeout(PATIENCE);
        at.with_context(|| format!("{name} has ended, or shows nothing for {PATIENCE:?}"))
    };
    for _ in 0..WARM_UP {
        next()?;
    }
    let first = next()?;
    let began = Instant::now();
    let (mut last, mut count) = (first, 0_u32);
    while began.elapsed() < Duration::from_secs(seconds.into()) {
        last = next()?;
        count += 1;
    }
    Ok((last - first) as f64 / f64::from(count) / 1e6)
}

/// CPU time of all threads of a process so far, by the scheduler and not by ticks. 0: the process has ended.
pub fn cpu_ns(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = threads.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
    texts.filter_map(|text| text.split(' ').next()?.parse::<u64>().ok()).sum()
}

/// Sends the CPU time of the process at the beginning of each refresh, until the process ends.
fn watch_lines(output: ChildStdout, how: Output, pid: u32, begun: Sender<u64>) {
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line);
            let is_first = match how {
                Output::Begins(with) => text.starts_with(with),
                Output::Contains(what) => text.contains(what),
                Output::Terminal => false,
            };
            if is_first {
                // If no receiver is left, the program must not be blocked: the thread goes on reading.
                let _ = begun.send(cpu_ns(pid));
            }
            line.clear();
        }
    });
}

/// A program that is killed on drop.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A terminal without a screen.
pub struct Terminal {
    end: OwnedFd,
    /// The end for keys and for drawn output.
    pub controller: fs::File,
}

impl Terminal {
    pub fn new() -> Result<Self> {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&controller)?;
        unlockpt(&controller)?;
        let name = ptsname(&controller, Vec::new())?;
        let end =
            rustix::fs::open(name, rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY, rustix::fs::Mode::empty())?;
        let size = rustix::termios::Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&controller, size)?;
        Ok(Self { end, controller: fs::File::from(controller) })
    }

    /// As [`watch_lines`]. The thread must not block the drawing program; it ends when the last copy of the other end is
    /// closed.
    fn watch(&mut self, pid: u32, begun: Sender<u64>) {
        let Ok(mut drawn) = self.controller.try_clone() else { return };
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            let mut wrote: Option<Instant> = None;
            while drawn.read(&mut buffer).is_ok_and(|n| n > 0) {
                if wrote.replace(Instant::now()).is_none_or(|at| at.elapsed() > PAUSE) {
                    // As above.
                    let _ = begun.send(cpu_ns(pid));
                }
            }
        });
    }

    /// The end for the program.
    pub fn end(&self) -> Result<OwnedFd> {
        Ok(self.end.try_clone()?)
    }
}

/// Sleeping processes, killed on drop.
pub struct Sleepers(Child);

impl Sleepers {
    pub fn new(count: u32) -> Result<Self> {
        let program = std::env::current_exe()?;
        let child = Command::new(program)
            .args(["sleep", &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut sleepers = Self(child);
        let mut line = String::new();
        BufReader::new(sleepers.0.stdout.take().context("no output")?).read_line(&mut line)?;
        ensure!(line.trim() == "ready", "cannot make {count} sleeping processes");
        Ok(sleepers)
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Makes sleeping processes, which live until the input ends.
pub fn sleepers(options: &Sleep) -> Result<()> {
    let mut children = Vec::new();
    for _ in 0..options.count {
        // SAFETY: this process has one thread, and the child calls no function that needs another thread.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: plain system calls; the child never returns from here.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    loop {
                        libc::pause();
                    }
                }
            }
            -1 => {
                let error = std::io::Error::last_os_error();
                end(&children);
                bail!("process {} could not be made: {error}", children.len());
            }
            pid => children.push(pid),
        }
    }
    println!("ready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    end(&children);
    Ok(())
}

fn end(children: &[libc::pid_t]) {
    for pid in children {
        // SAFETY: plain system calls, on children that no other code waits for.
        unsafe {
            libc::kill(*pid, libc::SIGKILL);
            libc::waitpid(*pid, std::ptr::null_mut(), 0);
        }
    }
}
