// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat set`: writes a setting of the tree.

use topstat_model::typeset::escape;

use super::target::Target;
use crate::args::SetArgs;
use crate::backend::Backend;
use crate::daemon::tree::value::Setting;
use crate::daemon::tree::{Entry, File, Kind, Node, Tree};
use crate::error::{Error, Exit};
use crate::time;

pub fn run(args: &SetArgs, backend: &mut dyn Backend) -> Result<Exit, Error> {
    let target = Target::find(&args.target)?;
    let path = target.within(&args.path);
    let node = target.tree.find(path).map_err(Error::Usage)?;
    let file = match &node.entry {
        Entry::File(file) => file,
        Entry::Directory(_) => return Err(no_file(&target.tree, node, path)),
    };
    let Kind::Setting(setting) = file.kind else {
        return Err(Error::Usage(format!("{} can only be read", file.path())));
    };
    let value = value(setting, &args.value)
        .map_err(|why| Error::Usage(format!("cannot set {} to '{}': {why}", file.path(), escape(&args.value))))?;
    target.client(backend)?.write(file, setting, value)?;
    Ok(Exit::Done)
}

/// Parses a value. A period and a delay may have a unit.
fn value(setting: Setting, written: &str) -> Result<u32, String> {
    match setting {
        Setting::Enabled | Setting::Sync => setting.parse(written.as_bytes()).map_err(|bad| bad.to_string()),
        Setting::Period => time::period(written),
        Setting::Delay => time::delay(written),
    }
}

fn no_file(tree: &Tree, directory: &Node, path: &str) -> Error {
    let files = directory.children.iter().filter_map(|inode| tree.get(*inode));
    let settings: Vec<_> = files
        .filter_map(|node| match node.entry {
            Entry::File(File { kind: Kind::Setting(setting), .. }) => Some(setting.name()),
            _ => None,
        })
        .collect();
    let directory = if path.is_empty() { "the tree" } else { path };
    Error::Usage(format!("{} is a directory: it has {} to set", escape(directory), settings.join(", ")))
}
