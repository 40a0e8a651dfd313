// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applies a configuration to tables.

use std::sync::Arc;

use topstat_kernel::{Error, Options, State, TableInfo, TableSettings, update_all};

use crate::config::Config;

/// Sets all tables of these states to the values of the configuration. A setting that only the previous configuration named gets
/// its default. All other settings stay as they are. Returns the number of changed tables.
///
/// # Errors
///
/// When a table can't be set. Then no table is changed.
pub fn apply(config: &Config, before: &Config, states: &[Arc<dyn State>]) -> Result<usize, Error> {
    update_all(states, |table, settings| *settings = wanted(config, before, table, *settings))
}

fn wanted(config: &Config, before: &Config, table: &TableInfo, old: TableSettings) -> TableSettings {
    let (now, then) = (config.table(table), before.table(table));
    let default = TableSettings::default();
    fn choose<T>(now: Option<T>, then: Option<T>, default: T, old: T) -> T {
        match (now, then) {
            (Some(now), _) => now,
            (None, Some(_)) => default,
            (None, None) => old,
        }
    }
    let sample = |config: &Config| config.sample_enabled(&table.sample);
    TableSettings {
        enabled: choose(now.enabled, then.enabled, default.enabled, old.enabled),
        sample_enabled: choose(sample(config), sample(before), default.sample_enabled, old.sample_enabled),
        sync: choose(now.sync, then.sync, default.sync, old.sync),
        period_ms: choose(now.period_ms, then.period_ms, default.period_ms, old.period_ms),
        delay_ms: choose(now.delay_ms, then.delay_ms, default.delay_ms, old.delay_ms),
        ..old
    }
}

/// The options for loading a family that is not loaded yet.
pub fn options(config: &Config, samples: &[Arc<topstat_kernel::SampleInfo>]) -> Options {
    Options { top: config.top(samples), threads: config.threads(samples), ..Options::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn what_is_not_named_stays_and_what_is_not_named_any_more_goes_back() {
        let table = topstat_families::catalogue().find("tcp_v4", "conns_pps").unwrap();
        let parse = |text| Config::parse(Path::new("x.toml"), text).unwrap();
        let by_user =
            TableSettings { period_ms: 7, delay_ms: 8, root_enabled: false, raised_ms: 9, ..TableSettings::default() };
        let none = Config::default();
        assert_eq!(wanted(&none, &none, &table, by_user), by_user);
        let named = parse("delay = 5\n[samples.tcp_v4]\nenabled = false\n");
        let set = wanted(&named, &none, &table, by_user);
        assert_eq!(set, TableSettings { delay_ms: 5, sample_enabled: false, ..by_user });
        assert_eq!(wanted(&named, &named, &table, set), set);
        let back = wanted(&none, &named, &table, set);
        assert_eq!(back, TableSettings { delay_ms: 0, sample_enabled: true, ..by_user });
    }
}
