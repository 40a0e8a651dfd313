// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the kernel's arrays of counters: runs the programs of `snmp.bpf.c`, which copy them.

use std::fs;
use std::mem::{offset_of, size_of};

use libbpf_rs::{Object, ProgramType};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::abi;
use super::files::{self, Shown};
use super::layout::{Layout, Of, Types};
use super::lists::Memory;
use super::protocols::{Protocol, protocols};
use super::raw::{Holder, Key, Raw, Shape};
use super::reader::Which;
use topstat_kernel::Error;
use topstat_kernel::bpf::{self, Runner, Shared};

const OBJECT: &[u8] = object!("snmp/snmp.bpf.o");
/// The purpose of running the programs, for errors.
const READ: &str = "read the kernel's SNMP counters";

/// Bytes that are searched for lists of names at a time. Read-only memory begins at a multiple of it.
const STEP: u64 = abi::SNMP_SECTION_BYTES as u64;
/// How far read-only memory reaches down and up from an address that is known to be in it, at most, in steps: distributions'
/// kernels have 10 to 25 MiB of it. The search goes farther up only if a counter was not found.
const DOWN: u64 = 32;
const UP: [u64; 2] = [16, 64];

/// The programs, and the places of counters.
pub struct Arrays {
    object: Object,
    read: Runner,
    list: Runner,
    list_devices: Runner,
    cursor: Shared,
    plan: Shared,
    holders: Shared,
    section: Shared,
    /// The CPUs that the kernel may have. Those that are offline count, too.
    pub cpus: Vec<u32>,
    pub layout: Layout,
    of: Of,
}

fn failed(why: impl Into<String>) -> Error {
    Error::Kernel { what: READ.to_owned(), why: why.into() }
}

