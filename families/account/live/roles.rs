// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The roles of other processes in the tests of tasks: they use a given CPU time, have children, and end.

use std::io::Read as _;
use std::process::ExitCode;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use topstat_live::accounts::used_by_children;
use topstat_live::role::{name, say, told};

/// Plays a role, if it is one of these.
pub fn play(role: &str, arguments: &[String]) -> Option<ExitCode> {
    let argument = |i: usize| arguments.get(i).map(String::as_str).expect("an argument");
    match role {
        "burner" => burner(argument(0)),
        "family" => family(),
        "ignorer" => ignorer(),
        "reaper" => reaper(),
        "forker" => forker(),
        "stormer" => stormer(arguments.first().map(|us| Duration::from_micros(us.parse().expect("a pause")))),
        "crowd" => crowd(argument(0).parse().expect("how many")),
        "short" => short(),
        "team" => team(),
        "relay" => relay(),
        "caller" => caller(),
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

fn ns_of(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Runs until the thread has used `ms` milliseconds of CPU time.
fn burn(ms: u64) {
    let end = ns_of(ClockId::ThreadCPUTime) + ms * 1_000_000;
    let mut sum = 0_u64;
    while ns_of(ClockId::ThreadCPUTime) < end {
        // Mostly in user space.
        for i in 0..5000 {
            sum = std::hint::black_box(sum.wrapping_add(i));
        }
    }
}

/// Makes a child that does the work and ends.
fn child(work: impl FnOnce()) -> i32 {
    // SAFETY: this process has one thread, and the child ends without returning.
    match unsafe { libc::fork() } {
        0 => {
            work();
            // SAFETY: ends the child, with nothing to be undone.
            unsafe { libc::_exit(0) }
        }
        pid if pid > 0 => pid,
        _ => panic!("fork: {}", std::io::Error::last_os_error()),
    }
}

fn wait(pid: i32) {
    let mut status = 0;
    // SAFETY: a child of this process.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid, "waitpid: {}", std::io::Error::last_os_error());
}

fn ms(line: &str) -> u64 {
    line.parse().expect("milliseconds")
}

/// Uses the milliseconds of each line that it reads. Answers with its CPU time so far, by its own clock.
fn burner(comm: &str) {
    name(comm);
    say("ready");
    while let Some(line) = told() {
        burn(ms(&line));
        say(format!("burnt {}", ns_of(ClockId::ProcessCPUTime)));
    }
}

/// A child, its child and its grandchild each use the given milliseconds; each parent waits for its child.
fn family() {
    say("ready");
    while let Some(line) = told() {
        let ms = ms(&line);
        let before = used_by_children();
        wait(child(|| {
            burn(ms);
            wait(child(|| {
                burn(ms);
                wait(child(|| burn(ms)));
            }));
        }));
        say(format!("used {}", used_by_children() - before));
    }
}

/// Waits until all processes that hold the pipe have ended.
fn until_all_ended(work: impl FnOnce()) {
    let (mut end, held) = std::io::pipe().expect("a pipe");
    work();
    drop(held);
    end.read_to_end(&mut Vec::new()).expect("read");
}

/// Ignores SIGCHLD, and has a child.
fn ignorer() {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    say("ready");
    while let Some(line) = told() {
        let ms = ms(&line);
        until_all_ended(|| {
            child(|| burn(ms));
        });
        say("done");
    }
}

/// Inherits a grandchild, whose own parent ends first.
fn reaper() {
    // SAFETY: concerns this process alone.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }, 0, "prctl");
    say("ready");
    while let Some(line) = told() {
        let ms = ms(&line);
        until_all_ended(|| {
            let parent = child(|| {
                let first = std::process::id();
                child(|| {
                    // The first parent has ended when this process has another parent.
                    while std::os::unix::process::parent_id() == first {
                        std::thread::yield_now();
                    }
                    burn(ms);
                });
            });
            wait(parent);
        });
        // SAFETY: the grandchild is this process's child by now.
        assert!(unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } > 0, "the grandchild was handed to another");
        say("done");
    }
}

/// Has the given number of children, one after the other; each ends at once.
fn forker() {
    say("ready");
    while let Some(line) = told() {
        for _ in 0..line.parse().expect("how many") {
            wait(child(|| ()));
        }
        say("done");
    }
}

/// Has children that end at once, one after the other, for the given milliseconds. Answers with their number. With a pause before
/// each child, it runs in real time: it takes the CPU from the task that runs there.
fn stormer(pause: Option<Duration>) {
    extern "C" fn child(_: *mut libc::c_void) -> libc::c_int {
        0
    }
    /// The stack of a child that only ends.
    const STACK: usize = 64 << 10;
    let mut stack = vec![0_u128; STACK / size_of::<u128>()];
    if pause.is_some() {
        topstat_live::need::real_time().expect("SCHED_FIFO");
    }
    say("ready");
    while let Some(line) = told() {
        let until = std::time::Instant::now() + Duration::from_millis(ms(&line));
        let mut made = 0_u64;
        while std::time::Instant::now() < until {
            if let Some(pause) = pause {
                std::thread::sleep(pause);
            }
            // SAFETY: the child has its own stack, touches nothing else, and has ended when this returns.
            let pid = unsafe {
                let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
                libc::clone(child, stack.as_mut_ptr_range().end.cast(), flags, std::ptr::null_mut())
            };
            assert!(pid > 0, "clone: {}", std::io::Error::last_os_error());
            wait(pid);
            made += 1;
        }
        say(format!("made {made}"));
    }
}

/// Has `count` children that sleep. On "wake", all of them run for a moment. They share this process's memory: otherwise 100,000
/// of them would not fit on most hosts.
fn crowd(count: usize) {
    /// For a sleeping child, and for the frame of a signal, which holds all of the processor's registers.
    const STACK: usize = 16 << 10;
    extern "C" fn woken(_: libc::c_int) {}
    extern "C" fn child(_: *mut libc::c_void) -> libc::c_int {
        // SAFETY: plain system calls; the child never returns from here.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            loop {
                libc::pause();
            }
        }
    }
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGUSR1, woken as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    let mut stacks = memmap2::MmapOptions::new().len(count * STACK).map_anon().expect("memory for stacks");
    let mut children = Vec::with_capacity(count);
    say("ready");
    while let Some(line) = told() {
        match line.as_str() {
            "come" => {
                for stack in stacks.chunks_exact_mut(STACK) {
                    // SAFETY: the child has its own stack, which outlives it, and touches nothing else.
                    let pid = unsafe {
                        let flags = libc::CLONE_VM | libc::SIGCHLD;
                        libc::clone(child, stack.as_mut_ptr_range().end.cast(), flags, std::ptr::null_mut())
                    };
                    assert!(pid > 0, "child {}: {}", children.len(), std::io::Error::last_os_error());
                    children.push(pid);
                }
            }
            // SAFETY: children that were not waited for yet.
            "wake" => children.iter().for_each(|pid| assert_eq!(unsafe { libc::kill(*pid, libc::SIGUSR1) }, 0)),
            _ => {
                for pid in children.drain(..) {
                    // SAFETY: as above.
                    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
                    wait(pid);
                }
            }
        }
        say("done");
    }
}

