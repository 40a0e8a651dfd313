// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sources of snapshots and of other readings.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use procfs::process::Process;
use rustix::time::{ClockId, clock_gettime};
use topstat_families::account::{self, AccountOptions, Precise};
use topstat_families::custom::{self, Listed, PinnedTable, System, Trouble};
use topstat_families::netstack::{self, Chosen, Classifier, Counter, Sampler};
use topstat_families::snmp::{Reader, Select, Wish};
use topstat_kernel::pinned::{self, Adopted, Attached, Pins, Status};
use topstat_kernel::{Check, Error, Family, Options, SampleInfo, Source, State, Streaming, TableInfo, events};
use topstat_lab::side::Profiling;
use topstat_model::counters::Counters;
use topstat_model::definition::Definition;
use topstat_model::events::Event;
use topstat_model::histograms::{Histograms, Subject};
use topstat_model::interval::{Each, Interval, Task};

/// Makes sources of snapshots.
pub trait Backend {
    /// Loads and attaches all that the tables need, for as long as the source lives.
    ///
    /// # Errors
    ///
    /// See [`topstat_kernel::load`].
    fn load(&mut self, tables: &[Arc<TableInfo>], options: &Options) -> Result<Box<dyn Source>, Error>;

    /// Adds a table of the user's own to the catalogue: see [`custom::add`].
    ///
    /// # Errors
    ///
    /// See [`custom::add`].
    fn define(&mut self, sample: &str, table: &str, definition: &Definition) -> Result<(), Trouble>;

    /// The tables of users' own that are pinned: see [`custom::pinned`].
    ///
    /// # Errors
    ///
    /// When this is not permitted.
    fn defined(&mut self, pins: &Path) -> Result<Vec<PinnedTable>, Error>;

    /// Removes the pinned tables of users' own whose paths are not among these: see [`custom::keep`].
    ///
    /// # Errors
    ///
    /// When a pin can't be removed.
    fn keep_defined(&mut self, pins: &Path, paths: &[&str]) -> Result<Vec<String>, Error>;

    /// The events whose names match a pattern, with their fields: see [`custom::events`].
    ///
    /// # Errors
    ///
    /// When the kernel's list can't be read, in the words for the user.
    fn events_of(&mut self, pattern: &str) -> Result<Vec<(String, Vec<Listed>)>, String>;

    /// Opens the pinned state of a family, for reading and setting; `None` if nothing is pinned.
    ///
    /// # Errors
    ///
    /// When this is not permitted, or the pinned state can't be used.
    fn open(&mut self, pins: &Path, family: &Arc<Family>) -> Result<Option<Arc<dyn State>>, Error>;

    /// Opens the pinned state of a family. Without one, loads and pins the family, with these tables on.
    ///
    /// # Errors
    ///
    /// See [`Backend::open`] and [`Backend::load`].
    fn adopt(
        &mut self,
        pins: &Path,
        family: &Arc<Family>,
        tables: &[Arc<TableInfo>],
        options: &Options,
    ) -> Result<(Arc<dyn State>, Adopted), Error>;

    /// The pinned state of all families: see [`pinned::status`].
    ///
    /// # Errors
    ///
    /// See [`pinned::status`].
    fn status(&mut self, pins: &Path) -> Result<Vec<Status>, Error>;

    /// The root of the files of this host, which `topstat doctor` looks at.
    fn host(&self) -> PathBuf {
        PathBuf::from("/")
    }

    /// Removes all pins, and returns their paths.
    ///
    /// # Errors
    ///
    /// When a pin can't be removed.
    fn remove(&mut self, pins: &Path) -> Result<Vec<PathBuf>, Error>;

    /// The links that keep programs of topstat attached on this host, wherever they are pinned: see [`pinned::attached`].
    ///
    /// # Errors
    ///
    /// See [`pinned::attached`].
    fn attached(&mut self) -> Result<Vec<Attached>, Error>;

    /// Loads and attaches the account of the CPU time of tasks, for as long as the returned value lives. Its first interval
    /// begins. For the processes in `exact`, system calls separate user time from system time.
    ///
    /// # Errors
    ///
    /// See [`account::load`]. Also when a process of `exact` does not exist.
    fn account(&mut self, options: &AccountOptions, exact: &[u32]) -> Result<Box<dyn Account>, topstat_kernel::Error>;

    /// Opens a reader of the wanted SNMP counters, after it has found out how the kernel's counters are read here.
    ///
    /// # Errors
    ///
    /// See [`Select::find`] and [`Reader::open`].
    fn counters(&mut self, wish: &Wish) -> Result<Reads<Counters>, Error>;

    /// Loads and attaches these sources, and begins to take their events, and the events of the top of these tables.
    ///
    /// # Errors
    ///
    /// See [`events::Events::open`].
    fn events(
        &mut self,
        wanted: &[Arc<Streaming>],
        tops: Vec<events::Top>,
        options: &events::Options,
    ) -> Result<Box<dyn Stream>, Error>;

