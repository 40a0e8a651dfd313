// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program whose system calls are listed, and one of whose calls fails. A seccomp filter passes each call to this process
//! for a decision (`SECCOMP_RET_USER_NOTIF`). Tracing does not slow the program, and the calls of all its threads count.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use libc::{EAGAIN, EINTR, EIO, EMFILE, ENOMEM, ENOSPC, EPERM};

/// A listed system call, and the errors with which it may fail: the errors for lack of memory, space or descriptors, and for
/// interruption, that its manual page or the kernel's source has.
struct Known {
    number: libc::c_long,
    name: &'static str,
    errors: &'static [i32],
    shows: Shows,
}

/// The argument that distinguishes calls of one name.
#[derive(Clone, Copy)]
enum Shows {
    /// None: the name is enough.
    Name,
    /// This argument: the command of bpf(2), the option of prctl(2).
    Number(usize),
    /// The path that this argument points to.
    Path(usize),
    /// The file behind this argument, a descriptor.
    File(usize),
}

macro_rules! known {
    ($($call:ident $name:literal [$($error:ident)*] $shows:expr;)*) => {
        &[$(Known { number: libc::$call, name: $name, errors: &[$($error),*], shows: $shows }),*]
    };
}

use Shows::{File, Name, Number, Path};

/// The list omits calls that can't fail for any of these reasons (getpid), and calls whose failure ends a C library before
/// the program sees it (futex, rseq).
const KNOWN: &[Known] = known! {
    SYS_openat "openat" [EMFILE ENOMEM EINTR ENOSPC] Path(1);
    SYS_openat2 "openat2" [EMFILE ENOMEM EINTR] Path(1);
    SYS_read "read" [EINTR EIO] File(0);
    SYS_pread64 "pread64" [EINTR EIO] File(0);
    SYS_write "write" [EINTR ENOSPC EIO] File(0);
    SYS_writev "writev" [EINTR ENOSPC] File(0);
    SYS_bpf "bpf" [ENOMEM EMFILE EINTR] Number(0);
    SYS_mmap "mmap" [ENOMEM] Name;
    SYS_memfd_create "memfd_create" [EMFILE ENOMEM] Name;
    SYS_ftruncate "ftruncate" [ENOSPC EINTR] File(0);
    SYS_mkdirat "mkdirat" [ENOSPC ENOMEM] Path(1);
    SYS_symlinkat "symlinkat" [ENOSPC ENOMEM] Path(0);
    SYS_unlinkat "unlinkat" [ENOMEM EIO] Path(1);
    SYS_renameat "renameat" [ENOSPC ENOMEM] Path(1);
    SYS_renameat2 "renameat2" [ENOSPC ENOMEM] Path(1);
    SYS_readlinkat "readlinkat" [ENOMEM] Path(1);
    SYS_newfstatat "newfstatat" [ENOMEM] Path(1);
    SYS_fstat "fstat" [ENOMEM] File(0);
    SYS_statx "statx" [ENOMEM] Path(1);
    SYS_statfs "statfs" [ENOMEM EINTR] Path(0);
    SYS_faccessat2 "faccessat2" [ENOMEM] Path(1);
    SYS_fchmodat "fchmodat" [EIO] Path(1);
    SYS_getdents64 "getdents64" [ENOMEM EIO] File(0);
    SYS_mount "mount" [ENOMEM EPERM] Path(1);
    SYS_umount2 "umount2" [ENOMEM] Path(0);
    SYS_flock "flock" [EINTR ENOMEM] File(0);
    SYS_fcntl "fcntl" [EMFILE EINTR] Number(1);
    SYS_dup "dup" [EMFILE] Name;
    SYS_dup3 "dup3" [EMFILE EINTR] Name;
    SYS_pipe2 "pipe2" [EMFILE] Name;
    SYS_socket "socket" [EMFILE ENOMEM] Name;
    SYS_socketpair "socketpair" [EMFILE ENOMEM] Name;
    SYS_connect "connect" [EINTR] Name;
    SYS_sendto "sendto" [EINTR ENOMEM] Name;
    SYS_recvfrom "recvfrom" [EINTR ENOMEM] Name;
    SYS_recvmsg "recvmsg" [EINTR ENOMEM] Name;
    SYS_epoll_create1 "epoll_create1" [EMFILE ENOMEM] Name;
    SYS_epoll_ctl "epoll_ctl" [ENOMEM] Name;
    SYS_epoll_pwait "epoll_pwait" [EINTR] Name;
    SYS_ppoll "ppoll" [EINTR ENOMEM] Name;
    SYS_clone3 "clone3" [EAGAIN ENOMEM] Name;
    SYS_ioctl "ioctl" [ENOMEM EINTR] Number(1);
    SYS_prctl "prctl" [EPERM] Number(0);
    SYS_capset "capset" [EPERM] Name;
    SYS_perf_event_open "perf_event_open" [EMFILE ENOMEM] Name;
    SYS_sched_getaffinity "sched_getaffinity" [ENOMEM] Name;
    SYS_clock_nanosleep "clock_nanosleep" [EINTR] Name;
    SYS_getrandom "getrandom" [EINTR] Name;
};

