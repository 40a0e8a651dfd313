// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program on a real terminal and on real pipes, with real signals. Only its numbers are made up.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::program::demo;

/// The longest wait: far more than any step takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

const HOME: &[u8] = b"\x1b[H";

/// A terminal with the program on it.
struct Terminal {
    master: File,
    child: Child,
    seen: Vec<u8>,
}

impl Terminal {
    fn start(line: &str, rows: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap();
        let slave = File::options().read(true).write(true).open(OsStr::from_bytes(path.as_bytes())).unwrap();
        resize(&master, rows);
        let child = Command::new(demo())
            .args(line.split_whitespace())
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave)
            .spawn()
            .unwrap();
        Self { master: File::from(master), child, seen: vec![] }
    }

    /// Reads until this number of pictures has begun.
    fn read_pictures(&mut self, pictures: usize) {
        self.read_until(|seen| count(seen, HOME) >= pictures);
    }

    /// Reads until the output meets a condition. A terminal without programs ends with an error.
    fn read_until(&mut self, enough: impl Fn(&[u8]) -> bool) {
        let mut buffer = [0; 4096];
        while !enough(&self.seen) {
            let mut ready = [PollFd::new(&self.master, PollFlags::IN)];
            let patience = Timespec::try_from(PATIENCE).unwrap();
            assert_ne!(poll(&mut ready, Some(&patience)), Ok(0), "nothing comes");
            match self.master.read(&mut buffer) {
                Ok(read @ 1..) => self.seen.extend(&buffer[..read]),
                end => panic!("{end:?} after {}", String::from_utf8_lossy(&self.seen)),
            }
        }
    }

    /// Ends the program with a signal. Returns its exit status and all its output.
    fn end(mut self, signal: Signal) -> (ExitStatus, String) {
        send(&self.child, signal);
        let status = wait(&mut self.child);
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = self.master.read(&mut buffer) {
            self.seen.extend(&buffer[..read]);
        }
        (status, String::from_utf8(self.seen).unwrap())
    }
}

fn resize(terminal: impl std::os::fd::AsFd, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).unwrap();
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn wait(child: &mut Child) -> ExitStatus {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it did not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn count(text: &[u8], part: &[u8]) -> usize {
    text.windows(part.len()).filter(|window| *window == part).count()
}

#[test]
fn ctrl_c_and_sigterm_give_the_terminal_back() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut terminal = Terminal::start("top tcp_v4/conns_pps 0.02 --period 10", 24);
        terminal.read_pictures(3);
        let (status, seen) = terminal.end(signal);
        assert_eq!(status.code(), Some(0), "{signal:?}");
        assert!(seen.starts_with("topstat: counting; the first rows come in 10ms\r\n"), "{seen}");
        assert!(seen.contains("\x1b[?25l"));
        assert!(seen.ends_with("\x1b[J\x1b[?7h\x1b[0m\x1b[?7h\x1b[?25h"), "{seen:?}");
    }
}

#[test]
fn a_new_size_is_used_at_once() {
    // The next snapshot would come in a day.
    let mut terminal = Terminal::start("top tcp_v4/conns_pps 1day --period 10", 24);
    terminal.read_pictures(1);
    resize(&terminal.master, 10);
    send(&terminal.child, Signal::WINCH);
    terminal.read_pictures(2);
    let (status, seen) = terminal.end(Signal::INT);
    assert_eq!(status.code(), Some(0));
    let last = seen.rsplit("\x1b[H").next().unwrap();
    assert_eq!(last.matches("\x1b[K").count(), 9, "{last:?}");
}

