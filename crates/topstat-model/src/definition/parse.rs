// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parser of definitions.

use super::event::{FORMS, event};
use super::number::{period_ms, within};
use super::rest::{After, Rest};
use super::wrong::{NO_ARITHMETIC, NO_NOT, ONLY_AND, SIGNS, is_no};
use super::{
    Amount, Condition, Constant, Definition, Event, Fault, FieldName, MAX_BYTES, MAX_COMMON, MAX_CONDITIONS, MAX_KEYS,
    MAX_PLACES, MAX_TOP, Op, Source,
};
use crate::unit::Unit;

pub const CLAUSES: [&str; 7] = ["by", "add", "where", "unit", "period", "top", "keys"];
pub const AND: &str = "and";

/// The longest signs come first: `<=` begins with `<`.
const OPS: [(&str, Op); 8] = [
    ("!=", Op::IsNot),
    ("==", Op::Is),
    ("<=", Op::AtMost),
    (">=", Op::AtLeast),
    ("=", Op::Is),
    ("<", Op::Less),
    (">", Op::More),
    ("&", Op::AnyBit),
];
/// Whether an argument of a command is a definition, and not the name of a sample or a table: its first word is `from`
/// and others follow, or its first word has a colon. The definition may still have faults.
///
/// ```
/// use topstat_model::definition::is_definition;
///
/// assert!(is_definition("block:block_rq_issue by dev") && is_definition("from a:b to c:d on pid"));
/// assert!(!is_definition("tcp/bytes") && !is_definition("from"));
/// ```
pub fn is_definition(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or_default();
    first.contains(':') || (first == "from" && words.next().is_some())
}

/// Parses a definition. Numbers become their values without units: times are in nanoseconds, the table's period in
/// milliseconds.
///
/// ```
/// use topstat_model::definition::{EventKind, Source, parse};
///
/// let definition = parse("block:block_rq_issue by dev, comm add bytes where bytes >= 4Ki").unwrap();
/// let Source::Event(event) = definition.source else { panic!("it has one event") };
/// assert_eq!(event.kind.to_string(), "block:block_rq_issue");
///
/// let fault = parse("block:block_rq_issue by dev wher bytes >= 4096").unwrap_err();
/// assert!(fault.to_string().starts_with("at character 29: \"wher\" is no clause: did you mean where?"));
/// ```
///
/// # Errors
///
/// The first fault: a text that the grammar does not have (see the [module](super)), or a value or a
/// number of parts beyond the limits. Its character is in the text, or is the one after the end.
pub fn parse(text: &str) -> Result<Definition, Fault> {
    if let Some(place) = text.chars().position(|c| c.is_control() && !c.is_whitespace()) {
        return Err(Fault { at: place + 1, why: "a control character has no meaning here".to_owned() });
    }
    let mut rest = Rest::new(text);
    let source = rest.source()?;
    let mut definition = Definition {
        text: String::new(),
        source,
        keys: Vec::new(),
        amount: None,
        conditions: Vec::new(),
        unit: None,
        period_ms: None,
        top: None,
        places: None,
    };
    rest.skip_space();
    while !rest.text.is_empty() {
        rest.clause(&mut definition)?;
        rest.skip_space();
    }
    let (text, over) = rest.finish();
    if let Some(at) = over {
        return Err(Fault { at, why: format!("the definition is longer than {MAX_BYTES} bytes from here on") });
    }
    definition.text = text;
    Ok(definition)
}

