// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the existing samples and tables that a name means.

use std::sync::Arc;

use topstat_kernel::{Family, SampleInfo, TableInfo};
use topstat_model::Stored;
use topstat_model::document::Shape;
use topstat_model::filter::{self, Key};
use topstat_model::typeset::escape;

use crate::error::Error;
use crate::suggest::{did_you_mean, either, near};

/// The table that `topstat` without a command shows.
pub const DEFAULT_TABLE: &str = "tcp_v4/conns_pps";

const LIST: &str = "(topstat ls lists all)";

/// The samples of this name: `tcp_v4`, or `tcp` for all samples with this common name.
pub fn samples(all: &[Arc<SampleInfo>], name: &str) -> Result<Vec<Arc<SampleInfo>>, Error> {
    let found = samples_of(all, name, None)?;
    if !found.is_empty() {
        return Ok(found);
    }
    // The name may be a table's name.
    let sample = name.split('/').next().unwrap_or(name);
    Err(unknown_sample(all, name, sample))
}

/// The tables of this name: `tcp_v4/conns_pps`, or `tcp/conns_pps` for the tables of all samples with the common name `tcp`. The
/// option `only` (`-4`) selects one of these samples.
pub fn tables(all: &[Arc<SampleInfo>], name: &str, only: Option<char>) -> Result<Vec<Arc<TableInfo>>, Error> {
    let Some((sample, table)) = name.split_once('/') else {
        return Err(no_table(all, name));
    };
    let samples = samples_of(all, sample, only)?;
    if samples.is_empty() {
        return Err(unknown_sample(all, sample, sample));
    }
    let found: Vec<_> = tables_of(&samples).filter(|info| info.name == table).cloned().collect();
    if found.is_empty() {
        let names = table_names(&samples);
        let meant = match did_you_mean(table, names.iter().copied()) {
            meant if meant.is_empty() => format!(": {} has {}", escape(sample), names.join(", ")),
            meant => meant,
        };
        return usage(format!("unknown table {}{meant} {LIST}", escape(name)));
    }
    Ok(found)
}

/// The samples of this name that the option `only` selects.
fn samples_of(all: &[Arc<SampleInfo>], name: &str, only: Option<char>) -> Result<Vec<Arc<SampleInfo>>, Error> {
    let chosen = |sample: &SampleInfo| {
        only.is_none_or(|only| sample.variant.as_ref().is_some_and(|variant| variant.option == only))
    };
    if let Some(sample) = all.iter().find(|sample| sample.name == name) {
        return match only {
            Some(only) if !chosen(sample) => usage(format!("-{only} and sample {name} contradict each other")),
            _ => Ok(vec![Arc::clone(sample)]),
        };
    }
    let of_name = |sample: &SampleInfo| sample.variant.as_ref().is_some_and(|variant| variant.of == name);
    Ok(all.iter().filter(|sample| of_name(sample) && chosen(sample)).cloned().collect())
}

fn tables_of(samples: &[Arc<SampleInfo>]) -> impl Iterator<Item = &Arc<TableInfo>> {
    samples.iter().flat_map(|sample| &sample.tables)
}

/// The names of the samples' tables, each once.
fn table_names(samples: &[Arc<SampleInfo>]) -> Vec<&str> {
    let mut names = Vec::new();
    for table in tables_of(samples) {
        if !names.contains(&table.name.as_str()) {
            names.push(&table.name);
        }
    }
    names
}

/// The shape of the objects of a table, if this version knows it; without [`Shape::stored`], which only files need.
pub fn shape(sample: &str, table: &str) -> Option<Shape> {
    shape_of(sample, table, |_, _, _| None)
}

/// As [`shape`], with how records of the table are stored.
pub fn stored_shape(sample: &str, table: &str) -> Option<Shape> {
    shape_of(sample, table, |family, sample, table| Some(family.stored(sample, table)))
}

fn shape_of(
    sample: &str,
    table: &str,
    stored: impl FnOnce(&Family, &SampleInfo, &TableInfo) -> Option<Stored>,
) -> Option<Shape> {
    let family = topstat_families::catalogue().family_of(sample)?;
    let info = family.samples.iter().find(|info| info.name == sample)?;
    let table = info.tables.iter().find(|info| info.name == table)?;
    Some(Shape { columns: info.columns(), value_name: table.value_name.clone(), stored: stored(&family, info, table) })
}

/// The keys that filters accept for a table. `None` for a table of another tree (`--root`), whose keys only its snapshots have.
pub fn keys(table: &TableInfo) -> Option<Vec<Key>> {
    let columns = shape(&table.sample, &table.name)?.columns;
    let parts =
        topstat_families::catalogue().family_of(&table.sample).map(|family| family.parts(table)).unwrap_or_default();
    Some(filter::keys(&columns, table.unit, &table.value_name, parts.iter().map(String::as_str)))
}

/// The names that mean several samples, each once.
pub fn common_names() -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for variant in topstat_families::catalogue().samples().iter().filter_map(|sample| sample.variant.as_ref()) {
        if !names.contains(&variant.of) {
            names.push(variant.of.clone());
        }
    }
    names
}

