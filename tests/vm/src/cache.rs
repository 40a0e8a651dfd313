// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where kernels are kept, and who may write there.
//!
//! ```text
//! <cache>/fetch.lock                held by whoever uses apt, fetches or cleans
//! <cache>/build.lock                held by whoever builds the debug tier's kernel or cleans
//! <cache>/apt/                      private state of apt: sources, lists, downloads
//! <cache>/series/<series>.json      which kernel a series stands for: package, version, release
//! <cache>/kernels/<release>/        vmlinuz, config, kernel.json, boot-modules/*.ko, lib/modules/<release>/
//! <cache>/kernels/debug-<hash>/     the same for the debug tier, with build.log
//! ```
//!
//! A folder of `kernels/` is made under another name and renamed when complete: what is there can be used without a lock.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fs4::FileExt;

/// The cache's folder.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// What may be done to the cache by one at a time. Who needs both takes `Build` first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Downloads, which share apt's state.
    Fetch,
    /// The debug tier's kernel: minutes, in which others may fetch.
    Build,
}

/// Held while the cache is changed; others wait. Released on drop.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Cache {
    /// The cache at `TOPSTAT_VM_CACHE`, else `$XDG_CACHE_HOME/topstat/vm`, else `.cache/vm` of the repository.
    pub fn from_env() -> Self {
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let root = var("TOPSTAT_VM_CACHE")
            .or_else(|| var("XDG_CACHE_HOME").map(|xdg| xdg.join("topstat/vm")))
            .unwrap_or_else(|| repository().join(".cache/vm"));
        Self { root: std::path::absolute(&root).unwrap_or(root) }
    }

    /// The cache at `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Its folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of the private apt state.
    pub fn apt(&self) -> PathBuf {
        self.root.join("apt")
    }

    /// The folder with one folder per kernel.
    pub fn kernels(&self) -> PathBuf {
        self.root.join("kernels")
    }

    /// The file that says which kernel `series` stands for.
    pub fn series_file(&self, series: &str) -> PathBuf {
        self.root.join("series").join(format!("{series}.json"))
    }

    /// Waits for, and takes, the right to do `work`.
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

/// The repository's root: two levels above this crate.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
