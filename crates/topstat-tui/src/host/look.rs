// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks at the host, and takes the difference to the look before.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use super::proc::{self, Blocks, Ticks};
use super::{Cpu, Disk, Host, Memory, Pressure};

/// Looks at the host repeatedly.
#[derive(Debug, Default)]
pub struct Looker {
    before: Option<Look>,
    files: Files,
    /// Whether each network device, and each disk, is hardware. A device is looked up once.
    hardware: HashMap<PathBuf, bool>,
}

/// The open files.
#[derive(Debug, Default)]
struct Files {
    stat: Source,
    memory: Source,
    devices: Source,
    snmp: Source,
    disks: Source,
    load: Source,
    pressure: [Source; 3],
}

/// A file of /proc that is read repeatedly. It stays open: opening it takes as long as reading it.
#[derive(Debug, Default)]
struct Source {
    file: Option<File>,
    text: Vec<u8>,
}

#[derive(Debug)]
struct Look {
    at: Instant,
    /// All CPUs together.
    cpu: Option<Ticks>,
    cpus: Vec<Ticks>,
    memory: Option<Memory>,
    /// The bytes received and sent.
    net: (u64, u64),
    retrans: Option<u64>,
    disks: Vec<(String, Blocks)>,
    /// Microseconds of stalls: CPU, memory, disks.
    pressure: [Option<u64>; 3],
    load: Option<f64>,
    own_ns: u64,
}

impl Looker {
    /// Whether the host has not been looked at.
    pub fn is_new(&self) -> bool {
        self.before.is_none()
    }

