// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Payloads of system calls. `README.md` says what is captured, and when.

abi!("capture");

use std::mem::{offset_of, size_of};

use topstat_model::ColumnKind;

use topstat_kernel::Error;
use topstat_kernel::bpf::as_bytes;
use topstat_kernel::cgroup;
use topstat_kernel::events::{Capture, EventKind, Options, Payload, Streaming};
use topstat_kernel::family::{Family, FieldAt, RowColumn, columns};
use topstat_kernel::process;

/// The names of the supported system calls.
const NAMES: [&str; 14] = [
    "read", "pread64", "readv", "preadv", "preadv2", "recvfrom", "recvmsg", "write", "pwrite64", "writev", "pwritev",
    "pwritev2", "sendto", "sendmsg",
];

/// The number of each system call, how it names its payload, and whether it writes or sends; in the order of [`NAMES`].
fn calls() -> [(i64, u32, bool); NAMES.len()] {
    use abi::{CAPTURE_BUFFER as BUFFER, CAPTURE_MESSAGE as MESSAGE, CAPTURE_VECTOR as VECTOR};
    [
        (libc::SYS_read, BUFFER, false),
        (libc::SYS_pread64, BUFFER, false),
        (libc::SYS_readv, VECTOR, false),
        (libc::SYS_preadv, VECTOR, false),
        (libc::SYS_preadv2, VECTOR, false),
        (libc::SYS_recvfrom, BUFFER, false),
        (libc::SYS_recvmsg, MESSAGE, false),
        (libc::SYS_write, BUFFER, true),
        (libc::SYS_pwrite64, BUFFER, true),
        (libc::SYS_writev, VECTOR, true),
        (libc::SYS_pwritev, VECTOR, true),
        (libc::SYS_pwritev2, VECTOR, true),
        (libc::SYS_sendto, BUFFER, true),
        (libc::SYS_sendmsg, MESSAGE, true),
    ]
}

/// The system calls whose payloads can be captured.
pub fn names() -> &'static [&'static str] {
    &NAMES
}

/// The family of captured payloads.
pub fn family() -> Family {
    let kind = EventKind::new("data", "a system call has moved a payload", size_of::<abi::capture_event>(), moved());
    let streaming = Streaming {
        source: "capture".to_owned(),
        about: "payloads of system calls, where it is named: see CAPTURE".to_owned(),
        object: object!("capture/capture.bpf.o"),
        adopt: None,
        asked: true,
        constants,
        kinds: vec![EventKind { payload: Some(Payload { name: "data", list: false }), ..kind }],
    };
    streaming.family("capture", (6, 1))
}

fn moved() -> Vec<RowColumn> {
    let mut all = columns::process(offset_of!(abi::capture_event, who));
    let call = FieldAt::Named(offset_of!(abi::capture_event, call), &NAMES);
    let way = FieldAt::Named(offset_of!(abi::capture_event, out), &["in", "out"]);
    all.extend([
        RowColumn::new("call", ColumnKind::Text, call),
        RowColumn::new("direction", ColumnKind::Text, way),
        RowColumn::new("fd", ColumnKind::Id, FieldAt::U32(offset_of!(abi::capture_event, fd))),
        RowColumn::new("bytes", ColumnKind::Id, FieldAt::U64(offset_of!(abi::capture_event, bytes))),
    ]);
    all
}

fn constants(options: &Options) -> Result<Vec<u8>, Error> {
    let wanted = &options.capture;
    let mut constants = abi::capture_constants {
        v1_controller: cgroup::v1_number(),
        own: std::process::id(),
        snaplen: snaplen(wanted)?,
        pids: wanted.pids.len() as u32,
        pid: [0; abi::CAPTURE_PIDS as usize],
        cgroup: 0,
        cgroup_level: 0,
        comm_bytes: 0,
        comm: [0; process::abi::PROCESS_COMM as usize],
        calls: [abi::capture_call::default(); abi::CAPTURE_NUMBERS as usize],
    };
    if wanted.pids.len() > constants.pid.len() {
        let most = abi::CAPTURE_PIDS;
        return Err(Error::Option(format!("cannot capture of {} processes: at most {most}", wanted.pids.len())));
    }
    constants.pid[..wanted.pids.len()].copy_from_slice(&wanted.pids);
    if let Some(comm) = &wanted.comm {
        // In the kernel's form: cut, and filled up with zeroes.
        let most = constants.comm.len() - 1;
        for (to, from) in constants.comm[..most].iter_mut().zip(comm.bytes()) {
            *to = core::ffi::c_char::from_ne_bytes([from]);
        }
        constants.comm_bytes = comm.len().min(most) as u32;
    }
    if let Some(path) = &wanted.cgroup {
        (constants.cgroup, constants.cgroup_level) =
            cgroup::find(path).map_err(|why| Error::Option(format!("cannot capture of the cgroup {path}: {why}")))?;
    }
    for (name, (number, way, out)) in calls().into_iter().enumerate() {
        let named = wanted.calls.is_empty() || wanted.calls.iter().any(|call| call == NAMES[name]);
        if !named || wanted.out.is_some_and(|wanted| wanted != out) {
            continue;
        }
        let place = usize::try_from(number).ok().and_then(|number| constants.calls.get_mut(number));
        let place =
            place.ok_or_else(|| Error::Option(format!("cannot capture {}: its number is {number}", NAMES[name])))?;
        *place = abi::capture_call { way: way as u8, name: name as u8, out: out.into(), unused: 0 };
    }
    Ok(as_bytes(&constants).to_vec())
}

fn snaplen(wanted: &Capture) -> Result<u32, Error> {
    let most = topstat_consumer::abi::STREAM_MOST_BYTES;
    match wanted.snaplen {
        bytes if (1..=most).contains(&bytes) => Ok(bytes),
        bytes => Err(Error::Option(format!("cannot keep {bytes} bytes of each payload: from 1 to {most}"))),
    }
}
