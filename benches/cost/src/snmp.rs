// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of reading SNMP counters: of many network namespaces compared with `/proc` and nstat, and of many devices
//! compared with `/proc` and netlink; node_exporter's collector of these counters; and the order in which the counters of
//! many CPUs are added up.

use std::fs::File;
use std::hint::black_box;
use std::io::{Read as _, Seek as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use rustix::time::{ClockId, clock_gettime};
use topstat_families::snmp::{Keep, Netns, Reader, Select, Which};

use crate::netlink;
use crate::stats::spread;

#[derive(Args)]
pub struct Options {
    /// Numbers of namespaces.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 100, 500])]
    namespaces: Vec<usize>,
    /// Numbers of devices.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1000])]
    devices: Vec<usize>,
    /// Rounds; each way has a turn in each round.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
}

pub fn run(options: &Options) -> Result<()> {
    println!("## snmp: CPU time of reading counters once, µs per namespace: median (least–greatest)\n");
    println!(
        "| namespaces | topstat, CPU by CPU | /proc: snmp, netstat, snmp6, parsed | ratio | nstat, once | node_exporter, a scrape |"
    );
    println!("|---:|---:|---:|---:|---:|---:|");
    let exporter = Exporter::start()?;
    for &count in &options.namespaces {
        namespaces(count, options.rounds, exporter.as_ref())?;
    }
    println!("\nµs per veth device:\n");
    println!("| devices | topstat, CPU by CPU | /proc: dev_snmp6, parsed | RTM_GETLINK, parsed | ratio |");
    println!("|---:|---:|---:|---:|---:|");
    for &count in &options.devices {
        devices(count, options.rounds)?;
    }
    println!("\nns to add up counters of CPUs whose arrays are cold, least of the rounds:\n");
    println!("| CPUs | counters | item by item | CPU by CPU, item by item | CPU by CPU, in blocks | orders | blocks |");
    println!("|---:|---:|---:|---:|---:|---:|---:|");
    for cpus in [2, 8, 64, 128, 256] {
        for counters in [40, 90] {
            fold(cpus, counters, options.rounds);
        }
    }
    Ok(())
}

/// CPU time of this thread.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The duration of `work`, in µs of the thread's CPU time.
fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let begun = cpu_time();
    let done = work()?;
    Ok(((cpu_time() - begun).as_secs_f64() * 1e6, done))
}

/// The files with the counters of a namespace.
const FILES: [&str; 3] = ["snmp", "netstat", "snmp6"];
/// The minimum number of reads of namespaces in a turn: a single namespace is read this often; otherwise the turn would be
/// shorter than filling the caches anew.
const TURN: usize = 100;

/// A network namespace that exists as long as this value.
struct Made {
    namespace: OwnedFd,
    files: Vec<File>,
}

impl Made {
    fn new() -> Result<Self> {
        let make = || -> Result<Self> {
            // SAFETY: the call changes the namespace of this thread, which ends here.
            ensure!(unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0, "cannot make a network namespace");
            let open = |name: &str| File::open(format!("/proc/thread-self/net/{name}")).context("open counters");
            let files = FILES.map(open).into_iter().collect::<Result<_>>()?;
            Ok(Self { namespace: File::open("/proc/thread-self/ns/net")?.into(), files })
        };
        std::thread::scope(|scope| scope.spawn(make).join()).expect("the thread has not panicked")
    }

    /// Runs `work` inside the namespace.
    fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let inside = || {
            move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            work()
        };
        std::thread::scope(|scope| scope.spawn(inside).join()).expect("the thread has not panicked")
    }
}

/// Reads an open file, and parses every number: names are taken as known, which saves the other side most of its work.
fn parse(file: &mut File, text: &mut String) -> Result<u64> {
    text.clear();
    file.rewind()?;
    file.read_to_string(text)?;
    Ok(text.split_ascii_whitespace().filter_map(|word| word.parse::<u64>().ok()).fold(0, u64::wrapping_add))
}

fn show(values: &[f64]) -> String {
    let s = spread(values);
    format!("{:.2} ({:.2}–{:.2})", s.median, s.low, s.high)
}

fn ratio(more: &[f64], less: &[f64]) -> String {
    format!("1/{:.1}", spread(more).median / spread(less).median)
}

