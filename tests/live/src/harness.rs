// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs each test in a separate process, several side by side. The process has a new network namespace and a new folder for
//! temporary files. Tests that need the whole host give the reason ([`Alone`](crate::Alone)), and run one after the other at the end. If
//! the host does not meet the needs of a test, the test is reported as ignored, with the reason, and never as passed.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::case::{Case, Tag};
use crate::{daemon, need, netns, pace, role, watch};

/// The number of tests that run side by side on two CPUs: tests wait more than they compute.
const BESIDE: usize = 5;

/// The maximum number of attempts at a test that others disturb.
const ATTEMPTS: u32 = 4;
/// The pause before a new attempt, so that the disturbance may end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why an attempt proves nothing.
struct Disturbed(String);

/// Ends an attempt of a test: other users of the kernel explain the result, as a witness outside topstat shows (see
/// [`Witness`](crate::Witness)). The harness repeats the test a few times, prints each attempt, and counts them at the end.
/// It never repeats a test for any other reason: a panic is a failure.
pub fn disturbed(reason: impl Into<String>) -> ! {
    std::panic::resume_unwind(Box::new(Disturbed(reason.into())))
}

/// Why a running test can't finish here.
struct Skipped(String);

/// For a test that finds out only while it runs that the host lacks something: the test is reported as ignored, with the
/// reason. The panic hook is not called, since nothing went wrong.
pub fn skip(reason: impl Into<String>) -> ! {
    std::panic::resume_unwind(Box::new(Skipped(reason.into())))
}

/// The notes of the test that runs in this process.
static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn notes() -> std::sync::MutexGuard<'static, Vec<String>> {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The notes of all tests that have run, below their names.
static SUMMARY: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Adds a measurement to the notes, which are printed at the end.
pub fn note(text: impl Into<String>) {
    notes().push(text.into());
}

/// Waits until no other run of these tests is active on the host; the loads of two runs would fill each other's tables.
/// `None`: the lock file can't be made, and the run goes on without the lock.
fn lock() -> Option<File> {
    let lock = File::create(std::env::temp_dir().join("topstat-live.lock")).ok()?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        eprintln!("waiting for another run of these tests to end");
        flock(&lock, FlockOperation::LockExclusive).ok()?;
    }
    Some(lock)
}

/// Parts of test names, separated by blanks. A test runs if its name has one of them at its beginning or after a `::`. The
/// command line takes one part only.
const ONLY: &str = "TOPSTAT_LIVE_ONLY";

/// Names of tags, separated by blanks: the tests with at least one of the tags run.
const TAGS: &str = "TOPSTAT_LIVE_TAGS";

/// `beside`: the tests that can run beside others; `alone`: the other tests. Empty or missing: both, one after the other. Guests
/// share the work by this.
const PART: &str = "TOPSTAT_LIVE_PART";

/// If not empty, slow tests run, too. A test that is selected by its name always runs.
const SLOW: &str = "TOPSTAT_LIVE_SLOW";

/// Set for the process of a test: the test's name.
const CASE: &str = "TOPSTAT_LIVE_CASE";

/// Set together with [`CASE`]: the file that the process writes its notes to.
const REPORT: &str = "TOPSTAT_LIVE_REPORT";

/// The exit code of libtest's programs after a failed test.
const FAILED: u8 = 101;

/// The exit code of a test's process that can't finish here; the reason is the last line of its report.
const SKIPPED: u8 = 77;

/// A test that takes longer than this hangs. A slow host gets more time.
const LIMIT: Duration = Duration::from_secs(600);

/// If one of these is set, a test has no limit (`make soak`, `make faults`).
const UNLIMITED: [&str; 2] = [need::SOAK_SECONDS, "TOPSTAT_FAULTS"];

/// The tests to run.
struct Choice {
    names: Vec<String>,
    tags: Vec<Tag>,
}

impl Choice {
    fn new(names: &str, tags: &str) -> Result<Self, String> {
        let names = names.split_whitespace().map(str::to_owned).collect();
        let tags: Result<_, _> = tags.split_whitespace().map(Tag::of).collect();
        Ok(Self { names, tags: tags.map_err(|why| format!("{TAGS}: {why}"))? })
    }

    fn has(&self, name: &str, tags: &[Tag]) -> bool {
        let named = |part: &String| name.starts_with(part) || name.contains(&format!("::{part}"));
        (self.names.is_empty() || self.names.iter().any(named))
            && (self.tags.is_empty() || self.tags.iter().any(|tag| tags.contains(tag)))
    }
}

