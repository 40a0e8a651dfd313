// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tree that `topstat get` and `topstat set` work on.

use std::path::PathBuf;

use crate::args::TargetArgs;
use crate::backend::Backend;
use crate::daemon::client::{Client, catalogue, within};
use crate::daemon::tree::Tree;
use crate::error::Error;
use crate::files::Files;

/// A tree, and how it is reached.
pub struct Target<'a> {
    args: &'a TargetArgs,
    root: PathBuf,
    /// All files that the tree may have.
    pub tree: Tree,
}

impl<'a> Target<'a> {
    /// Finds the tree that the arguments name.
    ///
    /// # Errors
    ///
    /// When there is no tree at `--root`.
    pub fn find(args: &'a TargetArgs) -> Result<Self, Error> {
        let tree = match &args.root {
            Some(root) => Files::open(root)?.tree(),
            None => catalogue(),
        };
        let root = args.root.clone().unwrap_or_else(|| args.mount.dir());
        Ok(Self { args, root, tree })
    }

    /// A path relative to the tree's root.
    pub fn within<'p>(&self, path: &'p str) -> &'p str {
        within(&self.root, path)
    }

    /// The client of the tree. With `--root` it uses the tree's files alone.
    ///
    /// # Errors
    ///
    /// The errors of [`Client::reach`].
    pub fn client(&self, backend: &mut dyn Backend) -> Result<Client, Error> {
        match self.args.root {
            Some(_) => Ok(Client::Files(self.root.clone())),
            None => Client::reach(&self.root, &self.args.pins.dir(), backend),
        }
    }
}
