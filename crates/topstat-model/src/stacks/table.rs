// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of samples: the choice of samples, and the key that they are counted by.

use std::collections::HashMap;

use super::{Category, Found, Profile, Sample, Side, View};

/// The key that samples are counted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// The category of the function.
    #[default]
    Categories,
    /// The function.
    Symbols,
    /// The whole stack, folded: the process, and functions from the outermost to the innermost.
    Stacks,
    /// The CPU.
    Cpus,
    /// The side.
    Sides,
    /// The process.
    Processes,
    /// Its control group.
    Cgroups,
}

impl By {
    /// The name of the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Categories => "categories",
            Self::Symbols => "symbols",
            Self::Stacks => "stacks",
            Self::Cpus => "cpus",
            Self::Sides => "sides",
            Self::Processes => "processes",
            Self::Cgroups => "cgroups",
        }
    }

    /// The names of the columns of a row's key.
    pub fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Categories => &["category"],
            Self::Symbols => &["symbol", "module", "category"],
            Self::Stacks => &["stack"],
            Self::Cpus => &["cpu"],
            Self::Sides => &["side"],
            Self::Processes => &["pid", "comm"],
            Self::Cgroups => &["cgroup"],
        }
    }

    /// Whether its rows are split into categories.
    pub fn is_split(self) -> bool {
        matches!(self, Self::Cpus | Self::Sides | Self::Processes | Self::Cgroups)
    }

    fn key(self, sample: &Sample, view: View) -> Vec<String> {
        let category = || name_of(sample.found[view as usize]).to_owned();
        match self {
            Self::Categories => vec![category()],
            Self::Symbols => {
                let leaf = sample.stack.get(sample.leaf[view as usize]);
                let name = leaf.map_or_else(|| UNKNOWN.to_owned(), |frame| frame.name.clone());
                vec![name, leaf.and_then(|frame| frame.module.clone()).unwrap_or_default(), category()]
            }
            Self::Stacks => vec![sample.folded()],
            Self::Cpus => vec![sample.cpu.to_string()],
            Self::Sides => vec![sample.side.name().to_owned()],
            Self::Processes => vec![sample.pid.to_string(), sample.comm.clone()],
            Self::Cgroups => vec![sample.cgroup.clone().unwrap_or_else(|| UNKNOWN.to_owned())],
        }
    }
}

/// Stands for a missing name or category.
pub const UNKNOWN: &str = "-";

/// The name of the category in tables.
pub fn name_of(found: Found) -> &'static str {
    found.category().map_or("unclassified", Category::name)
}

impl Sample {
    /// The stack in the format of flame graphs: the process, then its functions from the outermost to the innermost.
    pub fn folded(&self) -> String {
        let mut folded = self.comm.replace([';', ' '], "_");
        for frame in self.stack.iter().rev() {
            folded.push(';');
            folded += &frame.name;
        }
        folded
    }
}

/// The choice of samples, and the key that they are counted by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The key.
    pub by: By,
    /// The rule that assigns samples to functions.
    pub view: View,
    /// Only these sides; all if the list is empty. The lists below work likewise.
    pub sides: Vec<Side>,
    /// Only on these CPUs.
    pub cpus: Vec<u32>,
    /// Only these processes.
    pub pids: Vec<u32>,
    /// Only processes with these names.
    pub comms: Vec<String>,
    /// Only these control groups, and the groups below them.
    pub cgroups: Vec<String>,
    /// The largest number of rows.
    pub rows: Option<usize>,
}

impl Choice {
    /// Whether a sample is chosen.
    pub fn has(&self, sample: &Sample) -> bool {
        let below = |group: &String| {
            let path = sample.cgroup.as_deref().and_then(|path| path.strip_prefix(group.trim_end_matches('/')));
            path.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        one_of(&self.sides, &sample.side)
            && one_of(&self.cpus, &sample.cpu)
            && one_of(&self.pids, &sample.pid)
            && one_of(&self.comms, &sample.comm)
            && (self.cgroups.is_empty() || self.cgroups.iter().any(below))
    }
}

fn one_of<T: PartialEq>(wanted: &[T], found: &T) -> bool {
    wanted.is_empty() || wanted.contains(found)
}

/// Samples with an equal key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key: one text for each of [`By::columns`].
    pub key: Vec<String>,
    /// The number of samples.
    pub samples: u64,
    /// The number of samples of each category, by [`Category::ALL`]. The rest is unclassified.
    pub categories: [u64; Category::ALL.len()],
}

/// The chosen samples of a profile, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The largest first.
    pub rows: Vec<Row>,
    /// The samples of rows that are left out.
    pub other: u64,
    /// All samples that were chosen.
    pub chosen: u64,
    /// The chosen samples whose category was found by name.
    pub by_name: u64,
    /// The chosen samples whose category was found by a caller.
    pub by_caller: u64,
    /// The functions of samples without a category, the largest number first.
    pub unknown: Vec<(String, u64)>,
}

impl Table {
    /// Counts the chosen samples.
    pub fn of(profile: &Profile, choice: &Choice) -> Self {
        let mut table = Self::default();
        let mut rows: HashMap<Vec<String>, Row> = HashMap::new();
        let mut unknown: HashMap<&str, u64> = HashMap::new();
        for sample in profile.samples.iter().filter(|sample| choice.has(sample)) {
            let found = sample.found[choice.view as usize];
            let key = choice.by.key(sample, choice.view);
            let row = rows.entry(key).or_insert_with_key(|key| Row {
                key: key.clone(),
                samples: 0,
                categories: [0; Category::ALL.len()],
            });
            row.samples += sample.count;
            table.chosen += sample.count;
            match found {
                Found::ByName(_) => table.by_name += sample.count,
                Found::ByCaller(_) => table.by_caller += sample.count,
                Found::Unknown => {
                    let leaf = sample.stack.get(sample.leaf[choice.view as usize]);
                    *unknown.entry(leaf.map_or(UNKNOWN, |frame| &frame.name)).or_default() += sample.count;
                }
            }
            if let Some(category) = found.category() {
                row.categories[category as usize] += sample.count;
            }
        }
        table.rows = rows.into_values().collect();
        table.rows.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.key.cmp(&b.key)));
        let kept = choice.rows.unwrap_or(usize::MAX).min(table.rows.len());
        table.other = table.rows.drain(kept..).map(|row| row.samples).sum();
        table.unknown = unknown.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        table.unknown.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        table
    }

    /// Samples without a category.
    pub fn unclassified(&self) -> u64 {
        self.chosen - self.by_name - self.by_caller
    }
}