    /// Samples stacks of the kernel, for as long as the returned value lives.
    ///
    /// # Errors
    ///
    /// See [`Sampler::open`].
    fn stacks(&mut self, options: &netstack::Options) -> Result<Box<dyn Profiling>, Error>;

    /// Counts packets in histograms, for as long as the returned value lives.
    ///
    /// # Errors
    ///
    /// See [`Counter::open`].
    fn histograms(&mut self, subject: Subject, chosen: &Chosen) -> Result<Reads<Histograms>, Error>;

    /// The classifier that assigns categories to the kernel's functions. The rules of a file come before topstat's own rules.
    ///
    /// # Errors
    ///
    /// See [`Classifier::open`].
    fn classifier(&mut self, rules: Option<&Path>) -> Result<Classifier, Error> {
        Classifier::open(rules)
    }

    /// Checks everything that these samples need. With no samples given, checks all samples.
    fn check(&mut self, samples: &[Arc<SampleInfo>]) -> Vec<Check>;
}

/// Takes a reading at each call. See [`Reader::read`] and [`Counter::read`].
pub type Reads<T> = Box<dyn FnMut() -> Result<T, Error>>;

/// Events as they come.
pub trait Stream {
    /// See [`events::Events::take`].
    ///
    /// # Errors
    ///
    /// See [`events::Events::take`].
    fn take(&mut self, each: &mut dyn FnMut(Event)) -> Result<(), Error>;

    /// See [`events::Events::finish`].
    ///
    /// # Errors
    ///
    /// See [`events::Events::finish`].
    fn finish(&mut self, each: &mut dyn FnMut(Event)) -> Result<(), Error>;

    /// See [`events::Events::accounts`].
    ///
    /// # Errors
    ///
    /// See [`events::Events::accounts`].
    fn accounts(&self) -> Result<Vec<topstat_model::events::Account>, Error>;

    /// A descriptor that becomes readable when there are events to take, and the longest time to wait for that, if it is limited.
    fn waits(&self) -> (Option<BorrowedFd<'_>>, Option<Duration>);
}

impl Stream for events::Events {
    fn take(&mut self, each: &mut dyn FnMut(Event)) -> Result<(), Error> {
        Self::take(self, each)
    }

    fn finish(&mut self, each: &mut dyn FnMut(Event)) -> Result<(), Error> {
        Self::finish(self, each)
    }

    fn accounts(&self) -> Result<Vec<topstat_model::events::Account>, Error> {
        Self::accounts(self)
    }

    fn waits(&self) -> (Option<BorrowedFd<'_>>, Option<Duration>) {
        (Some(self.ready()), Self::waits(self))
    }
}

/// The account of CPU time, and other facts about its tasks.
pub trait Account {
    /// The CPU time that all tasks have used since the last call.
    ///
    /// # Errors
    ///
    /// See [`Precise::interval`].
    fn interval(&mut self, each: Each) -> Result<Interval, topstat_kernel::Error>;

    /// The caller calls this about every second if intervals are long: see [`Precise::poll`].
    fn poll(&mut self);

    /// How far the clock of [`Task::start_ns`] is ahead of the monotonic one: the time that the host was suspended.
    fn suspended_ns(&self) -> u64;

    /// The command line of a living task: its arguments, unchanged. `None`: the task has ended, is hidden from this user, or has
    /// no command line, like a kernel thread.
    fn command_line(&mut self, task: &Task) -> Option<Vec<String>>;

    /// A living process, even if it has not run: its identity, without the time that it used. `None`: there is no such process.
    fn look_up(&mut self, pid: u32) -> Option<Task>;
}

/// This host's kernel.
#[derive(Debug)]
pub struct Kernel;

impl Backend for Kernel {
    fn load(&mut self, tables: &[Arc<TableInfo>], options: &Options) -> Result<Box<dyn Source>, Error> {
        topstat_kernel::load(tables, options)
    }

    fn define(&mut self, sample: &str, table: &str, definition: &Definition) -> Result<(), Trouble> {
        custom::add(sample, table, definition, &System::new()).map(drop)
    }

    fn defined(&mut self, pins: &Path) -> Result<Vec<PinnedTable>, Error> {
        custom::pinned(&Pins::at(pins))
    }

    fn keep_defined(&mut self, pins: &Path, paths: &[&str]) -> Result<Vec<String>, Error> {
        custom::keep(&Pins::at(pins), paths)
    }

    fn events_of(&mut self, pattern: &str) -> Result<Vec<(String, Vec<Listed>)>, String> {
        custom::events(&System::new(), pattern)
    }

    fn open(&mut self, pins: &Path, family: &Arc<Family>) -> Result<Option<Arc<dyn State>>, Error> {
        pinned::open(&Pins::at(pins), family)
    }

