// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares the events of processes with the knowledge of these processes and of their parents.

use std::collections::HashMap;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Barrier};

use rustix::time::{ClockId, clock_gettime};
use topstat_live::cgroup::Group;
use topstat_live::events::{Told, during, number, text};
use topstat_live::role::{Role, say, told as heard};
use topstat_live::{Case, alone, case, note, pace};
use topstat_model::events::Event;

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Fills: each_of_a_storm_is_told_with_its_end, Root, CgroupV2, Atomics; EveryKernel, ComeAndGo, Gate),
        case!(all_threads_are_in_the_end_of_a_process, Root, CgroupV2, Atomics; EveryKernel),
        case!(what_is_executed_is_told, Root, Atomics; EveryKernel),
    ]
}

/// Children that exist at a time.
const AT_A_TIME: u64 = 8;

/// Plays one of these roles.
pub fn play(role: &str, arguments: &[String]) -> Option<ExitCode> {
    match role {
        "events-forks" => forks(arguments.first()?.parse().ok()?),
        "events-threads" => threads(),
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

/// Waits for a line on its input, and reports its CPU time before and after it. In between, it is moved to another control group.
fn begin() {
    say(format_args!("ready {}", own_cpu_ns()));
    heard();
    say(format_args!("moved {}", own_cpu_ns()));
}

/// A role in its own control group. The scheduler adds a task's time to its group when it adds the time to the task, so both
/// agree to the nanosecond on any CPU and by any clock.
struct Grouped {
    role: Role,
    group: Group,
    /// The role's CPU time when it was moved into the group: at least the first, and at most the second.
    before_ns: [u64; 2],
}

impl Grouped {
    fn start(role: &str, arguments: &[&str]) -> Self {
        let group = Group::new(role).expect("a control group");
        let mut role = Role::start(role, arguments);
        let cpu_ns = |text: String| text.parse().expect("a time");
        let ready = cpu_ns(role.expect("ready"));
        group.take(role.pid());
        role.tell("go");
        let before_ns = [ready, cpu_ns(role.expect("moved"))];
        Self { role, group, before_ns }
    }

    /// Lets the role end. Returns its pid, and the CPU time.
    fn finish(self) -> (u32, Spent) {
        let pid = self.role.pid();
        self.role.finish();
        (pid, Spent { group: self.group, before_ns: self.before_ns })
    }
}

/// The CPU time of the role and its children.
struct Spent {
    group: Group,
    before_ns: [u64; 2],
}

impl Spent {
    /// The bounds of the CPU time, after all have left their CPUs for good. They have when their ends are reported.
    fn between_ns(&self) -> std::ops::RangeInclusive<u64> {
        // The group reports whole µs.
        let ns = self.group.cpu_us() * 1000;
        ns + self.before_ns[0]..=ns + 999 + self.before_ns[1]
    }
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

/// Forks `count` children, which use some CPU time and exit. Reports for each child its pid, its status, and its CPU time, by its
/// own clock just before its end, and by wait4(2).
fn forks(count: u64) {
    let bytes = count as usize * 8;
    // Children write to it, and this process reads it.
    // SAFETY: new memory of `bytes` bytes, which is used by whole words below.
    let memory = unsafe {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0)
    };
    assert_ne!(memory, libc::MAP_FAILED);
    let words = memory.cast::<u64>();
    let mut of = HashMap::new();
    let (mut begun, mut ended) = (0, 0);
    begin();
    while ended < count {
        if begun < count && begun - ended < AT_A_TIME {
            // SAFETY: this process has one thread, and the child calls nothing that takes locks.
            match unsafe { libc::fork() } {
                -1 => panic!("fork: {}", std::io::Error::last_os_error()),
                0 => {
                    burn(begun * 7919 % 300_000);
                    // SAFETY: the word is within the memory and belongs to no other child; the calls end this process.
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
        // SAFETY: both can be written.
        let pid = unsafe { libc::wait4(-1, &raw mut status, 0, &raw mut usage) };
        let number = of.remove(&pid).expect("a child");
        let us = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
        // SAFETY: the word is within the memory, and its writer has ended.
        let own = unsafe { words.add(number as usize).read_volatile() };
        say(format_args!("{pid} {status} {own} {}", (us(usage.ru_utime) + us(usage.ru_stime)) * 1000));
        ended += 1;
    }
    say("done");
    heard();
}

/// Some threads use CPU time and end. The same number of threads use that time and more, until another thread ends the process
/// and all of them at once. That thread reports the process's CPU time just before.
fn threads() {
    const EACH: usize = 4;
    begin();
    let have_burned = Arc::new(Barrier::new(EACH + 1));
    let ending: Vec<_> = (0..EACH).map(|_| std::thread::spawn(|| burn(20_000_000))).collect();
    for _ in 0..EACH {
        let have_burned = Arc::clone(&have_burned);
        std::thread::spawn(move || {
            burn(20_000_000);
            have_burned.wait();
            burn(u64::MAX);
        });
    }
    let last = std::thread::spawn(move || {
        for thread in ending {
            thread.join().expect("a thread");
        }
        have_burned.wait();
        say(own_cpu_ns());
        std::process::exit(3);
    });
    let _ = last.join();
}

/// The only event of this kind of a process.
fn only<'a>(told: &'a Told, event: &str, pid: u64) -> &'a Event {
    let found: Vec<_> = told.events.iter().filter(|e| e.kind.event == event && number(e, "pid") == pid).collect();
    assert_eq!(found.len(), 1, "{event} of {pid}: {found:?}");
    found[0]
}

fn each_of_a_storm_is_told_with_its_end() {
    let count = pace::work(20_000, 300);
    let (told, (lines, (parent, spent))) = during(&["tasks"], || {
        let mut storm = Grouped::start("events-forks", &[&count.to_string()]);
        let lines: Vec<_> = std::iter::from_fn(|| Some(storm.role.hear()).filter(|line| line != "done")).collect();
        (lines, storm.finish())
    });
    let account = &told.accounts["tasks"];
    assert_eq!((lines.len() as u64, account.dropped), (count, 0), "{account:?}");
    let mut events: HashMap<(u64, &str), Vec<&Event>> = HashMap::new();
    for event in told.events.iter().filter(|event| number(event, "ppid") == u64::from(parent)) {
        events.entry((number(event, "pid"), &event.kind.event)).or_default().push(event);
    }
    let own_end = told.events.iter().find(|e| e.kind.event == "exit" && number(e, "pid") == u64::from(parent));
    let (mut all, mut most) = (own_end.map_or(0, |exit| number(exit, "cpu_ns")), 0);
    // Events that the kernel has kept from topstat are not reported, but counted.
    let mut unseen = u64::from(own_end.is_none());
    for line in &lines {
        let words: Vec<u64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
        let [pid, status, own, waited] = words[..] else { panic!("{line}") };
        let fork = events.remove(&(pid, "fork")).unwrap_or_default();
        unseen += u64::from(fork.is_empty());
        assert!(fork.len() <= 1, "{line}: {fork:?}");
        let exit = events.remove(&(pid, "exit")).unwrap_or_default();
        assert!(exit.len() <= 1, "{line}: {exit:?}");
        let Some(exit) = exit.first() else {
            unseen += 1;
            continue;
        };
        assert_eq!(number(exit, "code"), status >> 8 & 0xff, "{line}: {exit:?}");
        assert_eq!(number(exit, "signal"), status & 0x7f, "{line}: {exit:?}");
        let cpu = number(exit, "cpu_ns");
        // wait4(2) may report a child to its parent while the child still runs towards its end.
        assert!(cpu >= own.max(waited), "{line}: it had used more: {exit:?}");
        assert_eq!(cpu, number(exit, "user_ns") + number(exit, "system_ns"));
        most = most.max(cpu - waited);
        all += cpu;
    }
    assert!(unseen <= account.skipped, "{unseen} beginnings and ends were not told: {account:?}");
    assert!(events.is_empty(), "more is told than was: {:?}", events.values().next());
    let spent = spent.between_ns();
    let is_all = spent.contains(&all) || unseen > 0 && all < *spent.start();
    assert!(is_all, "all have used {all} ns, and their control group {spent:?}");
    note(format!(
        "{count} processes, CPU time up to {most} ns more than by wait4(2), {all} ns of {spent:?}: {account:?}"
    ));
}

fn all_threads_are_in_the_end_of_a_process() {
    let (told, (own, (pid, spent))) = during(&["tasks"], || {
        let mut threads = Grouped::start("events-threads", &[]);
        let own: u64 = threads.role.hear().parse().expect("a number");
        (own, threads.finish())
    });
    told.undisturbed();
    let exit = only(&told, "exit", pid.into());
    let cpu = number(exit, "cpu_ns");
    // The kernel itself leaves out the time that a thread uses between the moment it is reaped and its last switch.
    let most = *spent.between_ns().end();
    assert!((own..=most).contains(&cpu), "{cpu} ns; by its own clock {own} before its end, by its group {most}");
    assert_eq!(number(exit, "code"), 3);
    note(format!("{cpu} ns: {} more than just before its end, {} less than its group", cpu - own, most - cpu));
}

fn what_is_executed_is_told() {
    // Words with characters that would affect a terminal.
    let words = ["plain", "two words", "\x1b[31mred", "", "ä\u{202e}"];
    let (told, pid) = during(&["tasks"], || {
        let mut child = Command::new("/bin/true").args(words).spawn().expect("start it");
        let pid = child.id();
        assert!(child.wait().expect("wait for it").success());
        // Executing a file that does not exist makes no event.
        assert!(Command::new("/nonexistent/program").spawn().is_err());
        pid
    });
    told.undisturbed();
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