/// Has a child with the given name that uses a few milliseconds and ends. Answers with its pid, and the time that it used.
fn short() {
    say("ready");
    while let Some(line) = told() {
        let (comm, ms) = line.split_once(' ').expect("a name, and milliseconds");
        let before = used_by_children();
        let pid = child(|| {
            name(comm);
            burn(ms.parse().expect("milliseconds"));
        });
        wait(pid);
        say(format!("{pid} {}", used_by_children() - before));
    }
}

/// Four threads use the given milliseconds each and end; the process lives on. Answers with the process's CPU time.
fn team() {
    say("ready");
    while let Some(line) = told() {
        let ms = ms(&line);
        std::thread::scope(|scope| {
            for i in 0..4 {
                let thread = std::thread::Builder::new().name(format!("ts-worker-{i}"));
                thread.spawn_scoped(scope, move || burn(ms)).expect("start a thread");
            }
        });
        say(format!("used {}", ns_of(ClockId::ProcessCPUTime)));
    }
}

/// Starts the given number of threads, one after the other; each uses the given milliseconds and ends. Answers with the process's
/// CPU time so far.
fn relay() {
    say("ready");
    while let Some(line) = told() {
        let (threads, each) = line.split_once(' ').expect("how many threads, and milliseconds");
        let each = ms(each);
        for _ in 0..threads.parse().expect("how many") {
            std::thread::spawn(move || burn(each)).join().expect("a thread");
        }
        say(format!("used {}", ns_of(ClockId::ProcessCPUTime)));
    }
}

/// Spins in user space and reads from the kernel in turns. Answers with the time of both, by the thread's CPU clock.
fn caller() {
    let mut source = std::fs::File::open("/dev/zero").expect("open /dev/zero");
    let mut buffer = vec![0; 1 << 20];
    say("ready");
    while told().is_some() {
        let (mut user, mut system) = (0, 0);
        for _ in 0..50 {
            let begin = ns_of(ClockId::ThreadCPUTime);
            let mut sum = 0_u64;
            for i in 0..200_000_u64 {
                sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(i));
            }
            let middle = ns_of(ClockId::ThreadCPUTime);
            for _ in 0..10 {
                source.read_exact(&mut buffer).expect("read");
            }
            system += ns_of(ClockId::ThreadCPUTime) - middle;
            user += middle - begin;
        }
        say(format!("{user} {system}"));
    }
}
