// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other processes: the tests' own program, started again in a role. The roles themselves are the tests'.

use std::ffi::CString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// The variable that says which role a process has.
pub const VARIABLE: &str = "TOPSTAT_LIVE_ROLE";
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The path of this program. It is asked for at the beginning: in another mount namespace, below a chroot, the kernel no
/// longer tells it as it is seen from there.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| std::env::current_exe().expect("the path of this program"));

static STARTED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Whether a process is this one, or one that it has started.
pub fn is_own(pid: u64) -> bool {
    let started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    started.iter().chain([&std::process::id()]).any(|own| u64::from(*own) == pid)
}

/// The role of this process and its arguments, where it has one.
pub fn own() -> Option<(String, Vec<String>)> {
    LazyLock::force(&PROGRAM);
    Some((std::env::var(VARIABLE).ok()?, std::env::args().skip(1).collect()))
}

/// The path of this program.
pub fn program() -> &'static std::path::Path {
    &PROGRAM
}

/// What starts this program in a role, for whom [`Role`] is not enough.
pub fn command(role: &str) -> Command {
    let mut command = Command::new(&*PROGRAM);
    command.env(VARIABLE, role);
    command
}

/// Says that a process is one of the tests'.
pub fn started(pid: u32) {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner).push(pid);
}

/// A process in a role, which is told by lines what to do and answers by lines. Killed when dropped.
pub struct Role {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Role {
    /// Starts one.
    pub fn start(role: &str, arguments: &[&str]) -> Self {
        Self::start_with(role, arguments, &[])
    }

    /// Starts one with variables in its environment.
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

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a line.
    pub fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("its input is open");
        writeln!(stdin, "{line}").and_then(|()| stdin.flush()).expect("tell the other process");
    }

    /// Its next line.
    pub fn hear(&mut self) -> String {
        match self.answers.recv_timeout(crate::pace::patience(PATIENCE)) {
            Ok(line) => line,
            Err(e) => panic!("the process {} says nothing ({e})", self.pid()),
        }
    }

    /// Its next line; `None`: it has ended instead.
    pub fn hear_or_end(&mut self) -> Option<String> {
        match self.answers.recv_timeout(crate::pace::patience(PATIENCE)) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the process {} says nothing", self.pid()),
        }
    }

    /// Its next line, if it has said one.
    pub fn heard(&mut self) -> Option<String> {
        self.answers.try_recv().ok()
    }

    /// Waits for a line that begins so, and gives the rest.
    pub fn expect(&mut self, word: &str) -> String {
        let line = self.hear();
        line.strip_prefix(word).unwrap_or_else(|| panic!("'{word}' was to come, not '{line}'")).trim().to_owned()
    }

    /// Closes its input, which ends most roles, and waits for its end.
    pub fn finish(mut self) {
        self.stdin = None;
        let ended = crate::eventually(PATIENCE, || matches!(self.child.try_wait(), Ok(Some(_))));
        assert!(ended, "the process {} does not end", self.pid());
    }

    /// Kills it, as the out-of-memory killer would.
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

/// For a role: says a line.
pub fn say(line: impl std::fmt::Display) {
    println!("{line}");
    let _ = std::io::stdout().flush();
}

/// For a role: waits for a line; `None` when there are no more.
pub fn told() -> Option<String> {
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim_end().to_owned()),
    }
}

/// For a role: gives its thread a name, which is its process's where it is the first.
pub fn name(comm: &str) {
    let comm = CString::new(comm).expect("a name without zeroes");
    rustix::thread::set_name(&comm).expect("set the name");
}
