// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end on another host, where `topstat lab serve` runs; and that server.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use topstat_model::typeset::escape;

use super::place::Trouble;
use super::side::{Answer, Description, Request, Side};
use super::wire::{Channel, MESSAGE, OPENING};
use crate::key::Key;

/// The default port.
pub const PORT: u16 = 4719;
/// The longest time for an answer: samples of many stacks are classified, and a device may take long to come up again.
const ANSWER: Duration = Duration::from_secs(60);

/// The end on another host. When it is dropped, the connection is closed, and the other end restores its settings.
pub struct Remote {
    name: String,
    channel: Channel,
    /// Why the other end is gone.
    gone: Option<String>,
}

impl Remote {
    /// Connects to a server: `HOST:PORT`.
    ///
    /// # Errors
    ///
    /// When there is no server, or the server has another key, or it serves another lab.
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

    /// The description of the other end.
    ///
    /// # Errors
    ///
    /// When the other end can't describe itself, or is gone.
    pub fn describe(&mut self) -> Result<Description, String> {
        match self.ask(Request::Describe).map_err(Trouble::why)? {
            Answer::Description(about) if !about.cpus.is_empty() => Ok(about),
            _ => Err(format!("the peer {} has answered what was not asked", self.name)),
        }
    }
}

impl Remote {
    /// Why the other end is gone, if it is: a failure at this end may have that cause.
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

/// Adds the default port to a name without a port.
fn with_port(name: &str) -> String {
    match name.parse::<IpAddr>() {
        Ok(address) => SocketAddr::from((address, PORT)).to_string(),
        Err(_) if name.contains(':') => name.to_owned(),
        Err(_) => format!("{name}:{PORT}"),
    }
}

/// The addresses of both ends for their flows: of one kind, IPv4 preferred.
///
/// # Errors
///
/// When both ends have no addresses of one kind.
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

/// The most connected peers without a proof of the key: enough for the mistakes of a few hosts. A further peer takes the place of
/// one of them: see [`Openings`].
const MOST_OPENING: usize = 64;
/// The most threads for handshakes: one for each such peer, and as many that are about to end.
const MOST_THREADS: usize = 2 * MOST_OPENING;
/// The stack of a handshake's thread: the messages of a handshake have a few hundred bytes.
const STACK_BYTES: usize = 256 << 10;
/// The most refusals that wait to be printed. Further refusals are counted.
const MOST_UNTOLD: usize = 16;

/// Takes connections, and hands on a peer that has proved the key. Further peers are refused until the first has ended.
///
/// - **LR1** A peer without the key takes no place from a peer with the key: at most [`MOST_OPENING`] peers are in the handshake,
///   each for at most [`OPENING`](super::wire::OPENING). A new peer is always accepted, and one of the others is dropped. A peer
///   whose key is proved leaves the handshake, and is not dropped any more.
/// - **LR2** The peer that is let in has a separate place to wait, which refusals can't fill.
/// - **LR3** No thread waits until a refusal is printed. Refusals that are not printed are counted.
pub struct Server {
    /// The peer that is let in.
    peers: Receiver<(Channel, SocketAddr)>,
    /// Refusals and failures, to be printed.
    told: Receiver<Event>,
    /// The number of refusals that found no room there.
    untold: Arc<AtomicU64>,
    busy: Arc<AtomicBool>,
    address: SocketAddr,
}

/// An event of the server.
pub enum Event {
    /// A peer was let in: a lab begins.
    Peer(Box<Channel>, SocketAddr),
    /// A peer was refused, for this reason.
    Refused(SocketAddr, String),
    /// The number of further refusals.
    Others(u64),
    /// No connection can be taken.
    Failed(io::Error),
}

impl Server {
    /// Listens on this address.
    ///
    /// # Errors
    ///
    /// When the address can't be used.
    pub fn listen(address: SocketAddr, key: Key) -> Result<Self, String> {
        let failed = |e: io::Error| format!("cannot listen on {address}: {e}");
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let ((let_in, peers), (tell, told)) = (mpsc::sync_channel(1), mpsc::sync_channel(MOST_UNTOLD));
        let (untold, busy) = <(Arc<AtomicU64>, Arc<AtomicBool>)>::default();
        let door = Door {
            key,
            let_in,
            tell,
            untold: Arc::clone(&untold),
            busy: Arc::clone(&busy),
            served: Mutex::default(),
            openings: Mutex::default(),
            threads: AtomicUsize::new(0),
        };
        std::thread::Builder::new().spawn(move || take(&listener, &Arc::new(door))).map_err(failed)?;
        Ok(Self { peers, told, untold, busy, address })
    }

    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Allows the next peer to be let in.
    pub fn free(&self) {
        self.busy.store(false, Ordering::SeqCst);
    }

