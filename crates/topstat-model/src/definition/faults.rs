// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each fault, with its character.

use super::*;

/// The fault of a text. Sentences that several faults share are replaced by names.
fn fault(text: &str) -> String {
    let fault = parse(text).expect_err(text);
    assert!((1..=text.chars().count() + 1).contains(&fault.at), "{text}: {fault}");
    let clauses = parse::CLAUSES.join(", ");
    let shared = [
        (event::FORMS, "FORMS"),
        (&clauses, "CLAUSES"),
        (wrong::NO_OR, "NO_OR"),
        (wrong::NO_NOT, "NO_NOT"),
        (wrong::NO_PARENTHESES, "NO_PARENTHESES"),
        (wrong::NO_ARITHMETIC, "NO_ARITHMETIC"),
        (wrong::ONLY_AND, "ONLY_AND"),
    ];
    shared.iter().fold(fault.to_string(), |text, (sentence, name)| text.replace(sentence, name))
}

fn faults(expected: &[(&str, &str)]) {
    for (text, wrong) in expected {
        assert_eq!(fault(text), *wrong, "{text}");
    }
}

#[test]
fn wrong_events_are_refused() {
    faults(&[
        ("block_rq_issue by dev", "at character 1: \"block_rq_issue\" is no event: an event is FORMS"),
        ("block:", "at character 7: the name of a tracepoint is missing here; an event is FORMS"),
        (":name", "at character 1: the group of a tracepoint is missing here; an event is FORMS"),
        ("block:rq-issue by dev", "at character 9: the name of a tracepoint has letters, digits and _, but no \"-\""),
        (
            "uprob:/bin/bash:readline",
            "at character 7: the name of a tracepoint has letters, digits and _, but no \"/\": did you mean uprobe?",
        ),
        ("usdt:/bin/bash:x", "at character 6: the path, the provider or the name is missing: usdt:path:provider:name"),
        ("usdt::x:y", "at character 6: the path, the provider or the name is missing: usdt:path:provider:name"),
        ("uprobe:/bin/bash", "at character 8: the path or the function is missing: uprobe:path:function"),
        (
            "uprobe::readline",
            "at character 8: the path of a program or a library is missing here: uprobe:path:function",
        ),
        (
            "uprobe:/lib/libc.so.6:malloc@@GLIBC_2.2.5",
            "at character 29: the version of a function, from @ on, is not given",
        ),
        (
            "uprobe:/bin/bash:readline+12",
            "at character 27: \"12\" is no offset: it is hexadecimal, in bytes, such as +0x1f",
        ),
        ("uprobe:/bin/bash:", "at character 18: the name of a function is missing here; an event is FORMS"),
        ("uretprobe:/bin/bash:readline+0x1f", "at character 29: uretprobe has no offset: it is the function's return"),
        ("kprobe:vfs_read+0x10", "at character 16: only uprobe has an offset"),
        ("kprobe:vfs/read", "at character 11: the name of a function has letters, digits and _ . $, but no \"/\""),
        ("btf:a:b", "at character 6: the name of a tracepoint has letters, digits and _, but no \":\""),
        ("perf:cpu-clock:", "at character 16: the period is missing here: perf:name:period"),
        ("perf:cpu-clock:0", "at character 16: 0 is not in 1 to 2^64 - 1"),
        (
            "perf:cpu-clock:often",
            "at character 16: \"often\" is no number; a unit is one of k M G Ki Mi Gi, or ns us ms s for a time",
        ),
        ("perf:", "at character 6: the name of a counter is missing here; an event is FORMS"),
        ("ä:b by dev", "at character 1: the group of a tracepoint has letters, digits and _, but no \"ä\""),
    ]);
}

#[test]
fn wrong_spans_are_refused() {
    faults(&[
        ("from", "at character 5: an event is missing here: FORMS"),
        ("from a:b", "at character 9: from EVENT is followed by: to EVENT on FIELD"),
        ("from a:b by dev", "at character 10: from EVENT is followed by: to EVENT on FIELD"),
        ("from a:b to", "at character 12: an event is missing here: FORMS"),
        (
            "from a:b to c:d",
            "at character 16: to EVENT is followed by: on FIELD, a field with equal values in both events",
        ),
        (
            "from a:b to c:d by pid",
            "at character 17: to EVENT is followed by: on FIELD, a field with equal values in both events",
        ),
        ("from a:b to c:d on", "at character 19: a field is missing here: its name begins with a letter or _"),
        ("from a:b to c:d on x, y, z", "at character 26: at most 2 fields follow on"),
        (
            "from a:b to c:d on x != y",
            "at character 22: != compares no common fields: write on FIELD = FIELD, and conditions follow where",
        ),
        (
            "from a:b to c:d on x and y",
            "at character 22: and stands between conditions only, and fields have commas between",
        ),
        (
            "from a:b to c:d on x add y",
            "at character 22: a table with from has no add: its amount is the time between the events",
        ),
        ("from a:b to c:d on by comm", "at character 20: a field is missing before by, or a comma after it"),
        ("from a to c:d on x", "at character 6: \"a\" is no event: an event is FORMS"),
        (
            "from a:b to c:d on x = 5",
            "at character 24: a field stands first, and its constant or factor after it: bytes >= 4096",
        ),
    ]);
}

