// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The example, beside the signals that the test sends.

use topstat_families::{catalogue, example};
use topstat_live::watch::{everything, load, snapshot};
use topstat_live::{Case, case};
use topstat_model::Field;

pub fn cases() -> Vec<Case> {
    vec![case!(each_signal_is_counted, Root; EveryKernel)]
}

fn each_signal_is_counted() {
    const TIMES: u64 = 700;
    if catalogue().find("signals", "sent").is_none() {
        topstat_families::catalogue().add(example::unlisted()).expect("it is listed");
    }
    let mut source = load(&["signals/sent"], &everything());
    // A signal that nothing else on a host sends.
    let signal = libc::SIGRTMAX() - 1;
    // SAFETY: the handler is no function, and this process receives the signal.
    unsafe {
        libc::signal(signal, libc::SIG_IGN);
        (0..TIMES).for_each(|_| assert_eq!(libc::kill(libc::getpid(), signal), 0));
    }
    let found = snapshot(&mut *source, "signals/sent");
    let own = found.rows.iter().find(|row| row.object[0] == Field::from(signal.unsigned_abs())).expect("its row");
    // Where the kernel preempts programs it skips some, which topstat counts.
    let skipped = found.lost.count("skipped");
    assert!(own.value <= TIMES && own.value + skipped >= TIMES, "{} of {TIMES} signals, {skipped} skipped", own.value);
}
