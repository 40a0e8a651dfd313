// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory that the daemon may take. If the limit of its control group is too small for loading, the log says so beforehand:
//! the kernel kills a process at the limit, and that process can't say why.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that loading all families takes at its peak, with the kernel's programs, and without the tables: docs/daemon.md has
/// the measurement.
const LOADING: u64 = 34 << 20;
/// Bytes of all tables for each possible CPU.
const EACH_CPU: u64 = 13 << 20;

/// A warning if the memory limit of the daemon's control group is too small for loading.
pub fn too_small(cpus: u32) -> Option<String> {
    let needs = LOADING + EACH_CPU * u64::from(cpus);
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let (limit, file) = limit(Path::new("/sys/fs/cgroup"), &groups)?;
    (limit < needs).then(|| {
        format!(
            "the control group has a memory limit of {} MB ({}), and loading all samples takes about {} MB with {cpus} CPUs: \
             the kernel kills the daemon at the limit; allow more (MemoryMax=), or switch samples off in the configuration",
            limit >> 20,
            file.display(),
            needs >> 20
        )
    })
}

/// The smallest limit of a control group and all groups above it, and the file with the limit. The file belongs to cgroup v2, or
/// to the memory controller of v1.
fn limit(mount: &Path, groups: &str) -> Option<(u64, PathBuf)> {
    let of = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let (mount, name) = match controllers {
            "" => (mount.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => (mount.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        let group = mount.join(path.trim_start_matches('/'));
        let above = group.ancestors().take_while(|group| group.starts_with(&mount));
        let limits = above.map(|group| group.join(name)).filter_map(|file| {
            // "max" is no number: there is no limit.
            Some((fs::read_to_string(&file).ok()?.trim().parse().ok()?, file))
        });
        limits.min_by_key(|(limit, _)| *limit)
    };
    groups.lines().filter_map(of).min_by_key(|(limit, _)| *limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_above_counts() {
        let mount = std::env::temp_dir().join(format!("topstat-allowance-{}", std::process::id()));
        let _ = fs::remove_dir_all(&mount);
        let set = |file: &str, text: &str| {
            let path = mount.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        set("system.slice/memory.max", "41943040\n");
        set("system.slice/topstat.service/memory.max", "max\n");
        set("memory/a/memory.limit_in_bytes", "9223372036854771712\n");
        set("memory/a/b/memory.limit_in_bytes", "100\n");
        let of = |groups: &str| {
            limit(&mount, groups).map(|(limit, file)| (limit, file.strip_prefix(&mount).unwrap().to_owned()))
        };
        let small = Some((41_943_040, "system.slice/memory.max".into()));
        assert_eq!(of("0::/system.slice/topstat.service\n"), small);
        assert_eq!(of("0::/system.slice\n1:cpu:/a/b\n"), small);
        assert_eq!(of("0::/\n9:cpu,memory:/a/b\n"), Some((100, "memory/a/b/memory.limit_in_bytes".into())));
        assert_eq!(of("0::/elsewhere\n"), None);
        fs::remove_dir_all(&mount).unwrap();
    }
}