#[test]
fn wrong_clauses_are_refused() {
    faults(&[
        ("a:b wher x = 1", "at character 5: \"wher\" is no clause: did you mean where? a clause begins with CLAUSES"),
        ("a:b BY dev", "at character 5: \"BY\" is no clause: did you mean by? a clause begins with CLAUSES"),
        ("a:b count", "at character 5: a table without add counts the events"),
        ("a:b sum bytes", "at character 5: add FIELD adds up a field"),
        ("a:b filter x = 1", "at character 5: a condition follows where: where FIELD = CONSTANT"),
        ("a:b group by dev", "at character 5: the fields of a row follow by: by FIELD, FIELD"),
        ("a:b order by dev", "at character 5: rows are always ordered by their value"),
        ("a:b limit 5", "at character 5: top NUMBER limits the rows"),
        (
            "a:b to c:d on x",
            "at character 5: a table of the time between two events begins with from: from EVENT to EVENT on FIELD",
        ),
        (
            "a:b on x",
            "at character 5: a table of the time between two events begins with from: from EVENT to EVENT on FIELD",
        ),
        ("a:b ; by dev", "at character 5: \";\" has no meaning here; a clause begins with CLAUSES"),
        ("a:b \"x\"", "at character 5: a text in quotes is a constant of a condition: where FIELD = \"TEXT\""),
        ("a:b , by dev", "at character 5: a comma stands between fields only, after by or on"),
        ("a:b = 1", "at character 5: a comparison stands in a condition: where FIELD = CONSTANT"),
        ("a:b from c:d", "at character 5: from stands at the beginning: from EVENT to EVENT on FIELD"),
    ]);
}

#[test]
fn wrong_fields_and_amounts_are_refused() {
    faults(&[
        (
            "a:b by dev comm",
            "at character 12: \"comm\" is no clause; a clause begins with CLAUSES; fields have commas between",
        ),
        ("a:b by dev and comm", "at character 12: and stands between conditions only, and fields have commas between"),
        ("a:b by", "at character 7: a field is missing here: its name begins with a letter or _"),
        ("a:b by dev,", "at character 12: a field is missing here: its name begins with a letter or _"),
        ("a:b by dev, where x = 1", "at character 13: a field is missing before where, or a comma after it"),
        ("a:b by where x = 1", "at character 8: a field is missing before where, or a comma after it"),
        ("a:b by a, b, c, d, e", "at character 20: at most 4 fields follow by"),
        ("a:b by dev, str.dev, dev", "at character 22: dev stands twice after by"),
        ("a:b by dev by comm", "at character 12: by stands twice: one by has all fields, with commas between"),
        ("a:b by 5", "at character 8: a field stands first, and its constant or factor after it: bytes >= 4096"),
        ("a:b by dev + 1", "at character 12: NO_ARITHMETIC"),
        ("a:b by (dev)", "at character 8: NO_PARENTHESES"),
        (
            "a:b by sk->sk_family",
            "at character 10: a point stands between a structure and its member, also for pointers: sk.sk_family",
        ),
        ("a:b by sk.", "at character 11: the name of a member is missing here: it begins with a letter or _"),
        ("a:b by a[x]", "at character 10: an index is a number from 0 to 2^32 - 1: daddr[0]"),
        ("a:b by a[4294967296]", "at character 10: an index is a number from 0 to 2^32 - 1: daddr[0]"),
        ("a:b by a[1", "at character 11: ] is missing here, after the index"),
        ("a:b by a[1]b", "at character 12: after ] there is a point, a [ or a space"),
        ("a:b by a.b.c.d.e.f.g.h.i", "at character 24: a field has at most 8 parts, names and indices"),
        ("a:b by str.", "at character 12: the name of a member is missing here: it begins with a letter or _"),
        ("a:b by ä", "at character 8: a field is missing here: its name begins with a letter or _"),
        ("a:b add", "at character 8: a field is missing here: its name begins with a letter or _"),
        ("a:b add bytes, calls", "at character 14: add has one field"),
        ("a:b add bytes *", "at character 16: the factor is missing here: add FIELD * NUMBER"),
        (
            "a:b add bytes * x",
            "at character 17: \"x\" is no number; a unit is one of k M G Ki Mi Gi, or ns us ms s for a time",
        ),
        ("a:b add bytes * 0", "at character 17: 0 is not in 1 to 2^64 - 1"),
        ("a:b add bytes * -1", "at character 17: -1 is not in 1 to 2^64 - 1"),
        ("a:b add bytes / 512", "at character 15: NO_ARITHMETIC"),
        (
            "a:b add 512 * sectors",
            "at character 9: a field stands first, and its constant or factor after it: bytes >= 4096",
        ),
        ("a:b add str.name", "at character 9: a text can't be added up: add has the field of a number"),
        ("a:b add by dev", "at character 9: the field of add is missing before by"),
        ("a:b add x add y", "at character 11: add stands twice"),
        ("a:b by zwölf", "at character 10: \"ö\" has no meaning here; a clause begins with CLAUSES"),
        ("a:b by \u{1}x", "at character 8: a control character has no meaning here"),
    ]);
}

