// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat get`: prints the settings, or any other file of the tree.

use super::target::Target;
use crate::args::GetArgs;
use crate::backend::Backend;
use crate::console::Console;
use crate::daemon::tree::{Entry, File, Kind, Node, Tree};
use crate::error::{Error, Exit};

pub fn run(args: &GetArgs, backend: &mut dyn Backend, console: &mut dyn Console) -> Result<Exit, Error> {
    let target = Target::find(&args.target)?;
    let node = target.tree.find(target.within(&args.path)).map_err(Error::Usage)?;
    let client = target.client(backend)?;
    let mut text = Vec::new();
    match &node.entry {
        Entry::File(file) => text = client.read(file)?,
        Entry::Directory(_) => {
            let mut files = Vec::new();
            settings(&target.tree, node, &mut files);
            for file in files {
                // Families that this kernel can't load have no files.
                let Some(value) = client.read_if_there(&file)? else { continue };
                text.extend(format!("{} ", file.path()).into_bytes());
                text.extend(value);
            }
        }
    }
    console.write(&text).map_err(Error::Output)?;
    Ok(Exit::Done)
}

/// Collects the files with the settings and the types of the tables below a directory.
fn settings(tree: &Tree, directory: &Node, files: &mut Vec<File>) {
    for node in directory.children.iter().filter_map(|inode| tree.get(*inode)) {
        match &node.entry {
            Entry::Directory(_) => settings(tree, node, files),
            Entry::File(file) if matches!(file.kind, Kind::Setting(_) | Kind::Type) => files.push(file.clone()),
            Entry::File(_) => {}
        }
    }
}
