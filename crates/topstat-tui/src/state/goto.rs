// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Going to a table, a process, a container or a connection by a part of its name.

use super::{App, Screen};
use crate::draw::brief;
use crate::rows::ObjectId;

/// What a typed name finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The name for people.
    pub label: String,
    /// The place of the table among all tables.
    pub table: usize,
    /// The object in the table; `None`: the table itself.
    pub object: Option<ObjectId>,
}

/// The most that is offered.
const MOST: usize = 8;

/// How well a label matches the words: smaller is better; `None`: not at all. A label that has all words counts before a label that
/// only has their characters in this order.
fn rank(label: &str, words: &[String]) -> Option<(bool, usize, usize)> {
    let label = label.to_lowercase();
    let places: Option<Vec<_>> = words.iter().map(|word| label.find(word.as_str())).collect();
    if let Some(places) = places {
        return Some((false, places.into_iter().min().unwrap_or(0), label.len()));
    }
    let mut rest = label.chars();
    let has_all = words.iter().flat_map(|word| word.chars()).all(|wanted| rest.any(|c| c == wanted));
    has_all.then_some((true, 0, label.len()))
}

impl App {
    /// What a typed name finds, the best first: tables, and objects of the tables that were read.
    pub fn found(&self, text: &str) -> Vec<Found> {
        let words: Vec<_> = text.split_whitespace().map(str::to_lowercase).collect();
        let mut all = Vec::new();
        for (table, data) in self.data.iter().enumerate() {
            let path = data.meta.path();
            let ranks = [rank(&path, &words), rank(&data.meta.about, &words).filter(|(loose, ..)| !loose)];
            if let Some(rank) = ranks.into_iter().flatten().min() {
                let label = format!("{path}  {}", data.meta.about);
                all.push(((rank.0, 0, rank.1, rank.2), Found { label, table, object: None }));
            }
            let Some(last) = data.past.last().filter(|_| !words.is_empty()) else { continue };
            for row in &last.rows {
                let label = brief(self, last, &row.object);
                if let Some((false, place, length)) = rank(&label, &words) {
                    let label = format!("{label}  in {path}");
                    all.push(((false, 1, place, length), Found { label, table, object: Some(row.object.clone()) }));
                }
            }
        }
        all.sort_by_key(|(rank, _)| *rank);
        all.into_iter().take(MOST).map(|(_, found)| found).collect()
    }

    /// Goes to what the typed name finds; says so where it finds nothing.
    pub(super) fn go(&mut self, text: &str) -> Result<(), String> {
        let found = self.found(text).into_iter().nth(self.choice);
        let Some(found) = found else { return Err("nothing has such a name".to_owned()) };
        self.choose(found.table);
        self.show_table();
        if let Some(object) = found.object {
            self.selected = Some(object.clone());
            self.screens.push(Screen::Object(object));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_count_before_scattered_characters() {
        let of = |label: &str, text: &str| {
            rank(label, &text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).map(|(loose, ..)| loose)
        };
        assert_eq!(of("net_procs/bps", "procs"), Some(false));
        assert_eq!(of("net_procs/bps", "bps net"), Some(false));
        assert_eq!(of("net_procs/bps", "npb"), Some(true));
        assert_eq!(of("net_procs/bps", "xyz"), None);
        assert_eq!(of("Nginx (77)", "nginx"), Some(false));
        assert_eq!(of("anything", ""), Some(false));
    }
}
