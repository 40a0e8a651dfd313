// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of control groups and of hosts.

use std::net::IpAddr;

use topstat_model::names;
use topstat_model::typeset::escape;

use super::App;
use crate::draw::fit;

/// Names for people, of what rows have by a path or an address. The thread that draws calls it.
pub trait Names: Send {
    /// The short name of a control group, from its path.
    fn group(&mut self, path: &str) -> String;

    /// The name of the host with this address, if it is known. Otherwise it is asked for, and a later call may have it. Never
    /// waits.
    fn host(&mut self, address: IpAddr) -> Option<String>;

    /// Whether names of hosts are being asked for: a later frame may have more of them.
    fn is_asking(&self) -> bool;
}

/// Names that follow from the paths alone. Hosts have no names.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfPaths;

impl Names for OfPaths {
    fn group(&mut self, path: &str) -> String {
        names::of(path).to_string()
    }

    fn host(&mut self, _: IpAddr) -> Option<String> {
        None
    }

    fn is_asking(&self) -> bool {
        false
    }
}

/// The most cells of a host's name in a row. A longer name loses its end: the first words of a domain tell hosts apart.
const HOST_CELLS: usize = 32;

/// The name of a host as a row has it: safe for a terminal, and cut to 32 cells.
pub fn host_text(name: &str) -> String {
    fit(&escape(name), HOST_CELLS, false)
}

impl App {
    /// Gives names in this way from now on. Without a call they are [`OfPaths`].
    pub fn name_by(&mut self, names: Box<dyn Names>) {
        self.names = names.into();
    }

    /// The short name of a control group, from its path; empty for the root.
    pub fn place(&self, path: &str) -> String {
        if path.trim_matches('/').is_empty() { String::new() } else { self.names.borrow_mut().group(path) }
    }

    /// The name of the host with this address, if names of hosts are shown and this one is known.
    pub(crate) fn host_name(&self, address: IpAddr) -> Option<String> {
        if self.resolve { self.names.borrow_mut().host(address) } else { None }
    }

    /// The host with this address in a few cells: its name, or the address itself.
    pub(crate) fn host_or_address(&self, address: IpAddr) -> String {
        self.host_name(address).map_or_else(|| address.to_string(), |name| host_text(&name))
    }

    /// Whether the next frame may have more names of hosts than the last one.
    pub fn awaits_names(&mut self) -> bool {
        let asking = self.resolve && self.names.borrow().is_asking();
        // The last name may have come after the last frame.
        std::mem::replace(&mut self.awaited_names, asking) || asking
    }
}
