// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon. It loads and pins the observers, serves the file tree, and answers signals. The counts live in the kernel; the
//! daemon may end and start again.

mod adopt;
mod allowance;
mod apply;
pub mod budget;
pub mod caps;
pub mod client;
pub mod cost;
pub mod events;
mod handshake;
mod keeper;
mod kept;
mod lock;
pub mod logging;
mod measure;
pub mod mount;
pub mod notify;
pub mod own;
pub mod probe;
pub mod pulse;
mod served;
pub mod statistics;
pub mod tree;
pub mod workers;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use topstat_kernel::State;

use crate::backend::Backend;
use crate::config::{self, Config, Origin};
use crate::error::Error;
use adopt::adopt;
use apply::apply;
use cost::Cost;
use events::{Event, Events};
use kept::{Fault, Kept};
use lock::{Lock, NoLock};
use mount::Point;
use notify::Notify;
use own::Own;
use pulse::{Echo, Pulse};
use served::Served;
use statistics::{OwnReport, Statistics};
use tree::fuse::Service;
use tree::shares::Shares;
use workers::Workers;

/// The most snapshots that are taken at once, on any number of CPUs: each snapshot runs on all CPUs for a moment.
const MOST_READERS: usize = 8;

/// The settings of the daemon. The module `config` reads them from a file, and the command line overrides them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The mount point of the tree.
    pub mount: PathBuf,
    /// The directory in which state is pinned.
    pub pins: PathBuf,
    /// The lock file that prevents a second daemon.
    pub pid_file: PathBuf,
    /// The id of the group that may read the tree. Without a group only root may read it.
    pub group: Option<u32>,
    /// Whether the daemon removes all pins when it ends.
    pub unload: bool,
    /// The settings of the tables, the log and the budget.
    pub config: Config,
    /// The source from which the configuration is read again.
    pub origin: Origin,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mount: config::DEFAULT_MOUNT.into(),
            pins: config::DEFAULT_PINS.into(),
            pid_file: config::DEFAULT_PID_FILE.into(),
            group: None,
            unload: false,
            config: Config::default(),
            origin: Origin::default(),
        }
    }
}

/// Makes the allocator return unused memory to the kernel. This takes a millisecond at most.
fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: allocated memory stays as it is.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Makes the allocator return large buffers to the kernel as soon as they are freed: loading uses buffers of megabytes. By
/// default the allocator keeps buffers that are smaller than the largest one freed before.
fn give_back_at_once() {
    #[cfg(target_env = "gnu")]
    {
        /// Buffers of this many bytes, and larger ones, are mapped one by one.
        const LARGE: libc::c_int = 256 << 10;
        // SAFETY: the call changes only the allocator's settings.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
    }
}

/// Runs the daemon until a signal ends it.
///
/// # Errors
///
/// When the daemon cannot start: another daemon runs, the mount point can't be used, or nothing could be loaded.
pub fn run(settings: &Settings, backend: &mut dyn Backend) -> Result<(), Error> {
    let _lock = Lock::take(&settings.pid_file).map_err(|error| no_lock(&error, &settings.mount))?;
    let mut events = Events::catch().map_err(system("catch signals"))?;
    // The watch begins before anything is pinned, so that it misses no change.
    events.watch_mounts();
    // This check comes before anything is loaded: an unusable mount point is a mistake that the administrator must see.
    let point = Point::prepare(&settings.mount)?;
    if point.stale > 0 {
        log::info!("unmounted the tree that a killed daemon had left at {}", settings.mount.display());
    }
    for missing in caps::missing() {
        log::warn!("{missing}");
    }
    if let Some(limit) = topstat_kernel::possible_cpus().ok().and_then(allowance::too_small) {
        log::warn!("{limit}");
    }
    give_back_at_once();
    let states = adopt(settings, backend)?;
    apply(&settings.config, &Config::default(), &states)?;
    // Each load has read all of the kernel's types.
    trim();
    // The privileges that are left are enough for all later steps.
    caps::drop().map_err(|errno| Error::System { what: "give up privileges", source: errno.into() })?;
    log::info!("privileges left: {}", caps::describe());
    serve(settings, &states, point, &events)?;
    if settings.unload {
        drop(states);
        let removed = backend.remove(&settings.pins)?;
        log::info!("removed what was pinned: {} files", removed.len());
    }
    Ok(())
}

