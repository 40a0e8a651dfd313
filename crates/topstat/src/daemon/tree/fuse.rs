// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tree as a FUSE file system.
//!
//! Files are opened for direct I/O and have the size 0, as in /proc: a read makes their content, and the kernel keeps nothing of
//! it. The request threads themselves answer requests that take microseconds. [`Workers`] take snapshots, for users in turn. A
//! separate worker sets values, since it may have to wait until another process has set a value, or until a table was ordered
//! again. So neither snapshots nor set values hold up other requests.
//!
//! An open file belongs to the user that has opened it, even if other processes read it: its text is taken from that user's
//! share, and its reads wait for that user's turn.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::handle::{Handle, Handles, NoRoom};
use super::shares::Shares;
use super::value::Setting;
use super::{Entry, File, Kind, Node, Place, Tree};
use crate::daemon::pulse::{Beat, Pulse, Working};
use crate::daemon::workers::{Refused, Workers};

/// How long the kernel may keep names and attributes, which never change while the tree is mounted. If the kernel had to ask for
/// attributes again, opening a file would take four more requests: one for each directory on the path, and one for the file.
const KEPT: Duration = Duration::from_secs(3600);

/// The most bytes of one write request: the smallest limit that FUSE allows, and a hundred times the length of a value.
const MOST_WRITTEN: u32 = 4096;

/// The content of the files.
pub trait Store: Send + Sync + 'static {
    /// The present text of a file.
    ///
    /// # Errors
    ///
    /// When the text can't be made. The reading process gets the errno, and the log gets the reason.
    fn read(&self, file: &File) -> Result<Vec<u8>, Failure>;

    /// Sets the value that was written to a file.
    ///
    /// # Errors
    ///
    /// See [`Store::read`].
    fn write(&self, place: &Place, setting: Setting, value: u32) -> Result<(), Failure>;

    /// Logs why a request fails.
    fn refused(&self, what: &str, file: &str, why: &str);
}

/// Why a file can't be read or set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error for the calling program.
    pub errno: i32,
    /// The reason for the log.
    pub why: String,
}

impl From<NoRoom> for Failure {
    fn from(no_room: NoRoom) -> Self {
        Self { errno: libc::ENOMEM, why: no_room.to_string() }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self { errno: libc::EBUSY, why: refused.to_string() }
    }
}

/// All that a daemon needs to serve a tree. If the tree is unmounted and mounted again, the next tree uses it, too.
pub struct Service {
    /// The content of the files.
    pub store: Arc<dyn Store>,
    /// The memory that open files may take.
    pub shares: Arc<Shares>,
    /// The threads that take snapshots.
    pub readers: Arc<Workers>,
    /// The thread that sets values.
    pub setter: Workers,
    /// Records whether these threads, and the request threads, make progress.
    pub pulse: Arc<Pulse>,
}

/// The file system.
pub struct TreeFs {
    shared: Arc<Shared>,
    tree: Tree,
    /// The group that may read. Without a group only root may read.
    group: Option<u32>,
    /// When the tree was made. This is the time of all files, for only their content changes.
    begun: SystemTime,
}

/// The data that request threads and workers share.
struct Shared {
    service: Arc<Service>,
    handles: Handles,
}

/// The user and the line in which all writes wait. So values are set in the order of the writes, across all files and processes.
/// The user is root, since only root may write.
const SETTER: (u32, u64) = (0, 0);

impl Shared {
    fn read(&self, handle: &Handle, file: &File, offset: u64, size: u32, reply: ReplyData) {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        // The kernel gets the bytes directly from the kept text.
        let mut reply = Some(reply);
        let make = || self.service.store.read(file);
        let read = handle.read(offset, size, make, |bytes| reply.take().map(|reply| reply.data(bytes)));
        if let (Err(failure), Some(reply)) = (read, reply) {
            reply.error(self.failed("read", file, &failure));
        }
    }

    /// Takes a write. Returns the value to set now, if there is one.
    fn write(
        &self,
        handle: &Handle,
        file: &File,
        offset: u64,
        written: &[u8],
    ) -> Result<Option<(Setting, u32)>, Errno> {
        let Kind::Setting(setting) = file.kind else { return Err(Errno::EACCES) };
        let taken = handle.writing().write(setting, offset, handle.append, written);
        taken.map(|value| value.map(|value| (setting, value))).map_err(|refused| {
            self.service.store.refused("write", &file.path(), &refused.to_string());
            Errno::EINVAL
        })
    }

    /// The value that has waited for the close of the file.
    fn close(handle: &Handle, file: &File) -> Option<(Setting, u32)> {
        let value = handle.writing().close()?;
        match file.kind {
            Kind::Setting(setting) => Some((setting, value)),
            _ => None,
        }
    }

    fn set(&self, file: &File, setting: Setting, value: u32) -> Result<(), Errno> {
        self.service.store.write(&file.place, setting, value).map_err(|failure| self.failed("write", file, &failure))
    }

