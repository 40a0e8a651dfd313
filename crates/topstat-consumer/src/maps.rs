// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The three maps of a stream.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::sync::atomic::AtomicU64;

use libbpf_rs::{MapCore as _, MapHandle, MapType, Object, OpenObject};
use memmap2::{MmapOptions, MmapRaw};

use crate::abi::{STREAM_MOST_BYTES, stream_control, stream_count};
use crate::error::{Error, kernel};
use crate::ring::Ring;
use crate::watch::Watch;

const RING: &str = "stream_ring";
const COUNTS: &str = "stream_counts";
const CONTROL: &str = "stream_control";

/// The smallest ring buffer holds four of the longest payloads: while it is not half full, where producers wake the consumer,
/// each record fits.
const LEAST_RING_BYTES: u32 = 4 * STREAM_MOST_BYTES;
/// The largest ring buffer: the kernel keeps lengths in 30 bits.
const MOST_RING_BYTES: u32 = 1 << 29;

/// Prepares an eBPF object that is a source of events, before it is loaded: sets the size of its ring buffer, a power of two, and
/// gives each CPU its counts.
pub fn prepare(object: &mut OpenObject, ring_bytes: u32) -> Result<(), Error> {
    let least = LEAST_RING_BYTES.max(rustix::param::page_size() as u32);
    if !ring_bytes.is_power_of_two() || !(least..=MOST_RING_BYTES).contains(&ring_bytes) {
        return Err(Error::Setting {
            setting: "size of the ring buffer",
            value: format!("{ring_bytes} bytes"),
            allowed: format!("it has to be a power of two from {least} to {MOST_RING_BYTES}"),
        });
    }
    let cpus = libbpf_rs::num_possible_cpus().map_err(|e| libbpf("count the CPUs", &e))? as u32;
    for (name, entries) in [(RING, ring_bytes), (COUNTS, cpus)] {
        let mut map = object.maps_mut().find(|map| map.name() == OsStr::new(name)).ok_or_else(|| missing(name))?;
        map.set_max_entries(entries).map_err(|e| libbpf(format!("size the map {name}"), &e))?;
    }
    Ok(())
}

/// The open maps.
pub struct Maps {
    ring: MapHandle,
    counts: MapHandle,
    control: MapHandle,
}

impl Maps {
    /// The maps of a loaded object.
    pub fn of(object: &Object) -> Result<Self, Error> {
        Self::open(|name| {
            let map = object.maps().find(|map| map.name() == OsStr::new(name)).ok_or_else(|| missing(name))?;
            MapHandle::try_from(&map).map_err(|e| libbpf(format!("open the map {name}"), &e))
        })
    }

    /// The maps that are pinned in a folder, under their own names.
    pub fn pinned(folder: &Path) -> Result<Self, Error> {
        Self::open(|name| {
            let path = folder.join(name);
            MapHandle::from_pinned_path(&path).map_err(|e| libbpf(format!("open {}", path.display()), &e))
        })
    }

    /// Pins the maps in a folder.
    pub fn pin(&mut self, folder: &Path) -> Result<(), Error> {
        for (map, name) in [(&mut self.ring, RING), (&mut self.counts, COUNTS), (&mut self.control, CONTROL)] {
            let path = folder.join(name);
            map.pin(&path).map_err(|e| libbpf(format!("pin {}", path.display()), &e))?;
        }
        Ok(())
    }

    fn open(mut map: impl FnMut(&str) -> Result<MapHandle, Error>) -> Result<Self, Error> {
        let mut checked = |name: &str, map_type: MapType, value: usize| {
            let map = map(name)?;
            let wrong = |why: String| Err(Error::Map { map: name.to_owned(), why });
            if map.map_type() != map_type {
                return wrong(format!("it is of the type {:?}, not {map_type:?}", map.map_type()));
            }
            if map.value_size() as usize != value {
                return wrong(format!("its values have {} bytes, not {value}", map.value_size()));
            }
            Ok(map)
        };
        Ok(Self {
            ring: checked(RING, MapType::RingBuf, 0)?,
            counts: checked(COUNTS, MapType::Array, size_of::<stream_count>())?,
            control: checked(CONTROL, MapType::Array, size_of::<stream_control>())?,
        })
    }

    /// A view of the stream for readers other than its consumer.
    pub fn watch(&self) -> Result<Watch, Error> {
        let (fd, size) = self.ring();
        Ok(Watch::new(Ring::map(fd, size)?, self.counts()?, self.control()?))
    }

    pub(crate) fn ring(&self) -> (BorrowedFd<'_>, u64) {
        (self.ring.as_fd(), u64::from(self.ring.max_entries()))
    }

    pub(crate) fn counts(&self) -> Result<Words, Error> {
        Words::map(&self.counts, size_of::<stream_count>() * self.counts.max_entries() as usize)
    }

    pub(crate) fn control(&self) -> Result<Words, Error> {
        Words::map(&self.control, size_of::<stream_control>())
    }
}

fn missing(map: &str) -> Error {
    Error::Map { map: map.to_owned(), why: "the eBPF object has none of this name".to_owned() }
}

fn libbpf(what: impl Into<String>, why: &libbpf_rs::Error) -> Error {
    Error::Kernel { what: what.into(), why: format!("{why:#}") }
}

/// The memory of an array map whose values are all 64-bit words.
pub(crate) struct Words {
    memory: MmapRaw,
    bytes: usize,
}

impl Words {
    fn map(map: &MapHandle, bytes: usize) -> Result<Self, Error> {
        let name = map.name().to_string_lossy().into_owned();
        let memory = MmapOptions::new().len(bytes).map_raw(&map.as_fd());
        Ok(Self { memory: memory.map_err(kernel(format!("map the memory of {name}")))?, bytes })
    }

    /// Words in anonymous memory of this process.
    #[cfg(test)]
    pub(crate) fn of_zeroes(bytes: usize) -> Self {
        Self { memory: memmap2::MmapMut::map_anon(bytes).expect("memory").into(), bytes }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The word at this offset, which other processes and programs access, too.
    pub(crate) fn at(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes, "offset {offset} is outside of the map");
        // SAFETY: it is inside the mapping, as just asserted, and the mapping lives as long as `self`. It is aligned, since the
        // mapping begins at a page. Producers access words by whole loads, whole stores and atomic additions alone.
        unsafe { AtomicU64::from_ptr(self.memory.as_mut_ptr().add(offset).cast()) }
    }
}
