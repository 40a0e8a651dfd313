// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is told of processes, against what they, and whoever waits for them, know of it.

use std::collections::HashMap;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use topstat_live::events::{Told, during, number, text};
use topstat_live::role::{Role, say, told as heard};
use topstat_live::{Case, case, note, pace};
use topstat_model::events::Event;

/// A sample that needs what events need of the kernel, too: atomics that return a value.
const ATOMICS: &str = "net_ports/pps";

pub fn cases() -> Vec<Case> {
    vec![
        case!(each_of_a_storm_is_told_with_its_end, Root, Sample(ATOMICS); OuterKernels, ComeAndGo),
        case!(all_threads_are_in_the_end_of_a_process, Root, Sample(ATOMICS); OuterKernels),
        case!(what_is_executed_is_told, Root, Sample(ATOMICS); OuterKernels),
    ]
}

/// What is used behind the last look at the clock: from there to the end of the process, and in the kernel from where its
/// parent is told to where it leaves its CPU.
const TAIL: Duration = Duration::from_millis(3);
/// How many children there are at a time.
const AT_A_TIME: u64 = 8;

/// Plays a role, if it is this one.
pub fn play(role: &str, arguments: &[String]) -> Option<ExitCode> {
    match role {
        "events-forks" => forks(arguments.first()?.parse().ok()?),
        "events-threads" => threads(),
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

fn own_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn burn(ns: u64) {
    let begun = own_cpu_ns();
    while own_cpu_ns() - begun < ns {
        std::hint::spin_loop();
    }
}

/// Forks so many children, which use some CPU time and exit; says of each its pid, how it ended, and what it had used,
/// by its own clock just before its end, and by what wait4(2) says.
fn forks(count: u64) {
    let bytes = count as usize * 8;
    // For children to write to, and this process to read.
    // SAFETY: new memory, of so many bytes, which is used by whole words below.
    let memory = unsafe {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0)
    };
    assert_ne!(memory, libc::MAP_FAILED);
    let words = memory.cast::<u64>();
    let mut of = HashMap::new();
    let (mut begun, mut ended) = (0, 0);
    say("ready");
    heard();
    while ended < count {
        if begun < count && begun - ended < AT_A_TIME {
            // SAFETY: this process has one thread, and the child calls nothing that others may hold.
            match unsafe { libc::fork() } {
                -1 => panic!("fork: {}", std::io::Error::last_os_error()),
                0 => {
                    burn(begun * 7919 % 300_000);
                    // SAFETY: within the memory, and no other child's word; and the end of this process.
                    unsafe {
                        words.add(begun as usize).write_volatile(own_cpu_ns());
                        if begun % 100 == 99 {
                            libc::kill(libc::getpid(), libc::SIGKILL);
                        }
                        libc::_exit((begun % 256) as i32);
                    }
                }
                pid => of.insert(pid, begun),
            };
            begun += 1;
            continue;
        }
        let mut status = 0;
        // SAFETY: plain numbers.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both are there to be written.
        let pid = unsafe { libc::wait4(-1, &raw mut status, 0, &raw mut usage) };
        let number = of.remove(&pid).expect("a child");
        let us = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
        // SAFETY: within the memory; its writer has ended.
        let own = unsafe { words.add(number as usize).read_volatile() };
        say(format_args!("{pid} {status} {own} {}", (us(usage.ru_utime) + us(usage.ru_stime)) * 1000));
        ended += 1;
    }
    say("done");
    heard();
}

/// Four threads use CPU time; one of them ends the process, by its own clock just before.
fn threads() {
    say("ready");
    heard();
    let burning: Vec<_> = (0..3).map(|_| std::thread::spawn(|| burn(20_000_000))).collect();
    let last = std::thread::spawn(move || {
        for thread in burning {
            thread.join().expect("a thread");
        }
        burn(5_000_000);
        say(own_cpu_ns());
        std::process::exit(3);
    });
    let _ = last.join();
}

/// The only event of this name of a process.
fn only<'a>(told: &'a Told, event: &str, pid: u64) -> &'a Event {
    let found: Vec<_> = told.events.iter().filter(|e| e.kind.event == event && number(e, "pid") == pid).collect();
    assert_eq!(found.len(), 1, "{event} of {pid}: {found:?}");
    found[0]
}

