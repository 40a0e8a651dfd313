// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file of a program or a library that has a probe.

use std::env;
use std::path::{Path, PathBuf};

/// Folders of programs. The folders of libraries are searched first.
const PROGRAMS: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/usr/sbin", "/bin"];

/// The path as it is; a name without a slash (`libc.so.6`, `bash`) is searched in the usual folders, which distributions and
/// architectures have at different places.
///
/// # Errors
/// No folder has a file of this name, in the words for the user.
pub fn of(name: &str) -> Result<PathBuf, String> {
    if name.contains('/') {
        return Ok(name.into());
    }
    let folders: Vec<PathBuf> = libraries().chain(PROGRAMS.map(PathBuf::from)).collect();
    let found = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| {
        let all: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
        format!("there is no {name} in {}; give its whole path", all.join(", "))
    })
}

/// Folders of libraries: Debian's folder for this architecture, the folder for 64 bits of other distributions, and the general
/// folder.
fn libraries() -> impl Iterator<Item = PathBuf> {
    ["/usr/local/lib", "/usr/lib", "/lib"].into_iter().flat_map(|folder| {
        let folder = Path::new(folder);
        let multiarch = folder.join(format!("{}-linux-gnu", env::consts::ARCH));
        [multiarch, PathBuf::from(format!("{}64", folder.display())), folder.to_owned()]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_left_as_it_is() {
        assert_eq!(of("/nowhere/at all"), Ok("/nowhere/at all".into()));
        assert_eq!(of("./own"), Ok("./own".into()));
    }

    #[test]
    fn a_name_is_searched() {
        let shell = of("sh").expect("every host has a shell");
        assert!(shell.is_file() && shell.ends_with("sh"), "{}", shell.display());
        let why = of("lib-no-host-has.so.0").expect_err("no such library");
        assert!(why.starts_with("there is no lib-no-host-has.so.0 in /usr/local/lib/"), "{why}");
        assert!(why.ends_with("; give its whole path"), "{why}");
    }
}
