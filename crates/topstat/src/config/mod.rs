// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration of the daemon: a TOML file. The whole file is read and checked, so that all its errors are reported at once:
//! each with its line, the text found, the allowed values, and a suggestion.
//!
//! The settings in the file apply when the daemon starts, also to state that it adopts, and on SIGHUP. A setting that is not in
//! the file stays as `topstat set` or a write to the tree has set it.

mod level;
mod read;
mod share;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use topstat_kernel::{DEFAULT_TOP, SampleInfo, TableInfo};
use topstat_model::definition::Definition;
use topstat_model::typeset::escape;

pub use level::Level;
#[cfg(test)]
pub use read::keys;
pub use share::Share;

use crate::document::Problem;

/// The configuration file, unless the command line names another one. The file may be absent.
pub const DEFAULT_FILE: &str = "/etc/topstat/topstat.toml";
/// The mount point of the tree.
pub const DEFAULT_MOUNT: &str = "/run/topstat";
/// The directory of pinned state.
pub const DEFAULT_PINS: &str = "/sys/fs/bpf/topstat";
/// The file whose lock keeps a second daemon away. It stands beside the mount point, since everything below the mount point
/// belongs to the tree.
pub const DEFAULT_PID_FILE: &str = "/run/topstat.pid";

/// The mount point of the tree, unless a command line names another one. A configuration that is wrong is the daemon's to complain
/// about.
pub fn mount() -> PathBuf {
    let configured = Config::find(None).ok().and_then(|(config, _)| config.mount);
    configured.unwrap_or_else(|| DEFAULT_MOUNT.into())
}

/// The contents of a configuration. A value that the configuration does not set is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The mount point of the tree.
    pub mount: Option<PathBuf>,
    /// The directory in which programs, links and maps are pinned.
    pub pins: Option<PathBuf>,
    /// The id of the group that may read the tree.
    pub group: Option<u32>,
    /// The log level.
    pub log_level: Option<Level>,
    /// The share of each CPU that the programs may take, on average.
    pub overhead_budget: Option<Share>,
    /// The number of rows of every table.
    top: Option<u32>,
    /// The tables of the user's own, by their paths.
    defined: Vec<(String, Definition)>,
    /// The settings of every table of every sample.
    tables: TableConfig,
    /// The settings of samples by name; only samples that exist.
    samples: BTreeMap<String, SampleConfig>,
}

/// The source of a configuration: a file, and the options of the command line, which take precedence.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The file, if the command line names one.
    pub file: Option<PathBuf>,
    /// As in [`Config`].
    pub mount: Option<PathBuf>,
    /// As in [`Config`].
    pub pins: Option<PathBuf>,
    /// As in [`Config`].
    pub log_level: Option<Level>,
    /// As in [`Config`]; `Some(None)` is off.
    pub overhead_budget: Option<Option<Share>>,
}

impl Origin {
    /// Reads the configuration, each time anew. Also returns the path of the file.
    ///
    /// # Errors
    ///
    /// See [`Config::find`].
    pub fn read(&self) -> Result<(Config, Option<PathBuf>), Error> {
        let (mut config, file) = Config::find(self.file.as_deref())?;
        config.mount = self.mount.clone().or(config.mount);
        config.pins = self.pins.clone().or(config.pins);
        config.log_level = self.log_level.or(config.log_level);
        config.overhead_budget = self.overhead_budget.unwrap_or(config.overhead_budget);
        Ok((config, file))
    }
}

/// The settings of tables in a configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableConfig {
    /// Whether pushes count.
    pub enabled: Option<bool>,
    /// Whether snapshots are taken on each CPU itself.
    pub sync: Option<bool>,
    /// 1 to 3,600,000.
    pub period_ms: Option<u32>,
    /// 0 to 3,600,000.
    pub delay_ms: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SampleConfig {
    enabled: Option<bool>,
    top: Option<u32>,
    threads: Option<bool>,
    /// The settings of all tables of the sample. `enabled` is not in here: it is the sample's switch.
    all: TableConfig,
    tables: BTreeMap<String, TableConfig>,
}

