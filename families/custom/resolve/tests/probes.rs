// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the registers at probes.

use super::super::{Event, Format, Place, System, abi};
use super::{field, place};

fn uprobe(at_return: bool) -> Place {
    Place::Uprobe { path: "/lib/libc.so.6".to_owned(), function: "malloc".to_owned(), offset: 0, at_return }
}

fn names(event: &Event) -> Vec<String> {
    event.fields().into_iter().map(|listed| listed.name).collect()
}

#[test]
fn arguments_of_a_function_of_a_program() {
    let system = System::at("/nowhere");
    let event = Event::open(&uprobe(false), &system).unwrap();
    let offsets = |names: &[&str]| names.iter().map(|name| field(&event, name).unwrap().field.at).collect::<Vec<_>>();
    let expected = if cfg!(target_arch = "x86_64") { [112, 104, 64, 128] } else { [0, 8, 40, 256] };
    assert_eq!(offsets(&["arg0", "arg1", "arg5", "ip"]), expected);
    let text = field(&event, "str.arg0").unwrap();
    assert_eq!(place(&text), (abi::CUSTOM_USER_TEXT, expected[0], 64));
    assert_eq!(field(&event, "ip").unwrap().format, Format::Hex);
    assert_eq!(names(&event), ["arg0", "arg1", "arg2", "arg3", "arg4", "arg5", "ip"]);
    for (name, why) in [
        ("arg6", "'arg6' is not in a register: the last one is arg5"),
        ("retval", "use uretprobe:/lib/libc.so.6:malloc instead"),
        ("arg0.x", "only arguments of events with btf: have members"),
        ("agr0", "has no field 'agr0', perhaps 'arg0'"),
        ("arg00", "has no field 'arg00'"),
        ("period", "has no field 'period'"),
    ] {
        let found = field(&event, name).unwrap_err();
        assert!(found.contains(why), "{found}");
    }
}

#[test]
fn returns_have_their_value_only() {
    let system = System::at("/nowhere");
    let event = Event::open(&uprobe(true), &system).unwrap();
    let value = field(&event, "retval").unwrap();
    assert_eq!((value.field.size, value.format), (8, Format::Signed));
    assert_eq!(u32::from(value.field.flags), abi::CUSTOM_SIGNED);
    assert!(field(&event, "arg0").unwrap_err().ends_with("use uprobe:/lib/libc.so.6:malloc instead"));
    assert_eq!(names(&event), ["retval", "ip"]);
}

#[test]
fn samples_have_an_address_and_a_period() {
    let system = System::at("/nowhere");
    let event = Event::open(&Place::Perf { name: "cpu-clock".to_owned(), period: None }, &system).unwrap();
    assert_eq!(names(&event), ["ip", "period", "addr"]);
    assert_eq!(field(&event, "ip").unwrap().format, Format::Symbol);
    assert_eq!(field(&event, "period").unwrap().field.at, if cfg!(target_arch = "x86_64") { 168 } else { 272 });
    assert!(field(&event, "arg0").unwrap_err().contains("has no field 'arg0'"));
}

#[test]
fn the_kernel_knows_the_arguments_of_its_functions() {
    let system = System::new();
    let probe = |at_return| Place::Kprobe { function: "vfs_read".to_owned(), at_return };
    let event = Event::open(&probe(false), &system).unwrap();
    assert_eq!(place(&field(&event, "str.arg1").unwrap()).0, abi::CUSTOM_KERNEL_TEXT);
    if system.btf().is_err() {
        return eprintln!("skipped: no types");
    }
    assert_eq!(names(&event), ["file", "buf", "count", "pos", "ip"]);
    assert_eq!(place(&field(&event, "count").unwrap()), place(&field(&event, "arg2").unwrap()));
    assert_eq!(field(&event, "file").unwrap().format, Format::Hex);
    let event = Event::open(&probe(true), &system).unwrap();
    assert_eq!(field(&event, "retval").unwrap().format, Format::Signed);
    let place = Place::Kprobe { function: "no_such_function".to_owned(), at_return: true };
    let event = Event::open(&place, &system).unwrap();
    assert_eq!(field(&event, "retval").unwrap().field.size, 8);
}