/// Serves these states until a signal ends the daemon.
fn serve(settings: &Settings, states: &[Arc<dyn State>], point: Point, events: &Events) -> Result<(), Error> {
    let mut config = settings.config.clone();
    let (cost, keeper) = Cost::new(states.to_vec(), config.overhead_budget);
    let pulse = Arc::new(Pulse::default());
    let unpinned = Fault::default();
    let service = service(states, &cost, &pulse, &unpinned)?;
    let kept = Kept::new(&settings.pins, states, unpinned);
    let samples = states.iter().flat_map(|state| state.samples()).cloned().collect();
    let mut tree = Served::start(point, settings, samples, service, events)?;
    let keeper = keeper.start().map_err(system("start threads"))?;
    let mut notify = Notify::new(Instant::now());
    // Only the watchdog needs the echo.
    let echo = notify.deadline().map(|_| Echo::start(&settings.mount, &pulse)).transpose();
    let echo = echo.map_err(system("start threads"))?;
    let status = status(states);
    notify.ready(&status);
    loop {
        let event = events.wait(notify.deadline()).map_err(system("wait for signals"))?;
        if notify.alive(Instant::now(), &pulse)
            && let Some(echo) = &echo
        {
            echo.ask();
        }
        match event {
            Event::Stop => break,
            Event::Reload => {
                notify.reloading();
                reload(&settings.origin, &mut config, states, &cost);
                notify.ready(&status);
                tree.mount_again();
                kept.look();
            }
            Event::Unmounted => tree.unmounted(),
            Event::Mounts => kept.look(),
            Event::Deadline => {}
        }
    }
    log::info!("stopping");
    notify.stopping();
    drop(keeper);
    drop(tree);
    Ok(())
}

/// Makes the service that answers requests to the tree: its threads, and the statistics that they read and set.
fn service(
    states: &[Arc<dyn State>],
    cost: &Arc<Cost>,
    pulse: &Arc<Pulse>,
    unpinned: &Fault,
) -> Result<Arc<Service>, Error> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).clamp(2, MOST_READERS);
    let shares = Arc::new(Shares::of_host());
    let readers = Arc::new(Workers::start("read", threads, pulse).map_err(system("start threads"))?);
    let own: OwnReport = {
        let (cost, shares, readers) = (Arc::clone(cost), Arc::clone(&shares), Arc::clone(&readers));
        let unpinned = unpinned.clone();
        Arc::new(move || {
            let tree = own::Tree::new(&shares, &readers);
            let mut own = Own::new(&cost.report(), own::Process::own(), tree, topstat_kernel::remembered_paths());
            own.unpinned = unpinned.get();
            own
        })
    };
    let statistics = Statistics::new(states.to_vec(), threads, Some(own));
    statistics.warm_up()?;
    Ok(Arc::new(Service {
        store: Arc::new(statistics),
        shares,
        readers,
        // One thread: settings are set one after the other.
        setter: Workers::start("set", 1, pulse).map_err(system("start threads"))?,
        pulse: Arc::clone(pulse),
    }))
}

fn system(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::System { what, source }
}

/// Removes all pins of a daemon, which ends its statistics. Returns the removed paths.
///
/// # Errors
///
/// When a daemon runs, or a pin can't be removed.
pub fn unload(pins: &Path, pid_file: &Path, backend: &mut dyn Backend) -> Result<Vec<PathBuf>, Error> {
    let _lock = Lock::take(pid_file).map_err(|error| match error {
        NoLock::Running(pid) => {
            let pid = pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
            Error::Daemon(format!("a daemon runs{pid}; stop it first, its statistics would end under it"))
        }
        NoLock::Io { .. } => Error::Daemon(error.to_string()),
    })?;
    Ok(backend.remove(pins)?)
}

/// Says why a second daemon does not start and, if the first daemon does not answer, what to do.
fn no_lock(error: &NoLock, mount: &Path) -> Error {
    let silent = matches!(error, NoLock::Running(_)).then(|| mount::is_silent(mount)).flatten();
    Error::Daemon(match silent {
        Some(silent) => format!("{error}; {silent}"),
        None => error.to_string(),
    })
}

/// One line for `systemctl status`.
fn status(states: &[Arc<dyn State>]) -> String {
    let samples: Vec<_> = states.iter().flat_map(|state| state.samples()).map(|sample| sample.name.as_str()).collect();
    format!("counting {}", samples.join(", "))
}

/// Reads the configuration again, and applies the settings that can change while the daemon runs.
fn reload(origin: &Origin, config: &mut Config, states: &[Arc<dyn State>], cost: &Cost) {
    let (new, file) = match origin.read() {
        Ok(read) => read,
        Err(error) => {
            log::error!("{error}");
            return;
        }
    };
    let file = file.map_or_else(|| "no configuration".to_owned(), |file| file.display().to_string());
    logging::begin(new.log_level.unwrap_or_default());
    match apply(&new, config, states) {
        Ok(changed) => log::info!("read {file} again: {changed} tables were set"),
        Err(error) => log::error!("read {file} again: {error}"),
    }
    cost.set_budget(new.overhead_budget);
    let restart = config.needs_restart(&new);
    if !restart.is_empty() {
        log::warn!("read {file} again: a restart is needed for {}", restart.join(", "));
    }
    *config = new;
}
