// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What this kernel allows the samples of tasks.

use super::fallbacks::{Flavour, lacking};
use super::observer;
use crate::{Check, Error, Options, Outcome, bpf};

/// What the family needs beyond what all need.
pub fn check() -> Vec<Check> {
    let tables = observer::open(&Options::default(), 1).and_then(|object| bpf::load("tasks, cgroups", object));
    let mut checks = vec![tables_load(tables.map(drop))];
    checks.extend(crate::families::account::check());
    checks
}

/// Whether the kernel takes the programs of the tables: which, and what is otherwise than elsewhere.
fn tables_load(loaded: Result<(), Error>) -> Check {
    let hooks: Vec<_> = Flavour::of_kernel().hooks().iter().map(|hook| hook.name).collect();
    let found = format!("hooks: {}; task storage", hooks.join(", "));
    let check = Check::loads("samples tasks, cgroups", "tasks, cgroups", loaded, found);
    let lacks: Vec<_> = lacking().iter().map(|f| format!("without {}: {}", f.name, f.without)).collect();
    if check.outcome != Outcome::Ok || lacks.is_empty() {
        return check;
    }
    let found = format!("{}; {}", check.found, lacks.join("; "));
    Check { outcome: Outcome::Degraded, found, advice: "a kernel of 6.2 or later has it".to_owned(), ..check }
}