/// Calls that only older architectures have.
#[cfg(target_arch = "x86_64")]
const FURTHER: &[Known] = known! {
    SYS_open "open" [EMFILE ENOMEM EINTR] Path(0);
    SYS_mkdir "mkdir" [ENOSPC ENOMEM] Path(0);
    SYS_rmdir "rmdir" [ENOMEM EIO] Path(0);
    SYS_unlink "unlink" [ENOMEM EIO] Path(0);
    SYS_rename "rename" [ENOSPC ENOMEM] Path(0);
    SYS_symlink "symlink" [ENOSPC ENOMEM] Path(0);
    SYS_readlink "readlink" [ENOMEM] Path(0);
    SYS_chmod "chmod" [EIO] Path(0);
    SYS_poll "poll" [EINTR ENOMEM] Name;
    SYS_epoll_wait "epoll_wait" [EINTR] Name;
    SYS_signalfd4 "signalfd4" [EMFILE] Name;
};
#[cfg(not(target_arch = "x86_64"))]
const FURTHER: &[Known] = known! {
    SYS_epoll_pwait "epoll_wait" [EINTR] Name;
};

fn known(number: libc::c_long) -> Option<&'static Known> {
    KNOWN.iter().chain(FURTHER).find(|known| known.number == number)
}

/// A kind of call: its name and its distinguishing argument, without numbers that differ between runs. Then the number of
/// earlier calls of the same kind.
pub type Call = (String, usize);

/// A call that must fail, and its error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The call.
    pub call: Call,
    /// The error; or [`KILLED`].
    pub errno: i32,
}

/// In place of an error: the call kills the program.
pub const KILLED: i32 = i32::MAX;

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, number) = &self.call;
        match self.errno {
            KILLED => write!(f, "{name} #{number}: kill -9"),
            errno => write!(f, "{name} #{number}: {}", io::Error::from_raw_os_error(errno)),
        }
    }
}

/// The runtime of a Rust program ends with two calls that read and set the main thread's signal stack; all later calls come
/// from the program itself.
const RUNTIME: usize = 2;