    fn failed(&self, what: &str, file: &File, failure: &Failure) -> Errno {
        self.service.store.refused(what, &file.path(), &failure.why);
        Errno::from_i32(failure.errno)
    }
}

impl TreeFs {
    /// The file system of this tree.
    pub fn new(tree: Tree, group: Option<u32>, service: Arc<Service>) -> Self {
        let handles = Handles::new(Arc::clone(&service.shares));
        Self { shared: Arc::new(Shared { service, handles }), tree, group, begun: SystemTime::now() }
    }

    /// Records that the calling request thread works, until the returned value is dropped.
    fn working(&self) -> Working {
        thread_local! {
            static BEAT: OnceCell<Arc<Beat>> = const { OnceCell::new() };
        }
        let watched = || self.shared.service.pulse.thread("a request thread of the tree".to_owned());
        BEAT.with(|beat| beat.get_or_init(watched).working())
    }

    /// Sets a value in the setter thread, if there is a value, and then calls `done` with the result.
    fn set(&self, file: File, value: Option<(Setting, u32)>, done: impl FnOnce(Result<(), Errno>) + Send + 'static) {
        let Some((setting, value)) = value else { return done(Ok(())) };
        let shared = Arc::clone(&self.shared);
        let (root, line) = SETTER;
        self.shared.service.setter.run(root, line, move |turn| match turn {
            Ok(()) => done(shared.set(&file, setting, value)),
            Err(refused) => done(Err(shared.failed("write", &file, &refused.into()))),
        });
    }

