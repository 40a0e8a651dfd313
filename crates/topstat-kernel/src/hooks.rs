// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attaches programs, and replaces an attached program.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::path::PathBuf;

use libbpf_rs::{
    Link, MapCore as _, MapFlags, MapHandle, Object, OpenObject, ProgramAttachType, ProgramMut, ProgramType,
    TracepointCategory, UprobeOpts,
};
use rustix::thread::CapabilitySet;

use crate::{Error, Program, bpf, perf};

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// To the root cgroup. The link can be given another program.
    Cgroup,
    /// Behind a gate, since its link can't be given another program: see `observe/gate.bpf.h`. The gate's program has the name of
    /// this one with `_enter`, its array with `_gate`.
    Gate,
}

/// A place that is known at run time alone. The types of the program and of its gate are set before they are loaded: see [`aim`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A tracepoint, whose arguments the program gets as they are (`tp_btf`).
    Btf(String),
    /// A classic tracepoint: the kernel builds a record for the program.
    Tracepoint {
        /// The subsystem: `block`.
        group: String,
        /// Its name: `block_rq_issue`.
        name: String,
    },
    /// A function of the kernel.
    Function {
        /// Its name.
        name: String,
        /// At its return, and not at its beginning.
        at_return: bool,
    },
    /// A function of a program or of a library.
    User {
        /// The file.
        path: PathBuf,
        /// The name of the function; `None`: the offset counts from the beginning of the file.
        function: Option<String>,
        /// Bytes behind the beginning of the function.
        offset: usize,
        /// At its return, and not at its beginning.
        at_return: bool,
        /// Bytes from the beginning of the file to a number of users, which the kernel keeps; 0: none.
        semaphore: usize,
    },
    /// A counter of the kernel's or the CPU's (`perf_event_open`), on one CPU.
    Counter {
        /// `PERF_TYPE_…`.
        kind: u32,
        /// The number of the counter in its type.
        config: u64,
        /// Events from one sample to the next.
        period: u64,
        /// The CPU.
        cpu: u32,
    },
}

/// A place where a program is attached.
#[derive(Clone, Debug)]
pub struct Hook {
    /// The program's name.
    pub program: String,
    /// The name of its link among the links of the family: the program's name, unless the program has several links.
    pub link: String,
    /// How it is attached.
    pub at: At,
    /// The place, where the program does not name it.
    pub place: Option<Place>,
    /// The place, for people: `cgroup ingress`.
    pub name: String,
    /// Whether an amount is lost with an event that the kernel keeps from the program (see `skipped.rs`): the program pushes an
    /// amount that is in this event alone.
    pub losing: bool,
    /// The samples that alone need it: it is attached while one of their tables is on. Empty: it is attached always.
    pub only_for: &'static [&'static str],
    /// The map whose word counts the objects that need it: readers attach it while there are any. See `wanted.rs` of `ranking`.
    pub while_counted: Option<&'static str>,
    /// It is for kernels that accept this program of `probe.bpf.c`.
    with: Option<&'static str>,
    /// It is for kernels that don't accept this program of `probe.bpf.c`.
    without: Option<&'static str>,
}

impl Hook {
    fn new(program: &str, at: At, name: String) -> Self {
        let (program, link) = (program.to_owned(), program.to_owned());
        Self {
            program,
            link,
            at,
            place: None,
            name,
            losing: false,
            only_for: &[],
            while_counted: None,
            with: None,
            without: None,
        }
    }

    /// A program at a place that it does not name, behind a gate. `event` is the place for people.
    pub fn at(program: &str, place: Place, event: &str) -> Self {
        let link = match &place {
            Place::Counter { cpu, .. } => format!("{program}-{cpu}"),
            Place::User { function: None, offset, .. } => format!("{program}-{offset:x}"),
            _ => program.to_owned(),
        };
        Self { link, place: Some(place), ..Self::new(program, At::Gate, event.to_owned()) }
    }

    /// A program at this place of the root cgroup: `ingress`.
    pub fn cgroup(program: &str, place: &str) -> Self {
        Self::new(program, At::Cgroup, format!("cgroup {place}"))
    }

