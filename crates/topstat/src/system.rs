// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The console of a real program: file descriptors, signals, the clock.

use std::env;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::tz::TimeZone;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGCONT, SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::{flag, low_level};

use crate::console::{Console, Facts, Size, Wake};

/// The most bytes of one write after a pipe was reported as writable: the pipe then takes them without blocking. This is PIPE_BUF
/// of Linux (pipe(7)).
const CHUNK: usize = 4096;

/// How long the rest of a begun write may take, once the program was asked to end. A reader gets all of the data, and a pipe that
/// is no longer read does not block the program.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long a diagnostic may take in that case: it may go to the same pipe.
const LAST_NOTE: Duration = Duration::from_millis(200);

/// Standard output and standard error, signals, and the monotonic clock.
#[derive(Debug, Default)]
pub struct SystemConsole {
    out: Out,
    signals: Option<Signals>,
}

/// The output for data.
#[derive(Debug, Default)]
enum Out {
    #[default]
    Stdout,
    File(File),
}

impl AsFd for Out {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            // If it was closed, the standard library has opened /dev/null in its place, so that it always exists.
            Self::Stdout => rustix::stdio::stdout(),
            Self::File(file) => file.as_fd(),
        }
    }
}

impl SystemConsole {
    /// Writes data to this file instead of standard output.
    pub fn with_output(file: File) -> Self {
        Self { out: Out::File(file), signals: None }
    }

    /// Waits until the output takes data, or reports an error. Once the program was asked to end, a write that has `begun` waits
    /// until `deadline`, which this call sets if it is not set. Any other write then does not wait.
    fn wait_for_output(&self, begun: bool, deadline: &mut Option<Instant>) -> io::Result<()> {
        loop {
            let stop = self.is_stopped();
            let left = (stop && begun).then(|| {
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + LAST_WORDS);
                deadline.saturating_duration_since(Instant::now())
            });
            let mut fds = vec![PollFd::new(&self.out, PollFlags::OUT)];
            if !stop {
                fds.extend(self.signals.iter().map(Signals::poll_fd));
            }
            let timeout = match left {
                Some(left) => Some(timespec(left)),
                None => stop.then(|| timespec(Duration::ZERO)),
            };
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            // This is also so if the output has failed: the write then reports the reason.
            if !fds[0].revents().is_empty() {
                return Ok(());
            }
            match left {
                // Nothing of the data was written, so the output is whole.
                None if stop => return Err(io::ErrorKind::Interrupted.into()),
                Some(left) if left.is_zero() => return Err(io::Error::new(io::ErrorKind::TimedOut, CutOff)),
                _ => {}
            }
            if let Some(signals) = &self.signals {
                signals.drain();
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.signals.as_ref().is_some_and(|signals| signals.stop.load(Ordering::SeqCst))
    }
}

/// Why the last output is not whole.
#[derive(Debug, thiserror::Error)]
#[error(
    "nobody has read all of it within {} s after the program was asked to end: what was printed last is cut off",
    LAST_WORDS.as_secs()
)]
struct CutOff;

