// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports the progress of loading, if loading takes long: on a host with a million sockets it takes seconds to find them all.

use std::io::IsTerminal as _;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The time between two reports. Loading that takes less reports nothing.
const EVERY: Duration = Duration::from_secs(1);

/// Does the work. During the work a line on standard error, if that is a terminal, shows the number of found objects.
pub fn told<T>(work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let (done, end) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || tell(&end));
        let result = work();
        drop(done);
        result
    })
}

/// Reports until the other end of the channel is dropped.
fn tell(end: &mpsc::Receiver<()>) {
    const CLEAR: &str = "\r\x1b[K";
    let begun = Instant::now();
    while end.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
        let (found, seconds) = (topstat_kernel::found(), begun.elapsed().as_secs());
        eprint!("{CLEAR}topstat: loading, {seconds} s: {found} sockets were there before and are known now");
    }
    if begun.elapsed() >= EVERY {
        eprint!("{CLEAR}");
    }
}
