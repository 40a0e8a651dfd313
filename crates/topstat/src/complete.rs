// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values of arguments for completions: the present tables, files, columns and values, since a shell runs this program for each
//! completion.
//!
//! The shell puts candidates into its command line without quotes. So a value from the kernel or another user is offered only if
//! it has no character that a shell interprets.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use topstat_kernel::TableInfo;
use topstat_model::filter::Key;

use crate::{config, library, resolve};

/// How long a completion waits for the files of a daemon.
const AT_MOST: Duration = Duration::from_millis(500);

/// Candidates with their meanings. The candidates that begin with the typed text are offered.
type All = Vec<(String, String)>;

fn completer(all: impl Fn(&str) -> All + Send + Sync + 'static) -> ArgValueCompleter {
    ArgValueCompleter::new(move |typed: &OsStr| {
        let Some(typed) = typed.to_str() else { return vec![] };
        let candidate = |(value, about): (String, String)| {
            CompletionCandidate::new(value).help((!about.is_empty()).then(|| about.into()))
        };
        let mut all = all(typed);
        all.retain(|(value, _)| value.starts_with(typed) && is_plain(value));
        all.into_iter().map(candidate).collect()
    })
}

/// Whether no shell interprets a character of the value.
fn is_plain(value: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+,=".contains(c);
    !value.is_empty() && value.chars().all(plain)
}

/// Completes the path of a table, or `@` and the name of a table of the library.
pub fn tables() -> ArgValueCompleter {
    completer(|_| {
        let mut all: All = Vec::new();
        let mut add = |path: String, about: &str| {
            if !all.iter().any(|(known, _)| *known == path) {
                all.push((path, about.to_owned()));
            }
        };
        for sample in topstat_families::catalogue().samples() {
            let common = sample.variant.as_ref().map(|variant| &variant.of);
            for name in [Some(&sample.name), common].into_iter().flatten() {
                sample.tables.iter().for_each(|table| add(format!("{name}/{}", table.name), &table.about));
            }
        }
        // A daemon may have tables that are in no catalogue.
        let own = in_time(|| tables_below(&mount()).into_iter().map(|path| (path, String::new())).collect());
        own.into_iter().for_each(|(path, about)| add(path, &about));
        let library = library::all().unwrap_or_default();
        library.iter().for_each(|entry| add(format!("{}{}", library::OF_LIBRARY, entry.name), &entry.about));
        all
    })
}

/// Completes the name of a sample.
pub fn samples() -> ArgValueCompleter {
    completer(|_| {
        topstat_families::catalogue()
            .samples()
            .iter()
            .map(|sample| (sample.name.clone(), sample.about.clone()))
            .collect()
    })
}

/// Completes the path of a file of the daemon's tree.
pub fn files() -> ArgValueCompleter {
    completer(|typed| {
        let typed = typed.to_owned();
        in_time(move || files_of(&mount(), &typed).into_iter().map(|path| (path, String::new())).collect())
    })
}

/// Completes the name of a column of the table that the command line has.
pub fn columns() -> ArgValueCompleter {
    completer(|_| keys(&line()).into_iter().map(|key| (key.column.name.into_owned(), String::new())).collect())
}

/// Completes the key of a filter of the table that the command line has.
pub fn filters() -> ArgValueCompleter {
    completer(|_| {
        let names = |key: Key| [Some(key.column.name.into_owned()), key.alias];
        let names: BTreeSet<_> = keys(&line()).into_iter().flat_map(names).flatten().collect();
        names.into_iter().map(|name| (format!("{name}:"), String::new())).collect()
    })
}

/// Completes a value that the rows of the table have now in one of these columns.
pub fn values(columns: Vec<String>) -> ArgValueCompleter {
    completer(move |_| {
        let columns = columns.clone();
        in_time(move || {
            let documents = tables_of(&line()).into_iter().filter_map(|table| {
                serde_json::from_slice(&fs::read(mount().join(table.path()).join("json")).ok()?).ok()
            });
            let values: BTreeSet<_> = documents.flat_map(|document| values_of(&document, &columns)).collect();
            values.into_iter().map(|value| (value, String::new())).collect()
        })
    })
}

/// The result of `read`; nothing if that takes longer than [`AT_MOST`], since a daemon may be stuck.
fn in_time(read: impl FnOnce() -> All + Send + 'static) -> All {
    let (give, take) = channel();
    std::thread::spawn(move || drop(give.send(read())));
    take.recv_timeout(AT_MOST).unwrap_or_default()
}