#[test]
fn ctrl_z_gives_the_terminal_back_for_a_while() {
    let mut terminal = Terminal::start("top tcp_v4/conns_pps 1day --period 10", 24);
    terminal.read_pictures(1);
    send(&terminal.child, Signal::TSTP);
    terminal.read_until(|seen| seen.ends_with(b"\x1b[?25h"));
    let begin = Instant::now();
    while !is_stopped(&terminal.child) {
        assert!(begin.elapsed() < PATIENCE, "it does not stop");
        std::thread::sleep(Duration::from_millis(5));
    }
    send(&terminal.child, Signal::CONT);
    terminal.read_pictures(2);
    let (status, seen) = terminal.end(Signal::TERM);
    assert_eq!(status.code(), Some(0));
    assert_eq!(seen.matches("\x1b[?25l").count(), 2);
    assert_eq!(seen.matches("\x1b[?25h").count(), 2);
}

fn is_stopped(child: &Child) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    // The state follows the name, which is in parentheses.
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
}

#[test]
fn a_reader_that_goes_away_ends_it_at_once() {
    let mut child = Command::new(demo())
        .args(["top", "tcp_v4/conns_pps", "1day", "--period", "10"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    // As `head -1` does. The next snapshot would come in a day.
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("tcp_v4/conns_pps  "));
    assert_eq!(wait(&mut child).code(), Some(0));
    let mut notes = String::new();
    child.stderr.take().unwrap().read_to_string(&mut notes).unwrap();
    assert_eq!(notes, "");
}

/// The program with its output in a full pipe that no process reads. Its notes go into the same pipe or into another one.
fn blocked(notes_too: bool) -> (Child, File) {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let notes = if notes_too { Stdio::from(writer.try_clone().unwrap()) } else { Stdio::piped() };
    let child = Command::new(demo())
        .args(["top", "tcp_v4/conns_pps", "0.01", "--top", "200", "--period", "1", "-o", "json"])
        .stdout(Stdio::from(writer.try_clone().unwrap()))
        .stderr(notes)
        .spawn()
        .unwrap();
    let begin = Instant::now();
    // A document has some 45 kB, and a pipe holds 64 kB: the second one fills it.
    while poll(&mut [PollFd::new(&writer, PollFlags::OUT)], Some(&Timespec::default())).unwrap() > 0 {
        assert!(begin.elapsed() < PATIENCE, "the pipe is not full");
        std::thread::sleep(Duration::from_millis(5));
    }
    (child, File::from(reader))
}

fn notes(child: &mut Child) -> String {
    let mut notes = String::new();
    child.stderr.take().unwrap().read_to_string(&mut notes).unwrap();
    notes
}

#[test]
fn a_line_that_nobody_reads_to_its_end_is_no_success() {
    let (mut child, mut reader) = blocked(false);
    send(&child, Signal::TERM);
    assert_eq!(wait(&mut child).code(), Some(1));
    let notes = notes(&mut child);
    assert!(notes.starts_with("topstat: cannot write the output: ") && notes.ends_with("is cut off\n"), "{notes}");
    let mut printed = String::new();
    reader.read_to_string(&mut printed).unwrap();
    assert!(printed.lines().count() > 1 && !printed.ends_with('\n'), "the last line is cut off, and no other");
    let whole = &printed[..=printed.rfind('\n').unwrap()];
    assert!(whole.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
}

#[test]
fn a_success_has_printed_whole_lines() {
    let (mut child, mut reader) = blocked(false);
    send(&child, Signal::TERM);
    let mut printed = String::new();
    reader.read_to_string(&mut printed).unwrap();
    let status = wait(&mut child);
    // On a slow host the output may be cut off. The program then reports that.
    assert_eq!(status.success(), printed.ends_with('\n'), "{status}: {}", notes(&mut child));
    let whole = &printed[..=printed.rfind('\n').unwrap()];
    assert!(whole.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
}

#[test]
fn a_reader_that_reads_nothing_does_not_keep_it_from_ending() {
    // The program ends even if its last note goes to the same pipe.
    let (mut child, _reader) = blocked(true);
    send(&child, Signal::TERM);
    assert_eq!(wait(&mut child).code(), Some(1));
}
