// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The promises of the parser of definitions, for any text. The fuzz target has them, too.

use topstat_model::definition::{
    Constant, Definition, Event, Fault, FieldName, MAX_BYTES, MAX_COMMON, MAX_CONDITIONS, MAX_KEYS, MAX_PARTS,
    MAX_PERIOD_MS, MAX_PLACES, MAX_TOP, MIN_PERIOD_MS, Op, Part, Source, parse,
};

/// Parses a text, and panics if the parser breaks a promise.
pub fn check(text: &str) -> Result<Definition, Fault> {
    let parsed = parse(text);
    match &parsed {
        Ok(definition) => {
            limits(definition);
            places(text, definition);
            normal(definition);
        }
        Err(fault) => {
            assert!((1..=text.chars().count() + 1).contains(&fault.at), "{text:?}: {fault}");
            assert!(!fault.why.is_empty() && !fault.why.contains(char::is_control), "{text:?}: {fault:?}");
        }
    }
    parsed
}

/// The definition with no text, and with 0 for all places.
pub fn without_places(definition: &Definition) -> Definition {
    let mut definition = definition.clone();
    definition.text.clear();
    match &mut definition.source {
        Source::Event(event) => event.at = 0,
        Source::Span { from, to, common } => {
            (from.at, to.at) = (0, 0);
            for (first, second) in common {
                (first.at, second.at) = (0, 0);
            }
        }
    }
    definition.keys.iter_mut().for_each(|key| key.at = 0);
    if let Some(amount) = &mut definition.amount {
        amount.field.at = 0;
    }
    for condition in &mut definition.conditions {
        (condition.field.at, condition.at) = (0, 0);
    }
    definition
}

fn events(definition: &Definition) -> Vec<&Event> {
    match &definition.source {
        Source::Event(event) => vec![event],
        Source::Span { from, to, .. } => vec![from, to],
    }
}

fn common(definition: &Definition) -> &[(FieldName, FieldName)] {
    match &definition.source {
        Source::Event(_) => &[],
        Source::Span { common, .. } => common,
    }
}

fn fields(definition: &Definition) -> Vec<&FieldName> {
    let common = common(definition).iter().flat_map(|(first, second)| [first, second]);
    let amount = definition.amount.iter().map(|amount| &amount.field);
    let conditions = definition.conditions.iter().map(|condition| &condition.field);
    common.chain(&definition.keys).chain(amount).chain(conditions).collect()
}

fn limits(definition: &Definition) {
    let Definition { keys, amount, conditions, period_ms, top, places, .. } = definition;
    assert!(keys.len() <= MAX_KEYS && conditions.len() <= MAX_CONDITIONS);
    if matches!(definition.source, Source::Span { .. }) {
        assert!((1..=MAX_COMMON).contains(&common(definition).len()) && amount.is_none());
    }
    assert!(amount.as_ref().is_none_or(|amount| amount.times >= 1 && !amount.field.is_text));
    assert!(period_ms.is_none_or(|ms| (MIN_PERIOD_MS..=MAX_PERIOD_MS).contains(&ms)));
    assert!(top.is_none_or(|top| (1..=MAX_TOP).contains(&top)));
    assert!(places.is_none_or(|places| (1..=MAX_PLACES).contains(&places)));
    for (place, key) in keys.iter().enumerate() {
        assert!(keys[..place].iter().all(|other| other.text != key.text), "{key} stands twice");
    }
    for field in fields(definition) {
        assert!((1..=MAX_PARTS).contains(&field.parts.len()), "{field}");
        assert!(matches!(field.parts[0], Part::Name(_)), "{field}");
    }
    for condition in conditions {
        match &condition.constant {
            Constant::Number(number) => assert!((i64::MIN.into()..=u64::MAX.into()).contains(number)),
            Constant::Text(text) => {
                assert!(!text.contains(char::is_control) && matches!(condition.op, Op::Is | Op::IsNot));
            }
            Constant::Name(name) => assert!(name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')),
        }
    }
}

/// Each part is at its place of the original text.
fn places(text: &str, definition: &Definition) {
    let begins = |at: usize, part: &str| {
        let place = text.char_indices().nth(at - 1).map_or(text.len(), |(place, _)| place);
        assert!(text[place..].starts_with(part), "{text:?}: {part} is not at {at}");
    };
    for event in events(definition) {
        let kind = event.kind.to_string();
        begins(event.at, &kind[..=kind.find(':').unwrap()]);
    }
    for field in fields(definition) {
        // An index may have zeros at its beginning.
        begins(field.at, field.text.split('[').next().unwrap());
    }
    for condition in &definition.conditions {
        match &condition.constant {
            Constant::Name(name) => begins(condition.at, name),
            Constant::Text(_) => assert!(['"', '\''].contains(&text.chars().nth(condition.at - 1).unwrap())),
            Constant::Number(_) => {
                let first = text.chars().nth(condition.at - 1).unwrap();
                assert!(first == '-' || first.is_ascii_digit());
            }
        }
    }
}

/// The normalised text is short, on one line, and stands for an equal definition.
fn normal(definition: &Definition) {
    let text = &definition.text;
    assert!(text.len() <= MAX_BYTES && !text.contains(char::is_control) && text.trim() == text, "{text:?}");
    let again = parse(text).unwrap_or_else(|e| panic!("{text:?}: {e}"));
    assert_eq!(&again.text, text);
    assert_eq!(without_places(&again), without_places(definition));
}
