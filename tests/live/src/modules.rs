// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat.ko` and its observers, loaded by a test, and removed on drop.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::eventually;

/// The folder of the modules, built for the running kernel. Tests that load modules run in guests only.
const FOLDER: &str = "TOPSTAT_KMOD";

/// The root of the module's files.
pub const ROOT: &str = "/proc/topstat";

/// A module can't be removed while another process reads one of its files.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why the modules can't be loaded.
pub fn missing() -> Option<String> {
    let Some(folder) = folder() else {
        return Some(format!("needs {FOLDER}, the folder of topstat.ko: make kmod-test"));
    };
    (!folder.join("topstat.ko").exists())
        .then(|| format!("there is no topstat.ko in {}, named by {FOLDER}", folder.display()))
}

fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// Loaded modules.
pub struct Modules(Vec<&'static str>);

impl Modules {
    /// Loads `topstat.ko`, and then these observers.
    pub fn load(observers: &[&'static str]) -> Self {
        let folder = folder().expect("Need::KernelModule");
        let mut loaded = Self(Vec::new());
        for name in ["topstat"].iter().chain(observers) {
            let output = Command::new("insmod").arg(folder.join(format!("{name}.ko"))).output().expect("run insmod");
            assert!(output.status.success(), "insmod {name}.ko: {}", String::from_utf8_lossy(&output.stderr));
            loaded.0.push(name);
        }
        loaded
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        while let Some(name) = self.0.pop() {
            let gone = || !Path::new("/sys/module").join(name).exists();
            let remove = || Command::new("rmmod").arg(name).output().is_ok_and(|output| output.status.success());
            if !eventually(PATIENCE, || remove() || gone()) {
                eprintln!("cannot remove the module {name}");
            }
        }
    }
}
