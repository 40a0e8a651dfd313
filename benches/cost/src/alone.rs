// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measurements are refused while other topstat programs are attached: each side of a comparison would include their cost.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use topstat_kernel::pinned::{Attached, attached};

/// Fails if topstat programs are attached on this host.
pub fn check() -> Result<()> {
    let found = attached()?;
    ensure!(found.is_empty(), "{}", refusal(&found));
    Ok(())
}

/// The attached programs, and the way to remove each.
fn refusal(found: &[Attached]) -> String {
    let mut holders: BTreeSet<u32> = BTreeSet::new();
    let mut pinned: BTreeMap<PathBuf, usize> = BTreeMap::new();
    let mut unseen = Vec::new();
    for link in found {
        match (&link.at, link.holders.is_empty()) {
            (Some(at), _) => *pinned.entry(pins_of(at)).or_default() += 1,
            (None, false) => holders.extend(&link.holders),
            (None, true) => unseen.push(link.link.to_string()),
        }
    }
    let mut ways: Vec<_> = pinned
        .iter()
        .map(|(pins, links)| {
            let pins = pins.display();
            format!("{links} are pinned at {pins}: end the daemon, if there is one, and 'topstat unload --pins {pins}'")
        })
        .collect();
    ways.extend(holders.iter().map(|pid| format!("process {pid} holds some: end it")));
    if !unseen.is_empty() {
        ways.push(format!(
            "of the links {} nothing can be seen from here: 'topstat unload' says more",
            unseen.join(", ")
        ));
    }
    format!(
        "cannot measure beside {} programs of topstat's that are attached on this host, each side would pay for them: {}",
        found.len(),
        ways.join("; ")
    )
}

/// The directory of a daemon's pins, which is above `abi-N`; for any other link, its folder.
fn pins_of(link: &Path) -> PathBuf {
    let is_abi = |folder: &&Path| folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("abi-"));
    let above = link.ancestors().find(is_abi).and_then(Path::parent);
    above.or(link.parent()).unwrap_or(link).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(at: Option<&str>, holders: &[u32]) -> Attached {
        Attached { program: "inet_probe".into(), link: 7, at: at.map(Into::into), holders: holders.to_vec() }
    }

    #[test]
    fn what_is_attached_is_named_with_what_ends_it() {
        let said = refusal(&[
            link(Some("/sys/fs/bpf/topstat/abi-7/inet/links/inet_probe"), &[31]),
            link(Some("/sys/fs/bpf/topstat/abi-7/inet/links/inet_user"), &[31]),
            link(None, &[4711]),
            link(None, &[]),
        ]);
        assert_eq!(
            said,
            "cannot measure beside 4 programs of topstat's that are attached on this host, each side would pay for them: \
             2 are pinned at /sys/fs/bpf/topstat: end the daemon, if there is one, and 'topstat unload --pins \
             /sys/fs/bpf/topstat'; process 4711 holds some: end it; of the links 7 nothing can be seen from here: \
             'topstat unload' says more"
        );
    }
}
