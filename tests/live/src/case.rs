// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A test: what it needs, where else it runs, and whether it can run beside others.

use crate::need::Need;

/// The other machines, kernels and runs that a test belongs to, and the reason. scripts/vm-suite and .ci/run select tests by
/// these tags; they skip a test without tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Behaviour that depends on the kernel: each kind of socket and owner is counted, tasks are counted, and programs can be
    /// attached, detached and replaced. On the oldest and the newest kernel. Not tests that assert a cost in real time: an
    /// emulated CPU says nothing about it.
    EveryKernel,
    /// One test for each way in which kernels differ: these run on other kernels before a change may land, on the kernels
    /// between the oldest and the newest, and on aarch64.
    Gate,
    /// Results that are computed from counts, by code that does not depend on the kernel: on one kernel, the oldest that
    /// supports all of topstat.
    Computed,
    /// The daemon and its files: on one kernel, the newest.
    Daemon,
    /// Objects that appear and disappear: on kernels that check for overruns and use after free.
    ComeAndGo,
    /// As [`ComeAndGo`](Tag::ComeAndGo), for tests that take long on these kernels, or need injected faults: on the kernel
    /// with all checks.
    Checked,
    /// A service under a real service manager.
    Service,
    /// Differences in compilers, the C library and tools of another distribution on the same kernel.
    Distribution,
    /// Behaviour that needs more than one NUMA node.
    Numa,
    /// Slow by nature, with a smaller test of the same behaviour: `make test-all` runs it, and `make test` does not.
    Slow,
}

/// Why a test can't run beside others. The list is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// The test asserts a total of all packets, bytes or tasks of the host.
    Totals,
    /// The test fills whole tables, or has more sockets than other tests leave places for.
    Fills,
    /// The test measures or limits CPU time, or takes a CPU from all other processes.
    Cpu,
    /// The test changes state that all processes of the host share: a sysctl, the accounting of delays, a mount, CPUs.
    Shared,
    /// The test asserts which programs, links or pins exist, or attaches programs that exclude others.
    Attached,
    /// The test asserts how many requests a disk had, or throttles the disk.
    Disk,
}

impl Tag {
    const ALL: [(&'static str, Tag); 10] = [
        ("gate", Tag::Gate),
        ("every-kernel", Tag::EveryKernel),
        ("computed", Tag::Computed),
        ("daemon", Tag::Daemon),
        ("come-and-go", Tag::ComeAndGo),
        ("checked", Tag::Checked),
        ("service", Tag::Service),
        ("distribution", Tag::Distribution),
        ("numa", Tag::Numa),
        ("slow", Tag::Slow),
    ];

    /// The tag of this name.
    ///
    /// # Errors
    /// There is none. The error lists all.
    pub fn of(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, tag)| *tag).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(known, _)| *known).collect();
            format!("there is no tag '{name}': there are {}", names.join(", "))
        })
    }
}

/// A test.
pub struct Case {
    /// The name: `what_holds`.
    pub name: &'static str,
    /// The needs of the test.
    pub needs: &'static [Need],
    /// The other runs that the test belongs to.
    pub tags: &'static [Tag],
    /// Why the test can't run beside others; `None`: it can.
    pub alone: Option<Alone>,
    /// The test itself; it fails by panicking.
    pub run: fn(),
}

/// Makes a case with the name of its function: `case!(function, Need …; Tag …)`.
#[macro_export]
macro_rules! case {
    ($run:path $(, $need:ident $(($($argument:expr),+))?)* $(; $($tag:ident),+)?) => {
        $crate::Case {
            name: stringify!($run),
            needs: const { &[$($crate::Need::$need $(($($argument),+))?),*] },
            tags: &[$($($crate::Tag::$tag),+)?],
            alone: None,
            run: $run,
        }
    };
}

/// A test that can't run beside others: `alone!(Reason: function, Need …; Tag …)`.
#[macro_export]
macro_rules! alone {
    ($reason:ident: $($case:tt)*) => {
        $crate::Case { alone: Some($crate::Alone::$reason), ..$crate::case!($($case)*) }
    };
}