    /// A program at a tracepoint, behind a gate.
    pub fn tracepoint(program: &str, event: &str) -> Self {
        Self::new(program, At::Gate, format!("tracepoint {event}"))
    }

    /// The programs of `observe/owners.bpf.h`, which report the end of processes and of control groups.
    pub fn of_owners(family: &str) -> [Self; 2] {
        [("process_free", "sched_process_free"), ("rmdir", "cgroup_rmdir")]
            .map(|(program, event)| Self::tracepoint(&format!("{family}_{program}"), event))
    }

    /// This hook, marked as losing an amount with an event: see [`Hook::losing`].
    #[must_use]
    pub fn losing(self) -> Self {
        Self { losing: true, ..self }
    }

    /// A program at the beginning of a kernel function, behind a gate.
    pub fn function(program: &str, function: &str) -> Self {
        Self::new(program, At::Gate, format!("function {function}"))
    }

    /// This hook, attached only while a table of these samples is on.
    #[must_use]
    pub fn only_for(self, samples: &'static [&'static str]) -> Self {
        Self { only_for: samples, ..self }
    }

    /// This hook, attached only while the word in this map counts objects that need it, and when the programs are loaded.
    #[must_use]
    pub fn while_counted(self, word: &'static str) -> Self {
        Self { while_counted: Some(word), ..self }
    }

    /// Whether it is attached and detached while its program stays loaded.
    pub fn comes_and_goes(&self) -> bool {
        !self.only_for.is_empty() || self.while_counted.is_some()
    }

    /// This hook, for kernels that accept a program of `probe.bpf.c`.
    #[must_use]
    pub fn with(self, probe: &'static str) -> Self {
        Self { with: Some(probe), ..self }
    }

    /// This hook, for kernels that don't accept a program of `probe.bpf.c`.
    #[must_use]
    pub fn without(self, probe: &'static str) -> Self {
        Self { without: Some(probe), ..self }
    }

    /// Whether it is for a kernel that accepts the programs of `probe.bpf.c` for which `has` is true.
    pub fn is_for(&self, has: impl Fn(&str) -> bool) -> bool {
        self.with.is_none_or(&has) && !self.without.is_some_and(&has)
    }

    /// Whether it has to be attached, where `is_on` says which samples have a table that is on.
    pub fn is_needed(&self, is_on: impl Fn(&str) -> bool) -> bool {
        self.only_for.is_empty() || self.only_for.iter().any(|sample| is_on(sample))
    }

    /// The name of its gate's array.
    pub fn gate(&self) -> String {
        format!("{}_gate", self.program)
    }

    /// The name of its gate's program.
    pub fn enter(&self) -> String {
        format!("{}_enter", self.program)
    }
}

/// Only the full text of libbpf's errors has the reason.
fn kernel(what: impl Into<String>, why: &impl std::fmt::Display) -> Error {
    Error::Kernel { what: what.into(), why: format!("{why:#}") }
}

/// Has an object loaded without gates, for programs that are never replaced. There a gate is useless, and it leaves its array
/// behind, 320 bytes, if a process lists all maps at the moment when the array is freed: prog_array_map_clear() takes one
/// reference too many when it is called again before its work has run (Linux 5.5 to 6.18 at least).
pub fn without_gates(object: &mut OpenObject, hooks: &[Hook]) -> Result<(), Error> {
    for hook in hooks.iter().filter(|hook| hook.at == At::Gate) {
        leave_out_gate(object, hook)?;
    }
    Ok(())
}

fn leave_out_gate(object: &mut OpenObject, hook: &Hook) -> Result<(), Error> {
    bpf::leave_out(object, &hook.enter())?;
    bpf::leave_out_map(object, &hook.gate())
}

/// Has an object loaded without a hook that is not for this kernel.
pub fn leave_out(object: &mut OpenObject, hook: &Hook) -> Result<(), Error> {
    bpf::leave_out(object, &hook.program)?;
    if hook.at == At::Gate { leave_out_gate(object, hook) } else { Ok(()) }
}

