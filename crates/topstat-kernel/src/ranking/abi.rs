// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engine's structures as they are in shared memory.

use crate::bpf::Plain;

pub use topstat_engine::abi::*;

/// What all rows of sections begin with.
pub type Head = ts_row;

/// A row of a section.
///
/// # Safety
/// The type must begin with a [`Head`].
pub unsafe trait Row: Plain {
    /// What all rows have.
    fn head(&self) -> &Head {
        // SAFETY: the implementation begins with one.
        unsafe { &*std::ptr::from_ref(self).cast() }
    }
}

// SAFETY: integers and arrays of them, with explicit padding.
unsafe impl Plain for ts_shape {}
// SAFETY: as above.
unsafe impl Plain for ts_census {}
// SAFETY: as above.
unsafe impl Plain for ts_refill {}
// SAFETY: as above.
unsafe impl Plain for ts_section {}
// SAFETY: as above.
unsafe impl Plain for ts_config {}
// SAFETY: as above.
unsafe impl Plain for ts_window {}
// SAFETY: as above.
unsafe impl Plain for ts_window_head {}
