// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a command to its end, or to a deadline, and keeps its output.

use std::fs::{self, File};
use std::io::{IsTerminal as _, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

/// How long a command has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(20);
/// How often it is asked whether a command has ended.
const LOOK: Duration = Duration::from_millis(50);
/// How often the last line is shown on a terminal.
const SHOW: Duration = Duration::from_millis(500);
/// The most characters of it: less than the width of a usual terminal.
const SHOWN: usize = 76;

/// How a command ended.
pub struct Ran {
    /// Its exit code; `None`: a signal, or the deadline.
    pub code: Option<i32>,
    /// Whether it was ended at the deadline.
    pub timed_out: bool,
    /// Its output, standard error included.
    pub text: String,
}

impl Ran {
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }

    /// In words.
    pub fn how(&self) -> String {
        match (self.timed_out, self.code) {
            (true, _) => "it was ended at the time limit".to_owned(),
            (false, Some(code)) => format!("exit code {code}"),
            (false, None) => "a signal ended it".to_owned(),
        }
    }
}

/// Set by SIGINT, SIGTERM and SIGHUP: a command that runs is ended, and so is the gate.
#[derive(Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// # Errors
    /// A handler that can't be set.
    pub fn new() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag)).context("cannot set a signal handler")?;
        }
        Ok(Self(flag))
    }
}

/// Runs a command in a new process group, and ends the group with the command. `log` receives the output of both streams, in
/// the order of printing.
///
/// # Errors
/// A command that can't be started, a log that can't be written, or an interruption.
pub fn run(mut command: Command, log: &Path, deadline: Instant, interrupt: &Interrupt) -> Result<Ran> {
    let what = command.get_program().to_string_lossy().into_owned();
    if let Some(folder) = log.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut shown = File::open(log).with_context(|| format!("cannot read {}", log.display()))?;
    let copy = file.try_clone().context("cannot duplicate a file descriptor")?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(copy)
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot run {what}"))?;
    let group = Pid::from_child(&child);
    // A group that has ended already is no error.
    let end = |signal| kill_process_group(group, signal).unwrap_or(());
    let (mut last_shown, mut told) = (Instant::now(), None);
    let terminal = std::io::stderr().is_terminal();
    let (status, timed_out) = loop {
        if let Some(status) = child.try_wait().with_context(|| format!("cannot wait for {what}"))? {
            break (status, told.is_some());
        }
        if told.is_none() && (Instant::now() >= deadline || interrupt.0.load(Ordering::Relaxed)) {
            end(Signal::TERM);
            told = Some(Instant::now());
        }
        if told.is_some_and(|told| told.elapsed() > GRACE) {
            end(Signal::KILL);
        }
        if terminal && last_shown.elapsed() > SHOW {
            show_last_line(&mut shown);
            last_shown = Instant::now();
        }
        thread::sleep(LOOK);
    };
    // Processes of the group that outlived their parent are not to run beside the next command.
    end(Signal::KILL);
    if terminal {
        eprint!("\r\x1b[K");
    }
    if interrupt.0.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    let text = fs::read(log).with_context(|| format!("cannot read {}", log.display()))?;
    Ok(Ran { code: status.code(), timed_out, text: String::from_utf8_lossy(&text).into_owned() })
}

fn show_last_line(log: &mut File) {
    const TAIL: u64 = 4096;
    let length = log.metadata().map_or(0, |about| about.len());
    let mut tail = Vec::new();
    if log.seek(SeekFrom::Start(length.saturating_sub(TAIL))).is_ok() && log.read_to_end(&mut tail).is_ok() {
        let text = String::from_utf8_lossy(&tail);
        let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        let line: String = line.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
        let _ = write!(std::io::stderr(), "\r\x1b[K  {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str, limit: Duration) -> Ran {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let name = format!("topstat-gate-process-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let log = std::env::temp_dir().join(name);
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        let ran = run(command, &log, Instant::now() + limit, &Interrupt(Arc::default())).unwrap();
        fs::remove_file(log).unwrap();
        ran
    }

    #[test]
    fn output_comes_in_order_with_the_exit_code() {
        let ran = shell("echo one; echo two >&2; echo three; exit 3", Duration::from_secs(60));
        assert_eq!((ran.text.as_str(), ran.code, ran.timed_out), ("one\ntwo\nthree\n", Some(3), false));
    }

    #[test]
    fn a_deadline_ends_a_command_with_its_children() {
        let begun = Instant::now();
        let ran = shell("sleep 600 & echo $!; wait", Duration::from_millis(300));
        assert!(ran.timed_out && !ran.succeeded(), "{}", ran.how());
        assert!(begun.elapsed() < GRACE);
        let child = ran.text.trim();
        assert!(
            (0..100).any(|_| {
                thread::sleep(Duration::from_millis(20));
                // A process that has ended may wait for process 1 to take notice.
                fs::read_to_string(format!("/proc/{child}/stat")).map_or(true, |stat| stat.contains(") Z "))
            }),
            "{child} still runs"
        );
    }
}
