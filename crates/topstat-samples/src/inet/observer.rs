// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs that push.

use libbpf_rs::OpenObject;

use super::fallbacks::{Flavour, lacking};
use super::{Inet, abi};
use crate::bpf;
use crate::cgroup::{self, V1Controller};
use crate::hooks::Observer;
use crate::ranking::{bank_size, possible_cpus, shape};
use crate::{Check, DEFAULT_TOP, Error, Outcome};

const SAMPLE: &str = "tcp_v4, tcp_v6, udp_v4, udp_v6";

/// The programs, with constants and maps for so many rows, ready to be loaded.
fn open(top: u32, cpus: u32) -> Result<OpenObject, Error> {
    let mut object = bpf::open("inet", Flavour::of_kernel().observer())?;
    let shape = shape::<Inet>(top)?;
    let v1_controller = match cgroup::v1_controller() {
        None => abi::INET_V1_NONE,
        Some(V1Controller::Memory) => abi::INET_V1_MEMORY,
        Some(V1Controller::Cpu) => abi::INET_V1_CPU,
        Some(V1Controller::Pids) => abi::INET_V1_PIDS,
    };
    bpf::set_constants(&mut object, ".rodata.constants", &abi::inet_constants { shape, v1_controller, pad: 0 })?;
    bpf::resize(&mut object, "banks", bank_size(shape.entries_mask + 1), cpus * abi::INET_SAMPLES)?;
    Ok(object)
}

/// The programs that push, for tables of so many rows.
pub fn observer(top: u32) -> Result<Observer, Error> {
    let flavour = Flavour::of_kernel();
    Ok(Observer {
        bytes: flavour.observer(),
        object: open(top, possible_cpus()?)?,
        hooks: flavour.hooks(),
        begin: flavour.adopts(),
        begin_before: flavour.adopts_before(),
    })
}

/// Puts the usual reasons why programs don't load into words.
pub fn explain(error: Error) -> Error {
    let Error::Kernel { what, why } = error else { return error };
    let unsupported = |reason: &str, advice: &str| Error::Unsupported {
        sample: SAMPLE,
        reason: reason.to_owned(),
        advice: advice.to_owned(),
    };
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        return unsupported(
            "the kernel has no BTF (/sys/kernel/btf/vmlinux is missing)",
            "use a kernel that was built with CONFIG_DEBUG_INFO_BTF=y",
        );
    }
    if crate::check::missing_capabilities().is_some_and(|m| !m.is_empty()) {
        return unsupported(
            "loading eBPF programs is not permitted",
            "run as root, or with the capabilities CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and CAP_SYS_ADMIN",
        );
    }
    Error::Kernel { what, why }
}

/// What the family needs beyond what all need.
pub fn check() -> Vec<Check> {
    let mut checks = Vec::new();
    match cgroup::root() {
        Ok(_) => checks.push(Check {
            name: "cgroup v2".to_owned(),
            outcome: Outcome::Ok,
            found: cgroup::describe(),
            advice: String::new(),
        }),
        Err(e) => checks.push(Check {
            name: "cgroup v2".to_owned(),
            outcome: Outcome::Missing,
            found: e.to_string(),
            advice: "mount one: mount -t cgroup2 none /sys/fs/cgroup/unified".to_owned(),
        }),
    }
    let verified = open(DEFAULT_TOP, 1).and_then(|object| bpf::load(SAMPLE, object));
    checks.push(match verified {
        Ok(_) => verified_check(),
        Err(e) => Check {
            name: format!("samples {SAMPLE}"),
            outcome: Outcome::Missing,
            found: explain(e).to_string(),
            advice: "the lines above say what is missing".to_owned(),
        },
    });
    checks
}

/// The kernel takes the programs: which, and what is otherwise than elsewhere.
fn verified_check() -> Check {
    let hooks: Vec<_> = Flavour::of_kernel().hooks().iter().map(|hook| hook.name).collect();
    let found = format!("hooks: {}; socket storage", hooks.join(", "));
    let lacks: Vec<_> = lacking().iter().map(|f| format!("without {}: {}", f.name, f.without)).collect();
    let name = format!("samples {SAMPLE}");
    if lacks.is_empty() {
        return Check { name, outcome: Outcome::Ok, found, advice: String::new() };
    }
    let found = format!("{found}; {}", lacks.join("; "));
    Check { name, outcome: Outcome::Degraded, found, advice: "a kernel of 5.12 or later has all of it".to_owned() }
}
