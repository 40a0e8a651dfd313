// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel module, as `topstat check` sees it. This program does not use it.

use std::fs;
use std::path::Path;

use crate::report::{Check, Outcome};

/// The check of the module, where it is loaded or installed; most hosts do not have it.
pub fn check(release: &str) -> Option<Check> {
    look(Path::new("/sys/module"), &Path::new("/lib/modules").join(release), env!("CARGO_PKG_VERSION"))
}

/// `loaded` has a folder for each loaded module, modprobe looks for others in `installed`, and `own` is the version of this
/// program.
fn look(loaded: &Path, installed: &Path, own: &str) -> Option<Check> {
    const NAME: &str = "kernel module";
    if !loaded.join("topstat").exists() {
        let list = fs::read_to_string(installed.join("modules.dep")).unwrap_or_default();
        let file =
            list.lines().filter_map(|line| line.split_once(':')).map(|(file, _)| file).find(|f| is_topstat(f))?;
        return Some(Check::ok(NAME, format!("installed ({file}), not loaded (modprobe topstat)")));
    }
    let version = fs::read_to_string(loaded.join("topstat/version")).unwrap_or_default();
    let version = version.trim();
    let observers = observers(loaded);
    let with = if observers.is_empty() { String::new() } else { format!(" with {}", observers.join(", ")) };
    let found = format!("topstat.ko {version} is loaded{with}: /proc/topstat");
    Some(match version == own {
        true => Check::ok(NAME, found),
        false => Check {
            name: NAME.to_owned(),
            outcome: Outcome::Degraded,
            found,
            advice: format!("this program is {own}: --root may not understand it; build both from one source"),
        },
    })
}

/// Whether a line of modules.dep names topstat.ko, which may be compressed.
fn is_topstat(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    name == "topstat.ko" || name.starts_with("topstat.ko.")
}

/// The other modules of topstat that are loaded, by name.
fn observers(loaded: &Path) -> Vec<String> {
    let entries = fs::read_dir(loaded).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("topstat_")).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check, in words, of a host with these files. `name` is part of its directory's name.
    fn said(name: &str, files: &[(&str, &str)]) -> Option<String> {
        let root = std::env::temp_dir().join(format!("topstat-module-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let check = look(&root.join("sys"), &root.join("lib"), "0.1.0");
        let _ = fs::remove_dir_all(&root);
        let check = check?;
        assert_eq!(check.name, "kernel module");
        Some(format!("{:?}: {}; {}", check.outcome, check.found, check.advice))
    }

    #[test]
    fn a_host_without_the_module_is_told_nothing() {
        assert_eq!(said("bare", &[]), None);
        assert_eq!(said("others", &[("lib/modules.dep", "kernel/net/topstat_like.ko:\nx/mytopstat.ko: y.ko\n")]), None);
        assert_eq!(said("alone", &[("sys/topstat_tcp/version", "0.1.0\n")]), None, "it can't be there alone");
    }

    #[test]
    fn what_is_installed_and_what_is_loaded_is_said_with_its_version() {
        let installed =
            ("lib/modules.dep", "kernel/a.ko:\nupdates/dkms/topstat.ko.xz:\nupdates/dkms/topstat_tcp.ko.xz: x\n");
        assert_eq!(
            said("installed", &[installed]).unwrap(),
            "Ok: installed (updates/dkms/topstat.ko.xz), not loaded (modprobe topstat); "
        );
        let loaded = [installed, ("sys/topstat/version", "0.1.0\n")];
        assert_eq!(said("loaded", &loaded).unwrap(), "Ok: topstat.ko 0.1.0 is loaded: /proc/topstat; ");
        let other = [("sys/topstat/version", "0.0.9\n"), ("sys/topstat_tcp/x", ""), ("sys/topstat_tasks/x", "")];
        assert_eq!(
            said("older", &other).unwrap(),
            "Degraded: topstat.ko 0.0.9 is loaded with topstat_tasks, topstat_tcp: /proc/topstat; this program is 0.1.0: \
             --root may not understand it; build both from one source"
        );
    }
}
