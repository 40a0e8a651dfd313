// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is installed, and what the daemon has left or holds: read from files.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use topstat_kernel::pinned::Status;
use topstat_kernel::{Check, Outcome};

use super::{line, ok};
use crate::args::record::DEFAULT_HISTORY;
use crate::config::{self, Config};
use crate::daemon::mount;

/// Where a program may be that a user starts by its name.
const PROGRAMS: [&str; 4] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];
/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The files of a host.
pub struct Host {
    /// The root of all files; in tests a folder.
    pub root: PathBuf,
    /// The mount point of the daemon's tree.
    pub mount: PathBuf,
    /// The directory of what the daemon pins.
    pub pins: PathBuf,
}

impl Host {
    /// A path of the host.
    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The text of a file; `None`: it is not there, or this user may not read it.
    pub fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        fs::read_to_string(self.at(path)).ok()
    }

    /// The names in a folder, in order; nothing where it can't be read.
    pub fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.at(folder)).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The folders that exist, without those that are links to folders before them: `/lib` is `/usr/lib` on most hosts.
    pub fn distinct<'a>(&self, folders: &[&'a str]) -> Vec<&'a str> {
        let mut seen = Vec::new();
        let mut is_new = |folder: &&&str| {
            let Ok(real) = self.at(folder).canonicalize() else { return false };
            let is_new = !seen.contains(&real);
            seen.push(real);
            is_new
        };
        folders.iter().filter(|folder| is_new(folder)).copied().collect()
    }

    /// The program, its copies, and the package that it came with.
    pub fn installed(&self) -> Vec<Check> {
        let copies = self.distinct(&PROGRAMS).into_iter().map(|folder| format!("{folder}/topstat"));
        let copies: Vec<_> = copies.filter(|path| self.at(path).is_file()).collect();
        let own = fs::read_link(self.at("/proc/self/exe")).map(|path| path.display().to_string());
        let own = own.unwrap_or_else(|_| "its path is unknown: /proc can't be read".to_owned());
        let program = match copies.as_slice() {
            [_, _, ..] => line(
                "topstat",
                Outcome::Degraded,
                format!("{VERSION}, {own}; there are several: {}", copies.join(", ")),
                "remove all but one, so that the daemon and the commands have one version",
            ),
            _ => ok("topstat", format!("{VERSION}, {own}")),
        };
        let mut checks = vec![program];
        for name in ["topstat", "topstat-dkms"] {
            if let Some(version) = self.read("/var/lib/dpkg/status").and_then(|status| dpkg_version(&status, name)) {
                checks.push(ok("package", format!("{name} {version} (dpkg)")));
            }
        }
        checks
    }

    /// The process that holds the daemon's lock.
    pub fn daemon(&self) -> Check {
        const NAME: &str = "daemon";
        let pid = self.read(config::DEFAULT_PID_FILE).and_then(|text| text.trim().parse::<u32>().ok());
        let process = pid.map(|pid| (pid, format!("/proc/{pid}")));
        let Some((pid, process)) = process.filter(|(_, process)| self.runs_topstat(process)) else {
            return ok(NAME, "does not run");
        };
        match fs::read_link(self.at(format!("{process}/exe"))) {
            Ok(exe) if exe.to_string_lossy().ends_with(" (deleted)") => line(
                NAME,
                Outcome::Degraded,
                format!("pid {pid} runs a program that has been replaced since"),
                "start it anew (systemctl restart topstat): counting goes on",
            ),
            Ok(exe) => ok(NAME, format!("pid {pid}, {}", exe.display())),
            Err(_) => ok(NAME, format!("pid {pid}")),
        }
    }

    fn runs_topstat(&self, process: &str) -> bool {
        self.read(format!("{process}/comm")).is_some_and(|comm| comm.trim() == "topstat")
    }

    /// The pinned state: its access, and the versions that made it.
    pub fn pinned(&self, status: Result<Vec<Status>, topstat_kernel::Error>) -> Vec<Check> {
        const NAME: &str = "pins";
        let folder = self.pins.display();
        let metadata = match fs::metadata(self.at(&self.pins)) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return vec![ok(NAME, format!("nothing is pinned at {folder}"))];
            }
            Err(error) => {
                return vec![line(NAME, Outcome::Unknown, format!("{folder} can't be read: {error}"), "run as root")];
            }
        };
        let access = format!("{folder}, {}", self.access(&metadata));
        let private = metadata.uid() == 0 && metadata.mode() & 0o077 == 0;
        let mut checks = vec![match private {
            true => ok(NAME, access),
            false => line(
                NAME,
                Outcome::Degraded,
                format!("{access}: others than root may reach what is pinned"),
                "mount the BPF file system for root alone: mount -t bpf -o mode=700 bpf /sys/fs/bpf",
            ),
        }];
        match status {
            Ok(families) => checks.extend(families.iter().map(pinned_family)),
            Err(error) => checks.push(line(NAME, Outcome::Unknown, error.to_string(), "")),
        }
        checks
    }

    /// The tree, and the users that may read it.
    pub fn tree(&self) -> Check {
        const NAME: &str = "tree";
        let at = self.at(&self.mount);
        let shown = self.mount.display();
        if !mount::is_tree(&at) {
            return ok(NAME, format!("none is mounted at {shown}"));
        }
        if let Some(advice) = mount::is_silent(&at) {
            return line(NAME, Outcome::Degraded, format!("{shown} does not answer"), &advice);
        }
        match fs::metadata(&at) {
            Ok(metadata) => ok(NAME, format!("{shown}, {}", self.access(&metadata))),
            Err(error) => line(
                NAME,
                Outcome::Unknown,
                format!("{shown} can't be read: {error}"),
                "run as root, or as a member of its group",
            ),
        }
    }

    /// The configuration file of the daemon: whether it can be used. Its text is not shown.
    pub fn configuration(&self) -> Check {
        const NAME: &str = "configuration";
        let file = config::DEFAULT_FILE;
        match fs::read_to_string(self.at(file)) {
            Ok(text) => match Config::parse(Path::new(file), &text) {
                Ok(_) => ok(NAME, format!("{file}: nothing is wrong")),
                Err(_) => line(
                    NAME,
                    Outcome::Missing,
                    format!("{file} is wrong: no daemon starts with it"),
                    "topstat daemon --check-config shows each error",
                ),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => ok(NAME, format!("no {file}: defaults")),
            Err(error) => line(NAME, Outcome::Unknown, format!("{file} can't be read: {error}"), "run as root"),
        }
    }

    /// The records of `topstat record`.
    pub fn history(&self) -> Check {
        const NAME: &str = "history";
        match fs::metadata(self.at(DEFAULT_HISTORY)) {
            Ok(metadata) => {
                let (files, bytes) = size(&self.at(DEFAULT_HISTORY));
                let kib = bytes.div_ceil(1024);
                ok(NAME, format!("{DEFAULT_HISTORY}, {}, {files} files, {kib} KiB", self.access(&metadata)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => ok(NAME, "nothing is recorded"),
            Err(error) => {
                line(NAME, Outcome::Unknown, format!("{DEFAULT_HISTORY} can't be read: {error}"), "run as root")
            }
        }
    }

    /// The owner, group and mode of a file.
    fn access(&self, metadata: &Metadata) -> String {
        let name = |file: &str, id: u32| {
            let text = self.read(file).unwrap_or_default();
            let entry = text
                .lines()
                .map(|line| line.split(':').collect::<Vec<_>>())
                .find(|fields| fields.get(2).and_then(|field| field.parse().ok()) == Some(id));
            entry.and_then(|fields| fields.first().map(ToString::to_string)).unwrap_or_else(|| id.to_string())
        };
        let (user, group) = (name("/etc/passwd", metadata.uid()), name("/etc/group", metadata.gid()));
        format!("{user}:{group}, mode {:o}", metadata.mode() & 0o7777)
    }
}

/// The line of a family whose state is pinned.
fn pinned_family(status: &Status) -> Check {
    let name = format!("pinned {}", status.family);
    let build = status.build.as_deref().unwrap_or("being replaced");
    let found = format!("ABI {}, build {build}", status.abi);
    match status.abi_is_own {
        Some(true) => ok(&name, found),
        Some(false) => line(
            &name,
            Outcome::Degraded,
            format!("{found}: of another version of topstat"),
            "topstat unload ends these statistics; the version that pinned them can still read them",
        ),
        None => line(&name, Outcome::Degraded, format!("{found}: this version does not know the family"), ""),
    }
}

/// The version of an installed package in dpkg's list.
fn dpkg_version(status: &str, package: &str) -> Option<String> {
    let of = |entry: &str, key: &str| {
        entry.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": ").map(str::to_owned))
    };
    let mut entries = status.split("\n\n");
    let entry = entries.find(|entry| of(entry, "Package").as_deref() == Some(package))?;
    of(entry, "Status").filter(|status| status.ends_with(" installed"))?;
    of(entry, "Version")
}

/// The number of files below a folder, and their bytes.
fn size(folder: &Path) -> (u64, u64) {
    let mut sum = (0, 0);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        let (files, bytes) = if metadata.is_dir() { size(&entry.path()) } else { (1, metadata.len()) };
        sum = (sum.0 + files, sum.1 + bytes);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_package_that_is_installed_has_a_version() {
        let status = "Package: topstat-dkms\nStatus: install ok installed\nVersion: 2\n\nPackage: topstat\nStatus: deinstall \
                      ok config-files\nVersion: 1\n\nPackage: other\nStatus: install ok installed\nVersion: 3\n";
        assert_eq!(dpkg_version(status, "topstat"), None);
        assert_eq!(dpkg_version(status, "topstat-dkms").as_deref(), Some("2"));
        assert_eq!(dpkg_version(status, "top"), None);
    }

    #[test]
    fn state_of_another_version_is_no_error_and_says_so() {
        let status = |abi_is_own| Status {
            path: "/p/abi-3/inet".into(),
            family: "inet".into(),
            abi: 3,
            abi_is_own,
            build: None,
            since: None,
            build_since: None,
            top: None,
        };
        let found = |own| {
            let check = pinned_family(&status(own));
            (check.outcome, check.found)
        };
        assert_eq!(found(Some(true)), (Outcome::Ok, "ABI 3, build being replaced".into()));
        assert_eq!(found(Some(false)).0, Outcome::Degraded);
        assert_eq!(found(None).0, Outcome::Degraded);
    }
}
