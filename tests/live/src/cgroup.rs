// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control groups: the group of a process as `/proc` shows it, and groups that a test makes.

use std::fs;
use std::io;
use std::path::PathBuf;

/// The path of a process's cgroup in a hierarchy: `""` is v2, else the name of a v1 controller.
pub fn path_of(pid: u32, controller: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        controllers.split(',').any(|c| c == controller).then(|| path.to_owned())
    })
}

/// The v1 controllers whose hierarchy topstat looks for, in topstat's order.
const V1: [&str; 3] = ["memory", "cpu", "pids"];

/// The group that topstat must show for a process: its path in v2, or in v1 if the v2 path is the root.
pub fn expected(pid: u32) -> Option<String> {
    let v2 = path_of(pid, "");
    if v2.as_deref().is_some_and(|path| path != "/") {
        return v2;
    }
    v1_asked().and_then(|c| path_of(pid, c)).or(v2)
}

/// The v1 controller whose hierarchy topstat reads on this host.
fn v1_asked() -> Option<&'static str> {
    V1.into_iter().find(|controller| v1_mount(controller).is_some())
}

fn mounts() -> Vec<(String, String, String)> {
    let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?.to_owned(), words.next()?.to_owned(), words.next()?.to_owned()))
        })
        .collect()
}

/// Where the hierarchy of a v1 controller is mounted.
fn v1_mount(controller: &str) -> Option<PathBuf> {
    let is_asked = |(_, kind, options): &(String, String, String)| {
        kind == "cgroup" && options.split(',').any(|option| option == controller)
    };
    mounts().into_iter().find(is_asked).map(|(path, _, _)| path.into())
}

/// Where the v2 hierarchy is mounted.
pub(crate) fn v2_mount() -> Option<PathBuf> {
    mounts().into_iter().find(|(_, kind, _)| kind == "cgroup2").map(|(path, _, _)| path.into())
}

pub(crate) fn v2_missing() -> Option<String> {
    match Group::new("probe") {
        Ok(_) => None,
        Err(e) => Some(format!("needs a cgroup v2 hierarchy in which a group can be made: {e}")),
    }
}

pub(crate) fn io_stat_missing() -> Option<String> {
    let missing = || "needs cgroup v2's controller io".to_owned();
    let Ok(group) = Group::new("io") else { return Some(missing()) };
    (!group.folder().join("io.stat").exists()).then(missing)
}

pub(crate) fn v1_missing() -> Option<String> {
    let own = std::process::id();
    let in_v2 = path_of(own, "").is_some_and(|path| path != "/");
    let v1 = v1_asked().and_then(|c| path_of(own, c));
    match v1 {
        _ if in_v2 => Some("this process is in a cgroup of v2, where v1 is not asked".to_owned()),
        None => Some("no v1 hierarchy of memory, cpu or pids is mounted".to_owned()),
        Some(path) if path == "/" => Some("this process is at the root of v1's hierarchy".to_owned()),
        Some(_) => None,
    }
}

pub(crate) fn hybrid_missing() -> Option<String> {
    if path_of(std::process::id(), "").is_none_or(|path| path != "/") {
        return Some("needs this process at the root of a cgroup v2 hierarchy".to_owned());
    }
    let made = Group::new("probe").and_then(|_| Group::of_v1("probe"));
    made.err().map(|e| format!("needs cgroup hierarchies of both versions in which groups can be made: {e}"))
}

/// A cgroup with a limit, in the hierarchy that has the controller. Dropping it removes the group; its processes must have
/// ended by then.
pub struct Limited {
    folder: PathBuf,
    /// The control file and the controller that was enabled for the group, to disable it again.
    switched_on: Option<(PathBuf, &'static str)>,
}

/// A controller and its limit file, by their names in v1 and v2.
struct Limit {
    v1: (&'static str, &'static str),
    v2: (&'static str, &'static str),
}

const MEMORY: Limit = Limit { v1: ("memory", "memory.limit_in_bytes"), v2: ("memory", "memory.max") };
const CPU: Limit = Limit { v1: ("cpu", "cpu.cfs_quota_us"), v2: ("cpu", "cpu.max") };
const READS: Limit = Limit { v1: ("blkio", "blkio.throttle.read_bps_device"), v2: ("io", "io.max") };

impl Limited {
    /// Limits memory to `bytes`, page cache included.
    ///
    /// # Errors
    /// When no hierarchy has the controller, or the group can't be made.
    pub fn memory(name: &str, bytes: u64) -> io::Result<Self> {
        Self::new(name, &MEMORY, &bytes.to_string(), &bytes.to_string())
    }

    /// Limits CPU time to this many percent of one CPU, in periods of 100 ms.
    ///
    /// # Errors
    /// As for memory.
    pub fn cpu(name: &str, percent: u64) -> io::Result<Self> {
        let quota_us = percent * 1000;
        Self::new(name, &CPU, &quota_us.to_string(), &format!("{quota_us} 100000"))
    }

    /// Limits reads of the disk that holds temporary files to `bytes` a second.
    ///
    /// # Errors
    /// As for memory; and when the disk is unknown.
    pub fn reads(name: &str, bytes: u64) -> io::Result<Self> {
        let disk = crate::scratch::disk()?;
        Self::new(name, &READS, &format!("{disk} {bytes}"), &format!("{disk} rbps={bytes}"))
    }

