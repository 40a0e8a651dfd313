// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat snmp`: the choice and the form of counters, and the end of the command.

use serde_json::Value;
use topstat::Exit;

use crate::console::FakeConsole;
use crate::fake::Fake;

/// The output of `topstat snmp` with these arguments on a pipe.
fn written(arguments: &str, fake: &mut Fake) -> String {
    let mut console = FakeConsole::pipe();
    assert_eq!(console.run(&format!("snmp {arguments}"), fake), Exit::Done, "{arguments}: {}", console.notes);
    console.written()
}

fn document(arguments: &str) -> Value {
    serde_json::from_str(&written(&format!("{arguments} -o json"), &mut Fake::default())).unwrap()
}

#[test]
fn only_what_has_changed_is_shown() {
    let text = written("", &mut Fake::default());
    assert!(text.contains("InSegs") && text.contains("RetransSegs"), "{text}");
    assert!(!text.contains("InErrs") && !text.contains("MaxConn"), "{text}");
    assert!(written("-a", &mut Fake::default()).contains("InErrs"));
    // Totals are shown at once, and totals of 0 are not shown.
    let totals = written("--total", &mut Fake::default());
    assert!(totals.contains("MaxConn") && !totals.contains("InErrs") && !totals.contains("per second"), "{totals}");
}

#[test]
fn parts_of_cpus_add_up_and_gauges_have_none() {
    let document = document("--cpus -a");
    let samples = &document["scopes"][0]["samples"];
    let segments = &samples["snmp_tcp"]["InSegs"];
    assert_eq!((&segments["total"], &segments["change"]), (&8005.into(), &4000.into()));
    assert_eq!(segments["cpu_changes"], serde_json::json!([1000, 3000]));
    assert_eq!(segments["per_second"].as_f64().map(f64::round), Some(2667.0));
    assert_eq!(samples["snmp_tcp"]["MaxConn"], serde_json::json!({"gauge": -1}));
    assert_eq!(samples["snmp_tcp"]["CurrEstab"], serde_json::json!({"gauge": 4}));
    // All CPUs share this counter.
    assert_eq!(samples["snmp_icmp"]["InEchos"], serde_json::json!({"total": 6, "change": 3, "per_second": 2.0}));
    // This counter has overflowed since the last reading.
    assert_eq!(samples["snmp_icmp"]["InMsgs"]["change"], 9);
}

#[test]
fn what_is_gone_is_gone() {
    let mut fake = Fake::default();
    let text = written("1 2 -o json", &mut fake);
    let scopes: Vec<usize> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["scopes"].as_array().unwrap().len())
        .collect();
    assert_eq!(scopes, [2, 1]);
}

#[test]
fn csv_has_a_record_for_each_counter() {
    let text = written("--cpus -o csv", &mut Fake::default());
    let mut lines = text.lines();
    let header = lines.next().unwrap();
    assert!(header.ends_with("total,change,per_second,cpu0,cpu3"), "{header}");
    let fields = header.split(',').count();
    for line in lines {
        assert_eq!(line.split(',').count(), fields, "{line}");
        assert!(!line.contains('\x1b'), "{line}");
    }
}

#[test]
fn what_is_wished_for_is_asked_for() {
    let mut fake = Fake::default();
    written("tcp,udp --netns web --dev eth0", &mut fake);
    let wish = fake.wish.unwrap();
    assert_eq!(wish.what.as_deref(), Some("tcp,udp"));
    assert_eq!((wish.netns.as_deref(), wish.device.as_deref()), (Some("web"), Some("eth0")));
}

#[test]
fn a_reading_that_fails_ends_it() {
    let mut console = FakeConsole::pipe();
    let exit = console.run("snmp 1 3", &mut Fake { fail_at: Some(3), ..Fake::default() });
    assert_eq!(exit, Exit::Failed);
    assert!(console.notes.contains("cannot read the kernel's SNMP counters"), "{}", console.notes);
    assert_eq!(console.written().matches("in 1.500 s").count(), 2);
    let mut console = FakeConsole::pipe();
    assert_eq!(console.run("snmp nothing", &mut Fake { refuse: true, ..Fake::default() }), Exit::Usage);
}