impl Rest<'_> {
    fn source(&mut self) -> Result<Source, Fault> {
        self.skip_space();
        if self.peek_word() != "from" {
            return Ok(Source::Event(self.event()?));
        }
        self.take_word();
        let from = self.event()?;
        self.keyword("to", "from EVENT is followed by: to EVENT on FIELD")?;
        let to = self.event()?;
        self.keyword("on", "to EVENT is followed by: on FIELD, a field with equal values in both events")?;
        let mut common: Vec<(FieldName, FieldName)> = Vec::new();
        loop {
            self.skip_space();
            if common.len() == MAX_COMMON {
                return self.fault(format!("at most {MAX_COMMON} fields follow on"));
            }
            common.push(self.common()?);
            if !self.comma() {
                return Ok(Source::Span { from, to, common });
            }
        }
    }

    fn event(&mut self) -> Result<Event, Fault> {
        self.skip_space();
        let at = self.at;
        let word = self.peek_word();
        if word.is_empty() {
            return self.fault(format!("an event is missing here: {FORMS}"));
        }
        let event = event(word, at)?;
        self.take_word();
        Ok(event)
    }

    fn keyword(&mut self, keyword: &str, why: &str) -> Result<(), Fault> {
        self.skip_space();
        if self.peek_word() != keyword {
            return self.fault(why);
        }
        self.take_word();
        Ok(())
    }

    fn common(&mut self) -> Result<(FieldName, FieldName), Fault> {
        let first = self.field(After::Common)?;
        self.skip_space();
        match self.op()? {
            None => Ok((first.clone(), first)),
            Some((_, Op::Is)) => {
                self.skip_space();
                Ok((first, self.field(After::Common)?))
            }
            Some((at, op)) => {
                let why =
                    format!("{op} compares no common fields: write on FIELD = FIELD, and conditions follow where");
                Err(Fault { at, why })
            }
        }
    }

    fn clause(&mut self, definition: &mut Definition) -> Result<(), Fault> {
        let at = self.at;
        let word = self.peek_name();
        let is_span = matches!(definition.source, Source::Span { .. });
        let stands = match word {
            "" => return self.foreign(),
            "by" => !definition.keys.is_empty(),
            "add" if is_span => {
                let why = "a table with from has no add: its amount is the time between the events";
                return self.fault(why);
            }
            "add" => definition.amount.is_some(),
            "where" => !definition.conditions.is_empty(),
            "unit" => definition.unit.is_some(),
            "period" => definition.period_ms.is_some(),
            "top" => definition.top.is_some(),
            "keys" => definition.places.is_some(),
            other => return Err(self.unknown(other, at)),
        };
        if stands {
            let why = match word {
                "by" => "by stands twice: one by has all fields, with commas between".to_owned(),
                "where" => format!("where stands twice: {ONLY_AND}"),
                _ => format!("{word} stands twice"),
            };
            return Err(self.misplaced(Fault { at, why }));
        }
        self.take(word.len());
        self.skip_space();
        match word {
            "by" => definition.keys = self.keys()?,
            "add" => definition.amount = Some(self.amount()?),
            "where" => definition.conditions = self.conditions()?,
            "unit" => definition.unit = Some(self.value(word, unit)?),
            "period" => definition.period_ms = Some(self.value(word, period_ms)?),
            "top" => definition.top = Some(self.value(word, |text| whole(text, MAX_TOP))?),
            _ => definition.places = Some(self.value(word, |text| whole(text, MAX_PLACES))?),
        }
        Ok(())
    }

    fn keys(&mut self) -> Result<Vec<FieldName>, Fault> {
        let mut keys: Vec<FieldName> = Vec::new();
        loop {
            self.skip_space();
            if keys.len() == MAX_KEYS {
                return self.fault(format!("at most {MAX_KEYS} fields follow by"));
            }
            let key = self.field(After::Key)?;
            if keys.iter().any(|other| other.text == key.text) {
                return Err(Fault { at: key.at, why: format!("{key} stands twice after by") });
            }
            keys.push(key);
            if !self.comma() {
                return Ok(keys);
            }
        }
    }

    fn comma(&mut self) -> bool {
        self.skip_space();
        let is_comma = self.text.starts_with(',');
        if is_comma {
            self.take(1);
        }
        is_comma
    }

    fn amount(&mut self) -> Result<Amount, Fault> {
        let field = self.field(After::Amount)?;
        if field.is_text {
            let why = "a text can't be added up: add has the field of a number".to_owned();
            return Err(Fault { at: field.at, why });
        }
        self.skip_space();
        if !self.text.starts_with('*') {
            return Ok(Amount { field, times: 1 });
        }
        self.take(1);
        self.skip_space();
        let at = self.at;
        let digits = self.take_number();
        self.after = After::Amount;
        self.last = None;
        if digits.is_empty() {
            return self.fault("the factor is missing here: add FIELD * NUMBER");
        }
        let times = within(digits, 1..=u64::MAX).map_err(|why| Fault { at, why })?;
        Ok(Amount { field, times })
    }

    fn conditions(&mut self) -> Result<Vec<Condition>, Fault> {
        let mut conditions = Vec::new();
        loop {
            self.skip_space();
            if conditions.len() == MAX_CONDITIONS {
                return self.fault(format!("at most {MAX_CONDITIONS} conditions follow where"));
            }
            conditions.push(self.condition()?);
            self.skip_space();
            if self.peek_name() != AND {
                return Ok(conditions);
            }
            self.take(AND.len());
        }
    }

    fn condition(&mut self) -> Result<Condition, Fault> {
        let field = self.field(After::Other)?;
        self.skip_space();
        let Some((_, op)) = self.op()? else {
            let why = match field.text.to_ascii_lowercase().as_str() {
                "not" => NO_NOT.to_owned(),
                _ if matches!(self.next(), Some('+' | '-' | '*' | '/' | '%' | '^')) => NO_ARITHMETIC.to_owned(),
                name => format!("a comparison is missing after {name}: it is one of {SIGNS}"),
            };
            let at = if why == NO_NOT { field.at } else { self.at };
            return Err(Fault { at, why });
        };
        self.skip_space();
        let at = self.at;
        let constant = self.constant()?;
        if matches!(constant, Constant::Text(_)) && !matches!(op, Op::Is | Op::IsNot) {
            return Err(Fault { at, why: format!("a text is compared by = and != only, and not by {op}") });
        }
        Ok(Condition { field, op, constant, at })
    }

    /// A comparison and its character, if one follows.
    fn op(&mut self) -> Result<Option<(usize, Op)>, Fault> {
        if self.text.starts_with("&&") {
            return self.fault(ONLY_AND);
        }
        let at = self.at;
        let Some((sign, op)) = OPS.iter().find(|(sign, _)| self.text.starts_with(sign)) else { return Ok(None) };
        self.take(sign.len());
        Ok(Some((at, *op)))
    }

    fn value<T>(&mut self, clause: &str, parsed: impl Fn(&str) -> Result<T, String>) -> Result<T, Fault> {
        let word = self.peek_word();
        if word.is_empty() {
            return self.fault(format!("the value of {clause} is missing here"));
        }
        let value = parsed(word).map_err(|why| Fault { at: self.at, why: format!("{clause}: {why}") })?;
        self.take_word();
        self.after = After::Other;
        Ok(value)
    }
}

fn unit(text: &str) -> Result<Unit, String> {
    let unit = if text == "ns" { Some(Unit::Nanoseconds) } else { Unit::from_name(text) };
    let names = || Unit::ALL.map(Unit::name);
    unit.ok_or_else(|| format!("{} a unit is one of {}, ns", is_no("unit", text, &names()), names().join(", ")))
}

fn whole(text: &str, most: u32) -> Result<u32, String> {
    within(text, 1..=most.into()).map(|number| number as u32)
}
