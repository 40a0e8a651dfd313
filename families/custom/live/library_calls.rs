// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of the library about system calls and files, beside the calls that a thread of the test has made.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use topstat_live::{Case, case};
use topstat_model::Field;

use super::library::{Known, Worker, ns};

pub fn cases() -> Vec<Case> {
    vec![
        case!(files_that_are_opened_and_deleted, Root, Tracefs; EveryKernel),
        case!(calls_and_their_errors, Root, Tracefs; EveryKernel),
        case!(bytes_of_calls, Root, Tracefs; EveryKernel),
        case!(waits_for_other_threads, Root, Tracefs; EveryKernel),
    ]
}

fn files_that_are_opened_and_deleted() {
    let mut tables = ["opens", "open-time", "openat-errors", "file-deletions"].map(Known::load);
    let worker = Worker::new("opener");
    // A table keeps the first 63 bytes of a path.
    let path = PathBuf::from(format!("/tmp/{}", worker.name));
    let none = path.with_extension("none");
    let shown = path.display().to_string();
    let elapsed = worker.run(move || {
        let begun = Instant::now();
        let name = CString::new(path.as_os_str().as_bytes()).expect("a path");
        for _ in 0..50 {
            drop(File::create(&path).expect("a file"));
            assert!(File::open(&none).is_err(), "there is no such file");
        }
        for _ in 0..7 {
            drop(File::create(&path).expect("a file"));
            // SAFETY: the name ends with a zero.
            assert_eq!(unsafe { libc::unlinkat(libc::AT_FDCWD, name.as_ptr(), 0) }, 0);
        }
        begun.elapsed()
    });
    let [opens, time, errors, deletions] = &mut tables;
    let of_file = |column| [(column, Field::from(shown.as_str())), worker.comm()];
    opens.has(&of_file("filename"), 57..=57);
    opens.has(&[worker.comm()], 107..=107);
    time.took(&of_file("filename"), 57..=57, 57..=ns(elapsed));
    errors.has(&[worker.comm(), ("ret", (-i64::from(libc::ENOENT)).into())], 50..=50);
    errors.has(&[worker.comm()], 50..=50);
    deletions.has(&of_file("pathname"), 7..=7);
}

fn calls_and_their_errors() {
    let mut tables = ["system-calls", "system-call-time", "system-call-errors"].map(Known::load);
    let worker = Worker::new("caller");
    let (slept, elapsed) = worker.run(|| {
        let begun = Instant::now();
        for _ in 0..1000 {
            // SAFETY: the first call has no argument, and the descriptor of the second is never open.
            unsafe {
                libc::syscall(libc::SYS_getppid);
                libc::close(-1);
            }
        }
        let middle = Instant::now();
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        for _ in 0..3 {
            // SAFETY: both arguments are what the call wants.
            unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
        }
        (middle.elapsed(), begun.elapsed())
    });
    let [calls, time, errors] = &mut tables;
    let of = |number: i64| [worker.comm(), ("id", number.into())];
    calls.has(&of(libc::SYS_getppid), 1000..=1000);
    calls.has(&of(libc::SYS_close), 1000..=1000);
    time.took(&of(libc::SYS_getppid), 1000..=1000, 1000..=ns(elapsed));
    let sleeps = time.sum(&of(libc::SYS_nanosleep)).events + time.sum(&of(libc::SYS_clock_nanosleep)).events;
    let times = time.sum(&of(libc::SYS_nanosleep)).value + time.sum(&of(libc::SYS_clock_nanosleep)).value;
    assert!(sleeps == 3 && times >= 60_000_000 && times <= ns(slept), "{sleeps} sleeps of {times} ns in {slept:?}");
    errors
        .has(&[worker.comm(), ("id", libc::SYS_close.into()), ("ret", (-i64::from(libc::EBADF)).into())], 1000..=1000);
    errors.has(&of(libc::SYS_getppid), 0..=0);
}

fn bytes_of_calls() {
    let mut tables = ["read-bytes", "write-bytes", "small-writes"].map(Known::load);
    let worker = Worker::new("copier");
    let fd = worker.run(|| {
        let mut zero = File::open("/dev/zero").expect("a file");
        let mut null = File::create("/dev/null").expect("a file");
        for size in 1..=1000 {
            let mut bytes = vec![0; size];
            zero.read_exact(&mut bytes).expect("zeroes");
            null.write_all(&bytes).expect("a write");
        }
        null.as_raw_fd()
    });
    let [read, written, small] = &mut tables;
    let own = [worker.comm(), ("pid", std::process::id().into())];
    read.has(&own, 500_500..=500_500);
    let of_file = [worker.comm(), ("fd", u64::from(fd.unsigned_abs()).into())];
    written.has(&of_file, 500_500..=500_500);
    small.has(&of_file, 511..=511);
}

/// The thread waits for another one that never comes.
fn waits_for_other_threads() {
    let mut time = Known::load("futex-time");
    let begun = Instant::now();
    let worker = Worker::new("waiter");
    let (times, waited) = worker.run(|| {
        let (lock, never) = (Mutex::new(()), Condvar::new());
        let begun = Instant::now();
        for _ in 0..5 {
            let guard = lock.lock().expect("a lock");
            drop(never.wait_timeout_while(guard, Duration::from_millis(20), |()| true));
        }
        (5, ns(begun.elapsed()))
    });
    assert!(waited >= 100_000_000);
    // The thread waits for its work in the same way.
    time.took(&[worker.comm()], times..=1000, 100_000_000..=ns(begun.elapsed()));
}
