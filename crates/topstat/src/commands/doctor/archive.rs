// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The archive for a report of a fault. Its list of files is fixed. None of these files may hold a secret: no environment, no command
//! line, no address, no row of a table, no text of a user's configuration.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};
use topstat_kernel::Check;

use super::host::Host;
use super::{check, kernel};
use crate::daemon::mount;
use crate::error::Error;

/// The folder in the archive.
const FOLDER: &str = "topstat-doctor";

/// Writes the archive to a new file, which only its owner may read.
///
/// # Errors
///
/// The file exists, or can't be written. A file that was begun is removed.
pub fn write(path: &Path, host: &Host, checks: &[Check]) -> Result<(), Error> {
    let failed = |error: io::Error| Error::File {
        path: path.to_owned(),
        why: match error.kind() {
            io::ErrorKind::AlreadyExists => "it is there already; name another file".to_owned(),
            _ => error.to_string(),
        },
    };
    let file = File::options().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    pack(file, &contents(host, checks)).map_err(|error| {
        let _ = fs::remove_file(path);
        failed(error)
    })
}

/// The files of the archive.
fn contents(host: &Host, checks: &[Check]) -> Vec<(&'static str, String)> {
    let mut files = vec![("doctor.txt", check::text(checks, false)), ("doctor.jsonl", check::json(checks))];
    files.extend(kernel::configuration(host).map(|text| ("kernel-config", text)));
    files.extend(host.read("/etc/os-release").map(|text| ("os-release", text)));
    files.push(("pins.txt", pins(host)));
    // A tree that does not answer would keep this process waiting.
    let tree = host.at(&host.mount);
    if mount::is_tree(&tree) && mount::is_silent(&tree).is_none() {
        files.extend(host.read(host.mount.join("self.json")).map(|text| ("self.json", text)));
    }
    files
}

/// The paths of all pins, without their contents.
fn pins(host: &Host) -> String {
    fn add(host: &Host, folder: &Path, text: &mut String) {
        for name in host.names(folder) {
            let path = folder.join(name);
            *text += &format!("{}\n", path.display());
            if fs::symlink_metadata(host.at(&path)).is_ok_and(|metadata| metadata.is_dir()) {
                add(host, &path, text);
            }
        }
    }
    let mut text = String::new();
    add(host, &host.pins, &mut text);
    text
}

fn pack(file: File, files: &[(&str, String)]) -> io::Result<()> {
    let mut archive = Builder::new(GzEncoder::new(file, Compression::default()));
    for (name, text) in files {
        let mut header = Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        archive.append_data(&mut header, format!("{FOLDER}/{name}"), text.as_bytes())?;
    }
    let mut file = archive.into_inner()?.finish()?;
    file.flush()?;
    file.sync_all()
}
