// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hook is compared with.

use libbpf_rs::{Link, Object};

use crate::Error;
use crate::bpf::{self, program};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tasks/bench.bpf.o"));

/// A program that does nothing, attached to every switch. Dropping it detaches it.
pub struct Empty {
    _link: Link,
    _object: Object,
}

impl Empty {
    /// Loads and attaches it.
    ///
    /// # Errors
    /// As [`crate::load`].
    pub fn load() -> Result<Self, Error> {
        let object = bpf::load("bench", bpf::open("bench", OBJECT)?)?;
        let link = program(&object, "bench_empty")?
            .attach_trace()
            .map_err(|e| Error::Kernel { what: "attach bench_empty".to_owned(), why: e.to_string() })?;
        Ok(Self { _link: link, _object: object })
    }
}