/// Why a configuration cannot be used.
#[derive(Debug)]
pub enum Error {
    /// The file could not be read.
    Read {
        /// The file.
        file: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The file has wrong contents: all errors, in the order of the file.
    Wrong {
        /// The file.
        file: PathBuf,
        /// The errors and their places.
        problems: Vec<Problem>,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { file, source } => {
                write!(f, "cannot read the configuration {}: {source}", escape(&file.to_string_lossy()))
            }
            Self::Wrong { file, problems } => {
                let file = file.to_string_lossy();
                let file = escape(&file);
                write!(f, "the configuration is wrong, and nothing of it was used")?;
                for Problem { line, column, text } in problems {
                    write!(f, "\n{file}:{line}:{column}: {text}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for Error {}

impl Config {
    /// Reads the named file; without a name, the default file if it exists. Also returns the path of the file.
    ///
    /// # Errors
    ///
    /// When a named or existing file cannot be read or used.
    pub fn find(named: Option<&Path>) -> Result<(Self, Option<PathBuf>), Error> {
        let file = named.unwrap_or(Path::new(DEFAULT_FILE));
        match std::fs::read_to_string(file) {
            Ok(text) => Ok((Self::parse(file, &text)?, Some(file.to_owned()))),
            Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => Ok((Self::default(), None)),
            Err(source) => Err(Error::Read { file: file.to_owned(), source }),
        }
    }

    /// Reads a text; `file` is for error texts only.
    ///
    /// # Errors
    ///
    /// All errors of the text.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Error> {
        read::config(text).map_err(|problems| Error::Wrong { file: file.to_owned(), problems })
    }

    /// How many rows the tables of a family of samples keep.
    pub fn top(&self, samples: &[Arc<SampleInfo>]) -> u32 {
        let own = samples.iter().find_map(|info| self.samples.get(&info.name)?.top);
        own.or(self.top).unwrap_or(DEFAULT_TOP)
    }

    /// The tables of the user's own, by their paths: `disk/issued`.
    pub fn defined(&self) -> &[(String, Definition)] {
        &self.defined
    }

    /// Whether the objects of a family of samples are threads.
    pub fn threads(&self, samples: &[Arc<SampleInfo>]) -> bool {
        samples.iter().find_map(|info| self.samples.get(&info.name)?.threads).unwrap_or(false)
    }

    /// The settings of a table. A setting of the table precedes that setting of its sample, which precedes the general one.
    pub fn table(&self, table: &TableInfo) -> TableConfig {
        let sample = self.samples.get(&table.sample);
        let own = sample.and_then(|sample| sample.tables.get(&table.name)).copied().unwrap_or_default();
        own.or(sample.map(|sample| sample.all).unwrap_or_default()).or(self.tables)
    }

    /// Whether a sample is on, if the configuration has its switch.
    pub fn sample_enabled(&self, name: &str) -> Option<bool> {
        self.samples.get(name)?.enabled
    }

    /// Whether a family of samples has to be loaded: it is not loaded if all its samples are off.
    pub fn wants(&self, samples: &[Arc<SampleInfo>]) -> bool {
        samples.iter().any(|info| self.sample_enabled(&info.name) != Some(false))
    }

    /// The keys that differ in another configuration and can't change while the daemon runs.
    pub fn needs_restart(&self, other: &Self) -> Vec<String> {
        let mut needs = Vec::new();
        let mut differs = |differs: bool, key: &str| {
            if differs {
                needs.push(key.to_owned());
            }
        };
        differs(self.mount != other.mount, "mount");
        differs(self.pins != other.pins, "pins");
        differs(self.group != other.group, "group");
        differs(self.top != other.top, "top");
        differs(self.defined != other.defined, "tables");
        for info in &topstat_families::catalogue().samples() {
            let top = |config: &Self| config.samples.get(&info.name).and_then(|sample| sample.top);
            differs(top(self) != top(other), &format!("samples.{}.top", info.name));
            let threads = |config: &Self| config.threads(std::slice::from_ref(info));
            differs(threads(self) != threads(other), &format!("samples.{}.threads", info.name));
        }
        for family in topstat_families::catalogue().families() {
            let samples = &family.samples;
            if self.wants(samples) != other.wants(samples) {
                let names: Vec<_> = samples.iter().map(|info| info.name.as_str()).collect();
                needs.push(format!("samples.{{{}}}.enabled", names.join(",")));
            }
        }
        needs
    }
}

impl TableConfig {
    /// The settings of this, and of the other where this has no value.
    fn or(self, other: Self) -> Self {
        Self {
            enabled: self.enabled.or(other.enabled),
            sync: self.sync.or(other.sync),
            period_ms: self.period_ms.or(other.period_ms),
            delay_ms: self.delay_ms.or(other.delay_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("x.toml"), text).map_err(|error| error.to_string())
    }

    fn inet() -> Vec<Arc<SampleInfo>> {
        topstat_families::catalogue().families().iter().find(|family| family.name == "inet").unwrap().samples.clone()
    }

    fn wrong(text: &str) -> Vec<String> {
        let error = parse(text).expect_err(text);
        let mut lines = error.lines().map(str::to_owned);
        assert_eq!(lines.next().as_deref(), Some("the configuration is wrong, and nothing of it was used"));
        lines.collect()
    }

    #[test]
    fn nothing_said_is_nothing_set() {
        let config = parse("# only a comment\n").unwrap();
        assert_eq!(config, Config::default());
        let table = topstat_families::catalogue().find("tcp_v4", "conns_pps").unwrap();
        assert_eq!(config.table(&table), TableConfig::default());
        let inet = inet();
        assert_eq!((config.top(&inet), config.wants(&inet)), (DEFAULT_TOP, true));
    }

    #[test]
    fn the_nearest_word_counts() {
        let config = parse(
            "period = 2000\ndelay = \"10ms\"\nsync = false\n\
             [samples.tcp_v4]\nperiod = \"5s\"\n\
             [samples.tcp_v4.conns_bps]\nenabled = false\nperiod = \"1m\"\n\
             [samples.tcp_v6]\nenabled = false\n",
        )
        .unwrap();
        let of = |sample, table| {
            let TableConfig { enabled, sync, period_ms, delay_ms } =
                config.table(&topstat_families::catalogue().find(sample, table).unwrap());
            (enabled, sync, period_ms, delay_ms)
        };
        assert_eq!(of("udp_v4", "conns_pps"), (None, Some(false), Some(2000), Some(10)));
        assert_eq!(of("tcp_v4", "conns_pps"), (None, Some(false), Some(5000), Some(10)));
        assert_eq!(of("tcp_v4", "conns_bps"), (Some(false), Some(false), Some(60_000), Some(10)));
        assert_eq!((config.sample_enabled("tcp_v6"), config.sample_enabled("tcp_v4")), (Some(false), None));
    }

    #[test]
    fn everything_wrong_is_said_with_its_line_and_what_is_allowed() {
        let lines = wrong(
            "peroid = 5\nmount = \"run/topstat\"\nlog_level = \"inof\"\noverhead_budget = 1\ntop = 1025\ndelay = \"2h\"\n\
             sync = 1\ngroup = \"no such group\"\nmystery = 1\n\
             [samples.tcp_v4]\nperiod = 0\nenabled = \"yes\"\nconn_pps.delay = 1.5\n\
             [samples.tcpv4]\n[samples.udp_v4.conns_pps]\ntop = 7\n",
        );
        let expected = [
            "x.toml:1:1: unknown key peroid: did you mean period?",
            "x.toml:2:9: mount = \"run/topstat\": allowed is an absolute path other than /",
            "x.toml:3:13: log_level = \"inof\": allowed are \"error\", \"warn\", \"info\" and \"debug\": did you mean info?",
            "x.toml:4:19: overhead_budget = 1: allowed is a text in quotes, such as \"1%\" or \"off\"",
            "x.toml:5:7: top = 1025: allowed is a number from 1 to 1024",
            "x.toml:6:9: delay = \"2h\": not in 0ms to 3600s",
            "x.toml:7:8: sync = 1: allowed are true and false",
            "x.toml:8:9: group = \"no such group\": there is no such group on this host",
            "x.toml:9:1: unknown key mystery: there are mount, pins, group, log_level, overhead_budget, top, period, \
             delay, sync, samples, tables",
            "x.toml:11:10: period = 0: not in 1ms to 3600s",
            "x.toml:12:11: enabled = \"yes\": allowed are true and false",
            "x.toml:13:1: unknown key or table of sample tcp_v4 conn_pps: did you mean conns_pps?",
            "x.toml:14:10: unknown sample tcpv4: did you mean tcp_v4?",
            "x.toml:16:1: unknown key of a table top: there are enabled, period, delay, sync",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn what_should_be_a_table_and_is_none_is_said_with_its_line() {
        let lines = wrong("[samples]\n  tcp_v4 = 7\nudp_v4.conns_pps = []\n");
        let expected = [
            "x.toml:2:3: tcp_v4 = 7: allowed is a table with keys of its own",
            "x.toml:3:8: conns_pps = […]: allowed is a table with keys of its own",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn tables_of_the_users_own_have_free_names() {
        for path in ["disk/json", "disk/enabled", "self/issued", "enabled/issued", "tcp_v4/issued", "disk", "disk/a-b"]
        {
            let lines = wrong(&format!("[tables]\n\"{path}\" = \"syscalls:sys_enter_read by pid\"\n"));
            assert!(lines.len() == 1 && lines[0].contains(path.split('/').next().unwrap()), "{path}: {lines:?}");
        }
        parse("[tables]\n\"disk/issued\" = \"syscalls:sys_enter_read by pid\"\n").unwrap();
    }

    #[test]
    fn what_is_no_toml_is_said_with_its_line() {
        assert_eq!(wrong("top = 5\n[samples\n"), ["x.toml:2:9: not TOML: unclosed table, expected `]`"]);
        assert!(wrong("top = 5\ntop = 6\n")[0].starts_with("x.toml:2:1: not TOML: duplicate key"));
    }

    #[test]
    fn samples_of_one_family_keep_the_same_number_of_rows() {
        let lines = wrong("[samples.tcp_v4]\ntop = 10\n[samples.udp_v6]\ntop = 20\n");
        assert_eq!(
            lines,
            [
                "x.toml:3:10: samples tcp_v4 and udp_v6 share their programs and keep the same number of rows: top is 10 \
              for the one and 20 for the other"
            ]
        );
        let config = parse("top = 5\n[samples.udp_v6]\ntop = 20\n").unwrap();
        assert_eq!(config.top(&inet()), 20);
    }

    #[test]
    fn threads_are_for_samples_of_processes() {
        let config = parse("[samples.tasks]\nthreads = true\n[samples.delays]\nthreads = false\n").unwrap();
        let threads = |family: &str| {
            let all = topstat_families::catalogue().families();
            config.threads(&all.iter().find(|one| one.name == family).unwrap().samples)
        };
        assert_eq!((threads("tasks"), threads("delays"), threads("inet")), (true, false, false));
        assert_eq!(Config::default().needs_restart(&config), ["samples.tasks.threads"]);
        let lines =
            wrong("[samples.tcp_v4]\nthreads = true\n[samples.tasks]\nthread = true\n[samples.delays]\nthreads = 1\n");
        assert!(
            lines[0].starts_with("x.toml:2:1: unknown key or table of sample tcp_v4 threads: there are"),
            "{lines:?}"
        );
        assert_eq!(lines[1], "x.toml:4:1: unknown key or table of sample tasks thread: did you mean threads?");
        assert_eq!(lines[2], "x.toml:6:11: threads = 1: allowed are true and false");
    }

    #[test]
    fn groups_are_names_or_numbers() {
        assert_eq!(parse("group = \"root\"").unwrap().group, Some(0));
        assert_eq!(parse("group = \"4711\"").unwrap().group, Some(4711));
    }

    #[test]
    fn a_file_that_was_named_must_be_there() {
        let error = Config::find(Some(Path::new("/no/such/topstat.toml"))).unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot read the configuration /no/such/topstat.toml: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn what_needs_a_restart_is_known() {
        let [old, new] = [
            "top = 5\nperiod = 1000\noverhead_budget = \"1%\"\n",
            "top = 6\nperiod = 2000\nmount = \"/mnt\"\n[samples.tcp_v4]\ntop = 7\n",
        ]
        .map(|text| parse(text).unwrap());
        assert_eq!(old.needs_restart(&new), ["mount", "top", "samples.tcp_v4.top"]);
        assert_eq!(old.needs_restart(&old), [""; 0]);
        let off: String = inet()
            .iter()
            .fold(String::new(), |text, info| text + &format!("[samples.{}]\nenabled = false\n", info.name));
        let off = parse(&off).unwrap();
        assert_eq!(Config::default().needs_restart(&off), ["samples.{tcp_v4,tcp_v6,udp_v4,udp_v6}.enabled"]);
    }
}
