// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RTM_GETLINK: all links of the thread's namespace with their statistics, as `ip -s link` requests them; RTM_NEWLINK, as `ip
//! link add type veth` sends it; and taskstats.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use anyhow::{Context as _, Result, bail};

/// Bytes of a `struct nlmsghdr`, and of a `struct ifinfomsg`.
const HEADER: usize = 16;
const INFO: usize = 16;
/// The size that iproute2 uses.
const ROOM: usize = 32 * 1024;

/// Requests links.
pub struct Links {
    socket: OwnedFd,
    room: Vec<u8>,
}

/// A netlink socket with this protocol.
fn socket(protocol: i32) -> Result<OwnedFd> {
    // SAFETY: the call takes numbers only.
    let socket = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol) };
    if socket < 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: the descriptor was just opened, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

/// A message with its type and its body.
fn message(kind: u16, flags: i32, body: &[u8]) -> Result<Vec<u8>> {
    let mut request = u32::try_from(HEADER + body.len())?.to_ne_bytes().to_vec();
    request.extend(kind.to_ne_bytes());
    request.extend(u16::try_from(flags)?.to_ne_bytes());
    request.resize(HEADER, 0);
    request.extend(body);
    Ok(request)
}

/// Sends a message; returns the number of bytes of the answer in `room`.
fn ask(socket: &OwnedFd, request: &[u8], room: &mut [u8]) -> Result<usize> {
    // SAFETY: the slice is valid for its length.
    let sent = unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    // SAFETY: the slice is valid for its length.
    let got = unsafe { libc::recv(socket.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), 0) };
    match usize::try_from(got) {
        Ok(got) if sent >= 0 => Ok(got),
        _ => Err(io::Error::last_os_error().into()),
    }
}

impl Links {
    pub fn new() -> Result<Self> {
        Ok(Self { socket: socket(libc::NETLINK_ROUTE)?, room: vec![0; ROOM] })
    }

    /// Requests all links, walks the attributes of each, and returns their number.
    pub fn dump(&mut self) -> Result<usize> {
        const REQUEST: usize = HEADER + INFO;
        let mut request = [0_u8; REQUEST];
        request[0..4].copy_from_slice(&u32::try_from(REQUEST)?.to_ne_bytes());
        request[4..6].copy_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
        request[6..8].copy_from_slice(&u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_DUMP)?.to_ne_bytes());
        // SAFETY: the array is valid for its length.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error().into());
        }
        let mut links = 0;
        loop {
            // SAFETY: the buffer is valid for its length.
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

/// The number of bytes of statistics in the attributes of a link.
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

/// An attribute, padded to a multiple of four.
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

/// Makes a pair of devices: one in the thread's namespace, the peer in another namespace.
pub fn veth(here: &str, there: &str, namespace: &OwnedFd) -> Result<()> {
    /// From linux/veth.h.
    const VETH_INFO_PEER: u16 = 1;
    let fd = u32::try_from(namespace.as_raw_fd())?;
    let place = attribute(libc::IFLA_NET_NS_FD, &fd.to_ne_bytes());
    let peer = attribute(VETH_INFO_PEER, &[vec![0; INFO], name(there), place].concat());
    let kind = attribute(libc::IFLA_INFO_KIND, b"veth");
    let info = attribute(libc::IFLA_LINKINFO, &[kind, attribute(libc::IFLA_INFO_DATA, &peer)].concat());
    let body = [vec![0; INFO], name(here), info].concat();
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let mut answer = [0_u8; 1024];
    ask(&socket(libc::NETLINK_ROUTE)?, &message(libc::RTM_NEWLINK, flags, &body)?, &mut answer)?;
    // A struct nlmsgerr, which begins with the error.
    match i32::from_ne_bytes(answer[HEADER..HEADER + 4].try_into()?) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error.saturating_neg()).into()),
    }
}

/// Requests the CPU time of single threads, by taskstats.
pub struct Taskstats {
    socket: OwnedFd,
    family: u16,
    room: Vec<u8>,
}

/// Bytes of a `struct genlmsghdr`.
const GENERIC: usize = 4;

impl Taskstats {
    pub fn new() -> Result<Self> {
        let socket = socket(libc::NETLINK_GENERIC)?;
        let mut room = vec![0; ROOM];
        let name = attribute(u16::try_from(libc::CTRL_ATTR_FAMILY_NAME)?, b"TASKSTATS\0");
        let command = u8::try_from(libc::CTRL_CMD_GETFAMILY)?;
        let kind = u16::try_from(libc::GENL_ID_CTRL)?;
        let got = ask(&socket, &message(kind, libc::NLM_F_REQUEST, &generic(command, &name))?, &mut room)?;
        let answer = answered(&room[..got])?.context("this kernel has no taskstats")?;
        let id = find(answer, u16::try_from(libc::CTRL_ATTR_FAMILY_ID)?).and_then(|id| id.first_chunk().copied());
        Ok(Self { socket, family: u16::from_ne_bytes(id.context("taskstats have no number")?), room })
    }

    /// The CPU time of the thread in nanoseconds; `None`: there is no such thread.
    pub fn run_ns(&mut self, tid: u32) -> Result<Option<u64>> {
        // From linux/taskstats.h.
        const TASKSTATS_CMD_GET: u8 = 1;
        const TASKSTATS_CMD_ATTR_PID: u16 = 1;
        const TASKSTATS_TYPE_AGGR_PID: u16 = 4;
        const TASKSTATS_TYPE_STATS: u16 = 3;
        const CPU_RUN_VIRTUAL_TOTAL: usize = 72;
        let body = generic(TASKSTATS_CMD_GET, &attribute(TASKSTATS_CMD_ATTR_PID, &tid.to_ne_bytes()));
        let got = ask(&self.socket, &message(self.family, libc::NLM_F_REQUEST, &body)?, &mut self.room)?;
        let Some(answer) = answered(&self.room[..got])? else { return Ok(None) };
        let stats = find(answer, TASKSTATS_TYPE_AGGR_PID).and_then(|inner| find(inner, TASKSTATS_TYPE_STATS));
        let number = stats.and_then(|stats| stats.get(CPU_RUN_VIRTUAL_TOTAL..)?.first_chunk().copied());
        Ok(Some(u64::from_ne_bytes(number.context("taskstats without a run time")?)))
    }
}

/// The body of a message of a generic netlink family.
fn generic(command: u8, attributes: &[u8]) -> Vec<u8> {
    [&[command, 1, 0, 0], attributes].concat()
}

/// The attributes of an answer; `None`: the object does not exist.
fn answered(message: &[u8]) -> Result<Option<&[u8]>> {
    let kind = message.get(4..6).context("a message is cut off")?;
    if i32::from(u16::from_ne_bytes([kind[0], kind[1]])) != libc::NLMSG_ERROR {
        return Ok(Some(message.get(HEADER + GENERIC..).context("a message is cut off")?));
    }
    let error = message.get(HEADER..).and_then(|error| error.first_chunk().copied()).context("a message is cut off")?;
    match i32::from_ne_bytes(error).saturating_neg() {
        libc::ESRCH | libc::ENOENT => Ok(None),
        error => Err(io::Error::from_raw_os_error(error).into()),
    }
}

/// The attribute of this kind.
fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let &[a, b, c, d] = attributes.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        if u16::from_ne_bytes([c, d]) == wanted {
            return attributes.get(4..length);
        }
        attributes = attributes.get(length.max(4).next_multiple_of(4)..)?;
    }
}
