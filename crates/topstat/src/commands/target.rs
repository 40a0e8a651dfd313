// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tree that `topstat get` and `topstat set` work on.

use std::path::PathBuf;

use crate::args::TargetArgs;
use crate::backend::Backend;
use crate::daemon::client::{Client, catalogue, within};
use crate::daemon::tree::Tree;
use crate::error::Error;
use crate::files::Files;

/// Which tree, and how it is reached.
pub struct Target<'a> {
    args: &'a TargetArgs,
    root: PathBuf,
    /// All that there may be in it.
    pub tree: Tree,
}

impl<'a> Target<'a> {
    /// Finds the one that is asked for.
    ///
    /// # Errors
    ///
    /// When there is none at `--root`.
    pub fn find(args: &'a TargetArgs) -> Result<Self, Error> {
        let tree = match &args.root {
            Some(root) => Files::open(root)?.tree(),
            None => catalogue(),
        };
        let root = args.root.clone().unwrap_or_else(|| args.mount.dir());
        Ok(Self { args, root, tree })
    }

    /// A path as it is below the tree's root.
    pub fn within<'p>(&self, path: &'p str) -> &'p str {
        within(&self.root, path)
    }

    /// The way to what it has: by its files alone with `--root`.
    ///
    /// # Errors
    ///
    /// Those of [`Client::reach`].
    pub fn client(&self, backend: &mut dyn Backend) -> Result<Client, Error> {
        match self.args.root {
            Some(_) => Ok(Client::Files(self.root.clone())),
            None => Client::reach(&self.root, &self.args.pins.dir(), backend),
        }
    }
}
