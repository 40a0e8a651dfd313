// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;

fn good(text: &str) -> Definition {
    parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn event_of(text: &str) -> EventKind {
    match good(text).source {
        Source::Event(event) => event.kind,
        span @ Source::Span { .. } => panic!("{span:?}"),
    }
}

fn name(text: &str, at: usize) -> FieldName {
    FieldName::new(vec![Part::Name(text.to_owned())], false, at)
}

fn constant(text: &str) -> Constant {
    good(&format!("a:b where x = {text}")).conditions.remove(0).constant
}

#[test]
fn all_parts_of_a_definition_have_their_places() {
    let text = "block:block_rq_issue  by dev,\n comm add bytes * 2 where bytes >= 4Ki and rwbs = 'ä  b' \
        unit bytes period 1m30s top 10 keys 100k ";
    let definition = good(text);
    let kind = EventKind::Tracepoint { group: "block".to_owned(), name: "block_rq_issue".to_owned() };
    let condition = |field, op, constant, at| Condition { field, op, constant, at };
    let expected = Definition {
        text: "block:block_rq_issue by dev, comm add bytes * 2 where bytes >= 4Ki and rwbs = 'ä  b' unit bytes period \
            1m30s top 10 keys 100k"
            .to_owned(),
        source: Source::Event(Event { kind, at: 1 }),
        keys: vec![name("dev", 26), name("comm", 32)],
        amount: Some(Amount { field: name("bytes", 41), times: 2 }),
        conditions: vec![
            condition(name("bytes", 57), Op::AtLeast, Constant::Number(4096), 66),
            condition(name("rwbs", 74), Op::Is, Constant::Text("ä  b".to_owned()), 81),
        ],
        unit: Some(Unit::Bytes),
        period_ms: Some(90_000),
        top: Some(10),
        places: Some(100_000),
    };
    assert_eq!(definition, expected);
    assert_eq!(good(&definition.text).text, definition.text);
}

#[test]
fn an_event_alone_is_a_definition() {
    let definition = good("  a:b\n");
    assert_eq!(definition.text, "a:b");
    assert_eq!(definition.source, Source::Event(Event { kind: event_of("a:b"), at: 3 }));
    assert!(definition.keys.is_empty() && definition.conditions.is_empty() && definition.amount.is_none());
}

#[test]
fn a_span_has_two_events_and_their_common_fields() {
    let span = good("from sched:sched_wakeup to sched:sched_switch on pid = next_pid, cpu by comm");
    let at = |kind: &str, at| Event { kind: event_of(kind), at };
    let expected = Source::Span {
        from: at("sched:sched_wakeup", 6),
        to: at("sched:sched_switch", 28),
        common: vec![(name("pid", 50), name("next_pid", 56)), (name("cpu", 66), name("cpu", 66))],
    };
    assert_eq!((span.source, span.keys), (expected, vec![name("comm", 73)]));
    assert_eq!(good("from a:b to c:d on x==y where z=1").conditions.len(), 1);
}

#[test]
fn events_are_written_as_they_are_parsed() {
    let text = str::to_owned;
    for (written, kind) in [
        ("9p:9p_client_req", EventKind::Tracepoint { group: text("9p"), name: text("9p_client_req") }),
        ("btf:tcp_retransmit_skb", EventKind::Btf { name: text("tcp_retransmit_skb") }),
        ("kprobe:a.isra.0", EventKind::Kprobe { function: text("a.isra.0"), at_return: false }),
        ("kretprobe:vfs_read", EventKind::Kprobe { function: text("vfs_read"), at_return: true }),
        (
            "uprobe:/a:b,\"c\"ä:_ZN3$u20$x.llvm.1+0x1f",
            EventKind::Uprobe {
                path: text("/a:b,\"c\"ä"),
                function: text("_ZN3$u20$x.llvm.1"),
                offset: 0x1f,
                at_return: false,
            },
        ),
        (
            "uretprobe:libc.so.6:malloc",
            EventKind::Uprobe { path: text("libc.so.6"), function: text("malloc"), offset: 0, at_return: true },
        ),
        ("usdt:/a:b:lib-c:x.y_z", EventKind::Usdt { path: text("/a:b"), provider: text("lib-c"), name: text("x.y_z") }),
        ("perf:cpu-clock:1000000", EventKind::Perf { name: text("cpu-clock"), period: Some(1_000_000) }),
        ("perf:L1-dcache-loads", EventKind::Perf { name: text("L1-dcache-loads"), period: None }),
    ] {
        assert_eq!(event_of(written), kind, "{written}");
        assert_eq!(kind.to_string(), written);
    }
    assert_eq!(event_of("perf:cpu-clock:1ms").to_string(), "perf:cpu-clock:1000000");
    assert_eq!(event_of("uprobe:/a:b+0x0").to_string(), "uprobe:/a:b");
}

#[test]
fn fields_are_paths() {
    let part = |text: &str| Part::Name(text.to_owned());
    for (written, text, is_text, parts) in [
        ("dev", "dev", false, vec![part("dev")]),
        ("str", "str", false, vec![part("str")]),
        ("str[1].x", "str[1].x", false, vec![part("str"), Part::Index(1), part("x")]),
        ("str.str.x", "str.str.x", true, vec![part("str"), part("x")]),
        (
            "sk.__sk_common.skc_daddr",
            "sk.__sk_common.skc_daddr",
            false,
            vec![part("sk"), part("__sk_common"), part("skc_daddr")],
        ),
        ("a[007][1].b", "a[7][1].b", false, vec![part("a"), Part::Index(7), Part::Index(1), part("b")]),
        (
            "str.a.b.c.d.e.f.g.h",
            "str.a.b.c.d.e.f.g.h",
            true,
            "abcdefgh".chars().map(|c| part(&c.to_string())).collect(),
        ),
    ] {
        let expected = FieldName { text: text.to_owned(), parts, is_text, at: 8 };
        assert_eq!(good(&format!("a:b by {written}")).keys, [expected], "{written}");
    }
}

#[test]
fn words_of_the_grammar_may_be_fields_and_constants() {
    let definition = good("a:b by by, where, and add add where where = where and and = and");
    let keys: Vec<_> = definition.keys.iter().map(|key| key.text.as_str()).collect();
    assert_eq!(keys, ["by", "where", "and"]);
    assert_eq!(definition.conditions.len(), 2);
    assert_eq!(good("from a:b to c:d on on = to by from").keys, [name("from", 31)]);
}

#[test]
fn spaces_are_needed_between_words_only() {
    let definition = good("a:b by x,str.y add z*0x10 where x&3 and y!='' and z<-1k");
    assert_eq!(definition.amount.unwrap().times, 16);
    let conditions: Vec<_> =
        definition.conditions.iter().map(|it| format!("{}{}{}", it.field, it.op, it.constant)).collect();
    assert_eq!(conditions, ["x&3", "y!=\"\"", "z<-1000"]);
}

#[test]
fn comparisons_have_signs() {
    for op in Op::ALL {
        assert_eq!(good(&format!("a:b where x {op} 1")).conditions[0].op, op);
    }
    assert_eq!(good("a:b where x == 1").conditions[0].op, Op::Is);
}

#[test]
fn constants_are_numbers_texts_or_names() {
    for (written, number) in [
        ("0", 0),
        ("-0", 0),
        ("4096", 4096),
        ("0x1F", 31),
        ("-0x10", -16),
        ("18446744073709551615", u64::MAX.into()),
        ("0xffffffffffffffff", u64::MAX.into()),
        ("-9223372036854775808", i64::MIN.into()),
        ("4k", 4_000),
        ("4Ki", 4_096),
        ("-2M", -2_000_000),
        ("2Mi", 2 << 20),
        ("3G", 3_000_000_000),
        ("3Gi", 3 << 30),
        ("7ns", 7),
        ("7us", 7_000),
        ("1.5ms", 1_500_000),
        ("0.5Ki", 512),
        ("10s", 10_000_000_000),
    ] {
        assert_eq!(constant(written), Constant::Number(number), "{written}");
    }
    for (written, text) in [
        (r#""""#, ""),
        (r#""a \"b\" \\ 'c'""#, r#"a "b" \ 'c'"#),
        (r#"'a "b" \ \"'"#, r#"a "b" \ \""#),
        ("'a  ä,&'", "a  ä,&"),
    ] {
        assert_eq!(constant(written), Constant::Text(text.to_owned()), "{written}");
    }
    for name in ["NOT_SPECIFIED", "vda", "_1"] {
        assert_eq!(constant(name), Constant::Name(name.to_owned()));
    }
}

#[test]
fn settings_have_limits() {
    for (written, ms) in [("1ms", 1), ("1s", 1000), ("1m", 60_000), ("1h", 3_600_000), ("1m30s", 90_000)] {
        assert_eq!(good(&format!("a:b period {written}")).period_ms, Some(ms), "{written}");
    }
    assert_eq!(good("a:b top 1Ki keys 1M").top, Some(MAX_TOP));
    assert_eq!(good("a:b top 1 keys 1M").places, Some(MAX_PLACES));
    assert_eq!(good("a:b unit ns").unit, Some(Unit::Nanoseconds));
    for unit in Unit::ALL {
        assert_eq!(good(&format!("a:b unit {}", unit.name())).unit, Some(unit));
    }
}

#[test]
fn arguments_are_definitions_or_names() {
    for text in ["a:b", " a:b by c", "from a:b to c:d on x", "from\nx", "from x", "tcp:"] {
        assert!(is_definition(text), "{text}");
    }
    for text in ["", " ", "tcp", "tcp/bytes", "from", "fromage a:b", "tcp/bytes a:b"] {
        assert!(!is_definition(text), "{text}");
    }
}