    fn adopt(
        &mut self,
        pins: &Path,
        family: &Arc<Family>,
        tables: &[Arc<TableInfo>],
        options: &Options,
    ) -> Result<(Arc<dyn State>, Adopted), Error> {
        pinned::adopt(&Pins::at(pins), family, tables, options)
    }

    fn status(&mut self, pins: &Path) -> Result<Vec<Status>, Error> {
        pinned::status(&Pins::at(pins))
    }

    fn remove(&mut self, pins: &Path) -> Result<Vec<PathBuf>, Error> {
        pinned::remove(&Pins::at(pins))
    }

    fn attached(&mut self) -> Result<Vec<Attached>, Error> {
        pinned::attached()
    }

    fn account(&mut self, options: &AccountOptions, exact: &[u32]) -> Result<Box<dyn Account>, topstat_kernel::Error> {
        if let Some(pid) = exact.iter().find(|pid| process(**pid).is_none()) {
            let why = "there is no such process, or it is not visible here";
            return Err(topstat_kernel::Error::Option(format!("cannot look at the system calls of {pid}: {why}")));
        }
        Ok(Box::new(KernelAccount { reader: account::load(options, exact)? }))
    }

    fn counters(&mut self, wish: &Wish) -> Result<Reads<Counters>, Error> {
        let mut reader = Reader::open(&Select::find(wish)?)?;
        Ok(Box::new(move || reader.read()))
    }

    fn events(
        &mut self,
        wanted: &[Arc<Streaming>],
        tops: Vec<events::Top>,
        options: &events::Options,
    ) -> Result<Box<dyn Stream>, Error> {
        Ok(Box::new(events::Events::open(wanted, tops, options)?))
    }

    fn stacks(&mut self, options: &netstack::Options) -> Result<Box<dyn Profiling>, Error> {
        Ok(Box::new(Sampler::open(options)?))
    }

    fn histograms(&mut self, subject: Subject, chosen: &Chosen) -> Result<Reads<Histograms>, Error> {
        let mut counter = Counter::open(subject, chosen)?;
        Ok(Box::new(move || counter.read()))
    }

    fn check(&mut self, samples: &[Arc<SampleInfo>]) -> Vec<Check> {
        topstat_kernel::check(topstat_families::catalogue(), samples)
    }
}

/// The account of the kernel, and `/proc`.
struct KernelAccount {
    reader: Precise,
}

impl Account for KernelAccount {
    fn interval(&mut self, each: Each) -> Result<Interval, topstat_kernel::Error> {
        self.reader.interval(each)
    }

    fn poll(&mut self) {
        self.reader.poll();
    }

    fn suspended_ns(&self) -> u64 {
        let ns = |clock| {
            let time = clock_gettime(clock);
            u64::try_from(i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)).unwrap_or(0)
        };
        // In this order, the time between the two reads can't make an elapsed time negative.
        let monotonic = ns(ClockId::Monotonic);
        ns(ClockId::Boottime).saturating_sub(monotonic)
    }

    fn command_line(&mut self, task: &Task) -> Option<Vec<String>> {
        // The directory in `/proc` is opened once: all reads come from one process, even if its pid is used again.
        let process = process(task.tgid)?;
        is_same(&process, task).then_some(())?;
        // If a process has shortened its command line, `/proc` fills the rest with zeros.
        let mut line = process.cmdline().ok()?;
        while line.last().is_some_and(String::is_empty) {
            line.pop();
        }
        (!line.is_empty()).then_some(line)
    }

    fn look_up(&mut self, pid: u32) -> Option<Task> {
        let stat = process(pid)?.stat().ok()?;
        let start_ns = stat.starttime * tick_ns();
        Some(Task {
            // This id is larger than any id of the account, which begins with the time since boot.
            id: u64::MAX << 22 | u64::from(pid),
            pid,
            tgid: pid,
            ppid: u32::try_from(stat.ppid).unwrap_or(0),
            comm: stat.comm,
            start_ns,
            // PF_KTHREAD of linux/sched.h, which proc(5) gives to user space.
            kernel: stat.flags & 0x0020_0000 != 0,
            ..Task::default()
        })
    }
}

fn process(pid: u32) -> Option<Process> {
    Process::new(i32::try_from(pid).ok()?).ok()
}

/// Whether the process is this task. The task may have ended, its pid may have been used again, and `/proc` may belong to another
/// pid namespace. proc(5) has the start of a process in ticks.
fn is_same(process: &Process, task: &Task) -> bool {
    process.stat().is_ok_and(|stat| (task.start_ns / tick_ns()).abs_diff(stat.starttime) <= 1)
}

fn tick_ns() -> u64 {
    1_000_000_000 / procfs::ticks_per_second().max(1)
}
