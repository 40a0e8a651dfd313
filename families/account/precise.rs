// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes snapshots of the precise account. `account.h` says why they are consistent (A1 … A6).

use std::mem::{offset_of, size_of};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use libbpf_rs::{Object, ProgramInput};
use topstat_model::interval::{AccountLost, Cpu, Each, Interval};

use super::abi;
use super::accountant::Accountant;
use super::ledger::Ledger;
use topstat_kernel::Error;
use topstat_kernel::bpf::{self, Shared};

const OBJECT: &[u8] = object!("account/precise_read.bpf.o");

/// How long a reader's claim on the instant lasts, in ns. A reader that has died holds up other readers for this time.
const CLAIM_NS: u64 = 500_000_000;
/// Attempts to get the claim, and the wait between two: together, longer than a claim lasts.
const CLAIM_TRIES: u32 = 600;
const CLAIM_PAUSE: Duration = Duration::from_millis(1);
/// Attempts to read a CPU amid a switch: a virtual CPU may not run for a while.
const BUSY_TRIES: u32 = 10_000;
/// Attempts at a snapshot: one fails if another reader thought this reader dead, or if a slice was moved during the snapshot.
const SNAPSHOT_TRIES: u32 = 5;
/// Ended threads that are kept between two snapshots, at most: 40 MB.
const PENDING_MAX: usize = 1 << 17;

/// Time that was shown as the CPU's own before but is in another account, less time for which the reverse holds.
#[derive(Clone, Copy, Default)]
struct Moved {
    idle_ns: i64,
    unowned_ns: i64,
}

/// A reader of the precise account. Readers don't disturb each other; each has its own intervals.
pub struct Precise {
    accountant: Arc<Accountant>,
    object: Object,
    section: Shared,
    cpu_rows: Shared,
    ledger: Ledger,
    /// The end of the ring `ran` at the latest instant.
    ran_from: u64,
    instant: u64,
    cpus: Vec<abi::account_cpu_row>,
    /// The number of the last entry of the ring `dead` that was read, and the entries read but not yet shown.
    dead_read: u64,
    pending: Vec<abi::account_dead>,
    unseen: u64,
    /// Look at all threads next time: threads in the ledger may have ended unseen.
    look_at_all: bool,
}

/// The state at an instant.
struct State {
    time: SystemTime,
    instant: u64,
    /// A5: the end of the ring `ran` when the instant was written.
    ran_from: u64,
    cpus: Vec<abi::account_cpu_row>,
    rows: Vec<abi::account_row>,
    all: bool,
}

/// The purpose of running the programs, for errors.
const READ: &str = "take a snapshot of the CPU time of tasks";

fn failed(why: impl Into<String>) -> Error {
    Error::Kernel { what: READ.to_owned(), why: why.into() }
}

impl Precise {
    /// Loads the reading programs, and takes the first snapshot: the first interval begins.
    pub(super) fn new(accountant: Arc<Accountant>) -> Result<Self, Error> {
        let constants = accountant.constants;
        let mut object = bpf::open("precise_read", OBJECT)?;
        bpf::set_constants(&mut object, ".rodata.constants", bpf::as_bytes(&constants))?;
        bpf::resize(&mut object, "cpu_rows", size_of::<abi::account_cpu_row>(), constants.cpus)?;
        for map in ["threads", "slots", "ran", "dead", "chosen", ".data.control"] {
            bpf::reuse(&mut object, map, &accountant.map(map)?)?;
        }
        let object = bpf::load("tasks", object)?;
        let section = Shared::new(&bpf::map(&object, "section")?)?;
        let cpu_rows = Shared::new(&bpf::map(&object, "cpu_rows")?)?;
        let mut reader = Self {
            accountant,
            object,
            section,
            cpu_rows,
            ledger: Ledger::default(),
            ran_from: 0,
            instant: 0,
            cpus: Vec::new(),
            dead_read: 0,
            pending: Vec::new(),
            unseen: 0,
            look_at_all: true,
        };
        reader.dead_read = reader.dead_end();
        reader.interval(Each::Process)?;
        Ok(reader)
    }

