// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The last commit on which this gate was green here: its files and its programs, to run a failed test on.
//!
//! Programs have the paths of their checkout compiled in. So the parent's tree is mounted over the checkout, in a mount
//! namespace of the one command that runs in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use crate::gate::{Gate, Program};

#[derive(Debug, Serialize, Deserialize)]
pub struct Parent {
    pub commit: String,
    pub programs: Vec<Program>,
}

fn folder(gate: &Gate) -> PathBuf {
    gate.state.join("parent")
}

/// The tree of the parent, as it will be seen in place of the checkout.
fn tree(gate: &Gate) -> PathBuf {
    folder(gate).join("tree")
}

impl Parent {
    /// The parent that is kept here, if the commit that is tried descends from it.
    pub fn find(gate: &Gate) -> Option<Self> {
        let said = fs::read(folder(gate).join("parent.json")).ok()?;
        let parent: Self = serde_json::from_slice(&said).ok()?;
        gate.is_ancestor(&parent.commit).then_some(parent)
    }

    /// Keeps the programs that were built of the commit that is checked out. Does nothing where the checkout is not that commit, or where
    /// programs are built outside of it.
    ///
    /// # Errors
    /// Files that can't be copied.
    pub fn keep(gate: &Gate) -> Result<()> {
        let inside = gate.programs.iter().all(|program| program.executable.is_relative());
        if !gate.clean || gate.commit.is_empty() || !inside || gate.programs.is_empty() {
            return Ok(());
        }
        let (folder, tree) = (folder(gate), tree(gate));
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(&tree).with_context(|| format!("cannot make {}", tree.display()))?;
        let archive = "git archive --format=tar \"$1\" | tar -x -C \"$2\"";
        let mut unpack = Command::new("sh");
        unpack.args(["-c", archive, "sh", &gate.commit]).arg(&tree).current_dir(&gate.root);
        if !unpack.status().context("cannot run sh")?.success() {
            bail!("cannot unpack {} to {}", gate.commit, tree.display());
        }
        for program in &gate.programs {
            let to = tree.join(&program.executable);
            fs::create_dir_all(to.parent().unwrap_or(&tree))
                .with_context(|| format!("cannot make {}", to.display()))?;
            fs::copy(gate.root.join(&program.executable), &to)
                .with_context(|| format!("cannot copy {}", program.executable.display()))?;
        }
        let parent = Self { commit: gate.commit.clone(), programs: gate.programs.clone() };
        let text = serde_json::to_vec(&parent).context("cannot write the parent as JSON")?;
        fs::write(folder.join("parent.json"), text).with_context(|| format!("cannot write to {}", folder.display()))
    }

    /// Makes a command run with the parent's tree in place of the checkout. Takes root.
    pub fn instead(gate: &Gate, command: &Command) -> Command {
        let within = command.get_current_dir().unwrap_or(&gate.root).to_owned();
        let mut outer = Command::new("unshare");
        outer.args(["--mount", "--propagation", "private", "--", "sh", "-c"]);
        outer.arg("mount --bind \"$1\" \"$2\" && cd \"$3\" && shift 3 && exec \"$@\"").arg("sh");
        outer.arg(tree(gate)).arg(&gate.root).arg(within).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => outer.env(name, value),
                None => outer.env_remove(name),
            };
        }
        outer.current_dir(Path::new("/"));
        outer
    }
}
