// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RTM_GETLINK: all links of the thread's namespace with their statistics, as `ip -s link` asks for them.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use anyhow::{Result, bail};

/// Bytes of a `struct nlmsghdr`, and of a `struct ifinfomsg`.
const HEADER: usize = 16;
const INFO: usize = 16;
/// As iproute2 has it.
const ROOM: usize = 32 * 1024;

/// Asks for links.
pub struct Links {
    socket: OwnedFd,
    room: Vec<u8>,
}

impl Links {
    pub fn new() -> Result<Self> {
        // SAFETY: it takes numbers.
        let socket =
            unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE) };
        if socket < 0 {
            return Err(io::Error::last_os_error().into());
        }
        // SAFETY: just opened, and nobody else's.
        Ok(Self { socket: unsafe { OwnedFd::from_raw_fd(socket) }, room: vec![0; ROOM] })
    }

    /// Asks for all links, goes through the attributes of each, and says how many there are.
    pub fn dump(&mut self) -> Result<usize> {
        const REQUEST: usize = HEADER + INFO;
        let mut request = [0_u8; REQUEST];
        request[0..4].copy_from_slice(&u32::try_from(REQUEST)?.to_ne_bytes());
        request[4..6].copy_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
        request[6..8].copy_from_slice(&u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_DUMP)?.to_ne_bytes());
        // SAFETY: the bytes are there.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error().into());
        }
        let mut links = 0;
        loop {
            // SAFETY: the room is there.
            let got = unsafe { libc::recv(self.socket.as_raw_fd(), self.room.as_mut_ptr().cast(), self.room.len(), 0) };
            let Ok(got) = usize::try_from(got) else { return Err(io::Error::last_os_error().into()) };
            let mut left = &self.room[..got];
            while left.len() >= HEADER {
                let length = u32::from_ne_bytes(left[0..4].try_into()?) as usize;
                let kind = u16::from_ne_bytes(left[4..6].try_into()?);
                match i32::from(kind) {
                    libc::NLMSG_DONE => return Ok(links),
                    libc::NLMSG_ERROR => bail!("the kernel refuses RTM_GETLINK"),
                    _ if length < HEADER || length > left.len() => bail!("a message is cut off"),
                    _ => {}
                }
                links += usize::from(statistics(left.get(HEADER + INFO..length).unwrap_or_default()) > 0);
                left = left.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }
}

/// Of the attributes of a link, how many bytes of statistics there are.
fn statistics(mut attributes: &[u8]) -> usize {
    let mut bytes = 0;
    while let Some(&[a, b, c, d]) = attributes.first_chunk() {
        let (length, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        if length < 4 {
            break;
        }
        if matches!(kind, libc::IFLA_STATS64 | libc::IFLA_AF_SPEC) {
            bytes += length;
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    bytes
}
