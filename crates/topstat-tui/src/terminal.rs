// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop of the view: keys and readings come, frames go.

mod taken;

use std::io::{self, BufWriter, Read as _, Stdout, Write as _};
use std::os::unix::net::UnixStream;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant, SystemTime};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use topstat_model::Snapshot;

use crate::draw::{Look, draw};
use crate::feed::{Cost, Feed, Peak, Recorded, Setting, TableMeta, TableSettings};
use crate::host::Looker;
use crate::state::{App, Effect, Names};
use taken::{Signals, Taken, give_back, is_ours, suspend};

/// How long a reading is held back until the other readings of the same refresh have come, so that they are drawn as one frame.
/// The effect of a key is drawn at once.
const DRAWN_WITHIN: Duration = Duration::from_millis(100);

/// The cost of the daemon is asked for at the beginning, after this time, when the daemon has measured it, and then every
/// [`COST_EVERY`]. Each query has the daemon measure its programs, at some cost.
const FIRST_COST_AFTER: Duration = Duration::from_secs(3);
const COST_EVERY: Duration = Duration::from_secs(60);

/// The time from the first look at the host to the second.
const SECOND_LOOK: Duration = Duration::from_millis(250);

/// How often a frame is drawn anew while names of hosts are asked for.
const NAMES_EVERY: Duration = Duration::from_millis(200);

/// The bytes of a frame that are written to the terminal at once. A usual frame fits, so that no half of it is shown.
const FRAME: usize = 32 << 10;

/// The options of the view.
#[derive(Clone, Debug)]
pub struct Options {
    /// The table to begin with; `None`: the first screen.
    pub table: Option<String>,
    /// The time between two readings.
    pub interval: Duration,
    /// Colours and characters.
    pub look: Look,
    /// Parses a typed time.
    pub instant: fn(&str, SystemTime) -> Result<SystemTime, String>,
    /// Hosts are shown by their names from the beginning.
    pub resolve: bool,
    /// Signals may be sent to processes.
    pub may_signal: bool,
}

/// A request of the drawing thread to the reading thread.
enum Ask {
    /// These tables, asked for at this time.
    Read(Vec<usize>, Instant),
    Recall(usize, SystemTime),
    Outline(usize),
    Settings(Vec<usize>),
    Set(usize, Setting, u32),
    Save(Arc<Snapshot>),
    Cost,
}

/// An answer of the reading thread.
enum Answer {
    Read(usize, Option<SystemTime>, Result<Box<Snapshot>, String>),
    Recalled(usize, SystemTime, Result<Recorded, String>),
    Outlined(usize, Result<Vec<Peak>, String>),
    Settings(Vec<(usize, Result<TableSettings, String>)>),
    Said(String),
    Cost(Option<Cost>),
}

/// Shows the view until a key or a signal ends it. The terminal is then as it was before.
///
/// # Errors
///
/// The errors of the terminal.
pub fn run(feed: &mut dyn Feed, options: Options, names: Box<dyn Names>) -> io::Result<()> {
    let tables = feed.tables();
    let mut app = App::new(tables.clone(), feed.origin(), options.instant);
    app.name_by(names);
    (app.resolve, app.may_signal) = (options.resolve, options.may_signal);
    if let Some(table) = &options.table {
        app.begin_with(table);
    }
    let (ask, asked) = channel();
    let (answer, answers) = channel();
    let ended = Arc::new(AtomicBool::new(false));
    let (bell, rung) = UnixStream::pair()?;
    for end in [&bell, &rung] {
        end.set_nonblocking(true)?;
    }
    let of_signals = bell.try_clone()?;
    let has_ended = Arc::clone(&ended);
    let screen = std::thread::Builder::new().name("screen".to_owned());
    let screen = screen.spawn(move || {
        let taken = Taken::take(&of_signals, has_ended)?;
        let shown = show(app, &options, &ask, &answers, &taken.signals, &rung);
        let given = give_back();
        drop(taken);
        shown.and(given)
    })?;
    // If the socket is full, the bell has already been rung.
    let ring = || drop((&bell).write(&[0]));
    let served = std::panic::catch_unwind(AssertUnwindSafe(|| {
        serve(feed, &tables, &asked, &|told| answer.send(told).map_err(|_| ()), &ring);
    }));
    // The closed channels show the drawing thread that nothing answers any more. The bell wakes it up if it waits for a key.
    drop((asked, answer));
    ring();
    let shown = screen.join();
    ended.store(true, Ordering::SeqCst);
    match (served, shown) {
        (Ok(()), Ok(shown)) => shown,
        // The panic has already been printed, on a terminal that was given back before.
        (Err(panic), _) | (_, Err(panic)) => std::panic::resume_unwind(panic),
    }
}

