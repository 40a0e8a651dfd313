// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The owners of subordinate uids: see subuid(5).
//!
//! A user may run programs under tens of thousands of subordinate uids in a user namespace (newuidmap), and keeps all groups
//! there. All these uids count as their owner; otherwise the owner would get a share for each uid. `/etc/subuid`, which all users
//! may read, names the owners. The namespace of a process has an owner, too (`NS_GET_OWNER_UID`), but opening `/proc/PID/ns/user`
//! of another user's process takes CAP_SYS_PTRACE. The daemon gives this capability up, since it gives access to every process of
//! the host.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock::lock;

/// How long the daemon may use the old content of a changed file.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Finds the owners of uids.
#[derive(Debug, Default)]
pub struct Owners {
    /// `/etc/subuid`, and `/etc/passwd` for names. Without these files each uid is a user.
    files: Option<(PathBuf, PathBuf)>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    looked: Option<Instant>,
    /// Device, inode, size, and time of change (s, ns) of the file from which `ranges` was read.
    stamp: Option<[i64; 5]>,
    ranges: Vec<Range>,
}

/// Uids `first` to `last`, which are subordinate to `owner`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u32,
    last: u32,
    owner: u32,
}

impl Owners {
    /// The owners that the files of this host name.
    pub fn of_host() -> Self {
        Self { files: Some(("/etc/subuid".into(), "/etc/passwd".into())), known: Mutex::default() }
    }

    /// The owner of a subordinate uid, which is never root. Any other uid is its own owner.
    pub fn of(&self, uid: u32) -> u32 {
        let Some((subuid, passwd)) = self.files.as_ref().filter(|_| uid != 0) else { return uid };
        let mut known = lock(&self.known);
        if known.looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY) {
            known.look(subuid, passwd);
        }
        let range = known.ranges.iter().find(|range| (range.first..=range.last).contains(&uid));
        range.map_or(uid, |range| range.owner)
    }
}

impl Known {
    /// Reads the file again if it has changed. A file that can't be read has no ranges.
    fn look(&mut self, subuid: &Path, passwd: &Path) {
        self.looked = Some(Instant::now());
        let stamp = fs::metadata(subuid).ok().map(|file| {
            [
                file.dev().cast_signed(),
                file.ino().cast_signed(),
                file.size().cast_signed(),
                file.ctime(),
                file.ctime_nsec(),
            ]
        });
        if self.stamp != stamp {
            let text = |path| fs::read_to_string(path).unwrap_or_default();
            self.ranges = ranges(&text(subuid), &text(passwd));
            self.stamp = stamp;
        }
    }
}

/// The ranges of a file, in the order of its lines. If the owner is root, or its uid is not known, the first subordinate uid
/// stands for the owner: containers of root must not take root's share.
fn ranges(subuid: &str, passwd: &str) -> Vec<Range> {
    let user = |line: &'_ str| {
        let mut fields = line.split(':');
        let (name, uid) = (fields.next()?.to_owned(), fields.nth(1)?.parse().ok()?);
        Some((name, uid))
    };
    let users: HashMap<String, u32> = passwd.lines().filter_map(user).collect();
    let mut firsts = HashMap::new();
    let range = |line: &str| {
        let mut fields = line.trim().split(':');
        let (name, first, count) = (fields.next()?, fields.next()?.parse().ok()?, fields.next()?.parse::<u32>().ok()?);
        let last = count.checked_sub(1)?.saturating_add(first);
        let of_owner = *firsts.entry(name.to_owned()).or_insert(first);
        let owner = name.parse().ok().or_else(|| users.get(name).copied()).filter(|uid| *uid != 0);
        Some(Range { first, last, owner: owner.unwrap_or(of_owner) })
    };
    subuid.lines().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subordinate_uids_are_their_owners() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nbroken\n";
        let subuid = "ann:100000:65536\n1001:200000:10\nroot:300000:10\nldap:400000:10\nldap:500000:10\n\
                      ann:600000:10\nnone:1:0\nann:x:1\n# a line\nend:4294967290:4294967295\n";
        let ranges = ranges(subuid, passwd);
        let of =
            |uid: u32| ranges.iter().find(|range| (range.first..=range.last).contains(&uid)).map(|range| range.owner);
        for (uids, owner) in [
            (&[100_000, 165_535, 600_009][..], Some(1000)),
            (&[200_000, 200_009], Some(1001)),
            (&[300_000, 300_009], Some(300_000)),
            (&[400_000, 400_009, 500_000], Some(400_000)),
            (&[4_294_967_290, u32::MAX], Some(4_294_967_290)),
            (&[1, 1000, 99_999, 165_536, 200_010, 600_010], None),
        ] {
            assert!(uids.iter().all(|uid| of(*uid) == owner), "{uids:?} {owner:?}");
        }
    }

    #[test]
    fn a_file_that_has_changed_is_read_again() {
        let folder = std::env::temp_dir().join(format!("topstat-owners-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let (subuid, passwd) = (folder.join("subuid"), folder.join("passwd"));
        let owners = Owners { files: Some((subuid.clone(), passwd)), known: Mutex::default() };
        assert_eq!(owners.of(100_000), 100_000, "there is no file");
        fs::write(&subuid, "1000:100000:10\n").unwrap();
        assert_eq!(owners.of(100_000), 100_000, "the file is looked at once a second");
        let later = |owners: &Owners| owners.known.lock().unwrap().looked = None;
        later(&owners);
        assert_eq!([100_000, 100_009, 100_010, 0].map(|uid| owners.of(uid)), [1000, 1000, 100_010, 0]);
        fs::write(&subuid, "1000:100000:10\n1001:100010:10\n").unwrap();
        later(&owners);
        assert_eq!(owners.of(100_010), 1001);
        fs::remove_dir_all(&folder).unwrap();
        later(&owners);
        assert_eq!(owners.of(100_010), 100_010);
        assert_eq!(Owners::default().of(100_010), 100_010);
    }
}
