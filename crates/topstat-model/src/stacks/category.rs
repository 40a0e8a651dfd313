// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The purposes of kernel functions, and the side of the network stack that they run for.

/// The purpose of a kernel function: the categories of "Understanding Host Network Stack Overheads" (SIGCOMM 2021).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Copying data between user space and the kernel.
    DataCopy,
    /// All the rest: system calls, interrupts, timers, files, security modules.
    Etc,
    /// Locks, and waiting for them.
    Lock,
    /// Memory: pages, slabs, page pools.
    Mm,
    /// Network devices: drivers, NAPI, segmentation and its reverse, queueing disciplines.
    Netdev,
    /// Scheduling, and waking up.
    Sched,
    /// Socket buffers: made, split, merged, freed.
    Skb,
    /// TCP, UDP, IP: all that protocols do with packets, netfilter included.
    TcpIp,
}

impl Category {
    /// All, in the order in which they are listed.
    pub const ALL: [Self; 8] =
        [Self::DataCopy, Self::Etc, Self::Lock, Self::Mm, Self::Netdev, Self::Sched, Self::Skb, Self::TcpIp];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::DataCopy => "data_copy",
            Self::Etc => "etc",
            Self::Lock => "lock",
            Self::Mm => "mm",
            Self::Netdev => "netdev",
            Self::Sched => "sched",
            Self::Skb => "skb",
            Self::TcpIp => "tcp/ip",
        }
    }

    /// The category of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.name() == name)
    }
}

/// The side that the network stack runs for, determined from the stack of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// A process that sends, in its system call.
    Send,
    /// Packets that have arrived, in a softirq. It may interrupt a process that sends.
    SoftirqReceive,
    /// A process that receives, in its system call.
    Receive,
    /// Sending that goes on without a process: timers, and transmission that was put off.
    SoftirqSend,
    /// Not for the network: the kernel runs for other reasons.
    Other,
}

impl Side {
    /// All, in the order in which they are listed.
    pub const ALL: [Self; 5] = [Self::Send, Self::SoftirqReceive, Self::Receive, Self::SoftirqSend, Self::Other];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::SoftirqReceive => "softirq_receive",
            Self::Receive => "receive",
            Self::SoftirqSend => "softirq_send",
            Self::Other => "other",
        }
    }

    /// The side of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|side| side.name() == name)
    }
}
