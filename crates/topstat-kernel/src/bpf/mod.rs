// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads eBPF objects, and accesses their maps.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, Once};

use libbpf_rs::{
    Iter, Link, MapCore as _, MapHandle, MapType, Object, ObjectBuilder, OpenObject, PrintLevel, ProgramMut,
};
use memmap2::{MmapOptions, MmapRaw};

use crate::Error;
use undisturbed::Undisturbed;

pub mod atomics;
pub mod sockets;
mod undisturbed;
mod verified;

pub use verified::{Verified, record};

/// The latest messages of libbpf. When a program does not load, they hold the kernel's reason.
static LIBBPF_SAYS: Mutex<Vec<String>> = Mutex::new(Vec::new());
const LIBBPF_LINES: usize = 40;

fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| {
            let mut said = LIBBPF_SAYS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            said.extend(text.lines().map(str::to_owned));
            let mut excess = said.len().saturating_sub(LIBBPF_LINES);
            // libbpf's own messages stay. Of the verifier's messages that it passes on, the last ones stay.
            said.retain(|line| {
                let drop = excess > 0 && !line.starts_with("libbpf: ");
                excess -= usize::from(drop);
                !drop
            });
        })));
    });
}

/// The messages of libbpf since the last call.
pub fn libbpf_said() -> Vec<String> {
    std::mem::take(&mut *LIBBPF_SAYS.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

fn kernel(what: impl Into<String>, why: &impl std::fmt::Display) -> Error {
    let why = match reason(&libbpf_said()) {
        Some(reason) => format!("{why:#} ({reason})"),
        None => format!("{why:#}"),
    };
    Error::Kernel { what: what.into(), why }
}

/// The program that libbpf's messages are about, and the verifier's last finding. If they are about no program, it is the first
/// message.
fn reason(said: &[String]) -> Option<String> {
    let Some(failed) = said.iter().find(|l| l.contains("BPF program load failed")) else {
        return said.first().map(|l| l.trim_start_matches("libbpf: ").trim().to_owned());
    };
    let failed = failed.trim_start_matches("libbpf: ").split(':').next().unwrap_or_default();
    let end = said.iter().position(|l| l.starts_with("processed ")).unwrap_or(said.len());
    let found = said[..end].iter().rfind(|l| !l.trim().is_empty() && !l.starts_with("libbpf: "));
    Some(match found {
        Some(found) => format!("{failed}: {}", found.trim()),
        None => failed.to_owned(),
    })
}

/// Opens an eBPF object that was compiled into this program, packed by the build script.
pub fn open(name: &str, packed: &[u8]) -> Result<OpenObject, Error> {
    listen();
    libbpf_said();
    let what = || format!("open the eBPF object {name}");
    let bytes = miniz_oxide::inflate::decompress_to_vec(packed).map_err(|e| kernel(what(), &e))?;
    ObjectBuilder::default().name(name).and_then(|b| b.open_memory(&bytes)).map_err(|e| kernel(what(), &e))
}

/// Creates the maps and has the kernel verify the programs.
pub fn load(name: &str, mut object: OpenObject) -> Result<Object, Error> {
    sockets::leave_out(&mut object);
    let logs = verified::Logs::ask(name, &mut object);
    let types: Vec<_> = object.maps().filter(|map| map.autocreate()).map(|map| map.map_type()).collect();
    let what = || format!("load the eBPF programs of {name}");
    let undisturbed = Undisturbed::new();
    let loaded = object.load();
    drop(undisturbed);
    let object = loaded.map_err(|e| match lacking(&types) {
        Some(lacks) => Error::Lacking { what: what(), lacks },
        None => kernel(what(), &e),
    })?;
    if let Some(logs) = logs {
        logs.take();
    }
    Ok(object)
}

/// What the kernel lacks: one of these types of maps, or the atomics that all programs without a fallback build use.
fn lacking(types: &[MapType]) -> Option<String> {
    let there = |map_type: &MapType| map_type.is_supported().unwrap_or(true);
    // A process that may not make any map can't find out.
    if !there(&MapType::Array) {
        return None;
    }
    match types.iter().find(|map_type| !there(map_type)) {
        Some(lacks) => Some(format!("maps of the type {lacks:?}")),
        None => (atomics::known() == Some(false)).then(|| "eBPF atomics that return a value".to_owned()),
    }
}

/// Sets the size of a map before it is created.
pub fn resize(object: &mut OpenObject, map: &str, value_size: usize, entries: u32) -> Result<(), Error> {
    let mut map = object
        .maps_mut()
        .find(|m| m.name() == OsStr::new(map))
        .ok_or_else(|| kernel(format!("size the map {map}"), &"no such map"))?;
    let value_size = u32::try_from(value_size).map_err(|e| kernel("size a map", &e))?;
    map.set_value_size(value_size).and_then(|()| map.set_max_entries(entries)).map_err(|e| kernel("size a map", &e))
}

/// Sets the constants of a section before the programs are verified.
pub fn set_constants(object: &mut OpenObject, section: &str, value: &[u8]) -> Result<(), Error> {
    let mut map = object
        .maps_mut()
        .find(|m| m.name().to_string_lossy().ends_with(section))
        .ok_or_else(|| kernel(format!("set {section}"), &"no such section"))?;
    let bytes = map.initial_value_mut().ok_or_else(|| kernel(format!("set {section}"), &"it has no value"))?;
    bytes
        .get_mut(..value.len())
        .ok_or_else(|| kernel(format!("set {section}"), &"it is smaller than its type"))?
        .copy_from_slice(value);
    Ok(())
}

/// Makes an object use a map that exists already.
pub fn reuse(object: &mut OpenObject, map: &str, with: &MapHandle) -> Result<(), Error> {
    let mut open = object
        .maps_mut()
        .find(|m| m.name().to_string_lossy().ends_with(map))
        .ok_or_else(|| kernel(format!("share the map {map}"), &"no such map"))?;
    open.reuse_fd(with.as_fd()).map_err(|e| kernel(format!("share the map {map}"), &e))
}

/// Leaves a program out of the loading.
pub fn leave_out(object: &mut OpenObject, program: &str) -> Result<(), Error> {
    let mut found = object
        .progs_mut()
        .find(|p| p.name() == program)
        .ok_or_else(|| kernel(format!("leave out the program {program}"), &"not there"))?;
    found.set_autoload(false);
    Ok(())
}

/// Leaves a map out of the creation.
pub fn leave_out_map(object: &mut OpenObject, map: &str) -> Result<(), Error> {
    let mut found = object
        .maps_mut()
        .find(|m| m.name() == OsStr::new(map))
        .ok_or_else(|| kernel(format!("leave out the map {map}"), &"not there"))?;
    found.set_autocreate(false).map_err(|e| kernel(format!("leave out the map {map}"), &e))
}

/// A program of a loaded object, by its name.
pub fn program<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>, Error> {
    object
        .progs_mut()
        .find(|p| p.name() == name)
        .ok_or_else(|| kernel(format!("find the program {name}"), &"not there"))
}

/// A program that is run by `BPF_PROG_TEST_RUN`. It is looked up once, since a look-up takes as long as a short run.
pub struct Runner {
    program: OwnedFd,
}

impl Runner {
    /// The program of this name in a loaded object.
    pub fn new(object: &Object, name: &str) -> Result<Self, Error> {
        let program = program(object, name)?.as_fd().try_clone_to_owned();
        Ok(Self { program: program.map_err(|e| kernel(format!("open the program {name}"), &e))? })
    }

    /// Runs it with these arguments, which a program of the type `raw_tp` finds in its context. Returns its result.
    pub fn run(&self, args: &[u64]) -> std::io::Result<u32> {
        // The kernel wants a length and an address, or neither.
        let args = if args.is_empty() { &[0] } else { args };
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            ctx_in: args.as_ptr().cast(),
            ctx_size_in: u32::try_from(size_of_val(args)).map_err(std::io::Error::other)?,
            ..Default::default()
        };
        // SAFETY: the options and the arguments outlive the call, which does not write to the arguments.
        match unsafe { libbpf_sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &raw mut options) } {
            0 => Ok(options.retval),
            negative => Err(std::io::Error::from_raw_os_error(negative.saturating_neg())),
        }
    }
}