    fn attributes(&self, inode: u64, node: &Node) -> FileAttr {
        let directories =
            |inode: &&u64| self.tree.get(**inode).is_some_and(|node| matches!(node.entry, Entry::Directory(_)));
        let (kind, mode, nlink) = match &node.entry {
            Entry::Directory(_) => (FileType::Directory, 0o700, 2 + node.children.iter().filter(directories).count()),
            Entry::File(file) if file.kind.writable() => (FileType::RegularFile, 0o600, 1),
            Entry::File(_) => (FileType::RegularFile, 0o400, 1),
        };
        FileAttr {
            ino: INodeNo(inode),
            size: 0,
            blocks: 0,
            atime: self.begun,
            mtime: self.begun,
            ctime: self.begun,
            crtime: self.begun,
            kind,
            // The group has root's permissions, except for writing.
            perm: if self.group.is_some() { mode | mode >> 3 & 0o050 } else { mode },
            nlink: u32::try_from(nlink).unwrap_or(u32::MAX),
            uid: 0,
            gid: self.group.unwrap_or(0),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn file(&self, inode: INodeNo) -> Option<File> {
        match &self.tree.get(inode.0)?.entry {
            Entry::File(file) => Some(file.clone()),
            Entry::Directory(_) => None,
        }
    }

    /// The file of an inode, and its open handle. EBADF for numbers that the kernel should never send.
    fn opened(&self, inode: INodeNo, handle: FileHandle) -> Result<(File, Arc<Handle>), Errno> {
        self.file(inode).zip(self.shared.handles.get(handle.0)).ok_or(Errno::EBADF)
    }

    fn refuse(&self, inode: INodeNo, what: &str, why: &str) {
        let _working = self.working();
        let path = match self.tree.get(inode.0).map(|node| &node.entry) {
            Some(Entry::File(file)) => file.path(),
            Some(Entry::Directory(place)) => place.path(),
            None => String::new(),
        };
        self.shared.service.store.refused(what, &path, why);
    }
}

const FIXED: &str = "the tree has the files that it has";

impl Filesystem for TreeFs {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // The call accepts any number within the range.
        let _ = config.set_max_write(MOST_WRITTEN);
        // This has an effect if the kernel supports it. `handshake` sets the time.
        let _ = config.add_capabilities(InitFlags::FUSE_REQUEST_TIMEOUT);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _working = self.working();
        match self.tree.lookup(parent.0, name) {
            Some((inode, node)) => {
                reply.entry(&KEPT, &self.attributes(inode, node), Generation(0));
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let _working = self.working();
        match self.tree.get(inode.0) {
            Some(node) => reply.attr(&KEPT, &self.attributes(inode.0, node)),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Accepts a truncation to size 0, which `>` in a shell makes and which changes nothing. All other attributes are fixed.
    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        owner: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let writable = self.file(inode).is_some_and(|file| file.kind.writable());
        let errno = match size {
            _ if mode.is_some() || owner.is_some() || group.is_some() => Errno::EPERM,
            Some(0) if writable => return self.getattr(request, inode, handle, reply),
            Some(_) if writable => Errno::EINVAL,
            Some(_) => Errno::EACCES,
            None => Errno::EPERM,
        };
        self.refuse(inode, "change the attributes of", "mode and owner come from the daemon's configuration");
        reply.error(errno);
    }

    fn open(&self, request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _working = self.working();
        let Some(file) = self.file(inode) else { return reply.error(Errno::EISDIR) };
        let mut how = FopenFlags::FOPEN_DIRECT_IO;
        if flags.acc_mode() == OpenAccMode::O_RDONLY {
            // A handle that only reads has no value that waits for the close.
            how |= FopenFlags::FOPEN_NOFLUSH;
        } else if !file.kind.writable() {
            // The modes alone don't keep root from writing to a read-only file.
            self.shared.service.store.refused("write", &file.path(), "it can only be read");
            return reply.error(Errno::EACCES);
        }
        let append = flags.0 & libc::O_APPEND != 0;
        match self.shared.handles.open(request.uid(), file.kind, append) {
            Ok(number) => reply.opened(FileHandle(number), how),
            Err(full) => {
                self.shared.service.store.refused("open", &file.path(), &full.to_string());
                reply.error(Errno::EMFILE);
            }
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _working = self.working();
        let number = handle;
        let (file, handle) = match self.opened(inode, number) {
            Ok(opened) => opened,
            Err(errno) => return reply.error(errno),
        };
        if !file.kind.slow() {
            return self.shared.read(&handle, &file, offset, size, reply);
        }
        let mut reply = Some(reply);
        let length = usize::try_from(size).unwrap_or(usize::MAX);
        handle.read_kept(offset, length, |bytes| reply.take().into_iter().for_each(|reply| reply.data(bytes)));
        let Some(reply) = reply else { return };
        let shared = Arc::clone(&self.shared);
        // Each open file has its own line. Its reads wait for each other: without the line each of them would occupy a worker.
        self.shared.service.readers.run(handle.uid(), number.0, move |turn| match turn {
            Ok(()) => shared.read(&handle, &file, offset, size, reply),
            // This may be a request thread, which must not wait for the handle.
            Err(refused) => reply.error(shared.failed("read", &file, &refused.into())),
        });
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        written: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _working = self.working();
        let size = u32::try_from(written.len()).unwrap_or(MOST_WRITTEN);
        let taken = self.opened(inode, handle).and_then(|(file, handle)| {
            let value = self.shared.write(&handle, &file, offset, written)?;
            Ok((file, value))
        });
        match taken {
            Ok((file, value)) => self.set(file, value, move |done| match done {
                Ok(()) => reply.written(size),
                Err(errno) => reply.error(errno),
            }),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, _: &Request, inode: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        let _working = self.working();
        match self.opened(inode, handle) {
            Ok((file, handle)) => self.set(file.clone(), Shared::close(&handle, &file), move |done| match done {
                Ok(()) => reply.ok(),
                Err(errno) => reply.error(errno),
            }),
            Err(errno) => reply.error(errno),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let _working = self.working();
        // A flush came first, unless the kernel was in a hurry. An error here no longer reaches the process that closed the file.
        if let Some(file) = self.file(inode) {
            let set = |handle: Arc<Handle>| self.set(file.clone(), Shared::close(&handle, &file), |_| ());
            self.shared.handles.close(handle.0, set);
        }
        reply.ok();
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let _working = self.working();
        let Some(node) = self.tree.get(inode.0) else { return reply.error(Errno::ENOENT) };
        let dots = [(inode.0, "."), (node.parent, "..")];
        let children = node.children.iter().filter_map(|inode| Some((*inode, &*self.tree.get(*inode)?.name)));
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        for (next, (inode, name)) in (1..).zip(dots.into_iter().chain(children)).skip(skip) {
            let kind = match self.tree.get(inode).map(|node| &node.entry) {
                Some(Entry::File(_)) => FileType::RegularFile,
                _ => FileType::Directory,
            };
            if reply.add(INodeNo(inode), next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    // The requests that would change the set of files.

    fn mknod(&self, _: &Request, parent: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        self.refuse(parent, "add to", FIXED);
        reply.error(Errno::EPERM);
    }

    fn create(&self, _: &Request, parent: INodeNo, _: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        self.refuse(parent, "add to", FIXED);
        reply.error(Errno::EPERM);
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        self.refuse(parent, "add to", FIXED);
        reply.error(Errno::EPERM);
    }

    fn symlink(&self, _: &Request, parent: INodeNo, _: &OsStr, _: &std::path::Path, reply: ReplyEntry) {
        self.refuse(parent, "add to", FIXED);
        reply.error(Errno::EPERM);
    }

    fn link(&self, _: &Request, _: INodeNo, parent: INodeNo, _: &OsStr, reply: ReplyEntry) {
        self.refuse(parent, "add to", FIXED);
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        self.refuse(parent, "remove from", FIXED);
        reply.error(Errno::EPERM);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        self.refuse(parent, "remove from", FIXED);
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.refuse(parent, "rename in", FIXED);
        reply.error(Errno::EPERM);
    }

    fn fallocate(&self, _: &Request, inode: INodeNo, _: FileHandle, _: u64, _: u64, _: i32, reply: ReplyEmpty) {
        self.refuse(inode, "allocate", "files have no length");
        reply.error(Errno::EOPNOTSUPP);
    }
}
