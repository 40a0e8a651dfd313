// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first messages between the kernel and a tree. Among other things they set how long the kernel waits for an answer.
//!
//! Since Linux 6.15 a file system may set this time when it is mounted (`FUSE_REQUEST_TIMEOUT`, commit 0f6439f61a6e). If a
//! request is not answered within that time, the kernel ends the connection. The waiting process then gets an error, instead of
//! waiting as long as the daemon is stopped. fuser 0.18 knows the flag but can't set the time, and writes 0 in its place.
//! Therefore fuser's answer goes through this module, which puts the time in. Should fuser learn to set the time,
//! [`Session::from_fd`] replaces this module.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use fuser::{Config, Session, SessionACL};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

use super::tree::fuse::TreeFs;

/// How long the kernel waits for an answer, in seconds, until it takes the daemon for dead. The kernel checks every 15 s. The
/// time is longer than any read takes (see `workers.rs`), and as long as systemd waits by the unit's watchdog.
pub const REQUEST_TIMEOUT_S: u16 = 30;

/// The kernel refuses to fill a buffer that is smaller than this (`FUSE_MIN_READ_BUFFER`).
const BUFFER: usize = 8192;

/// Offsets of linux/fuse.h. A request is `fuse_in_header` and then `fuse_init_in`, which begins with the major version. An answer
/// is `fuse_out_header` and then `fuse_init_out`.
mod abi {
    use std::ops::Range;

    pub const IN_MAJOR: Range<usize> = 40..44;
    pub const OUT: usize = 16;
    pub const OUT_FLAGS2: Range<usize> = OUT + 32..OUT + 36;
    pub const OUT_REQUEST_TIMEOUT: Range<usize> = OUT + 40..OUT + 42;
    /// The only major version since 2006. With any other, fuser would ask for another round.
    pub const MAJOR: u32 = 7;
    /// Bit 42 of both words of flags together.
    pub const FLAGS2_REQUEST_TIMEOUT: u32 = 1 << (42 - 32);
}

/// Answers the first request of the kernel, which has mounted a tree from this device.
///
/// # Errors
///
/// When the kernel's FUSE has another major version, or the device can't be read or written.
pub fn session(tree: TreeFs, device: OwnedFd, config: Config) -> io::Result<Session<TreeFs>> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let mut buffer = [0; BUFFER];
    let asked = rustix::io::retry_on_intr(|| rustix::io::read(&device, &mut buffer))?;
    let major = number(&buffer[..asked], abi::IN_MAJOR);
    if major != Some(abi::MAJOR) {
        let major = major.map_or("nothing".to_owned(), |major| format!("version {major}"));
        return Err(io::Error::new(io::ErrorKind::Unsupported, format!("the kernel speaks {major} of FUSE, not 7")));
    }
    send(&ours, &buffer[..asked], SendFlags::empty())?;
    let session = Session::from_fd(tree, theirs, SessionACL::All, config)?;
    let (_, answered) = recv(&ours, &mut buffer[..], RecvFlags::DONTWAIT)?;
    let answer = &mut buffer[..answered];
    set_timeout(answer);
    rustix::io::write(&device, answer)?;
    // From here on the session talks to the kernel directly: its descriptor becomes a descriptor of the device.
    let theirs = session.as_fd().as_raw_fd();
    // SAFETY: the session keeps the number, and is not running yet. The number's former file is closed by this call, and `device`
    // by its drop.
    if unsafe { libc::dup3(device.as_raw_fd(), theirs, libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(session)
}

/// Puts the time into fuser's answer, if the kernel can take it.
fn set_timeout(answer: &mut [u8]) {
    let takes = number(answer, abi::OUT_FLAGS2).is_some_and(|flags| flags & abi::FLAGS2_REQUEST_TIMEOUT != 0);
    if let Some(timeout) = answer.get_mut(abi::OUT_REQUEST_TIMEOUT).filter(|_| takes) {
        timeout.copy_from_slice(&REQUEST_TIMEOUT_S.to_ne_bytes());
    }
}

fn number(bytes: &[u8], at: std::ops::Range<usize>) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_said_where_the_kernel_takes_it_and_nothing_else_changes() {
        let mut answer = [0x11_u8; 80];
        answer[48..52].copy_from_slice(&0_u32.to_ne_bytes());
        let before = answer;
        set_timeout(&mut answer);
        assert_eq!(answer, before, "this kernel does not");
        answer[48..52].copy_from_slice(&(1_u32 << 10).to_ne_bytes());
        let before = answer;
        set_timeout(&mut answer);
        assert_eq!(answer[56..58], REQUEST_TIMEOUT_S.to_ne_bytes());
        assert_eq!((&answer[..56], &answer[58..]), (&before[..56], &before[58..]));
        // Answers of old kernels are shorter.
        set_timeout(&mut answer[..40]);
        set_timeout(&mut []);
    }
}
