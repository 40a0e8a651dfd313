// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What programs cost, as the kernel itself measures it, and the memory of their maps.
//!
//! The kernel counts the runs of every eBPF program and their time while somebody asks for it (`BPF_ENABLE_STATS`).
//! That reads the clock twice on every run of every program on the host, so it is asked for briefly. What the reading
//! itself adds to a run is measured once, on a program that does nothing, and taken off.

use std::collections::BTreeSet;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use libbpf_sys::{bpf_insn, bpf_map_info, bpf_prog_info, bpf_test_run_opts};

use crate::{Error, Program};

/// What a program has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// Time it ran, with what the kernel's clock reading adds.
    pub time_ns: u64,
    /// How often it ran.
    pub count: u64,
}

/// Measures some programs. It holds descriptors of them and of their maps.
pub struct Meter {
    programs: Vec<(Program, OwnedFd)>,
    maps: Vec<OwnedFd>,
    empty_run_ns: f64,
}

/// The kernel's statistics are on while this is there.
pub struct Enabled(#[allow(dead_code)] OwnedFd);

fn failed(what: &str) -> impl Fn(io::Error) -> Error {
    let what = what.to_owned();
    move |error| Error::Kernel { what: what.clone(), why: error.to_string() }
}

/// What libbpf returned for a descriptor.
pub(crate) fn descriptor(result: i32) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: the call has just opened it, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// Has the kernel count the runs of all programs, until the value is dropped. Takes CAP_SYS_ADMIN.
///
/// # Errors
/// When the kernel does not count, or not for this user.
pub fn enable() -> Result<Enabled, Error> {
    // SAFETY: a system call with a number.
    let result = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    descriptor(result).map(Enabled).map_err(failed("switch on the kernel's statistics of eBPF programs"))
}

impl Meter {
    /// For these programs. Takes CAP_SYS_ADMIN.
    ///
    /// # Errors
    /// When one of them is not there any more, or this user may not open it.
    pub fn open(programs: Vec<Program>) -> Result<Self, Error> {
        let open = |program: Program| {
            // SAFETY: a system call with a number.
            let fd = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(program.id) };
            let fd = descriptor(fd).map_err(failed(&format!("open the program {}", program.name)))?;
            Ok((program, fd))
        };
        let programs = programs.into_iter().map(open).collect::<Result<Vec<_>, Error>>()?;
        let mut ids = BTreeSet::new();
        for (program, fd) in &programs {
            ids.extend(map_ids(fd).map_err(failed(&format!("ask for the maps of {}", program.name)))?);
        }
        let open = |id| {
            // SAFETY: a system call with a number.
            descriptor(unsafe { libbpf_sys::bpf_map_get_fd_by_id(id) }).map_err(failed("open a map"))
        };
        let maps = ids.into_iter().map(open).collect::<Result<Vec<_>, Error>>()?;
        Ok(Self { programs, maps, empty_run_ns: empty_run_ns()? })
    }

    /// The programs.
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        self.programs.iter().map(|(program, _)| program)
    }

    /// What each program has cost so far, in their order; it grows while [`Enabled`] is there.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn read(&self) -> Result<Vec<Runs>, Error> {
        let read = |(program, fd): &(Program, OwnedFd)| {
            let info = program_info(fd, None).map_err(failed(&format!("ask what {} has cost", program.name)))?;
            Ok(Runs { time_ns: info.run_time_ns, count: info.run_cnt })
        };
        self.programs.iter().map(read).collect()
    }

    /// What the kernel's clock reading adds to a run.
    pub fn empty_run_ns(&self) -> f64 {
        self.empty_run_ns
    }

    /// The memory of the maps, as the kernel accounts it. What local storage adds to each object is not in it.
    ///
    /// # Errors
    /// When /proc does not tell.
    pub fn map_bytes(&self) -> Result<u64, Error> {
        let of = |fd: &OwnedFd| {
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
            let bytes = info.lines().find_map(|line| line.strip_prefix("memlock:")?.trim().parse::<u64>().ok());
            bytes.ok_or_else(|| io::Error::other("no memlock in it"))
        };
        let bytes = self.maps.iter().map(of).sum::<io::Result<u64>>();
        bytes.map_err(failed("read what a map takes (/proc/self/fdinfo)"))
    }

    /// What one object of the programs' local storages takes: the largest value of such a map, 0 if there is none.
    pub fn storage_bytes(&self) -> u64 {
        self.maps.iter().filter_map(|fd| storage_value_size(fd).ok().flatten()).max().unwrap_or(0)
    }
}

