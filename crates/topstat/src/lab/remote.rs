// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end on another host, where `topstat lab serve` runs; and that server.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use topstat_model::typeset::escape;

use super::key::Key;
use super::place::Trouble;
use super::side::{Answer, Description, Request, Side};
use super::wire::{Channel, MESSAGE, OPENING};

/// The port where nothing else is said.
pub const PORT: u16 = 4719;
/// How long an answer may take: samples of many stacks are classified, and a device may take long to come up again.
const ANSWER: Duration = Duration::from_secs(60);

/// The end on another host. The connection is closed when it is dropped, and the other end puts its settings back then.
pub struct Remote {
    name: String,
    channel: Channel,
    /// Why it is no more.
    gone: Option<String>,
}

impl Remote {
    /// Connects to a server: `HOST:PORT`.
    ///
    /// # Errors
    ///
    /// When there is none, it has another key, or serves another lab.
    pub fn connect(name: &str, key: &Key) -> Result<Self, String> {
        let failed = |why: &dyn std::fmt::Display| format!("cannot reach the peer {name}: {why}");
        let mut addresses = with_port(name).to_socket_addrs().map_err(|e| failed(&e))?;
        let mut tried = addresses.next().map(|first| TcpStream::connect_timeout(&first, OPENING));
        while let (Some(Err(_)), Some(next)) = (&tried, addresses.next()) {
            tried = Some(TcpStream::connect_timeout(&next, OPENING));
        }
        let socket = tried.ok_or_else(|| failed(&"it has no address"))?.map_err(|e| failed(&e))?;
        let mut channel = Channel::open(socket, key).map_err(|why| failed(&why))?;
        let welcome: Result<(), String> = channel.receive(MESSAGE).map_err(|why| failed(&why))?;
        welcome.map_err(|why| failed(&format_args!("it refuses: {}", escape(&why))))?;
        Ok(Self { name: name.to_owned(), channel, gone: None })
    }

    /// Where it is.
    ///
    /// # Errors
    ///
    /// When it can't say, or has gone.
    pub fn describe(&mut self) -> Result<Description, String> {
        match self.ask(Request::Describe).map_err(Trouble::why)? {
            Answer::Description(about) if !about.cpus.is_empty() => Ok(about),
            _ => Err(format!("the peer {} has answered what was not asked", self.name)),
        }
    }
}

impl Remote {
    /// Whether it has gone, and why: what fails at this end may be because of that.
    pub fn gone(&mut self) -> Option<String> {
        let _ = self.ask(Request::Beat);
        self.gone.clone()
    }

    /// Sends a request, and waits for its answer.
    fn exchange(&mut self, request: &Request) -> Result<Result<Answer, Trouble>, String> {
        self.channel.send(request)?;
        self.channel.receive(ANSWER)
    }
}

impl Side for Remote {
    fn ask(&mut self, request: Request) -> Result<Answer, Trouble> {
        if let Some(why) = &self.gone {
            return Err(Trouble::Failed(why.clone()));
        }
        let answer = self.exchange(&request).map_err(|why| {
            let why = format!("the peer {} has gone: {why}", self.name);
            self.gone = Some(why.clone());
            Trouble::Failed(why)
        })?;
        let name = &self.name;
        let of_peer = |why: &str| format!("the peer {name}: {}", escape(why));
        answer.map_err(|trouble| match trouble {
            Trouble::Unavailable(why) => Trouble::Unavailable(of_peer(&why)),
            Trouble::Failed(why) => Trouble::Failed(of_peer(&why)),
        })
    }
}

/// Where no port is named, it is topstat's own.
fn with_port(name: &str) -> String {
    match name.parse::<IpAddr>() {
        Ok(address) => SocketAddr::from((address, PORT)).to_string(),
        Err(_) if name.contains(':') => name.to_owned(),
        Err(_) => format!("{name}:{PORT}"),
    }
}

/// The addresses of both ends that their flows go between: of the same kind, those of IPv4 first.
///
/// # Errors
///
/// When they have none of the same kind.
pub fn addresses(own: &Description, peer: &Description) -> Result<[IpAddr; 2], String> {
    let alike =
        |own: &IpAddr| peer.addresses.iter().find(|peer| peer.is_ipv4() == own.is_ipv4()).map(|peer| [*own, *peer]);
    own.addresses.iter().find_map(alike).ok_or_else(|| {
        let of = |about: &Description| {
            let all: Vec<String> = about.addresses.iter().map(IpAddr::to_string).collect();
            let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
            format!("{} of {} has {all}", escape(&about.device), escape(&about.host))
        };
        format!("both interfaces need an address of IPv4, or both one of IPv6: {}; {}", of(own), of(peer))
    })
}

/// How many may open a connection at the same time: more are closed at once.
const MOST_OPENING: usize = 8;