    /// The CPU time that all tasks have used since the previous call, or since the reader was made.
    ///
    /// # Errors
    /// When the kernel does not run the reading programs, or another process holds up all readers.
    pub fn interval(&mut self, each: Each) -> Result<Interval, Error> {
        for left in (0..SNAPSHOT_TRIES).rev() {
            if let Some(state) = self.state(left == 0)? {
                return Ok(self.settle(each, state));
            }
        }
        Err(failed("other readers are faster; too many of them read at once"))
    }

    /// Reads the threads that have ended since the last call. With long intervals, call this about every second: the kernel
    /// keeps a limited number of ended threads. It costs a few nanoseconds, and some more for each thread that has ended.
    pub fn poll(&mut self) {
        let mut patience = BUSY_TRIES;
        let end = self.dead_end();
        let kept = u64::from(self.accountant.constants.dead_mask);
        if end.saturating_sub(self.dead_read) > kept {
            let lost = end - kept - self.dead_read;
            self.lose(lost);
            self.dead_read = end - kept;
        }
        while self.dead_read < end {
            let number = self.dead_read + 1;
            let index = (number & kept) as usize;
            let offset = offset_of!(abi::account_dead, number);
            match self.accountant.dead.read::<u64>(index, offset) {
                // The entry is being written. Threads in later entries may have ended before it.
                found if found < number && patience > 0 => {
                    patience -= 1;
                    std::thread::yield_now();
                    continue;
                }
                found if found < number => break,
                found if found > number => self.lose(1),
                _ => {
                    let dead: abi::account_dead = self.accountant.dead.read(index, 0);
                    if self.accountant.dead.read::<u64>(index, offset) != number || self.pending.len() >= PENDING_MAX {
                        self.lose(1);
                    } else {
                        self.pending.push(dead);
                    }
                }
            }
            self.dead_read = number;
        }
    }

    fn lose(&mut self, threads: u64) {
        self.unseen += threads;
        self.look_at_all = true;
    }

    fn dead_end(&self) -> u64 {
        self.accountant.control.read(0, offset_of!(abi::account_control, dead_end))
    }

    fn run(&self, name: &str, args: [u64; 2]) -> Result<u32, Error> {
        let program = bpf::program(&self.object, name)?;
        let mut words = args.map(u64::to_ne_bytes).concat();
        let input = ProgramInput { context_in: Some(&mut words), ..Default::default() };
        match program.test_run(input).map_err(|e| failed(e.to_string()))?.return_value {
            abi::ACCOUNT_FAULT => Err(failed(format!("{name} does not find its maps"))),
            code => Ok(code),
        }
    }

    /// A number from the beginning of the section.
    fn word(&self, at: usize) -> u64 {
        self.section.read(0, at)
    }

    fn next_cpu(&self) -> u64 {
        self.word(offset_of!(abi::account_section, next))
    }

    /// Chooses the instant. Returns the time of day before it.
    fn begin(&self) -> Result<SystemTime, Error> {
        for _ in 0..CLAIM_TRIES {
            let time = SystemTime::now();
            match self.run("precise_begin", [CLAIM_NS, 0])? {
                abi::ACCOUNT_DONE => return Ok(time),
                abi::ACCOUNT_CLAIMED => std::thread::sleep(CLAIM_PAUSE),
                _ => {}
            }
        }
        Err(failed("another reader does not finish"))
    }

