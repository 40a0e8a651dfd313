// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks what this kernel and this user allow.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::bpf::{self, Verified};
use crate::family::{Family, SampleInfo};
use crate::pinned::{self, Attached};
use crate::report::{
    BTF, Check, NO_BTF, OUTSIDE, Outcome, USER_NAMESPACE, WITH_BTF, in_user_namespace, missing_capabilities,
};
use crate::{Catalogue, Error, module};

/// Loads every program of a family as for all its tables (which attaches it for a moment). Returns the number of instructions
/// that the verifier processed for each program.
///
/// # Errors
/// The reason why a program does not load, as [`crate::load`] gives it.
pub fn verify(family: &Arc<Family>) -> Result<Vec<Verified>, Error> {
    let mut done = Ok(());
    let verified = bpf::record(|| done = family.kind.try_load(family));
    done.map(|()| verified)
}

/// Says whether programs are compiled. The file exists only in the host's network namespace.
const JIT: &str = "/proc/sys/net/core/bpf_jit_enable";

/// Whether programs are compiled, by the text of [`JIT`].
fn compiler(read: std::io::Result<String>) -> Check {
    const NAME: &str = "BPF compiler";
    match read.as_deref().map(str::trim) {
        Ok("0") => Check {
            name: NAME.to_owned(),
            outcome: Outcome::Degraded,
            found: "programs are interpreted: a push costs several times as much".to_owned(),
            advice: "sysctl net.core.bpf_jit_enable=1".to_owned(),
        },
        Ok(_) => Check::ok(NAME, "programs are compiled to machine code"),
        Err(e) => Check::unknown(
            NAME,
            format!("whether programs are compiled: {JIT} can't be read ({e})"),
            "run topstat as root in the host's network namespace",
        ),
    }
}

/// Warns of programs that count and can't be reached: no process has opened their links, and no path leads to the links.
fn pins(attached: &[Attached]) -> Option<Check> {
    let lost = attached.iter().filter(|link| link.at.is_none() && link.holders.is_empty());
    let programs: BTreeSet<&str> = lost.map(|link| link.program.as_str()).collect();
    let first = programs.first()?;
    Some(Check {
        name: "pins".to_owned(),
        outcome: Outcome::Degraded,
        found: format!(
            "no path leads to the pins of {} programs that are attached ({first} is the first): the BPF file system was \
             unmounted, or is another mount namespace's",
            programs.len()
        ),
        advice: "mount it where it was: a daemon that runs then pins all again (its log, and self, say more)"
            .to_owned(),
    })
}

/// Checks all that these samples need (all samples, if none is given), the common requirements first. Loads every program once,
/// to get the kernel's answer, and attaches none. (Samples of a family share their programs.)
pub fn check(catalogue: &Catalogue, samples: &[Arc<SampleInfo>]) -> Vec<Check> {
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
        None => Check::unknown("capabilities", "/proc/self/status can't be read", "mount /proc"),
    });
    checks.push(if std::path::Path::new(BTF).exists() {
        Check::ok("BTF", BTF)
    } else {
        Check::missing("BTF", format!("{BTF} is missing: {NO_BTF}"), WITH_BTF)
    });
    checks.push(compiler(std::fs::read_to_string(JIT)));
    checks.extend(module);
    checks.extend(pins(&pinned::attached().unwrap_or_default()));
    let wanted = |family: &Family| {
        samples.is_empty() || samples.iter().any(|sample| family.kind.is_checked_with(family, &sample.name))
    };
    for family in catalogue.families().iter().filter(|family| wanted(family)) {
        checks.extend(family.kind.check(family));
        checks.extend((family.check)());
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_without_a_path_to_their_pins_are_named() {
        let link = |program: &str, at: Option<&str>, holders: &[u32]| Attached {
            program: program.to_owned(),
            link: 1,
            at: at.map(Into::into),
            holders: holders.to_vec(),
        };
        assert!(pins(&[link("a", Some("/sys/fs/bpf/topstat/a"), &[]), link("b", None, &[7])]).is_none());
        let check = pins(&[link("c", None, &[]), link("c", None, &[]), link("b", None, &[7])]).unwrap();
        assert_eq!(check.outcome, Outcome::Degraded);
        assert!(
            check.found.contains("1 programs that are attached (c is the first): the BPF file system was unmounted"),
            "{}",
            check.found
        );
    }

    #[test]
    fn a_compiler_that_can_not_be_asked_for_is_unknown() {
        assert_eq!(compiler(Ok("0\n".to_owned())).outcome, Outcome::Degraded);
        assert_eq!(compiler(Ok("1\n".to_owned())).outcome, Outcome::Ok);
        assert_eq!(compiler(Err(std::io::ErrorKind::PermissionDenied.into())).outcome, Outcome::Unknown);
    }
}