    fn new(name: &str, limit: &Limit, v1: &str, v2: &str) -> io::Result<Self> {
        let name = format!("topstat-live-{}-{name}", std::process::id());
        let (controller, file) = limit.v1;
        if let Some(mount) = v1_mount(controller) {
            let group = Self { folder: mount.join(name), switched_on: None };
            fs::create_dir(&group.folder)?;
            fs::write(group.folder.join(file), v1)?;
            return Ok(group);
        }
        // Directly below the root, which is the only group that may have both processes and controllers.
        let (controller, file) = limit.v2;
        let root = v2_mount().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no cgroups are mounted"))?;
        let control = root.join("cgroup.subtree_control");
        let has = fs::read_to_string(&control)?.split_whitespace().any(|c| c == controller);
        if !has {
            fs::write(&control, format!("+{controller}"))?;
        }
        let group = Self { folder: root.join(name), switched_on: (!has).then_some((control, controller)) };
        fs::create_dir(&group.folder)?;
        fs::write(group.folder.join(file), v2)?;
        Ok(group)
    }

    /// Moves a process into the group.
    pub fn take(&self, pid: u32) {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string()).expect("move a process into the cgroup");
    }

    /// The group's folder in the file system.
    pub fn folder(&self) -> &std::path::Path {
        &self.folder
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        crate::eventually(std::time::Duration::from_secs(5), || fs::remove_dir(&self.folder).is_ok());
        if let Some((control, controller)) = &self.switched_on {
            let _ = fs::write(control, format!("-{controller}"));
        }
    }
}

pub(crate) fn memory_missing() -> Option<String> {
    let group = Limited::memory("probe", 64 << 20);
    group.err().map(|e| format!("needs a memory controller in which a group can be made: {e}"))
}

pub(crate) fn cpu_missing() -> Option<String> {
    let group = Limited::cpu("probe", 50);
    group.err().map(|e| format!("needs a CPU controller in which a group can be made: {e}"))
}

pub(crate) fn throttle_missing() -> Option<String> {
    let group = Limited::reads("probe", 64 << 20);
    group.err().map(|e| format!("needs a disk, and a controller that throttles its reads: {e}"))
}

/// A cgroup. Dropping it removes the group; its processes must have ended by then.
pub struct Group {
    folder: PathBuf,
    /// The path in the hierarchy.
    pub path: String,
}

impl Group {
    /// Makes a v2 group below the group of this process.
    ///
    /// # Errors
    /// When there is no hierarchy, or the group can't be made.
    pub fn new(name: &str) -> io::Result<Self> {
        Self::below_own(v2_mount(), "", name)
    }

    /// Makes a group below the group of this process, in the v1 hierarchy that topstat reads.
    ///
    /// # Errors
    /// When there is no hierarchy, or the group can't be made.
    pub fn of_v1(name: &str) -> io::Result<Self> {
        let controller = v1_asked().unwrap_or_default();
        Self::below_own(v1_mount(controller), controller, name)
    }

    fn below_own(mount: Option<PathBuf>, controller: &str, name: &str) -> io::Result<Self> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "none is mounted");
        let mount = mount.ok_or_else(missing)?;
        let own = path_of(std::process::id(), controller).ok_or_else(missing)?;
        let path = format!("{}/topstat-live-{}-{name}", own.trim_end_matches('/'), std::process::id());
        let folder = mount.join(path.trim_start_matches('/'));
        fs::create_dir(&folder)?;
        Ok(Self { folder, path })
    }

    /// Makes a group directly below the root.
    ///
    /// # Errors
    /// When there is no hierarchy, or the group can't be made.
    pub fn below_root(name: &str) -> io::Result<Self> {
        Self::named(&format!("topstat-live-{}-{name}", std::process::id()))
    }

    /// Makes a group of exactly this name directly below the root, for people who see its path.
    ///
    /// # Errors
    /// When there is no hierarchy, or the group can't be made, for instance because it exists.
    pub fn named(name: &str) -> io::Result<Self> {
        let mount = v2_mount().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "none is mounted"))?;
        let (folder, path) = (mount.join(name), format!("/{name}"));
        fs::create_dir(&folder)?;
        Ok(Self { folder, path })
    }

    /// Makes a group below this group. The child must be dropped first.
    ///
    /// # Errors
    /// When the group can't be made.
    pub fn child(&self, name: &str) -> io::Result<Self> {
        let (folder, path) = (self.folder.join(name), format!("{}/{name}", self.path));
        fs::create_dir(&folder)?;
        Ok(Self { folder, path })
    }

    /// Moves a process into the group.
    pub fn take(&self, pid: u32) {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string()).expect("move a process into the cgroup");
    }

    /// Runs `work` while this process is in the group, which is one of v2.
    pub fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        /// Takes this process back to the group of this folder, also after a panic.
        struct Back(PathBuf);
        impl Drop for Back {
            fn drop(&mut self) {
                fs::write(self.0.join("cgroup.procs"), "0").expect("move this process back");
            }
        }
        let own = path_of(std::process::id(), "").expect("the group of this process");
        let _back = Back(v2_mount().expect("a v2 hierarchy").join(own.trim_start_matches('/')));
        self.take(std::process::id());
        work()
    }

    /// CPU time in µs of all processes since they were moved into the group, ended processes included: the scheduler adds to
    /// it whenever it adds to the time of a task.
    pub fn cpu_us(&self) -> u64 {
        let text = fs::read_to_string(self.folder.join("cpu.stat")).expect("cpu.stat, which each group has");
        let line = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no usage_usec in {text:?}"))
    }

    /// The group's folder in the file system.
    pub fn folder(&self) -> &std::path::Path {
        &self.folder
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        crate::eventually(std::time::Duration::from_secs(2), || fs::remove_dir(&self.folder).is_ok());
    }
}
