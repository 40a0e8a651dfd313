// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The original settings of a device, in a file for as long as a lab changes them. After a lab was killed, the next lab restores
//! them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::net::netdevice::index_to_name_inlined;
use rustix::net::{AddressFamily, SocketType, socket};
use serde::{Deserialize, Serialize};

use super::place::Place;
use super::settings::Settings;

/// The directory of the files. Like the settings, it is gone after a restart of the host.
const DIRECTORY: &str = "/run/topstat-lab";
/// The number of the files' form.
const FORM: u32 = 1;
/// The longest file that is read: a file has some kilobytes, most of them for the queues of the device.
const MOST_BYTES: u64 = 1 << 20;

/// A lab's claim to this host, or rather to this network namespace. Another lab is refused, since the labs would measure each
/// other and change what the other has saved.
#[derive(Debug)]
pub struct Claim {
    /// The file is locked as long as it is open. The kernel closes it when the process ends, in whatever way.
    _lock: File,
    path: PathBuf,
    record: PathBuf,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The file is removed while it is locked, so that no other process has it.
        let _ = fs::remove_file(&self.path);
    }
}

fn cannot(what: &Path, why: &dyn std::fmt::Display) -> String {
    format!("cannot write {}: {why}; run as root", what.display())
}

/// The contents of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    form: u32,
    device: String,
    /// The index and the address tell the device from another device of the same name.
    index: u32,
    address: String,
    settings: Settings,
}

impl Claim {
    /// Takes the claim.
    ///
    /// # Errors
    ///
    /// When another lab has the claim, or this user may not take it.
    pub fn take() -> Result<Self, String> {
        Self::take_in(Path::new(DIRECTORY))
    }

    fn take_in(directory: &Path) -> Result<Self, String> {
        // No other user may write to the directory, since settings are restored from it.
        if let Err(e) = DirBuilder::new().mode(0o700).create(directory)
            && e.kind() != ErrorKind::AlreadyExists
        {
            return Err(cannot(directory, &e));
        }
        let about = fs::symlink_metadata(directory).map_err(|e| cannot(directory, &e))?;
        if !about.is_dir() || about.uid() != rustix::process::geteuid().as_raw() || about.mode() & 0o022 != 0 {
            return Err(format!("{} must be a directory that only its owner, this user, writes", directory.display()));
        }
        let namespace =
            fs::metadata("/proc/self/ns/net").map_err(|e| format!("cannot tell the network namespace: {e}"))?;
        let path = directory.join(format!("{}.lock", namespace.ino()));
        let mut lock = loop {
            let lock = Self::lock(&path)?;
            // The owner before may have removed the file: the next lab would then lock a new file. So the locked file must be the
            // one of this path.
            let inode = |about: std::io::Result<fs::Metadata>| about.map(|about| about.ino()).ok();
            if inode(lock.metadata()) == inode(fs::metadata(&path)) {
                break lock;
            }
        };
        let written = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
        written.map_err(|e| cannot(&path, &e))?;
        Ok(Self { _lock: lock, path, record: directory.join(format!("{}.json", namespace.ino())) })
    }

