// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The units of systemd: read from files, since systemd itself may not run, or not answer.

use topstat_kernel::{Check, Outcome};

use super::host::Host;
use super::{line, ok};

/// Where systemd looks for units; the first folder that has a unit wins. See systemd.unit(5).
const FOLDERS: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// Where the control groups of services are: cgroup v2 alone, hybrid, and systemd's hierarchy of v1.
const GROUPS: [&str; 3] =
    ["/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/unified/system.slice", "/sys/fs/cgroup/systemd/system.slice"];

/// A line for each unit of topstat.
pub fn checks(host: &Host) -> Vec<Check> {
    let mut units: Vec<(String, &str)> = Vec::new();
    let folders = host.distinct(&FOLDERS);
    for folder in &folders {
        for name in host.names(folder).into_iter().filter(|name| is_unit(name)) {
            if !units.iter().any(|(unit, _)| *unit == name) {
                units.push((name, *folder));
            }
        }
    }
    units.sort();
    if units.is_empty() {
        return vec![ok("units", "none are installed")];
    }
    units.iter().map(|(name, folder)| check(host, name, folder, &folders)).collect()
}

fn is_unit(name: &str) -> bool {
    name.starts_with("topstat") && (name.ends_with(".service") || name.ends_with(".socket"))
}

fn check(host: &Host, name: &str, folder: &str, folders: &[&str]) -> Check {
    let file = format!("{folder}/{name}");
    let Some(text) = host.read(&file) else {
        return line(name, Outcome::Unknown, format!("{file} can't be read, or is masked"), "");
    };
    let mut found = vec![file, if is_enabled(host, name) { "enabled" } else { "not enabled" }.to_owned()];
    if let Some(pid) = pid(host, name) {
        found.push(format!("runs, pid {pid}"));
    }
    let changes: usize = folders.iter().map(|folder| host.names(format!("{folder}/{name}.d")).len()).sum();
    if changes > 0 {
        found.push(format!("changed by {changes} files (systemctl cat {name})"));
    }
    let program = text.lines().find_map(|line| line.strip_prefix("ExecStart=")?.split_whitespace().next());
    let found = found.join(", ");
    match program.map(|program| program.trim_start_matches(['-', '@', ':', '+', '!'])) {
        Some(program) if !host.at(program).is_file() => {
            line(name, Outcome::Missing, format!("{found}; {program} is missing"), "install topstat again")
        }
        _ => ok(name, found),
    }
}

/// Whether another unit starts it: a link of `systemctl enable`.
fn is_enabled(host: &Host, name: &str) -> bool {
    let wants = |folder: &str| {
        let mut names = host.names(folder).into_iter();
        names
            .any(|dir| dir.ends_with(".wants") && host.names(format!("{folder}/{dir}")).iter().any(|unit| unit == name))
    };
    FOLDERS.into_iter().any(wants)
}

/// The first process in the control group of a service.
fn pid(host: &Host, name: &str) -> Option<String> {
    let of = |group: &str| host.read(format!("{group}/{name}/cgroup.procs"))?.lines().next().map(str::to_owned);
    GROUPS.into_iter().find_map(of)
}
