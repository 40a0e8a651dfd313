// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a definition means on this kernel: descriptors for the program, and columns for readers.

use topstat_model::definition::{Definition, Event as Wanted, EventKind, Fault, FieldName, Part, Source};
use topstat_model::{ColumnKind, Unit};

use super::resolve::{Event, Field, System};
use super::{abi, constant, place};
use topstat_kernel::family::EventField;
use topstat_kernel::hooks::Hook;

/// See the module.
pub struct Described {
    /// For the program.
    pub table: abi::custom_table_is,
    pub hooks: Vec<Hook>,
    pub keys: Vec<Key>,
    pub unit: Unit,
    /// The title of the values.
    pub value_name: String,
    /// What the table ranks by, for people.
    pub about: String,
}

/// A field of the key, as readers show it.
pub struct Key {
    /// The name of its column.
    pub name: String,
    /// Its first word in the key.
    pub word: usize,
    pub kind: ColumnKind,
    pub shown: EventField,
}

/// The words of the shortest text: 15 bytes and a zero.
const LEAST_WORDS: u8 = 2;

/// Resolves a definition.
///
/// # Errors
/// The kernel has no such event or field, a constant is no value of its field, or the keys are too long.
pub fn describe(definition: &Definition, system: &System) -> Result<Described, Fault> {
    let Definition { source, keys, amount, conditions, .. } = definition;
    let (first, last) = match source {
        Source::Event(event) => (event, None),
        Source::Span { from, to, common } => (from, Some((to, common))),
    };
    let event = open(first, system)?;
    let mut table = abi::custom_table_is { times: 1, ..Default::default() };
    // All fields that are read at the first event.
    let mut used = Vec::new();
    let mut resolved = keys.iter().map(|name| field(&event, name)).collect::<Result<Vec<_>, _>>()?;
    table.words = lay_out(&mut resolved, keys)?;
    for (to, from) in table.key.iter_mut().zip(&resolved) {
        *to = from.field;
    }
    used.extend(resolved.iter().map(|field| field.field));
    let mut added = None;
    if let Some(amount) = amount {
        let field = number(&event, &amount.field)?;
        table.amount = field.field;
        table.times = amount.times;
        used.push(field.field);
        added = Some(amount.field.clone());
    }
    for (to, condition) in table.where_.iter_mut().zip(conditions) {
        let field = field(&event, &condition.field)?;
        let at = |why: String| Fault { at: condition.at, why };
        to.op = u8::try_from(constant::op(condition.op)).unwrap_or(u8::MAX);
        if constant::is_text(&field) && u32::from(to.op) > abi::CUSTOM_NE {
            let why = format!("{} is a text: it can be compared by = and != alone", condition.field);
            return Err(Fault { at: condition.field.at, why });
        }
        to.constant = constant::words(&field, &condition.constant).map_err(at)?;
        to.field = field.field;
        used.push(field.field);
    }
    let mut hooks = Vec::new();
    if let Some((to, common)) = last {
        table.is_span = 1;
        let end = open(to, system)?;
        let mut used_at_end = Vec::new();
        for (place, (from, to)) in common.iter().enumerate() {
            table.common[place] = number(&event, from)?.field;
            table.common_end[place] = number(&end, to)?.field;
            used.push(table.common[place]);
            used_at_end.push(table.common_end[place]);
        }
        // Ends before beginnings, so that each span that holds an object has a hook that sees its end.
        hooks.extend(attach("custom_last", to, &used_at_end, system)?);
        hooks.extend(attach("custom_first", first, &used, system)?);
    } else {
        hooks.extend(attach("custom_event", first, &used, system)?);
    }
    if let (Some((_, period)), None) = (place::sampled(&first.kind), amount) {
        table.times = period;
    }
    let unit = unit(definition, added.as_ref());
    Ok(Described {
        value_name: value_name(unit, definition),
        about: about(definition),
        keys: shown(keys, resolved),
        table,
        hooks,
        unit,
    })
}

fn open<'s>(event: &Wanted, system: &'s System) -> Result<Event<'s>, Fault> {
    let at = |why| Fault { at: event.at, why };
    if let EventKind::Perf { name, .. } = &event.kind {
        place::counter_of(name).map_err(at)?;
    }
    Event::open(&event.kind, system).map_err(at)
}

fn field(event: &Event<'_>, name: &FieldName) -> Result<Field, Fault> {
    event.field(name).map_err(|why| Fault { at: name.at, why })
}

fn number(event: &Event<'_>, name: &FieldName) -> Result<Field, Fault> {
    let field = field(event, name)?;
    if constant::is_text(&field) {
        return Err(Fault { at: name.at, why: format!("{name} is a text, and a number is wanted here") });
    }
    Ok(field)
}

