// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules for Prometheus and the dashboards of Grafana that are shipped: they are right, and ask for metrics that exist.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::model::Server;

fn dist(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../dist", name].iter().collect()
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    let is = |word: &&str| (word.starts_with("topstat_") || word.starts_with("process_")) && !word.contains(':');
    words.filter(is).map(str::to_owned).collect()
}

#[test]
fn all_metrics_that_are_asked_for_exist() {
    let server = Server::with(false, |config| config.objects = vec!["net_procs/bytes".into()]);
    let mut text = String::new();
    for _ in 0..3 {
        text = server.get("/metrics").body;
        std::thread::sleep(std::time::Duration::from_millis(1010));
    }
    let known = names(&text);
    let mut asked = 0;
    let mut check = |what: &str, text: &str| {
        for name in names(text) {
            asked += 1;
            assert!(known.contains(&name), "{what} asks for {name}, which is not among {known:?}");
        }
    };
    let rules = std::fs::read_to_string(dist("prometheus/topstat.rules.yml")).unwrap();
    rules.lines().filter(|line| !line.contains("record:")).for_each(|line| check("a rule", line));
    let mut exprs = Vec::new();
    for file in std::fs::read_dir(dist("grafana")).unwrap() {
        let path = file.unwrap().path();
        let board: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for panel in board["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().unwrap() {
                let expr = target["expr"].as_str().unwrap();
                check(&format!("{}: {}", path.display(), panel["title"]), expr);
                exprs.push(expr.replace("$instance", "a").replace("$__rate_interval", "1m"));
            }
        }
    }
    assert!(asked > 30 && exprs.len() > 25, "{asked}");
    // Grafana's queries as rules: whether they are right is for promtool to say.
    let rule = |(number, expr): (usize, &String)| format!("  - {{record: 'r:{number}', expr: '{expr}'}}\n");
    let list: String = exprs.iter().enumerate().map(rule).collect();
    let path = std::env::temp_dir().join(format!("topstat-exprs-{}.yml", std::process::id()));
    std::fs::write(&path, format!("groups:\n- name: g\n  rules:\n{list}")).unwrap();
    promtool(&["check", "rules", path.to_str().unwrap()]);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn the_rules_do_what_they_say() {
    promtool(&["check", "rules", dist("prometheus/topstat.rules.yml").to_str().unwrap()]);
    promtool(&["test", "rules", dist("prometheus/topstat.rules.test.yml").to_str().unwrap()]);
}

fn promtool(arguments: &[&str]) {
    let promtool = std::env::var_os("PROMTOOL").unwrap_or_else(|| "promtool".into());
    match Command::new(&promtool).args(arguments).output() {
        Err(error) => {
            eprintln!(
                "skipped: promtool ({}) is not there: {error}; Debian's package prometheus has it",
                promtool.display()
            );
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{arguments:?}: {said}");
        }
    }
}
