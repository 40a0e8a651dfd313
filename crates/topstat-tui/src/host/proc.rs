// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files of /proc, as proc(5) and the kernel's documentation describe them.

use super::Memory;

/// Clock ticks of a CPU since boot. The time of guests is part of `user`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    pub user: u64,
    pub system: u64,
    pub irq: u64,
    pub steal: u64,
    /// Idle, or waiting for a disk.
    pub idle: u64,
}

impl Ticks {
    pub fn all(self) -> u64 {
        self.user + self.system + self.irq + self.steal + self.idle
    }

    pub fn since(&self, before: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            irq: self.irq.saturating_sub(before.irq),
            steal: self.steal.saturating_sub(before.steal),
            // The kernel may let this one run backwards.
            idle: self.idle.saturating_sub(before.idle),
        }
    }
}

/// The ticks of all CPUs together, and of each.
pub fn cpus(stat: &str) -> (Option<Ticks>, Vec<Ticks>) {
    let (mut all, mut each) = (None, Vec::new());
    for line in stat.lines() {
        let Some((name, rest)) = line.strip_prefix("cpu").and_then(|line| line.split_once(' ')) else { continue };
        let ticks: Vec<u64> = rest.split_whitespace().filter_map(|tick| tick.parse().ok()).collect();
        let [user, nice, system, idle, iowait, hard, soft, steal, ..] = ticks[..] else { continue };
        let ticks = Ticks { user: user + nice, system, irq: hard + soft, steal, idle: idle + iowait };
        if name.is_empty() { all = Some(ticks) } else { each.push(ticks) }
    }
    (all, each)
}

/// The memory, from /proc/meminfo.
pub fn memory(text: &str) -> Option<Memory> {
    let kib = |name: &str| {
        let of =
            |line: &str| line.strip_prefix(name)?.strip_prefix(':')?.split_whitespace().next()?.parse::<u64>().ok();
        text.lines().find_map(of).map(|kib| kib * 1024)
    };
    let (swap_total, swap_free) = (kib("SwapTotal").unwrap_or(0), kib("SwapFree").unwrap_or(0));
    Some(Memory {
        total: kib("MemTotal")?,
        available: kib("MemAvailable")?,
        swap_total,
        swap_used: swap_total.saturating_sub(swap_free),
    })
}

/// The bytes that each network device has received and sent, from /proc/net/dev.
pub fn devices(text: &str) -> Vec<(String, (u64, u64))> {
    let of_device = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let counters: Vec<u64> = rest.split_whitespace().filter_map(|counter| counter.parse().ok()).collect();
        Some((name.trim().to_owned(), (*counters.first()?, *counters.get(8)?)))
    };
    text.lines().filter_map(of_device).collect()
}

/// The TCP segments sent again since boot, from /proc/net/snmp: a line of names, and a line of numbers.
pub fn retrans(text: &str) -> Option<u64> {
    let mut tcp = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, numbers) = (tcp.next()?, tcp.next()?);
    let place = names.split_whitespace().position(|name| name == "RetransSegs")?;
    numbers.split_whitespace().nth(place)?.parse().ok()
}

/// What a disk has done since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub busy_ms: u64,
}

/// The bytes of a sector in /proc/diskstats, whatever the disk's own sectors are.
const SECTOR: u64 = 512;

/// Each block device, from /proc/diskstats.
pub fn disks(text: &str) -> Vec<(String, Blocks)> {
    let of_disk = |line: &str| {
        let mut words = line.split_whitespace().skip(2);
        let name = words.next()?.to_owned();
        let counters: Vec<u64> = words.filter_map(|counter| counter.parse().ok()).collect();
        let blocks = Blocks {
            read_bytes: counters.get(2)? * SECTOR,
            written_bytes: counters.get(6)? * SECTOR,
            busy_ms: *counters.get(9)?,
        };
        Some((name, blocks))
    };
    text.lines().filter_map(of_disk).collect()
}

/// The microseconds since boot in which some task was stalled, from a file of /proc/pressure.
pub fn stalled_us(text: &str) -> Option<u64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_whitespace().find_map(|word| word.strip_prefix("total=")?.parse().ok())
}

/// The load average of the last minute.
pub fn load(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_the_kernel_writes_them() {
        let stat = "cpu  9 1 9 9 9 9 9 9 9 9\ncpu0 100 5 50 800 50 1 2 3 7 0\ncpu1 1 2 3 4 5 6 7 8 9 10\nintr 5\n";
        let (all, each) = cpus(stat);
        assert_eq!(all, Some(Ticks { user: 10, system: 9, irq: 18, steal: 9, idle: 18 }));
        assert_eq!(each[0], Ticks { user: 105, system: 50, irq: 3, steal: 3, idle: 850 });
        assert_eq!(each[1], Ticks { user: 3, system: 3, irq: 13, steal: 8, idle: 9 });
        let dev = "Inter-|   Receive |  Transmit\n face |bytes packets\n    lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n  \
                   eth0: 100 2 0 0 0 0 0 0 30 1 0 0 0 0 0 0\n";
        assert_eq!(devices(dev), [("lo".to_owned(), (5, 5)), ("eth0".to_owned(), (100, 30))]);
        let meminfo = "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  600 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\n";
        let wanted = Memory { total: 1_024_000, available: 614_400, swap_total: 51_200, swap_used: 30_720 };
        assert_eq!(memory(meminfo), Some(wanted));
        assert_eq!(retrans("Ip: A\nIp: 1\nTcp: InSegs RetransSegs\nTcp: 7 14\n"), Some(14));
        let vda = "254 0 vda 1126 94 48 1450 351 255 46 338 2 172 1845 1 0 1 3 5 1\n";
        let wanted = Blocks { read_bytes: 48 * 512, written_bytes: 46 * 512, busy_ms: 172 };
        assert_eq!(disks(vda), [("vda".to_owned(), wanted)]);
        let pressure = "some avg10=0.63 avg60=1.98 avg300=5.00 total=4099\nfull avg10=0.00 total=7\n";
        assert_eq!(stalled_us(pressure), Some(4099));
        assert_eq!(load("0.90 0.98 1.65 2/96 30873\n"), Some(0.9));
    }

    #[test]
    fn files_of_another_shape_give_nothing() {
        for text in ["", "\n", "cpu", "cpu0 1", "Tcp: ", "Tcp: A\n", "some", "MemTotal: x kB", "1 2 vda", ":"] {
            assert_eq!(cpus(text), (None, vec![]));
            assert_eq!((memory(text), retrans(text), stalled_us(text)), (None, None, None));
            assert!(disks(text).is_empty() && devices(text).is_empty());
        }
    }
}
