// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A source of events for tests and benches, `bpf/writes.bpf.c`. It captures the data that one thread writes to one descriptor,
//! so the writer knows the number of events.

use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle, Object, ObjectBuilder};

use crate::{Error, Maps, prepare};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/writes.bpf.o"));

/// The source, which is attached until this is dropped.
pub struct Writes {
    object: Object,
    _link: Link,
}

fn failed(what: &str) -> impl Fn(libbpf_rs::Error) -> Error + '_ {
    move |e| Error::Kernel { what: format!("{what} the source of events for tests"), why: format!("{e:#}") }
}

impl Writes {
    /// Loads and attaches it, with a ring buffer of `ring_bytes`. At most `snaplen` bytes of a payload are captured.
    pub fn load(ring_bytes: u32, snaplen: u32) -> Result<Self, Error> {
        let object = Self::object(OBJECT, ring_bytes, snaplen)?;
        let program = object
            .progs_mut()
            .next()
            .ok_or_else(|| failed("find the program of")(libbpf_rs::Error::from_raw_os_error(libc::ENOENT)))?;
        let link = program.attach().map_err(failed("attach"))?;
        Ok(Self { object, _link: link })
    }

    fn object(bytes: &[u8], ring_bytes: u32, snaplen: u32) -> Result<Object, Error> {
        let open = ObjectBuilder::default().name("writes").and_then(|builder| builder.open_memory(bytes));
        let mut open = open.map_err(failed("open"))?;
        prepare(&mut open, ring_bytes)?;
        let mut constants = open.maps_mut().find(|map| map.name().to_string_lossy().ends_with(".rodata"));
        let constants = constants.as_mut().and_then(|map| map.initial_value_mut());
        // The program's only constant.
        constants.expect("its constants")[..size_of::<u32>()].copy_from_slice(&snaplen.to_ne_bytes());
        open.load().map_err(failed("load"))
    }

    /// Watches the data that this thread, of the calling process, writes to this descriptor.
    pub fn watch(&self, thread: u64, fd: u64) -> Result<(), Error> {
        let map = self.object.maps().find(|map| map.name().to_string_lossy().ends_with(".bss")).expect("its variables");
        let map = MapHandle::try_from(&map).map_err(failed("open"))?;
        // In the order of the program's variables.
        let watched = [thread, fd, libc::SYS_write as u64].map(u64::to_ne_bytes).concat();
        map.update(&0u32.to_ne_bytes(), &watched, MapFlags::ANY).map_err(failed("tell what to watch to"))
    }

    /// Its maps.
    pub fn maps(&self) -> Result<Maps, Error> {
        Maps::of(&self.object)
    }
}