/// Answers requests until the drawing thread has ended. `ring` wakes that thread.
fn serve(
    feed: &mut dyn Feed,
    tables: &[TableMeta],
    asked: &Receiver<Ask>,
    send: &dyn Fn(Answer) -> Result<(), ()>,
    ring: &dyn Fn(),
) {
    let answer = |told| send(told).map(|()| ring());
    while let Ok(ask) = asked.recv() {
        let answers = match ask {
            Ask::Read(wanted, at) => {
                let last = wanted.last().copied();
                wanted.into_iter().try_for_each(|table| {
                    let reading = feed.read(&tables[table]).map(Box::new);
                    let since = feed.counting_since(&tables[table]);
                    send(Answer::Read(table, since, reading))?;
                    // The drawing thread looks by itself after this time, and finds what was sent before.
                    if Some(table) == last || at.elapsed() >= DRAWN_WITHIN {
                        ring();
                    }
                    Ok(())
                })
            }
            Ask::Recall(table, time) => {
                let found = feed.at(&tables[table], time);
                answer(Answer::Recalled(table, time, found))
            }
            Ask::Outline(table) => {
                let peaks = feed.outline(&tables[table]);
                answer(Answer::Outlined(table, peaks))
            }
            Ask::Settings(wanted) => {
                let settings = feed.settings(&wanted.iter().map(|table| &tables[*table]).collect::<Vec<_>>());
                answer(Answer::Settings(wanted.into_iter().zip(settings).collect()))
            }
            Ask::Set(table, setting, value) => {
                let path = format!("{}/{}", tables[table].path(), setting.name());
                let said = feed.set(&tables[table], setting, value);
                let said = said.map_or_else(|why| why, |()| format!("{path} is {value}"));
                answer(Answer::Said(said))
            }
            Ask::Save(snapshot) => {
                let said = feed.save(&snapshot).map_or_else(|why| why, |path| format!("saved as {path}"));
                answer(Answer::Said(said))
            }
            Ask::Cost => answer(Answer::Cost(feed.cost())),
        };
        if answers.is_err() {
            return;
        }
    }
}

/// Draws frames, and takes keys.
fn show(
    mut app: App,
    options: &Options,
    ask: &Sender<Ask>,
    answers: &Receiver<Answer>,
    signals: &Signals,
    rung: &UnixStream,
) -> io::Result<()> {
    let backend = CrosstermBackend::new(BufWriter::with_capacity(FRAME, io::stdout()));
    // The size is set when it changes, and not queried for each frame.
    let viewport = Viewport::Fixed(Rect::default());
    let mut terminal = Terminal::with_options(backend, TerminalOptions { viewport })?;
    clear(&mut terminal)?;
    let mut looker = Looker::default();
    let (mut next, mut waiting, mut read) = (Instant::now(), 0, Vec::new());
    // `at_once`: the next frame is not held back. `asked_at`: when the last readings were asked for.
    let (mut at_once, mut asked_at) = (true, Instant::now());
    let (mut cost_due, mut cost_after) = (Instant::now(), FIRST_COST_AFTER);
    loop {
        let looked_at = Instant::now();
        // The answers come first: they decide what is wanted next.
        if !take_answers(&mut app, answers, &mut waiting) {
            return Ok(());
        }
        let due = Instant::now() >= next;
        let wanted = app.wanted();
        // A table that is new on the screen is read at once: another screen may need other tables, and tables are loaded one after the
        // other.
        let mut asked = wanted.clone();
        asked.retain(|table| due || !read.contains(table));
        if waiting == 0 && (due || !asked.is_empty()) {
            if due {
                // Two looks give the first figures of the host: the second look comes soon.
                let interval = if looker.is_new() { options.interval.min(SECOND_LOOK) } else { options.interval };
                next = (next + interval).max(Instant::now());
                // The host is looked at only while it is shown. The first look after a pause covers the whole pause.
                if let Some(host) = app.is_live().then(|| looker.look()).flatten() {
                    app.host(SystemTime::now(), host);
                }
                if app.is_live() && Instant::now() >= cost_due {
                    cost_due = Instant::now() + std::mem::replace(&mut cost_after, COST_EVERY);
                    if ask.send(Ask::Cost).is_err() {
                        return Ok(());
                    }
                }
            }
            waiting = asked.len();
            asked_at = Instant::now();
            read = wanted;
            if waiting > 0 && ask.send(Ask::Read(asked, asked_at)).is_err() {
                return Ok(());
            }
        }
        if !ask_for_more(&mut app, ask) {
            return Ok(());
        }
        let complete = waiting == 0 || asked_at.elapsed() >= DRAWN_WITHIN;
        if (complete || std::mem::take(&mut at_once)) && std::mem::take(&mut app.dirty) {
            // The lock keeps other threads from giving the terminal back amid a frame. Once a panic has given it back, no frame
            // is drawn over the panic's message.
            let _whole = io::stdout().lock();
            if !is_ours() {
                return Ok(());
            }
            terminal.draw(|frame| draw(&mut app, frame, options.look))?;
        }
        if signals.stop.load(Ordering::SeqCst) {
            return Ok(());
        }
        if signals.suspend.swap(false, Ordering::SeqCst) {
            suspend()?;
            clear(&mut terminal)?;
            (app.dirty, at_once) = (true, true);
        }
        wait(
            rung,
            if waiting > 0 {
                // The next readings are not asked for before the answers to the last request have come, however long they are
                // due.
                let looks_at = asked_at + DRAWN_WITHIN;
                (looked_at < looks_at).then(|| looks_at.saturating_duration_since(Instant::now()))
            } else {
                let names = app.awaits_names().then_some(NAMES_EVERY);
                app.dirty |= names.is_some();
                let reading = (!app.is_frozen()).then(|| next.saturating_duration_since(Instant::now()));
                names.into_iter().chain(reading).min()
            },
        )?;
        // All events that have come are taken before the next frame: while a key is held down, not each step is shown.
        while event::poll(Duration::ZERO)? {
            at_once = true;
            let effect = match event::read()? {
                Event::Key(key) if key.code == KeyCode::Char('z') && key.modifiers == KeyModifiers::CONTROL => {
                    signals.suspend.store(true, Ordering::SeqCst);
                    None
                }
                Event::Key(key) if key.kind != KeyEventKind::Release => app.key(key),
                Event::Mouse(mouse) => app.mouse(mouse),
                Event::Resize(..) => {
                    clear(&mut terminal)?;
                    app.dirty = true;
                    None
                }
                _ => None,
            };
            let asked = match effect {
                None => continue,
                Some(Effect::Quit) => return Ok(()),
                Some(Effect::Set(table, setting, value)) => {
                    app.setting(table);
                    Ask::Set(table, setting, value)
                }
                Some(Effect::Save(snapshot)) => Ask::Save(snapshot),
                Some(Effect::Signal(process, signal)) => {
                    app.say(process.send(signal));
                    continue;
                }
            };
            if ask.send(asked).is_err() {
                return Ok(());
            }
        }
    }
}

