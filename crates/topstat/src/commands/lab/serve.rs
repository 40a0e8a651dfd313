// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat lab serve`: the other host of an experiment.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use topstat_lab::key::Key;
use topstat_lab::place::{Place, Trouble};
use topstat_lab::remote::{Event, Server};
use topstat_lab::saved::Claim;
use topstat_lab::side::{Answer, Local, Request, Side as _};
use topstat_lab::wire::{Channel, MESSAGE};

use super::{caught, put_back, sample};
use crate::args::lab::ServeArgs;
use crate::backend::Backend;
use crate::console::{Console, Wake};
use crate::error::{Error, Exit};

/// How often the server looks for connections.
const LOOK: Duration = Duration::from_millis(100);
/// The longest silence of the other host. It sends a message every second, except while it configures its own interface.
const SILENCE: Duration = Duration::from_secs(30);

pub fn run(args: &ServeArgs, backend: &mut dyn Backend, console: &mut dyn Console) -> Result<Exit, Error> {
    let key = Key::read(&args.key).map_err(Error::Lab)?;
    let place = || Place::here(&args.interface).map_err(Error::Lab);
    Local::new(place()?, None, None).describe().map_err(Error::Lab)?;
    let claim = Claim::take().map_err(Error::Lab)?;
    put_back(&claim, console)?;
    caught(console)?;
    let server = Server::listen(args.listen, key).map_err(Error::Lab)?;
    console.note(&format!("topstat: serves {} at {}", args.interface, server.address()));
    loop {
        match console.wait_until(Instant::now() + LOOK) {
            Ok(Wake::Stop | Wake::Closed) => return Ok(Exit::Done),
            Ok(_) => {}
            Err(source) => return Err(Error::System { what: "wait", source }),
        }
        let Some((channel, from)) = next(&server, console)? else { continue };
        console.note(&format!("topstat: {from} begins"));
        let mut open = |hz| sample(backend, hz);
        let mut local = Local::new(place()?, Some(&claim), Some(&mut open));
        let ended = serve(channel, from, &mut local, &server, console);
        // Restores the settings that the other host has not asked to restore.
        let restored = local.restore().map_err(Error::Lab)?.map_or_else(String::new, |what| format!("; {what}"));
        match ended {
            Ended::Peer(why) => console.note(&format!("topstat: {from} has ended: {why}{restored}")),
            Ended::Stopped => {
                console.note(&format!("topstat: stopped{restored}"));
                return Ok(Exit::Done);
            }
        }
        server.free();
    }
}

/// The next peer that was let in, if any. Prints refusals: at most `MOST` in one call, since refusals may come faster than they
/// are printed.
fn next(server: &Server, console: &mut dyn Console) -> Result<Option<(Channel, SocketAddr)>, Error> {
    const MOST: usize = 20;
    for _ in 0..MOST {
        match server.next().map_err(Error::Lab)? {
            Some(Event::Peer(channel, from)) => return Ok(Some((*channel, from))),
            Some(Event::Refused(from, why)) => console.note(&format!("topstat: refused {from}: {why}")),
            Some(Event::Others(count)) => console.note(&format!("topstat: refused {count} others")),
            Some(Event::Failed(e)) => console.note(&format!("topstat: cannot take a connection: {e}")),
            None => break,
        }
    }
    Ok(None)
}

/// Why an experiment has ended.
enum Ended {
    /// The other host has ended it.
    Peer(String),
    /// The user of this host has stopped it.
    Stopped,
}

/// Carries out the requests of the other host, until it ends.
fn serve(
    mut channel: Channel,
    from: SocketAddr,
    local: &mut Local,
    server: &Server,
    console: &mut dyn Console,
) -> Ended {
    let mut heard = Instant::now();
    loop {
        // Prints the refusals since the last look. No host is let in while another one is served.
        if let Err(e) = next(server, console) {
            return Ended::Peer(e.to_string());
        }
        let deadline = heard + SILENCE;
        match console.wait_for(Some(channel.socket.as_fd()), deadline.min(Instant::now() + LOOK)) {
            Ok(Wake::Ready) => {}
            Ok(Wake::Stop | Wake::Closed) => return Ended::Stopped,
            Ok(Wake::Deadline) if Instant::now() >= deadline => {
                return Ended::Peer(format!("it has said nothing for {} s", SILENCE.as_secs()));
            }
            Ok(_) => continue,
            Err(e) => return Ended::Peer(format!("cannot wait: {e}")),
        }
        let request: Request = match channel.receive(MESSAGE) {
            Ok(request) => request,
            Err(why) => return Ended::Peer(why),
        };
        let is_end = matches!(request, Request::Stop(_));
        let answer = request.check().map_err(Trouble::Failed).and_then(|()| local.ask(request));
        if is_end {
            let sum = local.sum();
            console.note(&format!("topstat: {from}: {} bytes sent, {} bytes read", sum.sent, sum.received));
        }
        if let Ok(Answer::Restored(Some(what))) = &answer {
            console.note(&format!("topstat: {from}: {what}"));
        }
        if let Err(why) = channel.send(&answer) {
            return Ended::Peer(why);
        }
        heard = Instant::now();
    }
}
