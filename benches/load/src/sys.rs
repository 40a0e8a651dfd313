// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls without a safe wrapper elsewhere, and small calls that several modules use.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};

use crate::error::{Error, Result};
use crate::tcp_info::{TCP_INFO_MAX, TcpInfo};

/// Descriptors that are kept free for the rest of the process.
const SPARE_FDS: u64 = 64;

/// Lets `connect` choose the port of a socket that is bound to an address, so that the port must be free for this destination
/// only.
pub(crate) fn bind_address_no_port(socket: impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the value points to an int that lives through the call, and its true size is given.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads the kernel's counts of a TCP socket.
pub(crate) fn tcp_info(socket: impl AsFd) -> Result<TcpInfo> {
    let mut bytes = [0u8; TCP_INFO_MAX];
    let mut length = bytes.len() as libc::socklen_t;
    // SAFETY: the buffer has the size given in `length`; the kernel writes at most that and stores how much it wrote.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if done != 0 {
        return Err(Error::system("read TCP_INFO", io::Error::last_os_error()));
    }
    TcpInfo::parse(&bytes[..length as usize])
}

/// User and system time of the whole process so far.
pub(crate) fn process_times() -> (Duration, Duration) {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure is writable, and has the type that the call expects.
    let done = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    debug_assert_eq!(done, 0, "getrusage(RUSAGE_SELF) has no way to fail");
    // SAFETY: all zeroes is a valid rusage, so it is initialised whatever the call did.
    let usage = unsafe { usage.assume_init() };
    let duration = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    (duration(usage.ru_utime), duration(usage.ru_stime))
}

/// Pins the calling thread to one CPU.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(Error::Config(format!("there is no CPU {cpu}")));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|error| Error::system(format!("pin a thread to CPU {cpu}"), error))
}

/// Opens a network namespace.
pub(crate) fn open_netns(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| Error::system(format!("open network namespace {}", path.display()), error))
}

/// Moves the calling thread into a network namespace.
pub(crate) fn enter_netns(namespace: &File) -> Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|error| Error::system("enter the network namespace (needs CAP_SYS_ADMIN)", error))
}

/// Makes room for `more` descriptors of `connections`, and raises the limit of the process if necessary.
pub(crate) fn raise_fd_limit(connections: usize, more: u64) -> Result<()> {
    let in_use = std::fs::read_dir("/proc/self/fd").map_or(SPARE_FDS, |entries| entries.count() as u64);
    let needed = in_use + more + SPARE_FDS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let hard = limit.maximum.map(|maximum| maximum.max(needed));
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: hard }).map_err(|_| Error::FdLimit {
        connections,
        needed,
        limit: limit.maximum.unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_descriptors_are_refused_clearly() {
        // Above the maximum of fs.nr_open, so even root is refused.
        let error = raise_fd_limit(7, 1 << 40).unwrap_err().to_string();
        assert!(error.starts_with("cannot open 7 connections: they need 10995116"), "{error}");
    }

    #[test]
    fn cpu_time_passes() {
        let before = process_times();
        let mut x = 0u64;
        while process_times() == before {
            x = std::hint::black_box(x + 1);
        }
        assert!(process_times() > before);
    }

    #[test]
    fn there_is_no_cpu_100000() {
        assert_eq!(pin(100_000).unwrap_err().to_string(), "there is no CPU 100000");
    }
}
