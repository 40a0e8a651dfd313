// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes a configuration from a file: the keys, and the parsing of their values.

use std::path::PathBuf;
use std::sync::Arc;

use nix::unistd::Group;
use topstat_kernel::{MAX_TOP, SampleInfo};
use topstat_model::typeset::escape;

use super::{Config, SampleConfig, Share, TableConfig};
use crate::document::{self, Problem, Problems, Table, Value, Wrong};
use crate::suggest::did_you_mean;
use crate::{library, time};

/// The keys of the file as a whole, of a sample, and of a table.
const KEYS: [&str; 11] =
    ["mount", "pins", "group", "log_level", "overhead_budget", "top", "period", "delay", "sync", "samples", "tables"];
const SAMPLE_KEYS: [&str; 5] = ["enabled", "top", "period", "delay", "sync"];
/// A key of samples of processes only.
const THREADS_KEY: &str = "threads";
const TABLE_KEYS: [&str; 4] = ["enabled", "period", "delay", "sync"];

/// All keys, for the test that the manual describes them.
#[cfg(test)]
pub fn keys() -> impl Iterator<Item = &'static str> {
    KEYS.into_iter().chain(SAMPLE_KEYS).chain([THREADS_KEY]).chain(TABLE_KEYS)
}

/// Reads a text, or returns all its errors.
pub fn config(text: &str) -> Result<Config, Vec<Problem>> {
    let mut config = Config::default();
    document::read(text, |root, problems| {
        root.each(problems, |key, value, problems| config.read(key, value, problems))
    })?;
    Ok(config)
}

impl Config {
    fn read(&mut self, key: &str, value: Value<'_>, problems: &mut Problems) -> Result<(), Wrong> {
        match key {
            "mount" => self.mount = Some(absolute(value.string()?)?),
            "pins" => self.pins = Some(absolute(value.string()?)?),
            "group" => self.group = Some(group(value.string()?)?),
            "log_level" => self.log_level = Some(value.string()?.parse()?),
            "overhead_budget" => self.overhead_budget = budget(&value)?,
            "top" => self.top = Some(value.integer(1..=MAX_TOP)?),
            "tables" => self.read_defined(&value.table()?, problems),
            "samples" => self.read_samples(&value.table()?, problems),
            _ if self.tables.read(key, &value)? => {}
            _ => return Err(unknown("key", key, KEYS)),
        }
        Ok(())
    }

    /// The tables of the user's own: `"disk/issued" = "block:block_rq_issue by dev"`.
    fn read_defined(&mut self, tables: &Table<'_>, problems: &mut Problems) {
        let samples = topstat_families::catalogue().samples();
        tables.each(problems, |path, value, _| {
            let is_name = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            let named = path.split_once('/').filter(|(sample, table)| is_name(sample) && is_name(table));
            let Some((sample, table)) = named else {
                return Err(Wrong::Key(format!(
                    "{} is no name of a table: allowed is SAMPLE/TABLE, each of letters, digits and _",
                    escape(path)
                )));
            };
            // The names of files in the root and in the directory of a sample.
            if ["enabled", "self"].contains(&sample) || ["enabled", "json"].contains(&table) {
                return Err(Wrong::Key(format!("{path} is the path of another file of the tree: take another name")));
            }
            let own = |(other, _): &(String, _)| other.split('/').next() == Some(sample);
            if samples.iter().any(|info| info.name == sample) || self.defined.iter().any(own) {
                return Err(Wrong::Key(format!(
                    "there is a sample {sample} already: a table needs a sample of its own"
                )));
            }
            self.defined.push((path.to_owned(), library::parse(value.string()?)?));
            Ok(())
        });
    }

    fn read_samples(&mut self, samples: &Table<'_>, problems: &mut Problems) {
        let infos = topstat_families::catalogue().samples();
        samples.each(problems, |name, value, problems| {
            let Some(info) = infos.iter().find(|info| info.name == name) else {
                return Err(unknown("sample", name, infos.iter().map(|info| info.name.as_str())));
            };
            let sample = self.samples.entry(name.to_owned()).or_default();
            value.table()?.each(problems, |key, value, problems| sample.read(info, key, value, problems));
            Ok(())
        });
        for family in topstat_families::catalogue().families().iter() {
            self.agree_on_top(&family.samples, samples, problems);
        }
    }