impl Arrays {
    /// Loads the programs, and finds the counters of these protocols, of namespaces or of devices.
    ///
    /// # Errors
    /// The reason why this kernel or this user can't read them.
    pub fn open(of: Of, wanted: &[&'static Protocol]) -> Result<Self, Error> {
        let shown = shown(of, wanted)?;
        let types = Types::read().map_err(failed)?;
        let mut object = bpf::open("snmp", OBJECT)?;
        let helper = libbpf_sys::BPF_FUNC_map_lookup_percpu_elem;
        let by_helper = ProgramType::RawTracepoint.is_helper_supported(helper).unwrap_or(false);
        let (offset, other) = ("snmp_offset", "snmp_offset_here");
        let (offset, other) = if by_helper { (offset, other) } else { (other, offset) };
        bpf::leave_out(&mut object, other)?;
        let object = bpf::load("snmp", object)?;
        let memory = |name| Shared::new(&bpf::map(&object, name)?);
        let runner = |name| Runner::new(&object, name);
        let mut arrays = Self {
            read: runner("snmp_read")?,
            list: runner("snmp_nets")?,
            list_devices: runner("snmp_devices")?,
            cursor: memory("cursors")?,
            plan: memory("plans")?,
            holders: memory("holders")?,
            section: memory("sections")?,
            cpus: possible_cpus()?,
            layout: Layout::default(),
            of,
            object,
        };
        arrays.find_cpus(offset, !by_helper)?;
        arrays.lay_out(&shown, &types)?;
        arrays.set_plan(&types)?;
        Ok(arrays)
    }

    /// Finds where the data of each CPU is. `on_itself`: the program must run on that CPU.
    fn find_cpus(&self, program: &str, on_itself: bool) -> Result<(), Error> {
        let allowed = sched_getaffinity(None).map_err(|e| failed(format!("the own CPUs are not known: {e}")))?;
        let found = (0..).zip(&self.cpus).try_for_each(|(place, cpu)| {
            let unknown = |why: &str| failed(format!("it is not known where the data of CPU {cpu} is{why}"));
            if on_itself {
                let mut only = CpuSet::new();
                only.set(*cpu as usize);
                sched_setaffinity(None, &only)
                    .map_err(|e| unknown(&format!(": before Linux 5.19 topstat must run on it: {e}")))?;
            }
            match self.run(program, [u64::from(*cpu), place])? {
                0 => Ok(()),
                _ => Err(unknown("")),
            }
        });
        if on_itself {
            sched_setaffinity(None, &allowed).map_err(|e| failed(format!("the own CPUs can't be set again: {e}")))?;
        }
        found
    }

    /// Finds the counters of all protocols, by the kernel's lists of names.
    fn lay_out(&mut self, shown: &Shown, types: &Types) -> Result<(), Error> {
        let element = types.element().ok_or_else(|| failed("the kernel's types have no struct snmp_mib"))?;
        if self.run("snmp_constant", [0, 0])? != 0 {
            return Err(failed("the loopback device has no operations"));
        }
        let inside = self.cursor.read::<u64>(0, offset_of!(abi::snmp_cursor, at)) / STEP * STEP;
        // Room for all of it. Memory is used only once it is written. A vector that grows would be copied, to twice its size.
        let most = (DOWN + UP.into_iter().max().unwrap_or(0)) * STEP;
        let mut memory = Memory { base: inside, bytes: Vec::with_capacity(usize::try_from(most).unwrap_or(0)) };
        for _ in 0..DOWN {
            let below = self.memory(memory.base - STEP)?;
            if below.len() < STEP as usize {
                break;
            }
            memory.base -= STEP;
            memory.bytes.splice(0..0, below);
        }
        let mut end = inside;
        for up in UP {
            while end < inside + up * STEP {
                let above = self.memory(end)?;
                end += STEP;
                memory.bytes.extend(&above);
                if above.len() < STEP as usize {
                    break;
                }
            }
            self.layout = Layout::of_arrays(self.of, shown, types, &memory, element);
            if self.layout.unknown.is_empty() || memory.bytes.len() as u64 != end - memory.base {
                break;
            }
        }
        if self.layout.protocols.iter().all(|(_, places)| places.is_empty()) {
            return Err(failed("none of the kernel's lists of their names was found in its memory"));
        }
        Ok(())
    }

    /// Copies the kernel's memory from an address on, as far as it exists.
    fn memory(&self, from: u64) -> Result<Vec<u8>, Error> {
        let bytes = self.run("snmp_memory", [from, 0])?;
        let mut words = vec![0_u64; (bytes as usize).min(STEP as usize) / size_of::<u64>()];
        self.section.words(0, 0, &mut words);
        Ok(words.into_iter().flat_map(u64::to_ne_bytes).collect())
    }

    /// Sets the programs' plan: the arrays to copy.
    fn set_plan(&self, types: &Types) -> Result<(), Error> {
        let too_many = |what: &str| failed(format!("this kernel has more {what} than this topstat expects"));
        let bytes =
            types.size(self.of.pointers()).ok_or_else(|| failed("the kernel's types have no such structure"))?;
        let most = abi::SNMP_POINTERS as usize * size_of::<u64>();
        // A pointer behind the end of the copied structure could not be followed.
        let farthest = self.layout.blocks.iter().map(|block| block.pointer + 1).max().unwrap_or(0) * size_of::<u64>();
        if farthest > most {
            return Err(too_many("arrays of counters"));
        }
        let mut plan = abi::snmp_plan {
            blocks: number(self.layout.blocks.len()),
            cpus: number(self.cpus.len()),
            units: number(self.cpus.len() + usize::from(self.layout.words(true) > 0)),
            pointers_bytes: number(bytes.min(most)),
            devices: u32::from(self.of == Of::Devices),
            ..Default::default()
        };
        if self.layout.blocks.len() > plan.block.len() {
            return Err(too_many("arrays of counters"));
        }
        for (to, block) in plan.block.iter_mut().zip(&self.layout.blocks) {
            if block.words * size_of::<u64>() > abi::SNMP_BLOCK_BYTES as usize {
                return Err(too_many("counters of a protocol"));
            }
            *to = abi::snmp_block {
                pointer: number(block.pointer),
                bytes: number(block.words * size_of::<u64>()),
                shared: block.shared.into(),
                group: block.group.into(),
                received: block.messages.map_or(0, |(received, _)| number(received * size_of::<u64>())),
                sent: block.messages.map_or(0, |(_, sent)| number(sent * size_of::<u64>())),
            };
        }
        self.plan.write(0, 0, plan);
        Ok(())
    }

    /// The inode of the host's namespace: the first that the kernel has made.
    ///
    /// # Errors
    /// When the kernel does not run the programs.
    pub fn host(&self) -> Result<u32, Error> {
        self.list_namespaces(None)?;
        let first = || self.listed().next().map(|holder| holder.inum);
        match self.field(offset_of!(abi::snmp_cursor, host)) {
            // The walk begins with the namespace that this process is in.
            0 => first().ok_or_else(|| failed("there are no network namespaces")),
            inode => Ok(inode),
        }
    }

    /// The number of words of a reading of these arrays.
    pub fn shape(&self) -> Shape {
        Shape { cpus: self.cpus.len(), cpu_words: self.layout.words(false), shared_words: self.layout.words(true) }
    }

    /// Reads the counters of all namespaces or of one, or of their devices.
    ///
    /// # Errors
    /// When the kernel does not run the programs.
    pub fn read(&mut self, only: Option<u32>, which: &Which, raw: &mut Raw) -> Result<(), Error> {
        self.cursor.write(0, offset_of!(abi::snmp_cursor, faults), 0_u64);
        let listed = self.of == Of::Devices;
        if listed {
            self.list_namespaces(only)?;
            let namespaces: Vec<_> = self.listed().collect();
            self.list_devices(&namespaces, which.device.as_deref())?;
        } else {
            self.choose(only);
        }
        self.copy(!listed, raw)?;
        raw.beyond = self.field(offset_of!(abi::snmp_cursor, beyond)).into();
        raw.unreadable = self.cursor.read(0, offset_of!(abi::snmp_cursor, faults));
        Ok(())
    }

    /// Copies all listed holders, in several runs if necessary. With `list`, the first run lists the namespaces.
    fn copy(&mut self, list: bool, raw: &mut Raw) -> Result<(), Error> {
        let units = self.cpus.len() + usize::from(raw.shape().shared_words > 0);
        let mut states = [0_u64; abi::SNMP_UNITS as usize / size_of::<u64>()];
        let (mut next, mut end) = (0, usize::MAX);
        while next < end {
            let first = list && next == 0;
            let from = [(next / units) as u64, (next % units) as u64, first.into()];
            if run(&self.read, &from)? != 0 {
                return Err(failed("the list of network namespaces can't be read"));
            }
            if next == 0 {
                let devices = self.of == Of::Devices;
                raw.begin(self.listed().map(|holder| holder_of(&holder, devices)));
                end = raw.holders().len() * units;
            }
            let done = self.field(offset_of!(abi::snmp_cursor, units)) as usize;
            if done == 0 && next < end {
                return Err(failed("a run has no room for what one CPU has counted"));
            }
            self.cursor.words(0, offset_of!(abi::snmp_cursor, done), &mut states);
            let states = states.iter().flat_map(|word| word.to_ne_bytes()).take(done);
            let mut at = 0;
            for (place, state) in (next..end).zip(states) {
                at += self.take(raw, place / units, place % units, state, at);
            }
            next += done;
        }
        Ok(())
    }

    /// Takes over the words that a run has copied of a holder, from `at` on. Returns their number.
    fn take(&self, raw: &mut Raw, holder: usize, unit: usize, state: u8, at: usize) -> usize {
        if u32::from(state) & ((1 << abi::SNMP_UNIT_GROUPS) - 1) != abi::SNMP_UNIT_READ {
            raw.gone(holder);
            return 0;
        }
        let copied = |at: usize, words| self.section.view(0, at * size_of::<u64>(), words);
        if unit < self.cpus.len() {
            let words = raw.shape().cpu_words;
            raw.add_cpu(holder, unit, copied(at, words));
            return words;
        }
        let groups = state >> abi::SNMP_UNIT_GROUPS;
        let (mut from, mut to) = (at, 0);
        for block in self.layout.blocks.iter().filter(|block| block.shared) {
            if !block.on_demand() || block.group & groups != 0 {
                raw.set_shared(holder, to, copied(from, block.words));
                from += block.words;
            }
            to += block.words;
        }
        raw.set_groups(holder, groups);
        from - at
    }

    /// Makes the walk through the namespaces list this one, or all.
    fn choose(&self, only: Option<u32>) {
        self.plan.write(0, offset_of!(abi::snmp_plan, only), only.unwrap_or(0));
    }

    fn list_namespaces(&self, only: Option<u32>) -> Result<(), Error> {
        self.choose(only);
        match run(&self.list, &[])? {
            0 => Ok(()),
            _ => Err(failed("the list of network namespaces can't be read")),
        }
    }

    /// The holders in the directory.
    fn listed(&self) -> impl Iterator<Item = abi::snmp_holder> {
        let found = self.field(offset_of!(abi::snmp_cursor, found)).min(abi::SNMP_HOLDERS);
        (0..found as usize).map(|place| self.holders.read::<abi::snmp_holder>(place, 0))
    }

    /// Writes these holders into the directory.
    fn list(&self, holders: &[abi::snmp_holder]) {
        for (place, holder) in holders.iter().enumerate() {
            self.holders.write(place, 0, *holder);
        }
        self.cursor.write(0, offset_of!(abi::snmp_cursor, found), number(holders.len()));
    }

    /// Lists the devices of these namespaces; if a name is given, only devices of that name.
    fn list_devices(&self, namespaces: &[abi::snmp_holder], name: Option<&str>) -> Result<(), Error> {
        self.list(&[]);
        for namespace in namespaces {
            // A namespace that has ended since it was listed has no devices.
            run(&self.list_devices, &[namespace.address, namespace.inum.into()])?;
        }
        if let Some(name) = name {
            let wanted: Vec<_> = self.listed().filter(|device| text(&device.name) == name).collect();
            self.list(&wanted);
        }
        Ok(())
    }

    fn field(&self, offset: usize) -> u32 {
        self.cursor.read(0, offset)
    }

    /// Runs a program without a permanent runner.
    fn run(&self, name: &str, args: [u64; 2]) -> Result<u32, Error> {
        run(&Runner::new(&self.object, name)?, &args)
    }
}

fn run(program: &Runner, args: &[u64]) -> Result<u32, Error> {
    program.run(args).map_err(|e| failed(e.to_string()))
}

fn holder_of(holder: &abi::snmp_holder, device: bool) -> Holder {
    let key = Key { inum: holder.inum, id: holder.id, ifindex: holder.ifindex };
    Holder { key, device: device.then(|| text(&holder.name)), groups: 0, gone: false }
}

/// Loads the programs, and finds all counters of namespaces.
///
/// # Errors
/// As [`Arrays::open`]; and when a counter in `/proc` was not found.
pub fn try_load() -> Result<(), Error> {
    let all: Vec<&Protocol> = protocols().iter().collect();
    let unknown = Arrays::open(Of::Namespaces, &all)?.layout.unknown;
    match unknown.as_slice() {
        [] => Ok(()),
        some => Err(failed(format!("not found in this kernel's memory: {}", some.join(" ")))),
    }
}

/// The counters that `/proc` shows, of the own namespace or of its loopback device. All namespaces and devices have the same
/// counters.
fn shown(of: Of, wanted: &[&'static Protocol]) -> Result<Shown, Error> {
    let net = std::path::Path::new("/proc/thread-self/net");
    let shown = match of {
        Of::Namespaces => files::namespace(net, wanted),
        Of::Devices => files::device(net, "lo", wanted),
    };
    let shown = shown.map_err(|e| failed(format!("/proc/thread-self/net: {e}")))?;
    match shown.is_empty() {
        true if of == Of::Devices => {
            Err(failed("devices have counters of their own for IPv6 only, which is not there"))
        }
        true => Err(failed("/proc/thread-self/net shows none of them: mount /proc")),
        false => Ok(shown),
    }
}

fn number(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// A name of the kernel, up to the first zero.
fn text(name: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> =
        name.iter().map(|c| u8::from_ne_bytes(c.to_ne_bytes())).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The numbers of the CPUs that the kernel may have. There may be gaps.
fn possible_cpus() -> Result<Vec<u32>, Error> {
    let path = "/sys/devices/system/cpu/possible";
    let text = fs::read_to_string(path).map_err(|e| failed(format!("{path}: {e}")))?;
    let cpus = ranges(&text).ok_or_else(|| failed(format!("{path}: {} is no list of CPUs", text.trim())))?;
    match cpus.len() {
        1..=MOST_CPUS => Ok(cpus),
        many => Err(failed(format!("{path}: {many} CPUs, of at most {MOST_CPUS}"))),
    }
}

const MOST_CPUS: usize = abi::SNMP_CPUS as usize;

/// The numbers of a list such as `0-3,8`.
fn ranges(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= abi::SNMP_CPUS {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn cpus_may_have_gaps() {
        assert_eq!(ranges("0\n"), Some(vec![0]));
        assert_eq!(ranges("0-2,8-9,11\n"), Some(vec![0, 1, 2, 8, 9, 11]));
        for wrong in ["", "\n", "a", "0-", "0-4294967295"] {
            assert_eq!(ranges(wrong), None, "{wrong:?}");
        }
    }
}
