// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The actions of rules: on a thread each, one after the other, with a limit of time.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ureq::Agent;

use crate::Error;

/// Actions that wait; further ones are dropped, and that is logged.
const WAITING: usize = 16;
/// How long a command may run.
const COMMAND: Duration = Duration::from_secs(60);
/// How long a request may take.
const REQUEST: Duration = Duration::from_secs(10);
/// How often a request is sent again after a failure, and the time before it, which doubles.
const TRIES: u32 = 4;
const AGAIN: Duration = Duration::from_secs(1);
/// How often a wait looks for an end.
const LOOK: Duration = Duration::from_millis(50);

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Runs this by `sh`, with the document on the standard input. Nothing of the document is in the command.
    Exec(String),
    /// Sends the document to this address.
    Webhook(String),
}

/// A thread that takes actions.
pub struct Actions {
    sender: SyncSender<(String, Vec<u8>)>,
    thread: JoinHandle<()>,
    name: String,
}

impl Actions {
    /// Begins a thread for one action.
    ///
    /// # Errors
    ///
    /// The address of a web hook is wrong.
    pub fn new(action: Action, stop: Arc<AtomicBool>) -> Result<Self, Error> {
        if let Action::Webhook(url) = &action {
            let uri: Option<ureq::http::Uri> = url.parse().ok();
            let known = |uri: &ureq::http::Uri| {
                matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
            };
            if !uri.as_ref().is_some_and(known) {
                return Err(Error::Wrong(format!("--webhook {url}: not an address such as https://host/path")));
            }
        }
        let (sender, receiver) = sync_channel::<(String, Vec<u8>)>(WAITING);
        let name = match &action {
            Action::Exec(command) => command.clone(),
            Action::Webhook(url) => url.clone(),
        };
        let thread = std::thread::spawn(move || {
            let config = Agent::config_builder().timeout_global(Some(REQUEST)).max_redirects(0).build();
            let agent = Agent::new_with_config(config);
            for (rule, document) in receiver {
                let done = match &action {
                    Action::Exec(command) => exec(command, document, &stop),
                    Action::Webhook(url) => call(&agent, url, &document, &stop),
                };
                if let Err(why) = done {
                    log::error!("{rule}: {why}");
                }
            }
        });
        Ok(Self { sender, thread, name })
    }

    /// Takes an action, or drops it if too many wait.
    pub fn take(&self, rule: &str, document: Vec<u8>) {
        match self.sender.try_send((rule.to_owned(), document)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => log::error!("{rule}: {} is too slow: an action is dropped", self.name),
            Err(TrySendError::Disconnected(_)) => log::error!("{rule}: {} can't be done any more", self.name),
        }
    }

    /// Waits for the actions that were taken; they end early, since the program was asked to end.
    pub fn end(self) {
        drop(self.sender);
        let _ = self.thread.join();
    }
}

/// Runs a command. It is killed after a minute, or when the program is to end.
fn exec(command: &str, document: Vec<u8>, stop: &AtomicBool) -> Result<(), String> {
    let spawned = Command::new("sh").args(["-c", command]).stdin(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| format!("cannot run sh: {error}"))?;
    let stdin = child.stdin.take();
    // A command that does not read its input must not keep this thread.
    let writing = std::thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(&document)));
    let ended = wait(&mut child, stop);
    if ended.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    // The pipe has no reader any more, unless the command has left one behind: then its writer is left, too.
    if writing.is_finished() {
        let _ = writing.join();
    }
    ended.map_err(|why| format!("{command}: {why}"))
}

fn wait(child: &mut Child, stop: &AtomicBool) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(status.to_string()),
            Ok(None) if begun.elapsed() > COMMAND => {
                return Err(format!("killed, since it ran for {} s", COMMAND.as_secs()));
            }
            Ok(None) if stop.load(Ordering::SeqCst) && begun.elapsed() > LOOK * 20 => {
                return Err("killed, since topstat was asked to end".to_owned());
            }
            Ok(None) => std::thread::sleep(LOOK),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Sends a document, and again after a failure of the network or of the server.
fn call(agent: &Agent, url: &str, document: &[u8], stop: &AtomicBool) -> Result<(), String> {
    let mut pause = AGAIN;
    for attempt in 1..=TRIES {
        let sent = agent.post(url).content_type("application/json").send(document);
        let why = match sent {
            Ok(_) => return Ok(()),
            Err(ureq::Error::StatusCode(status)) if status < 500 && status != 429 => {
                return Err(format!("{url} answers with {status}"));
            }
            Err(error) => error.to_string(),
        };
        if attempt == TRIES {
            return Err(format!("{url}: {why}, {TRIES} times"));
        }
        log::warn!("{url}: {why}; again in {} s", pause.as_secs());
        let until = Instant::now() + pause;
        while Instant::now() < until && !stop.load(Ordering::SeqCst) {
            std::thread::sleep(LOOK);
        }
        if stop.load(Ordering::SeqCst) {
            return Err(format!("{url}: {why}; not sent, since topstat was asked to end"));
        }
        pause *= 2;
    }
    Ok(())
}