#[test]
fn wrong_conditions_are_refused() {
    faults(&[
        (
            "a:b where x = 1 adn y = 2",
            "at character 17: \"adn\" is no clause: did you mean add or and? a clause begins with CLAUSES",
        ),
        ("a:b where", "at character 10: a field is missing here: its name begins with a letter or _"),
        ("a:b where x", "at character 12: a comparison is missing after x: it is one of = != < <= > >= &"),
        ("a:b where x y", "at character 13: a comparison is missing after x: it is one of = != < <= > >= &"),
        ("a:b where x = ", "at character 15: a constant is missing here: a number, a name, or a text in quotes"),
        ("a:b where x ~ 1", "at character 13: a comparison is missing after x: it is one of = != < <= > >= &"),
        ("a:b where x =~ 1", "at character 14: a comparison is one of = != < <= > >= &, and a constant follows it"),
        ("a:b where x <> 1", "at character 14: a comparison is one of = != < <= > >= &, and a constant follows it"),
        (
            "a:b where 1 < x",
            "at character 11: a field stands first, and its constant or factor after it: bytes >= 4096",
        ),
        ("a:b where x = 1 or y = 2", "at character 17: NO_OR"),
        ("a:b where x = 1 || y = 2", "at character 17: NO_OR"),
        ("a:b where x = 1 && y = 2", "at character 17: ONLY_AND"),
        ("a:b where x && y", "at character 13: ONLY_AND"),
        ("a:b where (x = 1)", "at character 11: NO_PARENTHESES"),
        ("a:b where x = (1)", "at character 15: NO_PARENTHESES"),
        ("a:b where not x = 1", "at character 11: NO_NOT"),
        ("a:b where !x", "at character 11: NO_NOT"),
        ("a:b where x + 1 = 2", "at character 13: NO_ARITHMETIC"),
        ("a:b where comm = systemd-journald", "at character 25: NO_ARITHMETIC"),
        (
            "a:b where comm = a:b",
            "at character 19: \":\" belongs to no constant: a text with this character stands in quotes",
        ),
        ("a:b where x & 4 = 4", "at character 17: a condition has one comparison and one constant; ONLY_AND"),
        (
            "a:b where 3 < x < 5",
            "at character 11: a field stands first, and its constant or factor after it: bytes >= 4096",
        ),
        ("a:b where x = 1 where y = 2", "at character 17: where stands twice: ONLY_AND"),
        ("a:b where x > by dev", "at character 15: a constant is missing before by"),
        ("a:b where x = and y = 1", "at character 15: a constant is missing before and"),
        (
            "a:b where x = 1 and y = 2 and z = 3 and a = 4 and b = 5",
            "at character 51: at most 4 conditions follow where",
        ),
    ]);
}

