// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads the programs that push.

use libbpf_rs::OpenObject;

use super::{Inet, abi, hooks};
use crate::bpf;
use crate::cgroup::{self, V1Controller};
use crate::ranking::{Banks, Maps, Ranked as _, Ranking, bank_size, possible_cpus, set_up, shape};
use crate::{Check, DEFAULT_TOP, Error, Options, Outcome, TableInfo};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inet/inet.bpf.o"));
const SAMPLE: &str = "tcp_v4, tcp_v6, udp_v4, udp_v6";

/// The programs, with constants and maps for so many rows, ready to be loaded.
fn open(top: u32, cpus: u32) -> Result<OpenObject, Error> {
    let mut object = bpf::open("inet", OBJECT)?;
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

/// Loads and attaches, with the given tables on and all others off. Dropping the state detaches.
pub fn load(tables: &[&TableInfo], options: &Options) -> Result<Ranking<Inet>, Error> {
    let cgroup = cgroup::root().map_err(|e| Error::Unsupported {
        sample: SAMPLE,
        reason: format!("no cgroup v2 hierarchy ({e})"),
        advice: "mount one: mount -t cgroup2 none /sys/fs/cgroup/unified".to_owned(),
    })?;
    let object = bpf::load(SAMPLE, open(options.top, possible_cpus()?)?).map_err(explain)?;
    let maps = Maps::of::<Inet>(&object)?;
    Banks::new(&maps.banks, Inet::SAMPLES.len(), maps.shape()?.entries_mask + 1)?.init();
    // Set before anything is attached: no push finds tables without settings.
    set_up::<Inet>(&maps, tables, options)?;
    let (programs, attached) = hooks::attach(object, cgroup)?;
    Ranking::new(maps, programs, attached)
}

/// Puts the usual reasons why programs don't load into words.
fn explain(error: Error) -> Error {
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
        Ok(_) => Check {
            name: format!("samples {SAMPLE}"),
            outcome: Outcome::Ok,
            found: "hooks: cgroup ingress and egress, sock_create and sock_release; \
                    tracepoints inet_sock_set_state, tcp_retransmit_skb; socket storage"
                .to_owned(),
            advice: String::new(),
        },
        Err(e) => Check {
            name: format!("samples {SAMPLE}"),
            outcome: Outcome::Missing,
            found: explain(e).to_string(),
            advice: "the lines above say what is missing".to_owned(),
        },
    });
    checks
}
