// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files that cover all intervals: folded stacks, and their flame graph.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use inferno::flamegraph::{self, Options};
use topstat_model::stacks::{Choice, Profile};

use crate::error::Error;

/// The files that are written at the end, and the stacks that go into them.
pub struct Files {
    flame: Option<(File, PathBuf)>,
    folded: Option<(File, PathBuf)>,
    stacks: BTreeMap<String, u64>,
}

fn failed(path: &Path, source: &io::Error) -> Error {
    Error::File { path: path.to_owned(), why: source.to_string() }
}

impl Files {
    /// Creates the files at the beginning, so that a file that can't be created is reported at once.
    ///
    /// # Errors
    ///
    /// When a file can't be created.
    pub fn begin(flame: Option<&Path>, folded: Option<&Path>) -> Result<Self, Error> {
        let make = |path: Option<&Path>| {
            let made =
                path.map(|path| File::create(path).map(|file| (file, path.to_owned())).map_err(|e| failed(path, &e)));
            made.transpose()
        };
        Ok(Self { flame: make(flame)?, folded: make(folded)?, stacks: BTreeMap::new() })
    }

    /// Adds the samples of an interval that the choice includes.
    pub fn add(&mut self, profile: &Profile, choice: &Choice) {
        if self.flame.is_none() && self.folded.is_none() {
            return;
        }
        for sample in profile.samples.iter().filter(|sample| choice.has(sample)) {
            *self.stacks.entry(sample.folded()).or_default() += sample.count;
        }
    }

    /// Writes the files.
    ///
    /// # Errors
    ///
    /// When a file can't be written.
    pub fn end(mut self) -> Result<(), Error> {
        let lines: Vec<String> = self.stacks.iter().map(|(stack, count)| format!("{stack} {count}")).collect();
        if let Some((file, path)) = &mut self.folded {
            let text = lines.iter().fold(String::new(), |all, line| all + line + "\n");
            file.write_all(text.as_bytes()).map_err(|e| failed(path, &e))?;
        }
        if let Some((file, path)) = &mut self.flame {
            write_flame(&lines, file).map_err(|e| failed(path, &e))?;
        }
        Ok(())
    }
}

/// Writes a flame graph of folded stacks.
fn write_flame(lines: &[String], file: &mut File) -> io::Result<()> {
    if lines.is_empty() {
        return Err(io::Error::other("there are no samples to draw"));
    }
    let mut options = Options::default();
    "topstat netstack".clone_into(&mut options.title);
    "samples".clone_into(&mut options.count_name);
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), file)
}