    /// The activity since the last look; `None` at the first look.
    pub fn look(&mut self) -> Option<Host> {
        let Self { before, files, hardware } = self;
        let own = clock_gettime(ClockId::ProcessCPUTime);
        let stat = files.stat.read("/proc/stat");
        let (cpu, cpus) = proc::cpus(&stat);
        let devices = proc::devices(&files.devices.read("/proc/net/dev"));
        let mut is_hardware = |of: &str, name: &str| {
            let path = Path::new(of).join(name.replace('/', "!")).join("device");
            *hardware.entry(path).or_insert_with_key(|path| path.exists())
        };
        let any = devices.iter().any(|(name, _)| is_hardware("/sys/class/net", name));
        let counted = devices.iter().filter(|(name, _)| name != "lo" && (!any || is_hardware("/sys/class/net", name)));
        let net = counted.fold((0, 0), |(rx, tx), (_, (more_rx, more_tx))| (rx + more_rx, tx + more_tx));
        let mut disks = proc::disks(&files.disks.read("/proc/diskstats"));
        disks.retain(|(name, _)| is_hardware("/sys/block", name));
        let [of_cpu, of_memory, of_io] = &mut files.pressure;
        let now = Look {
            at: Instant::now(),
            cpu,
            cpus,
            memory: proc::memory(&files.memory.read("/proc/meminfo")),
            net,
            retrans: proc::retrans(&files.snmp.read("/proc/net/snmp")),
            disks,
            pressure: [(of_cpu, "cpu"), (of_memory, "memory"), (of_io, "io")]
                .map(|(file, name)| proc::stalled_us(&file.read(&format!("/proc/pressure/{name}")))),
            load: proc::load(&files.load.read("/proc/loadavg")),
            own_ns: u64::try_from(own.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(own.tv_nsec).unwrap_or(0),
        };
        let host = before.as_ref().map(|before| difference(before, &now));
        *before = Some(now);
        host
    }
}

/// The bytes that one call reads, which is the whole file on most hosts. Files of /proc have no size, and each part of them costs
/// a call.
const AT_ONCE: usize = 32 << 10;

impl Source {
    /// The text of the file; empty where the file can't be read.
    fn read(&mut self, path: &str) -> Cow<'_, str> {
        if self.file.is_none() {
            self.file = File::open(path).ok();
        }
        let mut filled = 0;
        while let Some(file) = &self.file {
            if filled == self.text.len() {
                self.text.resize(filled + AT_ONCE, 0);
            }
            match file.read_at(&mut self.text[filled..], filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => {
                    filled = 0;
                    self.file = None;
                }
            }
        }
        String::from_utf8_lossy(&self.text[..filled])
    }
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // figures for people
fn difference(before: &Look, now: &Look) -> Host {
    let seconds = now.at.duration_since(before.at).as_secs_f64().max(1e-3);
    let busy = |(now, before): (&Ticks, &Ticks)| {
        let ticks = now.since(before);
        (ticks.all() - ticks.idle) as f64 / ticks.all().max(1) as f64
    };
    let split = |now: &Ticks, before: &Ticks| {
        let ticks = now.since(before);
        let share = |part: u64| part as f64 / ticks.all().max(1) as f64;
        Cpu { user: share(ticks.user), system: share(ticks.system), irq: share(ticks.irq), steal: share(ticks.steal) }
    };
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
    let stalled = |place: usize| {
        let (now, before) = (now.pressure[place]?, before.pressure[place]?);
        Some((rate(now, before) / 1e6).clamp(0.0, 1.0))
    };
    let bits = |now: u64, before: u64| (rate(now, before) * 8.0) as u64;
    Host {
        cpus: now.cpus.iter().zip(&before.cpus).map(busy).collect(),
        cpu: now.cpu.as_ref().zip(before.cpu.as_ref()).map(|(now, before)| split(now, before)),
        memory: now.memory,
        net: Some((bits(now.net.0, before.net.0), bits(now.net.1, before.net.1))),
        retrans: now.retrans.zip(before.retrans).map(|(now, before)| rate(now, before)),
        disk: disks(&now.disks, &before.disks, seconds),
        pressure: Pressure { cpu: stalled(0), memory: stalled(1), io: stalled(2) },
        load: now.load,
        own: Some(rate(now.own_ns, before.own_ns) / 1e9),
    }
}

/// The activity of the disks that were there at both looks; `None` on a host without disks.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // figures for people
fn disks(now: &[(String, Blocks)], before: &[(String, Blocks)], seconds: f64) -> Option<Disk> {
    let mut all = None;
    for (name, blocks) in now {
        let Some((_, before)) = before.iter().find(|(other, _)| other == name) else { continue };
        let all = all.get_or_insert_with(Disk::default);
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        all.read += rate(blocks.read_bytes, before.read_bytes) as u64;
        all.written += rate(blocks.written_bytes, before.written_bytes) as u64;
        let busy = (rate(blocks.busy_ms, before.busy_ms) / 1e3).clamp(0.0, 1.0);
        if all.busiest.as_ref().is_none_or(|(_, most)| busy > *most) {
            all.busiest = Some((name.clone(), busy));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_stays_open_is_read_anew_to_its_end() {
        let path = std::env::temp_dir().join(format!("topstat-host-{}", std::process::id()));
        let name = path.to_str().unwrap();
        let mut source = Source::default();
        assert_eq!(source.read(name), "", "it is not there yet");
        for size in [10, 3 * AT_ONCE + 1, AT_ONCE, 0] {
            let text: String = ('a'..='z').cycle().take(size).collect();
            std::fs::write(&path, &text).unwrap();
            assert!(source.read(name) == text, "{size}");
        }
        std::fs::remove_file(&path).unwrap();
        // An open file of /proc gives the present values at each read.
        let mut source = Source::default();
        let mut ticks = || proc::cpus(&source.read("/proc/stat")).0.unwrap().all();
        let (first, begun) = (ticks(), Instant::now());
        while ticks() == first {
            assert!(begun.elapsed().as_secs() < 60, "no CPU has ticked in all that time");
        }
    }

    fn look(at: Instant) -> Look {
        Look {
            at,
            cpu: Some(Ticks::default()),
            cpus: vec![Ticks::default(); 2],
            memory: None,
            net: (1000, 0),
            retrans: Some(5),
            disks: vec![("vda".to_owned(), Blocks::default()), ("vdb".to_owned(), Blocks::default())],
            pressure: [Some(0), None, Some(100_000)],
            load: None,
            own_ns: 0,
        }
    }

    #[test]
    fn two_looks_give_rates_and_shares() {
        let begun = Instant::now();
        let before = look(begun);
        let mut now = look(begun + std::time::Duration::from_secs(2));
        now.cpu = Some(Ticks { user: 50, system: 20, irq: 10, steal: 0, idle: 120 });
        now.cpus[1] = Ticks { user: 100, ..Ticks::default() };
        now.net = (3000, 1000);
        now.retrans = Some(6);
        now.disks[1].1 = Blocks { read_bytes: 4096, written_bytes: 8192, busy_ms: 500 };
        now.disks.push(("new".to_owned(), Blocks { read_bytes: 1 << 40, ..Blocks::default() }));
        now.pressure = [Some(400_000), Some(1), Some(100_000)];
        now.own_ns = 20_000_000;
        let host = difference(&before, &now);
        assert_eq!(host.cpu.unwrap(), Cpu { user: 0.25, system: 0.1, irq: 0.05, steal: 0.0 });
        assert_eq!(host.cpus, [0.0, 1.0], "a CPU without ticks was not seen busy");
        assert_eq!(host.net, Some((8000, 4000)));
        assert_eq!(host.retrans, Some(0.5));
        assert_eq!(host.disk.unwrap(), Disk { read: 2048, written: 4096, busiest: Some(("vdb".to_owned(), 0.25)) });
        assert_eq!(host.pressure, Pressure { cpu: Some(0.2), memory: None, io: Some(0.0) });
        assert_eq!(host.own, Some(0.01));
    }

    #[test]
    fn this_host_is_seen() {
        let mut looker = Looker::default();
        assert_eq!(looker.look(), None, "there is nothing to compare the first look with");
        let begun = Instant::now();
        while begun.elapsed().as_millis() < 50 {
            std::hint::black_box(std::fs::metadata("/")).ok();
        }
        let host = looker.look().unwrap();
        let memory = host.memory.unwrap();
        assert!(memory.total > memory.available && memory.available > 0, "{memory:?}");
        assert!(host.cpu.unwrap().busy() <= 1.0 && host.own.unwrap() > 0.0, "{host:?}");
    }
}
