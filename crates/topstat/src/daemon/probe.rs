// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asks a tree whether its daemon answers, without blocking on the answer.
//!
//! A process that accesses a FUSE file system whose daemon is stopped has to wait. If the daemon has already taken the request,
//! nothing ends this wait, not even SIGKILL, and a process can't end while one of its threads waits like this. Therefore a child
//! process asks. It keeps only a pipe open, and no other process has to wait for its end.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// How long a tree may take to answer: a thousand times as long as a tree takes on a busy host.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// The answer of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The tree has answered, even if only with an error.
    Alive,
    /// The process that serves the tree has ended, or the kernel has ended the connection to it.
    Dead,
    /// No answer within [`PATIENCE`].
    None,
}

const ALIVE: u8 = 0;
const DEAD: u8 = 1;

/// Asks the tree at a path.
///
/// # Errors
///
/// When the path contains a zero byte, or when no pipe or no child process can be made.
pub fn ask(at: &Path) -> io::Result<Answer> {
    let path = CString::new(at.as_os_str().as_bytes())?;
    let (answers, answer) = pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: the child only makes system calls, as is required after a fork of a process with threads.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => child(&path, answer.as_raw_fd()),
        child => child,
    };
    drop(answer);
    let answer = wait(&answers);
    // The child has ended or is about to end, unless it is in a wait that nothing can end. In that case it is left to init.
    // SAFETY: it is our child, and no call has waited for it before.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        let flags = if answer == Answer::None { libc::WNOHANG } else { 0 };
        libc::waitpid(child, std::ptr::null_mut(), flags);
    }
    Ok(answer)
}

fn child(path: &CString, answer: RawFd) -> ! {
    let tell = |answered: u8| {
        // SAFETY: the pointer is to one byte, which outlives the call.
        unsafe { libc::write(answer, std::ptr::from_ref(&answered).cast(), 1) };
    };
    // Closes all files but the pipe: no lock on a file and no close of a file must wait for the end of this process.
    let close = |from: libc::c_uint, to: libc::c_uint| {
        // SAFETY: this process owns no file. Before Linux 5.9 the call fails, and the files stay open.
        unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
    };
    let kept = libc::c_uint::try_from(answer).unwrap_or(0);
    close(kept + 1, libc::c_uint::MAX);
    if kept > 0 {
        close(0, kept - 1);
    }
    match rustix::fs::statfs(path.as_c_str()) {
        Err(Errno::NOTCONN | Errno::CONNABORTED) => tell(DEAD),
        _ => tell(ALIVE),
    }
    // SAFETY: the call runs no code of the parent at exit.
    unsafe { libc::_exit(0) }
}

fn wait(answers: &impl std::os::fd::AsFd) -> Answer {
    let until = Instant::now() + PATIENCE;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout =
            Timespec { tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(answers, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Answer::None,
            Err(Errno::INTR) => continue,
            _ => {}
        }
        let mut answered = [0];
        return match rustix::io::read(answers, &mut answered) {
            Err(Errno::INTR) => continue,
            Ok(1) if answered[0] == ALIVE => Answer::Alive,
            Ok(1) => Answer::Dead,
            // The child was killed.
            _ => Answer::None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_answers_is_alive_whatever_it_answers() {
        for path in ["/", "/nonexistent", "/proc/self"] {
            let begun = Instant::now();
            assert_eq!(ask(Path::new(path)).unwrap(), Answer::Alive, "{path}");
            assert!(begun.elapsed() < PATIENCE);
        }
        assert!(ask(Path::new("with a zero \0")).is_err());
    }

    #[test]
    fn nothing_said_is_no_answer() {
        let (answers, answer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let begun = Instant::now();
        assert_eq!(wait(&answers), Answer::None);
        assert!(begun.elapsed() >= PATIENCE);
        drop(answer);
        assert_eq!(wait(&answers), Answer::None);
    }
}