/// Attaches a program to a tracepoint's arguments where no field of its record is read: the kernel builds the record first, which
/// takes a fifth of the whole, and skips all classic programs while one of them runs.
fn attach(program: &str, event: &Wanted, used: &[abi::custom_field], system: &System) -> Result<Vec<Hook>, Fault> {
    let at = |why| Fault { at: event.at, why };
    let is_of_task = |field: &abi::custom_field| u32::from(field.source) >= abi::CUSTOM_PID;
    if let EventKind::Tracepoint { name, .. } = &event.kind
        && used.iter().all(is_of_task)
    {
        let plain = EventKind::Btf { name: name.clone() };
        if Event::open(&plain, system).is_ok() {
            return place::hooks(program, &plain).map_err(at);
        }
    }
    place::hooks(program, &event.kind).map_err(at)
}

/// Gives each field its words in the key, one after the other. Texts of any length share the words that the others leave. Returns
/// the number of words, at least 1.
fn lay_out(fields: &mut [Field], names: &[FieldName]) -> Result<u32, Fault> {
    const ALL: u8 = abi::CUSTOM_WORDS as u8;
    let (texts, others): (Vec<_>, Vec<_>) = fields.iter().partition(|field| field.is_cut);
    let fixed = others.iter().map(|field| field.field.words).fold(0_u8, u8::saturating_add);
    let count = u8::try_from(texts.len()).unwrap_or(u8::MAX);
    let each = ALL.saturating_sub(fixed).checked_div(count).unwrap_or(0);
    let mut first = 0_u8;
    for (field, name) in fields.iter_mut().zip(names) {
        if field.is_cut {
            field.field.words = field.field.words.min(each.max(LEAST_WORDS));
            field.field.size = field.field.size.min(field.field.words * 8);
        }
        field.field.first = first;
        first = first.saturating_add(field.field.words);
        if first > ALL {
            let why = format!("the fields after 'by' have more than {} bytes up to here: leave one out", ALL * 8);
            return Err(Fault { at: name.at, why });
        }
    }
    Ok(u32::from(first).max(1))
}

/// The columns of the key. A column has the last name of its field, or the whole field where two would have the same name.
fn shown(names: &[FieldName], fields: Vec<Field>) -> Vec<Key> {
    const OWN: [&str; 4] = ["events", "mean", "longest", "at_most"];
    let last = |name: &FieldName| {
        let named = name.parts.iter().rev().find_map(|part| match part {
            Part::Name(name) => Some(name.clone()),
            Part::Index(_) => None,
        });
        named.unwrap_or_else(|| name.text.clone())
    };
    let short: Vec<_> = names.iter().map(last).collect();
    let of = |(place, (name, field)): (usize, (&FieldName, Field))| {
        let is_alone = short.iter().filter(|other| **other == short[place]).count() == 1;
        let is_own = OWN.contains(&short[place].as_str());
        let shown = EventField {
            size: field.field.size.into(),
            format: field.format,
            names: field.names,
            may_be_cut: field.is_cut,
        };
        Key {
            name: if is_alone && !is_own { short[place].clone() } else { name.text.clone() },
            word: field.field.first.into(),
            kind: shown.kind(),
            shown,
        }
    };
    names.iter().zip(fields).enumerate().map(of).collect()
}

/// The unit that the definition names; otherwise that of a span, of a counter, or what the name of the field says.
fn unit(definition: &Definition, added: Option<&FieldName>) -> Unit {
    if let Some(unit) = definition.unit {
        return unit;
    }
    match (&definition.source, added) {
        (Source::Span { .. }, _) => Unit::Nanoseconds,
        (_, Some(field)) => {
            let name = field.text.rsplit('.').next().unwrap_or_default();
            match name {
                "len" | "size" | "nbytes" => Unit::Bytes,
                _ if name.contains("bytes") || name.ends_with("_len") => Unit::Bytes,
                _ if name.ends_with("_ns") => Unit::Nanoseconds,
                _ => Unit::Count,
            }
        }
        (Source::Event(event), None) => place::sampled(&event.kind).map_or(Unit::Count, |(counter, _)| counter.unit),
    }
}

fn value_name(unit: Unit, definition: &Definition) -> String {
    match (unit, &definition.amount) {
        (Unit::Bytes, _) => "bytes".to_owned(),
        (Unit::Bits, _) => "bits".to_owned(),
        (Unit::Nanoseconds, _) => "ns".to_owned(),
        (_, Some(amount)) => amount.field.text.rsplit('.').next().unwrap_or("amount").to_owned(),
        _ => "count".to_owned(),
    }
}

fn about(definition: &Definition) -> String {
    match &definition.source {
        Source::Span { from, to, .. } => format!("time from {} to {}, per period", from.kind, to.kind),
        Source::Event(event) => match &definition.amount {
            Some(amount) => format!("{} of {}, per period", amount.field, event.kind),
            None => format!("{} events, per period", event.kind),
        },
    }
}
