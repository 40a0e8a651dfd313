// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat doctor` on made-up hosts, which are folders.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use topstat_kernel::Outcome;
use topstat_kernel::pinned::Status;

use crate::console::FakeConsole;
use crate::fake::{Fake, check};
use crate::golden::compare;

/// A text that no archive may have.
const SECRET: &str = "hunter2";

/// A host, removed when dropped.
struct Host(PathBuf);

impl Host {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("topstat-doctor-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).unwrap();
        Self(root)
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, to: &str, path: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
    }

    /// With a package, a daemon that was upgraded, another copy of the program, and secrets wherever a user may have them.
    fn installed(name: &str) -> Self {
        let host = Self::new(name);
        host.put("usr/bin/topstat", "");
        host.put("usr/local/bin/topstat", "");
        host.put("var/lib/dpkg/status", "Package: topstat\nStatus: install ok installed\nVersion: 0.1.0-1\n");
        host.put("usr/lib/systemd/system/topstat.service", "[Service]\nExecStart=/usr/bin/topstat daemon\n");
        host.put("usr/lib/systemd/system/topstat-old.service", "[Service]\nExecStart=-/opt/topstat daemon\n");
        host.put("usr/lib/systemd/system/other.service", "");
        host.link(
            "/usr/lib/systemd/system/topstat.service",
            "etc/systemd/system/multi-user.target.wants/topstat.service",
        );
        host.put(
            "etc/systemd/system/topstat.service.d/password.conf",
            &format!("[Service]\nEnvironment=PASSWORD={SECRET}"),
        );
        host.put("sys/fs/cgroup/system.slice/topstat.service/cgroup.procs", "4711\n");
        host.put("run/topstat.pid", "4711\n");
        host.put("proc/4711/comm", "topstat\n");
        host.put("proc/4711/cmdline", &format!("topstat\0daemon\0--config={SECRET}"));
        host.put("proc/4711/environ", &format!("PASSWORD={SECRET}"));
        host.link("/usr/bin/topstat (deleted)", "proc/4711/exe");
        host.link("/usr/bin/topstat", "proc/self/exe");
        host.put("proc/self/limits", "Max locked memory         8388608              unlimited            bytes\n");
        host.put("proc/self/environ", &format!("PASSWORD={SECRET}"));
        host.put("proc/sys/kernel/hostname", SECRET);
        host.put("proc/sys/kernel/osrelease", "6.1.0\n");
        host.put("proc/sys/kernel/unprivileged_bpf_disabled", "2\n");
        host.put("proc/sys/net/core/bpf_jit_enable", "1\n");
        host.put(
            "boot/config-6.1.0",
            "CONFIG_BPF_SYSCALL=y\nCONFIG_DEBUG_INFO_BTF=y\nCONFIG_CGROUPS=y\nCONFIG_FUSE_FS=m\n",
        );
        host.put("sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
        host.put("etc/os-release", "ID=debian\n");
        host.put("etc/topstat/topstat.toml", &format!("# {SECRET}\ntop = 0\n"));
        host.put("sys/fs/bpf/topstat/abi-4/inet/maps/constants", SECRET);
        fs::set_permissions(host.0.join("sys/fs/bpf/topstat"), fs::Permissions::from_mode(0o755)).unwrap();
        // As where /usr is merged: no line counts a folder twice.
        host.link("usr/lib", "lib");
        host.put("usr/lib/systemd/system/topstat.service.d/vendor.conf", "");
        host
    }

    fn backend(&self) -> Fake {
        let status = |family: &str, abi_is_own| Status {
            path: PathBuf::new(),
            family: family.into(),
            abi: 4,
            abi_is_own: Some(abi_is_own),
            build: Some("0.1.0-abc".into()),
            since: None,
            build_since: None,
            top: Some(128),
        };
        Fake {
            host: self.0.clone(),
            checks: vec![check("BTF", Outcome::Ok, "/sys/kernel/btf/vmlinux", "")],
            status: vec![status("inet", true), status("tasks", false)],
            ..Fake::default()
        }
    }

    /// What a command line prints, and its exit code.
    fn run(&self, line: &str) -> (String, u8) {
        let mut console = FakeConsole::pipe();
        let exit = console.run(line, &mut self.backend());
        (format!("{}{}", console.written(), console.notes), exit as u8)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The owner of files of this test, as `topstat doctor` shows it on a host without a list of users.
fn mode_of(path: &Path) -> String {
    let metadata = fs::metadata(path).unwrap();
    format!("{}:{}, mode {:o}", metadata.uid(), metadata.gid(), metadata.mode() & 0o7777)
}

#[test]
fn all_that_is_installed_has_a_line() {
    let mut text = String::new();
    for (name, host) in [("bare", Host::new("bare")), ("installed", Host::installed("golden"))] {
        for line in ["doctor", "doctor -o json"] {
            let (printed, exit) = host.run(&format!("{line} --mount /nowhere --pins /sys/fs/bpf/topstat"));
            // The mode and owner depend on the user that runs the test.
            let pins = host.0.join("sys/fs/bpf/topstat");
            let printed =
                if pins.exists() { printed.replace(&mode_of(&pins), "USER:GROUP, mode MODE") } else { printed };
            text += &format!("$ topstat {line}    # {name}\n{printed}[{exit}]\n\n");
        }
    }
    compare("doctor.txt", &text);
}

/// The files of an archive, by name.
fn unpack(path: &Path) -> Vec<(String, String)> {
    let mut archive = tar::Archive::new(GzDecoder::new(fs::File::open(path).unwrap()));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (name, text)
    });
    entries.collect()
}

#[test]
fn an_archive_has_what_a_report_needs_and_no_secret() {
    let host = Host::installed("archive");
    let path = host.0.join("report.tar.gz");
    let (printed, exit) = host.run(&format!("doctor --pins /sys/fs/bpf/topstat --archive {}", path.display()));
    assert!(printed.contains("report.tar.gz is written"), "{printed}");
    assert_eq!(exit, 1, "the configuration is wrong");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let files = unpack(&path);
    let names: Vec<_> = files.iter().map(|(name, _)| name.trim_start_matches("topstat-doctor/")).collect();
    assert_eq!(names, ["doctor.txt", "doctor.jsonl", "kernel-config", "os-release", "pins.txt"]);
    for (name, text) in &files {
        assert!(!text.is_empty(), "{name} is empty");
        assert!(!text.contains(SECRET), "{name} has a secret:\n{text}");
    }
    assert!(files[0].1.contains("runs, pid 4711, changed by 2 files"), "{}", files[0].1);
    assert!(files[4].1.contains("/sys/fs/bpf/topstat/abi-4/inet/maps/constants\n"), "{}", files[4].1);
}

#[test]
fn an_archive_overwrites_nothing() {
    let host = Host::installed("there");
    host.put("report.tar.gz", "precious");
    let path = host.0.join("report.tar.gz");
    let (printed, exit) = host.run(&format!("doctor --archive {}", path.display()));
    assert!(printed.contains("it is there already; name another file"), "{printed}");
    assert_eq!((exit, fs::read_to_string(&path).unwrap().as_str()), (1, "precious"));
}
