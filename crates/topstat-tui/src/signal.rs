// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes, and the signals that are sent to them.
//!
//! A pid may be another process's at any time. So a process is known by its pid and by the time when it began: the signal goes
//! through a descriptor of the process, and only if the process behind the descriptor began at that time.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal as Number, pidfd_open, pidfd_send_signal};

/// The inode of the pid namespace that the kernel makes at its start (`PROC_PID_INIT_INO`), whose pids tables have.
const FIRST_PIDS: u64 = 0xEFFF_FFFC;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its pid.
    pub pid: u32,
    /// Its name, as the kernel keeps it.
    pub comm: String,
    /// When it began, in ticks since the host has booted.
    began: u64,
}

/// A signal that can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Its name without `SIG`.
    pub name: &'static str,
    number: Number,
}

const fn signal(name: &'static str, number: Number) -> Signal {
    Signal { name, number }
}

/// The signals that can be sent. The first is sent unless another one is named.
const SIGNALS: [Signal; 9] = [
    signal("TERM", Number::TERM),
    signal("KILL", Number::KILL),
    signal("INT", Number::INT),
    signal("HUP", Number::HUP),
    signal("QUIT", Number::QUIT),
    signal("USR1", Number::USR1),
    signal("USR2", Number::USR2),
    signal("STOP", Number::STOP),
    signal("CONT", Number::CONT),
];

/// Whether a pid of a table is the pid of the process that this program knows by it.
///
/// # Errors
///
/// This program is in another pid namespace than the host's first processes; the error says so.
pub fn same_pids() -> Result<(), String> {
    match fs::metadata("/proc/self/ns/pid") {
        Ok(own) if own.ino() == FIRST_PIDS => Ok(()),
        _ => Err("tables have the pids of the host, and this program runs in another pid namespace".to_owned()),
    }
}

impl Process {
    /// The process that has this pid now.
    ///
    /// # Errors
    ///
    /// There is no process with this pid that this program can see; the error says so.
    pub fn now(pid: u64) -> Result<Self, String> {
        same_pids()?;
        let known =
            u32::try_from(pid).ok().filter(|pid| *pid > 0).ok_or_else(|| format!("no process has pid {pid}"))?;
        let stat = fs::read(format!("/proc/{pid}/stat"));
        let stat = stat.map_err(|_| format!("process {pid} has ended, or is not visible here"))?;
        of_stat(&String::from_utf8_lossy(&stat))
            .map(|(comm, began)| Self { pid: known, comm, began })
            .ok_or_else(|| format!("/proc/{pid}/stat can't be read: {:?}", String::from_utf8_lossy(&stat)))
    }

    /// Reads the answer to the question whether to signal this process: its pid, after the name of a signal or alone.
    ///
    /// # Errors
    ///
    /// The answer is another one; the error says how to answer.
    pub fn answer(&self, text: &str) -> Result<Signal, String> {
        let pid = self.pid;
        let words: Vec<_> = text.split_whitespace().collect();
        let (name, typed) = match words[..] {
            [typed] => (SIGNALS[0].name, typed),
            [name, typed] => (name, typed),
            _ => return Err(format!("type {pid}, or a signal and {pid}; Esc sends none")),
        };
        let name = name.to_ascii_uppercase();
        let name = name.strip_prefix("SIG").unwrap_or(&name);
        let names = || SIGNALS.map(|signal| signal.name).join(" ");
        let signal = SIGNALS.iter().find(|signal| signal.name == name).ok_or_else(|| format!("one of {}", names()))?;
        if typed == pid.to_string() { Ok(*signal) } else { Err(format!("{typed} is not {pid}; Esc sends none")) }
    }

    /// Sends a signal to this process, and returns the result in words.
    pub fn send(&self, signal: Signal) -> String {
        let Self { pid, comm, .. } = self;
        let ended = || format!("process {pid} ({comm}) has ended: no signal was sent");
        let Some(number) = i32::try_from(*pid).ok().and_then(Pid::from_raw) else { return ended() };
        let sent = pidfd_open(number, PidfdFlags::empty()).and_then(|process| {
            // The descriptor keeps the process that has the pid from here on, so the comparison holds for the signal, too.
            match Self::now((*pid).into()) {
                Ok(now) if now.began == self.began => pidfd_send_signal(process, signal.number),
                _ => Err(Errno::SRCH),
            }
        });
        match sent {
            Ok(()) => format!("{} was sent to process {pid} ({comm})", signal.name),
            Err(Errno::SRCH) => ended(),
            Err(error) => format!("cannot send {} to process {pid} ({comm}): {error}", signal.name),
        }
    }
}

/// The name of a process in /proc/PID/stat, and the words behind it: the state and numbers. The name in parentheses may have any
/// characters.
pub(crate) fn words_of_stat(stat: &str) -> Option<(&str, impl Iterator<Item = &str>)> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, comm) = before.split_once('(')?;
    Some((comm, after.split_whitespace()))
}

/// The name and the begin of a process, from /proc/PID/stat.
fn of_stat(stat: &str) -> Option<(String, u64)> {
    let (comm, mut words) = words_of_stat(stat)?;
    Some((comm.to_owned(), words.nth(19)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn child() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    #[test]
    fn a_name_with_spaces_and_parentheses_moves_no_figure() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 4711 0 0";
        assert_eq!(of_stat(stat), Some(("a) b (c".to_owned(), 4711)));
        assert_eq!(of_stat("7 (a"), None);
    }

    #[test]
    fn only_the_typed_pid_is_signalled() {
        let mut child = child();
        if let Err(why) = same_pids() {
            eprintln!("skipped: {why}");
            let _ = child.kill().and_then(|()| child.wait());
            return;
        }
        let process = Process::now(child.id().into()).unwrap();
        let pid = child.id();
        for (text, signal) in [
            (format!("{pid}"), Ok("TERM")),
            (format!(" kill {pid} "), Ok("KILL")),
            (format!("SIGHUP {pid}"), Ok("HUP")),
            (format!("{pid}1"), Err(format!("{pid}1 is not {pid}; Esc sends none"))),
            (format!("{pid} KILL"), Err("one of TERM KILL INT HUP QUIT USR1 USR2 STOP CONT".to_owned())),
            (String::new(), Err(format!("type {pid}, or a signal and {pid}; Esc sends none"))),
            (format!("KILL {pid} {pid}"), Err(format!("type {pid}, or a signal and {pid}; Esc sends none"))),
        ] {
            assert_eq!(process.answer(&text).map(|signal| signal.name), signal, "{text:?}");
        }
        // Another process with this pid is another process.
        let earlier = Process { began: process.began - 1, ..process.clone() };
        assert!(earlier.send(SIGNALS[1]).ends_with("has ended: no signal was sent"));
        assert_eq!(child.try_wait().unwrap(), None);
        assert!(process.send(SIGNALS[1]).starts_with(&format!("KILL was sent to process {pid} (")));
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()), Some(9));
        assert!(process.send(SIGNALS[1]).ends_with("has ended: no signal was sent"));
        assert_eq!(Process::now(0), Err("no process has pid 0".to_owned()));
    }
}
