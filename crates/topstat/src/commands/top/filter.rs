// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which rows are shown.

use topstat_model::{Field, Snapshot};

use crate::args::choice::{Choice, RowOption, Wanted, filters};
use crate::error::Error;

/// The bytes of a process's name that the kernel keeps: TASK_COMM_LEN less the final zero.
const COMM_BYTES: usize = 15;

/// The filters of a command line. A row must match all that are there.
#[derive(Debug, Default)]
pub struct Filters(Vec<Filter>);

/// One option, with all values it was given. A row must match one of them.
#[derive(Debug)]
struct Filter {
    option: String,
    columns: Vec<String>,
    wanted: Vec<Wanted>,
}

impl Filters {
    pub fn new(choice: &Choice) -> Self {
        let given = |RowOption { filter, columns }: RowOption| {
            let wanted = choice.wanted.get(&filter.option)?.clone();
            Some(Filter { option: filter.option, columns, wanted })
        };
        Self(filters().into_iter().filter_map(given).collect())
    }

    /// Hides the rows that do not match.
    pub fn apply(&self, snapshot: &mut Snapshot) -> Result<(), Error> {
        if self.0.is_empty() {
            return Ok(());
        }
        let places = self.0.iter().map(|filter| filter.places(snapshot)).collect::<Result<Vec<_>, _>>()?;
        let texts: Vec<_> = self.0.iter().map(Filter::text).collect();
        snapshot.retain(texts.join(" and "), |object, _| {
            self.0.iter().zip(&places).all(|(filter, places)| filter.matches(object, places))
        });
        Ok(())
    }
}

impl Filter {
    /// Where the columns are that this filter looks at.
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
            _ => false,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Comm(text) | Self::Path(text) | Self::Text(text) => text.clone(),
            Self::Address(address) => address.to_string(),
        }
    }
}

/// Whether the path is of the cgroup, or of one below it: `/a` is not above `/ab`. What does not begin with a slash may
/// stand anywhere in the path, such as the id of a container.
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
        // Cut within a character: no comm is equal to that, and nothing panics.
        assert!(!matches("äääääääää", "äääääää"));
    }
}