fn namespaces(count: usize, rounds: usize, exporter: Option<&Exporter>) -> Result<()> {
    let mut made = (0..count).map(|_| Made::new()).collect::<Result<Vec<_>>>()?;
    let all = Which { netns: Netns::All, ..Which::default() };
    let one = Which { netns: Netns::Own, ..Which::default() };
    let open = |which| Reader::open(&Select { which, keep: Keep::Sums, ..Select::default() });
    // One namespace means the current one: other namespaces of the host must not be read.
    let mut reader = if count == 1 { open(one)? } else { open(all)? };
    let (mut ours, mut proc, mut nstat, mut scrapes) = (vec![], vec![], vec![], vec![]);
    let mut text = String::new();
    let times = TURN.div_ceil(count);
    for _ in 0..rounds {
        let (us, read) = timed(|| (0..times).try_fold(0, |_, _| Ok(reader.touch()?)))?;
        ensure!(read >= count, "{read} of {count} namespaces");
        ours.push(us / (times * read) as f64);
        let (us, _) = timed(|| {
            for _ in 0..times {
                for file in made.iter_mut().flat_map(|made| &mut made.files) {
                    black_box(parse(file, &mut text)?);
                }
            }
            Ok(())
        })?;
        proc.push(us / (times * count) as f64);
        nstat.push(made[0].inside(|| of_child(Command::new("nstat").args(["-a", "-s"])))?);
        if let Some(exporter) = exporter {
            scrapes.push(exporter.scrape()?);
        }
    }
    let scrapes = if scrapes.is_empty() { "not installed".to_owned() } else { show(&scrapes) };
    let (ratio, ours, proc, nstat) = (ratio(&proc, &ours), show(&ours), show(&proc), show(&nstat));
    println!("| {count} | {ours} | {proc} | {ratio} | {nstat} | {scrapes} |");
    Ok(())
}

/// node_exporter with only its collector of `/proc/net/netstat`, `snmp` and `snmp6`, in the current namespace.
struct Exporter {
    child: Child,
    address: SocketAddr,
}

