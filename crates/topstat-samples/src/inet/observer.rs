// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads and attaches the programs that push.

use std::io::Read as _;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd as _, OwnedFd};

use libbpf_rs::{Iter, Link, Object, ProgramMut};
use topstat_model::TableType;

use super::abi;
use super::tables::place;
use crate::bpf::{self, Shared};
use crate::cgroup::{self, V1Controller};
use crate::{Check, Error, Options, Outcome, TableInfo};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inet/inet.bpf.o"));
const SAMPLE: &str = "tcp_v4, tcp_v6, udp_v4, udp_v6";

/// The programs, attached; dropping it detaches them.
pub struct Observer {
    pub object: Object,
    pub banks: Shared,
    pub census: Shared,
    settings: Shared,
    /// Entries of each table: a power of two.
    pub entries: u32,
    /// Rows of each table.
    pub top: u32,
    /// CPUs that have banks: all that the machine could ever have.
    pub cpus: u32,
    pub period_ms: u32,
    pub delay_ms: u32,
    pub cpu_rows: bool,
    /// Of the settings: another one whenever the period was changed, and never 0.
    epoch: u16,
    _links: Vec<Link>,
    _cgroup: OwnedFd,
}

impl Observer {
    /// Loads and attaches, with the given tables on and all others off.
    pub fn load(tables: &[&TableInfo], options: &Options) -> Result<Self, Error> {
        let entries = topstat_engine::entries_for(options.top).map_err(|e| Error::Option(e.to_string()))?;
        let cgroup = cgroup::root().map_err(|e| Error::Unsupported {
            sample: SAMPLE,
            reason: format!("no cgroup v2 hierarchy ({e})"),
            advice: "mount one: mount -t cgroup2 none /sys/fs/cgroup/unified".to_owned(),
        })?;
        let cpus = libbpf_rs::num_possible_cpus()
            .map_err(|e| Error::Kernel { what: "count the CPUs".to_owned(), why: e.to_string() })?;
        let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);

        let mut object = bpf::open("inet", OBJECT)?;
        let stride = topstat_engine::table_size(entries);
        let constants = abi::inet_constants {
            entries_mask: entries - 1,
            table_stride: u32::try_from(stride).unwrap_or(u32::MAX),
            v1_controller: match cgroup::v1_controller() {
                None => abi::INET_V1_NONE,
                Some(V1Controller::Memory) => abi::INET_V1_MEMORY,
                Some(V1Controller::Cpu) => abi::INET_V1_CPU,
                Some(V1Controller::Pids) => abi::INET_V1_PIDS,
            },
            pad: 0,
        };
        bpf::set_constants(&mut object, ".rodata.constants", &constants)?;
        bpf::resize(&mut object, "banks", bank_size(entries), cpus * abi::INET_SAMPLES)?;
        let object = bpf::load(SAMPLE, object).map_err(explain)?;

        let banks = Shared::new(&bpf::map(&object, "banks")?)?;
        init_banks(&banks, cpus, entries);
        let settings = Shared::new(&bpf::map(&object, ".data.settings")?)?;
        let census = Shared::new(&bpf::map(&object, ".data.census")?)?;

