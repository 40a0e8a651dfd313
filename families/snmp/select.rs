// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns a user's words into a selection of counters.

use std::path::Path;

use super::netns::{ALL, Names, Netns, find_netns};
use super::protocols::protocols;
use super::raw::Keep;
use super::reader::{Select, Which};
use topstat_kernel::Error;

/// The selection of a user, in the user's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Protocols, separated by commas; or a namespace; or a device.
    pub what: Option<String>,
    /// A namespace, or `all`.
    pub netns: Option<String>,
    /// A device, or `all`.
    pub device: Option<String>,
    /// Only sums, without the counters of each CPU.
    pub sums_only: bool,
}

impl Select {
    /// Looks up the user's words.
    ///
    /// # Errors
    /// When a word names nothing.
    pub fn find(wish: &Wish) -> Result<Self, Error> {
        let keep = if wish.sums_only { Keep::Sums } else { Keep::All };
        let mut select = Self { keep, ..Self::default() };
        if let Some(netns) = &wish.netns {
            select.which.netns = find_netns(netns)?;
        }
        select.which.set_device(wish.device.as_deref());
        let Some(what) = &wish.what else { return Ok(select) };
        let words: Vec<&str> = what.split(',').filter(|word| !word.is_empty()).collect();
        let is_protocol = |word: &&str| protocols().iter().any(|protocol| protocol.name == *word);
        if !words.is_empty() && words.iter().any(is_protocol) {
            // A wrong protocol among them is reported when it is looked up.
            select.protocols = words.into_iter().map(str::to_owned).collect();
        } else if what == ALL {
            // Like no word at all.
        } else if let Some(inode) = Names::read().find(what) {
            if wish.netns.is_some() {
                return Err(Error::Option(format!("{what} is a network namespace, and so is what --netns says")));
            }
            select.which.netns = Netns::Inode(inode);
        } else if is_device(what) || (wish.netns.is_some() && wish.device.is_none()) {
            select.which.set_device(Some(what));
        } else {
            let known: Vec<_> = protocols().iter().map(|protocol| protocol.name).collect();
            return Err(Error::Option(format!(
                "{what} is no protocol ({}), no network namespace and no device here; --netns and --dev say which is \
                 meant",
                known.join(", ")
            )));
        }
        Ok(select)
    }
}

impl Which {
    fn set_device(&mut self, name: Option<&str>) {
        self.devices |= name.is_some();
        self.device = self.device.take().or(name.filter(|name| *name != ALL).map(str::to_owned));
    }
}

/// Whether the own namespace has a device of this name. No device's name has a slash.
fn is_device(name: &str) -> bool {
    let folders = ["/proc/thread-self/net/dev_snmp6", "/sys/class/net"];
    let is_name = !name.contains('/') && !matches!(name, "" | "." | "..");
    is_name && folders.iter().any(|folder| Path::new(folder).join(name).exists())
}
