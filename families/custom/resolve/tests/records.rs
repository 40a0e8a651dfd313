// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests with formats as text.

use proptest::prelude::*;

use super::super::format::Record;
use super::super::{Event, Format, Kind, abi};
use super::{field, formats, place};

fn event(group: &str, format: &str) -> Event<'static> {
    let name = format.lines().next().unwrap().trim_start_matches("name: ");
    Event { title: format!("{group}:{name}"), kind: Kind::Record(Record::parse(group, format)) }
}

/// The name of a number or a bit.
fn name_of(field: &super::Field, number: u64) -> Option<&str> {
    field.names.iter().find(|(found, _)| *found == number).map(|(_, name)| name.as_str())
}

#[test]
fn numbers_and_texts_of_block() {
    let event = event("block", formats::BLOCK_RQ_ISSUE);
    for (name, source, at, size, words, format) in [
        ("dev", abi::CUSTOM_NUMBER, 8, 4, 1, Format::Device),
        ("sector", abi::CUSTOM_NUMBER, 16, 8, 1, Format::Unsigned),
        ("bytes", abi::CUSTOM_NUMBER, 28, 4, 1, Format::Unsigned),
        ("rwbs", abi::CUSTOM_CHARS, 34, 10, 2, Format::Text),
        ("comm", abi::CUSTOM_CHARS, 44, 16, 2, Format::Text),
        ("cmd", abi::CUSTOM_DATA_LOC, 60, 64, 8, Format::Text),
        ("pid", abi::CUSTOM_PID, 0, 4, 1, Format::Unsigned),
        ("container", abi::CUSTOM_CGROUP, 0, 8, 1, Format::Container),
    ] {
        let found = field(&event, name).unwrap();
        assert_eq!(place(&found), (source, at, size), "{name}");
        assert_eq!((found.field.words, found.format, found.field.flags), (words, format, 0), "{name}");
        assert_eq!(found.is_cut, name == "cmd", "{name}");
    }
}

#[test]
fn other_names_are_refused_with_a_reason() {
    let event = event("block", formats::BLOCK_RQ_ISSUE);
    for (name, why) in [
        (
            "byte",
            "block:block_rq_issue has no field 'byte', perhaps 'bytes'; it has dev, sector, nr_sector, bytes, ioprio, \
             rwbs, comm, cmd (and pid, tid, ppid, uid, cpu, cgroup, container, netns, comm)",
        ),
        ("common_pid", "block:block_rq_issue: 'common_pid' is not given to programs: use pid, tid, cpu or comm"),
        ("bytes[1]", "block:block_rq_issue: 'bytes[1]' is not possible: 'bytes' is no array"),
        ("str.bytes", "block:block_rq_issue: 'str.bytes' is not possible: the field is not an address"),
        ("pid.x", "block:block_rq_issue: 'pid.x' is not possible: the field has no parts"),
        (
            "dev.x",
            "block:block_rq_issue: 'dev.x' is not possible: records have no members of members; events with btf: have",
        ),
    ] {
        assert_eq!(field(&event, name).unwrap_err(), why);
    }
}

#[test]
fn names_of_numbers_come_from_the_print_line() {
    let kfree_skb = event("skb", formats::KFREE_SKB);
    let reason = field(&kfree_skb, "reason").unwrap();
    assert_eq!(reason.format, Format::Named);
    assert_eq!(name_of(&reason, 3), Some("NO_SOCKET"));
    assert_eq!(field(&kfree_skb, "location").unwrap().format, Format::Symbol);
    assert_eq!(field(&kfree_skb, "skbaddr").unwrap().format, Format::Hex);
    let softirq = event("irq", formats::SOFTIRQ_ENTRY);
    assert_eq!(name_of(&field(&softirq, "vec").unwrap(), 9), Some("RCU"));
    let switch = event("sched", formats::SCHED_SWITCH);
    let state = field(&switch, "prev_state").unwrap();
    assert_eq!((state.format, name_of(&state, 2)), (Format::Flags, Some("D")));
    assert_eq!(u32::from(state.field.flags), abi::CUSTOM_SIGNED);
    let pid = field(&switch, "prev_pid").unwrap();
    assert_eq!((pid.format, u32::from(pid.field.flags)), (Format::Signed, abi::CUSTOM_SIGNED));
}