    fn lock(path: &Path) -> Result<File, String> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(path).map_err(|e| cannot(path, &e))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(lock),
            Err(rustix::io::Errno::AGAIN) => {
                let pid = fs::read_to_string(path).unwrap_or_default();
                Err(format!("another lab is at work here (process {}): end it first", pid.trim()))
            }
            Err(e) => Err(cannot(path, &e)),
        }
    }

    /// Saves the settings of a device.
    ///
    /// # Errors
    ///
    /// When the settings can't be read or written. Then the device must not be changed.
    pub fn save(&self, place: &Place) -> Result<(), String> {
        if self.record.exists() {
            return Err(format!("the settings in {} are not put back yet: topstat lab restore", self.record.display()));
        }
        let (link, settings) = (place.link()?, Settings::read(place)?);
        let record =
            Record { form: FORM, device: place.device.clone(), index: link.ifindex, address: link.address, settings };
        // The file is written under another name first, so that a reader never finds a part of it.
        let partial = self.record.with_extension("partial");
        let text = serde_json::to_string_pretty(&record).map_err(|e| e.to_string())?;
        let written = fs::write(&partial, text).and_then(|()| fs::rename(&partial, &self.record));
        written.map_err(|e| format!("cannot save the settings of {} in {}: {e}", place.device, self.record.display()))
    }

    /// Restores the saved settings, if there are any. Returns the device and the changes.
    ///
    /// # Errors
    ///
    /// When the settings can't be restored. Then they stay saved.
    pub fn restore(&self) -> Result<Option<Restored>, String> {
        let wrong = |why: &dyn std::fmt::Display| {
            format!("cannot read the saved settings in {}: {why}; remove it if you know better", self.record.display())
        };
        match fs::metadata(&self.record) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(wrong(&e)),
            Ok(about) if about.len() > MOST_BYTES => return Err(wrong(&format!("it has {} bytes", about.len()))),
            Ok(_) => {}
        }
        let text = fs::read_to_string(&self.record).map_err(|e| wrong(&e))?;
        let record: Record = serde_json::from_str(&text).map_err(|e| wrong(&e))?;
        if record.form != FORM {
            return Err(wrong(&format!("it is of form {}, this topstat reads form {FORM}", record.form)));
        }
        // The device may have another name by now.
        let any = socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(|e| wrong(&e))?;
        let found = match index_to_name_inlined(any, record.index) {
            Ok(name) => Some(Place::here(name.as_str())?),
            Err(rustix::io::Errno::NODEV | rustix::io::Errno::NXIO) => None,
            Err(e) => return Err(format!("cannot tell whether {} is there: {e}", record.device)),
        };
        let (mut device, mut changed) = (record.device, None);
        if let Some(place) = found
            && place.link()?.address == record.address
        {
            changed = Some(record.settings.restore(&place)?);
            device.clone_from(&place.device);
        }
        fs::remove_file(&self.record).map_err(|e| format!("cannot remove {}: {e}", self.record.display()))?;
        Ok(Some(Restored { device, changed }))
    }
}

/// The restored settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The name of the device.
    device: String,
    /// The changes; `None`: the device is gone.
    changed: Option<Vec<String>>,
}

impl std::fmt::Display for Restored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let device = &self.device;
        match self.changed.as_deref() {
            None => write!(f, "{device} is gone, and its settings with it"),
            Some([]) => write!(f, "{device} is set as it was before"),
            Some(changed) => write!(f, "put back of {device}: {}", changed.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("topstat-saved-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn a_second_claim_is_refused_as_long_as_the_first_lives() {
        let path = folder("second");
        let first = Claim::take_in(&path).unwrap();
        let refused = Claim::take_in(&path).unwrap_err();
        assert!(
            refused.contains(&format!("another lab is at work here (process {})", std::process::id())),
            "{refused}"
        );
        assert_eq!(first.restore(), Ok(None));
        drop(first);
        drop(Claim::take_in(&path).unwrap());
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "nothing stays");
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn what_others_may_write_is_not_believed() {
        use std::os::unix::fs::PermissionsExt as _;
        let path = folder("others");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let refused = Claim::take_in(&path).unwrap_err();
        assert!(refused.contains("only its owner"), "{refused}");
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn what_can_not_be_read_stays() {
        let path = folder("wrong");
        let claim = Claim::take_in(&path).unwrap();
        fs::write(&claim.record, "{").unwrap();
        let refused = claim.restore().unwrap_err();
        assert!(refused.contains("cannot read the saved settings") && refused.contains("EOF"), "{refused}");
        assert!(claim.record.exists());
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn settings_of_a_device_that_is_gone_are_forgotten() {
        let _alone = crate::settings::whole_host();
        let path = folder("gone");
        let claim = Claim::take_in(&path).unwrap();
        let loopback = Place::here("lo").unwrap();
        claim.save(&loopback).unwrap();
        assert_eq!(claim.restore().unwrap().unwrap().to_string(), "lo is set as it was before");
        claim.save(&loopback).unwrap();
        let text = fs::read_to_string(&claim.record).unwrap();
        fs::write(&claim.record, text.replace("\"lo\"", "\"nosuch0\"").replace("\"index\": 1,", "\"index\": 999999,"))
            .unwrap();
        assert_eq!(claim.restore().unwrap().unwrap().to_string(), "nosuch0 is gone, and its settings with it");
        assert_eq!(claim.restore(), Ok(None));
        fs::remove_dir_all(&path).unwrap();
    }
}
