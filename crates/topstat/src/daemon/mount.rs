// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The mount point of the tree: prepares it, mounts the tree, watches the mount, and unmounts.
//!
//! The daemon mounts the tree itself, without the setuid helper of libfuse. The daemon is root, and it must be able to unmount
//! the tree while another process still has one of its files open.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use fuser::{Config, SessionACL};
use procfs::process::{MountInfo, Process};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use super::probe::{self, Answer};
use super::tree::fuse::TreeFs;
use super::{caps, handshake};
use crate::error::Error;

/// The type of the tree's file system in mountinfo.
const FS_TYPE: &str = "fuse.topstat";
const SOURCE: &str = "topstat";
const DEVICE: &str = "/dev/fuse";

/// The threads that take requests from the kernel: one answers while the other waits for the next request.
const REQUEST_THREADS: usize = 2;

/// The most dead trees on one mount point that are unmounted. A killed daemon leaves one, and the next daemon unmounts it. This
/// many trees can only have been put there on purpose.
const MOST_STALE: usize = 16;

/// How long to wait at the end for other processes to close files of the tree.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often to list the mounts at the end, in case that fails for a moment. A tree that is not found then stays.
const LISTS: usize = 3;

/// Why there is no tree.
#[derive(Debug, thiserror::Error)]
pub enum NoTree {
    /// The host can't have a tree. All else works.
    #[error("no FUSE on this host: {0}")]
    NoFuse(String),
    /// The daemon may not mount, as in a container that is not privileged. All else works.
    #[error("the kernel refuses to mount the tree without CAP_SYS_ADMIN")]
    NotPermitted,
    /// The mount point can't be used: the administrator has to choose another one, or clear it.
    #[error("cannot mount the tree at {}: {why}", .at.display())]
    Unusable {
        /// The mount point.
        at: PathBuf,
        /// The fault of the mount point.
        why: String,
    },
}

impl From<NoTree> for Error {
    fn from(error: NoTree) -> Self {
        Self::Daemon(error.to_string())
    }
}

/// The mounted tree. The drop of this value unmounts it.
pub struct Mounted {
    at: PathBuf,
    /// The kernel's number for the mounted file system. It tells the tree from a file system mounted over it.
    device: String,
    /// Whether the daemon has made the directory. It then removes the directory when it is no longer needed.
    created: bool,
    ended: Receiver<()>,
    over: bool,
}

/// A directory that a tree can be mounted on.
#[derive(Debug)]
pub struct Point {
    at: PathBuf,
    /// Whether the daemon has made the directory. It then removes the directory when it is no longer needed.
    created: bool,
    /// How many dead trees were unmounted.
    pub stale: usize,
}

impl Point {
    /// Prepares the directory: makes it if it is missing, and unmounts trees that killed daemons have left.
    ///
    /// # Errors
    ///
    /// [`NoTree::Unusable`]: something else is mounted there, or the directory is not empty or can't be made.
    pub fn prepare(at: &Path) -> Result<Self, NoTree> {
        let unusable = |why: String| NoTree::Unusable { at: at.to_owned(), why };
        let created = create(at).map_err(|e| unusable(format!("the directory can't be made: {e}")))?;
        let ready = real(at).map_err(|e| e.to_string()).and_then(|at| clear(&at).map(|stale| (at, stale)));
        match ready {
            Ok((at, stale)) => Ok(Self { at, created, stale }),
            Err(why) => {
                if created {
                    // This removes only an empty directory: files that another program has put there since then stay.
                    let _ = std::fs::remove_dir(at);
                }
                Err(unusable(why))
            }
        }
    }

