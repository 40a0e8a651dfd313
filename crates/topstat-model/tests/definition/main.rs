// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Definitions of tables: any definition is read as it was written, and no text breaks a promise of the parser.

mod promises;

use proptest::prelude::*;
use topstat_model::Unit;
use topstat_model::definition::*;

/// Valid definitions to mutate.
const EXAMPLES: [&str; 8] = [
    "block:block_rq_issue by dev, comm add bytes where bytes >= 4096",
    "from sched:sched_wakeup to sched:sched_switch on pid = next_pid by comm",
    "btf:tcp_retransmit_skb by sk.__sk_common.skc_daddr, sk.__sk_common.skc_dport",
    "uprobe:/usr/lib/x86_64-linux-gnu/libc.so.6:malloc+0x4 by comm add arg0 where arg0 >= 1024",
    "perf:cpu-clock:1000000 by comm, pid unit ns period 1m30s top 10 keys 100k",
    "syscalls:sys_enter_openat by str.filename, comm where flags & 0x40 and comm != \"a \\\"b\\\" \\\\\"",
    "skb:kfree_skb by reason where reason != NOT_SPECIFIED and protocol = 0x800 and location[0] > -1",
    "kretprobe:vfs_read add ret * 1Ki where ret > 0 and x = 'ä'",
];

/// Pieces of the language, and of others.
const PIECES: [&str; 52] = [
    " ",
    "  ",
    "\n",
    "by",
    "add",
    "where",
    "and",
    "unit",
    "period",
    "top",
    "keys",
    "from",
    "to",
    "on",
    "or",
    "not",
    "str.",
    "a:b",
    "kprobe:f",
    "uprobe:/x:f",
    "perf:c:1",
    "btf:x",
    "dev",
    "x.y",
    "x[1]",
    "[",
    "]",
    ".",
    ",",
    ":",
    "*",
    "=",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "&",
    "&&",
    "||",
    "(",
    ")",
    "\"",
    "'",
    "\\",
    "-1",
    "0x1f",
    "4Ki",
    "1.5ms",
    "ä",
    "\u{1}",
];

fn name() -> impl Strategy<Value = String> {
    const WORDS: &[&str] =
        &["by", "add", "where", "and", "unit", "period", "top", "keys", "from", "to", "on", "str", "or", "not"];
    prop_oneof![4 => "[A-Za-z_][A-Za-z0-9_]{0,6}", 1 => prop::sample::select(WORDS).prop_map(str::to_owned)]
}

