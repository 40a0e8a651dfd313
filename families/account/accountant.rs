// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads and attaches the programs of the precise account.

use std::mem::size_of;
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle, Object, OpenObject, ProgramInput};

use super::AccountOptions;
use super::abi;
use super::precise::Precise;
use topstat_kernel::bpf::{self, Shared};
use topstat_kernel::clock::possible_cpus;
use topstat_kernel::{Error, report};

const OBJECT: &[u8] = object!("account/precise.bpf.o");
const NAME: &str = "tasks";

/// Threads that may run between two snapshots. If more run, the second snapshot looks at all threads. 2 MiB.
const RAN: u32 = 1 << 16;
/// Threads that may end between two calls of [`Precise::poll`]. 4.6 MiB: 0.4 s of the worst storm that two CPUs can make, 38,000
/// exits a second.
const DEAD: u32 = 1 << 14;

/// The required programs, in the order in which they are attached: births first.
const SWITCHES: [&str; 3] = ["precise_new", "precise_exit", "precise_switch"];
/// Interrupts and softirqs, each if the kernel has its tracepoints. Ends are attached before beginnings, so that each beginning
/// that is seen has its end.
const INTERRUPTS: [&str; 7] =
    ["softirq", "irq_handler", "local_timer", "reschedule", "call_function", "call_function_single", "irq_work"];

/// The precise account of CPU time: how long each thread ran, to the nanosecond. Dropping the last reference and all readers
/// detaches the programs.
pub struct Accountant {
    pub(super) object: Object,
    pub(super) control: Shared,
    pub(super) dead: Shared,
    pub(super) slots: Shared,
    pub(super) constants: abi::account_constants,
    _links: Vec<Link>,
    /// Links of the programs on system calls; empty while no process is chosen.
    calls: Mutex<Vec<Link>>,
}

fn kernel(what: impl Into<String>, why: &impl std::fmt::Display) -> Error {
    Error::Kernel { what: what.into(), why: why.to_string() }
}

/// The names of all programs that may be attached.
pub fn programs() -> Vec<String> {
    let interrupts = INTERRUPTS.iter().flat_map(|i| [format!("precise_{i}_exit"), format!("precise_{i}_entry")]);
    let calls = ["precise_sys_exit", "precise_sys_enter"];
    SWITCHES.iter().chain(&calls).map(|name| (*name).to_owned()).chain(interrupts).collect()
}

/// Whether the kernel has the tracepoint.
fn has_tracepoint(btf: &libbpf_rs::btf::Btf<'_>, name: &str) -> bool {
    btf.type_by_name::<libbpf_rs::btf::BtfType<'_>>(&format!("btf_trace_{name}")).is_some()
}

/// The interrupts and softirqs for which this kernel has tracepoints. `None`: the kernel's types can't be read.
pub(super) fn interrupts() -> Option<Vec<&'static str>> {
    let btf = libbpf_rs::btf::Btf::from_vmlinux().ok()?;
    Some(INTERRUPTS.into_iter().filter(|i| has_tracepoint(&btf, &format!("{i}_entry"))).collect())
}

/// Whether the kernel's run queues record what the hypervisor took.
pub(super) fn knows_steal() -> Option<bool> {
    let btf = libbpf_rs::btf::Btf::from_vmlinux().ok()?;
    let Some(rq) = btf.type_by_name::<libbpf_rs::btf::types::Struct<'_>>("rq") else { return Some(false) };
    Some(rq.iter().any(|member| member.name.is_some_and(|name| name == "prev_steal_time_rq")))
}

/// Whether this machine is virtual: a hypervisor may take its CPUs away. On bare metal, steal time is not read.
pub(super) fn under_hypervisor() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains("hypervisor"))
}

/// Opens the programs with their constants and maps, ready to be loaded.
pub(super) fn open(options: &AccountOptions) -> Result<(OpenObject, abi::account_constants), Error> {
    let mut object = bpf::open("precise", OBJECT)?;
    let btf = libbpf_rs::btf::Btf::from_vmlinux().map_err(|e| kernel("read the kernel's types", &e))?;
    for mut program in object.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let event = name.trim_start_matches("precise_").to_owned();
        let interrupt = INTERRUPTS.iter().any(|i| event.strip_prefix(i).is_some_and(|e| e == "_entry" || e == "_exit"));
        if interrupt {
            program.set_autoload(options.interrupts && has_tracepoint(&btf, &event));
        }
    }
    let constants = abi::account_constants {
        interrupts: options.interrupts.into(),
        steal: under_hypervisor().into(),
        ran_mask: RAN - 1,
        dead_mask: DEAD - 1,
        cpus: possible_cpus()?,
        pad: 0,
    };
    bpf::set_constants(&mut object, ".rodata.constants", bpf::as_bytes(&constants))?;
    bpf::resize(&mut object, "slots", size_of::<abi::account_cpu>(), constants.cpus)?;
    bpf::resize(&mut object, "ran", size_of::<abi::account_ran>(), RAN)?;
    bpf::resize(&mut object, "dead", size_of::<abi::account_dead>(), DEAD)?;
    Ok((object, constants))
}

