// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other processes: the tests' program, started again in a role. The tests define the roles.

use std::ffi::CString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// The variable that holds the role of a process.
pub const VARIABLE: &str = "TOPSTAT_LIVE_ROLE";
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The path of this program. It is read at the beginning: in another mount namespace, below a chroot, the kernel no longer
/// gives the path as seen from there.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| std::env::current_exe().expect("the path of this program"));

static STARTED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Whether a process is this one, or one that it has started.
pub fn is_own(pid: u64) -> bool {
    let started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    started.iter().chain([&std::process::id()]).any(|own| u64::from(*own) == pid)
}

/// The role of this process and its arguments, if it has a role.
pub fn own() -> Option<(String, Vec<String>)> {
    LazyLock::force(&PROGRAM);
    Some((std::env::var(VARIABLE).ok()?, std::env::args().skip(1).collect()))
}

/// The path of this program.
pub fn program() -> &'static std::path::Path {
    &PROGRAM
}

/// A command that starts this program in a role, for tests that [`Role`] does not serve.
pub fn command(role: &str) -> Command {
    let mut command = Command::new(&*PROGRAM);
    command.env(VARIABLE, role);
    command
}

/// Registers a process as one of the tests' processes.
pub fn started(pid: u32) {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner).push(pid);
}

/// A process in a role, which receives commands as lines and answers with lines. Killed when dropped.
pub struct Role {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Role {
    /// Starts a process in a role.
    pub fn start(role: &str, arguments: &[&str]) -> Self {
        Self::start_with(role, arguments, &[])
    }

    /// Starts a process in a role with variables in its environment.
    pub fn start_with(role: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut child = command(role)
            .args(arguments)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start another process");
        started(child.id());
        let stdin = child.stdin.take();
        let answers = listen(child.stdout.take().expect("its output"));
        Self { child, stdin, answers }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line to the process.
    pub fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("its input is open");
        writeln!(stdin, "{line}").and_then(|()| stdin.flush()).expect("tell the other process");
    }

    /// The next line of the process.
    pub fn hear(&mut self) -> String {
        match self.answers.recv_timeout(crate::pace::patience(PATIENCE)) {
            Ok(line) => line,
            Err(e) => panic!("the process {} says nothing ({e})", self.pid()),
        }
    }

    /// The next line of the process; `None`: the process has ended.
    pub fn hear_or_end(&mut self) -> Option<String> {
        match self.answers.recv_timeout(crate::pace::patience(PATIENCE)) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the process {} says nothing", self.pid()),
        }
    }

    /// The next line of the process, if it has printed one.
    pub fn heard(&mut self) -> Option<String> {
        self.answers.try_recv().ok()
    }

    /// Waits for a line that begins with `word`, and returns the rest.
    pub fn expect(&mut self, word: &str) -> String {
        let line = self.hear();
        line.strip_prefix(word).unwrap_or_else(|| panic!("'{word}' was to come, not '{line}'")).trim().to_owned()
    }

    /// Closes the input of the process, which ends most roles, and waits for its end.
    pub fn finish(mut self) {
        self.stdin = None;
        let ended = crate::eventually(PATIENCE, || matches!(self.child.try_wait(), Ok(Some(_))));
        assert!(ended, "the process {} does not end", self.pid());
    }

    /// Kills the process, as the out-of-memory killer would.
    pub fn kill(mut self) {
        self.child.kill().and_then(|()| self.child.wait().map(drop)).expect("kill the other process");
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(output: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// For a role: prints a line.
pub fn say(line: impl std::fmt::Display) {
    println!("{line}");
    let _ = std::io::stdout().flush();
}

/// For a role: waits for a line; `None` at the end of the input.
pub fn told() -> Option<String> {
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim_end().to_owned()),
    }
}

/// For a role: names the calling thread; the name of the first thread is the name of the process.
pub fn name(comm: &str) {
    let comm = CString::new(comm).expect("a name without zeroes");
    rustix::thread::set_name(&comm).expect("set the name");
}
