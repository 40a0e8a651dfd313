// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pushes what objects have used and was not pushed yet, where a family's programs leave such a rest.

use std::sync::{Mutex, PoisonError};

use libbpf_rs::{Link, Object};

use crate::family::{Refill, Settle};
use crate::maps::Maps;
use crate::{Error, bpf};

/// The program that does so, loaded when it is needed first.
pub struct Settler {
    how: Option<Settle>,
    loaded: Mutex<Option<Loaded>>,
}

struct Loaded {
    // Dropped first.
    link: Link,
    _object: Object,
}

impl Settler {
    /// Of a build whose programs leave a rest, or (`None`) of one whose programs leave none.
    pub fn new(how: Option<Settle>) -> Self {
        Self { how, loaded: Mutex::default() }
    }

    /// Pushes it, and orders the objects whose it is. Returns whether all that was pushed is ordered now, whatever the
    /// delay.
    pub fn run(&self, maps: &Maps) -> Result<bool, Error> {
        let Some(how) = &self.how else { return Ok(false) };
        // One at a time: who waits here would go through the same objects.
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = match loaded.take() {
            Some(ready) => loaded.insert(ready),
            None => loaded.insert(load(how, maps)?),
        };
        let failed = |e: std::io::Error| Error::Kernel { what: format!("run {}", how.program), why: e.to_string() };
        bpf::read_out(&loaded.link).map_err(failed)?;
        Ok(true)
    }
}

fn load(how: &Settle, maps: &Maps) -> Result<Loaded, Error> {
    let mut object = bpf::open("settle", how.object)?;
    maps.share(&mut object)?;
    let object = bpf::load("settle", object)?;
    let over = maps.get(how.over).ok_or_else(|| Error::Kernel {
        what: format!("attach {}", how.program),
        why: format!("the map {} is missing", how.over),
    })?;
    let mut iterators = Refill::over_map(&object, over, how.program)?.iterators;
    Ok(Loaded { link: iterators.remove(0), _object: object })
}
