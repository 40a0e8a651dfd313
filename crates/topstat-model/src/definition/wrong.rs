// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The faults of texts that other languages allow, and of words that are nearly right.

use strsim::damerau_levenshtein;

use super::Fault;
use super::parse::{AND, CLAUSES};
use super::rest::{After, Rest};

/// The signs of all comparisons.
pub const SIGNS: &str = "= != < <= > >= &";
pub const NO_OR: &str = "there is no or: all conditions must be met; another table can count the other case";
pub const NO_NOT: &str = "there is no not: write FIELD != CONSTANT, or the opposite comparison";
pub const NO_PARENTHESES: &str =
    "there are no parentheses: conditions stand side by side with and between, and all must be met";
pub const NO_ARITHMETIC: &str = "there is no arithmetic but a factor, add FIELD * NUMBER; \
    a text with such a character stands in quotes, as a constant";
pub const ONLY_AND: &str = "conditions have the word and between: where FIELD = CONSTANT and FIELD = CONSTANT";

/// Words of other languages, and the right form.
const FOREIGN: [(&str, &str); 13] = [
    ("or", NO_OR),
    ("not", NO_NOT),
    (AND, "and stands between conditions only, and fields have commas between"),
    ("from", "from stands at the beginning: from EVENT to EVENT on FIELD"),
    ("to", "a table of the time between two events begins with from: from EVENT to EVENT on FIELD"),
    ("on", "a table of the time between two events begins with from: from EVENT to EVENT on FIELD"),
    ("if", "a condition follows where: where FIELD = CONSTANT"),
    ("filter", "a condition follows where: where FIELD = CONSTANT"),
    ("group", "the fields of a row follow by: by FIELD, FIELD"),
    ("sum", "add FIELD adds up a field"),
    ("count", "a table without add counts the events"),
    ("limit", "top NUMBER limits the rows"),
    ("order", "rows are always ordered by their value"),
];

/// The character in quotes, as errors show it.
pub fn quoted_char(c: char) -> String {
    format!("{:?}", c.to_string())
}

/// A question that an error adds, if known words are near to the written one: the words with the fewest edits.
pub fn did_you_mean(written: &str, known: &[&str]) -> String {
    let written = written.to_lowercase();
    let edits = |word: &&&str| damerau_levenshtein(&written, word);
    let fewest = known.iter().map(|word| edits(&word)).min().unwrap_or(usize::MAX);
    // A word that is wrong by more than a third is another word.
    if fewest > (written.chars().count() / 3).max(1) {
        return String::new();
    }
    let near: Vec<&str> = known.iter().filter(|word| edits(word) == fewest).copied().collect();
    format!(": did you mean {}?", near.join(" or "))
}

/// The fault of a word that is not among the known ones, with the question: `"byte" is no unit: did you mean bytes?`.
pub fn is_no(thing: &str, written: &str, known: &[&str]) -> String {
    let question = did_you_mean(written, known);
    let end = if question.is_empty() { ";" } else { "" };
    format!("{written:?} is no {thing}{question}{end}")
}

impl Rest<'_> {
    /// The fault of a word where a clause begins.
    pub fn unknown(&self, word: &str, at: usize) -> Fault {
        if let Some((_, why)) = FOREIGN.iter().find(|(foreign, _)| *foreign == word.to_ascii_lowercase()) {
            return self.misplaced(Fault { at, why: (*why).to_owned() });
        }
        let words = [&CLAUSES[..], &[AND]].concat();
        let known = if self.after == After::Constant { &words } else { &words[..CLAUSES.len()] };
        let comma = match self.after {
            After::Key | After::Common => "; fields have commas between",
            _ => "",
        };
        let why = format!("{} a clause begins with {}{comma}", is_no("clause", word, known), CLAUSES.join(", "));
        self.misplaced(Fault { at, why })
    }

    /// Replaces the fault of a word, if the word before it was taken for a field or a constant, but looks like a
    /// clause: in `where bytes > by dev`, the fault is at `by`.
    pub fn misplaced(&self, fault: Fault) -> Fault {
        let Some((last, at)) = self.last.filter(|(last, _)| *last == AND || CLAUSES.contains(last)) else {
            return fault;
        };
        let why = match self.after {
            After::Key | After::Common => format!("a field is missing before {last}, or a comma after it"),
            After::Amount => format!("the field of add is missing before {last}"),
            After::Constant => format!("a constant is missing before {last}"),
            After::Other => return fault,
        };
        Fault { at, why }
    }

    /// The fault of a character where a clause or a connective begins.
    pub fn foreign<T>(&self) -> Result<T, Fault> {
        let next = self.next().unwrap_or_default();
        let why = match next {
            '&' if self.text.starts_with("&&") => ONLY_AND.to_owned(),
            '|' => NO_OR.to_owned(),
            '!' if !self.text.starts_with("!=") => NO_NOT.to_owned(),
            '(' | ')' => NO_PARENTHESES.to_owned(),
            '+' | '-' | '*' | '/' | '%' | '^' | '~' => NO_ARITHMETIC.to_owned(),
            '=' | '!' | '<' | '>' | '&' => match self.after {
                After::Constant => format!("a condition has one comparison and one constant; {ONLY_AND}"),
                _ => "a comparison stands in a condition: where FIELD = CONSTANT".to_owned(),
            },
            ',' => match self.after {
                After::Constant => format!("a condition has one constant; {ONLY_AND}"),
                After::Amount => "add has one field".to_owned(),
                _ => "a comma stands between fields only, after by or on".to_owned(),
            },
            '"' | '\'' => "a text in quotes is a constant of a condition: where FIELD = \"TEXT\"".to_owned(),
            _ if self.after == After::Constant => {
                format!("{} belongs to no constant: a text with this character stands in quotes", quoted_char(next))
            }
            _ => format!("{} has no meaning here; a clause begins with {}", quoted_char(next), CLAUSES.join(", ")),
        };
        self.fault(why)
    }
}
