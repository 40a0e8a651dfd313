// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel lacks, found out by trying, and what is done instead. `fallbacks.bpf.h` has the programs' part of
//! it, and the kernel commits.

use std::mem::size_of;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::OnceLock;

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, Object};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::abi::{inet_found, inet_object};
use super::hooks;
use crate::Error;
use crate::bpf::{self, Plain};
use crate::fallbacks::Feature;
use crate::hooks::Hook;

const FEATURES: &[Feature] = &[
    Feature {
        program: "probe_atomics",
        name: "eBPF atomics that return a value",
        without: "a push that begins a slide takes a lock",
    },
    Feature {
        program: "probe_traced",
        name: "socket storage in tracepoints",
        without: "a table learns that a connection has ended when it looks at it again; segments sent again are looked \
                  for when the connection sends",
    },
    Feature {
        program: "probe_files",
        name: "socket storage in iterators over files",
        without: "sockets that were there before are found by their descriptors (with CAP_SYS_PTRACE); of others it is \
                  known whose they are when they send",
    },
];

const PROBE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inet/probe.bpf.o"));

/// The programs, compiled for what the kernel can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// With all that is needed of later kernels.
    Full,
    /// With nothing that came after 5.10.
    Plain,
}

impl Flavour {
    /// The one for this kernel.
    pub fn of_kernel() -> Self {
        if lacking().is_empty() { Self::Full } else { Self::Plain }
    }

    /// The programs that push.
    pub fn observer(self) -> &'static [u8] {
        match self {
            Self::Full => include_bytes!(concat!(env!("OUT_DIR"), "/inet/inet.bpf.o")),
            Self::Plain => include_bytes!(concat!(env!("OUT_DIR"), "/inet/inet.plain.bpf.o")),
        }
    }

    /// The programs that read.
    pub const fn snapshot(self) -> &'static [u8] {
        match self {
            Self::Full => include_bytes!(concat!(env!("OUT_DIR"), "/inet/snapshot.bpf.o")),
            Self::Plain => include_bytes!(concat!(env!("OUT_DIR"), "/inet/snapshot.plain.bpf.o")),
        }
    }

    /// The programs that compare costs.
    #[cfg(feature = "bench")]
    pub fn bench(self) -> &'static [u8] {
        match self {
            Self::Full => include_bytes!(concat!(env!("OUT_DIR"), "/inet/bench.bpf.o")),
            Self::Plain => include_bytes!(concat!(env!("OUT_DIR"), "/inet/bench.plain.bpf.o")),
        }
    }

    /// Where they are attached.
    pub fn hooks(self) -> &'static [Hook] {
        match self {
            Self::Full => hooks::FULL,
            Self::Plain => hooks::PLAIN,
        }
    }

    /// How the sockets that are there are found, and whose they are.
    pub fn adopts(self) -> fn(&Object) -> Result<(), Error> {
        match self {
            Self::Full => |object| bpf::iterate(object, "inet_adopt", LOOK).map(drop),
            Self::Plain => adopt_by_descriptor,
        }
    }

    /// When: an object that a packet has made can't be given an owner by descriptor.
    pub fn adopts_before(self) -> Option<&'static str> {
        (self == Self::Plain).then_some(hooks::INGRESS.program)
    }
}

/// What this kernel lacks, or does not let this user have; asked once.
pub fn lacking() -> &'static [&'static Feature] {
    static LACKING: OnceLock<Vec<&'static Feature>> = OnceLock::new();
    LACKING.get_or_init(|| crate::fallbacks::lacking(FEATURES, PROBE))
}

/// What the iterators are for.
const LOOK: &str = "look for existing sockets";

// SAFETY: integers and arrays of them, with explicit padding.
unsafe impl Plain for inet_found {}
// SAFETY: as above.
unsafe impl Plain for inet_object {}

/// An iterator has told which descriptors are sockets. A copy of each (`pidfd_getfd`, Linux 5.6) leads to the socket's
/// storage, where its object is put unless it has one. What can't be had, for the process has ended or must not be
/// traced, is as if it had not been found: its owner is known when it sends.
fn adopt_by_descriptor(object: &Object) -> Result<(), Error> {
    let objects = bpf::map(object, "objects")?;
    let written = bpf::iterate(object, "inet_find", LOOK)?;
    let mut process = None;
    for bytes in written.chunks_exact(size_of::<inet_found>()) {
        // SAFETY: as long as it is, and any bytes are one.
        let found: inet_found = unsafe { bytes.as_ptr().cast::<inet_found>().read_unaligned() };
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

/// Why other processes' descriptors can't be copied, where that is how sockets are found; `None` where it can be done,
/// or need not be.
pub fn out_of_reach() -> Option<String> {
    if Flavour::of_kernel() == Flavour::Full {
        return None;
    }
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
    let object = inet_object { owner: found.owner, sure: 1, resent: resent_before(&socket), ..Default::default() };
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
