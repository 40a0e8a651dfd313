// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests with the events and the types of the running kernel. They pass without a look where tracefs or the types can't
//! be read.

use std::time::Instant;

use super::super::{Event, Format, Listed, Place, System, abi, list};
use super::{Field, field, place};

fn btf<'s>(system: &'s System, name: &str) -> Option<Event<'s>> {
    if let Err(why) = system.btf() {
        eprintln!("skipped: {why}");
        return None;
    }
    Some(Event::open(&Place::Btf { name: name.to_owned() }, system).unwrap())
}

/// The steps in use.
fn steps(field: &Field) -> &[u16] {
    &field.field.step[..field.field.steps.into()]
}

#[test]
fn every_field_of_every_event_resolves_or_says_why() {
    let system = System::new();
    let begin = Instant::now();
    let all = match list(&system, "") {
        Ok(all) => all,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    eprintln!("{} events in {:?}", all.len(), begin.elapsed());
    let (mut resolved, mut refused) = (0, 0);
    for (title, fields) in &all {
        let (group, name) = title.split_once(':').unwrap();
        assert_ne!(group, "ftrace");
        if group == "btf" {
            continue;
        }
        let place = Place::Tracepoint { group: group.to_owned(), name: name.to_owned() };
        let Ok(event) = Event::open(&place, &system) else { continue }; // it ended meantime
        for Listed { name, kind } in fields {
            assert!(!kind.is_empty());
            let found = field(&event, name).or_else(|_| field(&event, &format!("{name}[0]")));
            match found {
                Ok(found) => {
                    assert!(u32::from(found.field.words) * 8 >= u32::from(found.field.size), "{title} {name}");
                    resolved += 1;
                }
                Err(_) => {
                    let is_array = kind.contains("[]") || kind.contains("u8[");
                    assert!(is_array || kind.contains("can't be read"), "{title} {name}: {kind}");
                    assert!(kind.contains('('), "{title} {name}: {kind} has no reason");
                    refused += 1;
                }
            }
        }
    }
    eprintln!("{resolved} fields resolved, {refused} refused");
    assert!(resolved > 50 * refused);
}

#[test]
fn every_argument_of_every_btf_event_resolves_or_says_why() {
    let system = System::new();
    if let Err(why) = system.btf() {
        return eprintln!("skipped: {why}");
    }
    let begin = Instant::now();
    let all = list(&system, "btf:").unwrap();
    eprintln!("{} events in {:?}", all.len(), begin.elapsed());
    assert!(all.len() > 100);
    let mut refused = 0;
    let arguments: usize = all.iter().map(|(_, fields)| fields.len()).sum();
    for (title, fields) in all.iter().step_by(20) {
        let event = Event::open(&Place::Btf { name: title["btf:".len()..].to_owned() }, &system).unwrap();
        assert_eq!(event.fields(), *fields);
        for (number, listed) in fields.iter().enumerate() {
            let found = field(&event, &listed.name);
            refused += usize::from(found.is_err());
            let numbered = field(&event, &format!("arg{number}"));
            assert_eq!(found.map(|found| place(&found)).ok(), numbered.map(|found| place(&found)).ok(), "{title}");
        }
    }
    eprintln!("{arguments} arguments; a twentieth was tried, and {refused} of them were refused");
}

#[test]
fn a_path_ends_a_step_at_each_pointer() {
    let system = System::new();
    let Some(event) = btf(&system, "tcp_retransmit_skb") else { return };
    let port = field(&event, "sk.__sk_common.skc_dport").unwrap();
    assert_eq!((place(&port), port.field.steps), ((abi::CUSTOM_PATH, 0, 2), 1));
    assert_eq!((u32::from(port.field.flags), port.format), (abi::CUSTOM_SWAP, Format::Unsigned));
    let address = field(&event, "sk.__sk_common.skc_daddr").unwrap();
    assert_eq!((address.field.size, address.field.flags, address.format), (4, 0, Format::Ipv4));
    let address = field(&event, "sk.__sk_common.skc_v6_daddr").unwrap();
    assert_eq!((place(&address), address.format), ((abi::CUSTOM_PATH_BYTES, 0, 16), Format::Ipv6));
    assert_eq!(address.field.words, 2);
    let number = field(&event, "skb.sk.__sk_common.skc_num").unwrap();
    assert_eq!((place(&number), number.field.steps), ((abi::CUSTOM_PATH, 1, 2), 2));
    assert_eq!(steps(&number)[1], field(&event, "sk.__sk_common.skc_num").unwrap().field.step[0]);
    let argument = field(&event, "skb").unwrap();
    assert_eq!((place(&argument), argument.field.steps, argument.format), ((abi::CUSTOM_PATH, 1, 8), 0, Format::Hex));
    assert_eq!(field(&event, "sk.__sk_common.skc_refcnt").unwrap().format, Format::Signed, "refcount_t is one number");
}

#[test]
fn texts_and_bytes_at_the_end_of_a_path() {
    let system = System::new();
    let Some(event) = btf(&system, "net_dev_queue") else { return };
    let name = field(&event, "skb.dev.name").unwrap();
    assert_eq!((place(&name), name.field.steps, name.field.words), ((abi::CUSTOM_PATH_CHARS, 0, 16), 2, 2));
    assert_eq!((name.format, name.is_cut), (Format::Text, false));
    let len = field(&event, "skb.len").unwrap();
    assert_eq!((place(&len), len.field.steps, len.format), ((abi::CUSTOM_PATH, 0, 4), 1, Format::Unsigned));
    assert_eq!(field(&event, "skb.protocol").unwrap().field.flags, abi::CUSTOM_SWAP as u8);
    assert_eq!(field(&event, "skb.users").unwrap().field.size, 4);
    assert_eq!(field(&event, "skb.destructor").unwrap().format, Format::Symbol);
    let alias = field(&event, "str.skb.dev.rtnl_link_ops.kind").unwrap();
    assert_eq!((place(&alias), alias.field.steps, alias.is_cut), ((abi::CUSTOM_PATH_TEXT, 0, 64), 3, true));
    let bits = field(&event, "skb.pkt_type").unwrap().field;
    assert_eq!((bits.size, bits.right), (1, 61), "3 bits");
    assert!(bits.left <= bits.right && bits.left >= 56, "in one byte");
    let element = field(&event, "skb.cb[3]").unwrap();
    assert_eq!(steps(&element)[0], field(&event, "skb.cb[0]").unwrap().field.step[0] + 3);
    for (name, why) in [
        ("skb.lenn", "struct sk_buff has no member 'lenn', perhaps 'len'; it has next"),
        ("skb.len.x", "'len' is unsigned int, which has no members"),
        ("skb[0]", "'skb' is struct sk_buff *, which is no array"),
        ("skb.cb[48]", "is behind the end of the array: 'cb' has 48 elements"),
        ("skb.dev.nd_net.net.user_ns.parent.level", "it follows 5 pointers, and at most 4 are possible"),
        ("str.skb.dev", "the field is not the address of a text"),
        ("skb.dev.stats", "is struct net_device_stats: name a member; it has"),
        ("skp", "btf:net_dev_queue has no field 'skp', perhaps 'skb'; it has skb (and pid"),
    ] {
        let found = field(&event, name).unwrap_err();
        assert!(found.contains(why), "{found}");
    }
}

#[test]
fn arguments_of_the_scheduler_and_of_block() {
    let system = System::new();
    let Some(event) = btf(&system, "sched_switch") else { return };
    let preempt = field(&event, "preempt").unwrap();
    assert_eq!((place(&preempt), preempt.field.steps, preempt.format), ((abi::CUSTOM_PATH, 0, 1), 0, Format::Bool));
    let comm = field(&event, "prev.comm").unwrap();
    assert_eq!((place(&comm), comm.format), ((abi::CUSTOM_PATH_CHARS, 1, 16), Format::Text));
    let pid = field(&event, "prev.pid").unwrap();
    assert_eq!((place(&pid), pid.format), ((abi::CUSTOM_PATH, 1, 4), Format::Signed));
    assert_eq!(place(&field(&event, "pid").unwrap()), (abi::CUSTOM_PID, 0, 4), "a built-in field");
    assert_eq!(field(&event, "next.cred.uid").unwrap().field.steps, 2, "kuid_t is one number");
    let Some(event) = btf(&system, "block_rq_issue") else { return };
    let queue = field(&event, "rq.q").unwrap();
    assert_eq!((place(&queue), queue.field.steps, queue.format), ((abi::CUSTOM_PATH, 0, 8), 1, Format::Hex));
    let id = field(&event, "rq.q.id").unwrap();
    assert_eq!((id.field.steps, steps(&id)[0]), (2, queue.field.step[0]));
    assert_eq!(field(&event, "rq.part.bd_dev").unwrap().format, Format::Device);
    assert_eq!(field(&event, "rq.state").unwrap().format, Format::Named);
    assert_eq!(field(&event, "rq.q.disk.disk_name").unwrap().format, Format::Text);
}

#[test]
fn enumerations_have_names() {
    let system = System::new();
    let Some(event) = btf(&system, "kfree_skb") else { return };
    let reason = field(&event, "reason").unwrap();
    assert_eq!((reason.format, reason.field.size), (Format::Named, 4));
    assert!(reason.names.iter().any(|(_, name)| name == "SKB_DROP_REASON_NO_SOCKET"));
    assert_eq!(field(&event, "location").unwrap().format, Format::Symbol);
    assert_eq!(event.fields()[1].kind, "void * (function)");
}

#[test]
fn unknown_events_name_similar_ones() {
    let system = System::new();
    if list(&system, "btf:nothing").is_err() || list(&system, "nothing:").is_err() {
        return eprintln!("skipped: no types, or no tracefs");
    }
    let why = |place| Event::open(&place, &system).err().unwrap();
    let tracepoint = |group: &str, name: &str| Place::Tracepoint { group: group.to_owned(), name: name.to_owned() };
    for (place, expected) in [
        (tracepoint("sched", "sched_swich"), "there is no event 'sched:sched_swich', perhaps 'sched:sched_switch'"),
        (tracepoint("sched", "softirq_entry"), "perhaps 'irq:softirq_entry'; "),
        (tracepoint("qqqqq", "qqqqq"), "no event 'qqqqq:qqqqq', and no group 'qqqqq'"),
        (tracepoint("ftrace", "function"), "cannot be attached"),
        (tracepoint("..", "x"), "is no event: an event is GROUP:NAME"),
        (tracepoint("a\0", "x"), "is no event"),
        (Place::Btf { name: "sched_swich".to_owned() }, "no event 'btf:sched_swich', perhaps 'sched_switch"),
        (Place::Btf { name: "a\0".to_owned() }, "there is no event"),
    ] {
        let found = why(place);
        assert!(found.contains(expected), "{found}");
    }
}
