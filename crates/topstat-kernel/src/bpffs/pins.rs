// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where state is pinned, and by which build.

use std::path::{Path, PathBuf};

/// Where state is pinned unless the user says otherwise.
pub const DEFAULT_DIR: &str = "/sys/fs/bpf/topstat";

/// Where state is pinned.
#[derive(Clone, Debug)]
pub struct Pins {
    dir: PathBuf,
    build: String,
}

impl Default for Pins {
    fn default() -> Self {
        Self::at(Path::new(DEFAULT_DIR))
    }
}

impl Pins {
    /// In this directory of a BPF file system.
    pub fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), build: String::new() }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Has this program pass for another build, whose programs have to be replaced: for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn as_build(self, build: &str) -> Self {
        Self { build: build.to_owned(), ..self }
    }

    /// What tells builds of these programs apart.
    pub(crate) fn build_of(&self, object: &[u8]) -> String {
        use sha2::Digest as _;
        let digest = sha2::Sha256::new().chain_update(object).chain_update(&self.build).finalize();
        digest.iter().take(BUILD_BYTES).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Of a build's hash: as many as tell any two apart.
const BUILD_BYTES: usize = 16;

/// What [`adopt`](crate::pinned::adopt) did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopted {
    /// Nothing was pinned, or nothing that could be used: loaded, and pinned.
    Loaded,
    /// It was there, of this very build.
    Found,
    /// It was there; programs of another build, or such as were missing, were replaced.
    Upgraded,
}