/// Runs the tests that the command line and the environment select, or the one test of this process.
pub fn run(cases: Vec<(&'static str, Vec<Case>)>) -> ExitCode {
    let cases = cases
        .into_iter()
        .flat_map(|(module, cases)| cases.into_iter().map(move |case| (format!("{module}::{}", case.name), case)));
    if let Ok(name) = std::env::var(CASE) {
        let mut cases = cases;
        let (_, case) = cases.find(|(found, _)| *found == name).unwrap_or_else(|| panic!("{CASE}: no test {name}"));
        return single(&case);
    }
    let _ = daemon::built_in();
    let arguments = Arguments::from_args();
    let _lock = (!arguments.list).then(lock);
    let said = |name: &str| std::env::var(name).unwrap_or_default();
    let choice = Choice::new(&said(ONLY), &said(TAGS)).unwrap_or_else(|e| panic!("{e}"));
    let slow = !said(SLOW).is_empty() || arguments.filter.is_some() || !choice.names.is_empty();
    let part = said(PART);
    let (runs_beside, runs_alone) = match &*part {
        "" => (true, true),
        "beside" => (true, false),
        "alone" => (false, true),
        other => panic!("{PART}: there is no part '{other}': there are beside, alone"),
    };
    let has = |case: &Case| if case.alone.is_some() { runs_alone } else { runs_beside };
    let (mut beside, mut one_by_one) = (Vec::new(), Vec::new());
    for (name, case) in cases.filter(|(name, case)| choice.has(name, case.tags) && has(case)) {
        let part = if case.alone.is_some() { &mut one_by_one } else { &mut beside };
        part.push(trial(name, case, slow));
    }
    // All CPUs of a guest share one CPU of the host: one test at a time.
    let threads = if pace::slowdown() > 1 { 1 } else { BESIDE };
    let conclude = |trials: Vec<Trial>, threads: usize| {
        let threads = arguments.test_threads.unwrap_or(threads);
        libtest_mimic::run(&Arguments { test_threads: Some(threads), ..arguments.clone() }, trials)
    };
    let failed = [(beside, threads), (one_by_one, 1)].map(|(trials, threads)| conclude(trials, threads).has_failed());
    let summary = SUMMARY.lock().unwrap_or_else(PoisonError::into_inner);
    println!("{}", summary.join("\n"));
    let again = summary.iter().flat_map(|note| note.lines()).filter(|line| line.trim().starts_with(AGAIN)).count();
    println!("attempts that others have disturbed, tried again: {again}");
    println!("snapshots taken and checked: {}", watch::CHECKED.load(Ordering::Relaxed));
    if failed.contains(&true) { ExitCode::from(FAILED) } else { ExitCode::SUCCESS }
}

/// The beginning of the note about an attempt that is repeated.
const AGAIN: &str = "tried again:";

/// The outcome of a test that has not failed.
enum Done {
    Passed,
    Skipped(String),
}

/// Runs a test, and repeats it after a disturbance, which it reports. Passes a panic of the test on; the error means that
/// every attempt was disturbed.
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

/// Runs a test in this process, if the host meets its needs: see [`attempts`].
fn tried(case: &Case, report: impl Fn(String)) -> Result<Done, String> {
    match case.needs.iter().find_map(|need| need.missing()) {
        Some(reason) => Ok(Done::Skipped(reason)),
        None => attempts(case.run, PATIENCE, report),
    }
}

/// Runs the one test of this process.
fn single(case: &Case) -> ExitCode {
    netns::leave_host();
    let report = |said: String| {
        eprintln!("{said}");
        note(said);
    };
    let done = tried(case, report);
    let checked = format!("checked {}", watch::CHECKED.load(Ordering::Relaxed));
    let (last, code) = match done {
        Ok(Done::Passed) => (String::new(), ExitCode::SUCCESS),
        Ok(Done::Skipped(reason)) => (reason, ExitCode::from(SKIPPED)),
        Err(disturbed) => {
            eprintln!("{disturbed}");
            (String::new(), ExitCode::from(FAILED))
        }
    };
    let lines: Vec<_> = notes().iter().map(|note| note.replace('\n', " ")).chain([checked, last]).collect();
    if let Some(path) = std::env::var_os(REPORT) {
        fs::write(path, lines.join("\n")).expect("write the report of a test");
    }
    code
}

/// Runs the process of a test to its end and returns its output, or ends it after the limit.
fn process(name: &str, report: &Path, folder: &Path) -> Result<(Option<i32>, String), Failed> {
    let file = folder.join("output");
    let output = File::create(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let errors = output.try_clone().map_err(|e| format!("{}: {e}", file.display()))?;
    let mut command = Command::new(role::program());
    command.env(CASE, name).env(REPORT, report).env("TMPDIR", folder);
    command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
    let mut child = command.spawn().map_err(|e| format!("cannot start the process of a test: {e}"))?;
    let (group, begun) = (Pid::from_child(&child), Instant::now());
    let limited = UNLIMITED.iter().all(|name| std::env::var_os(name).is_none());
    let mut hangs = false;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| format!("cannot wait for the process of a test: {e}"))? {
            break status;
        }
        if limited && !hangs && begun.elapsed() > pace::patience(LIMIT) {
            hangs = true;
            let _ = kill_process_group(group, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    // A test that failed may have left processes.
    let _ = kill_process_group(group, Signal::KILL);
    let mut said = fs::read(&file).map(|said| String::from_utf8_lossy(&said).into_owned()).unwrap_or_default();
    if hangs {
        said += &format!("\nit was ended after {} s: it hangs", begun.elapsed().as_secs());
    }
    Ok((status.code(), said))
}

/// The test as libtest-mimic runs it: in another process; in a guest, in this process, since nothing runs beside it there,
/// and an emulated CPU takes seconds to start a process.
fn trial(name: String, case: Case, slow: bool) -> Trial {
    let left_out = !slow && case.tags.contains(&Tag::Slow);
    Trial::ignorable_test(name.clone(), move || {
        if left_out {
            return Ok(Completion::ignored_with(format!("slow by nature: part of make test-all, by {SLOW}")));
        }
        let begun = Instant::now();
        let (done, lines) = if pace::slowdown() > 1 { here(&case) } else { elsewhere(&name)? };
        for line in lines.iter().filter(|line| line.starts_with(AGAIN)) {
            eprintln!("{name}: {line}");
        }
        let title = [name.clone()].into_iter().chain(lines.into_iter().map(|line| format!("    {line}")));
        let time = [format!("    {:.1} s", begun.elapsed().as_secs_f64())];
        let text = title.chain(time).collect::<Vec<_>>().join("\n");
        SUMMARY.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        done
    })
}

type Ended = Result<Completion, Failed>;

/// Runs a test in this process, and returns its notes. Passes a panic of the test on.
fn here(case: &Case) -> (Ended, Vec<String>) {
    // Drops the notes of a failed test.
    notes().clear();
    // A test may have stayed on one CPU: the next one has all of them again.
    static CPUS: LazyLock<Option<CpuSet>> = LazyLock::new(|| sched_getaffinity(None).ok());
    if let Some(cpus) = &*CPUS {
        let _ = sched_setaffinity(None, cpus);
    }
    let done = match tried(case, note) {
        Ok(Done::Passed) => Ok(Completion::Completed),
        Ok(Done::Skipped(reason)) => Ok(Completion::ignored_with(reason)),
        Err(disturbed) => Err(disturbed.into()),
    };
    (done, std::mem::take(&mut *notes()))
}

/// Runs a test in another process.
fn elsewhere(name: &str) -> Result<(Ended, Vec<String>), Failed> {
    let folder = Folder::new(name).map_err(|e| format!("cannot make a folder for a test: {e}"))?;
    let report = folder.0.join("report");
    let (code, said) = process(name, &report, &folder.0)?;
    let text = fs::read_to_string(&report).unwrap_or_default();
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    // An empty last line is no line to `lines()`.
    let last = if text.ends_with('\n') { String::new() } else { lines.pop().unwrap_or_default() };
    let checked = lines.pop().and_then(|line| line.strip_prefix("checked ")?.parse().ok());
    watch::CHECKED.fetch_add(checked.unwrap_or(0), Ordering::Relaxed);
    let done = match code {
        Some(0) => Ok(Completion::Completed),
        Some(code) if code == i32::from(SKIPPED) => Ok(Completion::ignored_with(last)),
        Some(_) => Err(said.into()),
        None => Err(format!("{said}\na signal ended it").into()),
    };
    Ok((done, lines))
}

/// The folder of a test's temporary files.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> std::io::Result<Self> {
        // Short: addresses of Unix sockets have 108 bytes.
        let short: String = name.rsplit("::").next().unwrap_or(name).chars().take(24).collect();
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tslive-{}-{number}-{short}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A test that was ended may have left a mounted tree, which must not be walked.
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        for place in places.filter(|place| Path::new(place).starts_with(&self.0)) {
            let _ = rustix::mount::unmount(place, rustix::mount::UnmountFlags::DETACH);
        }
        if let Err(e) = fs::remove_dir_all(&self.0) {
            let _ = writeln!(std::io::stderr(), "{} is left: {e}", self.0.display());
        }
    }
}

/// The guarantees of the harness itself, as cases that a test runs.
pub mod itself {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::{ATTEMPTS, AssertUnwindSafe, Choice, Done, Duration, Tag, attempts, disturbed, skip};

    /// The number of runs and of reports, and the outcome; `None`: the test has failed.
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

    /// A panic is never repeated, whatever happened before; a disturbance is, and is a failure if it does not end.
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

    /// Names are matched by whole parts, and tags must exist.
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
