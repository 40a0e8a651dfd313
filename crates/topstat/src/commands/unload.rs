// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat unload`: removes everything that a daemon has pinned, and lists the programs that still count.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use topstat_kernel::pinned::Attached;

use crate::args::UnloadArgs;
use crate::backend::Backend;
use crate::console::Console;
use crate::daemon;
use crate::error::{Error, Exit};

/// The time that the kernel may take to free a link that is no longer pinned: it does so in the background.
const FREED: Duration = Duration::from_secs(2);
/// The pause between two looks at the attached links.
const PAUSE: Duration = Duration::from_millis(50);

pub fn run(args: &UnloadArgs, backend: &mut dyn Backend, console: &mut dyn Console) -> Result<Exit, Error> {
    let removed = daemon::unload(&args.pins.dir(), &args.pid_file, backend)?;
    let lines: String = removed.iter().map(|path| format!("{}\n", path.display())).collect();
    console.write(lines.as_bytes()).map_err(Error::Output)?;
    let pins = args.pins.dir();
    if removed.is_empty() {
        console.note(&format!("topstat: nothing is pinned at {}", pins.display()));
    }
    let left = left(backend)?;
    for line in left.lines() {
        console.note(&format!("topstat: {line}"));
    }
    Ok(if left.is_astray() { Exit::Failed } else { Exit::Done })
}

/// The links that keep programs attached after the removal.
#[derive(Default)]
struct Left {
    /// Links whose pins are in no BPF file system that is mounted here.
    unseen: Vec<String>,
    /// Links in a folder that is no part of a daemon's directory.
    moved: BTreeMap<PathBuf, Vec<String>>,
    /// Links of other daemons, by the directory of their pins.
    others: BTreeMap<PathBuf, Vec<String>>,
}

impl Left {
    /// Sorts the attached links. A link that a process holds, such as a `topstat top` with private tables, ends with that
    /// process: it is not counted.
    fn of(attached: Vec<Attached>) -> Self {
        let mut left = Self::default();
        for link in attached.into_iter().filter(|link| link.holders.is_empty()) {
            let text = format!("{} (link {})", link.program, link.link);
            let pins = link.at.as_deref().and_then(pins_of).map(Path::to_owned);
            match (pins, link.at.as_deref().and_then(Path::parent)) {
                (Some(pins), _) => left.others.entry(pins).or_default().push(text),
                (None, Some(folder)) => left.moved.entry(folder.to_owned()).or_default().push(text),
                (None, None) => left.unseen.push(text),
            }
        }
        left
    }

    /// Whether programs still count that no `topstat unload` would remove.
    fn is_astray(&self) -> bool {
        !self.unseen.is_empty() || !self.moved.is_empty()
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (folder, links) in &self.moved {
            lines.push(format!(
                "programs of topstat are still attached, by links in {}, where no topstat has pinned them: {}; somebody \
                 has moved them there. What ends them: rm -r {}",
                folder.display(),
                links.join(", "),
                folder.display()
            ));
        }
        if !self.unseen.is_empty() {
            lines.push(format!(
                "programs of topstat are still attached, by links that are pinned in no BPF file system that is mounted \
                 here: {}; look for it in other mount namespaces (lsns -t mnt; nsenter -t PID -m topstat unload), or \
                 restart the host",
                self.unseen.join(", ")
            ));
        }
        for (pins, links) in &self.others {
            lines.push(format!(
                "another topstat counts on, pinned at {} ({} links); to remove it: topstat unload --pins {}",
                pins.display(),
                links.len(),
                pins.display()
            ));
        }
        lines
    }
}

/// The directory of the daemon that has pinned a link: the path above `abi-N/FAMILY/links/PROGRAM`.
fn pins_of(link: &Path) -> Option<&Path> {
    let folder = link.parent().filter(|folder| folder.ends_with("links"))?;
    let abi = folder.parent()?.parent()?;
    let number = abi.file_name()?.to_str()?.strip_prefix("abi-")?;
    number.parse::<u32>().ok().and(abi.parent())
}

/// The remaining links, after the kernel has had time to free the removed ones.
fn left(backend: &mut dyn Backend) -> Result<Left, Error> {
    let begun = Instant::now();
    loop {
        let left = Left::of(backend.attached()?);
        if !left.is_astray() || begun.elapsed() >= FREED {
            return Ok(left);
        }
        std::thread::sleep(PAUSE);
    }
}
