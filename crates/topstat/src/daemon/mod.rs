// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon: it loads and pins the observers, serves the file tree, and answers signals. What is counted lives in the
//! kernel; the daemon may come and go.

mod apply;
pub mod budget;
pub mod caps;
pub mod client;
pub mod cost;
mod events;
mod handshake;
mod lock;
pub mod logging;
pub mod mount;
pub mod notify;
pub mod own;
pub mod probe;
pub mod pulse;
pub mod statistics;
pub mod tree;
pub mod workers;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use topstat_kernel::pinned::Adopted;
use topstat_kernel::{SampleInfo, State};

use crate::args::ListFormat;
use crate::backend::Backend;
use crate::config::{self, Config, Origin};
use crate::error::Error;
use apply::apply;
use cost::Cost;
use events::{Event, Events};
use lock::{Lock, NoLock};
use mount::{Mounted, NoTree, Point};
use notify::Notify;
use own::Own;
use pulse::{Echo, Pulse};
use statistics::Statistics;
use tree::Tree;
use tree::fuse::{Service, TreeFs};
use tree::shares::Shares;
use workers::Workers;

/// At most so many snapshots are taken at once, however many CPUs there are: each is on all of them for a moment.
const MOST_READERS: usize = 8;

/// What the command line and the configuration come to. `config` makes it from a file, the command line overrides it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The mount point of the tree.
    pub mount: PathBuf,
    /// Where state is pinned.
    pub pins: PathBuf,
    /// What keeps a second daemon away.
    pub pid_file: PathBuf,
    /// The group that may read the tree, by its id; root alone if none.
    pub group: Option<u32>,
    /// Whether all that was pinned is removed at the end.
    pub unload: bool,
    /// What tables, the log and the budget are to be.
    pub config: Config,
    /// Where the configuration is read from again.
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

/// What a file of the root says when it is read, such as `self`. Called once per open; may take a millisecond.
pub type Text = Arc<dyn Fn(ListFormat) -> String + Send + Sync>;

/// Runs until a signal ends it.
///
/// # Errors
///
/// When it cannot start: another daemon runs, the mount point can't be used, nothing could be loaded.
pub fn run(settings: &Settings, backend: &mut dyn Backend) -> Result<(), Error> {
    let _lock = Lock::take(&settings.pid_file).map_err(|error| no_lock(&error, &settings.mount))?;
    let system = |what| move |source| Error::System { what, source };
    let events = Events::catch().map_err(system("catch signals"))?;
    // Before anything is loaded: a mount point that can't be used is a mistake that somebody has to see.
    let point = Point::prepare(&settings.mount)?;
    if point.stale > 0 {
        log::info!("unmounted the tree that a killed daemon had left at {}", settings.mount.display());
    }
    for missing in caps::missing() {
        log::warn!("{missing}");
    }
    let states = adopt(settings, backend)?;
    let mut config = settings.config.clone();
    apply(&config, &Config::default(), &states)?;
    // What is left is enough for all that follows.
    caps::drop().map_err(|errno| Error::System { what: "give up privileges", source: errno.into() })?;
    log::info!("privileges left: {}", caps::describe());
    let cost = Cost::new(states.clone(), config.overhead_budget);
    let readers = std::thread::available_parallelism().map_or(1, usize::from).clamp(2, MOST_READERS);
    let pulse = Arc::new(Pulse::default());
    let shares = Arc::new(Shares::default());
    let workers = Arc::new(Workers::start("read", readers, &pulse).map_err(system("start threads"))?);
    let own: Text = {
        let (cost, shares, workers) = (Arc::clone(&cost), Arc::clone(&shares), Arc::clone(&workers));
        Arc::new(move |format| {
            let use_of_tree = own::Tree::new(&shares, &workers);
            let own = Own::new(&cost.report(), own::Process::own(), use_of_tree, topstat_kernel::remembered_paths());
            match format {
                ListFormat::Text => own.text(),
                ListFormat::Json => own.json(),
            }
        })
    };
    let statistics = Arc::new(Statistics::new(states.clone(), readers, own));
    statistics.warm_up()?;
    let service = Arc::new(Service {
        store: Arc::clone(&statistics) as _,
        shares,
        readers: workers,
        // One after the other, as setting is.
        setter: Workers::start("set", 1, &pulse).map_err(system("start threads"))?,
        pulse: Arc::clone(&pulse),
    });
    let samples = statistics.samples();
    let serve = |point: Point| mount(point, settings, &samples, &service, &events);
    // A mistake later must not end what has run for long.
    let again = || {
        let mounted = Point::prepare(&settings.mount).map_err(Error::from).and_then(serve);
        mounted.unwrap_or_else(|error| {
            log::error!("{error}");
            None
        })
    };
    let mut mounted = serve(point)?;
    let keeper = cost.start().map_err(system("start threads"))?;
    let mut notify = Notify::new(Instant::now());
    // Without a watchdog nobody wants to know.
    let echo = notify.deadline().map(|_| Echo::start(&settings.mount, &pulse)).transpose();
    let echo = echo.map_err(system("start threads"))?;
    let status = status(&states);
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
                reload(&settings.origin, &mut config, &states, &cost);
                notify.ready(&status);
                if !mounted.as_ref().is_some_and(Mounted::is_there) {
                    drop(mounted.take());
                    mounted = again();
                }
            }
            Event::Unmounted => {
                // At the end, or once it was mounted again, that is no news.
                if !mounted.as_mut().is_some_and(Mounted::is_over) {
                } else if mounted.as_ref().is_some_and(Mounted::is_there) {
                    log::warn!(
                        "the kernel has ended the connection of the tree at {} (abort of /sys/fs/fuse/connections, or no \
                         answer for {} s): it is mounted again",
                        settings.mount.display(),
                        handshake::REQUEST_TIMEOUT_S
                    );
                    drop(mounted.take());
                    mounted = again();
                } else {
                    mounted = None;
                    log::warn!(
                        "somebody has unmounted the tree from {}; counting goes on without it (SIGHUP mounts it again)",
                        settings.mount.display()
                    );
                }
            }
            Event::Deadline => {}
        }
    }
    log::info!("stopping");
    notify.stopping();
    drop(keeper);
    drop(mounted);
    if settings.unload {
        drop((service, statistics, states, cost));
        let removed = backend.remove(&settings.pins)?;
        log::info!("removed what was pinned: {} files", removed.len());
    }
    Ok(())
}

