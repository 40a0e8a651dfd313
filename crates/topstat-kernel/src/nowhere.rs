// SPDX-License-Identifier: Apache-2.0 OR MIT
//! File systems of the kernel that nobody need have mounted.

use std::io;
use std::os::fd::OwnedFd;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// The root of a file system of this type, mounted for the caller alone, where no path leads to.
///
/// # Errors
/// When it can't be mounted.
pub fn mount(of_type: &str, attributes: MountAttrFlags) -> io::Result<OwnedFd> {
    let opened = fsopen(of_type, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&opened)?;
    Ok(fsmount(&opened, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}
