// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state that all parts share: the checkout, the folder of kept state, the deadline.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::case::Cases;
use crate::inputs::{self, Package};
use crate::process::{self, Interrupt, Ran};

/// The profile that `make run`, the tests and the guests share (Cargo.toml).
pub const PROFILE: &str = "ci";

/// See the module.
pub struct Gate {
    /// The checkout.
    pub root: PathBuf,
    /// Where cargo builds: `target`, or CARGO_TARGET_DIR.
    pub target: PathBuf,
    /// The folder of the state that is kept from one run to the next: logs, passes, the parent's programs.
    pub state: PathBuf,
    /// The commit that is checked out; empty where git does not know.
    pub commit: String,
    /// Whether all of the checkout is in that commit.
    pub clean: bool,
    /// Its author.
    pub owner: String,
    pub cargo: String,
    /// More options for cargo, from CARGOFLAGS.
    pub flags: Vec<String>,
    /// Whether parts run that have passed with these inputs.
    pub again: bool,
    /// Whether live tests run that are slow by nature.
    pub slow: bool,
    /// When every command is ended.
    pub deadline: Instant,
    pub interrupt: Interrupt,
    /// The packages of the workspace.
    pub packages: Vec<Package>,
    /// The programs that the part `build` has built.
    pub programs: Vec<Program>,
    /// What the compilers and the kernel say of themselves.
    host: Vec<u8>,
    /// Hashes of inputs as they were first seen, by the files and folders that are the inputs.
    hashes: RefCell<BTreeMap<BTreeSet<String>, Option<String>>>,
}

/// What a part depends on: all inputs of packages, and files and folders.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Names of packages.
    pub packages: &'a [&'a str],
    /// Relative to the checkout, as git's pathspecs.
    pub paths: &'a [&'a str],
}

/// A program that cargo has built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// As nextest calls it: the package, and where a package has several programs of tests, `::` and the target.
    pub name: String,
    /// Its package.
    pub package: String,
    /// Its target: `live`, `cli`.
    pub target: String,
    /// Whether it runs tests.
    pub test: bool,
    /// Relative to the checkout.
    pub executable: PathBuf,
    /// The folder of its package, where tests run; relative to the checkout.
    pub folder: PathBuf,
}

impl Gate {
    /// What git says, without the line's end; empty where it says nothing.
    fn git(root: &Path, arguments: &[&str]) -> String {
        let asked = Command::new("git").args(arguments).current_dir(root).output();
        let said = asked.ok().filter(|asked| asked.status.success()).map(|asked| asked.stdout).unwrap_or_default();
        String::from_utf8_lossy(&said).trim().to_owned()
    }

    /// # Errors
    /// A checkout that can't be found, cargo that fails.
    pub fn new(root: &Path, again: bool, deadline: Instant, interrupt: Interrupt) -> Result<Self> {
        let root = root.canonicalize().with_context(|| format!("there is no folder {}", root.display()))?;
        let said = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let cargo = said("CARGO").unwrap_or_else(|| "cargo".to_owned());
        let target = root.join(said("CARGO_TARGET_DIR").unwrap_or_else(|| "target".to_owned()));
        let packages = inputs::packages(&root, &cargo)?;
        Ok(Self {
            state: target.join("gate"),
            commit: Self::git(&root, &["rev-parse", "HEAD"]),
            // The list of known failures is what a gate itself writes.
            clean: Self::git(&root, &["status", "--porcelain", "--", ".", ":!tests/known.toml"]).is_empty(),
            owner: Self::git(&root, &["log", "-1", "--format=%an"]),
            flags: said("CARGOFLAGS").unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
            programs: Vec::new(),
            host: inputs::host(&root),
            hashes: RefCell::default(),
            target,
            root,
            cargo,
            again,
            slow: false,
            deadline,
            interrupt,
            packages,
        })
    }

    pub fn log(&self, name: &str) -> PathBuf {
        self.state.join("log").join(format!("{name}.log"))
    }

    /// Runs a command from the checkout; its output goes to the log of that name.
    ///
    /// # Errors
    /// See [`process::run`].
    pub fn run(&self, log: &str, mut command: Command) -> Result<Ran> {
        if command.get_current_dir().is_none() {
            command.current_dir(&self.root);
        }
        process::run(command, &self.log(log), self.deadline, &self.interrupt)
    }

    /// All files and folders of these inputs.
    fn paths(&self, of: Inputs<'_>) -> BTreeSet<String> {
        let mut all: BTreeSet<String> = of.paths.iter().map(|path| (*path).to_owned()).collect();
        for package in self.packages.iter().filter(|package| of.packages.contains(&package.name.as_str())) {
            all.extend(package.inputs.iter().cloned());
        }
        all
    }

    /// A hash of these inputs as they were when this was asked for the first time. `None`: git can't list files.
    pub fn hash(&self, of: Inputs<'_>) -> Option<String> {
        let paths = self.paths(of);
        if let Some(first) = self.hashes.borrow().get(&paths) {
            return first.clone();
        }
        let hash = inputs::hash(&self.root, &paths, &self.host);
        self.hashes.borrow_mut().insert(paths, hash.clone());
        hash
    }

    /// The hash under which a pass may be kept. `None`: the inputs have been edited since [`Gate::hash`] was asked for them, and
    /// the pass may be of either state.
    pub fn unchanged(&self, of: Inputs<'_>) -> Option<String> {
        self.hash(of).filter(|first| inputs::hash(&self.root, &self.paths(of), &self.host).as_ref() == Some(first))
    }

    /// The command that runs a program of tests where its tests expect to run, in the folder of its package.
    pub fn command(&self, program: &Program) -> Command {
        let mut command = Command::new(self.root.join(&program.executable));
        command.current_dir(self.root.join(&program.folder));
        command
    }

    /// The command that runs all live tests.
    ///
    /// # Errors
    /// See [`Gate::program`].
    pub fn live_tests(&self) -> Result<Command> {
        let mut command = self.command(self.program("live")?);
        if self.slow {
            command.env("TOPSTAT_LIVE_SLOW", "yes");
        }
        Ok(command)
    }

    /// Files that differ between a commit and the checkout; empty where git does not know.
    pub fn changed_since(&self, commit: &str) -> Vec<String> {
        Self::git(&self.root, &["diff", "--name-only", commit]).lines().map(str::to_owned).collect()
    }

    /// Whether this commit is the checked-out one or one of its ancestors.
    pub fn is_ancestor(&self, commit: &str) -> bool {
        let mut asked = Command::new("git");
        asked.args(["merge-base", "--is-ancestor", commit, "HEAD"]).current_dir(&self.root);
        asked.status().is_ok_and(|status| status.success())
    }

    /// The program of this target.
    pub fn program(&self, target: &str) -> Result<&Program> {
        let found = self.programs.iter().find(|program| program.target == target);
        found.with_context(|| format!("cargo has built no program {target}; run the part build first"))
    }
}

/// The result of a part.
#[derive(Debug, Default)]
pub struct Report {
    pub cases: Cases,
    /// Why the part itself failed, beside its cases.
    pub broke: Option<String>,
    /// Lines for the reader.
    pub notes: Vec<String>,
    /// Passes with the same inputs that stand for a run, a line each.
    pub kept: Vec<String>,
    /// Whether nothing was run: all of it is in `kept`.
    pub is_kept: bool,
}

impl Report {
    pub fn broken(why: impl Into<String>) -> Self {
        Self { broke: Some(why.into()), ..Self::default() }
    }
}
