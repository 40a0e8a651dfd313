// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps the tree mounted while the daemon runs: mounts it, notices when it was unmounted, and mounts it again.

use std::sync::Arc;

use topstat_kernel::SampleInfo;

use super::events::Events;
use super::mount::{Mounted, NoTree, Point};
use super::tree::Tree;
use super::tree::fuse::{Service, TreeFs};
use super::{Settings, handshake};
use crate::error::Error;

/// The tree of a daemon. The drop of this value unmounts the tree.
pub struct Served<'a> {
    settings: &'a Settings,
    samples: Vec<Arc<SampleInfo>>,
    service: Arc<Service>,
    events: &'a Events,
    /// `None` if the host can't have a tree, or if another program has unmounted it.
    mounted: Option<Mounted>,
}

impl<'a> Served<'a> {
    /// Mounts the tree of these samples.
    ///
    /// # Errors
    ///
    /// When the mount point can't be used. A host that can't have a tree is no error: the log reports it.
    pub fn start(
        point: Point,
        settings: &'a Settings,
        samples: Vec<Arc<SampleInfo>>,
        service: Arc<Service>,
        events: &'a Events,
    ) -> Result<Self, Error> {
        let mut served = Self { settings, samples, service, events, mounted: None };
        served.mount(point)?;
        Ok(served)
    }

    fn mount(&mut self, point: Point) -> Result<(), Error> {
        let on_end = self.events.on_unmount();
        let on_end = on_end.map_err(|source| Error::System { what: "watch the mount point", source })?;
        let files = TreeFs::new(Tree::new(&self.samples), self.settings.group, Arc::clone(&self.service));
        match point.mount(files, on_end) {
            Ok(mounted) => {
                log::info!("the tree is at {}", mounted.at().display());
                self.mounted = Some(mounted);
            }
            Err(error @ (NoTree::NoFuse(_) | NoTree::NotPermitted)) => {
                log::warn!("{error}; there is no tree, all else works (topstat top, get, set)");
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Mounts the tree again if it is not mounted. The log gets any failure: a mistake now must not end a daemon that has run for
    /// long.
    pub fn mount_again(&mut self) {
        if self.is_there() {
            return;
        }
        // The dead tree is dropped first.
        drop(self.mounted.take());
        let point = Point::prepare(&self.settings.mount).map_err(Error::from);
        if let Err(error) = point.and_then(|point| self.mount(point)) {
            log::error!("{error}");
        }
    }

    /// Handles the unmount of a tree. Does nothing at the end of the daemon, or if the tree is mounted again.
    pub fn unmounted(&mut self) {
        let at = self.settings.mount.display();
        if !self.mounted.as_mut().is_some_and(Mounted::is_over) {
            return;
        }
        if self.is_there() {
            log::warn!(
                "the kernel has ended the connection of the tree at {at} (abort of /sys/fs/fuse/connections, or no answer \
                 for {} s): it is mounted again",
                handshake::REQUEST_TIMEOUT_S
            );
            drop(self.mounted.take());
            self.mount_again();
        } else {
            self.mounted = None;
            log::warn!(
                "somebody has unmounted the tree from {at}; counting goes on without it (SIGHUP mounts it again)"
            );
        }
    }

    fn is_there(&self) -> bool {
        self.mounted.as_ref().is_some_and(Mounted::is_there)
    }
}
