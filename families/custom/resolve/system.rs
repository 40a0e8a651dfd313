// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's descriptions of its events: the files of tracefs, and its types.

use std::cell::OnceCell;
use std::io;
use std::path::{Path, PathBuf};

use libbpf_rs::btf::Btf;

/// Where distributions mount tracefs, and where the kernel mounts it itself below debugfs.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The system whose events are resolved. Types are loaded when they are first needed.
pub struct System {
    tracefs: PathBuf,
    btf: OnceCell<Result<Btf<'static>, String>>,
}

impl Default for System {
    fn default() -> Self {
        Self::new()
    }
}

impl System {
    /// The running system.
    pub fn new() -> Self {
        let tracefs = TRACEFS.iter().find(|path| Path::new(path).join("events").is_dir()).unwrap_or(&TRACEFS[0]);
        Self::at(tracefs)
    }

    /// A system whose tracefs is in the given folder.
    pub fn at(tracefs: impl Into<PathBuf>) -> Self {
        Self { tracefs: tracefs.into(), btf: OnceCell::new() }
    }

    /// The folder of a group of events for each folder in it, and of an event for each folder in that.
    pub(super) fn events(&self) -> PathBuf {
        self.tracefs.join("events")
    }

    /// The kernel's types.
    pub(super) fn btf(&self) -> Result<&Btf<'static>, String> {
        let load = || {
            Btf::from_vmlinux().map_err(|error| {
                format!("cannot read the kernel's types ({error}): the kernel needs CONFIG_DEBUG_INFO_BTF=y")
            })
        };
        self.btf.get_or_init(load).as_ref().map_err(Clone::clone)
    }

    /// The message for a file of tracefs that can't be read, with the remedy.
    pub(super) fn unreadable(&self, path: &Path, error: &io::Error) -> String {
        let remedy = match error.kind() {
            io::ErrorKind::PermissionDenied => ": this needs root".to_owned(),
            io::ErrorKind::NotFound if !self.events().is_dir() => {
                format!(": tracefs is not mounted; run 'mount -t tracefs tracefs {}' as root", self.tracefs.display())
            }
            _ => String::new(),
        };
        format!("cannot read {} ({error}){remedy}", path.display())
    }
}