    /// Mounts the tree here, and serves it in separate threads. `on_end` is called after the tree was unmounted, by this or by
    /// another process.
    ///
    /// # Errors
    ///
    /// See [`NoTree`].
    pub fn mount(mut self, tree: TreeFs, on_end: impl FnOnce() + Send + 'static) -> Result<Mounted, NoTree> {
        let at = self.at.clone();
        let unusable = |why: String| NoTree::Unusable { at: at.clone(), why };
        let device = open_device()?;
        caps::raised(|| mount_at(&at, &device)).map_err(|errno| match errno {
            Errno::NODEV => NoTree::NoFuse("the kernel has no file system of that kind (CONFIG_FUSE_FS)".to_owned()),
            Errno::PERM if !caps::can_mount() => NoTree::NotPermitted,
            errno => unusable(errno.to_string()),
        })?;
        let (end, ended) = channel();
        let number = match top_mount(&at) {
            Ok(mount) => mount.map(|mount| mount.majmin).unwrap_or_default(),
            Err(error) => {
                // A tree that can't be told from other mounts would stay mounted at the end.
                let _ = caps::raised(|| rustix::mount::unmount(&at, UnmountFlags::DETACH));
                return Err(unusable(error.to_string()));
            }
        };
        // From here on, each failure drops `mounted`, which unmounts the tree.
        let created = std::mem::take(&mut self.created);
        let mounted = Mounted { at: at.clone(), device: number, created, ended, over: false };
        let mut config = Config::default();
        config.acl = SessionACL::All;
        config.n_threads = Some(REQUEST_THREADS);
        config.clone_fd = true;
        let session = handshake::session(tree, device, config).map_err(|error| unusable(error.to_string()))?;
        let serve = move || {
            // The threads that this thread starts inherit the privileges.
            caps::serve_only();
            // The result makes no difference: there is no tree any more.
            let _ = session.run();
            let _ = end.send(());
            on_end();
        };
        let thread = thread::Builder::new().name("topstat-tree".to_owned());
        thread.spawn(serve).map_err(|error| unusable(error.to_string()))?;
        Ok(mounted)
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        // Nothing was mounted here: the daemon could not start, or the host has no FUSE.
        if self.created {
            let _ = std::fs::remove_dir(&self.at);
        }
    }
}

impl Mounted {
    /// The mount point.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Whether the tree was unmounted, and no process has a file of it open any more.
    pub fn is_over(&mut self) -> bool {
        self.over = self.over || self.ended.try_recv().is_ok();
        self.over
    }

    /// Whether the tree is mounted, even if something else was mounted over it.
    pub fn is_there(&self) -> bool {
        // If mounts can't be listed, the tree counts as mounted: it must not be mounted twice.
        mounts(&self.at).map_or(true, |mounts| mounts.iter().any(|mount| mount.majmin == self.device))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let top = (0..LISTS).find_map(|_| top_mount(&self.at).ok()).flatten();
        let ours = top.is_some_and(|mount| mount.majmin == self.device);
        // A lazy unmount: a process may keep a file of the tree open, but can read no more from it.
        let unmount = || rustix::mount::unmount(&self.at, UnmountFlags::DETACH);
        if ours && caps::raised(unmount).is_ok() && !self.is_over() {
            let _ = self.ended.recv_timeout(PATIENCE);
        }
        // If another process has unmounted the tree, the directory may have another use by now.
        if ours && self.created {
            let _ = std::fs::remove_dir(&self.at);
        }
    }
}

/// Whether a tree, dead or alive, is mounted there. This reads the list of mounts and not the tree, which might not answer.
pub fn is_tree(at: &Path) -> bool {
    real(at).and_then(|at| top_mount(&at)).is_ok_and(|mount| mount.is_some_and(|mount| mount.fs_type == FS_TYPE))
}

/// Advice about a mounted tree that does not answer.
pub fn silent(at: &Path) -> String {
    let number = real(at).ok().and_then(|at| top_mount(&at).ok().flatten()).and_then(|mount| {
        let (_, number) = mount.majmin.split_once(':')?;
        Some(number.to_owned())
    });
    format!(
        "the tree at {} does not answer within {} s: its daemon is stopped or stuck. Have it go on (kill -CONT) or end it \
         (kill -KILL). If programs still wait for the tree then, end their wait, as root: \
         echo 1 > /sys/fs/fuse/connections/{}/abort (mount -t fusectl none /sys/fs/fuse/connections, where that is empty)",
        at.display(),
        probe::PATIENCE.as_secs(),
        number.as_deref().unwrap_or("N"),
    )
}

/// Advice about the tree at this path, if one is mounted there and does not answer.
pub fn is_silent(at: &Path) -> Option<String> {
    (is_tree(at) && matches!(probe::ask(at), Ok(Answer::None))).then(|| silent(at))
}

