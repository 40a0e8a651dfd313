// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Made-up samples of stacks of two CPUs, of a process that sends and one that receives; and made-up histograms.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use topstat_kernel::Error;
use topstat_lab::side::Profiling;
use topstat_model::histograms::{Histogram, Histograms, Subject};
use topstat_model::stacks::{Besides, Category, Event, Found, Frame, Profile, Sample, Side};

/// Gives made-up samples.
pub struct FakeStacks {
    /// Some samples could not be stored.
    pub lossy: bool,
    /// The number of the reading that fails.
    pub fail_at: Option<u64>,
    /// The number of readings taken.
    pub taken: u64,
}

/// Stacks of a process and a side, the innermost function first, with their number of samples.
const STACKS: [(u32, &str, Side, &[&str], u64); 5] = [
    (80, "nginx", Side::Send, &["_copy_from_iter", "tcp_sendmsg_locked", "tcp_sendmsg", "do_syscall_64"], 30),
    (80, "nginx", Side::SoftirqReceive, &["tcp_ack", "tcp_rcv_established", "net_rx_action", "tcp_sendmsg"], 20),
    (54, "odd \x1b[31m;name", Side::Receive, &["_raw_spin_unlock_irqrestore", "skb_clone", "tcp_recvmsg"], 15),
    (54, "odd \x1b[31m;name", Side::Receive, &["__x86_indirect_thunk_rax", "veth_poll"], 4),
    (0, "swapper/1", Side::Other, &["0xffffffffc0000000"], 1),
];

fn found(name: &str) -> Found {
    match name {
        "_copy_from_iter" => Found::ByName(Category::DataCopy),
        "tcp_ack" => Found::ByName(Category::TcpIp),
        "_raw_spin_unlock_irqrestore" => Found::ByName(Category::Lock),
        "skb_clone" => Found::ByName(Category::Skb),
        "__x86_indirect_thunk_rax" => Found::ByCaller(Category::Netdev),
        _ => Found::Unknown,
    }
}

impl Profiling for FakeStacks {
    fn read(&mut self) -> Result<Profile, Error> {
        self.taken += 1;
        if self.fail_at == Some(self.taken) {
            let why = "a CPU does not come to an end with a sample".into();
            return Err(Error::Kernel { what: "read stacks of the kernel".into(), why });
        }
        let sample = |(cpu, (pid, comm, side, stack, count)): (u32, &(u32, &str, Side, &[&str], u64))| {
            let corrected = usize::from(stack[0].contains("unlock"));
            let module = |name: &str| (name == "veth_poll").then(|| "veth".to_owned());
            let frame = |name: &&str| Arc::new(Frame { name: (*name).to_owned(), module: module(name) });
            Sample {
                count: count * self.taken,
                cpu: cpu % 2,
                pid: *pid,
                comm: (*comm).to_owned(),
                cgroup: (*pid != 0).then(|| format!("/system.slice/{pid}.service")),
                side: *side,
                found: [found(stack[0]), found(stack[corrected])],
                leaf: [0, corrected],
                stack: stack.iter().map(frame).collect(),
            }
        };
        let (lost, missed) = if self.lossy { (7, 3) } else { (0, 0) };
        Ok(Profile {
            // 2026-11-21T08:00:00.000Z, plus a second for each reading.
            time: UNIX_EPOCH + Duration::from_secs(1_795_248_000 + self.taken),
            elapsed: Duration::from_secs(1),
            event: Event::CpuClock,
            hz: 99,
            cpus: vec![0, 1],
            samples: (0..).zip(&STACKS).map(sample).collect(),
            besides: Besides { user: 28, idle: 100, lost, missed },
        })
    }

    fn poll(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn unmatched_rules(&self) -> Vec<(usize, String)> {
        if self.lossy { vec![(3, "gone_*".to_owned())] } else { vec![] }
    }
}

/// Gives made-up histograms, whose counts grow with each reading.
pub struct FakeHistograms {
    pub subject: Subject,
    /// Some values could not be put into the histograms.
    pub lossy: bool,
    /// The number of readings taken.
    pub taken: u64,
}

impl FakeHistograms {
    /// The next reading.
    pub fn read(&mut self) -> Result<Histograms, Error> {
        self.taken += 1;
        let of = |counts: &[(usize, u64)], sum: u64| {
            let mut buckets = vec![0; counts.iter().map(|(bucket, _)| bucket + 1).max().unwrap_or(0)];
            counts.iter().for_each(|(bucket, count)| buckets[*bucket] = count * self.taken);
            Histogram { buckets, sum: sum * self.taken }
        };
        let lost = if self.lossy { 3 } else { 0 };
        let (series, besides) = match self.subject {
            Subject::Skb => (
                vec![
                    ("before_gro", of(&[(6, 20), (11, 440)], 640_000)),
                    ("after_gro", of(&[(6, 20), (11, 4), (16, 10)], 620_000)),
                ],
                vec![("unread", lost), ("lost", lost)],
            ),
            Subject::Latency => (
                vec![
                    ("latency", of(&[(14, 6), (20, 2)], 2_000_000)),
                    ("scheduling", of(&[(0, 5), (19, 2)], 900_000)),
                    ("queueing", of(&[(14, 5), (20, 2)], 1_000_000)),
                ],
                vec![("copies", 9), ("bytes", 90_000), ("undated", 1), ("unsplit", 1), ("lost", lost)],
            ),
        };
        Ok(Histograms {
            time: UNIX_EPOCH + Duration::from_secs(1_795_248_000 + self.taken),
            elapsed: Duration::from_secs(1),
            subject: self.subject,
            series,
            besides,
        })
    }
}
