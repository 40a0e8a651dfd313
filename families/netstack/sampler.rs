// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes samples of the kernel's stacks, and empties the banks that the program fills.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle, Object};
use topstat_model::stacks::{Besides, Event, Frame, Profile, Sample};

use super::abi;
use super::classify::{Classifier, Sampled};
use super::events::{self, CpuEvent};
use topstat_kernel::bpf::{self, Shared};
use topstat_kernel::cgroup::{self, Paths};
use topstat_kernel::{Error, perf, process};

const OBJECT: &[u8] = object!("netstack/netstack.bpf.o");
const PROGRAM: &str = "netstack_sample";

/// Samples a second on each CPU by default: not in step with timers of 100 or 1000 Hz.
pub const DEFAULT_HZ: u32 = 99;
/// Samples a second at most: a sample takes some microseconds.
pub const MOST_HZ: u32 = 10_000;
/// The time for which a bank has room: [`Sampler::poll`] must be called within it.
pub const BANK_TIME: Duration = Duration::from_secs(2);
/// Entries of a bank. Each stack takes a kilobyte.
const BANK_ENTRIES: std::ops::RangeInclusive<u32> = 1024..=65_536;
const NS_PER_SECOND: u64 = 1_000_000_000;
/// How long to wait for a run that still fills a bank: a run takes microseconds, unless its CPU is not running.
const PATIENCE: Duration = Duration::from_secs(5);

/// Options of sampling.
#[derive(Clone, Debug)]
pub struct Options {
    /// Samples a second, on each CPU.
    pub hz: u32,
    /// A file of rules that come before topstat's own.
    pub rules: Option<PathBuf>,
    /// The event to sample by. `None`: the best that this host has.
    pub event: Option<Event>,
}

impl Default for Options {
    fn default() -> Self {
        Self { hz: DEFAULT_HZ, rules: None, event: None }
    }
}

/// Takes samples, as long as it lives.
pub struct Sampler {
    // Links first: they are dropped before the events that they refer to.
    _links: Vec<Link>,
    events: Vec<CpuEvent>,
    event: Event,
    hz: u32,
    object: Object,
    filled: Shared,
    bank: usize,
    counts: HashMap<u32, Counted>,
    classifier: Classifier,
    /// Addresses in no known function.
    nowhere: HashSet<u64>,
    paths: Paths,
    begun: Instant,
    /// Samples that were taken out of banks and not yet read.
    kept: Option<Profile>,
}

/// The counts of a CPU in each bank when the bank was last emptied.
#[derive(Clone, Copy, Default)]
struct Counted {
    banks: [abi::netstack_counts; abi::NETSTACK_BANKS as usize],
    /// The number of samples that were reported as missed.
    missed: u64,
}

/// The result for a stack, on the idle task and on other tasks.
struct Known {
    frames: Arc<[Arc<Frame>]>,
    on_task: Sampled,
    on_idle_task: Sampled,
}

impl Counted {
    /// The counts in a bank since it was last emptied. No run may fill the bank any more.
    fn since(&mut self, bank: usize, now: abi::netstack_counts) -> abi::netstack_counts {
        let then = std::mem::replace(&mut self.banks[bank], now);
        abi::netstack_counts { kept: now.kept - then.kept, user: now.user - then.user, lost: now.lost - then.lost }
    }

    /// The number of due samples that were not taken and not reported before. Samples in the bank that is filled now came after
    /// the due ones.
    fn miss(&mut self, due: u64) -> u64 {
        let taken: u64 = self.banks.iter().map(|bank| bank.kept + bank.user + bank.lost).sum();
        // The timer began at some time within its first period.
        let missed = due.saturating_sub(1).saturating_sub(taken);
        let more = missed.saturating_sub(self.missed);
        self.missed += more;
        more
    }
}

fn failed(what: &str, why: impl ToString) -> Error {
    Error::Kernel { what: format!("{what} stacks of the kernel"), why: why.to_string() }
}