#[test]
fn flags_of_several_bits_come_first() {
    let kmalloc = event("kmem", formats::KMALLOC);
    let flags = field(&kmalloc, "gfp_flags").unwrap();
    assert_eq!(flags.format, Format::Flags);
    assert_eq!(flags.names[0].1, "GFP_TRANSHUGE");
    assert!(flags.names[0].0.count_ones() > 5);
    assert_eq!(name_of(&flags, 1 << 5 | 1 << 11), Some("GFP_ATOMIC"));
    assert_eq!(field(&kmalloc, "call_site").unwrap().format, Format::Symbol);
    assert_eq!(field(&kmalloc, "bytes_req").unwrap().format, Format::Unsigned);
}

#[test]
fn addresses_of_the_network_have_their_format() {
    let state = event("sock", formats::INET_SOCK_SET_STATE);
    for (name, at, size, format) in [
        ("saddr", 32, 4, Format::Ipv4),
        ("daddr_v6", 56, 16, Format::Ipv6),
        ("dport", 26, 2, Format::Unsigned),
        ("newstate", 20, 4, Format::Named),
    ] {
        let found = field(&state, name).unwrap();
        assert_eq!((found.field.at, found.field.size, found.format), (at, size, format), "{name}");
    }
    let bridge = event("bridge", formats::BR_MDB_FULL);
    assert_eq!(field(&bridge, "grpmac").unwrap().format, Format::Mac);
    assert_eq!(place(&field(&bridge, "src[2]").unwrap()), (abi::CUSTOM_NUMBER, 20, 1));
    let lookup = event("fib", formats::FIB_TABLE_LOOKUP);
    assert_eq!(field(&lookup, "gw4").unwrap().format, Format::Ipv4, "known from %pI4");
    assert_eq!(field(&lookup, "gw6").unwrap().field.words, 2);
    assert_eq!(field(&lookup, "flags").unwrap().format, Format::Hex);
}

#[test]
fn arguments_of_system_calls_have_the_width_of_their_type() {
    let openat = event("syscalls", formats::SYS_ENTER_OPENAT);
    let dfd = field(&openat, "dfd").unwrap();
    assert_eq!((place(&dfd), dfd.format), ((abi::CUSTOM_NUMBER, 16, 4), Format::Signed));
    let filename = field(&openat, "str.filename").unwrap();
    assert_eq!((place(&filename), filename.format), ((abi::CUSTOM_USER_TEXT, 24, 64), Format::Text));
    assert!(filename.is_cut);
    assert_eq!(field(&openat, "filename").unwrap().format, Format::Hex);
    let enter = event("raw_syscalls", formats::SYS_ENTER);
    assert_eq!(place(&field(&enter, "args[2]").unwrap()), (abi::CUSTOM_NUMBER, 32, 8));
    assert_eq!(place(&field(&enter, "str.args[1]").unwrap()), (abi::CUSTOM_USER_TEXT, 24, 64));
    for (name, why) in [
        ("args", "raw_syscalls:sys_enter: 'args' is an array of 6 numbers: use args[0] to args[5]"),
        ("args[6]", "raw_syscalls:sys_enter: 'args[6]' is behind the end of the array: the last element is args[5]"),
    ] {
        assert_eq!(field(&enter, name).unwrap_err(), why);
    }
}

#[test]
fn arrays_whose_length_varies_are_refused() {
    let event = event("dma", formats::DMA_MAP_SG);
    assert!(field(&event, "dma_addrs").unwrap_err().ends_with("can't be read: the length of u64[] varies"));
    assert_eq!(place(&field(&event, "device").unwrap()), (abi::CUSTOM_DATA_LOC, 8, 64));
    assert_eq!(field(&event, "truncated").unwrap().format, Format::Bool);
    assert_eq!(field(&event, "dir").unwrap().format, Format::Named);
}

