// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules that give a function's category by its name. They are data: `rules.txt` beside this file, and a file of the user, whose
//! rules come first.

use std::collections::HashMap;
use std::path::Path;

use topstat_model::stacks::{Category, Side};

use topstat_kernel::Error;
use topstat_kernel::symbols::plain;

/// The rules that come with topstat.
const OWN: &str = include_str!("rules.txt");
/// The name of these rules in messages.
const OWN_NAME: &str = "topstat's own rules";
/// The longest file of rules: topstat's own file has 20 KB.
const MOST_BYTES: u64 = 1 << 20;

/// A rule's decision on a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has this category.
    Category(Category),
    /// It has its caller's category.
    Caller,
    /// A CPU waits for work in it.
    Idle,
}

impl Verdict {
    /// The name that `topstat netstack classify` prints.
    pub fn name(self) -> &'static str {
        match self {
            Self::Category(category) => category.name(),
            Self::Caller => "caller",
            Self::Idle => "idle",
        }
    }

    fn of_name(name: &str) -> Option<Self> {
        match name {
            "caller" => Some(Self::Caller),
            "idle" => Some(Self::Idle),
            _ => Category::of_name(name).map(Self::Category),
        }
    }
}

/// The form of a pattern. Patterns decide in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Form {
    Name,
    Beginning,
    End,
    Module,
    Modules,
}

/// A pattern: its form, and its text without the asterisk.
type Pattern = (Form, Box<str>);

/// Patterns, with the value of each.
#[derive(Clone, Debug)]
struct Patterns<T>(HashMap<Pattern, T>);

impl<T> Default for Patterns<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Copy> Patterns<T> {
    /// The value of the pattern that decides on a plain name, and the pattern as it is written.
    fn find(&self, name: &str, module: Option<&str>) -> Option<(T, String)> {
        let get = |form, literal: &str| {
            let found = self.0.get(&(form, literal.into()))?;
            Some((*found, written(form, literal)))
        };
        let cuts = |text: &str| text.char_indices().map(|(at, _)| at).collect::<Vec<_>>();
        get(Form::Name, name)
            .or_else(|| get(Form::Beginning, name))
            .or_else(|| cuts(name).into_iter().rev().find_map(|at| get(Form::Beginning, &name[..at])))
            .or_else(|| cuts(name).into_iter().find_map(|at| get(Form::End, &name[at..])))
            .or_else(|| get(Form::Module, module?))
            .or_else(|| cuts(module?).into_iter().rev().find_map(|at| get(Form::Modules, &module?[..at])))
    }
}

fn written(form: Form, literal: &str) -> String {
    match form {
        Form::Name => literal.to_owned(),
        Form::Beginning => format!("{literal}*"),
        Form::End => format!("*{literal}"),
        Form::Module => format!("@{literal}"),
        Form::Modules => format!("@{literal}*"),
    }
}

/// The rules of one file.
#[derive(Clone, Debug, Default)]
struct Layer {
    verdicts: Patterns<Verdict>,
    unmask: Patterns<()>,
    sides: Patterns<Side>,
}

/// The rules of all files, in the order in which they decide.
#[derive(Clone, Debug)]
pub struct Rules {
    layers: Vec<Layer>,
    /// The patterns of the user's file, in the file's order: the line, and the pattern.
    users: Vec<(usize, Pattern)>,
}

impl Rules {
    /// Topstat's own rules.
    ///
    /// # Panics
    /// When they contain an error: a test reads them.
    pub fn own() -> Self {
        let (layer, _) = Layer::parse(OWN).unwrap_or_else(|(line, why)| panic!("{OWN_NAME}, line {line}: {why}"));
        Self { layers: vec![layer], users: Vec::new() }
    }

    /// The rules of a file, followed by topstat's own.
    ///
    /// # Errors
    /// When the file can't be read, or a rule in it is wrong or can never match.
    pub fn with_file(file: &Path) -> Result<Self, Error> {
        let wrong = |why: String| Error::Option(format!("cannot use the rules of {}: {why}", file.display()));
        let length = std::fs::metadata(file).map_err(|e| wrong(e.to_string()))?.len();
        if length > MOST_BYTES {
            return Err(wrong(format!("it has {length} bytes, of at most {MOST_BYTES}")));
        }
        let text = std::fs::read_to_string(file).map_err(|e| wrong(e.to_string()))?;
        Self::with_text(&text).map_err(|(line, why)| wrong(format!("line {line}: {why}")))
    }

    fn with_text(text: &str) -> Result<Self, (usize, String)> {
        let (layer, users) = Layer::parse(text)?;
        let mut rules = Self::own();
        rules.layers.insert(0, layer);
        rules.users = users;
        Ok(rules)
    }

    /// The verdict on a function, and the pattern that gave it.
    pub fn verdict(&self, symbol: &str, module: Option<&str>) -> Option<(Verdict, String)> {
        self.layers.iter().find_map(|layer| layer.verdicts.find(plain(symbol), module))
    }

