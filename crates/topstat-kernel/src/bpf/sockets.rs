// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Goes over sockets. A kernel may refuse iterators over the sockets in a storage (`iter/bpf_sk_storage_map`): they can write to
//! the storage, and hardened kernels allow no such iterator. From Linux 7.0 on such an iterator can crash the kernel: it reads
//! `selem->local_storage` twice, and since 5d800f87d0a5 ("bpf: Support lockless unlink when freeing map or local storage") the end
//! of a socket may set that pointer to NULL in between. On all of these kernels the sockets are found in two ways, one after the other: by the
//! files of all processes (`iter/task_file`), by programs with the ending [`FILES`]; and among the connections of the reader's
//! network namespace (`iter/tcp`), by programs with the ending [`HASHED`]. The latter also finds connections that no process has
//! open: they are sending their last data, or are parts of a connection of MPTCP. In other network namespaces these are not found,
//! and their amounts count when they end. A third program, with the ending [`DATAGRAMS`], goes over UDP sockets (`iter/udp`), where
//! the objects are UDP sockets, too.

use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::sync::LazyLock;

use libbpf_rs::{Link, MapHandle, Object, OpenObject};
use libbpf_sys::{
    BPF_ALU64, BPF_EXIT, BPF_JMP, BPF_K, BPF_MOV, BPF_PROG_TYPE_TRACING, BPF_TRACE_FENTRY, BPF_TRACE_ITER, bpf_insn,
    bpf_prog_load, bpf_prog_load_opts, libbpf_find_vmlinux_btf_id,
};
use rustix::io::Errno;

use super::{kernel, program};
use crate::Error;

/// The ending of the name of a program that goes over files.
const FILES: &str = "_files";
/// The ending of the name of a program that goes over connections.
const HASHED: &str = "_hashed";
/// The ending of the name of a program that goes over UDP sockets.
const DATAGRAMS: &str = "_datagrams";
/// The section of programs that go over a storage.
const STORAGE: &str = "iter/bpf_sk_storage_map";

/// The function that makes these iterators unsafe: see the module.
const UNSAFE_WITH: &std::ffi::CStr = c"bpf_selem_unlink_nofail";

/// Why iterators do not go over the sockets in a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Avoided {
    /// The kernel refuses them.
    Refused,
    /// They can crash the kernel.
    Unsafe,
}

/// Why iterators do not go over the sockets in a storage; `None`: they do. A process that may load no programs can't find out
/// whether they are refused, and its programs fail whatever the answer is.
pub fn avoided() -> Option<Avoided> {
    static AVOIDED: LazyLock<Option<Avoided>> = LazyLock::new(|| {
        // SAFETY: the name ends with a zero.
        if unsafe { libbpf_find_vmlinux_btf_id(UNSAFE_WITH.as_ptr(), BPF_TRACE_FENTRY) } > 0 {
            return Some(Avoided::Unsafe);
        }
        matches!(try_one(), Err(Errno::PERM | Errno::ACCESS)).then_some(Avoided::Refused)
    });
    AVOIDED.filter(|avoided| *avoided == Avoided::Unsafe || tasks_are_iterated())
}

/// Whether iterators go over the sockets in a storage.
pub fn are_iterated() -> bool {
    avoided().is_none()
}

/// Whether this process may load iterators at all.
fn tasks_are_iterated() -> bool {
    static ARE: LazyLock<bool> = LazyLock::new(|| try_to_load(c"task").is_ok());
    *ARE
}

fn try_one() -> Result<(), Errno> {
    try_to_load(c"bpf_sk_storage_map")
}

/// Tries to load an iterator over these objects that does nothing. It is not run.
fn try_to_load(objects: &std::ffi::CStr) -> Result<(), Errno> {
    let end = bpf_insn { code: (BPF_JMP | BPF_EXIT) as u8, ..bpf_insn::default() };
    let program = [bpf_insn { code: (BPF_ALU64 | BPF_MOV | BPF_K) as u8, ..bpf_insn::default() }, end];
    // SAFETY: the name ends with a zero.
    let id = unsafe { libbpf_find_vmlinux_btf_id(objects.as_ptr(), BPF_TRACE_ITER) };
    let mut options = bpf_prog_load_opts {
        sz: size_of::<bpf_prog_load_opts>() as libbpf_sys::size_t,
        expected_attach_type: BPF_TRACE_ITER,
        attach_btf_id: u32::try_from(id).map_err(|_| Errno::NOENT)?,
        ..Default::default()
    };
    // SAFETY: the name and the licence end with a zero, there are as many instructions as the call says, and the options outlive it.
    let fd = unsafe {
        bpf_prog_load(
            BPF_PROG_TYPE_TRACING,
            c"topstat_walks".as_ptr(),
            c"GPL".as_ptr(),
            program.as_ptr(),
            program.len() as libbpf_sys::size_t,
            &raw mut options,
        )
    };
    if fd < 0 {
        return Err(Errno::from_raw_os_error(fd.saturating_neg()));
    }
    // SAFETY: it was made just now, and has no other owner.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

/// Leaves out the programs of an object that go over sockets in the way that is not this kernel's.
pub fn leave_out(object: &mut OpenObject) {
    let is_over_storage = |section: &str| section == STORAGE;
    if !object.progs().any(|program| is_over_storage(&program.section().to_string_lossy())) {
        return;
    }
    let are_iterated = are_iterated();
    for mut program in object.progs_mut() {
        let is_other =
            [FILES, HASHED, DATAGRAMS].iter().any(|ending| program.name().to_string_lossy().ends_with(ending));
        if is_other && are_iterated || is_over_storage(&program.section().to_string_lossy()) && !are_iterated {
            program.set_autoload(false);
        }
    }
}

/// Attaches a program that goes over the sockets in a storage, or those that do so in other ways. They are to be read out one after
/// the other.
///
/// # Errors
/// The kernel does not attach a program.
pub fn iterate(object: &Object, storage: &MapHandle, name: &str) -> Result<Vec<Link>, Error> {
    let attached: libbpf_rs::Result<Vec<Link>> = match are_iterated() {
        true => program(object, name)?.attach_iter(storage.as_fd()).map(|link| vec![link]),
        false => {
            let datagrams = format!("{name}{DATAGRAMS}");
            let has_datagrams = object.progs().any(|program| program.name().to_string_lossy() == datagrams);
            let others = [FILES, HASHED].map(|ending| format!("{name}{ending}"));
            others
                .into_iter()
                .chain(has_datagrams.then_some(datagrams))
                .map(|name| Ok(program(object, &name)?.attach()))
                .collect::<Result<Vec<_>, Error>>()?
                .into_iter()
                .collect()
        }
    };
    attached.map_err(|e| kernel(format!("attach {name}"), &e))
}
