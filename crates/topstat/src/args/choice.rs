// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The options of `top` that choose samples and rows: those that the families declare.

use std::collections::BTreeMap;
use std::net::IpAddr;

use clap::builder::RangedU64ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use topstat_kernel::{Filter, FilterBy, Variant};

use super::FILTERS;
use crate::complete;

/// What was chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The samples of which the option with this letter is: `-4`.
    pub only: Option<char>,
    /// What rows must have, by the option's name.
    pub wanted: BTreeMap<String, Vec<Wanted>>,
}

/// A value that was given to an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    Number(u64),
    Comm(String),
    Path(String),
    Text(String),
    Address(IpAddr),
    Mark(bool),
}

/// How a mark is asked for.
pub const MARKS: [&str; 2] = ["no", "yes"];

/// An option by which rows are chosen, and the columns that it looks at.
#[derive(Clone, Debug)]
pub struct RowOption {
    pub filter: Filter,
    pub columns: Vec<String>,
}

/// The options by which rows are chosen, each once, in the order of the catalogue.
pub fn filters() -> Vec<RowOption> {
    let mut all: Vec<RowOption> = Vec::new();
    for column in topstat_families::catalogue().samples().iter().flat_map(|sample| &sample.columns) {
        let Some(filter) = &column.filter else { continue };
        let name = column.column.name.to_string();
        match all.iter_mut().find(|option| option.filter.option == filter.option) {
            Some(option) if option.columns.contains(&name) => {}
            Some(option) => option.columns.push(name),
            None => all.push(RowOption { filter: filter.clone(), columns: vec![name] }),
        }
    }
    all
}

/// The options by which samples are chosen, each once.
fn variants() -> Vec<Variant> {
    let mut all: Vec<Variant> = Vec::new();
    for variant in topstat_families::catalogue().samples().iter().filter_map(|sample| sample.variant.clone()) {
        if !all.iter().any(|other| other.option == variant.option) {
            all.push(variant);
        }
    }
    all
}

impl clap::Args for Choice {
    fn augment_args(command: Command) -> Command {
        let names: Vec<_> = variants().into_iter().map(|variant| variant.long).collect();
        let variant = |variant: Variant| {
            let others = names.iter().filter(|name| **name != variant.long);
            let arg = Arg::new(variant.long.clone()).short(variant.option).long(variant.long.clone());
            arg.action(ArgAction::SetTrue).conflicts_with_all(others).help(variant.about).help_heading(FILTERS)
        };
        let filter = |RowOption { filter, columns }: RowOption| {
            let arg = Arg::new(filter.option.clone()).long(filter.option).value_name(filter.value);
            let arg = if filter.by == FilterBy::Mark { arg } else { arg.add(complete::values(columns)) };
            let arg = arg.action(ArgAction::Append).help(filter.about).help_heading(FILTERS);
            match filter.by {
                FilterBy::Number(most) => {
                    arg.value_delimiter(',').value_parser(RangedU64ValueParser::<u64>::new().range(0..=most))
                }
                FilterBy::Address => arg.value_parser(clap::value_parser!(IpAddr)),
                FilterBy::Comm | FilterBy::Path | FilterBy::Text => arg,
                FilterBy::Mark => arg.action(ArgAction::Set).value_parser(MARKS).hide_possible_values(true),
            }
        };
        command.args(variants().into_iter().map(variant)).args(filters().into_iter().map(filter))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Choice {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let only = variants().into_iter().find(|variant| matches.get_flag(&variant.long));
        let mut wanted = BTreeMap::new();
        for RowOption { filter, .. } in filters() {
            let texts = || matches.get_many::<String>(&filter.option).into_iter().flatten().cloned();
            let given: Vec<_> = match filter.by {
                FilterBy::Number(_) => {
                    let numbers = matches.get_many::<u64>(&filter.option).into_iter().flatten();
                    numbers.copied().map(Wanted::Number).collect()
                }
                FilterBy::Comm => texts().map(Wanted::Comm).collect(),
                FilterBy::Path => texts().map(Wanted::Path).collect(),
                FilterBy::Text => texts().map(Wanted::Text).collect(),
                FilterBy::Mark => texts().map(|text| Wanted::Mark(text == MARKS[1])).collect(),
                FilterBy::Address => {
                    let addresses = matches.get_many::<IpAddr>(&filter.option).into_iter().flatten();
                    addresses.copied().map(Wanted::Address).collect()
                }
            };
            if !given.is_empty() {
                wanted.insert(filter.option, given);
            }
        }
        Ok(Self { only: only.map(|variant| variant.option), wanted })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
