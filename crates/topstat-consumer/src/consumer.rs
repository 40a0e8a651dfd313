// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a stream: delivers its records one by one, counts them, and sleeps as the control law decides.

use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};

use crate::abi::{STREAM_WAKE_EACH, stream_control, stream_count};
use crate::account::{Account, account};
use crate::error::{Error, kernel};
use crate::freed::Freed;
use crate::law::{Fills, Law, Next, Seen, Wake};
use crate::maps::{Maps, Words};
use crate::ring::{Found, Record, Ring};

/// Options of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The fill at which sleeps end, 1 to 90 percent of the ring.
    pub target_percent: u64,
    /// Producers wake the consumer when the fill exceeds the target by this much, in percent of the ring.
    pub margin_percent: u64,
    /// The fill at which payloads are cut, in percent; `None`: payloads are never cut, and events are dropped sooner.
    pub cut_percent: Option<u64>,
    /// The calling thread becomes a real-time one (SCHED_FIFO) of this priority, 1 to 99.
    pub real_time: Option<i32>,
}

impl Default for Options {
    fn default() -> Self {
        Self { target_percent: 40, margin_percent: 10, cut_percent: Some(60), real_time: None }
    }
}

impl Options {
    fn check(&self) -> Result<(), Error> {
        let refuse =
            |setting, value: String, allowed: &str| Err(Error::Setting { setting, value, allowed: allowed.into() });
        if !(1..=90).contains(&self.target_percent) {
            return refuse("target fill", format!("{}%", self.target_percent), "it has to be from 1% to 90%");
        }
        if self.target_percent + self.margin_percent > 95 {
            let value = format!("{}%", self.target_percent + self.margin_percent);
            return refuse("fill at which producers wake the consumer", value, "it has to be at most 95%");
        }
        if let Some(percent) = self.cut_percent.filter(|percent| !(1..=99).contains(percent)) {
            return refuse("fill above which payloads are cut", format!("{percent}%"), "it has to be from 1% to 99%");
        }
        if let Some(priority) = self.real_time.filter(|priority| !(1..=99).contains(priority)) {
            return refuse("real-time priority", priority.to_string(), "it has to be from 1 to 99");
        }
        Ok(())
    }

    fn fills(&self, full: u64) -> Fills {
        let percent = |percent: u64| full * percent / 100;
        Fills { full, target: percent(self.target_percent), wake: percent(self.target_percent + self.margin_percent) }
    }
}

/// The reason why [`Consumer::wait`] has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The consumer has not slept: there was no time.
    Not,
    /// The timer ended the sleep.
    Timer {
        /// How long ago the timer ended, in ns.
        late_ns: u64,
    },
    /// A producer, or the kernel, woke the consumer. With [`Wake::Each`] the time of the wake-up is unknown.
    Producer {
        /// How long ago the wake-up was, in ns.
        late_ns: u64,
    },
    /// A signal came: the caller may have to stop.
    Signal,
}

/// The data of epoll events: what is ready.
const RING_READY: u64 = 0;
const TIME_OVER: u64 = 1;

const WAKE_AT: usize = offset_of!(stream_control, wake_at);
const CUT_ABOVE: usize = offset_of!(stream_control, cut_above);
const RUNG: usize = offset_of!(stream_control, rung_ns);

/// The consumer of a stream. A stream has one at a time: the process that opens a pinned stream holds the lock on its pins.
pub struct Consumer {
    ring: Ring,
    counts: Words,
    control: Words,
    law: Box<dyn FnMut(&Seen) -> Next + Send>,
    epoll: OwnedFd,
    timer: OwnedFd,
    freed: Freed,
    short_slices: bool,
    waiting_at_first: u64,
    progress: bool,
    /// Bytes that were cut from the records that this consumer delivered.
    lacking: u64,
    rung: bool,
    late_ns: u64,
}

impl Consumer {
    /// Begins where the last consumer of these maps stopped, at whatever instruction it was killed. The thread gets short time
    /// slices, where the kernel grants them.
    ///
    /// # Errors
    /// An option is out of its range, or the kernel refuses a map, a timer or the real-time priority.
    pub fn open(maps: &Maps, options: &Options) -> Result<Self, Error> {
        options.check()?;
        let mut law = Law::new(options.fills(maps.ring().1));
        // A real-time thread has no time slices: first the slices, then the priority.
        let short_slices = short_slices();
        let mut consumer = Self::with_law(maps, options, move |seen| law.next(seen))?;
        consumer.short_slices = short_slices;
        Ok(consumer)
    }

