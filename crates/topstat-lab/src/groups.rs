// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The runs of an experiment, grouped by configuration and variant.

use std::collections::BTreeMap;

use topstat_model::histograms::Histogram;
use topstat_model::stacks::Side;

use super::results::{Results, Run};

/// The median and the range of some numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The lowest.
    pub lowest: f64,
    /// The highest.
    pub highest: f64,
}

impl Spread {
    /// The spread of some numbers; all 0 without numbers.
    pub fn of(mut numbers: Vec<f64>) -> Self {
        numbers.sort_by(f64::total_cmp);
        let (Some(lowest), Some(highest)) = (numbers.first(), numbers.last()) else { return Self::default() };
        let middle = numbers.len() / 2;
        let median =
            if numbers.len() % 2 == 1 { numbers[middle] } else { f64::midpoint(numbers[middle - 1], numbers[middle]) };
        Self { median, lowest: *lowest, highest: *highest }
    }

    /// The median, and the range where there is one.
    pub fn text(self) -> String {
        if self.lowest == self.highest {
            return format!("{:.2}", self.median);
        }
        format!("{:.2} ({:.2} - {:.2})", self.median, self.lowest, self.highest)
    }
}

/// The runs of one variant under one configuration.
pub struct Group<'a> {
    /// The configuration.
    pub configuration: &'a str,
    /// The variant.
    pub variant: &'a str,
    /// The measured runs.
    pub runs: Vec<&'a Run>,
    /// The number of runs that carried nothing.
    pub idle: usize,
    /// Why no run was measured.
    pub unavailable: Option<&'a str>,
}

impl Group<'_> {
    /// The spread of a number over all runs.
    pub fn spread(&self, number: impl Fn(&Run) -> f64) -> Spread {
        Spread::of(self.runs.iter().map(|run| number(run)).collect())
    }

    /// Histograms of all runs, by their names.
    pub fn histograms(&self) -> BTreeMap<&str, Histogram> {
        let mut sums: BTreeMap<&str, Histogram> = BTreeMap::new();
        for (name, histogram) in self.runs.iter().flat_map(|run| &run.histograms) {
            sums.entry(name).or_default().add(histogram);
        }
        sums
    }

    /// The samples of an end by category, over all runs, and their sum.
    pub fn samples(&self, end: &End) -> (BTreeMap<&str, u64>, u64) {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for run in &self.runs {
            // On a separate host all samples belong to the end, also of the acknowledgements that arrive at the sender.
            let host = run.hosts.get(end.host);
            for (side, categories) in host.map_or(&run.sides, |host| &host.sides) {
                if host.is_none() && !end.sides.iter().any(|wanted| wanted.name() == side) {
                    continue;
                }
                for (category, count) in categories {
                    *sums.entry(category).or_default() += count;
                }
            }
        }
        let all = sums.values().sum();
        (sums, all)
    }
}

/// One end, and the selection of its samples.
pub struct End {
    /// The index of its host, of two hosts.
    pub host: usize,
    /// The sides of the end, if both ends are on one host.
    pub sides: [Side; 2],
}

/// The end that sends.
pub const SENDER: End = End { host: 0, sides: [Side::Send, Side::SoftirqSend] };
/// The end that receives.
pub const RECEIVER: End = End { host: 1, sides: [Side::SoftirqReceive, Side::Receive] };

/// The results by configuration and variant, in the order of the measurement.
pub fn groups(results: &Results) -> Vec<Group<'_>> {
    let mut groups: Vec<Group> = Vec::new();
    for run in &results.runs {
        let same = |group: &&mut Group| group.configuration == run.configuration && group.variant == run.variant;
        let group = match groups.iter_mut().find(same) {
            Some(group) => group,
            None => {
                let (configuration, variant) = (run.configuration.as_str(), run.variant.as_str());
                groups.push(Group { configuration, variant, runs: Vec::new(), idle: 0, unavailable: None });
                groups.last_mut().expect("just pushed")
            }
        };
        match &run.unavailable {
            Some(why) => group.unavailable = Some(why),
            None if !run.has_carried() => group.idle += 1,
            None => group.runs.push(run),
        }
    }
    groups
}