/// By the name of a system call: the number of calls, and their possible errors.
pub type Calls = BTreeMap<String, (usize, &'static [i32])>;

/// The record of a program's calls.
#[derive(Debug, Default)]
struct Seen {
    /// How often a signal stack was read or set: see [`RUNTIME`].
    stacks: usize,
    counts: Calls,
    failed: bool,
}

/// Decides about each call of a program, until the program ends.
pub struct Supervisor {
    seen: Arc<Mutex<Seen>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Supervisor {
    /// Installs the filter in the program that `command` will start, and makes the given call fail.
    ///
    /// # Errors
    ///
    /// When no descriptors are left.
    pub fn of(command: &mut Command, fault: Option<Fault>) -> io::Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        if unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()) }
            < 0
        {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just made both descriptors, and they have no other owner.
        let [own, theirs] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        let filter = filter();
        let install = move || {
            let listener = install(&filter)?;
            send(theirs.as_raw_fd(), listener)
        };
        // SAFETY: between fork and exec only system calls are made, and the data that they read was made before the fork.
        unsafe { command.pre_exec(install) };
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = Arc::clone(&seen);
        let supervise = move || {
            let listener = receive(own.as_raw_fd())?;
            drop(own);
            answer(&listener, &shared, fault.as_ref())
        };
        let thread = std::thread::Builder::new().name("supervisor".to_owned()).spawn(supervise)?;
        Ok(Self { seen, thread: Some(thread) })
    }

    /// Waits until the program, and all processes that have inherited its filter, have ended. Returns whether the fault was
    /// made, and the calls of each kind with their possible errors.
    ///
    /// # Errors
    ///
    /// When a call of the supervisor fails.
    pub fn finish(mut self) -> io::Result<(bool, Calls)> {
        if let Some(thread) = self.thread.take() {
            thread.join().map_err(|_| io::Error::other("the supervisor panicked"))??;
        }
        let mut seen = lock(&self.seen);
        Ok((seen.failed, std::mem::take(&mut seen.counts)))
    }

    /// Whether the fault was already made.
    pub fn failed(&self) -> bool {
        lock(&self.seen).failed
    }
}

fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notifies the supervisor of the known calls, and allows all other calls.
fn filter() -> Vec<libc::sock_filter> {
    let numbers: Vec<_> =
        KNOWN.iter().chain(FURTHER).map(|known| known.number).chain([libc::SYS_sigaltstack]).collect();
    let code = |code: u32, jt: usize, jf: u8, k: u32| libc::sock_filter {
        code: u16::try_from(code).expect("an opcode"),
        jt: u8::try_from(jt).expect("fewer than 256 calls are known"),
        jf,
        k,
    };
    let mut filter = vec![code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for (index, number) in numbers.iter().enumerate() {
        let to_the_last = numbers.len() - index;
        let number = u32::try_from(*number).expect("a number of a call");
        filter.push(code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, to_the_last, 0, number));
    }
    filter.push(code(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    filter.push(code(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_USER_NOTIF));
    filter
}

fn install(filter: &[libc::sock_filter]) -> io::Result<RawFd> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the filter lives as long as the call, which does not change it.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            std::ptr::from_ref(&program),
        )
    };
    if listener < 0 { Err(io::Error::last_os_error()) } else { Ok(listener as RawFd) }
}

/// Room for one descriptor beside a message.
#[repr(C, align(8))]
struct Control([u8; 24]);