    /// As [`Consumer::open`], with another control law and with the thread's own time slices. It exists for comparisons with
    /// other projects' consumers.
    ///
    /// # Errors
    /// As [`Consumer::open`].
    pub fn with_law(
        maps: &Maps,
        options: &Options,
        law: impl FnMut(&Seen) -> Next + Send + 'static,
    ) -> Result<Self, Error> {
        options.check()?;
        let (fd, size) = maps.ring();
        let ring = Ring::map(fd, size)?;
        let control = maps.control()?;
        let freed = Freed::resume(&control, ring.position())?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(errno("make an epoll instance"))?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map_err(errno("make a timer"))?;
        // Edge-triggered (ET): wake-ups count, and not that the ring has records.
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, fd, epoll::EventData::new_u64(RING_READY), edges).map_err(errno("watch the ring buffer"))?;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIME_OVER), edges).map_err(errno("watch the timer"))?;
        if let Some(priority) = options.real_time {
            real_time(priority)?;
        }
        control.at(WAKE_AT).store(0, Ordering::Relaxed);
        let cut_above = options.cut_percent.map_or(0, |percent| size * percent / 100);
        control.at(CUT_ABOVE).store(cut_above, Ordering::Relaxed);
        Ok(Self {
            waiting_at_first: ring.unread(),
            counts: maps.counts()?,
            law: Box::new(law),
            ring,
            control,
            epoll,
            timer,
            freed,
            short_slices: false,
            progress: false,
            lacking: 0,
            rung: false,
            late_ns: 0,
        })
    }

    /// Bytes in the ring when this consumer was opened. The first record of them may have been delivered already, by a consumer
    /// that was killed before it freed the record.
    pub fn waiting_at_first(&self) -> u64 {
        self.waiting_at_first
    }

    /// Whether the scheduler was asked to run this thread soon after a wake-up, and accepted it. A filter of system calls may
    /// refuse it; kernels before 6.12 ignore it.
    pub fn has_short_slices(&self) -> bool {
        self.short_slices
    }

    /// Delivers at most `at_most` records, and frees each when `each` has returned. Returns their number; if it is smaller, no
    /// more records are ready.
    pub fn drain(&mut self, at_most: usize, mut each: impl FnMut(&Record<'_>)) -> Result<usize, Error> {
        let mut left = at_most;
        if left == 0 {
            return Ok(0);
        }
        self.drain_while(|record| {
            each(record);
            left -= 1;
            left > 0
        })
    }

    /// As [`Consumer::drain`], without a limit, for as long as `each` returns true.
    pub fn drain_while(&mut self, mut each: impl FnMut(&Record<'_>) -> bool) -> Result<usize, Error> {
        let (mut done, mut more) = (0, true);
        while more {
            let (next, records) = match self.ring.find()? {
                Found::Nothing => break,
                Found::Discarded(next) => (next, 0),
                Found::Record(record, next) => {
                    self.lacking += u64::from(record.head().lacking);
                    more = each(&record);
                    (next, 1)
                }
            };
            self.freed.announce(&self.control, next, records);
            self.ring.free(next);
            done += 1;
        }
        self.progress |= done > 0;
        Ok(done)
    }

    /// Sleeps for as long as the law says. The caller has drained all records.
    pub fn wait(&mut self) -> Result<Woken, Error> {
        let now_ns = now_ns();
        let seen = Seen {
            now_ns,
            position: self.ring.produced() + self.lacking,
            unread: self.ring.unread(),
            progress: std::mem::take(&mut self.progress),
            rung: std::mem::take(&mut self.rung),
            late_ns: std::mem::take(&mut self.late_ns),
        };
        let Next::Sleep { ns, wake } = (self.law)(&seen) else { return Ok(Woken::Not) };
        let woken = self.sleep(now_ns + ns, wake)?;
        if let Woken::Timer { late_ns } | Woken::Producer { late_ns } = woken {
            self.late_ns = late_ns;
        }
        self.rung = matches!(woken, Woken::Producer { .. });
        Ok(woken)
    }

    fn sleep(&mut self, until_ns: u64, wake: Wake) -> Result<Woken, Error> {
        let (at, enough) = match wake {
            Wake::Nobody => (0, u64::MAX),
            Wake::Each => (STREAM_WAKE_EACH as u64, 1),
            Wake::At(unread) => (unread, unread),
        };
        self.control.at(WAKE_AT).store(at, Ordering::SeqCst);
        // E4: pairs with the addition to `produced`, which producers make between taking their space and reading the word.
        fence(Ordering::SeqCst);
        let woken = if self.ring.unread() >= enough { Ok(Woken::Not) } else { self.sleep_until(until_ns) };
        if wake == Wake::Each {
            // The word stays: the kernel has to be asked at each event. It wakes the consumer at the first event that finds all
            // others freed.
            return woken;
        }
        // An awake consumer wants no wake-ups. A producer that takes the word just now wakes it in vain, once.
        let rung = at != 0 && self.control.at(WAKE_AT).swap(0, Ordering::SeqCst) == 0;
        Ok(match woken? {
            Woken::Producer { .. } if rung => {
                Woken::Producer { late_ns: now_ns().saturating_sub(self.control.at(RUNG).load(Ordering::Relaxed)) }
            }
            woken => woken,
        })
    }

    fn sleep_until(&mut self, until_ns: u64) -> Result<Woken, Error> {
        let until = Timespec { tv_sec: (until_ns / NS) as i64, tv_nsec: (until_ns % NS) as _ };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: until };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once).map_err(errno("set a timer"))?;
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 2];
        let ready = match epoll::wait(&self.epoll, &mut events[..], None) {
            Ok(ready) => ready,
            Err(Errno::INTR) => return Ok(Woken::Signal),
            Err(e) => return Err(errno("wait for events")(e)),
        };
        let timer = events[..ready].iter().any(|event| event.data.u64() == TIME_OVER);
        Ok(match timer {
            true => Woken::Timer { late_ns: now_ns().saturating_sub(until_ns) },
            false => Woken::Producer { late_ns: 0 },
        })
    }

    /// The account of all events so far. It adds up at any time: the number of events under way is never negative.
    pub fn account(&self) -> Account {
        let delivered = self.freed.delivered();
        account(&self.counts, delivered)
    }

    /// The producers' counts of each CPU. Deliveries are not counted by CPU.
    pub fn counts(&self) -> Vec<stream_count> {
        let cpus = (0..self.counts.bytes()).step_by(size_of::<stream_count>());
        let word = |at: usize| self.counts.at(at).load(Ordering::Acquire);
        cpus.map(|cpu| stream_count {
            dropped: word(cpu + offset_of!(stream_count, dropped)),
            cut: word(cpu + offset_of!(stream_count, cut)),
            produced: word(cpu + offset_of!(stream_count, produced)),
            ..Default::default()
        })
        .collect()
    }

    /// Bytes of the ring that were ever freed.
    pub fn position(&self) -> u64 {
        self.ring.position()
    }

    /// Bytes of the ring that are not freed.
    pub fn unread(&self) -> u64 {
        self.ring.unread()
    }
}