        let mut observer = Self {
            object,
            banks,
            census,
            settings,
            entries,
            top: options.top,
            cpus,
            period_ms: options.period_ms,
            delay_ms: options.delay_ms,
            cpu_rows: options.cpu_rows,
            epoch: 0,
            _links: Vec::new(),
            _cgroup: cgroup,
        };
        observer.set(tables, options.period_ms, options.delay_ms)?;
        observer.attach()?;
        observer.adopt()?;
        Ok(observer)
    }

    fn attach(&mut self) -> Result<(), Error> {
        let cgroup = self._cgroup.as_raw_fd();
        let mut links = Vec::new();
        // Births before packets, so that no socket is seen without its owner.
        for name in ["inet_create", "inet_release", "inet_state", "inet_retransmit", "inet_ingress", "inet_egress"] {
            let program = program(&self.object, name)?;
            let link = match name {
                "inet_state" | "inet_retransmit" => program.attach_trace(),
                _ => program.attach_cgroup(cgroup),
            };
            links.push(link.map_err(|e| kernel(format!("attach {name}"), &e))?);
        }
        self._links = links;
        Ok(())
    }

    /// Finds the sockets that were there before, and whose they are.
    fn adopt(&self) -> Result<(), Error> {
        let link = program(&self.object, "inet_adopt")?.attach().map_err(|e| kernel("look for existing sockets", &e))?;
        let mut nothing = Vec::new();
        Iter::new(&link)
            .map_err(|e| kernel("look for existing sockets", &e))?
            .read_to_end(&mut nothing)
            .map_err(|e| kernel("look for existing sockets", &e))?;
        Ok(())
    }

    /// Sets which tables are on, and their period and delay, from the next push on. Windows of
    /// another period start afresh; the generation, written last, tells the programs.
    pub fn set(&mut self, tables: &[&TableInfo], period_ms: u32, delay_ms: u32) -> Result<(), Error> {
        let hz = hz();
        let generation = self.settings.read::<u32>(0, offset_of!(abi::inet_settings, generation)).wrapping_add(1);
        if period_ms != self.period_ms || self.epoch == 0 {
            self.epoch = self.epoch.checked_add(1).unwrap_or(1);
        }
        for info in super::tables::SAMPLES.iter().flat_map(|s| s.tables) {
            let Some((sample, table)) = place(info) else { continue };
            let kind = match info.kind {
                TableType::Dynamic => abi::TS_DYNAMIC,
                TableType::Static => abi::TS_STATIC,
            };
            let config = topstat_engine::config(period_ms, delay_ms, kind, tables.contains(&info), self.epoch.into(), hz)
                .map_err(|e| Error::Option(e.to_string()))?;
            let offset = offset_of!(abi::inet_settings, config)
                + (sample * abi::INET_TABLES + table) as usize * size_of::<abi::ts_config>();
            self.settings.write(0, offset, config);
        }
        self.settings.write::<u32>(0, offset_of!(abi::inet_settings, generation), generation);
        (self.period_ms, self.delay_ms) = (period_ms, delay_ms);
        Ok(())
    }

    /// Where a table starts in the entry of its bank.
    pub fn table_offset(&self, table: u32) -> usize {
        size_of::<abi::ts_bank>() + table as usize * topstat_engine::table_size(self.entries)
    }

    /// The entry of a bank.
    pub fn bank(cpu: u32, sample: u32) -> usize {
        (cpu * abi::INET_SAMPLES + sample) as usize
    }
}

fn kernel(what: impl Into<String>, why: &impl std::fmt::Display) -> Error {
    Error::Kernel { what: what.into(), why: why.to_string() }
}

/// A program of the object by name.
pub fn program<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>, Error> {
    object.progs_mut().find(|p| p.name() == name).ok_or_else(|| kernel(format!("find the program {name}"), &"not there"))
}

/// Bytes of the bank of one sample on one CPU.
pub fn bank_size(entries: u32) -> usize {
    size_of::<abi::ts_bank>() + abi::INET_TABLES as usize * topstat_engine::table_size(entries)
}

/// Every slot free, every table knowing its place: `ts_table_init()`, through shared memory.
fn init_banks(banks: &Shared, cpus: u32, entries: u32) {
    for bank in 0..cpus * abi::INET_SAMPLES {
        for table in 0..abi::INET_TABLES {
            let base = size_of::<abi::ts_bank>() + table as usize * topstat_engine::table_size(entries);
            banks.write::<u32>(bank as usize, base + offset_of!(abi::ts_table, where_), bank << 8 | table);
            for i in 0..entries {
                let entry = base + size_of::<abi::ts_table>() + i as usize * size_of::<abi::ts_entry>();
                let order = u16::try_from(i).unwrap_or(0);
                banks.write::<u16>(bank as usize, entry + offset_of!(abi::ts_entry, order), order);
            }
        }
    }
}

/// Jiffies in a second: the grain of the coarse clock is one jiffy.
fn hz() -> u32 {
    let grain = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    let ns = u64::try_from(grain.tv_nsec).unwrap_or(0) + u64::try_from(grain.tv_sec).unwrap_or(0) * 1_000_000_000;
    u32::try_from((1_000_000_000 + ns / 2) / ns.max(1)).unwrap_or(250)
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
    let verified = bpf::open("inet", OBJECT).and_then(|mut object| {
        bpf::resize(&mut object, "banks", bank_size(256), abi::INET_SAMPLES)?;
        let constants = abi::inet_constants {
            entries_mask: 255,
            table_stride: u32::try_from(topstat_engine::table_size(256)).unwrap_or(u32::MAX),
            v1_controller: 0,
            pad: 0,
        };
        bpf::set_constants(&mut object, ".rodata.constants", &constants)?;
        bpf::load(SAMPLE, object)
    });
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
