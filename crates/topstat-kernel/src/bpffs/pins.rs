// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The directory of pinned state, and the build that pins it.

use std::path::{Path, PathBuf};

/// The default directory of pinned state.
pub const DEFAULT_DIR: &str = "/sys/fs/bpf/topstat";

/// The directory of pinned state, and the build that pins it.
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
    /// State in this directory of a BPF file system.
    pub fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), build: String::new() }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Has this program pass for another build, so that pinned programs are replaced: for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn as_build(self, build: &str) -> Self {
        Self { build: build.to_owned(), ..self }
    }

    /// A text that tells builds of these programs apart.
    pub(crate) fn build_of(&self, object: &[u8]) -> String {
        use sha2::Digest as _;
        let digest = sha2::Sha256::new().chain_update(object).chain_update(&self.build).finalize();
        digest.iter().take(BUILD_BYTES).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Bytes of a build's hash: enough to tell any two builds apart.
const BUILD_BYTES: usize = 16;

/// The result of [`adopt`](crate::pinned::adopt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopted {
    /// No usable state was pinned: it was loaded, and pinned.
    Loaded,
    /// The state was there, of this very build.
    Found,
    /// The state was there; programs that were missing, or of another build, were replaced.
    Upgraded,
}
