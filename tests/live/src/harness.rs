// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs tests one after the other, for they share the host; but first, side by side, those that do not mind. A test whose
//! needs are not met is reported as ignored, with the reason, and never as passed.

use std::cell::Cell;
use std::fs::File;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Trial};
use rustix::fs::{FlockOperation, flock};

use crate::need::Need;
use crate::pace;

/// Where else than on the host that builds topstat a test is asked for, and why. scripts/vm-suite and .ci/run choose by
/// these; what stands on no test is not asked there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// What depends on the kernel: each kind of socket and owner is counted, tasks are, and programs can be attached,
    /// detached and replaced. Not what asserts a cost in real time: an emulated CPU tells nothing of it.
    EveryKernel,
    /// The same, where kernels between the oldest and the newest that count alike differed in nothing so far.
    OuterKernels,
    /// What is computed from that, by code that is the same everywhere: of one kernel, the oldest that all of topstat is for.
    Computed,
    /// The daemon and its files: of one kernel, the newest.
    Daemon,
    /// Where objects come and go: on kernels that look for overruns and use after free.
    ComeAndGo,
    /// The same where it takes such a kernel long, or it has to inject faults: on the one that looks for everything.
    Checked,
    /// A service under a real service manager.
    Service,
    /// What compilers, the C library and tools of another distribution may have made different on the same kernel.
    Distribution,
}

impl Tag {
    const ALL: [(&'static str, Tag); 8] = [
        ("every-kernel", Tag::EveryKernel),
        ("outer-kernels", Tag::OuterKernels),
        ("computed", Tag::Computed),
        ("daemon", Tag::Daemon),
        ("come-and-go", Tag::ComeAndGo),
        ("checked", Tag::Checked),
        ("service", Tag::Service),
        ("distribution", Tag::Distribution),
    ];

    fn of(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, tag)| *tag).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(known, _)| *known).collect();
            format!("{TAGS}: there is no tag '{name}': there are {}", names.join(", "))
        })
    }
}

/// A test.
pub struct Case {
    /// Its name: `what_holds`.
    pub name: &'static str,
    /// What it needs.
    pub needs: &'static [Need],
    /// Where it is asked for.
    pub tags: &'static [Tag],
    /// Whether it may run while others do: it measures nothing that they could disturb, takes no snapshot whose rows or
    /// totals are asserted, and changes nothing that all share (sysctls, limits, CPUs, delay accounting).
    pub beside: bool,
    /// The test itself; it fails by panicking.
    pub run: fn(),
}

/// Writes the name of a test's function beside it: `case!(function, Need …; Tag …)`.
#[macro_export]
macro_rules! case {
    ($run:path $(, $need:ident $(($($argument:expr),+))?)* $(; $($tag:ident),+)?) => {
        $crate::Case {
            name: stringify!($run),
            needs: const { &[$($crate::Need::$need $(($($argument),+))?),*] },
            tags: &[$($($crate::Tag::$tag),+)?],
            beside: false,
            run: $run,
        }
    };
}

/// The same of a test that may run while others do: see [`Case::beside`].
#[macro_export]
macro_rules! beside {
    ($($case:tt)*) => {
        $crate::Case { beside: true, ..$crate::case!($($case)*) }
    };
}

/// So many run side by side: they wait more than they compute.
const BESIDE: usize = 4;

/// How often a test is tried that others have disturbed.
const ATTEMPTS: u32 = 4;
/// How long to wait for them to be done.
const PATIENCE: Duration = Duration::from_secs(5);