impl Accountant {
    /// Loads the programs, attaches them, and opens accounts for the existing threads.
    ///
    /// # Errors
    /// As [`topstat_kernel::load`].
    pub fn load(options: &AccountOptions) -> Result<Arc<Self>, Error> {
        let (object, constants) = open(options)?;
        let object = bpf::load(NAME, object).map_err(|e| report::explain(e, NAME))?;
        let control = Shared::new(&bpf::map(&object, ".data.control")?)?;
        let dead = Shared::new(&bpf::map(&object, "dead")?)?;
        let slots = Shared::new(&bpf::map(&object, "slots")?)?;
        let mut accountant =
            Self { object, control, dead, slots, constants, _links: Vec::new(), calls: Mutex::default() };
        accountant.attach(options)?;
        accountant.adopt()?;
        accountant.start();
        Ok(Arc::new(accountant))
    }

    /// Makes a reader. Any number of readers read the same account.
    ///
    /// # Errors
    /// When the kernel refuses the programs that read.
    pub fn reader(self: &Arc<Self>) -> Result<Precise, Error> {
        Precise::new(Arc::clone(self))
    }

    fn attach(&mut self, options: &AccountOptions) -> Result<(), Error> {
        let mut names: Vec<String> = SWITCHES.map(str::to_owned).to_vec();
        if options.interrupts {
            names.extend(INTERRUPTS.iter().map(|i| format!("precise_{i}_exit")));
            names.extend(INTERRUPTS.iter().map(|i| format!("precise_{i}_entry")));
        }
        for name in names {
            let program = bpf::program(&self.object, &name)?;
            if !program.autoload() {
                continue;
            }
            self._links.push(program.attach_trace().map_err(|e| kernel(format!("attach {name}"), &e))?);
        }
        Ok(())
    }

    /// Chooses these processes, and no others: their user and system time is split exactly, by their system calls. While any
    /// process is chosen, every system call on the host takes longer: a short one several times as long.
    ///
    /// # Errors
    /// When more are chosen than there is room for, or the kernel refuses.
    pub fn choose(&self, pids: &[u32]) -> Result<(), Error> {
        if pids.len() > abi::ACCOUNT_CHOSEN as usize {
            return Err(Error::Option(format!(
                "cannot choose {} processes: at most {}",
                pids.len(),
                abi::ACCOUNT_CHOSEN
            )));
        }
        let failed = |e: &dyn std::fmt::Display| kernel("choose processes", &e.to_string());
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let chosen = self.map("chosen")?;
        for key in chosen.keys().collect::<Vec<_>>() {
            chosen.delete(&key).map_err(|e| failed(&e))?;
        }
        for pid in pids {
            chosen.update(&pid.to_ne_bytes(), &[0; 4], MapFlags::ANY).map_err(|e| failed(&e))?;
        }
        if calls.is_empty() && !pids.is_empty() {
            for name in ["precise_sys_exit", "precise_sys_enter"] {
                calls.push(bpf::program(&self.object, name)?.attach_trace().map_err(|e| failed(&e))?);
            }
        }
        self.for_all_threads("precise_choose")?;
        if pids.is_empty() {
            calls.clear();
        }
        Ok(())
    }

    /// Opens accounts for the existing threads.
    fn adopt(&self) -> Result<(), Error> {
        self.for_all_threads("precise_adopt")
    }

    /// Runs an iterator over all threads.
    fn for_all_threads(&self, program: &str) -> Result<(), Error> {
        bpf::iterate(&self.object, program, &format!("run {program}")).map(drop)
    }

    /// Starts the account of every CPU. A CPU that is offline starts when it comes online.
    fn start(&self) {
        let Ok(program) = bpf::program(&self.object, "precise_start") else { return };
        for cpu in 0..self.constants.cpus {
            let mut words = [0_u8; 8];
            let input = ProgramInput {
                context_in: Some(&mut words),
                cpu,
                flags: libbpf_sys::BPF_F_TEST_RUN_ON_CPU,
                ..Default::default()
            };
            // An error says that the CPU is offline.
            let _ = program.test_run(input);
        }
    }

    /// A map of the account.
    pub(super) fn map(&self, name: &str) -> Result<MapHandle, Error> {
        bpf::map(&self.object, name)
    }
}
