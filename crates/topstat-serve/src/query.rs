// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of requests.

use std::time::{Duration, SystemTime};

use topstat_model::filter::Filter;
use topstat_model::{Snapshot, parse_rfc3339};

use crate::source::Fault;

/// No table keeps more rows.
const MOST_ROWS: usize = 1024;

/// Parameters that were not used yet.
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes the part of an URI after `?`.
    pub fn new(query: Option<&str>) -> Self {
        Self(form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned().collect())
    }

    /// Takes all values of a parameter.
    pub fn all(&mut self, name: &str) -> Vec<String> {
        let (found, rest) = std::mem::take(&mut self.0).into_iter().partition(|(key, _)| key == name);
        self.0 = rest;
        let found: Vec<(String, String)> = found;
        found.into_iter().map(|(_, value)| value).collect()
    }

    /// Takes the value of a parameter that may stand once.
    ///
    /// # Errors
    ///
    /// It stands several times.
    pub fn one(&mut self, name: &str) -> Result<Option<String>, Fault> {
        let mut values = self.all(name);
        match values.len() {
            0 | 1 => Ok(values.pop()),
            _ => Err(Fault::Wrong(format!("{name} is given several times"))),
        }
    }

    /// Takes a number within limits.
    ///
    /// # Errors
    ///
    /// It is no such number.
    pub fn number(&mut self, name: &str, limits: std::ops::RangeInclusive<usize>) -> Result<Option<usize>, Fault> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let number = text.parse().ok().filter(|number| limits.contains(number));
        let wrong = || Fault::Wrong(format!("{name}={text} is no number from {} to {}", limits.start(), limits.end()));
        number.map(Some).ok_or_else(wrong)
    }

    /// Takes an instant.
    ///
    /// # Errors
    ///
    /// It is not in RFC 3339.
    pub fn time(&mut self, name: &str) -> Result<Option<SystemTime>, Fault> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let time = parse_rfc3339(&text);
        let wrong = || {
            Fault::Wrong(format!(
                "{name}={text} is no time in RFC 3339, such as 2026-11-21T08:00:00Z (+ is %2B in an URI)"
            ))
        };
        time.map(Some).ok_or_else(wrong)
    }

    /// Takes a length of time within limits.
    ///
    /// # Errors
    ///
    /// It is no such time.
    pub fn length(
        &mut self,
        name: &str,
        limits: std::ops::RangeInclusive<Duration>,
    ) -> Result<Option<Duration>, Fault> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let seconds = text.strip_suffix('s').and_then(|seconds| seconds.parse::<f64>().ok());
        let length = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let length = length.or_else(|| humantime::parse_duration(&text).ok()).filter(|length| limits.contains(length));
        let wrong =
            || Fault::Wrong(format!("{name}={text} is no time from {:?} to {:?}", limits.start(), limits.end()));
        length.map(Some).ok_or_else(wrong)
    }

    /// Ends the parsing.
    ///
    /// # Errors
    ///
    /// Parameters that no call has taken.
    pub fn end(self) -> Result<(), Fault> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(Fault::Wrong(format!("there is no parameter {name:?} here"))),
        }
    }
}

/// The rows that a client wants.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    filter: Filter,
    most: Option<usize>,
}

impl Rows {
    /// Takes `filter` and `n`.
    ///
    /// # Errors
    ///
    /// A filter that does not parse; a number that no table has rows.
    pub fn take(query: &mut Query) -> Result<Self, Fault> {
        let text = query.one("filter")?.unwrap_or_default();
        let filter = text.parse().map_err(|fault| Fault::Wrong(format!("filter {text:?}: {fault}")))?;
        Ok(Self { filter, most: query.number("n", 0..=MOST_ROWS)? })
    }

    /// Whether all rows are wanted.
    pub fn all(&self) -> bool {
        self.filter.is_empty() && self.most.is_none()
    }

    /// Hides the other rows.
    ///
    /// # Errors
    ///
    /// The filter has a key or a value that the table does not have.
    pub fn apply(&self, snapshot: &mut Snapshot) -> Result<(), Fault> {
        if !self.filter.is_empty() {
            let wrong = |fault| Fault::Wrong(format!("filter {:?}: {fault}", self.filter.text()));
            self.filter.check(&snapshot.keys()).map_err(wrong)?;
            snapshot.select(std::slice::from_ref(&self.filter)).map_err(wrong)?;
        }
        if let Some(most) = self.most {
            snapshot.truncate(most);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_taken_once_and_all() {
        let query = || Query::new(Some("table=a%2Fb&n=3&table=c/d&at=2026-11-21T08:00:00Z&interval=2s"));
        let mut all = query();
        assert_eq!(all.all("table"), ["a/b", "c/d"]);
        assert_eq!(all.number("n", 0..=9), Ok(Some(3)));
        assert!(all.time("at").unwrap().is_some());
        assert_eq!(all.length("interval", Duration::ZERO..=Duration::MAX), Ok(Some(Duration::from_secs(2))));
        let mut half = Query::new(Some("interval=0.5s"));
        assert_eq!(half.length("interval", Duration::ZERO..=Duration::MAX), Ok(Some(Duration::from_millis(500))));
        assert_eq!(all.end(), Ok(()));
        assert_eq!(query().one("table"), Err(Fault::Wrong("table is given several times".into())));
        assert_eq!(query().number("n", 4..=9), Err(Fault::Wrong("n=3 is no number from 4 to 9".into())));
        assert_eq!(query().end(), Err(Fault::Wrong("there is no parameter \"table\" here".into())));
        assert!(query().time("table").is_err() && query().time("n").is_err());
        assert_eq!(Query::new(None).one("n"), Ok(None));
    }
}
