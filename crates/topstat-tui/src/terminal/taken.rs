// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes the terminal, with the signals that end or stop the view, and gives it back.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, DisableMouseCapture, EnableMouseCapture};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::{flag, low_level};

/// The time that the view has to end by itself after a signal: a reading of many tables takes as long.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// The signals that end the view.
const ENDING: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT];

/// Signals that have come.
pub struct Signals {
    /// The view has to end.
    pub stop: Arc<AtomicBool>,
    /// The view has to stop until it is continued. Ctrl-Z is no such signal: it comes as a key.
    pub suspend: Arc<AtomicBool>,
}

/// The terminal while the view has it.
pub struct Taken {
    /// The signals that have come since.
    pub signals: Signals,
}

impl Taken {
    /// Takes the terminal. A signal makes the other end of `bell` readable. `ended` is set once the view has ended by itself.
    ///
    /// # Errors
    /// Standard output is no terminal, or signals can't be taken.
    pub fn take(bell: &UnixStream, ended: Arc<AtomicBool>) -> io::Result<Self> {
        let (stop, suspend) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        for signal in ENDING {
            flag::register(signal, Arc::clone(&stop))?;
        }
        flag::register(SIGTSTP, Arc::clone(&suspend))?;
        // This needs another bell: the loop that draws empties the first one. It comes before crossterm's first poll, which would not
        // end on a terminal that is gone.
        let (told, tells) = UnixStream::pair()?;
        tells.set_nonblocking(true)?;
        for signal in ENDING {
            low_level::pipe::register(signal, tells.try_clone()?)?;
        }
        end_with_terminal(told, Arc::clone(&stop), ended)?;
        // crossterm reports changes of the size from the first poll on. The size is queried later, and has the earlier changes.
        event::poll(Duration::ZERO)?;
        // The handlers of a signal run in this order: the flags are set before the bell rings.
        for signal in ENDING.into_iter().chain([SIGTSTP, SIGWINCH]) {
            low_level::pipe::register(signal, bell.try_clone()?)?;
        }
        restore_on_panic();
        let taken = Self { signals: Signals { stop, suspend } };
        enter()?;
        Ok(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // The error is ignored: a terminal that is gone takes no output.
        let _ = give_back();
    }
}

/// Ends the program once the other end of the terminal is closed. A terminal that belongs to no session sends no SIGHUP then. The
/// loop that takes keys can't end the program: crossterm reads a terminal that has hung up for ever. Nothing has to be given back
/// then, and everything that the program has loaded ends with it.
///
/// After a signal, this thread also ends the program if the view does not end by itself: `told` becomes readable when a signal
/// has come. A signal does not end a read of a terminal that other processes read, too, or a read of a file of a daemon that is
/// stuck.
fn end_with_terminal(told: UnixStream, stop: Arc<AtomicBool>, ended: Arc<AtomicBool>) -> io::Result<()> {
    let watch = move || {
        let stdout = rustix::stdio::stdout();
        let mut fds = [PollFd::new(&stdout, PollFlags::empty()), PollFd::new(&told, PollFlags::IN)];
        while !stop.load(Ordering::SeqCst) {
            match poll(&mut fds, None) {
                Ok(_) if !fds[0].revents().is_empty() => {
                    let _ = low_level::emulate_default_handler(SIGHUP);
                    return;
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
        std::thread::sleep(ENDS_WITHIN);
        if !ended.load(Ordering::SeqCst) {
            give_back_stuck();
            let _ = low_level::emulate_default_handler(SIGTERM);
        }
    };
    std::thread::Builder::new().name("hangup".to_owned()).spawn(watch).map(drop)
}

/// Gives the terminal back although another thread may hold the lock of the output and be stuck.
fn give_back_stuck() {
    if !IS_OURS.swap(false, Ordering::SeqCst) {
        return;
    }
    let _ = disable_raw_mode();
    let mut left = Vec::new();
    let _ = execute!(left, DisableMouseCapture, LeaveAlternateScreen, Show);
    let stdout = rustix::stdio::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::OUT)];
    // A terminal that takes no output now would keep the program from ending.
    if poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
        let _ = rustix::io::write(stdout, &left);
    }
}

/// The view has the terminal. If it were given back twice, the cursor would return to its first position, and the output in
/// between would be overwritten.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// Whether the view has the terminal.
pub fn is_ours() -> bool {
    IS_OURS.load(Ordering::SeqCst)
}

fn enter() -> io::Result<()> {
    IS_OURS.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, EnableMouseCapture, Hide)
}

/// Gives the terminal back, unless it has been given back.
///
/// # Errors
/// The terminal is gone.
pub fn give_back() -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    if !IS_OURS.swap(false, Ordering::SeqCst) {
        return Ok(());
    }
    let raw = disable_raw_mode();
    let left = execute!(stdout, DisableMouseCapture, LeaveAlternateScreen, Show);
    raw.and(left).and(stdout.flush())
}

/// Gives the terminal back before a panic is printed, so that the message is not lost with the screen.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let _ = give_back();
            before(panic);
        }));
    });
}

/// Gives the terminal back, and stops the program until it is continued.
///
/// # Errors
/// The terminal is gone.
pub fn suspend() -> io::Result<()> {
    give_back()?;
    low_level::emulate_default_handler(SIGTSTP)?;
    enter()
}