/// What the kernel says of a program, and the ids of its maps where there is room for them.
pub(crate) fn program_info(fd: &OwnedFd, ids: Option<&mut [u32]>) -> io::Result<bpf_prog_info> {
    let mut info = bpf_prog_info::default();
    if let Some(ids) = ids {
        info.nr_map_ids = u32::try_from(ids.len()).unwrap_or(0);
        info.map_ids = ids.as_mut_ptr() as u64;
    }
    let mut length = u32::try_from(size_of::<bpf_prog_info>()).unwrap_or(0);
    // SAFETY: `length` is that of the structure, and what it points at is as long as it says.
    let result = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd.as_raw_fd(), &raw mut info, &raw mut length) };
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(info) }
}

fn map_ids(fd: &OwnedFd) -> io::Result<Vec<u32>> {
    let mut ids = vec![0; program_info(fd, None)?.nr_map_ids as usize];
    program_info(fd, Some(&mut ids))?;
    Ok(ids)
}

/// The value size of a map that is somebody's local storage.
fn storage_value_size(fd: &OwnedFd) -> io::Result<Option<u64>> {
    let mut info = bpf_map_info::default();
    let mut length = u32::try_from(size_of::<bpf_map_info>()).unwrap_or(0);
    // SAFETY: `length` is that of the structure.
    let result = unsafe { libbpf_sys::bpf_map_get_info_by_fd(fd.as_raw_fd(), &raw mut info, &raw mut length) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    let storages = [
        libbpf_sys::BPF_MAP_TYPE_SK_STORAGE,
        libbpf_sys::BPF_MAP_TYPE_INODE_STORAGE,
        libbpf_sys::BPF_MAP_TYPE_TASK_STORAGE,
        libbpf_sys::BPF_MAP_TYPE_CGRP_STORAGE,
    ];
    Ok(storages.contains(&info.type_).then_some(u64::from(info.value_size)))
}

/// Measures the run of a program that does nothing.
fn empty_run_ns() -> Result<f64, Error> {
    /// Long enough that the first, cold runs don't show.
    const REPEAT: i32 = 100_000;
    const TRY: &str = "measure what measuring costs";
    // r0 = 0; exit
    let instructions = [bpf_insn { code: 0xb7, ..Default::default() }, bpf_insn { code: 0x95, ..Default::default() }];
    // SAFETY: the instructions are as many as is said, and the texts are terminated.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_SOCKET_FILTER,
            c"topstat_nothing".as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as libbpf_sys::size_t,
            std::ptr::null_mut(),
        )
    };
    let fd = descriptor(fd).map_err(failed(TRY))?;
    // An Ethernet header, the least that the kernel takes.
    let packet = [0_u8; 14];
    let mut options = bpf_test_run_opts {
        sz: size_of::<bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: packet.as_ptr().cast(),
        data_size_in: u32::try_from(packet.len()).unwrap_or(0),
        repeat: REPEAT,
        ..Default::default()
    };
    let _enabled = enable()?;
    // SAFETY: the options say their size, and how long the packet is.
    let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(fd.as_raw_fd(), &raw mut options) };
    if result < 0 {
        return Err(failed(TRY)(io::Error::from_raw_os_error(-result)));
    }
    let info = program_info(&fd, None).map_err(failed(TRY))?;
    #[allow(clippy::cast_precision_loss)] // far below
    Ok(if info.run_cnt == 0 { 0.0 } else { info.run_time_ns as f64 / info.run_cnt as f64 })
}