thread_local! {
    /// Of the test that runs on this thread: its place among the notes.
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Why an attempt shows nothing.
struct Disturbed(String);

/// Ends an attempt of a test: what it has found is explained by others who use the same kernel, by a witness that is not
/// topstat (see [`Witness`](crate::Witness)). It is tried again, a few times; each is printed, and counted at the end. Nothing
/// else is ever tried again: a panic is a failure.
pub fn disturbed(reason: impl Into<String>) -> ! {
    std::panic::resume_unwind(Box::new(Disturbed(reason.into())))
}

/// Why a test that has begun could not be done here.
struct Skipped(String);

/// For a test that finds out only while it runs that the host lacks what it needs: it is reported as ignored, with the
/// reason. The hook of panics is not called: nothing went wrong.
pub fn skip(reason: impl Into<String>) -> ! {
    std::panic::resume_unwind(Box::new(Skipped(reason.into())))
}

/// Of each test in turn: its name, and what it has noted down.
static NOTES: Mutex<Vec<(String, Vec<String>)>> = Mutex::new(Vec::new());

fn notes() -> std::sync::MutexGuard<'static, Vec<(String, Vec<String>)>> {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes down something measured, to be printed at the end. Where a test's other threads do, it is the last one's that has
/// begun: only of tests that run alone is that known to be theirs.
pub fn note(text: impl Into<String>) {
    let mut notes = notes();
    let last = notes.len().checked_sub(1);
    if let Some(number) = NUMBER.get().or(last) {
        notes[number].1.push(text.into());
    }
}

/// Waits until no other run of these tests is under way on this host; the loads of two would fill each other's tables.
/// Where there can be no lock there is none.
fn alone() -> Option<File> {
    let lock = File::create(std::env::temp_dir().join("topstat-live.lock")).ok()?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        eprintln!("waiting for another run of these tests to end");
        flock(&lock, FlockOperation::LockExclusive).ok()?;
    }
    Some(lock)
}

/// Names of tests, or what they begin with, separated by blanks: those are run of which a name has it, from its beginning
/// or behind a `::`. The command line takes one part only.
const ONLY: &str = "TOPSTAT_LIVE_ONLY";

/// Names of tags, separated by blanks: the tests are run that have one of them.
const TAGS: &str = "TOPSTAT_LIVE_TAGS";

/// What libtest's programs end with when a test failed.
const FAILED: u8 = 101;

/// What is to be run.
struct Choice {
    names: Vec<String>,
    tags: Vec<Tag>,
}

impl Choice {
    fn new(names: &str, tags: &str) -> Result<Self, String> {
        let names = names.split_whitespace().map(str::to_owned).collect();
        Ok(Self { names, tags: tags.split_whitespace().map(Tag::of).collect::<Result<_, _>>()? })
    }

    fn has(&self, name: &str, tags: &[Tag]) -> bool {
        let named = |part: &String| name.starts_with(part) || name.contains(&format!("::{part}"));
        (self.names.is_empty() || self.names.iter().any(named))
            && (self.tags.is_empty() || self.tags.iter().any(|tag| tags.contains(tag)))
    }
}

/// Runs the tests that the command line and the environment ask for.
pub fn run(cases: Vec<(&'static str, Vec<Case>)>) -> ExitCode {
    let arguments = Arguments::from_args();
    let _lock = (!arguments.list).then(alone);
    let said = |name: &str| std::env::var(name).unwrap_or_default();
    let choice = Choice::new(&said(ONLY), &said(TAGS)).unwrap_or_else(|e| panic!("{e}"));
    let (mut beside, mut one_by_one) = (Vec::new(), Vec::new());
    for (module, case) in
        cases.into_iter().flat_map(|(module, cases)| cases.into_iter().map(move |case| (module, case)))
    {
        let name = format!("{module}::{}", case.name);
        if choice.has(&name, case.tags) {
            let part = if case.beside { &mut beside } else { &mut one_by_one };
            part.push(trial(name, case));
        }
    }
    // Guests have as many CPUs as one of the host's.
    let threads = if pace::slowdown() > 1 { 1 } else { BESIDE };
    let conclude = |trials: Vec<Trial>, threads: usize| {
        let threads = arguments.test_threads.unwrap_or(threads);
        libtest_mimic::run(&Arguments { test_threads: Some(threads), ..arguments.clone() }, trials)
    };
    let failed = [(beside, threads), (one_by_one, 1)].map(|(trials, threads)| conclude(trials, threads).has_failed());
    let notes = notes();
    for (title, lines) in notes.iter() {
        println!("{title}\n    {}", lines.join("\n    "));
    }
    let again = notes.iter().flat_map(|(_, lines)| lines).filter(|line| line.starts_with(AGAIN)).count();
    println!("attempts that others have disturbed, tried again: {again}");
    if failed.contains(&true) { ExitCode::from(FAILED) } else { ExitCode::SUCCESS }
}

/// What the note of an attempt begins with that is tried again.
const AGAIN: &str = "tried again:";

/// How a test went that has not failed.
enum Done {
    Passed,
    Skipped(String),
}

/// Runs a test, and again where it was disturbed, which is reported. Panics with what it panics with; the error is that no
/// attempt was undisturbed.
fn attempts(run: impl Fn(), pause: Duration, report: impl Fn(String)) -> Result<Done, String> {
    for attempt in 1..=ATTEMPTS {
        let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(&run)) else { return Ok(Done::Passed) };
        let reason = match panic.downcast::<Disturbed>() {
            Ok(disturbed) => disturbed.0,
            Err(panic) => match panic.downcast::<Skipped>() {
                Ok(skipped) => return Ok(Done::Skipped(skipped.0)),
                Err(panic) => std::panic::resume_unwind(panic),
            },
        };
        report(format!("{AGAIN} attempt {attempt} of {ATTEMPTS} was disturbed: {reason}"));
        std::thread::sleep(pause);
    }
    Err(format!("others have disturbed all of {ATTEMPTS} attempts: see above"))
}