    /// Reads all that has run, as of one instant. `None`: another reader has chosen another instant during the read, or a slice
    /// was moved. The last try ignores moved slices: where many thousands of threads are read, there is always one.
    fn state(&mut self, last: bool) -> Result<Option<State>, Error> {
        let time = self.begin()?;
        self.read_cpus()?;
        let cpus: Vec<abi::account_cpu_row> =
            (0..self.accountant.constants.cpus as usize).map(|cpu| self.cpu_rows.read(cpu, 0)).collect();
        let mut rows = Vec::new();
        let mut cpu = 0;
        while cpu < u64::from(self.accountant.constants.cpus) {
            self.run("precise_runs", [cpu, 0])?;
            self.take(&mut rows);
            cpu = self.next_cpu();
        }
        let mut all = self.look_at_all;
        if !all {
            all = !self.read_ran(&mut rows)?;
        }
        if all {
            self.read_all(&mut rows)?;
        }
        self.poll();
        let instant = self.word(offset_of!(abi::account_section, instant));
        let ran_from = self.word(offset_of!(abi::account_section, ran_from));
        if self.run("precise_finish", [0, 0])? != abi::ACCOUNT_DONE || (!last && self.moved_meanwhile(&cpus)) {
            return Ok(None);
        }
        Ok(Some(State { time, instant, ran_from, cpus, rows, all }))
    }

    /// Whether a slice that was counted to one thread has moved to another thread while threads were read: both accounts may
    /// contain it.
    fn moved_meanwhile(&self, cpus: &[abi::account_cpu_row]) -> bool {
        cpus.iter().enumerate().filter(|(_, row)| row.assumed != 0).any(|(cpu, row)| {
            let offset = |i| offset_of!(abi::account_cpu, moved) + i * size_of::<abi::account_moved>();
            (0..abi::ACCOUNT_MOVED as usize)
                .any(|i| self.accountant.slots.read::<abi::account_moved>(cpu, offset(i)).start == row.start)
        })
    }

    fn read_cpus(&self) -> Result<(), Error> {
        let mut first = 0;
        for _ in 0..BUSY_TRIES {
            let code = self.run("precise_cpus", [first, 0])?;
            first = self.next_cpu();
            match code {
                abi::ACCOUNT_BUSY => std::thread::yield_now(),
                _ if first >= u64::from(self.accountant.constants.cpus) => return Ok(()),
                _ => {}
            }
        }
        Err(failed(format!("CPU {first} is in the midst of a switch all the while")))
    }

    /// Reads the threads in the ring `ran`. False: the ring has overrun.
    fn read_ran(&self, rows: &mut Vec<abi::account_row>) -> Result<bool, Error> {
        let ran_end = || self.accountant.control.read::<u64>(0, offset_of!(abi::account_control, ran_end));
        let kept = u64::from(self.accountant.constants.ran_mask);
        let mut number = self.ran_from + 1;
        let end = ran_end();
        if end.saturating_sub(self.ran_from) > kept {
            return Ok(false);
        }
        while number <= end {
            self.run("precise_ran", [number, end])?;
            self.take(rows);
            number += u64::from(abi::ACCOUNT_ROWS);
        }
        Ok(self.word(offset_of!(abi::account_section, overrun)) == 0 && ran_end().saturating_sub(self.ran_from) <= kept)
    }

    /// Reads all threads that have ever run.
    fn read_all(&self, rows: &mut Vec<abi::account_row>) -> Result<(), Error> {
        let bytes = bpf::iterate(&self.object, "precise_all", READ)?;
        rows.extend(bytes.chunks_exact(size_of::<abi::account_row>()).map(bpf::from_bytes::<abi::account_row>));
        Ok(())
    }

    /// Takes the rows that a program has just written.
    fn take(&self, rows: &mut Vec<abi::account_row>) {
        let count = self.section.read::<u32>(0, offset_of!(abi::account_section, rows)).min(abi::ACCOUNT_ROWS) as usize;
        let first = offset_of!(abi::account_section, row);
        rows.extend(
            (0..count).map(|i| self.section.read::<abi::account_row>(0, first + i * size_of::<abi::account_row>())),
        );
    }

