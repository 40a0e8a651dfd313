// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs that go offline and come back.

use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io};

use crate::eventually;

/// A CPU that is offline as long as this value lives.
pub struct Offline(PathBuf);

impl Offline {
    /// Takes the CPU offline. Only on a machine that belongs to the tests, such as a guest ([`Need::SpareCpu`](crate::Need)):
    /// all processes there lose the CPU.
    pub fn take(cpu: usize) -> Self {
        let this = Self(PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/online")));
        this.set("0").unwrap_or_else(|e| panic!("take CPU {cpu} offline: {e}"));
        this
    }

    /// The CPU may still be busy with the opposite change.
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