impl Sampler {
    /// Loads the program, and attaches it on each online CPU.
    ///
    /// # Errors
    /// When an option is out of range, a rule is wrong, or the kernel does not allow it.
    pub fn open(options: &Options) -> Result<Self, Error> {
        if !(1..=MOST_HZ).contains(&options.hz) {
            return Err(Error::Option(format!("{} samples a second: there may be 1 to {MOST_HZ}", options.hz)));
        }
        if let Some(most) = perf::most_hz().filter(|most| options.hz > *most) {
            return Err(Error::Option(format!(
                "{} samples a second: the kernel allows {most} (sysctl kernel.perf_event_max_sample_rate, which it lowers by itself \
                 where samples take long)",
                options.hz
            )));
        }
        let classifier = Classifier::open(options.rules.as_deref())?;
        if classifier.hidden() {
            let advice = "run as root, and set kernel.kptr_restrict to 0 or 1";
            return Err(failed("name", format!("/proc/kallsyms hides where functions are; {advice}")));
        }
        let cpus = topstat_kernel::clock::online_cpus()?;
        let object = load(options.hz, cpus.len())?;
        let event = match options.event {
            Some(event) => events::available(event).map(|()| event)?,
            None => events::chosen()?,
        };
        let program = bpf::program(&object, PROGRAM)?;
        let (mut events, mut links) = (Vec::new(), Vec::new());
        for cpu in cpus {
            let failed = |e| failed("sample", format!("CPU {cpu}: {e}"));
            let opened = CpuEvent::open(event, cpu, options.hz).map_err(failed)?;
            links.push(opened.attach(&program).map_err(failed)?);
            events.push(opened);
        }
        Ok(Self {
            _links: links,
            events,
            event,
            hz: options.hz,
            filled: Shared::new(&bpf::map(&object, "filled")?)?,
            object,
            bank: 0,
            counts: HashMap::new(),
            classifier,
            nowhere: HashSet::new(),
            paths: Paths::new(cgroup::v1_controller()),
            begun: Instant::now(),
            kept: None,
        })
    }

    /// The event that samples are taken by.
    pub fn event(&self) -> Event {
        self.event
    }

    /// The classifier of the samples.
    pub fn classifier(&self) -> &Classifier {
        &self.classifier
    }

    /// Takes the samples so far out of the kernel. To be called about every second: a bank has room for `BANK_TIME`.
    ///
    /// # Errors
    /// When the kernel does not give them.
    pub fn poll(&mut self) -> Result<(), Error> {
        let next = self.take()?;
        match &mut self.kept {
            Some(kept) => kept.append(next),
            kept => *kept = Some(next),
        }
        Ok(())
    }

    /// The samples since the last call, or since the sampler was opened.
    ///
    /// # Errors
    /// When the kernel does not give them.
    pub fn read(&mut self) -> Result<Profile, Error> {
        self.poll()?;
        Ok(self.kept.take().expect("just taken"))
    }

    /// Makes the program fill the other bank, and empties the bank that it has filled.
    fn take(&mut self) -> Result<Profile, Error> {
        // Read before the bank is switched: each sample due by now was counted in the old bank or before, or is missed.
        let due = self.due();
        let old = self.bank;
        self.bank = 1 - old;
        self.filled.write(0, 0, self.bank as u64);
        let counts = self.wait_for_quiet()?;
        let now = Instant::now();
        let elapsed = now.duration_since(std::mem::replace(&mut self.begun, now));
        let mut besides = Besides::default();
        let mut kept = 0;
        for (cpu, count) in counts {
            let counted = self.counts.entry(cpu).or_default();
            let more = counted.since(old, count.bank[old]);
            kept += more.kept;
            besides.user += more.user;
            besides.lost += more.lost;
            besides.missed += counted.miss(due.get(&cpu).copied().unwrap_or(0));
        }
        let samples = self.empty(old, kept, &mut besides)?;
        let cpus = self.events.iter().map(|event| event.cpu).collect();
        Ok(Profile { time: SystemTime::now(), elapsed, event: self.event, hz: self.hz, cpus, samples, besides })
    }

    /// Waits until no run of the program fills the old bank any more (NS2), and returns the counts of each CPU.
    fn wait_for_quiet(&self) -> Result<Vec<(u32, abi::netstack_cpu)>, Error> {
        let map = bpf::map(&self.object, "cpus")?;
        let begun = Instant::now();
        // The number of runs on each CPU that had begun when the bank was switched.
        let due: Vec<u64> = read_cpus(&map)?.iter().map(|cpu| cpu.entered).collect();
        loop {
            let cpus = read_cpus(&map)?;
            if cpus.iter().zip(&due).all(|(cpu, due)| cpu.left >= *due) {
                return Ok((0..).zip(cpus).collect());
            }
            if begun.elapsed() > PATIENCE {
                return Err(failed("read", "a CPU does not come to an end with a sample"));
            }
            sleep(Duration::from_micros(100));
        }
    }

    /// The number of samples that the timer of each CPU was due to take until now. Unknown for a counter of cycles: its rate goes
    /// up and down.
    fn due(&self) -> HashMap<u32, u64> {
        let events = self.events.iter().filter(|_| self.event == Event::CpuClock);
        let due = |event: &CpuEvent| {
            let on_ns = event.on_ns().ok()?;
            let due = u128::from(on_ns) * u128::from(self.hz) / u128::from(NS_PER_SECOND);
            Some((event.cpu, u64::try_from(due).unwrap_or(u64::MAX)))
        };
        events.filter_map(due).collect()
    }