    /// The next event, if there is one. A peer that was let in comes before refusals.
    ///
    /// # Errors
    ///
    /// When no thread takes connections any more.
    pub fn next(&self) -> Result<Option<Event>, String> {
        if let Ok((channel, from)) = self.peers.try_recv() {
            return Ok(Some(Event::Peer(Box::new(channel), from)));
        }
        match self.told.try_recv() {
            Ok(event) => Ok(Some(event)),
            Err(TryRecvError::Empty) => match self.untold.swap(0, Ordering::SeqCst) {
                0 => Ok(None),
                others => Ok(Some(Event::Others(others))),
            },
            Err(TryRecvError::Disconnected) => Err("nothing takes connections any more".to_owned()),
        }
    }
}

/// The state that all handshakes share.
struct Door {
    key: Key,
    let_in: SyncSender<(Channel, SocketAddr)>,
    tell: SyncSender<Event>,
    untold: Arc<AtomicU64>,
    busy: Arc<AtomicBool>,
    /// The address of the peer that is served, for the message of a refusal.
    served: Mutex<Option<SocketAddr>>,
    openings: Mutex<Openings>,
    threads: AtomicUsize,
}

/// Peers in the handshake, the oldest first.
#[derive(Default)]
struct Openings {
    last: u64,
    all: VecDeque<Opening>,
}

/// The connection of a peer in the handshake.
struct Opening {
    number: u64,
    from: IpAddr,
    socket: TcpStream,
}

impl Openings {
    /// Adds a peer. If there were [`MOST_OPENING`], drops the oldest peer of the address with the most peers: a host with many
    /// connections drops only connections of that host.
    fn add(&mut self, from: IpAddr, socket: TcpStream) -> u64 {
        if self.all.len() >= MOST_OPENING {
            let mut of_address: HashMap<IpAddr, usize> = HashMap::new();
            self.all.iter().for_each(|opening| *of_address.entry(opening.from).or_default() += 1);
            let most = of_address.values().max().copied().unwrap_or(0);
            let goes = self.all.iter().position(|opening| of_address[&opening.from] == most);
            if let Some(gone) = goes.and_then(|at| self.all.remove(at)) {
                // The thread's read or write ends then. An error means that the peer has closed the connection.
                let _ = gone.socket.shutdown(Shutdown::Both);
            }
        }
        self.last += 1;
        self.all.push_back(Opening { number: self.last, from, socket });
        self.last
    }