/// A handle to a map of a loaded object, by the end of its name.
pub fn map(object: &Object, name: &str) -> Result<MapHandle, Error> {
    let found = object
        .maps()
        .find(|m| m.name().to_string_lossy().ends_with(name))
        .ok_or_else(|| kernel(format!("find the map {name}"), &"no such map"))?;
    MapHandle::try_from(&found).map_err(|e| kernel(format!("open the map {name}"), &e))
}

/// Runs an iterator over all kernel objects of its kind, and returns its output. `what` is the purpose, for errors.
pub fn iterate(object: &Object, name: &str, what: &str) -> Result<Vec<u8>, Error> {
    let mut written = Vec::new();
    run(object, name, what, &mut written).map(|()| written)
}

/// Runs an iterator, and writes its output to `to`.
fn run(object: &Object, name: &str, what: &str, to: &mut impl Write) -> Result<(), Error> {
    let failed = |e: &dyn std::fmt::Display| Error::Kernel { what: what.to_owned(), why: e.to_string() };
    let link = program(object, name)?.attach().map_err(|e| failed(&e))?;
    let mut output = Output(Iter::new(&link).map_err(|e| failed(&e))?);
    std::io::copy(&mut output, to).map(drop).map_err(|e| failed(&e))
}

/// The output of an iterator. After a million objects for which its program has written nothing, the kernel ends a read with EAGAIN, and
/// the next read goes on behind them.
struct Output<R>(R);

