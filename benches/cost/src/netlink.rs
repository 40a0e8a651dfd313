// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RTM_GETLINK: all links of the thread's namespace with their statistics, as `ip -s link` asks for them; and RTM_NEWLINK, as
//! `ip link add type veth` does.

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

/// An attribute, and room behind it up to a multiple of four.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).expect("attributes here are short");
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn name(name: &str) -> Vec<u8> {
    attribute(libc::IFLA_IFNAME, &[name.as_bytes(), &[0]].concat())
}

/// Makes a pair of devices: one in the thread's namespace, its peer in another one.
pub fn veth(here: &str, there: &str, namespace: &OwnedFd) -> Result<()> {
    /// Of linux/veth.h.
    const VETH_INFO_PEER: u16 = 1;
    let fd = u32::try_from(namespace.as_raw_fd())?;
    let place = attribute(libc::IFLA_NET_NS_FD, &fd.to_ne_bytes());
    let peer = attribute(VETH_INFO_PEER, &[vec![0; INFO], name(there), place].concat());
    let kind = attribute(libc::IFLA_INFO_KIND, b"veth");
    let info = attribute(libc::IFLA_LINKINFO, &[kind, attribute(libc::IFLA_INFO_DATA, &peer)].concat());
    let body = [vec![0; INFO], name(here), info].concat();
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let mut request = u32::try_from(HEADER + body.len())?.to_ne_bytes().to_vec();
    request.extend(libc::RTM_NEWLINK.to_ne_bytes());
    request.extend(u16::try_from(flags)?.to_ne_bytes());
    request.resize(HEADER, 0);
    request.extend(body);
    let links = Links::new()?;
    // SAFETY: the bytes are there.
    let sent = unsafe { libc::send(links.socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    let mut answer = [0_u8; 1024];
    // SAFETY: the room is there.
    let got = unsafe { libc::recv(links.socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    if sent < 0 || got < 0 {
        return Err(io::Error::last_os_error().into());
    }
    // A struct nlmsgerr: what the kernel says comes first.
    match i32::from_ne_bytes(answer[HEADER..HEADER + 4].try_into()?) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error.saturating_neg()).into()),
    }
}