impl Exporter {
    /// Starts the exporter; `None` if it is not installed.
    fn start() -> Result<Option<Self>> {
        // A port that is free, or was a moment ago.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let mut command = Command::new("prometheus-node-exporter");
        command.args(["--collector.disable-defaults", "--collector.netstat", "--web.disable-exporter-metrics"]);
        command.arg(format!("--web.listen-address={address}")).stdout(Stdio::null()).stderr(Stdio::null());
        let child = match command.spawn() {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            child => child.context("prometheus-node-exporter")?,
        };
        let exporter = Self { child, address };
        let begun = Instant::now();
        while exporter.get().is_err() {
            ensure!(begun.elapsed() < Duration::from_secs(10), "prometheus-node-exporter does not answer at {address}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Some(exporter))
    }

    /// Requests the metrics, as Prometheus does.
    fn get(&self) -> Result<()> {
        let mut connection = TcpStream::connect(self.address)?;
        connection.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        connection.read_to_string(&mut text)?;
        ensure!(text.contains("node_netstat_Tcp_InSegs"), "node_exporter has no counters: {text}");
        Ok(())
    }

    /// CPU time of a scrape, in µs: the mean of several.
    fn scrape(&self) -> Result<f64> {
        const SCRAPES: u32 = 20;
        let before = self.cpu_time()?;
        (0..SCRAPES).try_for_each(|_| self.get())?;
        Ok((self.cpu_time()? - before).as_secs_f64() * 1e6 / f64::from(SCRAPES))
    }

    /// CPU time of all its threads, by the scheduler's account.
    fn cpu_time(&self) -> Result<Duration> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()))?;
        let of = |task: std::io::Result<std::fs::DirEntry>| -> Option<u64> {
            let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse().ok()
        };
        Ok(Duration::from_nanos(tasks.filter_map(of).sum()))
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // The exporter has no state to lose.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// CPU time of a program, its start included, in µs.
fn of_child(command: &mut Command) -> Result<f64> {
    let used = || {
        // SAFETY: plain numbers, which the call fills in.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is valid.
        unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
        let us = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
        us(usage.ru_utime) + us(usage.ru_stime)
    };
    let begun = used();
    let status = command.env("NSTAT_HISTORY", "/dev/null").stdout(Stdio::null()).status().context("nstat")?;
    ensure!(status.success(), "nstat failed");
    Ok(used() - begun)
}

fn devices(count: usize, rounds: usize) -> Result<()> {
    let made = Made::new()?;
    made.inside(|| {
        for pair in 0..count / 2 {
            let words = format!("link add l{pair} type veth peer name r{pair}");
            let status = Command::new("ip").args(words.split(' ')).status().context("ip")?;
            ensure!(status.success(), "ip {words}");
        }
        let which = Which { netns: Netns::Own, devices: true, device: None };
        let mut reader = Reader::open(&Select { which, keep: Keep::Sums, ..Select::default() })?;
        let names: Vec<_> = std::fs::read_dir("/proc/thread-self/net/dev_snmp6")?.flatten().collect();
        let mut files = names.iter().map(|name| File::open(name.path())).collect::<std::io::Result<Vec<_>>>()?;
        let mut links = netlink::Links::new()?;
        let (mut ours, mut proc, mut getlink) = (vec![], vec![], vec![]);
        let mut text = String::new();
        for _ in 0..rounds {
            let (us, read) = timed(|| Ok(reader.touch()?))?;
            ensure!(read >= count, "{read} of {count} devices");
            ours.push(us / read as f64);
            let (us, _) =
                timed(|| files.iter_mut().try_for_each(|file| parse(file, &mut text).map(|sum| _ = black_box(sum))))?;
            proc.push(us / files.len() as f64);
            let (us, read) = timed(|| links.dump())?;
            ensure!(read >= count, "{read} of {count} links");
            getlink.push(us / read as f64);
        }
        let (p, g) = (ratio(&proc, &ours), ratio(&getlink, &ours));
        println!("| {count} | {} | {} ({p}) | {} | {g} |", show(&ours), show(&proc), show(&getlink));
        Ok(())
    })
}

/// The distance between the arrays of two CPUs: the kernel's chunks of per-CPU data have at least 32 KiB for each CPU.
const STRIDE_WORDS: usize = 32 * 1024 / 8;
/// The number of rows that are added up in turn, so that no row is still in the caches at its turn: more than the caches
/// hold.
const ROWS: usize = 64;

/// Adds up the counters of CPUs in three orders: the kernel's before 2015, the kernel's since "net: Refactor SNMP
/// statistics", and topstat's.
fn fold(cpus: usize, counters: usize, rounds: usize) {
    let words = cpus * STRIDE_WORDS;
    let memory: Vec<u64> = (0..words as u64).collect();
    let places: Vec<usize> = black_box((1..=counters).collect());
    let rows = ROWS.min(STRIDE_WORDS / 128);
    let base = |row: usize, cpu: usize| cpu * STRIDE_WORDS + row * 128;
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        let mut sums = vec![0_u64; counters + 1];
        let mut turn = |way: usize, add: &mut dyn FnMut(usize, &mut [u64])| {
            let begun = cpu_time();
            for row in 0..rows {
                add(row, &mut sums);
                black_box(&mut sums);
            }
            times[way].push((cpu_time() - begun).as_secs_f64() * 1e9 / rows as f64);
        };
        turn(0, &mut |row, sums| {
            for &place in &places {
                sums[place] = (0..cpus).map(|cpu| memory[base(row, black_box(cpu)) + place]).fold(0, u64::wrapping_add);
            }
        });
        turn(1, &mut |row, sums| {
            for cpu in 0..cpus {
                for &place in &places {
                    sums[place] = sums[place].wrapping_add(memory[base(row, black_box(cpu)) + place]);
                }
            }
        });
        turn(2, &mut |row, sums| {
            for cpu in 0..cpus {
                topstat_engine::fold(sums, &memory[base(row, cpu)..][..counters + 1]);
            }
        });
    }
    // Other processes on the host evict caches, which only adds time.
    let [items, order, blocks] = times.each_ref().map(|times| spread(times).low);
    println!(
        "| {cpus} | {counters} | {items:.0} | {order:.0} | {blocks:.0} | {:.1} × | {:.1} × |",
        items / order,
        order / blocks
    );
}
