// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plan of `topstat snmp`: each word has its meaning, numbers are checked, and defaults decided.

use topstat_families::snmp::Wish;
use topstat_model::counters::{Choice, Order, Shown};

use crate::args::snmp::{SnmpArgs, SortKey};
use crate::args::{ColorWhen, count};
use crate::console::Facts;
use crate::error::Error;
use crate::output::Output;
use crate::time;

/// The validated arguments.
#[derive(Debug)]
pub struct Plan {
    /// The counters to read.
    pub wish: Wish,
    /// The counters to show, and their order.
    pub choice: Choice,
    /// The part of each CPU is shown.
    pub cpus: bool,
    pub output: Output,
}

impl Plan {
    /// Validates the parsed arguments for this output.
    pub fn new(args: &SnmpArgs, color: ColorWhen, facts: Facts) -> Result<Self, Error> {
        // A word that can be an interval is one: no protocol and no inode of a namespace can be an interval.
        let is_time = args.what.as_deref().is_some_and(|what| time::interval(what).is_ok());
        let given = [&args.what, &args.interval, &args.count].map(Option::as_deref);
        let (what, interval, times) = match (is_time, given) {
            (true, [interval, times, None]) => (None, interval, times),
            (true, _) => return Err(Error::Usage("an INTERVAL and a COUNT are all that can follow".to_owned())),
            (false, [what, interval, times]) => (what, interval, times),
        };
        let wrong = |name: &str, text: &str, why: String| Error::Usage(format!("{name} '{text}': {why}"));
        let interval = match interval {
            Some(text) => Some(time::interval(text).map_err(|why| wrong("INTERVAL", text, why))?),
            None => None,
        };
        let times = match times {
            Some(text) => Some(count(text).map_err(|why| wrong("COUNT", text, why))?),
            None => None,
        };
        let shown = match (args.all, args.total) {
            (true, _) => Shown::All,
            (false, true) => Shown::NotZero,
            (false, false) => Shown::Changed,
        };
        let order = match args.sort {
            Some(SortKey::Change) if !args.total => Order::Change,
            Some(SortKey::Change | SortKey::Total) => Order::Total,
            Some(SortKey::Imbalance) => Order::Imbalance,
            Some(SortKey::Kernel) => Order::Kernel,
            None if args.total => Order::Kernel,
            None => Order::Change,
        };
        Ok(Self {
            wish: Wish {
                what: what.map(str::to_owned),
                netns: args.netns.clone(),
                device: args.device.clone(),
                sums_only: !args.cpus && order != Order::Imbalance,
            },
            choice: Choice {
                totals: args.total,
                shown,
                errors: args.errors,
                order,
                rows: args.rows.map(|rows| rows as usize),
            },
            cpus: args.cpus,
            output: Output::new((interval, times), args.output, color, facts),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::args::{Args, Command};
    use crate::output::tests::{PIPE, goes_on_for_a_terminal};

    fn plan(line: &str, facts: Facts) -> Result<Plan, Error> {
        let line = format!("topstat snmp {line}");
        let args = Args::parse_line(line.split_whitespace().map(Into::into))?;
        match &args.command {
            Some(Command::Snmp(snmp)) => Plan::new(snmp, args.color, facts),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_terminal_goes_on_and_a_pipe_gets_one_reading() {
        goes_on_for_a_terminal(|line, facts| plan(line, facts).unwrap().output);
        goes_on_for_a_terminal(|line, facts| plan(&format!("tcp {line}"), facts).unwrap().output);
    }

    #[test]
    fn what_can_be_an_interval_is_one() {
        for (line, what, seconds, count) in [
            ("", None, 1, Some(1)),
            ("2", None, 2, None),
            ("2 3", None, 2, Some(3)),
            ("tcp", Some("tcp"), 1, Some(1)),
            ("tcp 2", Some("tcp"), 2, None),
            ("tcp 2 3", Some("tcp"), 2, Some(3)),
            ("4026531840", Some("4026531840"), 1, Some(1)),
        ] {
            let plan = plan(line, PIPE).unwrap();
            assert_eq!(plan.wish.what.as_deref(), what, "{line}");
            assert_eq!((plan.output.interval, plan.output.count), (Duration::from_secs(seconds), count), "{line}");
        }
        for line in ["2 3 4", "tcp x", "tcp 2 0", "tcp tcp", "2 x"] {
            assert!(matches!(plan(line, PIPE), Err(Error::Usage(_))), "{line}");
        }
    }

    #[test]
    fn totals_are_shown_as_the_kernel_has_them() {
        let choice = |line| plan(line, PIPE).unwrap().choice;
        assert_eq!(choice(""), Choice::default());
        assert_eq!(
            choice("--total -n 3"),
            Choice { totals: true, shown: Shown::NotZero, order: Order::Kernel, rows: Some(3), errors: false }
        );
        assert_eq!(choice("--total -a --sort change").order, Order::Total);
        assert_eq!(choice("--errors"), Choice { errors: true, ..Choice::default() });
    }
}