    /// Samples of a family share their programs, so all that name a number of rows have to name the same one.
    fn agree_on_top(&self, family: &[Arc<SampleInfo>], samples: &Table<'_>, problems: &mut Problems) {
        let mut tops = family.iter().filter_map(|info| Some((info.name.as_str(), self.samples.get(&info.name)?.top?)));
        let Some((first, agreed)) = tops.next() else { return };
        for (other, top) in tops.filter(|(_, top)| *top != agreed) {
            problems.add(
                samples.place(other),
                format!(
                    "samples {first} and {other} share their programs and keep the same number of rows: top is {agreed} \
                     for the one and {top} for the other"
                ),
            );
        }
    }
}

impl SampleConfig {
    fn read(&mut self, info: &SampleInfo, key: &str, value: Value<'_>, problems: &mut Problems) -> Result<(), Wrong> {
        match key {
            "enabled" => self.enabled = Some(value.boolean()?),
            "top" => self.top = Some(value.integer(1..=MAX_TOP)?),
            THREADS_KEY if info.may_be_threads() => self.threads = Some(value.boolean()?),
            _ if self.all.read(key, &value)? => {}
            _ if info.tables.iter().any(|table| table.name == key) => {
                let table = self.tables.entry(key.to_owned()).or_default();
                value.table()?.each(problems, |key, value, _| match key {
                    "enabled" => {
                        table.enabled = Some(value.boolean()?);
                        Ok(())
                    }
                    _ if table.read(key, &value)? => Ok(()),
                    _ => Err(unknown("key of a table", key, TABLE_KEYS)),
                });
            }
            _ => {
                let threads = info.may_be_threads().then_some(THREADS_KEY);
                let names =
                    SAMPLE_KEYS.into_iter().chain(threads).chain(info.tables.iter().map(|table| table.name.as_str()));
                return Err(unknown(&format!("key or table of sample {}", info.name), key, names));
            }
        }
        Ok(())
    }
}

impl TableConfig {
    /// Reads a key that may stand in one table, in a sample, or in the file as a whole. Returns whether it is such a key.
    fn read(&mut self, key: &str, value: &Value<'_>) -> Result<bool, Wrong> {
        match key {
            "period" => self.period_ms = Some(value.milliseconds(time::period)?),
            "delay" => self.delay_ms = Some(value.milliseconds(time::delay)?),
            "sync" => self.sync = Some(value.boolean()?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn unknown<'a>(what: &str, written: &str, names: impl IntoIterator<Item = &'a str>) -> Wrong {
    let names: Vec<_> = names.into_iter().collect();
    let meant = match did_you_mean(written, names.iter().copied()) {
        meant if meant.is_empty() => format!(": there are {}", names.join(", ")),
        meant => meant,
    };
    Wrong::Key(format!("unknown {what} {}{meant}", escape(written)))
}

fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    // A control character would break the lines of the mount table and of the log.
    let clean = !text.chars().any(char::is_control);
    if path.is_absolute() && path.parent().is_some() && clean {
        Ok(path)
    } else {
        Err("allowed is an absolute path other than /".to_owned())
    }
}

fn group(text: &str) -> Result<u32, String> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    match Group::from_name(text) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err("there is no such group on this host".to_owned()),
        Err(error) => Err(format!("the group cannot be looked up: {error}")),
    }
}

fn budget(value: &Value<'_>) -> Result<Option<Share>, String> {
    let text = value.string().map_err(|allowed| format!("{allowed}, such as \"1%\" or \"off\""))?;
    Share::budget(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_that_is_listed_is_known() {
        let samples = topstat_families::catalogue().samples();
        let tasks = samples.iter().find(|info| info.may_be_threads()).unwrap();
        let (sample, table) = (format!("samples.{}", tasks.name), &tasks.tables[0].name);
        let keys = KEYS.iter().map(|key| (*key).to_owned());
        let keys = keys.chain(SAMPLE_KEYS.iter().chain([&THREADS_KEY]).map(|key| format!("{sample}.{key}")));
        for key in keys.chain(TABLE_KEYS.iter().map(|key| format!("{sample}.{table}.{key}"))) {
            // No key takes a time of day: the error has to say what is allowed.
            let problems = config(&format!("{key} = 07:32:00\n")).unwrap_err();
            assert!(problems.len() == 1 && problems[0].text.contains(": allowed "), "{key}: {problems:?}");
        }
    }
}