/// Sends a descriptor, by a call that is not in the list.
fn send(socket: RawFd, fd: RawFd) -> io::Result<()> {
    let (mut byte, mut control) = ([0_u8], Control([0; 24]));
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: a message of zeroes is an empty message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
    (message.msg_control, message.msg_controllen) = (control.0.as_mut_ptr().cast(), control.0.len() as _);
    // SAFETY: there is room for one header and one descriptor, as CMSG_SPACE(4) is 24.
    let sent = unsafe {
        let head = libc::CMSG_FIRSTHDR(&message);
        ((*head).cmsg_level, (*head).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
        (*head).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(head).cast::<RawFd>().write_unaligned(fd);
        libc::sendmsg(socket, &message, 0)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn receive(socket: RawFd) -> io::Result<OwnedFd> {
    let (mut byte, mut control) = ([0_u8], Control([0; 24]));
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: as above.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
    (message.msg_control, message.msg_controllen) = (control.0.as_mut_ptr().cast(), control.0.len() as _);
    // SAFETY: all memory that the message points to lives as long as the call.
    if unsafe { libc::recvmsg(socket, &mut message, libc::MSG_CMSG_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor follows each header, since `send` sends nothing else.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(&message);
        if head.is_null() {
            return Err(io::Error::other("the program was not started"));
        }
        Ok(OwnedFd::from_raw_fd(libc::CMSG_DATA(head).cast::<RawFd>().read_unaligned()))
    }
}

/// Answers until no process with the filter is left.
fn answer(listener: &OwnedFd, seen: &Mutex<Seen>, fault: Option<&Fault>) -> io::Result<()> {
    let fd = listener.as_raw_fd();
    loop {
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor.
        if unsafe { libc::poll(&mut poll, 1, -1) } < 0 {
            match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => continue,
                error => return Err(error),
            }
        }
        if poll.revents & libc::POLLIN == 0 {
            return Ok(());
        }
        // SAFETY: the kernel wants zeroes.
        let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: room for one question.
        if unsafe { libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_RECV, &mut asked) } < 0 {
            // The caller was killed.
            continue;
        }
        let errno = decide(&asked, seen, fault);
        // SAFETY: plain integers.
        let mut response: libc::seccomp_notif_resp = unsafe { std::mem::zeroed() };
        response.id = asked.id;
        match errno {
            Some(KILLED) => {
                // SAFETY: the call changes nothing in this process. The caller is the program, which this process has
                // started.
                unsafe { libc::kill(asked.pid.cast_signed(), libc::SIGKILL) };
                continue;
            }
            Some(errno) => response.error = -errno,
            None => response.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as _,
        }
        // SAFETY: one answer. The call fails if the caller was killed.
        unsafe { libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_SEND, &mut response) };
    }
}

fn decide(asked: &libc::seccomp_notif, seen: &Mutex<Seen>, fault: Option<&Fault>) -> Option<i32> {
    let number = libc::c_long::from(asked.data.nr);
    let mut seen = lock(seen);
    if number == libc::SYS_sigaltstack {
        seen.stacks += 1;
    }
    let known = known(number).filter(|_| seen.stacks >= RUNTIME)?;
    let name = describe(known, asked)?;
    let count = seen.counts.entry(name.clone()).or_insert((0, errors(known, &name)));
    let call = (name, count.0);
    count.0 += 1;
    let errno = fault.filter(|fault| fault.call == call)?.errno;
    seen.failed = true;
    Some(errno)
}

/// The possible errors of a call. The kernel's end of the tree has different ones: a request is read unless a signal comes
/// first, and an answer is accepted, or no process waits for it.
fn errors(known: &Known, name: &str) -> &'static [i32] {
    match name {
        "read(/dev/fuse)" => &[EINTR],
        "writev(/dev/fuse)" => &[],
        // Only a call that makes a file can run out of space.
        name if name.starts_with("open") && !name.contains(".pid") => &[EMFILE, ENOMEM, EINTR],
        _ => known.errors,
    }
}

/// The kind of a call; `None`: the call never returns, or has no file.
fn describe(known: &Known, asked: &libc::seccomp_notif) -> Option<String> {
    let argument = |index: usize| asked.data.args[index];
    let what = match known.shows {
        Name => return Some(known.name.to_owned()),
        Number(index) => (argument(index) as u32).to_string(),
        Path(index) => general(&path(asked.pid, argument(index)).unwrap_or_default()),
        File(index) => {
            let link = format!("/proc/{}/fd/{}", asked.pid, argument(index) as i32);
            general(&std::fs::read_link(link).map(|to| to.to_string_lossy().into_owned()).unwrap_or_default())
        }
    };
    Some(format!("{}({what})", known.name))
}

/// A path without its numbers, which are of processes and other objects with a new number in each run.
fn general(path: &str) -> String {
    let mut text = String::new();
    for character in path.chars() {
        match character {
            '0'..='9' if text.ends_with('#') => {}
            '0'..='9' => text.push('#'),
            other => text.push(other),
        }
    }
    text
}

/// The longest path that is read, in bytes.
const LONGEST: usize = 256;

fn path(pid: u32, address: u64) -> Option<String> {
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut bytes = [0; LONGEST];
    // Only to the end of the page, since the next page may be unmapped.
    let page = 4096 - usize::try_from(address % 4096).ok()?;
    let read = memory.read_at(&mut bytes[..LONGEST.min(page)], address).ok()?;
    let mut bytes = bytes[..read].to_vec();
    if !bytes.contains(&0) && read < LONGEST {
        let mut rest = [0; LONGEST];
        let more = memory.read_at(&mut rest, address + read as u64).unwrap_or(0);
        bytes.extend_from_slice(&rest[..more]);
    }
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}
