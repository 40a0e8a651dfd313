// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPUs and the network of the host, and the cost of this program: the first line of the overview.

use std::borrow::Cow;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// The activity of the host between two looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Host {
    /// How busy each CPU was, from 0 to 1.
    pub cpus: Vec<f64>,
    /// Bits per second that devices have received and sent, without loopback.
    pub net: Option<(u64, u64)>,
    /// The share of a CPU that this program has used.
    pub own: Option<f64>,
}

/// Looks at the host repeatedly.
#[derive(Debug, Default)]
pub struct Looker {
    before: Option<Look>,
    stat: Source,
    dev: Source,
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
    /// All ticks and the idle ticks of each CPU.
    cpus: Vec<(u64, u64)>,
    /// The bytes received and sent.
    net: (u64, u64),
    own_ns: u64,
}

impl Looker {
    /// The activity since the last look; `None` at the first look.
    pub fn look(&mut self) -> Option<Host> {
        let own = clock_gettime(ClockId::ProcessCPUTime);
        let now = Look {
            at: Instant::now(),
            cpus: cpus(&self.stat.read("/proc/stat")),
            net: net(&self.dev.read("/proc/net/dev")),
            own_ns: u64::try_from(own.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(own.tv_nsec).unwrap_or(0),
        };
        let host = self.before.as_ref().map(|before| difference(before, &now));
        self.before = Some(now);
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
    let busy = |((all, idle), (all_before, idle_before)): (&(u64, u64), &(u64, u64))| {
        let all = all.saturating_sub(*all_before).max(1) as f64;
        (1.0 - idle.saturating_sub(*idle_before) as f64 / all).clamp(0.0, 1.0)
    };
    let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 * 8.0 / seconds) as u64;
    Host {
        cpus: now.cpus.iter().zip(&before.cpus).map(busy).collect(),
        net: Some((rate(now.net.0, before.net.0), rate(now.net.1, before.net.1))),
        own: Some(now.own_ns.saturating_sub(before.own_ns) as f64 / 1e9 / seconds),
    }
}

/// All ticks of each CPU, and the ticks in which it was idle or waited for a disk, as in proc(5).
fn cpus(stat: &str) -> Vec<(u64, u64)> {
    let of_cpu = |line: &str| {
        let rest = line.strip_prefix("cpu").filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))?;
        let ticks: Vec<u64> = rest.split_whitespace().skip(1).filter_map(|tick| tick.parse().ok()).collect();
        // The time of guests is part of user and nice.
        Some((ticks.iter().take(8).sum(), ticks.get(3)? + ticks.get(4)?))
    };
    stat.lines().filter_map(of_cpu).collect()
}

/// The bytes that all devices except loopback have received and sent.
fn net(dev: &str) -> (u64, u64) {
    let of_device = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let counters: Vec<u64> = rest.split_whitespace().filter_map(|counter| counter.parse().ok()).collect();
        (name.trim() != "lo").then_some((*counters.first()?, *counters.get(8)?))
    };
    dev.lines().filter_map(of_device).fold((0, 0), |(rx, tx), (more_rx, more_tx)| (rx + more_rx, tx + more_tx))
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
        let mut ticks = || cpus(&source.read("/proc/stat")).iter().map(|(all, _)| all).sum::<u64>();
        let (first, begun) = (ticks(), Instant::now());
        while ticks() == first {
            assert!(begun.elapsed().as_secs() < 60, "no CPU has ticked in all that time");
        }
    }

    #[test]
    fn proc_is_read_as_it_is_written() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 100 0 50 800 50 0 0 0 7 0\ncpu1 1 2 3 4 5 6 7 8 9 10\nintr 5\n";
        assert_eq!(cpus(stat), [(1000, 850), (36, 9)]);
        let dev = "Inter-|   Receive |  Transmit\n face |bytes packets\n    lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n  \
                   eth0: 100 2 0 0 0 0 0 0 30 1 0 0 0 0 0 0\n";
        assert_eq!(net(dev), (100, 30));
    }
}
