// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Histograms of packets: the programs are attached as long as a reader exists.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::{Instant, SystemTime};

use libbpf_rs::btf::{Btf, BtfType};
use libbpf_rs::{Link, MapCore as _, MapFlags, Object};
use rustix::time::{ClockId, clock_gettime};
use topstat_model::histograms::{Histogram, Histograms, Subject};

use super::abi;
use topstat_kernel::bpf::{self, Shared};
use topstat_kernel::{Error, cost};

const SIZES: &[u8] = object!("netstack/sizes.bpf.o");
const LATENCY: &[u8] = object!("netstack/latency.bpf.o");
const NS_PER_SECOND: i64 = 1_000_000_000;
/// The tolerance for the difference between the clock of arrivals and the monotonic clock, from one comparison to the next: a
/// thread may have to wait between two system calls. A larger change means that the clock was set.
const STEP_NS: u64 = 1_000_000;
/// The most reads until no run is under way: a run takes less than a microsecond.
const TRIES: u32 = 100;

/// A selection of packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Only packets that this device of the calling thread's network namespace receives.
    pub device: Option<String>,
    /// Only packets from or to one of these ports of TCP and UDP.
    pub ports: Vec<u16>,
    /// Only packets that these processes copy.
    pub pids: Vec<u32>,
}

/// Counts packets, as long as it lives.
pub struct Counter {
    // Links first: they are dropped before the programs that they refer to.
    _links: Vec<Link>,
    programs: Vec<OwnedFd>,
    object: Object,
    subject: Subject,
    arrivals: Option<Arrivals>,
    last: Counted,
    begun: Instant,
}

