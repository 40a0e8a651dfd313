// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs that go and come.

use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io};

use crate::eventually;

/// A CPU that is offline as long as this lives.
pub struct Offline(PathBuf);

impl Offline {
    /// Takes it. On a host that is the tests' own, as guests are ([`Need::SpareCpu`](crate::Need)): all who run
    /// there lose it.
    pub fn take(cpu: usize) -> Self {
        let this = Self(PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/online")));
        this.set("0").unwrap_or_else(|e| panic!("take CPU {cpu} offline: {e}"));
        this
    }

    /// A CPU may be busy with going the other way.
    fn set(&self, value: &str) -> io::Result<()> {
        let mut last = Ok(());
        eventually(Duration::from_secs(5), || {
            last = fs::write(&self.0, value);
            last.is_ok()
        });
        last
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        if let Err(e) = self.set("1") {
            eprintln!("{}: {e}", self.0.display());
        }
    }
}
