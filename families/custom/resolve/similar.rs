// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names that resemble a mistyped one.

/// Suggestions in one message.
const SUGGESTED: usize = 3;

/// Single characters that are inserted, removed, replaced or swapped with their neighbour to turn one name into the
/// other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = [vec![0; b.len() + 1], (0..=b.len()).collect(), vec![0; b.len() + 1]];
    for i in 1..=a.len() {
        let [before, last, row] = &mut rows;
        row[0] = i;
        for k in 1..=b.len() {
            let differs = usize::from(a[i - 1] != b[k - 1]);
            row[k] = (last[k - 1] + differs).min(last[k] + 1).min(row[k - 1] + 1);
            if i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1] {
                row[k] = row[k].min(before[k - 2] + 1);
            }
        }
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}

/// The names that are closest to a mistyped one, the best first; none if all of them differ too much.
pub fn closest<'a>(name: &str, candidates: &[&'a str]) -> Vec<&'a str> {
    let most = (name.chars().count() / 3).max(1);
    let near = |candidate: &&'a str| candidate.chars().count().abs_diff(name.chars().count()) <= most;
    let mut found: Vec<(usize, &str)> =
        candidates.iter().copied().filter(near).map(|candidate| (distance(name, candidate), candidate)).collect();
    found.retain(|(distance, _)| *distance <= most);
    if found.is_empty() && name.len() >= 3 {
        let holds =
            |candidate: &&'a str| candidate.contains(name) || (candidate.len() >= 3 && name.contains(*candidate));
        found = candidates.iter().copied().filter(holds).map(|c| (c.len().abs_diff(name.len()), c)).collect();
    }
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(SUGGESTED).map(|(_, candidate)| candidate).collect()
}

/// The closest names as a part of a sentence, or nothing.
pub fn perhaps(name: &str, candidates: &[&str]) -> String {
    let found = closest(name, candidates);
    if found.is_empty() { String::new() } else { format!(", perhaps '{}'", found.join("' or '")) }
}

#[cfg(test)]
mod tests {
    use super::{closest, distance, perhaps};

    #[test]
    fn distance_counts_edits() {
        for (a, b, expected) in
            [("", "", 0), ("", "ab", 2), ("byte", "bytes", 1), ("bytse", "bytes", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
    }

    #[test]
    fn close_names_come_before_names_that_hold_it() {
        assert_eq!(closest("byte", &["bytes", "dev", "bytes_alloc"]), ["bytes"]);
        assert_eq!(closest("sector", &["nr_sector", "dev"]), ["nr_sector"]);
        assert_eq!(closest("x", &["dev", "bytes"]), [""; 0]);
        assert_eq!(perhaps("prev_pdi", &["prev_pid", "next_pid"]), ", perhaps 'prev_pid'");
        assert_eq!(perhaps("ä", &[]), "");
    }
}
