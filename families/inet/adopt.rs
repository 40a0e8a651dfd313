// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whose the sockets are that are there already, where no iterator can store it with them.

use std::mem::size_of;
use std::os::fd::{AsFd as _, AsRawFd as _};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, Object};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::abi::{inet_found, inet_object, process_who};
use crate::Error;
use crate::bpf;

/// What the iterators are for.
pub const LOOK: &str = "look for existing sockets";

/// An iterator has told which descriptors are sockets. A copy of each (`pidfd_getfd`, Linux 5.6) leads to the socket's
/// storage, where its object is put unless it has one. What can't be had, for the process has ended or must not be
/// traced, is as if it had not been found: its owner is known when it sends.
pub fn adopt_by_descriptor(object: &Object) -> Result<(), Error> {
    let objects = bpf::map(object, "objects")?;
    let written = bpf::iterate(object, "inet_find", LOOK)?;
    let mut process = None;
    for bytes in written.chunks_exact(size_of::<inet_found>()) {
        let found: inet_found = bpf::from_bytes(bytes);
        let Some(pid) = i32::try_from(found.owner.pid).ok().and_then(Pid::from_raw) else { continue };
        if process.as_ref().is_none_or(|(last, _)| *last != pid) {
            process = pidfd_open(pid, PidfdFlags::empty()).ok().map(|fd| (pid, fd));
        }
        if let Some((_, process)) = &process {
            adopt(process.as_fd(), &found, &objects);
        }
    }
    Ok(())
}

/// What is left out where other processes' descriptors can't be copied, and why that is.
pub fn less() -> Option<String> {
    let why = out_of_reach()?;
    Some(format!("sockets that are there already are nobody's until they send, on this kernel: {why}"))
}

fn out_of_reach() -> Option<String> {
    // Of its own a process may copy any descriptor, whatever its privileges: then it is the call that is refused.
    let process = pidfd_open(rustix::process::getpid(), PidfdFlags::empty());
    let copied = process.and_then(|own| pidfd_getfd(&own, own.as_raw_fd(), PidfdGetfdFlags::empty()));
    if let Err(errno) = copied {
        return Some(format!(
            "the system call pidfd_getfd is refused ({errno}); a filter of system calls must allow it"
        ));
    }
    let status = procfs::process::Process::myself().and_then(|own| own.status()).ok()?;
    (status.capeff >> CAP_SYS_PTRACE & 1 == 0).then(|| "CAP_SYS_PTRACE is missing".to_owned())
}

/// Its number in `linux/capability.h`.
const CAP_SYS_PTRACE: u32 = 19;

fn adopt(process: std::os::fd::BorrowedFd<'_>, found: &inet_found, objects: &MapHandle) -> Option<()> {
    let socket = pidfd_getfd(process, found.fd.cast_signed(), PidfdGetfdFlags::empty()).ok()?;
    // Process ids may be another namespace's: is it the socket that was found?
    if rustix::fs::fstat(&socket).ok()?.st_ino != found.inode {
        return None;
    }
    let process_who { pid, cgroup, comm, .. } = found.owner;
    let resent = resent_before(&socket);
    let object = inet_object { pid, cgroup, comm, sure: 1, resent, ..Default::default() };
    let key = socket.as_raw_fd().to_ne_bytes();
    objects.update(&key, bpf::as_bytes(&object), MapFlags::NO_EXIST).ok()
}

/// What a TCP connection has sent again so far.
fn resent_before(socket: &impl std::os::fd::AsRawFd) -> u32 {
    // SAFETY: plain data, and its length is given.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes no more than that.
    let error = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            std::ptr::from_mut(&mut info).cast(),
            &raw mut length,
        )
    };
    if error == 0 { info.tcpi_total_retrans } else { 0 }
}
