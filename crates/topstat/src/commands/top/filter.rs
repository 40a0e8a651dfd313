// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The filters of rows.

use std::sync::Arc;

use topstat_kernel::TableInfo;
use topstat_model::{Field, Snapshot, filter};

use crate::args::TopArgs;
use crate::args::choice::{MARKS, RowOption, Wanted, filters};
use crate::commands::events::{parse_filters, wrong_filter};
use crate::error::Error;
use crate::resolve;

/// The bytes of a process's name that the kernel keeps: TASK_COMM_LEN less the final zero.
const COMM_BYTES: usize = 15;

/// The filters of a command line. A row must match all of them.
#[derive(Debug, Default)]
pub struct Filters {
    options: Vec<Filter>,
    /// The filters of `--filter`.
    typed: Vec<filter::Filter>,
}

/// One option with all its values. A row must match one of the values.
#[derive(Debug)]
struct Filter {
    option: String,
    columns: Vec<String>,
    wanted: Vec<Wanted>,
}

impl Filters {
    /// Makes the filters of a command line, for these tables.
    ///
    /// # Errors
    ///
    /// When a `--filter` can't be parsed, or names a key that the tables don't have.
    pub fn new(args: &TopArgs, tables: &[Arc<TableInfo>]) -> Result<Self, Error> {
        let given = |RowOption { filter, columns }: RowOption| {
            let wanted = args.choice.wanted.get(&filter.option)?.clone();
            Some(Filter { option: filter.option, columns, wanted })
        };
        let options = filters().into_iter().filter_map(given).collect();
        let typed = parse_filters(&args.filters)?;
        for filter in &typed {
            for table in tables {
                if let Some(keys) = resolve::keys(table) {
                    filter.check(&keys).map_err(|fault| wrong_filter(filter.text(), &fault))?;
                }
            }
        }
        Ok(Self { options, typed })
    }

    /// Hides the rows that do not match.
    pub fn apply(&self, snapshot: &mut Snapshot) -> Result<(), Error> {
        if !self.options.is_empty() {
            let places = self.options.iter().map(|filter| filter.places(snapshot)).collect::<Result<Vec<_>, _>>()?;
            let texts: Vec<_> = self.options.iter().map(Filter::text).collect();
            snapshot.retain(texts.join(" and "), |object, _| {
                self.options.iter().zip(&places).all(|(filter, places)| filter.matches(object, places))
            });
        }
        if !self.typed.is_empty() {
            let texts: Vec<_> = self.typed.iter().map(filter::Filter::text).collect();
            snapshot.select(&self.typed).map_err(|fault| wrong_filter(&texts.join(" "), &fault))?;
        }
        Ok(())
    }
}

impl Filter {
    /// The places of the columns that this filter compares.
    fn places(&self, snapshot: &Snapshot) -> Result<Vec<usize>, Error> {
        let places: Vec<_> = self.columns.iter().filter_map(|column| snapshot.column(column)).collect();
        if places.is_empty() {
            return Err(Error::Usage(format!(
                "--{} does not apply to {}/{}, which has no column {}",
                self.option,
                snapshot.sample,
                snapshot.table,
                self.columns.join(" or ")
            )));
        }
        Ok(places)
    }

    fn matches(&self, object: &[Field], places: &[usize]) -> bool {
        places
            .iter()
            .filter_map(|place| object.get(*place))
            .any(|field| self.wanted.iter().any(|wanted| wanted.matches(field)))
    }

    /// The filter in the user's words: `port=80`, `pid=7|8`.
    fn text(&self) -> String {
        let wanted: Vec<_> = self.wanted.iter().map(Wanted::text).collect();
        format!("{}={}", self.option, wanted.join("|"))
    }
}

impl Wanted {
    fn matches(&self, field: &Field) -> bool {
        match (self, field) {
            (Self::Number(wanted), Field::U64(number)) => wanted == number,
            (Self::Comm(wanted), Field::Text(comm)) => {
                let kept = wanted.as_bytes();
                comm == wanted || comm.as_bytes() == &kept[..kept.len().min(COMM_BYTES)]
            }
            (Self::Path(wanted), Field::Text(path)) => in_cgroup(path, wanted),
            (Self::Text(wanted), Field::Text(text)) => wanted == text,
            (Self::Address(wanted), Field::Ip(address)) => wanted.to_canonical() == address.to_canonical(),
            (Self::Mark(wanted), field) => *wanted == (*field == Field::True),
            _ => false,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Comm(text) | Self::Path(text) | Self::Text(text) => text.clone(),
            Self::Address(address) => address.to_string(),
            Self::Mark(wanted) => MARKS[usize::from(*wanted)].to_owned(),
        }
    }
}

/// Whether the path belongs to the cgroup or to a cgroup below it: `/a` is not above `/ab`. A text that does not begin with a
/// slash, such as the id of a container, matches anywhere in the path.
fn in_cgroup(path: &str, wanted: &str) -> bool {
    if !wanted.starts_with('/') {
        return path.contains(wanted);
    }
    match path.strip_prefix(wanted.trim_end_matches('/')) {
        Some(rest) => rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_match_by_whole_names_or_by_text() {
        for (path, wanted, matches) in [
            ("/system.slice/nginx.service", "/system.slice", true),
            ("/system.slice/nginx.service", "/system.slice/", true),
            ("/system.slice/nginx.service", "/system.slice/nginx.service", true),
            ("/system.slice2/a", "/system.slice", false),
            ("/system.slice/nginx.service", "/nginx.service", false),
            ("/system.slice/nginx.service", "nginx", true),
            ("/system.slice/nginx.service", "Nginx", false),
            ("/", "/", true),
            ("/a", "/", true),
        ] {
            assert_eq!(in_cgroup(path, wanted), matches, "{wanted} {path}");
        }
    }

    #[test]
    fn names_of_processes_are_compared_as_far_as_the_kernel_keeps_them() {
        let matches = |wanted: &str, comm: &str| Wanted::Comm(wanted.into()).matches(&Field::from(comm));
        assert!(matches("nginx", "nginx"));
        assert!(!matches("nginx", "nginx-debug"));
        assert!(matches("systemd-timesyncd", "systemd-timesyn"));
        assert!(!matches("nginx", ""));
        // The name is cut within a character: it equals no comm, and nothing panics.
        assert!(!matches("äääääääää", "äääääää"));
    }
}
