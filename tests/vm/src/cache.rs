// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The folder of kernels, and its locks.
//!
//! ```text
//! <cache>/fetch.lock                held by a process that uses apt, fetches or cleans
//! <cache>/build.lock                held by a process that builds the debug tier's kernel or cleans
//! <cache>/apt/                      private state of apt: sources, lists, downloads; apt-arm64/ for the other architecture
//! <cache>/series/<series>.json      the kernel of a series: package, version, release; <series>-<flavour>.json for aarch64
//! <cache>/root-arm64/               the root of guests of arm64
//! <cache>/kernels/<release>/        vmlinuz, config, kernel.json, boot-modules/*.ko, lib/modules/<release>/
//! <cache>/kernels/debug-<hash>/     these files for the debug tier, with build.log
//! ```
//!
//! A folder of `kernels/` is made under another name and renamed when complete: an existing folder can be used without a
//! lock.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fs4::FileExt;

use crate::qemu::{Arch, Flavour};

/// The cache's folder.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// Work on the cache that one process at a time may do. A process that needs both locks takes `Build` first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Downloads, which share the state of apt.
    Fetch,
    /// Builds of the debug tier's kernel. They take minutes, in which other processes may fetch.
    Build,
}

/// Held while the cache changes; other processes wait. Released on drop.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Cache {
    /// The cache at `TOPSTAT_VM_CACHE`, else `$XDG_CACHE_HOME/topstat/vm`, else `~/.cache/topstat/vm`.
    pub fn from_env() -> Self {
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let root = var("TOPSTAT_VM_CACHE")
            .or_else(|| var("XDG_CACHE_HOME").map(|caches| caches.join("topstat/vm")))
            .or_else(|| var("HOME").map(|home| home.join(".cache/topstat/vm")))
            .unwrap_or_else(|| repository().join(".cache/vm"));
        Self { root: std::path::absolute(&root).unwrap_or(root) }
    }

    /// The cache at `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of the private apt state for packages of an architecture.
    pub fn apt(&self, arch: Arch) -> PathBuf {
        self.root.join(of("apt", arch))
    }

    /// The root of guests that can't have the host's, since they are of another architecture.
    pub fn guest_root(&self, arch: Arch) -> PathBuf {
        self.root.join(of("root", arch))
    }

    /// The folder with one folder per kernel.
    pub fn kernels(&self) -> PathBuf {
        self.root.join("kernels")
    }

    /// The file that names the kernel of `series` of a flavour.
    pub fn series_file(&self, series: &str, flavour: Flavour) -> PathBuf {
        let name = match flavour {
            Flavour::CloudAmd64 => format!("{series}.json"),
            _ => format!("{series}-{}.json", flavour.name()),
        };
        self.root.join("series").join(name)
    }

    /// Waits for the lock of `work`, and takes it.
    pub fn lock(&self, work: Work) -> Result<Lock> {
        let path = self.root.join(match work {
            Work::Fetch => "fetch.lock",
            Work::Build => "build.lock",
        });
        fs::create_dir_all(&self.root).with_context(|| {
            format!("cannot create the cache folder {} (set TOPSTAT_VM_CACHE)", self.root.display())
        })?;
        let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        if FileExt::try_lock(&file).is_err() {
            eprintln!("topstat-vm: waiting for another topstat-vm that holds {}", path.display());
            FileExt::lock(&file).with_context(|| format!("cannot lock {}", path.display()))?;
        }
        Ok(Lock { _file: file })
    }

    /// A new folder inside the cache, to be filled and then renamed into place; removed on drop.
    pub fn scratch(&self) -> Result<tempfile::TempDir> {
        tempfile::Builder::new()
            .prefix("new-")
            .tempdir_in(&self.root)
            .with_context(|| format!("cannot create a folder in {}", self.root.display()))
    }
}

/// The name of a file or folder for one architecture. For the host's architecture it is the plain name.
fn of(name: &str, arch: Arch) -> String {
    match arch {
        Arch::Amd64 => name.to_owned(),
        Arch::Arm64 => format!("{name}-{}", arch.name()),
    }
}

/// The repository's root: two levels above this crate.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