impl Drop for Consumer {
    /// No wake-up is needed any more.
    fn drop(&mut self) {
        self.control.at(WAKE_AT).store(0, Ordering::Relaxed);
    }
}

const NS: u64 = 1_000_000_000;

/// The monotonic clock, by which records are timed, in ns.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * NS + now.tv_nsec as u64
}

fn errno(what: &'static str) -> impl FnOnce(Errno) -> Error {
    move |e| kernel(what)(e.into())
}

/// How long the thread runs at most before others may run: the shortest slice that the kernel grants.
const SLICE_NS: u64 = 100_000;

/// Asks for short time slices; returns whether they were granted. Since 6.12 (85e511df3cec, "sched/eevdf: Allow shorter slices to
/// wakeup-preempt") a thread with short slices runs at once when it is woken up, and does not wait for the end of another
/// thread's slice, of about 3 ms. It gets no more CPU time for that, and needs no privilege.
fn short_slices() -> bool {
    let mut attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the structure is as large as its size field says, and lives as long as the call.
    let asked = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, attributes.size, 0) };
    // Real-time threads have no time slices, and in other classes the field has another meaning.
    if asked != 0 || attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return false;
    }
    attributes.sched_runtime = SLICE_NS;
    // SAFETY: as before.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

fn real_time(priority: i32) -> Result<(), Error> {
    // The call itself: musl's function refuses always. The kernel's structure is one integer.
    // SAFETY: the integer lives as long as the call.
    match unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const priority) } {
        0 => Ok(()),
        _ => Err(kernel(format!(
            "make the consumer a real-time thread of priority {priority} (it takes CAP_SYS_NICE)"
        ))(std::io::Error::last_os_error())),
    }
}
