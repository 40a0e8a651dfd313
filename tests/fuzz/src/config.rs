// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The input is the daemon's configuration. Either all of it is valid, and then every value is one that can be set; or each
//! fault is reported with its place in the text, on a separate line without characters that a terminal obeys.

use std::path::Path;

use topstat::fuzz::{Config, ConfigError, TableConfig};
use topstat_families::catalogue;
use topstat_kernel::MAX_TOP;

/// The longest period and delay.
const MOST_MS: u32 = 3_600_000;
const FILE: &str = "fuzz.toml";
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Runs the target: see the module.
pub fn run(bytes: &[u8]) {
    // The daemon does not parse input that is not text.
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // A group is looked up on the host, which is outside of this test; it costs a system call or a daemon's answer.
    if text.contains("group") {
        return;
    }
    let parsed = Config::parse(Path::new(FILE), text);
    match &parsed {
        Ok(config) => valid(config),
        Err(error) => told(text, error),
    }
    // Parsing it again, as a daemon does on SIGHUP, gives an equal result.
    let again = Config::parse(Path::new(FILE), text);
    match (&parsed, &again) {
        (Ok(first), Ok(second)) => {
            assert_eq!(first, second);
            assert_eq!(first.needs_restart(second), [""; 0]);
        }
        (Err(first), Err(second)) => assert_eq!(first.to_string(), second.to_string()),
        _ => panic!("valid only once of two times"),
    }
    // A carriage return alone is a fault; before the end of an added line it is none.
    if text.ends_with('\r') {
        return;
    }
    // Comments, and the end of the last line, change only places. A byte order mark is one only at the beginning.
    let (mark, rest) = text.strip_prefix(BYTE_ORDER_MARK).map_or(("", text), |rest| (BYTE_ORDER_MARK, rest));
    let commented = Config::parse(Path::new(FILE), &format!("{mark}# first\n{rest}\n# last"));
    assert_eq!(parsed.is_ok(), commented.is_ok(), "a comment decides");
    if let (Ok(first), Ok(second)) = (&parsed, &commented) {
        assert_eq!(first, second);
    }
}

fn valid(config: &Config) {
    let restart = Config::default().needs_restart(config);
    assert!(restart.iter().all(|key| !key.is_empty() && !key.contains(char::is_control)));
    for path in [&config.mount, &config.pins].into_iter().flatten() {
        assert!(path.is_absolute() && path.parent().is_some(), "{}", path.display());
    }
    for family in catalogue().families() {
        assert!((1..=MAX_TOP).contains(&config.top(&family.samples)));
        let off = family.samples.iter().all(|info| config.sample_enabled(&info.name) == Some(false));
        assert_eq!(config.wants(&family.samples), !off);
        let threads = config.threads(&family.samples);
        assert!(!threads || family.samples.iter().any(|info| info.may_be_threads()));
    }
    for table in catalogue().samples().iter().flat_map(|info| &info.tables) {
        let TableConfig { period_ms, delay_ms, .. } = config.table(table);
        assert!(period_ms.is_none_or(|ms| (1..=MOST_MS).contains(&ms)), "period {period_ms:?}");
        assert!(delay_ms.is_none_or(|ms| ms <= MOST_MS), "delay {delay_ms:?}");
    }
}

fn told(text: &str, error: &ConfigError) {
    let ConfigError::Wrong { problems, .. } = error else { panic!("nothing was read: {error}") };
    assert!(!problems.is_empty());
    let lines: Vec<&str> = text.split('\n').collect();
    let mut before = (0, 0);
    for problem in problems {
        let place = (problem.line, problem.column);
        assert!(place >= before, "in the order of the text");
        before = place;
        let line = problem.line.checked_sub(1).and_then(|index| lines.get(index));
        let line = line.unwrap_or_else(|| panic!("line {} of {}", problem.line, lines.len()));
        let most = line.chars().count() + 1;
        assert!((1..=most).contains(&problem.column), "column {} of {most}: {}", problem.column, problem.text);
        assert!(!problem.text.is_empty());
        assert!(!problem.text.contains(char::is_control), "{:?}", problem.text);
    }
    // One line of introduction, and one line for each fault.
    assert_eq!(error.to_string().lines().count(), 1 + problems.len(), "{error}");
}
