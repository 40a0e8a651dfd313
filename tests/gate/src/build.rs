// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part `build`: everything, once, in one profile.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::case::last_lines;
use crate::gate::{Gate, PROFILE, Program, Report};

/// Lines of the compiler that are shown where it fails.
const SHOWN: usize = 100;

/// # Errors
/// cargo that can't be run.
pub fn run(gate: &mut Gate) -> Result<Report> {
    let mut command = Command::new(&gate.cargo);
    command.args(["build", "--locked", "--workspace", "--all-targets", "--profile", PROFILE]);
    command.arg("--message-format=json-render-diagnostics").args(&gate.flags);
    let ran = gate.run("build", command)?;
    if !ran.succeeded() {
        let said: Vec<_> = ran.text.lines().filter(|line| !line.starts_with('{')).collect();
        println!("{}", last_lines(&said.join("\n"), SHOWN));
        return Ok(Report::broken(format!("cargo build: {}", ran.how())));
    }
    gate.programs = programs(&gate.root, &ran.text)?;
    Ok(Report::default())
}

/// The programs among the artifacts that cargo names.
fn programs(root: &Path, said: &str) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for line in said.lines().filter(|line| line.starts_with("{\"reason\":\"compiler-artifact\"")) {
        let artifact: Value = serde_json::from_str(line).context("a message of cargo is no JSON")?;
        let Some(executable) = artifact["executable"].as_str() else { continue };
        let text =
            |value: &Value, what| value.as_str().map(str::to_owned).with_context(|| format!("no {what}: {line}"));
        let kind = text(&artifact["target"]["kind"][0], "kind")?;
        if kind == "custom-build" {
            continue;
        }
        let manifest = PathBuf::from(text(&artifact["manifest_path"], "manifest")?);
        let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root).ok());
        let folder = folder.with_context(|| format!("{} is outside the checkout", manifest.display()))?.to_owned();
        // `path+file:///checkout/crates/topstat#0.1.0`, and `…/engine#topstat-engine@0.1.0` where the folder has another name.
        let id = text(&artifact["package_id"], "package")?;
        let (place, version) = id.split_once('#').with_context(|| format!("no version: {id}"))?;
        let package = match version.split_once('@') {
            Some((name, _)) => name.to_owned(),
            None => place.rsplit('/').next().unwrap_or_default().to_owned(),
        };
        let target = text(&artifact["target"]["name"], "target")?;
        let executable = Path::new(executable);
        programs.push(Program {
            name: match kind.as_str() {
                "lib" | "proc-macro" => package.clone(),
                "test" => format!("{package}::{target}"),
                kind => format!("{package}::{kind}/{target}"),
            },
            test: artifact["profile"]["test"].as_bool() == Some(true),
            // Outside the checkout where CARGO_TARGET_DIR is.
            executable: executable.strip_prefix(root).unwrap_or(executable).to_owned(),
            package,
            target,
            folder,
        });
    }
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_the_names_that_nextest_gives_them() {
        let line = |id: &str, kind: &str, target: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"path+file:///r/{id}","manifest_path":"/r/{}/Cargo.toml","target":{{"kind":["{kind}"],"name":"{target}"}},"profile":{{"test":{test}}},"executable":"/r/target/ci/deps/{target}-1"}}"#,
                id.split('#').next().unwrap()
            )
        };
        let said = [
            line("crates/topstat#0.1.0", "lib", "topstat", true),
            line("crates/topstat#0.1.0", "test", "cli", true),
            line("crates/topstat#0.1.0", "bin", "topstat", false),
            line("engine#topstat-engine@0.1.0", "test", "properties", true),
            r#"{"reason":"compiler-artifact","executable":null}"#.to_owned(),
            "   Compiling topstat".to_owned(),
        ];
        let found = programs(Path::new("/r"), &said.join("\n")).unwrap();
        let names: Vec<_> = found.iter().map(|program| (program.name.as_str(), program.test)).collect();
        assert_eq!(
            names,
            [
                ("topstat", true),
                ("topstat::cli", true),
                ("topstat::bin/topstat", false),
                ("topstat-engine::properties", true)
            ]
        );
        assert_eq!(found[3].folder, Path::new("engine"));
        assert_eq!(found[3].executable, Path::new("target/ci/deps/properties-1"));
    }
}
