// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of a tree, read by another process, so that a signal always ends the wait for them.
//!
//! A read of a FUSE file system whose daemon is stopped can't be ended: where the daemon has taken the request, not even by
//! SIGKILL; where it has not, by SIGKILL alone. A process can't end while one of its threads waits so. Therefore a child
//! process reads, and this one waits for a socket. When this one was asked to end, the child is killed, and not waited for.

use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// How often a wait looks whether the program was asked to end: a signal that comes just before a wait interrupts nothing.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes of a read: a snapshot of 128 rows and its end take two system calls then, each of which asks the daemon. A file
/// that is made by the read has no size before.
const AT_ONCE: usize = 64 << 10;
/// In place of an errno: there was no error.
const DONE: i32 = 0;

/// A request to the child.
#[derive(Clone, Copy)]
enum Ask {
    /// The content of a file.
    Read,
    /// The names of the directories in one, each with a zero behind it.
    Directories,
}

/// Reads files by a child process, which is started by the first read.
#[derive(Default)]
pub struct Aside {
    child: Mutex<Option<Child>>,
    stop: Arc<AtomicBool>,
}

impl Aside {
    /// Waits for files until `stop` is set.
    pub fn until(stop: Arc<AtomicBool>) -> Self {
        Self { child: Mutex::default(), stop }
    }

    /// Whether the program was asked to end.
    pub fn is_to_end(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// The content of a file, at most `most` bytes.
    ///
    /// # Errors
    ///
    /// Errors of the file. [`io::ErrorKind::Interrupted`]: the program was asked to end.
    pub fn read(&self, path: &Path, most: usize) -> io::Result<Vec<u8>> {
        self.ask(Ask::Read, path, most)
    }

    /// The names of the directories in a directory.
    ///
    /// # Errors
    ///
    /// As [`Aside::read`].
    pub fn directories(&self, path: &Path) -> io::Result<Vec<String>> {
        let names = self.ask(Ask::Directories, path, 0)?;
        let names = names.split_inclusive(|byte| *byte == 0).filter_map(|name| name.strip_suffix(b"\0"));
        Ok(names.filter_map(|name| String::from_utf8(name.to_vec()).ok()).collect())
    }

    fn ask(&self, ask: Ask, path: &Path, most: usize) -> io::Result<Vec<u8>> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let mut asked = match child.take() {
            Some(child) => child,
            None => Child::start()?,
        };
        // A child is asked again only after a whole answer.
        let answer = asked.ask(ask, path, most, &self.stop)?;
        *child = Some(asked);
        answer
    }
}

/// The child process. Killed when dropped.
struct Child {
    pid: libc::pid_t,
    socket: UnixStream,
}

impl Child {
    fn start() -> io::Result<Self> {
        let (socket, its) = UnixStream::pair()?;
        let parent = std::process::id();
        // SAFETY: the child runs only `serve`, and ends. It takes no lock of other threads but the allocator's, which the C
        // library makes usable in a child.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // A panic must not unwind into the parent's code.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| serve(its, parent)));
                // SAFETY: the call runs no code of the parent at exit.
                unsafe { libc::_exit(0) }
            }
            pid => Ok(Self { pid, socket }),
        }
    }

    /// Asks, and waits for the answer. The outer error: there is no answer.
    fn ask(&mut self, ask: Ask, path: &Path, most: usize, stop: &AtomicBool) -> io::Result<io::Result<Vec<u8>>> {
        let path = path.as_os_str().as_bytes();
        let mut request = vec![ask as u8];
        request.extend(most.to_ne_bytes());
        request.extend(path.len().to_ne_bytes());
        request.extend(path);
        self.socket.write_all(&request)?;
        let (mut errno, mut length) = ([0; size_of::<i32>()], [0; size_of::<usize>()]);
        self.fill(&mut errno, stop)?;
        self.fill(&mut length, stop)?;
        let mut answer = vec![0; usize::from_ne_bytes(length)];
        self.fill(&mut answer, stop)?;
        Ok(match i32::from_ne_bytes(errno) {
            DONE => Ok(answer),
            errno => Err(io::Error::from_raw_os_error(errno)),
        })
    }

    fn fill(&mut self, mut buffer: &mut [u8], stop: &AtomicBool) -> io::Result<()> {
        while !buffer.is_empty() {
            let look = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&look)) {
                Ok(0) | Err(Errno::INTR) if stop.load(Ordering::SeqCst) => {
                    return Err(io::Error::new(io::ErrorKind::Interrupted, "the program was asked to end"));
                }
                Ok(0) | Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
                Ok(_) => {}
            }
            match self.socket.read(buffer) {
                Ok(0) => return Err(io::Error::other("the process that reads files has ended")),
                Ok(read) => buffer = &mut buffer[read..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        /// How long to wait for the end: 100 ms. A child that can't end yet becomes init's when this process ends.
        const STEPS: u32 = 20;
        const STEP: Duration = Duration::from_millis(5);
        // SAFETY: this process has started the child, and has not waited for it.
        let ended = || unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::WNOHANG) != 0 };
        // SAFETY: no memory is involved.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        for _ in 0..STEPS {
            if ended() {
                return;
            }
            std::thread::sleep(STEP);
        }
    }
}

