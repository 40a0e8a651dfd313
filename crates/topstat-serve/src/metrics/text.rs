// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Families of metrics, and their text: Prometheus 0.0.4 or OpenMetrics 1.0.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The kind of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A sum that never falls, except when it begins anew. Its samples have `_total` at the end of their names.
    Counter,
    /// Any number.
    Gauge,
}

/// A number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A whole number, written exactly.
    Whole(u64),
    /// Any number.
    Real(f64),
}

/// A sample: labels and a number.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The labels, in order.
    pub labels: Vec<(Cow<'static, str>, String)>,
    /// The number.
    pub number: Number,
}

/// A family: all samples of one name.
#[derive(Clone, Debug)]
pub struct Family {
    /// The kind.
    pub kind: Kind,
    /// The meaning, with the unit, in a line.
    pub help: Cow<'static, str>,
    /// The samples.
    pub samples: Vec<Sample>,
}

/// Families, by their names. The name of a counter has no `_total`.
#[derive(Clone, Debug, Default)]
pub struct Families(pub BTreeMap<Cow<'static, str>, Family>);

impl Families {
    /// Adds a sample.
    pub fn add(
        &mut self,
        (name, kind, help): (impl Into<Cow<'static, str>>, Kind, impl Into<Cow<'static, str>>),
        labels: &[(&'static str, &str)],
        number: impl Into<Number>,
    ) {
        let labels = labels.iter().map(|(name, value)| (Cow::Borrowed(*name), (*value).to_owned())).collect();
        self.add_sample(name, kind, help, Sample { labels, number: number.into() });
    }

    /// Adds a sample with any names of labels.
    pub fn add_sample(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        kind: Kind,
        help: impl Into<Cow<'static, str>>,
        sample: Sample,
    ) {
        let new = || Family { kind, help: help.into(), samples: Vec::new() };
        self.0.entry(name.into()).or_insert_with(new).samples.push(sample);
    }

    /// The text, in the form of OpenMetrics or of Prometheus.
    pub fn text(&self, open: bool) -> String {
        let mut text = String::with_capacity(128 << 10);
        for (name, family) in &self.0 {
            let (suffix, kind) = match family.kind {
                Kind::Counter => ("_total", "counter"),
                Kind::Gauge => ("", "gauge"),
            };
            let of_family = if open { "" } else { suffix };
            let _ = writeln!(text, "# HELP {name}{of_family} {}", escaped(&family.help, open));
            let _ = writeln!(text, "# TYPE {name}{of_family} {kind}");
            for sample in &family.samples {
                let _ = write!(text, "{name}{suffix}");
                for (place, (label, value)) in sample.labels.iter().enumerate() {
                    text.push(if place == 0 { '{' } else { ',' });
                    let _ = write!(text, "{label}=\"{}\"", escaped(value, true));
                }
                text.push_str(if sample.labels.is_empty() { " " } else { "} " });
                let _ = match sample.number {
                    Number::Whole(number) => writeln!(text, "{number}"),
                    Number::Real(number) => writeln!(text, "{number}"),
                };
            }
        }
        if open {
            text.push_str("# EOF\n");
        }
        text
    }
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

/// A text in which nothing ends a line or a label.
fn escaped(text: &str, quotes: bool) -> Cow<'_, str> {
    if !text.contains(['\\', '\n', '"']) {
        return text.into();
    }
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quotes { text.replace('"', "\\\"").into() } else { text.into() }
}

/// A text as the name of a label.
pub fn label_name(text: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = text.chars().map(safe).collect();
    // The first two name the table; names that begin with two underscores are Prometheus' own.
    let taken = ["sample", "table", "le", "quantile"].contains(&name.as_str());
    if taken || name.starts_with("__") || !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        format!("object_{name}")
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_have_the_samples_of_a_family_together() {
        let mut families = Families::default();
        let pushed = ("topstat_pushed_bytes", Kind::Counter, "Bytes.");
        families.add(pushed, &[("table", "a")], 7);
        families.add(("topstat_up", Kind::Gauge, "Up \\ \"there\"."), &[], 0.5);
        families.add(pushed, &[("table", "a\"\\\nb"), ("rank", "1")], u64::MAX);
        let prometheus = "\
            # HELP topstat_pushed_bytes_total Bytes.\n\
            # TYPE topstat_pushed_bytes_total counter\n\
            topstat_pushed_bytes_total{table=\"a\"} 7\n\
            topstat_pushed_bytes_total{table=\"a\\\"\\\\\\nb\",rank=\"1\"} 18446744073709551615\n\
            # HELP topstat_up Up \\\\ \"there\".\n\
            # TYPE topstat_up gauge\n\
            topstat_up 0.5\n";
        assert_eq!(families.text(false), prometheus);
        let open = families.text(true);
        assert!(open.contains("# TYPE topstat_pushed_bytes counter\n") && open.ends_with("\n# EOF\n"), "{open}");
        assert!(open.contains("\ntopstat_pushed_bytes_total{table=\"a\"} 7\n"), "{open}");
    }

    #[test]
    fn columns_become_labels() {
        for (column, label) in [
            ("cgroup", "cgroup"),
            ("table", "object_table"),
            ("a.b", "a_b"),
            ("0a", "object_0a"),
            ("__x", "object___x"),
            ("", "object_"),
        ] {
            assert_eq!(label_name(column), label);
        }
    }
}