fn trial(name: String, case: Case) -> Trial {
    let title = name.clone();
    Trial::ignorable_test(name, move || {
        if let Some(reason) = case.needs.iter().find_map(|need| need.missing()) {
            return Ok(Completion::ignored_with(reason));
        }
        let begun = Instant::now();
        let mut noted = notes();
        NUMBER.set(Some(noted.len()));
        noted.push((title.clone(), Vec::new()));
        drop(noted);
        let report = |said: String| {
            eprintln!("{title}: {said}");
            note(said);
        };
        if let Done::Skipped(reason) = attempts(case.run, PATIENCE, report)? {
            return Ok(Completion::ignored_with(reason));
        }
        note(format!("{:.1} s", begun.elapsed().as_secs_f64()));
        Ok(Completion::Completed)
    })
}

/// What the harness itself promises, in the form of its cases: run by a test, with others.
pub mod itself {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::{ATTEMPTS, AssertUnwindSafe, Choice, Done, Duration, Tag, attempts, disturbed, skip};

    /// How often it was run and that reported, and how it ended; `None`: it has failed.
    fn tried(run: impl Fn(u32)) -> (u32, u32, Option<Done>) {
        let (count, reports) = (AtomicU32::new(0), AtomicU32::new(0));
        let counted = || run(count.fetch_add(1, Ordering::Relaxed) + 1);
        let report = |said: String| {
            assert!(said.contains("others, on purpose"), "{said}");
            reports.fetch_add(1, Ordering::Relaxed);
        };
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| attempts(counted, Duration::ZERO, report)));
        (count.into_inner(), reports.into_inner(), done.ok().and_then(Result::ok))
    }

    /// A panic is never tried again, whatever has happened before; a disturbance is, and is a failure if it does not end.
    pub fn only_what_was_disturbed_is_tried_again() {
        let defect = || std::panic::resume_unwind(Box::new("a defect, on purpose"));
        let others = || disturbed("others, on purpose");
        assert!(matches!(tried(|_| ()), (1, 0, Some(Done::Passed))));
        assert!(matches!(tried(|_| defect()), (1, 0, None)));
        assert!(matches!(tried(|_| skip("not here")), (1, 0, Some(Done::Skipped(reason))) if reason == "not here"));
        assert!(matches!(
            tried(|attempt| if attempt < 3 {
                others()
            }),
            (3, 2, Some(Done::Passed))
        ));
        assert!(matches!(tried(|attempt| if attempt < 2 { others() } else { defect() }), (2, 1, None)));
        assert!(matches!(tried(|_| others()), (ATTEMPTS, ATTEMPTS, None)));
    }

    /// By whole parts of names, and by tags that there are.
    pub fn tests_are_chosen_by_name_and_tag() {
        let has = |names, tags, own: &[Tag]| Choice::new(names, tags).expect("tags").has("inet::owners::who", own);
        assert!(has("", "", &[]));
        assert!(has("owners::", "", &[]) && has("inet::", "", &[]) && has("x owners::wh", "", &[]));
        assert!(!has("wners::", "", &[]) && !has("pins", "", &[]));
        assert!(has("", "daemon computed", &[Tag::Computed]) && !has("", "daemon", &[Tag::Computed]));
        assert!(!has("", "daemon", &[]) && !has("pins", "computed", &[Tag::Computed]));
        assert!(Choice::new("", "daemons").is_err_and(|e| e.contains("'daemons'") && e.contains("come-and-go")));
    }
}
