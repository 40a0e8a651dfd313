// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parts of a service around the daemon: its configuration, its installed files, and its unit.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::completion;

const TOPSTAT: &str = env!("CARGO_BIN_EXE_topstat");

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A directory that is removed with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("topstat-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn check_config(file: &Path) -> Output {
    Command::new(TOPSTAT).args(["daemon", "--check-config", "--config"]).arg(file).output().unwrap()
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_example_is_right_as_it_is_and_with_everything_in_it_switched_on() {
    let scratch = Scratch::new("example");
    let example = fs::read_to_string(repository().join("dist/topstat.toml")).unwrap();
    let file = scratch.0.join("topstat.toml");
    fs::write(&file, &example).unwrap();
    let (code, out, err) = said(&check_config(&file));
    assert_eq!((code, out, err.as_str()), (Some(0), format!("{}: nothing is wrong\n", file.display()), ""));
    // A key or table follows a `#` without a blank. The group is left out, since it does not exist on every host. Of the two
    // budgets only one can be set.
    let keys = |line: &str| {
        let key = line
            .strip_prefix('#')
            .filter(|rest| rest.starts_with(|c: char| matches!(c, '[' | '"') || c.is_ascii_lowercase()));
        key.filter(|key| !key.starts_with("group") && *key != "overhead_budget = \"off\"").map(str::to_owned)
    };
    // Processes of short life are counted without a change of the example.
    let on = example.lines().filter(|line| line.starts_with(['[', '"'])).collect::<Vec<_>>();
    assert_eq!(on, ["[tables]", "\"ended/cpu\" = \"@ended-processes\""]);
    let off = example.replace("[tables]", "#[tables]").replace("\"ended", "#\"ended");
    let all: Vec<_> = off.lines().filter_map(keys).collect();
    assert!(all.len() > 12, "{all:?}");
    fs::write(&file, all.join("\n")).unwrap();
    let (code, _, err) = said(&check_config(&file));
    assert_eq!((code, err.as_str()), (Some(0), ""), "{all:#?}");
}

#[test]
fn a_wrong_configuration_is_a_wrong_usage_and_every_fault_has_its_line() {
    let scratch = Scratch::new("wrong");
    let file = scratch.0.join("topstat.toml");
    fs::write(&file, "top = 0\n\n[samples.tcp_v4.conn_pps]\nperiod = \"2h\"\n").unwrap();
    let (code, out, err) = said(&check_config(&file));
    let name = file.display();
    assert_eq!(
        (code, out.as_str(), err),
        (
            Some(2),
            "",
            format!(
                "topstat: the configuration is wrong, and nothing of it was used\n\
                 {name}:1:7: top = 0: allowed is a number from 1 to 1024\n\
                 {name}:3:17: unknown key or table of sample tcp_v4 conn_pps: did you mean conns_pps?\n"
            )
        )
    );
    let (code, _, err) = said(&check_config(Path::new("/no/such/file.toml")));
    assert_eq!(
        (code, err.as_str()),
        (
            Some(2),
            "topstat: cannot read the configuration /no/such/file.toml: No such file or directory (os error 2)\n"
        )
    );
}

fn files(below: &Path) -> BTreeSet<PathBuf> {
    let Ok(entries) = fs::read_dir(below) else { return BTreeSet::new() };
    let of = |path: PathBuf| if path.is_dir() { files(&path) } else { BTreeSet::from([path]) };
    entries.flat_map(|entry| of(entry.unwrap().path())).collect()
}

fn make(target: &str, into: &Path) {
    let made = Command::new("make")
        .args(["--no-print-directory", "-C"])
        .arg(repository())
        .args([target, "PREFIX=/usr", &format!("TOPSTAT={TOPSTAT}"), &format!("DESTDIR={}", into.display())])
        .env_remove("MAKEFLAGS")
        .output()
        .expect("make");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn what_is_installed_is_whole_and_can_be_removed() {
    let scratch = Scratch::new("install");
    make("install", &scratch.0);
    let there = files(&scratch.0);
    for path in [
        "bin/topstat",
        "share/man/man1/topstat.1",
        "share/man/man1/topstat-top.1",
        "share/man/man8/topstat-daemon.8",
        "share/man/man5/topstat.toml.5",
        "share/bash-completion/completions/topstat",
        "share/zsh/site-functions/_topstat",
        "share/fish/vendor_completions.d/topstat.fish",
        "lib/systemd/system/topstat.service",
        "lib/systemd/system/topstat-serve.service",
        "lib/systemd/system/topstat-serve.socket",
        "lib/sysusers.d/topstat.conf",
        "lib/tmpfiles.d/topstat.conf",
        "share/man/man1/topstat-serve.1",
        "share/topstat/grafana/topstat-host.json",
        "share/topstat/prometheus/topstat.rules.yml",
        "lib/systemd/system/topstat-record.service",
        "lib/systemd/system/topstat-ship.service",
        "lib/systemd/system/topstat-ship.timer",
        "share/doc/topstat/dist/topstat.toml",
        "share/doc/topstat/docs/daemon.md",
        "share/doc/topstat/docs/view.md",
        "share/doc/topstat/docs/pictures/first-120x40-dark.svg",
        "share/doc/topstat/families/inet/README.md",
    ] {
        let path = scratch.0.join("usr").join(path);
        assert!(there.contains(&path), "{} is missing among {there:#?}", path.display());
        assert!(fs::metadata(&path).unwrap().len() > 0, "{} is empty", path.display());
    }
    let script = fs::read_to_string(scratch.0.join("usr/share/bash-completion/completions/topstat")).unwrap();
    assert_eq!(completion::offered(&script, "topstat daemon --overh"), ["--overhead-budget"]);
    // The links of the pages are those of the repository, whose layout is kept: `scripts/install-docs` fails at a missing file.
    let documents = files(&scratch.0.join("usr/share/doc/topstat/docs"));
    for page in fs::read_dir(repository().join("docs")).unwrap().map(|entry| entry.unwrap().path()) {
        let installed = scratch.0.join("usr/share/doc/topstat/docs").join(page.file_name().unwrap());
        assert!(page.extension().is_none_or(|ending| ending != "md") || documents.contains(&installed), "{page:?}");
    }
    // Without what only debuggers read.
    let symbols =
        Command::new("objdump").arg("--syms").arg(scratch.0.join("usr/bin/topstat")).output().expect("objdump");
    let symbols = String::from_utf8_lossy(&symbols.stdout);
    assert!(symbols.contains("no symbols"), "{}", &symbols[..symbols.len().min(500)]);
    make("uninstall", &scratch.0);
    assert_eq!(files(&scratch.0), BTreeSet::new());
}

/// The unit, as it is installed.
fn unit() -> String {
    let unit = fs::read_to_string(repository().join("dist/topstat.service.in")).unwrap();
    unit.replace("@BINDIR@", Path::new(TOPSTAT).parent().unwrap().to_str().unwrap())
}

#[test]
fn the_unit_takes_nothing_that_would_hide_the_tree() {
    let unit = unit();
    let directives = unit.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    // Each of these directives gives a service a mount namespace: see systemd.exec(5).
    let hides = [
        "ProtectSystem",
        "ProtectHome",
        "ProtectProc",
        "ProtectControlGroups",
        "ProtectKernel",
        "PrivateTmp",
        "PrivateDevices",
        "PrivateIPC",
        "PrivateUsers",
        "Read",
        "Inaccessible",
        "Bind",
        "Temporary",
        "Root",
        "ProcSubset",
        "MountFlags",
        "DynamicUser",
        "ExecPaths",
        "NoExecPaths",
    ];
    for (name, _) in directives {
        assert!(!hides.iter().any(|hides| name.starts_with(hides)), "{name}");
    }
    // A network namespace implies a mount namespace, unless this directive refuses it.
    assert!(unit.lines().any(|line| line == "PrivateMounts=no"), "{unit}");
}

/// The exposure of the server's unit, as systemd judges it: 0 to 10.
#[test]
fn the_unit_of_the_server_is_closed() {
    let scratch = Scratch::new("serve-unit");
    let unit = fs::read_to_string(repository().join("dist/topstat-serve.service.in")).unwrap();
    fs::write(scratch.0.join("topstat-serve.service"), unit.replace("@BINDIR@", "/usr/bin")).unwrap();
    let file = scratch.0.join("topstat-serve.service");
    let judged = Command::new("systemd-analyze").args(["security", "--offline=yes", "--no-pager"]).arg(&file).output();
    let text = match judged {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        other => {
            eprintln!("skipped: systemd-analyze (251 and later) can't judge: {other:?}");
            return;
        }
    };
    let level = text.rsplit_once("Overall exposure level for topstat-serve.service: ").expect("a level").1;
    let level: f64 = level.split(' ').next().unwrap().parse().unwrap();
    assert!(level <= 1.5, "{text}");
}

/// The chart's manifests have the form that Kubernetes demands, and docs/install.md names the capabilities that they have.
#[test]
fn the_chart_is_as_kubernetes_demands() {
    /// A tool is missing.
    const SKIPPED: i32 = 77;
    let checked =
        Command::new(repository().join("scripts/kubernetes")).arg("check").output().expect("scripts/kubernetes");
    let (code, written, complaints) = said(&checked);
    if code == Some(SKIPPED) {
        eprintln!("skipped: {}", complaints.trim());
        return;
    }
    assert!(code == Some(0) && written.contains(" manifests are valid, "), "{written}{complaints}");
}
