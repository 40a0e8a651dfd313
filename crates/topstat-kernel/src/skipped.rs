// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts the runs of programs that the kernel has skipped. A tracing program is not run where it would interrupt itself on a
//! CPU, or (where tracepoints are preemptible) where another run of it is preempted on that CPU. The kernel counts these from
//! Linux 5.12 on.
//!
//! The count belongs to the attached program. Behind a gate (`observe/gate.bpf.h`) programs are replaced and the gate stays, so
//! neither an upgrade nor a reader changes a count.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Program;
use crate::cost::{descriptor, program_info};
use crate::hooks::{At, Hook};

/// Runs that were skipped since the programs were attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// Runs of all programs.
    pub all: u64,
    /// Runs of the programs that push an amount which no later event makes up for: see [`Hook::losing`].
    pub losing: u64,
}

/// See the module.
pub struct Skipped {
    programs: Vec<Attached>,
    /// By sample.
    lacking: Mutex<HashMap<String, Lacking>>,
}

/// A program, and the properties of its hook.
struct Attached {
    program: OwnedFd,
    losing: bool,
    only_for: &'static [&'static str],
}

impl Skipped {
    /// The runs of the programs that are attached to tracing hooks; where there is a gate, of the gate. Programs that can't be
    /// opened are left out: it takes CAP_SYS_ADMIN.
    pub fn by(programs: &[Program], hooks: &[Hook]) -> Self {
        let attached = |hook: &Hook| {
            let named = |name: &str| programs.iter().find(|p| p.name == name);
            let program = named(&hook.enter()).or_else(|| named(&hook.program))?;
            // SAFETY: the system call takes a number, and no memory.
            let program = descriptor(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(program.id) }).ok()?;
            Some(Attached { program, losing: hook.losing, only_for: hook.only_for })
        };
        let programs = hooks.iter().filter(|hook| hook.at == At::Gate).filter_map(attached).collect();
        Self { programs, lacking: Mutex::default() }
    }

    /// The kernel's counts for the programs that a sample needs. It takes a system call for each program, of about two
    /// microseconds. Kernels before 5.12 report 0.
    pub fn read(&self, sample: &str) -> Runs {
        let mut runs = Runs::default();
        let is_for = |one: &&Attached| one.only_for.is_empty() || one.only_for.contains(&sample);
        for Attached { program, losing, .. } in self.programs.iter().filter(is_for) {
            let missed = program_info(program, None).map_or(0, |info| info.recursion_misses);
            runs.all = runs.all.saturating_add(missed);
            runs.losing = runs.losing.saturating_add(if *losing { missed } else { 0 });
        }
        runs
    }

    /// Whether rows of a sample may lack an amount, and so be smaller than an object without a row. The rows were read before
    /// `runs`. `reach` is how long a push counts; `None`: for ever.
    pub fn lacks(&self, sample: &str, runs: Runs, reach: Option<Duration>) -> bool {
        let mut lacking = self.lacking.lock().unwrap_or_else(PoisonError::into_inner);
        let lacking = lacking.entry(sample.to_owned()).or_default();
        let now = Instant::now();
        lacking.look(runs.losing, now);
        lacking.within(reach, now)
    }
}

/// The moment when lost amounts were last found. The kernel does not report when they were lost: it may have been just then.
#[derive(Default)]
struct Lacking {
    runs: u64,
    found: Option<Instant>,
}

impl Lacking {
    fn look(&mut self, runs: u64, now: Instant) {
        if runs > self.runs {
            *self = Self { runs, found: Some(now) };
        }
    }

    fn within(&self, reach: Option<Duration>, now: Instant) -> bool {
        self.found.is_some_and(|found| reach.is_none_or(|reach| now.saturating_duration_since(found) <= reach))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Lacking;

    #[test]
    fn an_amount_is_lacking_for_as_long_as_it_would_have_counted() {
        let (begin, reach) = (Instant::now(), Some(Duration::from_millis(1100)));
        let at = |ms| begin + Duration::from_millis(ms);
        let mut lacking = Lacking::default();
        lacking.look(0, at(0));
        assert!(!lacking.within(reach, at(0)) && !lacking.within(None, at(0)), "nothing is lost");
        lacking.look(3, at(500));
        assert!(lacking.within(reach, at(500)) && lacking.within(reach, at(1600)));
        assert!(!lacking.within(reach, at(1601)), "it would have aged out");
        assert!(lacking.within(None, at(1601)), "a running total lacks it for ever");
        lacking.look(3, at(1700));
        assert!(!lacking.within(reach, at(1700)), "no more is lost");
        lacking.look(4, at(1800));
        assert!(lacking.within(reach, at(2900)) && !lacking.within(reach, at(2901)));
    }
}
