// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Made-up counters of two CPUs and two namespaces. One namespace is gone at the third reading, and one counter overflows.

use std::time::{Duration, UNIX_EPOCH};

use topstat_kernel::Error;
use topstat_model::counters::{Amount, Counter, CounterKind, Counters, CountersLost, Protocol, Scope, Source};

/// Reads made-up counters.
pub struct FakeCounters {
    /// The counters are those in /proc, and some are missing.
    pub lossy: bool,
    /// The number of the reading that fails.
    pub fail_at: Option<u64>,
    /// The number of readings taken.
    pub taken: u64,
}

impl FakeCounters {
    /// The next reading.
    pub fn read(&mut self) -> Result<Counters, Error> {
        self.taken += 1;
        if self.fail_at == Some(self.taken) {
            let why = "Invalid argument (EINVAL)".into();
            return Err(Error::Kernel { what: "read the kernel's SNMP counters".into(), why });
        }
        let (taken, per_cpu) = (self.taken, !self.lossy);
        let scope = |netns, name: Option<&str>, device: Option<&str>| Scope {
            netns,
            name: name.map(str::to_owned),
            device: device.map(str::to_owned),
            protocols: protocols(taken, per_cpu),
        };
        let mut scopes = vec![scope(4_026_531_840, Some("pid 1 init"), None)];
        if taken < 3 {
            scopes.push(scope(4_026_532_001, Some("odd \x1b[31m\tname"), Some("eth0")));
        }
        let lost = CountersLost { beyond: 3, unreadable: 1, unknown: vec!["snmp_ip/Newest".into()] };
        let counters = Counters {
            // 2026-11-21T08:00:00.000Z, plus a second and a half for each reading.
            time: UNIX_EPOCH + Duration::from_millis(1_795_248_000_000 + 1500 * taken),
            elapsed: (taken > 1).then_some(Duration::from_millis(1500)),
            source: if self.lossy { Source::Proc("no BTF".into()) } else { Source::Arrays },
            cpus: if per_cpu { vec![0, 3] } else { vec![] },
            scopes,
            lost: if self.lossy { lost } else { CountersLost::default() },
        };
        assert_eq!(counters.check(), Ok(()));
        Ok(counters)
    }
}

fn protocols(taken: u64, per_cpu: bool) -> Vec<Protocol> {
    let counter = |name: &str, kind, per_cpu, parts: &dyn Fn(u64) -> [u64; 2]| {
        let amount = |taken| {
            let parts = parts(taken);
            let all = parts[0].wrapping_add(parts[1]);
            Amount { all, cpus: if per_cpu { parts.to_vec() } else { vec![] } }
        };
        Counter { name: name.into(), kind, now: amount(taken), before: (taken > 1).then(|| amount(taken - 1)) }
    };
    let count = CounterKind::Count;
    vec![
        Protocol {
            name: "tcp",
            counters: vec![
                counter("MaxConn", CounterKind::Gauge, per_cpu, &|_| [u64::MAX, 0]),
                counter("CurrEstab", CounterKind::Gauge, per_cpu, &|taken| [(taken + 7).wrapping_neg(), 2 * taken + 9]),
                counter("InSegs", count, per_cpu, &|taken| [1000 * taken, 3000 * taken + 5]),
                counter("RetransSegs", count, per_cpu, &|taken| [30 * taken, 0]),
                counter("InErrs", count, per_cpu, &|_| [0, 0]),
            ],
        },
        Protocol {
            name: "icmp",
            counters: vec![
                counter("InMsgs", count, per_cpu, &|taken| [(9 * taken).wrapping_sub(20), 0]),
                counter("InEchos", count, false, &|taken| [3 * taken, 0]),
            ],
        },
    ]
}