/// The counts up to a moment.
#[derive(Clone, Debug, Default)]
struct Counted {
    series: Vec<(&'static str, Histogram)>,
    besides: Vec<(&'static str, u64)>,
}

/// Makes the stack record when packets arrive, and knows the clock of these times.
struct Arrivals {
    _socket: UdpSocket,
    ahead: Shared,
    ahead_ns: u64,
}

fn failed(what: &str, why: impl ToString) -> Error {
    Error::Kernel { what: format!("{what} histograms of packets"), why: why.to_string() }
}

impl Counter {
    /// Loads the programs of a histogram, and attaches them.
    ///
    /// # Errors
    /// When there is no such device, too many ports or processes are chosen, or the kernel does not allow it.
    pub fn open(subject: Subject, chosen: &Chosen) -> Result<Self, Error> {
        let object = load(subject, &filter(subject, chosen)?)?;
        let arrivals = (subject == Subject::Latency).then(|| Arrivals::begin(&object)).transpose()?;
        let mut links = Vec::new();
        for program in object.progs_mut().filter(|program| program.autoload()) {
            links.push(program.attach().map_err(|e| failed("attach the programs of", format!("{e:#}")))?);
        }
        let programs = object.progs_mut().filter(|program| program.autoload());
        let programs: io::Result<Vec<OwnedFd>> = programs.map(|p| p.as_fd().try_clone_to_owned()).collect();
        let programs = programs.map_err(|e| failed("attach the programs of", e))?;
        let begun = Instant::now();
        let mut counter = Self { _links: links, programs, object, subject, arrivals, last: Counted::default(), begun };
        counter.last = counter.count()?;
        Ok(counter)
    }

    /// The counts since the last call, or since the counter was opened.
    ///
    /// # Errors
    /// When the kernel does not give them.
    pub fn read(&mut self) -> Result<Histograms, Error> {
        let counted = self.count()?;
        let now = Instant::now();
        let elapsed = now.duration_since(std::mem::replace(&mut self.begun, now));
        let last = std::mem::replace(&mut self.last, counted.clone());
        let since = |(name, now): &(&'static str, Histogram), (_, then): &(&str, Histogram)| (*name, now.since(then));
        let mut series: Vec<_> = counted.series.iter().zip(&last.series).map(|(now, then)| since(now, then)).collect();
        let mut besides: Vec<(&'static str, u64)> =
            counted.besides.iter().zip(&last.besides).map(|((name, now), (_, then))| (*name, now - then)).collect();
        // If the clock was set in the interval, its times are worthless.
        if self.arrivals.as_mut().is_some_and(Arrivals::was_set) {
            let copies = besides.iter().find(|(name, _)| *name == "copies").map_or(0, |(_, count)| *count);
            series.iter_mut().for_each(|(_, histogram)| *histogram = Histogram::default());
            for (name, count) in &mut besides {
                match *name {
                    "undated" => *count = copies,
                    "unsplit" => *count = 0,
                    _ => {}
                }
            }
        }
        Ok(Histograms { time: SystemTime::now(), elapsed, subject: self.subject, series, besides })
    }

    /// The counts so far, on all CPUs.
    fn count(&self) -> Result<Counted, Error> {
        let lost = self.programs.iter().map(|fd| cost::program_info(fd, None).map(|info| info.recursion_misses));
        let lost = lost.sum::<io::Result<u64>>().map_err(|e| failed("read", e))?;
        match self.subject {
            Subject::Skb => {
                let all: Vec<abi::netstack_sizes> = self.cpus("sizes")?;
                let series = |of: fn(&abi::netstack_sizes) -> &abi::netstack_histogram| folded(all.iter().map(of));
                Ok(Counted {
                    series: vec![("before_gro", series(|cpu| &cpu.before)), ("after_gro", series(|cpu| &cpu.after))],
                    besides: vec![("unread", all.iter().map(|cpu| cpu.unread).sum()), ("lost", lost)],
                })
            }
            Subject::Latency => {
                let all = self.latencies()?;
                let series = |of: fn(&abi::netstack_latencies) -> &abi::netstack_histogram| folded(all.iter().map(of));
                let sum = |of: fn(&abi::netstack_latencies) -> u64| all.iter().map(of).sum();
                Ok(Counted {
                    series: vec![
                        ("latency", series(|cpu| &cpu.latency)),
                        ("scheduling", series(|cpu| &cpu.scheduling)),
                        ("queueing", series(|cpu| &cpu.queueing)),
                    ],
                    besides: vec![
                        ("copies", sum(|cpu| cpu.copies)),
                        ("bytes", sum(|cpu| cpu.bytes)),
                        ("undated", sum(|cpu| cpu.undated)),
                        ("unsplit", sum(|cpu| cpu.unsplit)),
                        ("lost", lost),
                    ],
                })
            }
        }
    }

    /// Reads again while a run adds a copy (NS6). A CPU that is stopped amid a run, by its host, is read as it is.
    fn latencies(&self) -> Result<Vec<abi::netstack_latencies>, Error> {
        let read = || self.cpus::<abi::netstack_latencies>("latencies");
        for _ in 1..TRIES {
            let all = read()?;
            if all.iter().all(|cpu| cpu.done == cpu.copies) {
                return Ok(all);
            }
            std::thread::yield_now();
        }
        read()
    }

    fn cpus<T: bpf::Pod>(&self, map: &str) -> Result<Vec<T>, Error> {
        let values = bpf::map(&self.object, map)?.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let values = values.map_err(|e| failed("read", format!("{e:#}")))?.unwrap_or_default();
        Ok(values.iter().map(|bytes| bpf::from_bytes(bytes)).collect())
    }
}

/// The sum of a histogram over all CPUs.
fn folded<'a>(cpus: impl Iterator<Item = &'a abi::netstack_histogram>) -> Histogram {
    let mut sum = Histogram::default();
    for cpu in cpus {
        sum.add(&Histogram { buckets: cpu.bucket.to_vec(), sum: cpu.sum });
    }
    sum
}

impl Arrivals {
    /// Opens a socket that requests times of arrival. While the socket exists, the stack records the times of all packets.
    fn begin(object: &Object) -> Result<Self, Error> {
        /// From linux/net_tstamp.h.
        const SOF_TIMESTAMPING_RX_SOFTWARE: libc::c_int = 1 << 3;
        let failed = |e: io::Error| failed("learn when packets arrive, for", e);
        let socket = UdpSocket::bind(("127.0.0.1", 0)).or_else(|_| UdpSocket::bind(("0.0.0.0", 0))).map_err(failed)?;
        let flags = SOF_TIMESTAMPING_RX_SOFTWARE;
        // SAFETY: the value lives through the call, and has the given length.
        let set = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_TIMESTAMPING,
                (&raw const flags).cast(),
                libc::socklen_t::try_from(size_of_val(&flags)).expect("some bytes"),
            )
        };
        if set != 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        let begun = Self { _socket: socket, ahead: Shared::new(&bpf::map(object, "ahead")?)?, ahead_ns: ahead_ns() };
        begun.ahead.write(0, 0, begun.ahead_ns);
        Ok(begun)
    }

    /// Whether the clock was set since the last call. The program uses the new difference from now on.
    fn was_set(&mut self) -> bool {
        let now_ns = ahead_ns();
        let set = now_ns.abs_diff(self.ahead_ns) > STEP_NS;
        if set {
            self.ahead_ns = now_ns;
            self.ahead.write(0, 0, now_ns);
        }
        set
    }
}

/// Time of the real-time clock less time of the monotonic clock. Both run at the same rate, so the difference changes only when
/// one is set.
fn ahead_ns() -> u64 {
    let read = |clock| {
        let time = clock_gettime(clock);
        time.tv_sec * NS_PER_SECOND + time.tv_nsec
    };
    // The monotonic clock is read before and after the other one. The closest two readings give the best estimate.
    let tries = (0..8).map(|_| {
        let (before, real, after) = (read(ClockId::Monotonic), read(ClockId::Realtime), read(ClockId::Monotonic));
        (after - before, real - (before + (after - before) / 2))
    });
    tries.min().map_or(0, |(_, ahead)| u64::try_from(ahead).unwrap_or(0))
}

/// The selection in the form of the programs.
fn filter(subject: Subject, chosen: &Chosen) -> Result<abi::netstack_filter, Error> {
    let mut filter = abi::netstack_filter::default();
    let only = |what: &str, which: Subject| {
        Error::Option(format!("{what} can't be chosen for this histogram, but for that of {}", which.name()))
    };
    if let Some(device) = &chosen.device {
        if subject != Subject::Skb {
            return Err(only("a device", Subject::Skb));
        }
        filter.device = super::device_index(device).map_err(|e| failed(&format!("find {device} for"), e))?;
        let netns = std::fs::metadata("/proc/thread-self/ns/net").map_err(|e| failed("find the namespace for", e))?;
        filter.netns = u32::try_from(std::os::unix::fs::MetadataExt::ino(&netns)).unwrap_or(0);
    }
    if !chosen.pids.is_empty() && subject != Subject::Latency {
        return Err(only("processes", Subject::Latency));
    }
    let many = |what: &str, count: usize| {
        Error::Option(format!("{count} {what}: at most {} can be chosen", abi::NETSTACK_CHOSEN))
    };
    filter.ports = u32::try_from(chosen.ports.len()).unwrap_or(u32::MAX);
    filter.pids = u32::try_from(chosen.pids.len()).unwrap_or(u32::MAX);
    if filter.ports > abi::NETSTACK_CHOSEN {
        return Err(many("ports", chosen.ports.len()));
    }
    if filter.pids > abi::NETSTACK_CHOSEN {
        return Err(many("processes", chosen.pids.len()));
    }
    filter.port.iter_mut().zip(&chosen.ports).for_each(|(to, port)| *to = (*port).into());
    filter.pid.iter_mut().zip(&chosen.pids).for_each(|(to, pid)| *to = *pid);
    Ok(filter)
}

/// Loads the programs of a histogram, except programs whose tracepoint this kernel lacks.
fn load(subject: Subject, filter: &abi::netstack_filter) -> Result<Object, Error> {
    let (name, bytes) = match subject {
        Subject::Skb => ("sizes", SIZES),
        Subject::Latency => ("latency", LATENCY),
    };
    let mut object = bpf::open(name, bytes)?;
    bpf::set_constants(&mut object, ".rodata.filter", bpf::as_bytes(filter))?;
    let btf = Btf::from_vmlinux().map_err(|e| failed("read the kernel's types, for", format!("{e:#}")))?;
    for mut program in object.progs_mut() {
        let section = program.section().to_string_lossy().into_owned();
        let hook = section.rsplit('/').next().unwrap_or_default();
        program.set_autoload(btf.type_by_name::<BtfType<'_>>(&format!("btf_trace_{hook}")).is_some());
    }
    bpf::load(name, object)
}

/// Loads the programs of both histograms. A kernel before 5.11 has no task storage, and so no histogram of latencies.
///
/// # Errors
/// The kernel's error.
pub fn try_load() -> Result<(), Error> {
    // With every kind of selection: the verifier does not check code that a constant leaves out.
    let all = abi::NETSTACK_CHOSEN;
    let filter = abi::netstack_filter { netns: 1, device: 1, ports: all, pids: all, ..Default::default() };
    load(Subject::Skb, &filter)?;
    match load(Subject::Latency, &filter) {
        Ok(_) | Err(Error::Lacking { .. }) => Ok(()),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_not_be_chosen_is_an_error() {
        let error = |subject, chosen| filter(subject, &chosen).unwrap_err().to_string();
        let none = Chosen::default();
        let pids = Chosen { pids: vec![1], ..none.clone() };
        assert!(error(Subject::Skb, pids.clone()).contains("but for that of latency"));
        assert_eq!(filter(Subject::Latency, &pids).unwrap().pid[0], 1);
        let device = Chosen { device: Some("nosuch0".to_owned()), ..none.clone() };
        assert!(error(Subject::Skb, device.clone()).contains("nosuch0"));
        assert!(error(Subject::Latency, device).contains("but for that of skb"));
        let many = Chosen { ports: (0..17).collect(), ..none };
        assert!(error(Subject::Skb, many).contains("17 ports: at most 16"));
    }

    #[test]
    fn the_clocks_differ_by_the_time_of_boot() {
        assert!(ahead_ns() > 1_000_000_000_000_000_000 && ahead_ns().abs_diff(ahead_ns()) < STEP_NS);
    }
}
