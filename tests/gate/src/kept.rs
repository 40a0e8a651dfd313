// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Passes with the hash of their inputs. A part that has passed with these inputs is not run again.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::case::Cases;

/// The pass of a part, or of one of its pieces.
#[derive(Debug, Serialize, Deserialize)]
pub struct Pass {
    /// Of its inputs.
    pub hash: String,
    pub commit: String,
    pub when: Timestamp,
    pub cases: Cases,
}

impl Pass {
    /// The pass of that name, if it was with these inputs.
    pub fn find(state: &Path, name: &str, hash: &str) -> Option<Self> {
        let text = fs::read(state.join("passed").join(name)).ok()?;
        let pass: Self = serde_json::from_slice(&text).ok()?;
        (pass.hash == hash).then_some(pass)
    }

    /// # Errors
    /// A file that can't be written.
    pub fn keep(state: &Path, name: &str, hash: &str, commit: &str, cases: &Cases) -> Result<()> {
        let pass =
            Self { hash: hash.to_owned(), commit: commit.to_owned(), when: Timestamp::now(), cases: cases.clone() };
        let (folder, text) = (state.join("passed"), serde_json::to_vec(&pass).context("cannot write a pass as JSON")?);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        // Whole or not at all: a run may be ended at any moment.
        let (new, path) = (folder.join(format!("{name}.new")), folder.join(name));
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Outcome;

    #[test]
    fn a_pass_counts_for_its_inputs_alone() {
        let state = std::env::temp_dir().join(format!("topstat-gate-kept-{}", std::process::id()));
        let mut cases = Cases::default();
        cases.add("a", Outcome::Passed);
        assert!(Pass::find(&state, "unit", "1").is_none());
        Pass::keep(&state, "unit", "1", "abc", &cases).unwrap();
        assert_eq!(Pass::find(&state, "unit", "1").unwrap().cases, cases);
        assert!(Pass::find(&state, "unit", "2").is_none());
        fs::remove_dir_all(&state).unwrap();
    }
}
