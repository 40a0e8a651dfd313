// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The log level of the daemon.

use std::fmt;
use std::str::FromStr;

use log::LevelFilter;

use crate::suggest::did_you_mean;

/// The level from which on messages are logged: this level and all more severe ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Level {
    /// What failed
    Error,
    /// What is not as it should be
    Warn,
    /// What was loaded, set, and changed
    #[default]
    Info,
    /// Everything
    Debug,
}

impl Level {
    const NAMES: [(&'static str, Self); 4] =
        [("error", Self::Error), ("warn", Self::Warn), ("info", Self::Info), ("debug", Self::Debug)];
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || Self::NAMES.iter().map(|(name, _)| *name);
        let found = Self::NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, level)| *level).ok_or_else(|| {
            let allowed = "allowed are \"error\", \"warn\", \"info\" and \"debug\"";
            format!("{allowed}{}", did_you_mean(text, names()))
        })
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES.iter().find(|(_, level)| level == self).map_or("", |(name, _)| name))
    }
}

impl From<Level> for LevelFilter {
    fn from(level: Level) -> Self {
        match level {
            Level::Error => Self::Error,
            Level::Warn => Self::Warn,
            Level::Info => Self::Info,
            Level::Debug => Self::Debug,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_names() {
        for (name, level) in Level::NAMES {
            assert_eq!((name.parse(), level.to_string()), (Ok(level), name.to_owned()));
        }
        let error = "inof".parse::<Level>().unwrap_err();
        assert_eq!(error, "allowed are \"error\", \"warn\", \"info\" and \"debug\": did you mean info?");
    }
}
