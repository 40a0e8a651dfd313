// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plan of `topstat netstack`: each word has its meaning, and defaults are decided.

use std::path::{Path, PathBuf};

use topstat_families::netstack::{Chosen, Options};
use topstat_model::histograms::Subject;
use topstat_model::stacks::{By, Choice};

use crate::args::netstack::NetstackArgs;
use crate::args::{ColorWhen, count};
use crate::console::Facts;
use crate::error::Error;
use crate::output::Output;
use crate::suggest::did_you_mean;
use crate::time;

/// The rules of this host, which apply if the file exists and no other rules are given.
const HOSTS_RULES: &str = "/etc/topstat/netstack.rules";

/// The validated arguments.
#[derive(Debug)]
pub struct Plan {
    /// How to sample.
    pub options: Options,
    /// What to show.
    pub choice: Choice,
    /// The histogram that replaces stacks, and the packets that it counts.
    pub histogram: Option<(Subject, Chosen)>,
    pub output: Output,
}

const TABLES: [By; 7] = [By::Categories, By::Symbols, By::Stacks, By::Cpus, By::Sides, By::Processes, By::Cgroups];

impl Plan {
    /// Validates the parsed arguments for this output.
    pub fn new(args: &NetstackArgs, color: ColorWhen, facts: Facts) -> Result<Self, Error> {
        let is_time = args.table.as_deref().is_some_and(|word| time::interval(word).is_ok());
        let given = [&args.table, &args.interval, &args.count].map(Option::as_deref);
        let (table, interval, times) = match (is_time, given) {
            (true, [interval, times, None]) => (None, interval, times),
            (true, _) => return Err(Error::Usage("an INTERVAL and a COUNT are all that can follow".to_owned())),
            (false, [table, interval, times]) => (table, interval, times),
        };
        let wrong = |name: &str, text: &str, why: String| Error::Usage(format!("{name} '{text}': {why}"));
        let interval =
            interval.map(|text| time::interval(text).map_err(|why| wrong("INTERVAL", text, why))).transpose()?;
        let times = times.map(|text| count(text).map_err(|why| wrong("COUNT", text, why))).transpose()?;
        if let (Some(_), Some(table)) = (args.histogram, table) {
            return Err(Error::Usage(format!("a histogram has no table '{table}'")));
        }
        let chosen = || Chosen { device: args.device.clone(), ports: args.port.clone(), pids: args.pid.clone() };
        let histogram = args.histogram.map(|histogram| (histogram.into(), chosen()));
        let choice = Choice {
            by: table.map_or(Ok(By::default()), table_of)?,
            view: args.view.into(),
            sides: args.side.iter().map(|side| (*side).into()).collect(),
            cpus: args.cpu.clone(),
            pids: args.pid.clone(),
            comms: args.comm.clone(),
            cgroups: args.cgroup.clone(),
            rows: args.rows.map(|rows| rows as usize),
        };
        let options = Options { hz: args.hz, rules: rules(args.rules.as_deref()), event: args.event.map(Into::into) };
        Ok(Self { options, choice, histogram, output: Output::new((interval, times), args.output, color, facts) })
    }
}

/// The file of rules that precede topstat's built-in rules.
pub fn rules(given: Option<&Path>) -> Option<PathBuf> {
    given.map(Path::to_owned).or_else(|| Path::new(HOSTS_RULES).exists().then(|| HOSTS_RULES.into()))
}

fn table_of(word: &str) -> Result<By, Error> {
    let names = TABLES.map(By::name);
    TABLES.into_iter().find(|by| by.name() == word).ok_or_else(|| {
        let meant = did_you_mean(word, names);
        Error::Usage(format!("netstack has no table '{word}' but {}{meant}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use topstat_model::stacks::{Side, View};

    use super::*;
    use crate::args::{Args, Command};
    use crate::output::tests::{PIPE, goes_on_for_a_terminal};

    fn plan(line: &str, facts: Facts) -> Result<Plan, Error> {
        let line = format!("topstat netstack {line}");
        let args = Args::parse_line(line.split_whitespace().map(Into::into))?;
        match &args.command {
            Some(Command::Netstack(netstack)) => Plan::new(netstack, args.color, facts),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_terminal_goes_on_and_a_pipe_gets_one_interval() {
        goes_on_for_a_terminal(|line, facts| plan(line, facts).unwrap().output);
        goes_on_for_a_terminal(|line, facts| plan(&format!("symbols {line}"), facts).unwrap().output);
    }

    #[test]
    fn what_can_be_an_interval_is_one() {
        for (line, by, seconds, count) in [
            ("", By::Categories, 1, Some(1)),
            ("2 3", By::Categories, 2, Some(3)),
            ("stacks", By::Stacks, 1, Some(1)),
            ("cgroups 2", By::Cgroups, 2, None),
            ("sides 2 3", By::Sides, 2, Some(3)),
        ] {
            let plan = plan(line, PIPE).unwrap();
            assert_eq!(plan.choice.by, by, "{line}");
            assert_eq!((plan.output.interval, plan.output.count), (Duration::from_secs(seconds), count), "{line}");
        }
        for line in ["2 3 4", "symbols x", "symbols 2 0", "--hz 0", "--hz 10001", "--side up", "--view other"] {
            assert!(plan(line, PIPE).is_err(), "{line}");
        }
        let unknown = plan("symbol", PIPE).unwrap_err().to_string();
        assert!(unknown.ends_with("did you mean symbols?"), "{unknown}");
    }

    #[test]
    fn a_histogram_has_filters_of_its_own() {
        let plan = |line| plan(line, PIPE);
        let both = plan("--histogram skb --device eth0 --port 80,443 2 3").unwrap();
        let chosen = Chosen { device: Some("eth0".to_owned()), ports: vec![80, 443], pids: vec![] };
        assert_eq!((both.histogram, both.output.count), (Some((Subject::Skb, chosen)), Some(3)));
        let (subject, chosen) = plan("--histogram latency --pid 7").unwrap().histogram.unwrap();
        assert_eq!((subject, chosen.pids), (Subject::Latency, vec![7]));
        for line in
            ["--histogram skb sides", "--histogram skb --side send", "--port 80", "--histogram x", "--device lo"]
        {
            assert!(plan(line).is_err(), "{line}");
        }
    }

    #[test]
    fn filters_are_lists() {
        let choice = plan("--side send,softirq_receive --pid 1,2 --pid 3 --view leaf -n 4", PIPE).unwrap().choice;
        assert_eq!(choice.sides, [Side::Send, Side::SoftirqReceive]);
        assert_eq!((choice.pids, choice.view, choice.rows), (vec![1, 2, 3], View::Leaf, Some(4)));
    }
}
