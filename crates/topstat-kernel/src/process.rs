// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Code of all families whose objects are processes or threads, or have one. The eBPF side is in `observe/process.bpf.h`.

use libbpf_rs::Object;

use crate::{Error, bpf};

#[allow(non_camel_case_types, missing_docs, unreachable_pub, dead_code, clippy::undocumented_unsafe_blocks)]
pub mod abi {
    //! Types that the programs and this crate share, generated from `observe/process.h`.
    include!(concat!(env!("OUT_DIR"), "/process.rs"));
}

/// A text of the kernel, up to the first zero; `None`: it is empty.
pub fn text(bytes: &[u8]) -> Option<String> {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

/// A text of C, as [`text`].
pub fn name(comm: &[core::ffi::c_char]) -> Option<String> {
    text(&comm.iter().map(|c| c.to_ne_bytes()[0]).collect::<Vec<_>>())
}

/// Runs the iterator that makes objects of the existing tasks.
///
/// # Errors
/// The kernel does not run it.
pub fn adopt(object: &Object, iterator: &str) -> Result<(), Error> {
    bpf::iterate(object, iterator, "look for existing tasks").map(drop)
}
