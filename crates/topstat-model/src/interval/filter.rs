// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The choice of tasks to show. Hidden tasks are added to `other`.

use super::Task;

/// The most bytes of a name that the kernel keeps: TASK_COMM_LEN of linux/sched.h without its zero.
const NAME_BYTES: usize = 15;

/// A task is shown if it matches at least one entry of each kind (pids, names) that has entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pids: Vec<u32>,
    names: Vec<Vec<u8>>,
}

impl Filter {
    /// A filter by any of these processes or threads, and by any of these names. All tasks match a kind without entries.
    pub fn new(pids: &[u32], names: &[String]) -> Self {
        let cut = |name: &String| name.as_bytes()[..name.len().min(NAME_BYTES)].to_vec();
        Self { pids: pids.to_vec(), names: names.iter().map(cut).collect() }
    }

    /// Whether the task is shown.
    pub fn matches(&self, task: &Task) -> bool {
        let pid = self.pids.is_empty() || self.pids.contains(&task.tgid) || self.pids.contains(&task.pid);
        pid && (self.names.is_empty() || self.names.iter().any(|name| is_name(name, &task.comm)))
    }
}

/// The kernel cuts a name at a byte: the rest of a cut character has become U+FFFD.
fn is_name(wanted: &[u8], comm: &str) -> bool {
    wanted == comm.as_bytes() || wanted.len() == NAME_BYTES && String::from_utf8_lossy(wanted) == comm
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_as_the_kernel_cuts_them() {
        let filter = |name: &str| {
            let bytes = name.as_bytes()[..name.len().min(NAME_BYTES)].to_vec();
            Filter { pids: vec![], names: vec![bytes] }
        };
        let task = |comm: &str| Task { comm: comm.to_owned(), pid: 7, tgid: 5, ..Task::default() };
        assert!(filter("kworker/u8:1-events_unbound").matches(&task("kworker/u8:1-ev")));
        assert!(filter("make").matches(&task("make")) && !filter("make").matches(&task("cmake")));
        // 14 bytes and the first byte of a two-byte character.
        assert!(filter("aaaaaaaaaaaaaaä").matches(&task("aaaaaaaaaaaaaa\u{fffd}")));
        let of = |pid: u32| Filter { pids: vec![pid], names: vec![] };
        assert!(of(5).matches(&task("a")) && of(7).matches(&task("a")) && !of(6).matches(&task("a")));
    }
}
