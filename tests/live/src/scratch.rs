// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory for a test's files.

use std::path::{Path, PathBuf};

/// A directory that is removed with this.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes one, for what is called so.
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("topstat-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