/// Waits for a key, an answer or a signal, at most for this time.
fn wait(rung: &UnixStream, at_most: Option<Duration>) -> io::Result<()> {
    let at_most = at_most.map(|time| Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    });
    let stdin = rustix::stdio::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(rung, PollFlags::IN)];
    match poll(&mut fds, at_most.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    // The bell is emptied: the caller looks at everything that has rung it.
    let mut all = [0; 64];
    while { rung }.read(&mut all).is_ok_and(|read| read == all.len()) {}
    Ok(())
}

/// Clears the screen, and has the next frame drawn as a whole in the present size of the terminal. `Terminal::clear` is not used:
/// it asks the terminal for the position of its cursor, and not every terminal answers.
fn clear(terminal: &mut Terminal<CrosstermBackend<BufWriter<Stdout>>>) -> io::Result<()> {
    let size = terminal.size()?;
    terminal.resize(size.into())
}

/// Asks for records and for settings. Returns whether the reading thread still answers.
fn ask_for_more(app: &mut App, ask: &Sender<Ask>) -> bool {
    let lookup = app.lookup().map(|(table, time)| Ask::Recall(table, time));
    let outline = app.outline_wanted(Instant::now()).map(Ask::Outline);
    let settings = Some(app.settings_wanted()).filter(|tables| !tables.is_empty()).map(Ask::Settings);
    lookup.into_iter().chain(outline).chain(settings).all(|wanted| ask.send(wanted).is_ok())
}

/// Takes the answers that have come. Returns whether the reading thread still answers.
fn take_answers(app: &mut App, answers: &Receiver<Answer>, waiting: &mut usize) -> bool {
    loop {
        let answer = match answers.try_recv() {
            Ok(answer) => answer,
            Err(TryRecvError::Empty) => return true,
            Err(TryRecvError::Disconnected) => return false,
        };
        match answer {
            Answer::Read(table, since, reading) => {
                *waiting = waiting.saturating_sub(1);
                app.counting_since(table, since);
                app.read(table, reading.map(|snapshot| *snapshot));
            }
            Answer::Recalled(table, time, found) => app.recalled(table, time, found),
            Answer::Outlined(table, peaks) => app.outlined(table, peaks),
            Answer::Settings(all) => all.into_iter().for_each(|(table, settings)| app.settings(table, settings)),
            Answer::Said(said) => app.say(said),
            Answer::Cost(cost) => app.cost(cost),
        }
    }
}
