// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the kernel has atomics that return the previous value. They came with Linux 5.12, 5ffa25502b5a ("bpf: Add instructions
//! for atomic_[cmp]xchg").

use libbpf_sys::{
    BPF_ALU64, BPF_ATOMIC, BPF_CMPXCHG, BPF_DW, BPF_EXIT, BPF_JMP, BPF_K, BPF_MEM, BPF_MOV,
    BPF_PROG_TYPE_SOCKET_FILTER, BPF_ST, BPF_STX, bpf_insn, bpf_prog_load,
};
use rustix::io::Errno;
use std::os::fd::{FromRawFd as _, OwnedFd};

const R0: u8 = 0;
const R1: u8 = 1;
const FRAME: u8 = 10;

fn instruction(code: u32, to: u8, from: u8, off: i16, imm: u32) -> bpf_insn {
    let mut made = bpf_insn { code: code as u8, off, imm: imm as i32, ..bpf_insn::default() };
    made.set_dst_reg(to);
    made.set_src_reg(from);
    made
}

/// Whether the kernel has them; `None`: this process can't find out, as it may not load programs or has no memory.
pub fn known() -> Option<bool> {
    match try_them() {
        Ok(()) => Some(true),
        // The kernel has read the program, and refuses it.
        Err(Errno::INVAL) => Some(false),
        Err(_) => None,
    }
}

/// Tries to load a program that swaps a word of its stack. It is not run.
fn try_them() -> Result<(), Errno> {
    let program = [
        instruction(BPF_ALU64 | BPF_MOV | BPF_K, R0, 0, 0, 0),
        instruction(BPF_ALU64 | BPF_MOV | BPF_K, R1, 0, 0, 1),
        instruction(BPF_ST | BPF_MEM | BPF_DW, FRAME, 0, -8, 0),
        instruction(BPF_STX | BPF_ATOMIC | BPF_DW, FRAME, R1, -8, BPF_CMPXCHG),
        instruction(BPF_ALU64 | BPF_MOV | BPF_K, R0, 0, 0, 0),
        instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    ];
    // SAFETY: the name and the licence end with a zero, and there are as many instructions as the call says.
    let fd = unsafe {
        bpf_prog_load(
            BPF_PROG_TYPE_SOCKET_FILTER,
            c"topstat_atomics".as_ptr(),
            c"GPL".as_ptr(),
            program.as_ptr(),
            program.len() as libbpf_sys::size_t,
            std::ptr::null_mut(),
        )
    };
    if fd < 0 {
        return Err(Errno::from_raw_os_error(fd.saturating_neg()));
    }
    // SAFETY: it was made just now, and has no other owner.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

#[cfg(test)]
mod tests {
    /// Every kernel that runs these tests has them; a process that may not load programs can't know.
    #[test]
    fn this_kernel_has_them() {
        assert_ne!(super::known(), Some(false));
        let may = rustix::process::geteuid().is_root() && libbpf_rs::MapType::Array.is_supported().unwrap_or(false);
        assert!(!may || super::known() == Some(true));
    }
}
