// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Suggestions for a name that does not exist.

use strsim::damerau_levenshtein;

/// The names that are nearest to the written name: the names with the fewest edits, if these are few, and otherwise the names
/// that contain the written name. The names keep their order. The result is empty if no name is near.
pub fn near<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let written = written.to_lowercase();
    let names: Vec<_> = names.into_iter().collect();
    let edits = |name: &&str| damerau_levenshtein(&written, name);
    let fewest = names.iter().map(edits).min().unwrap_or(usize::MAX);
    // A name that is wrong by more than a third is another name.
    if fewest <= (written.chars().count() / 3).max(1) {
        return names.into_iter().filter(|name| edits(name) == fewest).collect();
    }
    // Almost every name contains a single letter.
    let long_enough = written.chars().count() > 1;
    names.into_iter().filter(|name| long_enough && name.contains(&written)).collect()
}

/// `a`, `a or b`, `a, b or c`.
pub fn either(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
    }
}

/// A question to append to an error, or an empty text: `: did you mean a or b?`.
pub fn did_you_mean<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    match near(written, names) {
        near if near.is_empty() => String::new(),
        near => format!(": did you mean {}?", either(&near)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: [&str; 4] = ["conns_pps", "conns_bps", "conns_bytes", "conns_retrans"];
    const SAMPLES: [&str; 4] = ["tcp_v4", "tcp_v6", "udp_v4", "udp_v6"];

    #[test]
    fn the_nearest_names_are_suggested() {
        for (written, names, suggested) in [
            ("conn_pps", TABLES, "conns_pps"),
            ("conns_ppps", TABLES, "conns_pps"),
            ("CONNS_BPS", TABLES, "conns_bps"),
            ("conns_retransmits", TABLES, "conns_retrans"),
            ("conns_xps", TABLES, "conns_pps or conns_bps"),
            ("bytes", TABLES, "conns_bytes"),
            ("conns", TABLES, "conns_pps, conns_bps, conns_bytes or conns_retrans"),
            ("tcpv4", SAMPLES, "tcp_v4"),
            ("tpc_v4", SAMPLES, "tcp_v4"),
            ("tcp_v5", SAMPLES, "tcp_v4 or tcp_v6"),
            ("v6", SAMPLES, "tcp_v6 or udp_v6"),
        ] {
            assert_eq!(either(&near(written, names)), suggested, "{written}");
        }
    }

    #[test]
    fn nothing_near_is_not_guessed() {
        for written in ["", "s", "packets", "sctp", "☃"] {
            assert_eq!(near(written, TABLES), [""; 0], "{written}");
        }
        assert_eq!(did_you_mean("tasks", SAMPLES), "");
        assert_eq!(did_you_mean("udp_v", SAMPLES), ": did you mean udp_v4 or udp_v6?");
        assert_eq!(near("x", []), [""; 0]);
    }
}