/// Answers until the parent closes its end.
fn serve(mut socket: UnixStream, parent: u32) {
    alone(&socket, parent);
    let mut header = [0; 1 + 2 * size_of::<usize>()];
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, usize::from_ne_bytes);
    while socket.read_exact(&mut header).is_ok() {
        let (most, length) = header[1..].split_at(size_of::<usize>());
        let mut path = vec![0; number(length)];
        if socket.read_exact(&mut path).is_err() {
            return;
        }
        let path = Path::new(std::ffi::OsStr::from_bytes(&path));
        let answer = match header[0] {
            asked if asked == Ask::Read as u8 => File::open(path).and_then(|file| read_all(&file, number(most))),
            _ => directories(path),
        };
        let (errno, answer) = match answer {
            Ok(answer) => (DONE, answer),
            Err(error) => (error.raw_os_error().unwrap_or(libc::EIO), Vec::new()),
        };
        let head = [&errno.to_ne_bytes()[..], &answer.len().to_ne_bytes()[..]].concat();
        if socket.write_all(&head).and_then(|()| socket.write_all(&answer)).is_err() {
            return;
        }
    }
}

/// Makes the parent independent of the child: the child keeps no file open but the socket, ignores signals to the process
/// group that ask to end, and is killed when the parent ends.
fn alone(socket: &UnixStream, parent: u32) {
    const LAST_SIGNAL: libc::c_int = 31;
    // SAFETY: only numbers are passed; this process has one thread, and uses no file but the socket.
    unsafe {
        for signal in 1..=LAST_SIGNAL {
            let asks_to_end = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT].contains(&signal);
            libc::signal(signal, if asks_to_end { libc::SIG_IGN } else { libc::SIG_DFL });
        }
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // The parent may have ended before that call.
        if libc::getppid().cast_unsigned() != parent {
            libc::_exit(0);
        }
        let kept = socket.as_raw_fd().cast_unsigned();
        libc::syscall(libc::SYS_close_range, kept + 1, libc::c_uint::MAX, 0);
        if kept > 0 {
            libc::syscall(libc::SYS_close_range, 0, kept - 1, 0);
        }
    }
}

/// The content of a file, at most `most` bytes, read in large pieces.
pub fn read_all(mut file: &File, most: usize) -> io::Result<Vec<u8>> {
    let (mut text, mut filled) = (vec![0; AT_ONCE.min(most)], 0);
    while filled < most {
        if filled == text.len() {
            text.resize((filled * 2).min(most), 0);
        }
        match file.read(&mut text[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    text.truncate(filled);
    Ok(text)
}

fn directories(path: &Path) -> io::Result<Vec<u8>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.extend(entry.file_name().as_bytes());
            names.push(0);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Instant;

    use super::*;

    /// A folder that is gone in the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("topstat-aside-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_is_read_to_its_end_however_large() {
        let (folder, aside) = (Folder::new("large"), Aside::default());
        let path = folder.0.join("file");
        for size in [0, 1, AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, 5 * AT_ONCE] {
            let text: Vec<u8> = (0..size).map(|place| (place % 251) as u8).collect();
            fs::write(&path, &text).unwrap();
            assert!(aside.read(&path, usize::MAX).unwrap() == text, "{size}");
            assert!(aside.read(&path, size / 2).unwrap() == text[..size / 2], "{size}");
        }
        assert_eq!(aside.read(&folder.0.join("none"), 9).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::create_dir(folder.0.join("below")).unwrap();
        assert_eq!(aside.directories(&folder.0).unwrap(), ["below"]);
        assert_eq!(aside.directories(&path).unwrap_err().kind(), io::ErrorKind::NotADirectory);
    }

    /// A pipe without a writer blocks a reader, as the tree of a stopped daemon does.
    #[test]
    fn a_program_that_was_asked_to_end_waits_for_no_file() {
        let folder = Folder::new("pipe");
        let path = folder.0.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let stop = Arc::new(AtomicBool::new(false));
        let aside = Aside::until(Arc::clone(&stop));
        let asked = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            stop.store(true, Ordering::SeqCst);
            Instant::now()
        });
        let error = aside.read(&path, 9).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        assert!(asked.join().unwrap().elapsed() < Duration::from_secs(1));
        assert!(aside.child.lock().unwrap().is_none(), "a child without an answer is not asked again");
    }

    #[test]
    fn a_child_that_has_ended_is_replaced() {
        let (folder, aside) = (Folder::new("ended"), Aside::default());
        let path = folder.0.join("file");
        fs::write(&path, "text").unwrap();
        assert_eq!(aside.read(&path, 9).unwrap(), b"text");
        let pid = aside.child.lock().unwrap().as_ref().unwrap().pid;
        // SAFETY: no memory is involved.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        assert!(aside.read(&path, 9).is_err());
        assert_eq!(aside.read(&path, 9).unwrap(), b"text");
    }
}