/// Removes all that a daemon has pinned, which ends its statistics. Returns what it removed.
///
/// # Errors
///
/// When a daemon runs, or something can't be removed.
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

/// Why a second daemon does not start, and what to do where the first does not answer.
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

/// Reads the configuration again, and sets what can be set while the daemon runs.
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

/// The states of all families: those pinned, or newly loaded ones. A family that can't be loaded is left out.
fn adopt(settings: &Settings, backend: &mut dyn Backend) -> Result<Vec<Arc<dyn State>>, Error> {
    let mut states = Vec::new();
    let mut failed = None;
    // What has no tables is loaded by whoever looks at it, and never pinned.
    for family in topstat_kernel::families().iter().filter(|family| !family.samples.is_empty()) {
        if !settings.config.wants(&family.samples) {
            log::info!("{}: not loaded, for the configuration has all its samples off", family.name);
            continue;
        }
        let name = &family.name;
        if let Some(less) = family.less() {
            log::warn!("{name}: {less}");
        }
        let options = apply::options(&settings.config, &family.samples);
        match backend.adopt(&settings.pins, family, &family.tables(), &options) {
            Ok((state, how)) => {
                match how {
                    Adopted::Loaded => log::info!("{name}: loaded"),
                    Adopted::Found => log::info!("{name}: found pinned, and adopted"),
                    Adopted::Upgraded => log::info!("{name}: found pinned, and its programs replaced"),
                }
                for note in topstat_kernel::pinned::kept(state.as_ref(), &options) {
                    log::warn!("{name}: {note}");
                }
                for program in state.programs() {
                    log::info!("{name}: program {} ({}) at {}", program.name, program.id, program.hook);
                }
                states.push(state);
            }
            Err(error) => {
                // What the administrator has not switched on need not be there.
                let level = match error {
                    topstat_kernel::Error::SwitchedOff { .. } => log::Level::Info,
                    _ => log::Level::Error,
                };
                log::log!(level, "{name}: {error}");
                failed = Some(error);
            }
        }
    }
    match (states.is_empty(), failed) {
        (true, Some(error)) => Err(error.into()),
        _ => Ok(states),
    }
}

/// Mounts the tree; `None` where the host can't have one.
fn mount(
    point: Point,
    settings: &Settings,
    samples: &[Arc<SampleInfo>],
    service: &Arc<Service>,
    events: &Events,
) -> Result<Option<Mounted>, Error> {
    let system = |what| move |source| Error::System { what, source };
    let on_end = events.on_unmount().map_err(system("watch the mount point"))?;
    match point.mount(TreeFs::new(Tree::new(samples), settings.group, Arc::clone(service)), on_end) {
        Ok(mounted) => {
            log::info!("the tree is at {}", mounted.at().display());
            Ok(Some(mounted))
        }
        Err(error @ NoTree::NoFuse(_)) => {
            log::warn!("{error}; there is no tree, all else works (topstat top, get, set)");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Takes down why somebody got an error from the tree.
fn refused(what: &str, file: &str, why: &str) {
    logging::REFUSALS.warn(format_args!("cannot {what} {}: {why}", Path::new("/").join(file).display()));
}