#[test]
fn wrong_constants_are_refused() {
    faults(&[
        ("a:b where x = 1 + 2", "at character 17: NO_ARITHMETIC"),
        ("a:b where x = 1+2", "at character 16: NO_ARITHMETIC"),
        ("a:b where x = 1, 2", "at character 16: a condition has one constant; ONLY_AND"),
        (
            "a:b where x = 5q",
            "at character 15: \"5q\" is no number; a unit is one of k M G Ki Mi Gi, or ns us ms s for a time; \
             a text stands in quotes",
        ),
        (
            "a:b where x = 0644",
            "at character 15: 0644 begins with 0: there are no octal numbers; write it in decimal or as 0x…",
        ),
        (
            "a:b where x = 0x",
            "at character 15: \"0x\" is no hexadecimal number, such as 0x1f; \
             units stand after decimal numbers only; a text stands in quotes",
        ),
        (
            "a:b where x = 0x1k",
            "at character 15: \"0x1k\" is no hexadecimal number, such as 0x1f; \
             units stand after decimal numbers only; a text stands in quotes",
        ),
        ("a:b where x = 18446744073709551616", "at character 15: 18446744073709551616 is not in -2^63 to 2^64 - 1"),
        ("a:b where x = -9223372036854775809", "at character 15: -9223372036854775809 is not in -2^63 to 2^64 - 1"),
        ("a:b where x = 1.5", "at character 15: 1.5 is no whole number"),
        ("a:b where x = 1.2.3", "at character 15: \"1.2.3\" is no number, such as 4096, 0x1f, 4Ki or 1.5ms"),
        ("a:b where x = 1.", "at character 15: \"1.\" is no number, such as 4096, 0x1f, 4Ki or 1.5ms"),
        ("a:b where x = -", "at character 15: \"-\" is no number, such as 4096, 0x1f, 4Ki or 1.5ms"),
        (
            "a:b where x = +1",
            "at character 15: no constant begins with \"+\": it is a number, a name, or a text in quotes",
        ),
        ("a:b where x = \"a", "at character 15: the quote that begins here does not end"),
        ("a:b where x = \"a\n\"", "at character 17: a text has no control characters"),
        ("a:b where x = \"a\"b", "at character 18: after a quote there is a space or the end"),
        ("a:b where x > \"a\"", "at character 15: a text is compared by = and != only, and not by >"),
        ("a:b where x & 'a'", "at character 15: a text is compared by = and != only, and not by &"),
        (
            "a:b where x = 'ä' wher",
            "at character 19: \"wher\" is no clause: did you mean where? a clause begins with CLAUSES",
        ),
    ]);
}

#[test]
fn wrong_settings_are_refused() {
    faults(&[
        (
            "a:b unit parsecs",
            "at character 10: unit: \"parsecs\" is no unit; \
             a unit is one of packets, bits, bytes, segments, nanoseconds, count, ns",
        ),
        (
            "a:b unit byte",
            "at character 10: unit: \"byte\" is no unit: did you mean bytes? a unit is one of packets, bits, bytes, \
             segments, nanoseconds, count, ns",
        ),
        ("a:b unit", "at character 9: the value of unit is missing here"),
        ("a:b period 10", "at character 12: period: 10 has no unit: write 10ms or 10s"),
        ("a:b period 2h", "at character 12: period: 2h is not in 1ms to 3600s"),
        ("a:b period soon", "at character 12: period: \"soon\" is no time, such as 500ms, 1s, 1m or 1h"),
        ("a:b period 1500us", "at character 12: period: 1500us is not a whole number of milliseconds"),
        ("a:b period 0s", "at character 12: period: 0s is not in 1ms to 3600s"),
        ("a:b top 0", "at character 9: top: 0 is not in 1 to 1024"),
        ("a:b top 1025", "at character 9: top: 1025 is not in 1 to 1024"),
        (
            "a:b top ten",
            "at character 9: top: \"ten\" is no number; a unit is one of k M G Ki Mi Gi, or ns us ms s for a time",
        ),
        ("a:b keys 1000001", "at character 10: keys: 1000001 is not in 1 to 1000000"),
        ("a:b keys", "at character 9: the value of keys is missing here"),
        ("a:b top 1 top 2", "at character 11: top stands twice"),
        ("a:b unit ns unit ns", "at character 13: unit stands twice"),
        ("a:b period 1s period 1s", "at character 15: period stands twice"),
        ("a:b keys 1 keys 1", "at character 12: keys stands twice"),
    ]);
}

#[test]
fn long_definitions_are_refused() {
    let of = |bytes: usize| format!("a:b \n by {}", "x".repeat(bytes - "a:b by ".len()));
    assert_eq!(parse(&of(MAX_BYTES)).unwrap().text.len(), MAX_BYTES);
    let wrong = "at character 1026: the definition is longer than 1023 bytes from here on";
    assert_eq!(fault(&of(MAX_BYTES + 1)), wrong);
    assert_eq!(fault(&of(MAX_BYTES + 9)), wrong);
    assert!(fault(&format!("a:b where x = '{}'", "ä".repeat(600))).starts_with("at character 520: the definition"));
}
