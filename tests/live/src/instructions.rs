// SPDX-License-Identifier: Apache-2.0 OR MIT
//! eBPF programs of a few instructions, with which tests act as other users of eBPF, and the objects that they are attached
//! to.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd};

use libbpf_sys::{
    BPF_ANY, BPF_F_INGRESS, BPF_FUNC_msg_redirect_map, BPF_MAP_TYPE_SOCKMAP, BPF_PROG_TYPE_CGROUP_SKB,
    BPF_PROG_TYPE_SK_MSG, bpf_insn, bpf_map_create, bpf_map_update_elem, bpf_prog_attach, bpf_prog_load,
};

/// An instruction: code, destination and source register, offset, immediate.
pub(crate) const fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> (u8, u8, i16, i32) {
    (code, src << 4 | dst, off, imm)
}

fn result(code: i32) -> io::Result<()> {
    if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(()) }
}

/// Loads a program.
pub(crate) fn load(kind: u32, name: &CStr, code: &[(u8, u8, i16, i32)]) -> io::Result<OwnedFd> {
    // The kernel's layout: code, registers, offset, immediate, in eight bytes.
    let bytes: Vec<u8> = code
        .iter()
        .flat_map(|(code, registers, off, imm)| {
            [&[*code, *registers][..], &off.to_ne_bytes(), &imm.to_ne_bytes()].concat()
        })
        .collect();
    let instructions: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|chunk| u64::from_ne_bytes(*chunk)).collect();
    // SAFETY: the instructions have the given size and number, and outlive the call; there are no options.
    let fd = unsafe {
        bpf_prog_load(
            kind,
            name.as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr().cast::<bpf_insn>(),
            instructions.len() as _,
            std::ptr::null_mut(),
        )
    };
    result(fd)?;
    // SAFETY: the descriptor was just opened, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches a program to a cgroup or a map, with flags of `BPF_PROG_ATTACH`, until it is detached or the cgroup or map is
/// gone.
pub fn attach(to: &impl AsRawFd, program: &impl AsRawFd, at: u32, flags: u32) -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    result(unsafe { bpf_prog_attach(program.as_raw_fd(), to.as_raw_fd(), at, flags) })
}

/// Detaches the program.
pub fn detach(from: &impl AsRawFd, program: &impl AsRawFd, at: u32) -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    result(unsafe { libbpf_sys::bpf_prog_detach2(program.as_raw_fd(), from.as_raw_fd(), at) })
}

/// A flag of [`attach`]: other programs may be attached, too.
pub const ALLOW_MULTI: u32 = libbpf_sys::BPF_F_ALLOW_MULTI;

/// A program for a cgroup that lets every packet pass.
pub fn let_pass() -> io::Result<OwnedFd> {
    load(BPF_PROG_TYPE_CGROUP_SKB, c"tests_let_pass", &[insn(0xb7, 0, 0, 0, 1), insn(0x95, 0, 0, 0, 0)])
}

/// A map with room for this many sockets.
pub fn sockmap(sockets: u32) -> io::Result<OwnedFd> {
    // SAFETY: the name ends in 0; there are no options.
    let fd =
        unsafe { bpf_map_create(BPF_MAP_TYPE_SOCKMAP, c"tests_sockets".as_ptr(), 4, 4, sockets, std::ptr::null()) };
    result(fd)?;
    // SAFETY: the descriptor was just opened, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Puts a socket into a map of sockets.
pub fn put(sockmap: &OwnedFd, at: u32, socket: &impl AsRawFd) -> io::Result<()> {
    let socket = socket.as_raw_fd() as u32;
    // SAFETY: the key and the value have four bytes, as in the map.
    result(unsafe {
        bpf_map_update_elem(sockmap.as_raw_fd(), (&raw const at).cast(), (&raw const socket).cast(), BPF_ANY.into())
    })
}

/// A program that redirects data sent on a socket, so that socket 0 of the map receives it.
pub fn hand_on(sockmap: &OwnedFd) -> io::Result<OwnedFd> {
    const PSEUDO_MAP_FD: u8 = 1;
    load(
        BPF_PROG_TYPE_SK_MSG,
        c"tests_hand_on",
        &[
            insn(0x18, 2, PSEUDO_MAP_FD, 0, sockmap.as_raw_fd()), // r2 = the map
            insn(0, 0, 0, 0, 0),
            insn(0xb7, 3, 0, 0, 0),                    // r3 = 0
            insn(0xb7, 4, 0, 0, BPF_F_INGRESS as i32), // r4 = to be received
            insn(0x85, 0, 0, 0, BPF_FUNC_msg_redirect_map as i32),
            insn(0x95, 0, 0, 0, 0),
        ],
    )
}