fn timespec(time: Duration) -> Timespec {
    Timespec {
        // All waits are far below 2^63 s.
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

impl Console for SystemConsole {
    fn facts(&self) -> Facts {
        let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        Facts {
            terminal: self.out.as_fd().is_terminal(),
            notes: io::stderr().is_terminal(),
            dumb: set("TERM").is_none_or(|term| term == "dumb"),
            no_color: set("NO_COLOR").is_some(),
        }
    }

    fn is_interactive(&self) -> bool {
        // The view takes keys from standard input, and draws on standard output.
        let standard = matches!(self.out, Out::Stdout) && io::stdin().is_terminal();
        let facts = self.facts();
        standard && facts.terminal && !facts.dumb
    }

    fn zone(&self) -> TimeZone {
        TimeZone::system()
    }

    fn size(&self) -> Option<Size> {
        let size = rustix::termios::tcgetwinsize(&self.out).ok()?;
        // A serial line does not know its size, and reports 0.
        (size.ws_row > 0 && size.ws_col > 0).then_some(Size { rows: size.ws_row, columns: size.ws_col })
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        let (mut rest, mut deadline) = (data, None);
        // A picture that is cut off on a terminal is not misleading.
        let terminal = self.out.as_fd().is_terminal();
        while !rest.is_empty() {
            // A signal could not end a blocked write, and all that is loaded would stay.
            self.wait_for_output(rest.len() < data.len() && !terminal, &mut deadline)?;
            let chunk = &rest[..rest.len().min(CHUNK)];
            match rustix::io::write(&self.out, chunk) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn write_note(&mut self, line: &str) {
        // The diagnostic may go to the output for data, which takes nothing any more.
        if self.is_stopped() {
            let stderr = rustix::stdio::stderr();
            let mut fds = [PollFd::new(&stderr, PollFlags::OUT)];
            if !poll(&mut fds, Some(&timespec(LAST_NOTE))).is_ok_and(|ready| ready > 0) {
                return;
            }
        }
        // If this fails, there is no other place to report it.
        let _ = writeln!(io::stderr(), "{line}");
    }

    fn catch_signals(&mut self, in_place: bool) -> io::Result<()> {
        self.signals = Some(Signals::catch(in_place)?);
        Ok(())
    }

    fn stop_flag(&self) -> Arc<AtomicBool> {
        self.signals.as_ref().map(|signals| Arc::clone(&signals.stop)).unwrap_or_default()
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wait_for(&mut self, readable: Option<BorrowedFd<'_>>, deadline: Instant) -> io::Result<Wake> {
        loop {
            if let Some(wake) = self.signals.as_ref().and_then(Signals::take) {
                return Ok(wake);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Wake::Deadline);
            }
            // Even without requested events, poll reports a pipe without a reader and a terminal that is gone.
            let mut fds = vec![PollFd::new(&self.out, PollFlags::empty())];
            fds.extend(readable.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
            fds.extend(self.signals.iter().map(Signals::poll_fd));
            match poll(&mut fds, Some(&timespec(left))) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !fds[0].revents().is_empty() {
                return Ok(Wake::Closed);
            }
            if readable.is_some() && !fds[1].revents().is_empty() {
                // A signal to stop comes first.
                return Ok(self.signals.as_ref().and_then(Signals::take).unwrap_or(Wake::Ready));
            }
            if let Some(signals) = &self.signals {
                signals.drain();
            }
        }
    }

    fn suspend(&mut self) -> io::Result<()> {
        low_level::emulate_default_handler(SIGTSTP)
    }
}

/// Signals as flags, and a pipe that a wait can poll.
#[derive(Debug)]
struct Signals {
    stop: Arc<AtomicBool>,
    suspend: Arc<AtomicBool>,
    resized: Arc<AtomicBool>,
    pipe: UnixStream,
}

impl Signals {
    /// SIGHUP keeps its default, on which `nohup` relies. When SIGHUP ends the program, the kernel frees all that was loaded.
    fn catch(in_place: bool) -> io::Result<Self> {
        let (pipe, sender) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        let signals = Self { stop: Arc::default(), suspend: Arc::default(), resized: Arc::default(), pipe };
        let mut wanted = vec![(SIGINT, &signals.stop), (SIGTERM, &signals.stop)];
        if in_place {
            wanted.extend([
                (SIGWINCH, &signals.resized),
                (SIGTSTP, &signals.suspend),
                // Another program may have written to the terminal in between.
                (SIGCONT, &signals.resized),
            ]);
        }
        for (signal, flag) in wanted {
            // The flag is set first: a wait that the pipe ends must find it set.
            flag::register(signal, Arc::clone(flag))?;
            low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        Ok(signals)
    }

    fn poll_fd(&self) -> PollFd<'_> {
        PollFd::new(&self.pipe, PollFlags::IN)
    }

    /// The event that has happened, the most important first. A signal to stop is not forgotten.
    fn take(&self) -> Option<Wake> {
        if self.stop.load(Ordering::SeqCst) {
            Some(Wake::Stop)
        } else if self.suspend.swap(false, Ordering::SeqCst) {
            Some(Wake::Suspend)
        } else if self.resized.swap(false, Ordering::SeqCst) {
            Some(Wake::Resized)
        } else {
            None
        }
    }

    fn drain(&self) {
        let mut bytes = [0; 64];
        // The read does not block, and fails with EAGAIN once the pipe is empty.
        while rustix::io::read(&self.pipe, &mut bytes).is_ok_and(|read| read > 0) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe() -> (File, SystemConsole) {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        (reader.into(), SystemConsole::with_output(writer.into()))
    }

    #[test]
    fn a_wait_ends_when_the_reader_goes_away() {
        let (reader, mut console) = pipe();
        let soon = Instant::now() + Duration::from_millis(20);
        assert_eq!(console.wait_until(soon).unwrap(), Wake::Deadline);
        assert!(Instant::now() >= soon);
        drop(reader);
        let late = Instant::now() + Duration::from_secs(60);
        assert_eq!(console.wait_until(late).unwrap(), Wake::Closed);
        let error = console.write(b"x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn all_is_written_however_slow_the_reader() {
        use std::io::Read;
        let (mut reader, mut console) = pipe();
        let data: Vec<u8> = (0..1_000_000_u32).map(|i| i.to_le_bytes()[1]).collect();
        let expected = data.clone();
        let read = std::thread::spawn(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).map(|_| read)
        });
        console.write(&data).unwrap();
        drop(console);
        assert!(read.join().unwrap().unwrap() == expected);
    }

    /// A console whose program was asked to end, and whose pipe takes `room` bytes without a reader.
    fn stopped(room: usize) -> (File, SystemConsole) {
        let (reader, mut console) = pipe();
        let (pipe, _) = UnixStream::pair().unwrap();
        pipe.set_nonblocking(true).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let signals = Signals { stop: Arc::clone(&stop), suspend: Arc::default(), resized: Arc::default(), pipe };
        let size = rustix::pipe::fcntl_getpipe_size(&console.out).unwrap();
        console.write(&vec![b'.'; size - room]).unwrap();
        console.signals = Some(signals);
        stop.store(true, Ordering::SeqCst);
        (reader, console)
    }

    #[test]
    fn what_is_not_begun_when_it_is_to_end_is_left_out() {
        let (_reader, mut console) = stopped(0);
        assert_eq!(console.write(b"whole\n").unwrap_err().kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn what_is_begun_when_it_is_to_end_is_finished_for_who_reads() {
        use std::io::Read as _;
        let (mut reader, mut console) = stopped(CHUNK);
        let line = [vec![b'x'; 10 * CHUNK], vec![b'\n']].concat();
        let read = std::thread::spawn(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).map(|_| read)
        });
        let written = console.write(&line);
        drop(console);
        let read = read.join().unwrap().unwrap();
        // On a very slow host the line may be cut off. Then the result must report this.
        assert_eq!(written.is_ok(), read.ends_with(&line), "{written:?}");
    }

    #[test]
    fn what_nobody_reads_to_its_end_is_said_to_be_cut_off() {
        let (_reader, mut console) = stopped(CHUNK);
        let began = Instant::now();
        let error = console.write(&[b'x'; 10 * CHUNK]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().ends_with("what was printed last is cut off"), "{error}");
        assert!(began.elapsed() >= LAST_WORDS);
    }

    #[test]
    fn a_full_disk_is_told() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let error = SystemConsole::with_output(full).write(b"x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