impl<R: Read> Read for Output<R> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.0.read(to) {
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

/// The number of objects that [`adopt`] has found in this process.
static FOUND: AtomicU64 = AtomicU64::new(0);

/// The number of objects found so far that existed before the search for them, in families that report it.
pub fn found() -> u64 {
    FOUND.load(Ordering::Relaxed)
}

/// Counts bytes as objects. The kernel delivers up to a buffer of [`std::io::copy`] at a time, so the count lags by as much.
struct Counter;

impl Write for Counter {
    fn write(&mut self, written: &[u8]) -> std::io::Result<usize> {
        FOUND.fetch_add(written.len() as u64, Ordering::Relaxed);
        Ok(written.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs an iterator that writes a byte for each object that it finds.
pub fn adopt(object: &Object, name: &str, what: &str) -> Result<(), Error> {
    run(object, name, what, &mut Counter)
}

/// Runs an attached iterator, and returns its output.
pub fn read_out(iterator: &Link) -> std::io::Result<Vec<u8>> {
    let mut written = Vec::new();
    Output(Iter::new(iterator).map_err(std::io::Error::other)?).read_to_end(&mut written)?;
    Ok(written)
}

/// Plain old data: a type whose every bit pattern is a value, such as the structures of the shared headers. The build implements
/// it for the structures that it generates.
///
/// # Safety
/// The type must be `repr(C)`, without padding that matters, pointers or invalid patterns.
pub unsafe trait Pod: Copy {}

/// The bytes of a value, as the kernel takes them.
pub fn as_bytes<T: Pod>(value: &T) -> &[u8] {
    // SAFETY: the value is plain data, and the slice covers exactly its bytes.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// The value at the beginning of these bytes.
///
/// # Panics
/// There are fewer bytes than the value has.
pub fn from_bytes<T: Pod>(bytes: &[u8]) -> T {
    assert!(bytes.len() >= size_of::<T>(), "{} bytes are no {}", bytes.len(), std::any::type_name::<T>());
    // SAFETY: the bytes are long enough, and any bytes are a value of a plain type.
    unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
}

/// The memory of an array map, shared with the kernel: read and written without system calls.
pub struct Shared {
    memory: MmapRaw,
    stride: usize,
    entries: usize,
}

impl Shared {
    /// Maps the memory of a map that was created with `BPF_F_MMAPABLE`.
    pub fn new(map: &MapHandle) -> Result<Self, Error> {
        // The kernel rounds every value up to eight bytes.
        let stride = (map.value_size() as usize).next_multiple_of(8);
        let entries = map.max_entries() as usize;
        let memory = MmapOptions::new()
            .len(stride * entries)
            .map_raw(&map.as_fd())
            .map_err(|e| kernel(format!("map the memory of {}", map.name().to_string_lossy()), &e))?;
        Ok(Self { memory, stride, entries })
    }

    /// As [`Shared::new`], in anonymous memory of this process, filled with these bytes repeatedly.
    #[cfg(any(test, feature = "fuzz"))]
    pub fn of_bytes(stride: usize, entries: usize, bytes: &[u8]) -> Self {
        let stride = stride.next_multiple_of(8);
        let mut memory = memmap2::MmapMut::map_anon(stride * entries).expect("memory");
        for (to, from) in memory.iter_mut().zip(bytes.iter().cycle()) {
            *to = *from;
        }
        Self { memory: memory.into(), stride, entries }
    }

    /// As [`Shared::new`], in a file, which other processes may map, too.
    #[cfg(test)]
    pub fn of_file(file: &std::fs::File, stride: usize, entries: usize) -> Self {
        let stride = stride.next_multiple_of(8);
        file.set_len((stride * entries) as u64).expect("room");
        let memory = MmapOptions::new().len(stride * entries).map_raw(file).expect("memory");
        Self { memory, stride, entries }
    }

    /// The number of values in the map.
    pub fn entries(&self) -> usize {
        self.entries
    }

    fn at<T>(&self, entry: usize, offset: usize) -> *mut T {
        assert!(
            entry < self.entries && offset + size_of::<T>() <= self.stride,
            "entry {entry}, offset {offset} is outside of the map"
        );
        // SAFETY: inside the mapping, as just asserted.
        unsafe { self.memory.as_mut_ptr().add(entry * self.stride + offset).cast() }
    }

    /// Copies a value out, before any value that is read later. Another CPU may be writing it: each word is whole, but the words
    /// of a value may be of different moments.
    pub fn read<T: Pod>(&self, entry: usize, offset: usize) -> T {
        // SAFETY: inside the mapping and plain; volatile, since the kernel writes it too.
        let value = unsafe { self.at::<T>(entry, offset).read_volatile() };
        fence(Ordering::Acquire); // pairs with ts_wmb()
        value
    }

    /// Copies bytes out, in whole words. No CPU may write them during the copy.
    pub fn bytes(&self, entry: usize, offset: usize, length: usize) -> Vec<u8> {
        let words = (0..length / size_of::<u64>()).map(|word| offset + word * size_of::<u64>());
        words.flat_map(|at| self.read::<u64>(entry, at).to_ne_bytes()).collect()
    }

    /// Copies words out. No CPU may be writing them: they belong to a program that has been run, and has ended.
    pub fn words(&self, entry: usize, offset: usize, to: &mut [u64]) {
        let Some(last) = to.len().checked_sub(1) else { return };
        let from = self.at::<u64>(entry, offset);
        let _inside = self.at::<u64>(entry, offset + last * size_of::<u64>());
        // SAFETY: the first and the last word are inside the mapping, as just asserted, and no CPU writes during the copy.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) }
    }

    /// Words in place. No CPU may write them while this is borrowed: they belong to a program that has been run, and has ended.
    /// Its next run needs exclusive access to the owner of this borrow.
    pub fn view(&self, entry: usize, offset: usize, words: usize) -> &[u64] {
        let Some(last) = words.checked_sub(1) else { return &[] };
        let from = self.at::<u64>(entry, offset);
        let _inside = self.at::<u64>(entry, offset + last * size_of::<u64>());
        assert!(from.is_aligned(), "words are at multiples of their size");
        // SAFETY: the pointer is aligned, the first and the last word are inside the mapping, as just asserted, and no CPU
        // writes.
        unsafe { std::slice::from_raw_parts(from, words) }
    }

    /// Writes a value, after all earlier writes and reads.
    pub fn write<T: Pod>(&self, entry: usize, offset: usize, value: T) {
        fence(Ordering::Release);
        // SAFETY: inside the mapping and plain; volatile, since the kernel reads it too.
        unsafe { self.at::<T>(entry, offset).write_volatile(value) }
    }
}

// SAFETY: plain integers.
unsafe impl Pod for u16 {}
// SAFETY: plain integers.
unsafe impl Pod for u32 {}
// SAFETY: plain integers.
unsafe impl Pod for u64 {}
// SAFETY: integers and arrays of them, with explicit padding.
unsafe impl Pod for topstat_engine::abi::ts_shape {}
// SAFETY: as above.
unsafe impl Pod for topstat_engine::abi::ts_census {}
// SAFETY: as above.
unsafe impl Pod for topstat_engine::abi::ts_refill {}
// SAFETY: as above.
unsafe impl Pod for topstat_engine::abi::ts_row {}
// SAFETY: as above.
unsafe impl Pod for topstat_engine::abi::ts_section {}
// SAFETY: as above.
unsafe impl Pod for topstat_engine::abi::ts_config {}
// SAFETY: as above.
unsafe impl Pod for topstat_engine::abi::ts_window {}
// SAFETY: as above.
unsafe impl Pod for topstat_engine::abi::ts_window_head {}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::{Output, reason};

    /// Gives the parts one by one. An empty part is EAGAIN.
    struct Parts(Vec<&'static [u8]>);

    impl Read for Parts {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            match self.0.is_empty() {
                true => Ok(0),
                false => match self.0.remove(0) {
                    [] => Err(std::io::ErrorKind::WouldBlock.into()),
                    part => (&mut &*part).read(to),
                },
            }
        }
    }

    #[test]
    fn an_iterator_goes_on_behind_a_million_objects() {
        let mut output = Vec::new();
        Output(Parts(vec![b"", b"one", b"", b"", b"two"])).read_to_end(&mut output).unwrap();
        assert_eq!(output, b"onetwo");
    }

    #[test]
    fn the_reason_is_the_verifiers_last_word() {
        let said: Vec<String> = [
            "libbpf: prog 'inet_ingress': BPF program load failed: Permission denied",
            "libbpf: prog 'inet_ingress': -- BEGIN PROG LOAD LOG --",
            "12: (61) r2 = *(u32 *)(r1 +4)",
            "R1 invalid mem access 'scalar'",
            "processed 13 insns (limit 1000000)",
            "-- END PROG LOAD LOG --",
            "libbpf: prog 'inet_ingress': failed to load: -13",
        ]
        .map(str::to_owned)
        .to_vec();
        assert_eq!(reason(&said).as_deref(), Some("prog 'inet_ingress': R1 invalid mem access 'scalar'"));
        let of_a_map = ["libbpf: Error in bpf_create_map_xattr(banks): Cannot allocate memory(-12)".to_owned()];
        assert_eq!(
            reason(&of_a_map).as_deref(),
            Some("Error in bpf_create_map_xattr(banks): Cannot allocate memory(-12)")
        );
        assert_eq!(reason(&[]), None);
    }
}
