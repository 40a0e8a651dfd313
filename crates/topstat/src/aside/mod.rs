// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads files of a tree in another process, so that a signal always ends the wait for them.
//!
//! A read of a FUSE file system whose daemon is stopped blocks. If the daemon has taken the request, not even SIGKILL ends the
//! read; otherwise only SIGKILL does. A process can't end while one of its threads waits like this. Therefore a child process
//! reads, and this process waits for a socket. When this process is asked to end, it kills the child, and does not wait for it.

mod documents;

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, BufWriter, Read, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

pub use documents::Documents;

use crate::lock::lock;

/// How often a wait checks whether the program was asked to end: a signal that comes just before a wait does not interrupt it.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes of a read. With this size a snapshot of 128 rows and its end take two system calls, each of them a request to the
/// daemon. The size of a file does not help: a file whose content a read makes has no size before.
const AT_ONCE: usize = 64 << 10;
/// In place of an errno: there was no error.
const DONE: i32 = 0;
/// In place of an errno: a document is not whole.
const NOT_WHOLE: i32 = -1;
/// Requests that are sent at once. They fit into the buffer of the socket, so that this process never waits to write a request
/// while the child waits to write an answer.
const REQUESTS: usize = 64;
/// Bytes of answers that are read or written at once. This keeps the switches between the two processes few.
const ANSWERS: usize = 64 << 10;

/// A request to the child.
#[derive(Clone, Copy)]
enum Ask {
    /// The content of a file.
    Read,
    /// The names of the directories in a directory, each with a zero behind it.
    Directories,
    /// A document. Its file then stays open.
    Document,
    /// No content: the child closes its open files.
    Close,
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
    /// See [`Aside::read`].
    pub fn directories(&self, path: &Path) -> io::Result<Vec<String>> {
        let names = self.ask(Ask::Directories, path, 0)?;
        let names = names.split_inclusive(|byte| *byte == 0).filter_map(|name| name.strip_suffix(b"\0"));
        Ok(names.filter_map(|name| String::from_utf8(name.to_vec()).ok()).collect())
    }

    /// Reads documents of at most `most` bytes in this order, and hands each, with its number, to `each`. Their files stay
    /// open until [`Aside::close`].
    ///
    /// # Errors
    ///
    /// Errors of the reading process, as in [`Aside::read`]: the remaining documents were not read. Errors of a file go to
    /// `each`. Among them [`io::ErrorKind::UnexpectedEof`] means that the document is not whole, or is longer.
    pub fn documents(
        &self,
        paths: &[PathBuf],
        most: usize,
        mut each: impl FnMut(usize, io::Result<&[u8]>),
    ) -> io::Result<()> {
        self.with_child(|child| {
            for (round, some) in paths.chunks(REQUESTS).enumerate() {
                child.request(some.iter().map(|path| (Ask::Document, path.as_path(), most)))?;
                for number in 0..some.len() {
                    child.answer(&self.stop, |answer| each(round * REQUESTS + number, answer))?;
                }
            }
            Ok(())
        })
    }

    /// Closes the files of documents.
    ///
    /// # Errors
    ///
    /// See [`Aside::read`].
    pub fn close(&self) -> io::Result<()> {
        self.ask(Ask::Close, Path::new(""), 0).map(drop)
    }

    fn ask(&self, ask: Ask, path: &Path, most: usize) -> io::Result<Vec<u8>> {
        self.with_child(|child| {
            child.request([(ask, path, most)].into_iter())?;
            child.answer(&self.stop, |answer| answer.map(<[u8]>::to_vec))
        })?
    }

    /// Calls `ask` with the child. The child is used again only if all of its answers were read.
    fn with_child<T>(&self, ask: impl FnOnce(&mut Child) -> io::Result<T>) -> io::Result<T> {
        let mut child = lock(&self.child);
        let mut asked = match child.take() {
            Some(child) => child,
            None => Child::start()?,
        };
        let answered = ask(&mut asked)?;
        *child = Some(asked);
        Ok(answered)
    }
}

