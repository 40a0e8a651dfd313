// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A terminal with a program on it: the test types keys, and reads the screen. Live tests use it, too.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// The longest wait: far more than any step takes, also on a busy machine and in an emulated guest.
const PATIENCE: Duration = Duration::from_secs(120);

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).expect("a screen has cells")
}

/// A terminal with a program on it. When it is dropped, the program is killed.
pub struct Terminal {
    master: Option<File>,
    slave: File,
    child: Child,
    screen: vt100::Parser,
}

impl Terminal {
    /// Starts a command on a terminal with this number of rows and columns.
    pub fn start(mut command: Command, (rows, columns): (u16, u16)) -> Self {
        // The program must not hold its own terminal open.
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap();
        let slave = File::options().read(true).write(true).open(OsStr::from_bytes(path.as_bytes())).unwrap();
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        // The described features of the terminal must not depend on the environment of the test.
        for name in ["NO_COLOR", "COLORTERM"] {
            if command.get_envs().all(|(given, _)| given != name) {
                command.env_remove(name);
            }
        }
        let child = command
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8")
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave.try_clone().unwrap())
            .spawn()
            .unwrap();
        let screen = vt100::Parser::new(cells(rows), cells(columns), 0);
        Self { master: Some(File::from(master)), slave, child, screen }
    }

    /// The screen as it was last read.
    pub fn screen(&self) -> &vt100::Screen {
        self.screen.screen()
    }

    /// The text of the screen.
    pub fn text(&self) -> String {
        self.screen.screen().contents()
    }

    /// Reads until the screen has a text. A text that fills its row may continue in the next row, since the length of a message
    /// depends on its paths.
    pub fn wait_for(&mut self, text: &str) {
        self.wait_until(text, |screen| {
            let columns = screen.size().1.get();
            let width = usize::from(columns);
            let all: String = screen.rows(0, columns).map(|row| format!("{row:<width$}")).collect();
            screen.contents().contains(text) || all.contains(text)
        });
    }

    /// Reads until the screen meets a condition.
    pub fn wait_until(&mut self, what: &str, enough: impl Fn(&vt100::Screen) -> bool) {
        let begin = Instant::now();
        let mut buffer = [0; 65536];
        while !enough(self.screen.screen()) {
            assert!(begin.elapsed() < PATIENCE, "no {what:?} in\n{}", self.text());
            let master = self.master.as_mut().expect("it is open");
            let soon = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            if poll(&mut [PollFd::new(master, PollFlags::IN)], Some(&soon)).unwrap() > 0 {
                let read = master.read(&mut buffer).unwrap();
                self.screen.process(&buffer[..read]);
            }
        }
    }

    /// Gives the terminal another size, and signals the program: the terminal belongs to no session, so the kernel signals no
    /// process.
    pub fn resize(&mut self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(self.master.as_ref().expect("it is open"), size).unwrap();
        self.screen.screen_mut().set_size(cells(rows), cells(columns));
        self.send(Signal::WINCH);
    }

    /// Whether the terminal echoes input.
    pub fn echoes(&self) -> bool {
        tcgetattr(&self.slave).unwrap().local_modes.contains(LocalModes::ECHO)
    }

    /// Whether the terminal edits lines and echoes input.
    pub fn is_cooked(&self) -> bool {
        tcgetattr(&self.slave).unwrap().local_modes.contains(LocalModes::ECHO | LocalModes::ICANON)
    }

    /// Has the program draw until the terminal's buffer is full. The test reads nothing of the output.
    pub fn fill(&mut self) {
        let begin = Instant::now();
        let mut full = 0;
        // The buffer may have room again for a frame or two.
        while full < 10 {
            assert!(begin.elapsed() < PATIENCE, "the terminal takes all");
            for rows in [50, 51] {
                self.resize(rows, 200);
                std::thread::sleep(Duration::from_millis(20));
            }
            let room = poll(&mut [PollFd::new(&self.slave, PollFlags::OUT)], Some(&Timespec::default())).unwrap();
            full = if room == 0 { full + 1 } else { 0 };
        }
    }

    /// Waits for the end of the program without reading its output.
    pub fn end_unread(&mut self) {
        let begin = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Closes the terminal.
    pub fn hang_up(&mut self) {
        self.master = None;
    }

    /// Types these keys.
    pub fn press(&mut self, keys: &str) {
        self.master.as_mut().expect("it is open").write_all(keys.as_bytes()).unwrap();
    }

    /// Sends a signal to the program.
    pub fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until the program has stopped: it gives the terminal back first.
    pub fn wait_until_stopped(&self) {
        let begin = Instant::now();
        let stat = format!("/proc/{}/stat", self.child.id());
        // The state follows the name, which is in parentheses.
        while !std::fs::read_to_string(&stat).unwrap().rsplit(") ").next().unwrap().starts_with('T') {
            assert!(begin.elapsed() < PATIENCE, "it does not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the end of the program, and returns its exit code; `None` if a signal has ended it.
    pub fn end(&mut self) -> Option<i32> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(begin.elapsed() < PATIENCE, "it does not end:\n{}", self.text());
            if let Some(master) = &mut self.master {
                let soon = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
                let mut buffer = [0; 65536];
                if poll(&mut [PollFd::new(master, PollFlags::IN)], Some(&soon)).unwrap() > 0
                    && let Ok(read) = master.read(&mut buffer)
                {
                    self.screen.process(&buffer[..read]);
                }
            }
        }
    }

    /// Checks that the terminal is as it was before the view: it edits lines, echoes input, and shows the first screen.
    pub fn assert_given_back(&mut self) {
        let modes = tcgetattr(&self.slave).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
        self.wait_until("the first screen", |screen| !screen.alternate_screen() && !screen.hide_cursor());
        assert_eq!(self.screen.screen().mouse_protocol_mode(), vt100::MouseProtocolMode::None);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
