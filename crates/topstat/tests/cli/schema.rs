// SPDX-License-Identifier: Apache-2.0 OR MIT
//! JSON documents have the keys and types that docs/schema describes, and no others.

use std::fs;
use std::path::Path;

use jsonschema::Validator;
use serde_json::{Value, json};
use topstat::Exit;

use crate::console::FakeConsole;
use crate::fake::Fake;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema");

fn schema(name: &str) -> Validator {
    let path = Path::new(FOLDER).join(format!("{name}.schema.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let schema: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    jsonschema::meta::validate(&schema).unwrap_or_else(|e| panic!("{} is no schema: {e}", path.display()));
    jsonschema::draft202012::options()
        .should_validate_formats(true)
        .build(&schema)
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The documents that a command writes.
fn documents(command: &str, backend: &mut Fake) -> Vec<Value> {
    let mut console = FakeConsole::pipe();
    assert_eq!(console.run(command, backend), Exit::Done, "{command}: {}", console.notes);
    let documents = console.written().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect::<Vec<_>>();
    assert!(!documents.is_empty(), "{command} writes nothing");
    documents
}

fn assert_valid(validator: &Validator, of: &str, document: &Value) {
    let errors: Vec<_> = validator.iter_errors(document).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{of}: {errors:#?}\n{document}");
}

#[test]
fn documents_are_as_their_schemas_say() {
    let of_each_table = topstat_kernel::samples();
    let tables = of_each_table.iter().flat_map(|sample| {
        sample.tables.iter().map(move |table| format!("top {}/{} -o json", sample.name, table.name))
    });
    let snapshots: Vec<_> = tables.collect();
    assert!(snapshots.len() > 20);
    let snapshots = snapshots.iter().map(|command| ("snapshot", command.as_str()));
    for (name, command) in snapshots.chain([
        ("snapshot", "top tcp_v4/conns_pps -f port:443 -o json"),
        ("sample", "ls -o json"),
        ("check", "check -o json"),
        ("counters", "snmp 1 2 -o json"),
        ("counters", "snmp --cpus 1 2 -o json"),
        ("interval", "tasks 1 2 -o json"),
        ("interval", "tasks --threads --cmdline 1 1 -o json"),
        ("profile", "netstack 1 1 -o json"),
        ("histograms", "netstack --histogram skb 1 1 -o json"),
        ("histograms", "netstack --histogram latency 1 1 -o json"),
        ("event", "events --for 25 -o json"),
    ]) {
        let validator = schema(name);
        for lossy in [false, true] {
            for document in documents(command, &mut Fake { lossy, ..Fake::default() }) {
                assert_valid(&validator, command, &document);
            }
        }
    }
}

/// A schema that allowed everything would prove nothing.
#[test]
fn a_schema_refuses_what_it_does_not_describe() {
    let validator = schema("snapshot");
    let good = documents("top tcp_v4/conns_pps -o json", &mut Fake::default()).remove(0);
    assert!(validator.is_valid(&good), "{good}");
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut document = good.clone();
        change(&mut document);
        validator.is_valid(&document)
    };
    assert!(!changed(&|document| document["unheard_of"] = json!(1)), "another key");
    assert!(!changed(&|document| document["total"] = json!("many")), "another type");
    assert!(!changed(&|document| document["total"] = json!(-1)), "out of range");
    assert!(!changed(&|document| drop(document.as_object_mut().unwrap().remove("other"))), "a key that is missing");
    assert!(!changed(&|document| document["rows"][0]["value"] = json!(1.5)), "in a row");
    assert!(!changed(&|document| document["time"] = json!("yesterday")), "a format");
}
