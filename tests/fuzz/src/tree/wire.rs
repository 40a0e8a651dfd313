// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's end of a FUSE connection: requests as bytes, and the answers to them.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fuser::{Config, Session, SessionACL};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use topstat::fuzz::tree::Tree;
use topstat::fuzz::tree::fuse::{Service, Store, TreeFs};
use topstat::fuzz::{Pulse, Workers};

/// Longer than any answer takes on a busy host.
const PATIENCE: Duration = Duration::from_secs(20);
/// The number of threads that take texts: one of them is kept for users other than the requesting one.
const READERS: usize = 2;
/// The maximum length of a requested answer, with its head.
pub const LONGEST: usize = 16 << 10;

/// The numbers of requests, from `enum fuse_opcode`.
pub mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const RELEASE: u32 = 18;
    pub const SETXATTR: u32 = 21;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const READDIR: u32 = 28;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
}

/// A running file system, connected to this end only.
pub struct Wire {
    kernel: OwnedFd,
    last: u64,
    session: Option<JoinHandle<()>>,
}

/// A request as bytes: numbers in the kernel's format.
#[derive(Clone, Debug, Default)]
pub struct Words(pub Vec<u8>);

impl Words {
    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

/// The head of a request.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    pub opcode: u32,
    pub inode: u64,
    pub uid: u32,
}

impl Wire {
    /// Starts the tree, and opens the connection as the kernel does.
    pub fn new(tree: Tree, store: Arc<dyn Store>) -> Self {
        let (kernel, daemon) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("a pair of sockets");
        let serve = move || {
            let pulse = Arc::new(Pulse::default());
            let workers = |name, count| Workers::start(name, count, &pulse).expect("threads");
            let (readers, setter) = (Arc::new(workers("read", READERS)), workers("set", 1));
            let service = Service { store, shares: Arc::default(), readers, setter, pulse };
            let filesystem = TreeFs::new(tree, None, Arc::new(service));
            let mut config = Config::default();
            config.acl = SessionACL::All;
            config.n_threads = Some(1);
            let session = Session::from_fd(filesystem, daemon, SessionACL::All, config).expect("a session");
            // The way in which the session ends makes no difference: by DESTROY, an invalid request, or the end of the
            // connection.
            let _ = session.run();
        };
        let session = std::thread::Builder::new().name("session".to_owned()).spawn(serve).expect("a thread");
        let mut wire = Self { kernel, last: 0, session: Some(session) };
        // Version 7.31, with every capability.
        let init = Words::default().u32(7).u32(31).u32(1 << 17).u32(u32::MAX).bytes(&[0; 48]);
        let answer = wire.ask(Head { opcode: opcode::INIT, inode: 0, uid: 0 }, &init.0);
        assert!(answer.is_ok_and(|answer| answer.starts_with(&7_u32.to_ne_bytes())), "INIT");
        wire
    }

    /// Sends a request; returns its number.
    pub fn send(&mut self, head: Head, body: &[u8]) -> u64 {
        self.last += 2;
        let length = u32::try_from(40 + body.len()).expect("a short request");
        let request = Words::default().u32(length).u32(head.opcode).u64(self.last).u64(head.inode);
        let request = request.u32(head.uid).u32(head.uid).u32(4711).u32(0).bytes(body);
        let sent = retry_on_intr(|| send(&self.kernel, &request.0, SendFlags::NOSIGNAL));
        assert!(sent.is_ok_and(|sent| sent == request.0.len()), "the connection has ended before {head:?}");
        self.last
    }

    /// The next answer: the number of its request, and its contents.
    pub fn receive(&self) -> (u64, Result<Vec<u8>, i32>) {
        let timeout = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        // libFuzzer's clock interrupts calls.
        let ready = || poll(&mut [PollFd::new(&self.kernel, PollFlags::IN)], Some(&timeout));
        let answered = retry_on_intr(ready).expect("poll");
        assert!(answered > 0, "no answer");
        let mut bytes = vec![0; 2 * LONGEST];
        let (length, _) = retry_on_intr(|| recv(&self.kernel, &mut bytes[..], RecvFlags::empty())).expect("an answer");
        bytes.truncate(length);
        assert!(length >= 16, "an answer of {length} bytes");
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        assert_eq!(word(0) as usize, length, "the length that an answer says, and has");
        let (error, number) =
            (word(4).cast_signed(), u64::from_ne_bytes(bytes[8..16].try_into().expect("eight bytes")));
        assert!((-4095..=0).contains(&error), "error {error}");
        (number, if error == 0 { Ok(bytes.split_off(16)) } else { Err(-error) })
    }

    /// Sends a request, and waits for its answer, which must be the next one.
    pub fn ask(&mut self, head: Head, body: &[u8]) -> Result<Vec<u8>, i32> {
        let number = self.send(head, body);
        let (of, answer) = self.receive();
        assert_eq!(of, number, "the answer to {head:?} is to another request");
        answer
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // The kernel's last request.
        let ended = self.ask(Head { opcode: opcode::DESTROY, inode: 0, uid: 0 }, &[]);
        assert_eq!(ended, Ok(vec![]), "DESTROY");
        let session = self.session.take().map(JoinHandle::join);
        assert!(session.is_none_or(|joined| joined.is_ok()), "the session panicked");
    }
}
