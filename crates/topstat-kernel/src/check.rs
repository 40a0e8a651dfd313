// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What this kernel and this user allow.

use std::sync::Arc;

use crate::bpf::{self, Verified};
use crate::family::{AccountOptions, Family, Kind, SampleInfo};
use crate::ranking::{self, RankedFamily};
use crate::report::{
    BTF, Check, OUTSIDE, Outcome, USER_NAMESPACE, WITH_BTF, in_user_namespace, loads, missing_capabilities,
};
use crate::{Error, Options, catalogue, module};

/// Loads every program as for all tables (which attaches it for a moment), and gives how many instructions the verifier
/// went through for each: by family, or why one does not load, as [`crate::load`] says it.
pub fn verify() -> Vec<(String, Result<Vec<Verified>, Error>)> {
    let verify = |family: &Arc<Family>| {
        let mut done = Ok(());
        let verified = bpf::record(|| done = try_load(family));
        done.map(|()| verified)
    };
    catalogue::families().iter().map(|family| (family.name.clone(), verify(family))).collect()
}

fn try_load(family: &Arc<Family>) -> Result<(), Error> {
    match &family.kind {
        Kind::Ranked(_) => {
            let of = RankedFamily::of(family).expect("it is one");
            let state = Arc::new(ranking::load(&of, &family.tables(), &Options::default())?);
            state.settle()?;
            state.read(false).map(drop)
        }
        Kind::Account(account) => (account.load)(&AccountOptions::default(), &[]).map(drop),
        Kind::Counters(counting) => (counting.try_load)(),
        Kind::Events(streaming) => streaming.try_load(),
        Kind::Stacks(sampling) => (sampling.try_load)(),
    }
}

/// Looks at everything that these samples need, or all samples if there are none; the common things first. Loads every
/// program once, to hear what the kernel says, and attaches none. (Samples of a family share their programs.)
pub fn check(samples: &[Arc<SampleInfo>]) -> Vec<Check> {
    let mut checks = Vec::new();
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let module = module::check(&release);
    checks.push(Check::ok("kernel", release));
    checks.push(match missing_capabilities() {
        Some(_) if in_user_namespace() => Check::missing("capabilities", USER_NAMESPACE, OUTSIDE),
        Some(missing) if missing.is_empty() => Check::ok("capabilities", "all that are needed"),
        Some(missing) => {
            Check::missing("capabilities", format!("without {}", missing.join(", ")), "run as root (sudo topstat …)")
        }
        None => Check::missing("capabilities", "/proc/self/status is not readable", "mount /proc"),
    });
    checks.push(if std::path::Path::new(BTF).exists() {
        Check::ok("BTF", BTF)
    } else {
        Check::missing("BTF", format!("{BTF} is missing"), WITH_BTF)
    });
    let jit = std::fs::read_to_string("/proc/sys/net/core/bpf_jit_enable").unwrap_or_default();
    checks.push(match jit.trim() {
        "0" => Check {
            name: "BPF compiler".to_owned(),
            outcome: Outcome::Degraded,
            found: "programs are interpreted: a push costs several times as much".to_owned(),
            advice: "sysctl net.core.bpf_jit_enable=1".to_owned(),
        },
        _ => Check::ok("BPF compiler", "programs are compiled to machine code"),
    });
    checks.extend(module);
    let named = |name: &str| samples.iter().any(|sample| sample.name == name);
    let of = |family: &Family| match &family.kind {
        Kind::Ranked(_) | Kind::Counters(_) => family.samples.iter().any(|own| named(&own.name)),
        Kind::Account(account) => named(account.beside),
        Kind::Events(_) | Kind::Stacks(_) => false,
    };
    let wanted = |family: &Family| samples.is_empty() || of(family);
    for family in catalogue::families().iter().filter(|family| wanted(family)) {
        if let Some(ranked) = RankedFamily::of(family) {
            checks.extend(ranking::check(&ranked));
        }
        if let Kind::Events(streaming) = &family.kind {
            let source = &streaming.source;
            checks.push(loads(&format!("events {source}"), source, streaming.try_load(), streaming.about.clone()));
        }
        checks.extend((family.check)());
    }
    checks
}