/// All names that mean samples.
fn sample_names(all: &[Arc<SampleInfo>]) -> Vec<String> {
    all.iter().map(|sample| sample.name.clone()).chain(common_names()).collect()
}

fn unknown_sample(all: &[Arc<SampleInfo>], written: &str, nearly: &str) -> Error {
    let meant = did_you_mean(nearly, sample_names(all).iter().map(String::as_str));
    let meant = if meant.is_empty() {
        let names: Vec<_> = all.iter().map(|s| s.name.clone()).collect();
        format!(": there are {}", names.join(", "))
    } else {
        meant
    };
    Error::Usage(format!("unknown sample {}{meant} {LIST}", escape(written)))
}

/// The error for a name without a slash. The name may be the name of a sample or of a table.
fn no_table(all: &[Arc<SampleInfo>], name: &str) -> Error {
    if let Ok(samples) = samples_of(all, name, None)
        && let Some(table) = tables_of(&samples).next()
    {
        let table = &table.name;
        return Error::Usage(format!(
            "{name} is a sample: name one of its tables too, such as {name}/{table} (topstat ls {name} lists them)"
        ));
    }
    let near = near(name, table_names(all));
    let meant: Vec<_> =
        tables_of(all).filter(|table| near.contains(&table.name.as_str())).map(|table| table.path()).collect();
    let meant: Vec<_> = meant.iter().map(String::as_str).collect();
    // More names are too many to choose from.
    if (1..=4).contains(&meant.len()) {
        return Error::Usage(format!("{} names no sample: did you mean {}? {LIST}", escape(name), either(&meant)));
    }
    Error::Usage(format!("{} is not SAMPLE/TABLE, such as {} {LIST}", escape(name), DEFAULT_TABLE))
}

fn usage<T>(text: String) -> Result<T, Error> {
    Err(Error::Usage(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(name: &str, only: Option<char>) -> String {
        match tables(&topstat_families::catalogue().samples(), name, only) {
            Ok(tables) => {
                let names: Vec<_> = tables.iter().map(|t| format!("{}/{}", t.sample, t.name)).collect();
                names.join(" ")
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_name_means_a_table_or_that_of_all_variants() {
        for (name, only, found) in [
            ("tcp_v4/conns_pps", None, "tcp_v4/conns_pps"),
            ("tcp_v4/conns_pps", Some('4'), "tcp_v4/conns_pps"),
            ("tcp/conns_pps", None, "tcp_v4/conns_pps tcp_v6/conns_pps"),
            ("tcp/conns_pps", Some('6'), "tcp_v6/conns_pps"),
            ("udp/conns_bytes", Some('4'), "udp_v4/conns_bytes"),
        ] {
            assert_eq!(names(name, only), found);
        }
    }

    #[test]
    fn unknown_names_suggest_the_near_ones() {
        let all: Vec<_> = topstat_families::catalogue().samples().iter().map(|sample| sample.name.clone()).collect();
        let all = all.join(", ");
        for (name, error) in [
            ("tcp_v4/conn_pps", "unknown table tcp_v4/conn_pps: did you mean conns_pps? (topstat ls lists all)"),
            ("tcp/retrans", "unknown table tcp/retrans: did you mean conns_retrans? (topstat ls lists all)"),
            (
                "udp/conns_retrans",
                "unknown table udp/conns_retrans: udp has conns_pps, conns_bps, conns_bytes (topstat ls lists all)",
            ),
            (
                "tcp_v4/",
                "unknown table tcp_v4/: tcp_v4 has conns_pps, conns_bps, conns_bytes, conns_retrans (topstat ls lists all)",
            ),
            ("tcpv4/conns_pps", "unknown sample tcpv4: did you mean tcp_v4? (topstat ls lists all)"),
            ("\x1b[31m/conns_pps", &format!("unknown sample \\x1b[31m: there are {all} (topstat ls lists all)")),
            ("tcp", "tcp is a sample: name one of its tables too, such as tcp/conns_pps (topstat ls tcp lists them)"),
            (
                "conns_retrans",
                "conns_retrans names no sample: did you mean tcp_v4/conns_retrans or tcp_v6/conns_retrans? (topstat ls lists all)",
            ),
            ("x_y_z", "x_y_z is not SAMPLE/TABLE, such as tcp_v4/conns_pps (topstat ls lists all)"),
        ] {
            assert_eq!(names(name, None), error);
        }
    }

    #[test]
    fn a_variant_may_not_contradict_the_sample() {
        assert_eq!(names("tcp_v4/conns_pps", Some('6')), "-6 and sample tcp_v4 contradict each other");
    }

    #[test]
    fn samples_are_found_alone_and_by_their_common_name() {
        let count = |name: &str| samples(&topstat_families::catalogue().samples(), name).unwrap().len();
        assert_eq!((count("tcp_v6"), count("tcp")), (1, 2));
        assert_eq!(
            samples(&topstat_families::catalogue().samples(), "udp_v4/conns_pps").unwrap_err().to_string(),
            "unknown sample udp_v4/conns_pps: did you mean udp_v4? (topstat ls lists all)"
        );
    }
}