/// Gives the programs of these hooks, and their gates, the types of their places. The programs read the context as the
/// definition of their table describes it, so one compiled program serves all types.
pub fn aim(object: &mut OpenObject, hooks: &[Hook]) -> Result<(), Error> {
    for hook in hooks {
        let Some(place) = &hook.place else { continue };
        for name in [hook.enter(), hook.program.clone()] {
            let found = object.progs_mut().find(|program| program.name() == &*name);
            let mut program = found.ok_or_else(|| kernel(format!("aim the program {name}"), &"it is not there"))?;
            match place {
                Place::Btf(event) => {
                    program.set_prog_type(ProgramType::Tracing);
                    program.set_attach_type(ProgramAttachType::TraceRawTp);
                    program
                        .set_attach_target(0, Some(event.clone()))
                        .map_err(|e| kernel(format!("find the tracepoint {event}"), &e))?;
                }
                Place::Tracepoint { .. } => program.set_prog_type(ProgramType::Tracepoint),
                Place::Function { .. } | Place::User { .. } => program.set_prog_type(ProgramType::Kprobe),
                Place::Counter { .. } => program.set_prog_type(ProgramType::PerfEvent),
            }
        }
    }
    Ok(())
}

fn attach_at(program: &ProgramMut<'_>, place: &Place) -> libbpf_rs::Result<Link> {
    match place {
        Place::Btf(_) => program.attach_trace(),
        Place::Tracepoint { group, name } => program.attach_tracepoint(TracepointCategory::Custom(group.clone()), name),
        Place::Function { name, at_return } => program.attach_kprobe(*at_return, name),
        Place::User { path, function, offset, at_return, semaphore } => {
            let options = UprobeOpts {
                retprobe: *at_return,
                func_name: function.clone(),
                ref_ctr_offset: *semaphore,
                ..UprobeOpts::default()
            };
            const ALL_PROCESSES: i32 = -1;
            program.attach_uprobe_with_opts(ALL_PROCESSES, path, *offset, options)
        }
        Place::Counter { kind, config, period, cpu } => {
            let counter = perf::every(*kind, *config, *period, *cpu)?;
            // The link has the counter from now on.
            program.attach_perf_event(counter.into_raw_fd())
        }
    }
}

/// Attaches a program, behind its gate if there are gates. Dropping the link detaches it, unless the link is pinned.
pub fn attach(object: &Object, hook: &Hook, cgroup: BorrowedFd<'_>, gates: bool) -> Result<Link, Error> {
    let link = match hook.at {
        At::Cgroup => bpf::program(object, &hook.program)?.attach_cgroup(cgroup.as_raw_fd()),
        At::Gate => {
            let name = if gates {
                enter(object, hook, &bpf::map(object, &hook.gate())?)?;
                hook.enter()
            } else {
                hook.program.clone()
            };
            let program = bpf::program(object, &name)?;
            hook.place.as_ref().map_or_else(|| program.attach(), |place| attach_at(&program, place))
        }
    };
    link.map_err(|e| {
        // This is asked after the failure: a program may come and go at any time.
        let why = exclusive(object, hook, cgroup).unwrap_or_else(|| e.to_string());
        kernel(format!("attach {} ({})", hook.program, hook.name), &why)
    })
}

/// The reason why a program can't be attached to the cgroup: another program was attached there without `BPF_F_ALLOW_MULTI`, the
/// way before Linux 4.15, which allows no other program beside it. (In cgroups below it does no harm: both are run.)
pub fn exclusive(object: &Object, hook: &Hook, cgroup: BorrowedFd<'_>) -> Option<String> {
    /// With the flag up to 64 programs may share a place (BPF_CGROUP_MAX_PROGS); without it there is one.
    const MOST: usize = 64;
    if hook.at != At::Cgroup {
        return None;
    }
    let at = bpf::program(object, &hook.program).ok()?.attach_type() as u32;
    let (mut flags, mut ids, mut count) = (0, [0_u32; MOST], MOST as u32);
    // SAFETY: a descriptor of a cgroup, and room for as many ids as the call says.
    let asked = unsafe {
        libbpf_sys::bpf_prog_query(cgroup.as_raw_fd(), at, 0, &raw mut flags, ids.as_mut_ptr(), &raw mut count)
    };
    if asked != 0 || count == 0 || flags & libbpf_sys::BPF_F_ALLOW_MULTI != 0 {
        return None;
    }
    let id = ids[0];
    let info = libbpf_rs::query::ProgInfoIter::default().find(|info| info.id == id);
    let name = info.map_or_else(String::new, |info| format!("{}, ", info.name.to_string_lossy()));
    Some(format!(
        "a program of somebody else's ({name}id {id}) is attached to the same cgroup for itself alone; have it attached \
         with BPF_F_ALLOW_MULTI or by a link, or detach it ('bpftool cgroup list {}' and 'bpftool cgroup detach')",
        crate::cgroup::root_path().display()
    ))
}

