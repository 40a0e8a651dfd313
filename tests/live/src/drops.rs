// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network device that drops packets, by an XDP program of eight instructions.

use std::ffi::{CString, c_void};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use libbpf_sys::{BPF_FUNC_get_prandom_u32, BPF_PROG_TYPE_XDP, bpf_xdp_attach};

use crate::instructions::{self, insn};

const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;
const XDP_FLAGS_SKB_MODE: u32 = 2;

/// Loads a program that drops one of `one_in` packets, at random.
fn program(one_in: i32) -> io::Result<OwnedFd> {
    let code = [
        insn(0x85, 0, 0, 0, BPF_FUNC_get_prandom_u32 as i32), // r0 = bpf_get_prandom_u32()
        insn(0x94, 0, 0, 0, one_in),                          // w0 %= one_in
        insn(0x15, 0, 0, 2, 0),                               // if r0 == 0 goto drop
        insn(0xb7, 0, 0, 0, XDP_PASS),
        insn(0x95, 0, 0, 0, 0),
        insn(0xb7, 0, 0, 0, XDP_DROP),
        insn(0x95, 0, 0, 0, 0),
    ];
    instructions::load(BPF_PROG_TYPE_XDP, c"topstat_drops", &code)
}

/// Makes a device of the calling thread's network namespace drop one of `one_in` arriving packets, as long as the device
/// exists.
pub fn drop_one_in(device: &str, one_in: i32) -> io::Result<()> {
    let program = program(one_in)?;
    let name = CString::new(device)?;
    // SAFETY: the string ends in 0.
    let index = unsafe { libc::if_nametoindex(name.as_ptr().cast()) };
    if index == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the program and the device exist; there are no options.
    let done = unsafe {
        bpf_xdp_attach(index as i32, program.as_raw_fd(), XDP_FLAGS_SKB_MODE, std::ptr::null::<c_void>().cast())
    };
    if done < 0 { Err(io::Error::from_raw_os_error(-done)) } else { Ok(()) }
}