fn each_of_a_storm_is_told_with_its_end() {
    let count = pace::work(20_000, 300);
    let (told, (parent, lines)) = during(&["tasks"], || {
        let mut role = Role::start("events-forks", &[&count.to_string()]);
        role.expect("ready");
        role.tell("go");
        let lines: Vec<_> = std::iter::from_fn(|| Some(role.hear()).filter(|line| line != "done")).collect();
        let parent = role.pid();
        role.finish();
        (parent, lines)
    });
    let account = &told.accounts["tasks"];
    assert_eq!((lines.len() as u64, account.dropped), (count, 0), "{account:?}");
    let mut events: HashMap<(u64, &str), Vec<&Event>> = HashMap::new();
    for event in told.events.iter().filter(|event| number(event, "ppid") == u64::from(parent)) {
        events.entry((number(event, "pid"), &event.kind.event)).or_default().push(event);
    }
    let (mut most, mut unseen) = (0, 0);
    for line in &lines {
        let words: Vec<u64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
        let [pid, status, own, waited] = words[..] else { panic!("{line}") };
        let fork = events.remove(&(pid, "fork")).unwrap_or_default();
        unseen += u64::from(fork.is_empty());
        assert!(fork.len() <= 1, "{line}: {fork:?}");
        let exit = events.remove(&(pid, "exit")).unwrap_or_default();
        assert_eq!(exit.len(), 1, "{line}: {exit:?}");
        let exit = exit[0];
        assert_eq!(number(exit, "code"), status >> 8 & 0xff, "{line}: {exit:?}");
        assert_eq!(number(exit, "signal"), status & 0x7f, "{line}: {exit:?}");
        let cpu = number(exit, "cpu_ns");
        let tail = TAIL.as_nanos() as u64 * u64::from(pace::slowdown());
        // wait4(2) tells whole microseconds of two times.
        assert!(cpu + 2000 + pace::tick_ns() >= own, "{line}: it had used more: {exit:?}");
        assert!(cpu <= waited + tail + pace::tick_ns(), "{line}: it has used less: {exit:?}");
        assert_eq!(cpu, number(exit, "user_ns") + number(exit, "system_ns"));
        most = most.max(cpu.abs_diff(waited));
    }
    assert!(unseen <= account.skipped, "{unseen} were not told to be forked: {account:?}");
    assert!(events.is_empty(), "more is told than was: {:?}", events.values().next());
    note(format!("{count} processes, CPU time within {most} ns of wait4(2)'s: {account:?}"));
}

fn all_threads_are_in_the_end_of_a_process() {
    let (told, (pid, own)) = during(&["tasks"], || {
        let mut role = Role::start("events-threads", &[]);
        role.expect("ready");
        role.tell("go");
        let own: u64 = role.hear().parse().expect("a number");
        let pid = role.pid();
        role.finish();
        (pid, own)
    });
    let exit = only(&told, "exit", pid.into());
    let cpu = number(exit, "cpu_ns");
    let tail = TAIL.as_nanos() as u64 * u64::from(pace::slowdown());
    assert!((own..own + tail).contains(&(cpu + pace::tick_ns())), "{cpu} ns, and it says {own}");
    assert_eq!(number(exit, "code"), 3);
}

fn what_is_executed_is_told() {
    // What would do something to a terminal.
    let words = ["plain", "two words", "\x1b[31mred", "", "ä\u{202e}"];
    let (told, pid) = during(&["tasks"], || {
        let mut child = Command::new("/bin/true").args(words).spawn().expect("start it");
        let pid = child.id();
        assert!(child.wait().expect("wait for it").success());
        // A program that is not there executes nothing.
        assert!(Command::new("/nonexistent/program").spawn().is_err());
        pid
    });
    let exec = only(&told, "exec", pid.into());
    assert_eq!(text(exec, "file"), "/bin/true");
    assert_eq!(text(exec, "comm"), "true");
    assert_eq!(number(exec, "ppid"), u64::from(std::process::id()));
    let payload = exec.payload.as_ref().expect("arguments");
    let expected: Vec<_> = std::iter::once("/bin/true").chain(words).collect();
    assert_eq!(payload.list().collect::<Vec<_>>(), expected);
    let mut written = Vec::new();
    topstat_model::events::text::event(exec, &mut written);
    let line = String::from_utf8(written).expect("UTF-8");
    assert!(!line.trim_end().contains(|c: char| c.is_control() || c == '\u{202e}'), "{line:?}");
    assert_eq!(only(&told, "exit", pid.into()).kind.source, "tasks");
    assert!(told.events.iter().all(|event| !text(event, "comm").contains("nonexistent")));
}
