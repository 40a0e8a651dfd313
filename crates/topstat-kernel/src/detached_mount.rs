// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounts file systems of the kernel where no path leads to them.

use std::io;
use std::os::fd::OwnedFd;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// The root of a file system of this type. It is mounted for the caller alone, without a path to it.
///
/// # Errors
/// It can't be mounted.
pub fn mount(of_type: &str, attributes: MountAttrFlags) -> io::Result<OwnedFd> {
    let opened = fsopen(of_type, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&opened)?;
    Ok(fsmount(&opened, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}