/// The path without symbolic links. The last name is not looked up: a dead tree there gives no answer.
fn real(at: &Path) -> io::Result<PathBuf> {
    match (at.parent(), at.file_name()) {
        (Some(parent), Some(name)) if parent.as_os_str().is_empty() => Ok(Path::new(".").canonicalize()?.join(name)),
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => at.canonicalize(),
    }
}

/// The uppermost mount at a path.
fn top_mount(at: &Path) -> io::Result<Option<MountInfo>> {
    Ok(mounts(at)?.pop())
}

/// All mounts at a path, the uppermost last.
fn mounts(at: &Path) -> io::Result<Vec<MountInfo>> {
    let at = escaped(at);
    let mounts = Process::myself().and_then(|me| me.mountinfo());
    let mounts = mounts.map_err(|e| io::Error::other(format!("the mounts can't be listed: {e}")))?;
    Ok(mounts.0.into_iter().filter(|mount| mount.mount_point.as_os_str() == at).collect())
}

/// A path in the form of mountinfo: see proc_pid_mountinfo(5).
fn escaped(path: &Path) -> OsString {
    let escape = |byte: &u8| match byte {
        b' ' | b'\t' | b'\n' | b'\\' | b'#' => format!("\\{byte:03o}").into_bytes(),
        _ => vec![*byte],
    };
    OsString::from_vec(path.as_os_str().as_bytes().iter().flat_map(escape).collect())
}

/// Makes the directory if it is missing. Returns whether it has made it.
fn create(at: &Path) -> io::Result<bool> {
    use std::os::unix::fs::DirBuilderExt;
    match std::fs::DirBuilder::new().mode(0o755).create(at) {
        Ok(()) => Ok(true),
        // A dead tree on the directory gives this error, too; it has no metadata to look at.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Unmounts dead trees, and returns how many. Refuses any other mount, and a directory with entries, which the tree would hide.
fn clear(at: &Path) -> Result<usize, String> {
    let mut stale = 0;
    while let Some(mount) = top_mount(at).map_err(|e| e.to_string())? {
        let source = mount.mount_source.as_deref().unwrap_or("none");
        if mount.fs_type != FS_TYPE {
            return Err(format!("{source} ({}) is mounted there", mount.fs_type));
        }
        match probe::ask(at) {
            Ok(Answer::Dead) => {}
            Ok(Answer::Alive) => return Err("another daemon's tree is mounted there".to_owned()),
            Ok(Answer::None) => return Err(silent(at)),
            Err(error) => return Err(format!("a tree is mounted there, and can't be asked whose it is: {error}")),
        }
        caps::raised(|| rustix::mount::unmount(at, UnmountFlags::DETACH))
            .map_err(|e| format!("the tree of a killed daemon lies there, and can't be unmounted: {e}"))?;
        stale += 1;
        if stale == MOST_STALE {
            return Err(format!("{MOST_STALE} trees of killed daemons lay there, and there are more"));
        }
    }
    let mut entries = std::fs::read_dir(at).map_err(|error| match error.kind() {
        io::ErrorKind::NotADirectory => "it is no directory".to_owned(),
        _ => error.to_string(),
    })?;
    match entries.next() {
        None => Ok(stale),
        Some(Err(error)) => Err(format!("what is in the directory can't be listed: {error}")),
        Some(Ok(_)) => Err("the directory is not empty, and the tree would hide what is in it".to_owned()),
    }
}

fn open_device() -> Result<OwnedFd, NoTree> {
    match File::options().read(true).write(true).open(DEVICE) {
        Ok(file) => Ok(file.into()),
        Err(error) => Err(NoTree::NoFuse(match error.kind() {
            io::ErrorKind::NotFound => format!("{DEVICE} is missing (modprobe fuse may help)"),
            _ => format!("{DEVICE}: {error}"),
        })),
    }
}

fn mount_at(at: &Path, device: &OwnedFd) -> rustix::io::Result<()> {
    let flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NOATIME;
    // All users have access, within the modes, which the kernel checks.
    let options =
        format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions", device.as_raw_fd());
    let options = std::ffi::CString::new(options).map_err(|_| Errno::INVAL)?;
    rustix::mount::mount(SOURCE, at, FS_TYPE, flags, options.as_c_str())
}
