// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's own account of the waits of a process or a thread: taskstats, by generic netlink.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use neli::consts::nl::NlmF;
use neli::consts::socket::NlFamily;
use neli::genl::{AttrTypeBuilder, Genlmsghdr, GenlmsghdrBuilder, NlattrBuilder, NoUserHeader};
use neli::nl::NlPayload;
use neli::router::synchronous::NlRouter;
use neli::types::{Buffer, GenlBuffer};
use neli::utils::Groups;
use rustix::fs::{FlockOperation, flock};

#[allow(non_camel_case_types, missing_docs, dead_code, clippy::all)]
mod abi {
    include!(concat!(env!("OUT_DIR"), "/taskstats.rs"));
}

/// The waits so far: total in ns, and number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Waits {
    pub blkio: (u64, u64),
    pub swapin: (u64, u64),
    pub reclaim: (u64, u64),
    pub thrashing: (u64, u64),
    pub compact: (u64, u64),
    pub wpcopy: (u64, u64),
}

impl Waits {
    /// The waits in ns, by the names of topstat's tables.
    pub fn by_table(&self) -> [(&'static str, u64); 6] {
        [
            ("delays/blkio", self.blkio.0),
            ("delays/swapin", self.swapin.0),
            ("delays/reclaim", self.reclaim.0),
            ("delays/thrashing", self.thrashing.0),
            ("delays/compact", self.compact.0),
            ("delays/wpcopy", self.wpcopy.0),
        ]
    }
}

/// A connection to the kernel.
pub struct Taskstats {
    router: NlRouter,
    family: u16,
}

impl Taskstats {
    /// Connects.
    ///
    /// # Errors
    /// When the kernel has no taskstats, or refuses this user.
    pub fn connect() -> Result<Self, String> {
        let (router, _) = NlRouter::connect(NlFamily::Generic, None, Groups::empty()).map_err(|e| e.to_string())?;
        let family = router.resolve_genl_family("TASKSTATS").map_err(|e| format!("no taskstats: {e}"))?;
        Ok(Self { router, family })
    }

    /// The waits of a process: of all its threads, ended ones included.
    pub fn of_process(&self, pid: u32) -> Waits {
        self.ask(abi::TASKSTATS_CMD_ATTR_TGID, pid, abi::TASKSTATS_TYPE_AGGR_TGID)
    }

    /// The waits of one thread.
    pub fn of_thread(&self, tid: u32) -> Waits {
        self.ask(abi::TASKSTATS_CMD_ATTR_PID, tid, abi::TASKSTATS_TYPE_AGGR_PID)
    }

    fn ask(&self, by: u32, id: u32, aggregate: u32) -> Waits {
        self.try_ask(by, id, aggregate).unwrap_or_else(|e| panic!("taskstats of {id}: {e}"))
    }

    fn try_ask(&self, by: u32, id: u32, aggregate: u32) -> Result<Waits, Box<dyn std::error::Error>> {
        let number = |n: u32| u16::try_from(n).map_err(io::Error::other);
        let kind = AttrTypeBuilder::default().nla_type(number(by)?).build()?;
        let mut attributes = GenlBuffer::<u16, Buffer>::new();
        attributes.push(NlattrBuilder::default().nla_type(kind).nla_payload(id).build()?);
        let get = u8::try_from(abi::TASKSTATS_CMD_GET)?;
        let version = u8::try_from(abi::TASKSTATS_GENL_VERSION)?;
        let message: Genlmsghdr<u8, u16, NoUserHeader> =
            GenlmsghdrBuilder::default().cmd(get).version(version).attrs(attributes).build()?;
        let answers = self.router.send::<_, _, u16, Genlmsghdr<u8, u16>>(
            self.family,
            NlmF::empty(),
            NlPayload::Payload(message),
        )?;
        for answer in answers {
            let answer = answer?;
            let Some(payload) = answer.get_payload() else { continue };
            let handle = payload.attrs().get_attr_handle();
            let inner = handle.get_nested_attributes::<u16>(number(aggregate)?)?;
            let wanted = number(abi::TASKSTATS_TYPE_STATS)?;
            let bytes = inner.get_attr_payload_as_with_len_borrowed::<&[u8]>(wanted)?;
            return Ok(waits(bytes));
        }
        Err(io::Error::other("no answer").into())
    }
}

/// Reads a structure that may be shorter, from an older kernel, or longer.
fn waits(bytes: &[u8]) -> Waits {
    let mut stats = abi::taskstats::default();
    let length = bytes.len().min(size_of::<abi::taskstats>());
    // SAFETY: plain numbers, and no more of them than either side has.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), std::ptr::from_mut(&mut stats).cast::<u8>(), length) };
    Waits {
        blkio: (stats.blkio_delay_total, stats.blkio_count),
        swapin: (stats.swapin_delay_total, stats.swapin_count),
        reclaim: (stats.freepages_delay_total, stats.freepages_count),
        thrashing: (stats.thrashing_delay_total, stats.thrashing_count),
        compact: (stats.compact_delay_total, stats.compact_count),
        wpcopy: (stats.wpcopy_delay_total, stats.wpcopy_count),
    }
}

/// The sysctl that switches the accounting of waits.
const SWITCH: &str = "/proc/sys/kernel/task_delayacct";

/// The lock of the switch, and its value before the first test set it. The switch belongs to the host, and tests run beside each
/// other. Tests that want it on share the lock, and the last one restores the value. Not below TMPDIR: each test has its own.
const LOCK: &str = "/tmp/topstat-live-accounting.lock";

/// Switches the kernel's accounting on or off, as long as this value lives. The kernel accounts for tasks that start in this
/// time.
pub struct Accounting {
    lock: File,
}

impl Accounting {
    /// Switches the accounting on, if the kernel has it: for tests that use all available samples.
    pub fn if_there() -> Option<Self> {
        std::path::Path::new(SWITCH).exists().then(|| Self::set(true))
    }

    /// Switches the accounting on or off. Waits for tests that need the opposite.
    pub fn set(on: bool) -> Self {
        let lock = File::options().read(true).write(true).create(true).truncate(false).open(LOCK).expect(LOCK);
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let before = std::fs::read(SWITCH).expect(SWITCH);
            lock.write_all_at(&before[..1], 0).expect(LOCK);
        } else {
            flock(&lock, if on { FlockOperation::LockShared } else { FlockOperation::LockExclusive }).expect(LOCK);
        }
        if on {
            flock(&lock, FlockOperation::LockShared).expect(LOCK);
        }
        // After the lock: the change from one kind of lock to another is two steps, and the last of earlier tests may restore the
        // value in between.
        std::fs::write(SWITCH, if on { "1" } else { "0" }).expect(SWITCH);
        Self { lock }
    }
}

impl Drop for Accounting {
    fn drop(&mut self) {
        let mut before = [0];
        let is_last = flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        if is_last && self.lock.read_at(&mut before, 0).is_ok() {
            let _ = std::fs::write(SWITCH, before);
        }
    }
}

/// Why there is no account to compare with.
pub(crate) fn missing() -> Option<String> {
    if !std::path::Path::new(SWITCH).exists() {
        return Some(format!("needs a kernel with CONFIG_TASK_DELAY_ACCT: there is no {SWITCH}"));
    }
    Taskstats::connect().err().map(|e| format!("needs taskstats: {e}"))
}
