// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How tables are loaded.

/// The default number of rows of a table.
pub const DEFAULT_TOP: u32 = 128;
/// The most rows a table can keep.
pub const MAX_TOP: u32 = 1024;
/// The most control groups that can be told apart where the kernel has no storage for them: 3 MiB.
pub const MAX_GROUPS: u32 = 8192;

/// The options of loading tables.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rows each table keeps, 1 to [`MAX_TOP`].
    pub top: u32,
    /// The period of dynamic tables, 1 to 3,600,000 ms.
    pub period_ms: u32,
    /// An object is ordered at most once per delay, 0 to 3,600,000 ms.
    pub delay_ms: u32,
    /// Whether snapshots list the rows of every CPU, too, and not only its total.
    pub cpu_rows: bool,
    /// Whether objects are threads instead of processes.
    pub threads: bool,
    /// Control groups that can be told apart where the kernel has no storage for them, 1 to [`MAX_GROUPS`].
    pub groups: u32,
    /// The network namespace whose counters are read, in the user's words; `None`: the caller's.
    pub netns: Option<String>,
    /// The counter by which network namespaces are ranked: `tcp/RetransSegs`.
    pub by: Option<String>,
    /// Control groups below this level count to their ancestor on it, where the kernel keeps their counters; the root's level is
    /// 0. `None`: each group counts alone.
    pub depth: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            top: DEFAULT_TOP,
            period_ms: 1000,
            delay_ms: 0,
            cpu_rows: false,
            threads: false,
            groups: MAX_GROUPS,
            netns: None,
            by: None,
            depth: None,
        }
    }
}