/// The words of the command line that is completed.
fn line() -> Vec<String> {
    let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The tree that the command line is about.
fn mount() -> PathBuf {
    let line = line();
    let given = |option: &str| {
        let after = line.iter().skip_while(|word| *word != option).nth(1).map(String::as_str);
        line.iter().find_map(|word| word.strip_prefix(option)?.strip_prefix('=')).or(after)
    };
    given("--root").or_else(|| given("--mount")).map_or_else(config::mount, PathBuf::from)
}

/// The tables that the first name of tables in a command line means.
fn tables_of(line: &[String]) -> Vec<std::sync::Arc<TableInfo>> {
    let all = topstat_families::catalogue().samples();
    line.iter().find_map(|word| resolve::tables(&all, word, None).ok()).unwrap_or_default()
}

/// The keys of filters of the table in a command line.
fn keys(line: &[String]) -> Vec<Key> {
    tables_of(line).first().and_then(|table| resolve::keys(table)).unwrap_or_default()
}

/// The paths `SAMPLE/TABLE` below a folder: of those with a file `json`.
fn tables_below(root: &Path) -> Vec<String> {
    let folders = |folder: &Path| names(folder).into_iter().filter_map(|name| Some(name.strip_suffix('/')?.to_owned()));
    let samples = folders(root).flat_map(|sample| {
        folders(&root.join(&sample)).map(move |table| format!("{sample}/{table}")).collect::<Vec<_>>()
    });
    samples.filter(|path| root.join(path).join("json").exists()).collect()
}

/// The files and folders below a root that lie in the folder of a typed path.
fn files_of(root: &Path, typed: &str) -> Vec<String> {
    let folder = typed.rsplit_once('/').map_or("", |(folder, _)| folder);
    let is_below = Path::new(folder).components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let found = if is_below { names(&root.join(folder)) } else { vec![] };
    found.into_iter().map(|name| format!("{prefix}{name}")).collect()
}

/// The names in a folder, in order. The name of a folder ends with a slash.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |entry: fs::DirEntry| {
        let slash = if entry.file_type().is_ok_and(|kind| kind.is_dir()) { "/" } else { "" };
        Some(format!("{}{slash}", entry.file_name().to_str()?))
    };
    let mut names: Vec<_> = entries.filter_map(name).collect();
    names.sort();
    names
}

/// The values of these columns in the rows of a document.
fn values_of(document: &serde_json::Value, columns: &[String]) -> Vec<String> {
    let rows = document["rows"].as_array().into_iter().flatten();
    let fields = rows.flat_map(|row| columns.iter().map(|column| &row["object"][column]));
    let text = |field: &serde_json::Value| match field {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    fields.filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(completer: &ArgValueCompleter, typed: &str) -> Vec<String> {
        let all = completer.complete(OsStr::new(typed));
        all.iter().map(|candidate| candidate.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn tables_are_offered_by_each_of_their_names() {
        let wanted = ["tcp/conns_pps", "tcp/conns_bps", "tcp/conns_bytes", "tcp/conns_retrans"];
        assert_eq!(offered(&tables(), "tcp/"), wanted);
        assert_eq!(offered(&tables(), "udp_v6/conns_b"), ["udp_v6/conns_bps", "udp_v6/conns_bytes"]);
        assert_eq!(offered(&tables(), "@run-q"), ["@run-queue-latency", "@run-queue-latency-by-cgroup"]);
        assert_eq!(offered(&tables(), "nothing"), [""; 0]);
        assert_eq!(offered(&samples(), "tcp_"), ["tcp_v4", "tcp_v6"]);
    }

    #[test]
    fn a_command_line_tells_the_columns() {
        let line = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let names =
            |text: &str| keys(&line(text)).into_iter().map(|key| key.column.name.into_owned()).collect::<Vec<_>>();
        let of_tcp = names("topstat top tcp/conns_pps --sort ");
        assert!(
            ["sip", "dport", "pid", "comm", "rx", "value"].iter().all(|name| of_tcp.iter().any(|of| of == name)),
            "{of_tcp:?}"
        );
        assert_eq!(names("topstat top --sort "), [""; 0]);
    }

    #[test]
    fn files_and_values_are_those_of_the_tree() {
        let root = std::env::temp_dir().join(format!("topstat-complete-{}", std::process::id()));
        fs::create_dir_all(root.join("own/slow")).unwrap();
        fs::create_dir_all(root.join("own/other")).unwrap();
        fs::write(root.join("enabled"), "1\n").unwrap();
        fs::write(root.join("own/slow/json"), "{}").unwrap();
        let found = (tables_below(&root), files_of(&root, ""), files_of(&root, "own/s"), files_of(&root, "../"));
        fs::remove_dir_all(&root).unwrap();
        let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let wanted = (texts(&["own/slow"]), texts(&["enabled", "own/"]), texts(&["own/other/", "own/slow/"]), vec![]);
        assert_eq!(found, wanted);

        let rows = serde_json::json!({"rows": [{"object": {"pid": 7, "comm": "$(reboot)"}}, {"object": {"pid": null, "comm": "a b"}}]});
        let columns = ["pid".to_owned(), "comm".to_owned()];
        assert_eq!(values_of(&rows, &columns), ["7", "$(reboot)", "a b"]);
        assert!(
            is_plain("/system.slice/a@b.service") && !is_plain("$(reboot)") && !is_plain("a b") && !is_plain("a;b")
        );
    }
}