/// The child process. Killed when dropped.
struct Child {
    pid: libc::pid_t,
    socket: UnixStream,
    /// The bytes that were read from the socket. The unused ones begin at `taken`.
    read: Vec<u8>,
    taken: usize,
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
            pid => Ok(Self { pid, socket, read: Vec::new(), taken: 0 }),
        }
    }

    fn request<'p>(&mut self, asked: impl Iterator<Item = (Ask, &'p Path, usize)>) -> io::Result<()> {
        let mut requests = Vec::new();
        for (ask, path, most) in asked {
            let path = path.as_os_str().as_bytes();
            requests.push(ask as u8);
            requests.extend(most.to_ne_bytes());
            requests.extend(path.len().to_ne_bytes());
            requests.extend(path);
        }
        self.socket.write_all(&requests)
    }

    /// Waits for the next answer, and passes it to `take`. An error means that no answer came.
    fn answer<T>(&mut self, stop: &AtomicBool, take: impl FnOnce(io::Result<&[u8]>) -> T) -> io::Result<T> {
        const HEAD: usize = size_of::<i32>() + size_of::<usize>();
        let head = self.next(HEAD, stop)?;
        let (errno, length) = head.split_at(size_of::<i32>());
        let (errno, length) = (errno.try_into().map_or(libc::EIO, i32::from_ne_bytes), number(length));
        let answer = self.next(length, stop)?;
        Ok(take(match errno {
            DONE => Ok(answer),
            NOT_WHOLE => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the document is not whole")),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }))
    }

    /// The next bytes of answers.
    fn next(&mut self, bytes: usize, stop: &AtomicBool) -> io::Result<&[u8]> {
        while self.read.len() - self.taken < bytes {
            self.wait(stop)?;
            self.read.drain(..self.taken);
            self.taken = 0;
            let filled = self.read.len();
            self.read.resize(filled + ANSWERS, 0);
            let read = self.socket.read(&mut self.read[filled..]);
            self.read.truncate(filled + read.as_ref().copied().unwrap_or(0));
            match read {
                Ok(0) => return Err(io::Error::other("the process that reads files has ended")),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        let from = self.taken;
        self.taken += bytes;
        Ok(&self.read[from..self.taken])
    }

    /// Waits until there is data to read.
    fn wait(&self, stop: &AtomicBool) -> io::Result<()> {
        let look = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
        loop {
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&look)) {
                Ok(0) | Err(Errno::INTR) if stop.load(Ordering::SeqCst) => {
                    return Err(io::Error::new(io::ErrorKind::Interrupted, "the program was asked to end"));
                }
                Ok(0) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(_) => return Ok(()),
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        /// How long to wait for the end of the child: 100 ms. A child that can't end yet becomes a child of init when this
        /// process ends.
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

/// Answers requests until the parent closes its end of the socket.
fn serve(socket: UnixStream, parent: u32) {
    alone(&socket, parent);
    let Ok(writing) = socket.try_clone() else { return };
    let mut requests = BufReader::with_capacity(ANSWERS, socket);
    let mut answers = BufWriter::with_capacity(ANSWERS, writing);
    let mut documents = Documents::default();
    while let Ok(()) = serve_one(&mut requests, &mut answers, &mut documents) {}
}

/// A number of a header, from exactly as many bytes as a number has.
fn number(bytes: &[u8]) -> usize {
    bytes.try_into().map_or(0, usize::from_ne_bytes)
}

fn serve_one(
    requests: &mut BufReader<UnixStream>,
    answers: &mut BufWriter<UnixStream>,
    documents: &mut Documents,
) -> io::Result<()> {
    // The parent may wait for an answer before it sends the next request.
    if requests.buffer().is_empty() {
        answers.flush()?;
        requests.fill_buf()?;
    }
    let mut header = [0; 1 + 2 * size_of::<usize>()];
    requests.read_exact(&mut header)?;
    let (most, length) = header[1..].split_at(size_of::<usize>());
    let mut path = vec![0; number(length)];
    requests.read_exact(&mut path)?;
    let path = Path::new(std::ffi::OsStr::from_bytes(&path));
    match header[0] {
        asked if asked == Ask::Document as u8 => answer(answers, documents.read(path, number(most))),
        asked if asked == Ask::Read as u8 => {
            answer(answers, File::open(path).and_then(|file| read_all(&file, number(most))))
        }
        asked if asked == Ask::Close as u8 => {
            documents.close();
            answer(answers, Ok([]))
        }
        _ => answer(answers, directories(path)),
    }
}

fn answer(answers: &mut BufWriter<UnixStream>, answer: io::Result<impl AsRef<[u8]>>) -> io::Result<()> {
    let errno = match &answer {
        Ok(_) => DONE,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => NOT_WHOLE,
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
    };
    let answer = answer.as_ref().map_or(&[][..], AsRef::as_ref);
    answers.write_all(&errno.to_ne_bytes())?;
    answers.write_all(&answer.len().to_ne_bytes())?;
    answers.write_all(answer)
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
    use std::time::Instant;

    use super::*;

    /// A folder that is removed at the end.
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

    #[test]
    fn documents_come_in_order_however_many() {
        const COUNT: usize = 3 * REQUESTS + 1;
        let (folder, aside) = (Folder::new("documents"), Aside::default());
        let text = |number: usize| format!("{number}{}\n", "x".repeat(number * 100));
        let paths: Vec<_> = (0..COUNT).map(|number| folder.0.join(number.to_string())).collect();
        for (number, path) in paths.iter().enumerate().filter(|(number, _)| *number != 5) {
            fs::write(path, if number == 7 { "half".to_owned() } else { text(number) }).unwrap();
        }
        for _ in 0..2 {
            let mut seen = 0;
            let all = aside.documents(&paths, 1 << 20, |number, document| {
                assert_eq!(number, seen);
                seen += 1;
                match number {
                    5 => assert_eq!(document.unwrap_err().kind(), io::ErrorKind::NotFound),
                    7 => assert_eq!(document.unwrap_err().kind(), io::ErrorKind::UnexpectedEof),
                    _ => assert_eq!(document.unwrap(), text(number).as_bytes()),
                }
            });
            all.unwrap();
            assert_eq!(seen, COUNT);
            aside.close().unwrap();
        }
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
        assert!(asked.join().unwrap().elapsed() < Duration::from_secs(10), "the read of a pipe would never end");
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
