// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs commands on other kernels than the host's. It fetches Debian's kernels (or builds one for debugging), boots them
//! under QEMU with the host's root shared read-only, and watches output, exit code and kernel log.
//!
//! `README.md` beside this crate describes the usage. The modules follow the steps of a run: [`kernel`] and [`debug`] put a
//! kernel into the [`cache`] (with [`apt`]), [`qemu`] and [`guest`] boot it and run commands, [`klog`] judges its log,
//! [`matrix`] does this for many kernels, [`summary`] prints the results.

pub mod apt;
pub mod cache;
pub mod debug;
pub mod deps;
pub mod guest;
pub mod kbuild;
pub mod kernel;
pub mod klog;
pub mod matrix;
pub mod qemu;
pub mod root;
pub mod session;
pub mod source;
pub mod summary;
pub mod watch;

/// The reason why this host can't run guests at all, which is no failure of the tested command.
///
/// The program then ends with [`EXIT_SKIPPED`], unless `--require` is given.
#[derive(Debug)]
pub struct Unavailable(pub String);

impl std::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// Exit code of a test that could not run (as in Automake): of a command in the guest, and of this program.
pub const EXIT_SKIPPED: i32 = 77;

/// Exit code after the time limit of a command, as with `timeout(1)`.
pub const EXIT_TIMED_OUT: i32 = 124;

/// Exit code if the guest crashed, its log has a report, or it could not run: the command's own exit code is unknown or
/// unreliable.
pub const EXIT_GUEST: i32 = 125;