    /// Whether the function lets interrupts in again: a sample in it belongs to code that ran before.
    pub fn unmasks(&self, symbol: &str) -> bool {
        self.layers.iter().any(|layer| layer.unmask.find(plain(symbol), None).is_some())
    }

    /// The side that begins at this function of a stack.
    pub fn side(&self, symbol: &str) -> Option<Side> {
        self.layers.iter().find_map(|layer| layer.sides.find(plain(symbol), None)).map(|(side, _)| side)
    }

    /// Patterns of the user's file that match nothing in the kernel: the line of each, and the pattern.
    pub fn unmatched<'a>(
        &self,
        symbols: impl Iterator<Item = (&'a str, Option<&'a str>)> + Clone,
    ) -> Vec<(usize, String)> {
        let matches = |(form, literal): &Pattern| {
            symbols.clone().any(|(symbol, module)| match form {
                Form::Name => plain(symbol) == &**literal,
                Form::Beginning => plain(symbol).starts_with(&**literal),
                Form::End => plain(symbol).ends_with(&**literal),
                Form::Module => module == Some(&**literal),
                Form::Modules => module.is_some_and(|module| module.starts_with(&**literal)),
            })
        };
        let unmatched = self.users.iter().filter(|(_, pattern)| !matches(pattern));
        unmatched.map(|(line, (form, literal))| (*line, written(*form, literal))).collect()
    }
}

/// The number of a line, and the error in it.
type Wrong = (usize, String);

impl Layer {
    /// Parses a text: the rules, and the patterns in the text's order.
    fn parse(text: &str) -> Result<(Self, Vec<(usize, Pattern)>), Wrong> {
        let (mut layer, mut patterns) = (Self::default(), Vec::new());
        // For each table and pattern: the line where it was first.
        let mut before: HashMap<(&str, Pattern), usize> = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let (key, words) =
                line.split_once(':').ok_or((number, "a category, a colon and patterns are expected".to_owned()))?;
            let key = key.trim();
            for word in words.split_whitespace() {
                let pattern = pattern(word).map_err(|why| (number, format!("'{word}' can never match: {why}")))?;
                let table = layer.enter(key, &pattern).map_err(|why| (number, why))?;
                if let Some(first) = before.insert((table, pattern.clone()), number) {
                    return Err((number, format!("'{word}' can never match: it stands in line {first} already")));
                }
                patterns.push((number, pattern));
            }
        }
        Ok((layer, patterns))
    }

    /// Enters a pattern into the table of this key, and returns the table's name.
    fn enter(&mut self, key: &str, pattern: &Pattern) -> Result<&'static str, String> {
        let pattern = pattern.clone();
        if key == "unmask" {
            self.unmask.0.insert(pattern, ());
            return Ok("unmask");
        }
        if let Some(name) = key.strip_prefix("side ") {
            let sides = || Side::ALL.map(Side::name).join(", ");
            let side =
                Side::of_name(name.trim()).ok_or_else(|| format!("no side is '{name}': there are {}", sides()))?;
            self.sides.0.insert(pattern, side);
            return Ok("side");
        }
        let verdict = Verdict::of_name(key).ok_or_else(|| {
            let names = Category::ALL.map(Category::name).join(", ");
            format!("there is no category '{key}': there are {names}, and caller, idle, unmask and side SIDE")
        })?;
        self.verdicts.0.insert(pattern, verdict);
        Ok("category")
    }
}

/// Parses a pattern, or returns the reason why it can match nothing.
fn pattern(word: &str) -> Result<Pattern, String> {
    let (form, literal) = match (word.strip_prefix('@'), word.strip_prefix('*'), word.strip_suffix('*')) {
        (Some(module), ..) => match module.strip_suffix('*') {
            Some(beginning) => (Form::Modules, beginning),
            None => (Form::Module, module),
        },
        (None, Some(end), _) => (Form::End, end),
        (None, None, Some(beginning)) => (Form::Beginning, beginning),
        (None, None, None) => (Form::Name, word),
    };
    if literal.is_empty() {
        return Err("there is no name in it".to_owned());
    }
    if let Some(wrong) = literal.chars().find(|c| !c.is_ascii_alphanumeric() && *c != '_' && *c != '.') {
        return Err(match wrong {
            '*' => "an asterisk stands at the beginning or at the end".to_owned(),
            _ => format!("no name has a '{wrong}'"),
        });
    }
    let of_functions = !matches!(form, Form::Module | Form::Modules);
    if of_functions && literal.contains('.') {
        return Err("names are matched without what compilers put behind a dot".to_owned());
    }
    // In a pattern of an end, leading underscores are within the name.
    if matches!(form, Form::Name | Form::Beginning) && literal.starts_with('_') {
        return Err("names are matched without the underscores in front".to_owned());
    }
    // A name is matched without `_noprof`, so it can't end with it.
    if matches!(form, Form::Name | Form::End) && literal.ends_with("_noprof") {
        return Err("names are matched without _noprof".to_owned());
    }
    Ok((form, literal.into()))
}

#[cfg(test)]
#[path = "rules_test.rs"]
mod tests;
