// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounts that only a thread and its processes see.

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives this thread, and the processes that it starts, a new mount namespace. What is mounted there from now on is seen by no
/// other process, and is gone with the last process of the namespace.
pub fn keep_to_this_thread() {
    // SAFETY: no other thread of this process needs to share the mounts of this thread.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.expect("a mount namespace");
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).expect("keep mounts to this thread");
}