fn field() -> impl Strategy<Value = FieldName> {
    let part = prop_oneof![3 => name().prop_map(Part::Name), 1 => any::<u32>().prop_map(Part::Index)];
    (name(), prop::collection::vec(part, 0..MAX_PARTS), any::<bool>()).prop_filter_map(
        "a text",
        |(first, rest, is_text)| {
            // A member of a field `str` can't be written: `str.` stands for the text.
            if !is_text && first == "str" && matches!(rest.first(), Some(Part::Name(_))) {
                return None;
            }
            let mut text = format!("{}{first}", if is_text { "str." } else { "" });
            for part in &rest {
                match part {
                    Part::Name(name) => text += &format!(".{name}"),
                    Part::Index(index) => text += &format!("[{index}]"),
                }
            }
            let parts = std::iter::once(Part::Name(first)).chain(rest).collect();
            Some(FieldName { text, parts, is_text, at: 0 })
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let function = "[A-Za-z0-9_.$]{1,9}";
    let group = "[A-Za-z0-9_]{1,9}".prop_filter("a kind", |group| {
        !["btf", "kprobe", "kretprobe", "uprobe", "uretprobe", "usdt", "perf"].contains(&group.as_str())
    });
    let kind = prop_oneof![
        (group, "[A-Za-z0-9_]{1,9}").prop_map(|(group, name)| EventKind::Tracepoint { group, name }),
        "[A-Za-z0-9_]{1,9}".prop_map(|name| EventKind::Btf { name }),
        (function, any::<bool>()).prop_map(|(function, at_return)| EventKind::Kprobe { function, at_return }),
        ("[^\\pC\\s]{1,12}", function, any::<u64>(), any::<bool>()).prop_map(|(path, function, offset, at_return)| {
            EventKind::Uprobe { path, function, offset: if at_return { 0 } else { offset % 3 }, at_return }
        }),
        ("[^\\pC\\s]{1,12}", "[A-Za-z0-9_.-]{1,9}", "[A-Za-z0-9_.-]{1,9}")
            .prop_map(|(path, provider, name)| EventKind::Usdt { path, provider, name }),
        ("[A-Za-z0-9_-]{1,9}", prop::option::of(1..=u64::MAX))
            .prop_map(|(name, period)| EventKind::Perf { name, period }),
    ];
    kind.prop_map(|kind| Event { kind, at: 0 })
}

fn source() -> impl Strategy<Value = Source> {
    let pair = (field(), field(), any::<bool>())
        .prop_map(|(first, second, is_one)| if is_one { (first.clone(), first) } else { (first, second) });
    prop_oneof![
        event().prop_map(Source::Event),
        (event(), event(), prop::collection::vec(pair, 1..=MAX_COMMON)).prop_map(|(from, to, common)| Source::Span {
            from,
            to,
            common
        }),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    let number = i128::from(i64::MIN)..=i128::from(u64::MAX);
    let constant = prop_oneof![
        number.prop_map(Constant::Number),
        "\\PC{0,12}".prop_map(Constant::Text),
        name().prop_map(Constant::Name),
    ];
    (field(), prop::sample::select(&Op::ALL), constant).prop_map(|(field, op, constant)| {
        let op = if matches!(constant, Constant::Text(_)) && op != Op::IsNot { Op::Is } else { op };
        Condition { field, op, constant, at: 0 }
    })
}

fn definition() -> impl Strategy<Value = Definition> {
    let number = |most: u32| prop::option::of(1..=most);
    (
        source(),
        prop::collection::vec(field(), 0..=MAX_KEYS),
        prop::option::of((field(), 1..=u64::MAX)),
        prop::collection::vec(condition(), 0..=MAX_CONDITIONS),
        prop::option::of(prop::sample::select(&Unit::ALL)),
        (number(MAX_PERIOD_MS), number(MAX_TOP), number(MAX_PLACES)),
    )
        .prop_map(|(source, mut keys, amount, conditions, unit, (period_ms, top, places))| {
            keys.sort_by(|a, b| a.text.cmp(&b.text));
            keys.dedup_by(|a, b| a.text == b.text);
            let can_add = matches!(source, Source::Event(_));
            let amount = amount.filter(|(field, _)| can_add && !field.is_text);
            let amount = amount.map(|(field, times)| Amount { field, times });
            Definition { text: String::new(), source, keys, amount, conditions, unit, period_ms, top, places }
        })
}

fn list<T>(all: &[T], between: &str, written: impl Fn(&T) -> String) -> String {
    all.iter().map(written).collect::<Vec<_>>().join(between)
}

/// Writes a definition, with the clauses in an order. A `·` is a space that is needed.
fn written(definition: &Definition, order: &[usize]) -> String {
    let Definition { source, keys, amount, conditions, unit, period_ms, top, places, .. } = definition;
    let mut text = match source {
        Source::Event(event) => event.kind.to_string(),
        Source::Span { from, to, common } => {
            let common = list(common, "·,·", |(first, second)| {
                if first == second { first.to_string() } else { format!("{first}·=·{second}") }
            });
            format!("from·{}·to·{}·on·{common}", from.kind, to.kind)
        }
    };
    let condition = |it: &Condition| format!("{}·{}·{}", it.field, it.op, it.constant);
    let clauses = [
        (!keys.is_empty()).then(|| format!("by·{}", list(keys, ",·", FieldName::to_string))),
        amount.as_ref().map(|amount| match amount.times {
            1 => format!("add·{}", amount.field),
            times => format!("add·{}·*·{times}", amount.field),
        }),
        (!conditions.is_empty()).then(|| format!("where·{}", list(conditions, "·and·", condition))),
        unit.map(|unit| format!("unit·{}", unit.name())),
        period_ms.map(|ms| format!("period·{ms}ms")),
        top.map(|top| format!("top·{top}")),
        places.map(|places| format!("keys·{places}")),
    ];
    for place in order {
        if let Some(clause) = &clauses[*place] {
            text += &format!("·{clause}");
        }
    }
    text
}

#[derive(Clone, Debug)]
enum Edit {
    Delete(usize),
    Insert(usize, &'static str),
    Copy(usize, usize),
    Cut(usize),
    Swap(usize, usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let place = || 0..200_usize;
    prop_oneof![
        3 => place().prop_map(Edit::Delete),
        4 => (place(), prop::sample::select(&PIECES)).prop_map(|(place, piece)| Edit::Insert(place, piece)),
        1 => (place(), place()).prop_map(|(from, to)| Edit::Copy(from, to)),
        1 => place().prop_map(Edit::Cut),
        1 => (place(), place()).prop_map(|(a, b)| Edit::Swap(a, b)),
    ]
}

fn edited(text: &str, edits: &[Edit]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for edit in edits {
        let within = |place: usize| place % chars.len().max(1);
        match *edit {
            _ if chars.is_empty() => {}
            Edit::Delete(place) => drop(chars.remove(within(place))),
            Edit::Insert(place, piece) => {
                let place = within(place);
                drop(chars.splice(place..place, piece.chars()));
            }
            Edit::Copy(from, to) => {
                let (from, to) = (within(from), within(to));
                let copied: Vec<char> = chars[from..].iter().take(20).copied().collect();
                drop(chars.splice(to..to, copied));
            }
            Edit::Cut(place) => chars.truncate(within(place)),
            Edit::Swap(a, b) => {
                let (a, b) = (within(a), within(b));
                chars.swap(a, b);
            }
        }
    }
    chars.into_iter().collect()
}

/// Checks the text, and its first characters, in any number: some hundred thousand texts in all cases of a test.
fn beginnings(text: &str) {
    for (end, _) in text.char_indices() {
        let _ = promises::check(&text[..end]);
    }
    let _ = promises::check(text);
}

#[test]
fn examples_are_valid() {
    for text in EXAMPLES {
        let definition = promises::check(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(definition.text, text);
        assert!(is_definition(text));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_global_rejects: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn a_definition_is_read_as_it_was_written(
        definition in definition(),
        order in Just((0..7).collect::<Vec<usize>>()).prop_shuffle(),
        spaces in prop::collection::vec(prop::sample::select(&[" ", "  ", "\n", "\t ", "\u{2003}"][..]), 1..9),
    ) {
        let pieces = written(&definition, &order);
        // A path and a text may have the mark, too.
        prop_assume!(!format!("{definition:?}").contains('·'));
        let normal = pieces.replace('·', " ");
        let mut spaces = spaces.iter().cycle();
        let text: String = pieces.split_inclusive('·').map(|piece| piece.replace('·', spaces.next().unwrap())).collect();
        match promises::check(&text) {
            Ok(parsed) => {
                prop_assert_eq!(promises::without_places(&parsed), definition);
                prop_assert_eq!(parsed.text, normal);
                prop_assert!(is_definition(&text));
            }
            Err(fault) => prop_assert!(normal.len() > MAX_BYTES && fault.why.contains("longer"), "{fault}: {text}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_500, ..ProptestConfig::default() })]

    #[test]
    fn changed_definitions_keep_the_promises(
        text in prop::sample::select(&EXAMPLES),
        edits in prop::collection::vec(edit(), 1..5),
    ) {
        beginnings(&edited(text, &edits));
    }

    #[test]
    fn pieces_of_the_language_keep_the_promises(
        begin in prop::sample::select(&["", "a:b ", "from a:b to c:d on ", "a:b where ", "a:b by ", "a:b add "][..]),
        pieces in prop::collection::vec(prop::sample::select(&PIECES), 0..16),
        space in prop::sample::select(&["", " "][..]),
    ) {
        beginnings(&format!("{begin}{}", pieces.join(space)));
    }

    #[test]
    fn any_text_keeps_the_promises(text in any::<String>()) {
        let _ = promises::check(&text);
        let _ = promises::check(&format!("a:b where x = {text}"));
        is_definition(&text);
    }
}