    /// Turns this state and the state at the previous instant into the interval between them.
    fn settle(&mut self, each: Each, state: State) -> Interval {
        let (begin, end) = (self.instant, state.instant);
        let mut page = self.ledger.page(each);
        let mut moved = vec![Moved::default(); state.cpus.len()];
        let mut misplaced_ns = 0;
        for ((cpu, now), before) in moved.iter_mut().zip(&state.cpus).zip(&self.cpus) {
            let across = |m: &&abi::account_moved| before.assumed != 0 && m.start == before.start;
            let Some(slice) = now.moved.iter().find(across) else { continue };
            if slice.to == before.assumed && slice.unowned == 0 {
                continue;
            }
            let ns = begin.saturating_sub(before.start).cast_signed();
            misplaced_ns += ns.unsigned_abs();
            let unowned = ns.min(slice.unowned.cast_signed());
            let unowned_id = u64::from(abi::ACCOUNT_ID_UNOWNED);
            for (id, ns) in [(before.assumed, ns), (unowned_id, -unowned), (slice.to, unowned - ns)] {
                if id == u64::from(abi::ACCOUNT_ID_IDLE) {
                    cpu.idle_ns += ns;
                } else if id == unowned_id {
                    cpu.unowned_ns += ns;
                } else {
                    page.credit(id, ns);
                }
            }
        }
        // Threads that have ended come first: the entry in `dead` is their final account.
        let (ended, later): (Vec<_>, Vec<_>) = self.pending.drain(..).partition(|d| d.died <= end);
        for dead in ended.iter().filter(|d| d.died > begin) {
            page.ended(dead);
        }
        for row in &state.rows {
            page.live(row);
        }
        for dead in &later {
            page.live(&abi::account_row { id: dead.id, times: dead.kept, who: dead.who });
        }
        if state.all {
            page.keep_seen();
        }
        let tasks = page.finish();
        let cpus = (0..).zip(&state.cpus).filter(|(_, c)| c.since > 0).map(|(cpu, now)| {
            let before = self.cpus.get(cpu as usize).filter(|c| c.since > 0).copied();
            self::cpu(cpu, now, before.as_ref(), begin, end, moved[cpu as usize])
        });
        let interval = Interval {
            time: state.time,
            begin_ns: begin,
            end_ns: end,
            each,
            tasks,
            cpus: cpus.collect(),
            lost: AccountLost {
                no_memory: self.accountant.control.read(0, offset_of!(abi::account_control, no_memory)),
                ended_unseen: self.unseen,
                overruns: u64::from(state.all && begin > 0),
                misplaced_ns,
            },
        };
        self.pending = later;
        self.unseen = 0;
        self.look_at_all = false;
        self.instant = end;
        self.cpus = state.cpus;
        self.ran_from = state.ran_from;
        interval
    }
}

/// The time of a CPU in the interval.
fn cpu(
    cpu: u32,
    now: &abi::account_cpu_row,
    before: Option<&abi::account_cpu_row>,
    begin: u64,
    end: u64,
    moved: Moved,
) -> Cpu {
    let zero = abi::account_cpu_own { steal: now.own.steal, ..Default::default() };
    let then = before.map_or(&zero, |b| &b.own);
    let since = |now: u64, then: u64| now.saturating_sub(then);
    let wall_ns = end.saturating_sub(begin.max(now.since));
    let idle_all_ns = since(now.own.idle.saturating_add_signed(moved.idle_ns), then.idle);
    let unowned_ns = since(now.own.unowned.saturating_add_signed(moved.unowned_ns), then.unowned);
    // The parts of idle time were read a moment later than the whole.
    let mut left = idle_all_ns;
    let mut take = |part: u64| {
        let part = part.min(left);
        left -= part;
        part
    };
    let idle_irq_ns = take(since(now.own.idle_irq, then.idle_irq));
    let idle_softirq_ns = take(since(now.own.idle_softirq, then.idle_softirq));
    let idle_steal_ns = take(since(now.own.idle_steal, then.idle_steal));
    Cpu {
        cpu,
        wall_ns,
        tasks_ns: wall_ns.saturating_sub(idle_all_ns + unowned_ns),
        unowned_ns,
        idle_ns: left,
        idle_irq_ns,
        idle_softirq_ns,
        idle_steal_ns,
        irq_ns: since(now.own.irq, then.irq),
        softirq_ns: since(now.own.softirq, then.softirq),
        steal_ns: since(now.own.steal, then.steal),
    }
}