/// Attaches a loaded program to its place in the cgroup; a gate's program to its hook, which the program knows.
pub fn attach_loaded(program: BorrowedFd<'_>, hook: &Hook, cgroup: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
    let failed =
        |why: &dyn std::fmt::Display| kernel(format!("attach {} ({})", hook.program, hook.name), &why.to_string());
    let link = match hook.at {
        At::Cgroup => {
            let place = PLACES.iter().find(|(place, _)| *place == hook.name);
            let (_, at) = place.ok_or_else(|| failed(&"no such place"))?;
            // SAFETY: two descriptors, and no options.
            unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), cgroup.as_raw_fd(), *at, std::ptr::null()) }
        }
        // SAFETY: a descriptor, and no name.
        At::Gate => unsafe { libbpf_sys::bpf_raw_tracepoint_open(std::ptr::null(), program.as_raw_fd()) },
    };
    if link < 0 {
        return Err(failed(&std::io::Error::from_raw_os_error(-link)));
    }
    // SAFETY: it was just made, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// The capability that attaching a loaded program there takes, and its name. A tracing program only concerns the kernel itself,
/// so a process that may load it may attach it.
fn needed(at: At) -> (CapabilitySet, &'static str) {
    match at {
        At::Cgroup => (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
        At::Gate => (CapabilitySet::PERFMON, "CAP_PERFMON"),
    }
}

/// The privilege that this thread lacks to attach a loaded program there.
pub fn lacks(at: At) -> Option<&'static str> {
    let (needed, name) = needed(at);
    let sets = rustix::thread::capabilities(None);
    (!sets.is_ok_and(|sets| sets.effective.contains(needed))).then_some(name)
}

/// Places in a cgroup where programs come and go, and their names in the kernel.
const PLACES: [(&str, libbpf_sys::bpf_attach_type); 2] =
    [("cgroup ingress", libbpf_sys::BPF_CGROUP_INET_INGRESS), ("cgroup egress", libbpf_sys::BPF_CGROUP_INET_EGRESS)];

/// Has a gate continue in the program of this object, from the next event on.
pub fn enter(object: &Object, hook: &Hook, gate: &MapHandle) -> Result<(), Error> {
    let program = bpf::program(object, &hook.program)?;
    gate.update(&0_u32.to_ne_bytes(), &program.as_fd().as_raw_fd().to_ne_bytes(), MapFlags::ANY)
        .map_err(|e| kernel(format!("have the hook of {} use it", hook.program), &e))
}

/// Makes a cgroup's link use the program of this object, from the next packet on.
pub fn replace(object: &Object, hook: &Hook, link: &mut Link) -> Result<(), Error> {
    let failed = |e: &dyn std::fmt::Display| kernel(format!("replace the program {}", hook.program), &e.to_string());
    let program = object.progs().find(|p| p.name() == &*hook.program).ok_or_else(|| failed(&"it is not there"))?;
    link.update_prog(&program).map_err(|e| failed(&e))
}

/// The program of a hook that is attached without a gate.
pub fn describe(object: &Object, hook: &Hook) -> Result<Program, Error> {
    let id = libbpf_rs::Program::id_from_fd(bpf::program(object, &hook.program)?.as_fd())
        .map_err(|e| kernel(format!("ask for the id of {}", hook.program), &e))?;
    Ok(Program { name: hook.program.clone(), id, hook: hook.name.clone() })
}
