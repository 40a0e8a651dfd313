// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of programs, as the kernel itself measures it, and the memory of their maps.
//!
//! The kernel counts the runs of every eBPF program, and their time, while a process asks for it (`BPF_ENABLE_STATS`). That reads
//! the clock twice on every run of every program on the host, so it is asked for briefly. The time that the reading itself adds
//! to a run is measured once, on a program that does nothing, and subtracted.

use std::collections::BTreeSet;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use libbpf_sys::{bpf_insn, bpf_map_info, bpf_prog_info, bpf_test_run_opts};

use crate::{Error, Program};

/// The cost of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// Time of its runs, including the time that the kernel's clock reading adds.
    pub time_ns: u64,
    /// Number of its runs.
    pub count: u64,
}

/// Measures programs. It holds descriptors of them and of their maps.
pub struct Meter {
    programs: Vec<(Program, OwnedFd)>,
    maps: Vec<OwnedFd>,
    empty_run_ns: f64,
}

/// Keeps the kernel's statistics on until it is dropped.
pub struct Enabled(#[allow(dead_code)] OwnedFd);

fn failed(what: &str) -> impl Fn(io::Error) -> Error {
    let what = what.to_owned();
    move |error| Error::Kernel { what: what.clone(), why: error.to_string() }
}

/// The descriptor in a result of libbpf.
pub(crate) fn descriptor(result: i32) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: the call has just opened it, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// Has the kernel count the runs of all programs, until the value is dropped. Takes CAP_SYS_ADMIN.
///
/// # Errors
/// The kernel does not count, or not for this user.
pub fn enable() -> Result<Enabled, Error> {
    // SAFETY: the system call takes a number, and no memory.
    let result = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    descriptor(result).map(Enabled).map_err(failed("switch on the kernel's statistics of eBPF programs"))
}

impl Meter {
    /// A meter of these programs. Takes CAP_SYS_ADMIN.
    ///
    /// # Errors
    /// A program is gone, or this user may not open it.
    pub fn open(programs: Vec<Program>) -> Result<Self, Error> {
        let open = |program: Program| {
            // SAFETY: the system call takes a number, and no memory.
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
            // SAFETY: the system call takes a number, and no memory.
            descriptor(unsafe { libbpf_sys::bpf_map_get_fd_by_id(id) }).map_err(failed("open a map"))
        };
        let maps = ids.into_iter().map(open).collect::<Result<Vec<_>, Error>>()?;
        Ok(Self { programs, maps, empty_run_ns: empty_run_ns()? })
    }

    /// The programs.
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        self.programs.iter().map(|(program, _)| program)
    }

    /// The cost of each program so far, in their order. It grows while [`Enabled`] exists.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub fn read(&self) -> Result<Vec<Runs>, Error> {
        let read = |(program, fd): &(Program, OwnedFd)| {
            let info = program_info(fd, None).map_err(failed(&format!("ask what {} has cost", program.name)))?;
            Ok(Runs { time_ns: info.run_time_ns, count: info.run_cnt })
        };
        self.programs.iter().map(read).collect()
    }

    /// The time that the kernel's clock reading adds to a run.
    pub fn empty_run_ns(&self) -> f64 {
        self.empty_run_ns
    }

    /// The memory of the maps, as the kernel accounts it, without the local storage of each object.
    ///
    /// # Errors
    /// /proc does not report it.
    pub fn map_bytes(&self) -> Result<u64, Error> {
        let of = |fd: &OwnedFd| {
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
            let bytes = info.lines().find_map(|line| line.strip_prefix("memlock:")?.trim().parse::<u64>().ok());
            bytes.ok_or_else(|| io::Error::other("no memlock in it"))
        };
        let bytes = self.maps.iter().map(of).sum::<io::Result<u64>>();
        bytes.map_err(failed("read what a map takes (/proc/self/fdinfo)"))
    }

    /// Bytes of one object in the programs' local storages: the largest value of these maps, 0 if there is no storage.
    pub fn storage_bytes(&self) -> u64 {
        self.maps.iter().filter_map(|fd| storage_value_size(fd).ok().flatten()).max().unwrap_or(0)
    }
}

/// The kernel's information about a program, and the ids of its maps if there is room for them.
///
/// # Errors
/// The descriptor is no program's.
pub fn program_info(fd: &OwnedFd, ids: Option<&mut [u32]>) -> io::Result<bpf_prog_info> {
    let mut info = bpf_prog_info::default();
    if let Some(ids) = ids {
        info.nr_map_ids = u32::try_from(ids.len()).unwrap_or(0);
        info.map_ids = ids.as_mut_ptr() as u64;
    }
    let mut length = u32::try_from(size_of::<bpf_prog_info>()).unwrap_or(0);
    // SAFETY: `length` is the length of the structure, and the memory that it points at is as long as it says.
    let result = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd.as_raw_fd(), &raw mut info, &raw mut length) };
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(info) }
}

fn map_ids(fd: &OwnedFd) -> io::Result<Vec<u32>> {
    let mut ids = vec![0; program_info(fd, None)?.nr_map_ids as usize];
    program_info(fd, Some(&mut ids))?;
    Ok(ids)
}

/// The value size of a map, if it is a local storage.
fn storage_value_size(fd: &OwnedFd) -> io::Result<Option<u64>> {
    let mut info = bpf_map_info::default();
    let mut length = u32::try_from(size_of::<bpf_map_info>()).unwrap_or(0);
    // SAFETY: `length` is the length of the structure.
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

/// Measures the run of a program that does nothing, in ns.
fn empty_run_ns() -> Result<f64, Error> {
    /// Enough runs to hide the first, cold ones.
    const REPEAT: i32 = 100_000;
    const TRY: &str = "measure what measuring costs";
    // r0 = 0; exit
    let instructions = [bpf_insn { code: 0xb7, ..Default::default() }, bpf_insn { code: 0x95, ..Default::default() }];
    // SAFETY: there are as many instructions as the call says, and the texts are terminated.
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
    // SAFETY: the options have their own size, and the length of the packet.
    let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(fd.as_raw_fd(), &raw mut options) };
    if result < 0 {
        return Err(failed(TRY)(io::Error::from_raw_os_error(-result)));
    }
    let info = program_info(&fd, None).map_err(failed(TRY))?;
    #[allow(clippy::cast_precision_loss)] // far below 2^53
    Ok(if info.run_cnt == 0 { 0.0 } else { info.run_time_ns as f64 / info.run_cnt as f64 })
}