/// Takes connections, and hands on one that has shown the key; more are told that they have to wait for its end.
pub struct Server {
    /// Who has come, and what is to be told of others.
    pub events: Receiver<Event>,
    busy: Arc<AtomicBool>,
    address: SocketAddr,
}

/// What has happened.
pub enum Event {
    /// A lab begins.
    Peer(Box<Channel>, SocketAddr),
    /// Somebody was refused.
    Refused(SocketAddr, String),
    /// No connection can be taken.
    Failed(io::Error),
}

impl Server {
    /// Listens on this address.
    ///
    /// # Errors
    ///
    /// When that can't be had.
    pub fn listen(address: SocketAddr, key: Key) -> Result<Self, String> {
        let failed = |e: io::Error| format!("cannot listen on {address}: {e}");
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        // Whoever refuses much waits until that was told.
        let (events, told) = mpsc::sync_channel(MOST_OPENING);
        let busy = Arc::new(AtomicBool::new(false));
        let taking = Arc::clone(&busy);
        std::thread::spawn(move || take(&listener, &key, &taking, &events));
        Ok(Self { events: told, busy, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next may come.
    pub fn free(&self) {
        self.busy.store(false, Ordering::SeqCst);
    }
}

/// Takes connections as long as anybody hears of them.
fn take(listener: &TcpListener, key: &Key, busy: &Arc<AtomicBool>, events: &SyncSender<Event>) {
    let opening = Arc::new(AtomicUsize::new(0));
    // Who is served, for whoever is not.
    let served = Arc::new(Mutex::new(None));
    loop {
        let (socket, from) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(e) if e.kind() == io::ErrorKind::Interrupted || e.kind() == io::ErrorKind::ConnectionAborted => {
                continue;
            }
            Err(e) => {
                if events.send(Event::Failed(e)).is_err() {
                    return;
                }
                // Such as too many open files: it may pass.
                std::thread::sleep(Duration::from_secs(1));
                continue;
            }
        };
        if opening.fetch_add(1, Ordering::SeqCst) >= MOST_OPENING {
            opening.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let (key, busy, events) = (key.clone(), Arc::clone(busy), events.clone());
        let (opening, served) = (Arc::clone(&opening), Arc::clone(&served));
        std::thread::spawn(move || {
            let event = match admit(socket, from, &key, &busy, &served) {
                Ok(channel) => Event::Peer(Box::new(channel), from),
                Err(why) => Event::Refused(from, why),
            };
            // Before it counts no more: while nobody hears of it, others wait.
            let _ = events.send(event);
            opening.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// Hears whether somebody has the key, and whether nobody else is served.
fn admit(
    socket: TcpStream,
    from: SocketAddr,
    key: &Key,
    busy: &AtomicBool,
    served: &Mutex<Option<SocketAddr>>,
) -> Result<Channel, String> {
    let mut channel = Channel::accept(socket, key)?;
    let mut served = served.lock().unwrap_or_else(PoisonError::into_inner);
    let welcome = match busy.swap(true, Ordering::SeqCst) {
        false => Ok(()),
        true => {
            let other = served.map_or_else(String::new, |other| format!(" of {other}"));
            Err(format!("it serves another lab{other}: one at a time"))
        }
    };
    let told = channel.send(&welcome);
    if welcome.is_ok() && told.is_err() {
        busy.store(false, Ordering::SeqCst);
    }
    told?;
    welcome?;
    *served = Some(from);
    Ok(channel)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(addresses: &[&str]) -> Description {
        Description {
            host: "h".to_owned(),
            kernel: String::new(),
            device: "eth0".to_owned(),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            cpus: vec![0],
            nodes: Vec::new(),
        }
    }

    #[test]
    fn a_peer_without_a_port_has_the_own_one() {
        let names = ["lab2", "lab2:99", "10.0.0.2", "fd00::2", "[fd00::2]:99"].map(with_port);
        assert_eq!(names, ["lab2:4719", "lab2:99", "10.0.0.2:4719", "[fd00::2]:4719", "[fd00::2]:99"]);
    }

    #[test]
    fn both_ends_have_addresses_of_the_same_kind() {
        let (both, four, six) = (about(&["10.0.0.1", "fd00::1"]), about(&["10.0.0.2"]), about(&["fd00::2"]));
        let of = |own, peer| addresses(own, peer).map(|found| found.map(|address| address.to_string()));
        assert_eq!(of(&both, &four).unwrap(), ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(of(&both, &six).unwrap(), ["fd00::1", "fd00::2"]);
        let refused = of(&four, &six).unwrap_err();
        assert!(refused.ends_with("eth0 of h has 10.0.0.2; eth0 of h has fd00::2"), "{refused}");
        assert!(of(&about(&[]), &six).unwrap_err().contains("eth0 of h has none"));
    }
}