    /// Takes all samples out of a bank. `kept` is their number.
    fn empty(&mut self, bank: usize, kept: u64, besides: &mut Besides) -> Result<Vec<Sample>, Error> {
        let stacks: HashMap<u64, abi::netstack_stack> = drain(&bpf::map(&self.object, &format!("stacks_{bank}"))?)?;
        let counted: Vec<(abi::netstack_key, u64)> = drain_list(&bpf::map(&self.object, &format!("samples_{bank}"))?)?;
        let sum: u64 = counted.iter().map(|(_, count)| *count).sum();
        if sum != kept {
            return Err(failed("read", format!("{sum} samples were found of {kept}")));
        }
        let mut known: HashMap<u64, Known> = HashMap::new();
        self.refresh(&stacks)?;
        let mut samples = Vec::new();
        for (key, count) in counted {
            let Some(stack) = stacks.get(&key.stack) else {
                besides.lost += count;
                continue;
            };
            let known = known.entry(key.stack).or_insert_with(|| {
                let addresses = addresses(stack);
                Known {
                    frames: self.classifier.frames(addresses).into(),
                    on_task: self.classifier.stack(addresses, false),
                    on_idle_task: self.classifier.stack(addresses, true),
                }
            });
            match if key.pid == 0 { &known.on_idle_task } else { &known.on_task } {
                Sampled::Idle => besides.idle += count,
                Sampled::Ran { found, leaf, side } => samples.push(Sample {
                    count,
                    cpu: key.cpu,
                    pid: key.pid,
                    comm: process::name(&key.comm).unwrap_or_default(),
                    cgroup: self.paths.of(key.cgroup),
                    side: *side,
                    found: *found,
                    leaf: *leaf,
                    stack: Arc::clone(&known.frames),
                }),
            }
        }
        Ok(samples)
    }

    /// Reads the kernel's symbols again if a stack contains an unknown function: a module or a program was loaded. An address
    /// that is unknown even then is not looked up again.
    fn refresh(&mut self, stacks: &HashMap<u64, abi::netstack_stack>) -> Result<(), Error> {
        let innermost = stacks.values().filter_map(|stack| stack.address.first().copied());
        let unknown = |address: &u64| !self.classifier.knows(*address) && !self.nowhere.contains(address);
        let unknown: Vec<u64> = innermost.filter(unknown).collect();
        if !unknown.is_empty() {
            self.classifier.refresh()?;
            self.nowhere.extend(unknown.into_iter().filter(|address| !self.classifier.knows(*address)));
        }
        Ok(())
    }
}

fn addresses(stack: &abi::netstack_stack) -> &[u64] {
    let frames = usize::try_from(stack.frames).unwrap_or(usize::MAX).min(stack.address.len());
    &stack.address[..frames]
}

fn read_cpus(map: &MapHandle) -> Result<Vec<abi::netstack_cpu>, Error> {
    let values =
        map.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(|e| failed("read", format!("{e:#}")))?;
    Ok(values.unwrap_or_default().iter().map(|bytes| bpf::from_bytes(bytes)).collect())
}

/// Takes all entries out of a hash that no run fills.
fn drain_list<K: bpf::Pod, V: bpf::Pod>(map: &MapHandle) -> Result<Vec<(K, V)>, Error> {
    let all = map.lookup_and_delete_batch(map.max_entries(), MapFlags::ANY, MapFlags::ANY);
    let all = all.map_err(|e| failed("read", format!("{e:#}")))?;
    Ok(all.map(|(key, value)| (bpf::from_bytes(&key), bpf::from_bytes(&value))).collect())
}

fn drain<K: bpf::Pod + Eq + std::hash::Hash, V: bpf::Pod>(map: &MapHandle) -> Result<HashMap<K, V>, Error> {
    Ok(drain_list(map)?.into_iter().collect())
}

/// Loads the program, with room in each bank for the samples of [`BANK_TIME`].
fn load(hz: u32, cpus: usize) -> Result<Object, Error> {
    let mut object = bpf::open("netstack", OBJECT)?;
    let constants = abi::netstack_constants { v1_controller: cgroup::v1_number() };
    bpf::set_constants(&mut object, ".rodata.netstack", bpf::as_bytes(&constants))?;
    let due = u64::from(hz) * BANK_TIME.as_secs() * cpus as u64;
    let entries = u32::try_from(due).unwrap_or(u32::MAX).clamp(*BANK_ENTRIES.start(), *BANK_ENTRIES.end());
    for bank in 0..abi::NETSTACK_BANKS {
        bpf::resize(&mut object, &format!("stacks_{bank}"), size_of::<abi::netstack_stack>(), entries)?;
        bpf::resize(&mut object, &format!("samples_{bank}"), size_of::<u64>(), entries)?;
    }
    bpf::load("netstack", object)
}

/// Loads the program, as for one CPU.
///
/// # Errors
/// The kernel's error.
pub fn try_load() -> Result<(), Error> {
    load(DEFAULT_HZ, 1).map(drop)
}