    /// Removes a peer whose handshake has ended. False: the peer was dropped before.
    fn remove(&mut self, number: u64) -> bool {
        let at = self.all.iter().position(|opening| opening.number == number);
        at.and_then(|at| self.all.remove(at)).is_some()
    }
}

/// Takes connections, until the program ends.
fn take(listener: &TcpListener, door: &Arc<Door>) {
    /// The pause after a failure that may pass, such as too many open files.
    const PAUSE: Duration = Duration::from_secs(1);
    loop {
        let taken = match listener.accept() {
            Ok((socket, from)) => door.begin(socket, from),
            Err(e) if e.kind() == io::ErrorKind::Interrupted || e.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
            Err(e) => Err(e),
        };
        if let Err(e) = taken {
            // If the queue is full, it already has an earlier message of a failure.
            let _ = door.tell.try_send(Event::Failed(e));
            std::thread::sleep(PAUSE);
        }
    }
}

impl Door {
    /// Starts a thread for a handshake.
    fn begin(self: &Arc<Self>, socket: TcpStream, from: SocketAddr) -> io::Result<()> {
        // Threads of dropped peers end within milliseconds.
        while self.threads.load(Ordering::SeqCst) >= MOST_THREADS {
            std::thread::sleep(Duration::from_millis(1));
        }
        let number = locked(&self.openings).add(from.ip(), socket.try_clone()?);
        self.threads.fetch_add(1, Ordering::SeqCst);
        let door = Arc::clone(self);
        let spawned = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            door.shake_hands(socket, from, number);
            door.threads.fetch_sub(1, Ordering::SeqCst);
        });
        spawned.map(drop).inspect_err(|_| {
            locked(&self.openings).remove(number);
            self.threads.fetch_sub(1, Ordering::SeqCst);
        })
    }

    fn shake_hands(&self, socket: TcpStream, from: SocketAddr, number: u64) {
        let opened = Channel::accept(socket, &self.key);
        // LR1
        let stayed = locked(&self.openings).remove(number);
        let admitted = match stayed {
            true => opened.and_then(|channel| self.admit(channel, from)),
            false => Err(format!("more than {MOST_OPENING} were opening connections: it made way for another")),
        };
        let refused = match admitted {
            // LR2: the place is empty, since `busy` lets a peer in only after the previous lab has ended.
            Ok(channel) => return drop(self.let_in.try_send((channel, from))),
            Err(why) => why,
        };
        if self.tell.try_send(Event::Refused(from, refused)).is_err() {
            self.untold.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Lets a peer in that has proved the key, unless another peer is served.
    fn admit(&self, mut channel: Channel, from: SocketAddr) -> Result<Channel, String> {
        let mut served = locked(&self.served);
        let welcome = match self.busy.swap(true, Ordering::SeqCst) {
            false => Ok(()),
            true => {
                let other = served.map_or_else(String::new, |other| format!(" of {other}"));
                Err(format!("it serves another lab{other}: one at a time"))
            }
        };
        let told = channel.send(&welcome);
        if welcome.is_ok() && told.is_err() {
            self.busy.store(false, Ordering::SeqCst);
        }
        told?;
        welcome?;
        *served = Some(from);
        Ok(channel)
    }
}

/// Takes the lock, even if a thread has panicked while it held the lock: every change under it leaves nothing half done.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

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

    fn key() -> Key {
        let path = std::env::temp_dir().join(format!("topstat-remote-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Key::create(&path).unwrap();
        let key = Key::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        key
    }

    /// Connects with the key, waits until the server has let it in, and ends the lab.
    fn visit(server: &Server, key: &Key) -> Result<Duration, String> {
        let begun = Instant::now();
        let remote = Remote::connect(&server.address().to_string(), key)?;
        let took = begun.elapsed();
        // The server's thread hands the peer on after the welcome.
        let let_in = |event| matches!(event, Event::Peer(..));
        while !std::iter::from_fn(|| server.next().unwrap()).any(let_in) {
            assert!(begun.elapsed() < 2 * OPENING, "no peer was let in");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(remote);
        server.free();
        Ok(took)
    }

    /// LR1 … LR3
    #[test]
    fn who_has_the_key_gets_in_however_many_have_none() {
        use std::io::Write as _;
        const PEERS: usize = 3 * MOST_OPENING;
        let key = key();
        let server = Server::listen("127.0.0.1:0".parse().unwrap(), key.clone()).unwrap();
        let connect = || TcpStream::connect(server.address()).unwrap();
        let _idle: Vec<_> = (0..PEERS).map(|_| connect()).collect();
        (0..3).for_each(|_| assert!(visit(&server, &key).unwrap() < OPENING));
        // Peers that send one byte of a message now and then.
        let mut slow: Vec<_> = (0..PEERS).map(|_| connect()).collect();
        for _ in 0..3 {
            slow.iter_mut().for_each(|peer| drop(peer.write(&[0])));
            assert!(visit(&server, &key).unwrap() < OPENING);
        }
        let end = Arc::new(AtomicBool::new(false));
        let (address, ended) = (server.address(), Arc::clone(&end));
        let garbage = std::thread::spawn(move || {
            while !ended.load(Ordering::SeqCst) {
                let _ = TcpStream::connect(address).and_then(|mut peer| peer.write_all(b"GET / HTTP/1.1\r\n\r\n"));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        (0..6).for_each(|_| assert!(visit(&server, &key).unwrap() < OPENING));
        end.store(true, Ordering::SeqCst);
        garbage.join().unwrap();
    }

    /// LR3: refusals fill their queue, and a peer with the key gets in.
    #[test]
    fn refusals_that_are_not_told_are_counted() {
        const PEERS: u64 = 3 * MOST_UNTOLD as u64;
        let key = key();
        let server = Server::listen("127.0.0.1:0".parse().unwrap(), key.clone()).unwrap();
        (0..PEERS).for_each(|_| drop(TcpStream::connect(server.address()).unwrap()));
        let remote = Remote::connect(&server.address().to_string(), &key).unwrap();
        let (begun, mut refused, mut let_in) = (Instant::now(), 0, 0);
        // On a busy host the peer with the key may be let in after the last one without it is refused.
        while (refused < PEERS || let_in == 0) && begun.elapsed() < 2 * OPENING {
            match server.next().unwrap() {
                Some(Event::Peer(..)) => let_in += 1,
                Some(Event::Refused(..)) => refused += 1,
                Some(Event::Others(count)) => refused += count,
                Some(Event::Failed(e)) => panic!("{e}"),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        drop(remote);
        assert_eq!((refused, let_in), (PEERS, 1));
    }

    #[test]
    fn the_address_with_the_most_connections_makes_way() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            listener.accept().unwrap();
            socket
        };
        let (one, many): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let mut openings = Openings::default();
        let first = openings.add(one, connect());
        let second = openings.add(many, connect());
        for _ in 0..MOST_OPENING {
            openings.add(many, connect());
        }
        assert_eq!(openings.all.len(), MOST_OPENING);
        assert_eq!((openings.remove(second), openings.remove(first), openings.remove(first)), (false, true, false));
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
