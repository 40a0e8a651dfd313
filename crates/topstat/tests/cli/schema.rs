// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Documents in JSON have the keys and types that docs/schema describes, and no others. The validator is Python's jsonschema, which
//! scripts/setup installs: a validator in Rust would change features of crates that the program is built of.

use std::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use topstat::Exit;

use crate::console::FakeConsole;
use crate::fake::Fake;
use crate::golden::checked;

/// Validates lines of a schema's name and a document, separated by a tab, and prints the errors of each line.
const PROGRAM: &str = r#"
import json, sys, jsonschema, rfc3339_validator
validators = {}
for line in sys.stdin:
    name, document = line.rstrip("\n").split("\t", 1)
    if name not in validators:
        with open(f"{sys.argv[1]}/{name}.schema.json") as file:
            schema = json.load(file)
        kind = jsonschema.Draft202012Validator
        kind.check_schema(schema)
        validators[name] = kind(schema, format_checker=kind.FORMAT_CHECKER)
    errors = [f"{error.json_path}: {error.message[:200]}" for error in validators[name].iter_errors(json.loads(document))]
    print("; ".join(errors))
"#;

/// The Python that scripts/setup has made, if it has the validator.
fn python() -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
    let python = cache.join("topstat/python/bin/python");
    let has_all = Command::new(&python).args(["-c", "import jsonschema, rfc3339_validator"]).output();
    has_all.is_ok_and(|output| output.status.success()).then_some(python)
}

/// The errors of each document, by the schema's name. `None`: there is no validator.
pub fn errors(documents: &[(&str, Value)]) -> Option<Vec<String>> {
    let Some(python) = python() else {
        eprintln!("skipped: no jsonschema for Python (scripts/setup installs it)");
        return None;
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
    let mut child = Command::new(python)
        .args(["-c", PROGRAM])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start Python");
    let mut input = child.stdin.take().expect("its input");
    let text: String = documents.iter().map(|(name, document)| format!("{name}\t{document}\n")).collect();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().expect("its output");
    assert!(output.status.success(), "the validator fails: {}", output.status);
    writer.join().expect("the writer ends").expect("the validator reads all");
    let errors: Vec<_> = String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect();
    assert_eq!(errors.len(), documents.len());
    Some(errors)
}

/// The documents that a command writes.
fn documents(command: &str, backend: &mut Fake) -> Vec<Value> {
    let mut console = FakeConsole::pipe();
    let exit = console.run(command, backend);
    // The made-up checks have some that fail.
    assert!(exit == Exit::Done || command.starts_with("check"), "{command}: {}", console.notes);
    let documents: Vec<_> = console.written().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(!documents.is_empty(), "{command} writes nothing");
    documents
}

#[test]
fn documents_are_as_their_schemas_say() {
    let samples = topstat_families::catalogue().samples();
    let paths = samples.iter().flat_map(|sample| sample.tables.iter().map(move |table| (&sample.name, &table.name)));
    let mut commands: Vec<_> =
        paths.map(|(sample, table)| ("snapshot", format!("top {sample}/{table} -o json"))).collect();
    assert!(commands.len() > 20);
    let further = [
        ("snapshot", "top tcp_v4/conns_pps -f port:443 -o json"),
        ("summary", "top -o json"),
        ("sample", "ls -o json"),
        ("check", "check -o json"),
        ("counters", "snmp 1 2 -o json"),
        ("interval", "tasks 1 2 -o json"),
        ("profile", "netstack 1 1 -o json"),
        ("histograms", "netstack --histogram skb 1 1 -o json"),
        ("histograms", "netstack --histogram latency 1 1 -o json"),
        ("event", "events --for 25 -o json"),
    ];
    commands.extend(further.map(|(name, command)| (name, command.to_owned())));
    let mut all = Vec::new();
    for (name, command) in &commands {
        for lossy in [false, true] {
            let documents = documents(command, &mut Fake { lossy, ..checked() });
            all.extend(documents.into_iter().map(|document| (*name, document)));
        }
    }
    let wrong = errors(&all).map(|errors| all.iter().zip(errors).filter(|(_, errors)| !errors.is_empty()).collect());
    let wrong: Vec<_> = wrong.unwrap_or_default();
    assert!(wrong.is_empty(), "{} of {}: {:#?}", wrong.len(), all.len(), &wrong[..wrong.len().min(5)]);
}

/// A schema that allowed everything would prove nothing.
#[test]
fn a_schema_refuses_what_it_does_not_describe() {
    let good = documents("top tcp_v4/conns_pps -o json", &mut Fake::default()).remove(0);
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut document = good.clone();
        change(&mut document);
        ("snapshot", document)
    };
    let bad = [
        changed(&|document| document["unheard_of"] = json!(1)),
        changed(&|document| document["total"] = json!("many")),
        changed(&|document| document["total"] = json!(-1)),
        changed(&|document| drop(document.as_object_mut().unwrap().remove("other"))),
        changed(&|document| document["rows"][0]["value"] = json!(1.5)),
        changed(&|document| document["time"] = json!("yesterday")),
    ];
    let of_good = errors(&[("snapshot", good.clone())]);
    assert!(of_good.is_none_or(|errors| errors == [""]), "{good}");
    for ((_, document), errors) in bad.iter().zip(errors(&bad).unwrap_or_default()) {
        assert!(!errors.is_empty(), "{document}");
    }
}