#[test]
fn rare_declarations_are_understood() {
    let lines = [
        "field:__rel_loc char[] path;\toffset:8;\tsize:4;\tsigned:0;",
        "field:__be16 port;\toffset:12;\tsize:2;\tsigned:0;",
        "field:__be32 saddr;\toffset:16;\tsize:4;\tsigned:0;",
        "field:__be32 seq;\toffset:20;\tsize:4;\tsigned:0;",
        "field:u32 odd;\toffset:26;\tsize:4;\tsigned:0;",
        "field:struct timespec64 when;\toffset:32;\tsize:12;\tsigned:0;",
        "field:char text[100];\toffset:48;\tsize:100;\tsigned:0;",
        "field:char[20] old;\toffset:148;\tsize:20;\tsigned:0;",
        "field:u64 many[SOME_MAX];\toffset:168;\tsize:24;\tsigned:0;",
        "field:char none[];\toffset:192;\tsize:0;\tsigned:0;",
        "field:int far;\toffset:70000;\tsize:4;\tsigned:1;",
    ];
    let event = event("made", &format!("name: up\n{}\n", lines.join("\n")));
    for (name, expected, flags, format) in [
        ("path", (abi::CUSTOM_REL_LOC, 8, 64), 0, Format::Text),
        ("port", (abi::CUSTOM_NUMBER, 12, 2), abi::CUSTOM_SWAP, Format::Unsigned),
        ("saddr", (abi::CUSTOM_NUMBER, 16, 4), 0, Format::Ipv4),
        ("seq", (abi::CUSTOM_NUMBER, 20, 4), abi::CUSTOM_SWAP, Format::Unsigned),
        ("text", (abi::CUSTOM_CHARS, 48, 64), 0, Format::Text),
        ("old", (abi::CUSTOM_CHARS, 148, 20), 0, Format::Text),
        ("many[2]", (abi::CUSTOM_NUMBER, 184, 8), 0, Format::Unsigned),
    ] {
        let found = field(&event, name).unwrap();
        assert_eq!((place(&found), u32::from(found.field.flags), found.format), (expected, flags, format), "{name}");
        assert_eq!(found.is_cut, matches!(name, "path" | "text"), "{name}");
    }
    for (name, why) in [
        ("odd", "its 4 bytes are at 26, which is no multiple of 4"),
        ("when", "it has 12 bytes, and numbers have 1, 2, 4 or 8"),
        ("none", "the length of char[] is not known"),
        ("far", "is too far behind the beginning of the record"),
    ] {
        let found = field(&event, name).unwrap_err();
        assert!(found.ends_with(why), "{found}");
    }
}

/// Tries each field in each way.
fn try_all(group: &str, format: &str) {
    let record = Record::parse(group, format);
    record.fields();
    let event = Event { title: String::new(), kind: Kind::Record(record) };
    for name in event.fields().iter().map(|listed| &listed.name) {
        for name in [name.clone(), format!("{name}[0]"), format!("{name}[4294967295]"), format!("str.{name}")] {
            let _ = field(&event, &name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_formats_do_no_harm(
        which in 0..8usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..20),
    ) {
        let formats = [
            formats::BLOCK_RQ_ISSUE, formats::KFREE_SKB, formats::SYS_ENTER_OPENAT, formats::SYS_ENTER,
            formats::INET_SOCK_SET_STATE, formats::KMALLOC, formats::SCHED_SWITCH, formats::DMA_MAP_SG,
        ];
        let mut text: Vec<char> = formats[which].chars().collect();
        let other = "\"'\\(){}[],;:%*-+&|<>~09é\nfield REC->__data_loc offset:4294967295;size:\t";
        let other: Vec<char> = other.chars().collect();
        for (at, to) in changes {
            let at = at.index(text.len());
            match to.index(other.len() + 2) {
                0 => { text.remove(at); }
                1 => text.truncate(at + 1),
                to => text[at] = other[to - 2],
            }
        }
        try_all("syscalls", &text.iter().collect::<String>());
    }

    #[test]
    fn any_text_does_no_harm(text in "(\\PC|[\n\t;:()\"])*", offset: u32, size: u32) {
        try_all("x", &text);
        try_all("x", &format!("field:{text};\toffset:{offset};\tsize:{size};\tsigned:1;\n"));
        try_all("x", &format!("field:u32 x[{text}];\toffset:{};\tsize:{size};\tsigned:1;\n", offset % 9999));
        let field = "field:u32 x;\toffset:8;\tsize:4;\tsigned:1;";
        try_all("x", &format!("{field}\nprint fmt: \"%x\", __print_flags(REC->x, {text}"));
    }
}
