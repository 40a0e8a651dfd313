// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tree while the daemon runs: mounted, missed when it is gone, and mounted again.

use std::sync::Arc;

use topstat_kernel::SampleInfo;

use super::events::Events;
use super::mount::{Mounted, NoTree, Point};
use super::tree::Tree;
use super::tree::fuse::{Service, TreeFs};
use super::{Settings, handshake};
use crate::error::Error;

/// The tree of a daemon. Dropping it unmounts.
pub struct Served<'a> {
    settings: &'a Settings,
    samples: Vec<Arc<SampleInfo>>,
    service: Arc<Service>,
    events: &'a Events,
    /// Nothing where the host can't have a tree, or somebody has unmounted it.
    mounted: Option<Mounted>,
}

impl<'a> Served<'a> {
    /// Mounts the tree of these samples.
    ///
    /// # Errors
    ///
    /// When the mount point can't be used. A host that can't have any tree is none: the log says so.
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
            Err(error @ NoTree::NoFuse(_)) => {
                log::warn!("{error}; there is no tree, all else works (topstat top, get, set)");
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Mounts it once more where it is not there. A mistake now must not end what has run for long.
    pub fn mount_again(&mut self) {
        if self.is_there() {
            return;
        }
        // The dead one goes first.
        drop(self.mounted.take());
        let point = Point::prepare(&self.settings.mount).map_err(Error::from);
        if let Err(error) = point.and_then(|point| self.mount(point)) {
            log::error!("{error}");
        }
    }

    /// What is to be done when a tree was unmounted. At the end of the daemon, or once it is mounted again, that is no
    /// news.
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
