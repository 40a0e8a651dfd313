// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control connection of two hosts. Each host proves to the other that it has the key, by a random challenge. After that,
//! each message is authenticated with its number and with a key of this connection and direction. So no message can be made up,
//! changed, left out or repeated. The contents are not secret.
//!
//! A message is its length in bytes (32 bits, big-endian), JSON, and 32 bytes of HMAC-SHA256. Messages before the proof have no
//! HMAC.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit as _, Mac as _};
use rustix::net::sockopt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use topstat_model::typeset::escape;

use crate::key::{Key, from_hex, random, to_hex};

/// The number of the messages' form.
pub const FORM: u32 = 1;
/// The longest message: traffic of the most flows fits into it, with room.
const MOST_BYTES: usize = 1 << 20;
/// The longest message of a peer that has not proved the key.
const MOST_BYTES_BEFORE: usize = 4096;
/// The most characters that are shown of a text of a peer that has not proved the key.
const MOST_TOLD: usize = 300;
/// The longest time for the whole opening.
pub const OPENING: Duration = Duration::from_secs(5);
/// The longest time of a message once it has begun, and the time until the loss of a host is noticed. A device that is set may
/// lose its link for seconds, and packets may be lost on purpose.
pub const MESSAGE: Duration = Duration::from_secs(15);

/// The messages before both hosts know that the other has the key.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Opening {
    /// The form and the challenge of a host. Of later forms only the form is understood.
    Hello {
        #[serde(rename = "topstat-lab")]
        form: u32,
        #[serde(default)]
        version: String,
        #[serde(default)]
        nonce: String,
    },
    /// The proof that the host has the key.
    Proof(String),
    /// Why the opening has failed.
    Refused(String),
}

/// The challenges of both hosts.
struct Challenges {
    client: [u8; 32],
    server: [u8; 32],
}

impl Challenges {
    /// The hash of both challenges and a word, which separates hashes of different purposes.
    fn hash(&self, key: &Key, word: &str) -> Hmac<Sha256> {
        let mut hash = keyed(key.as_ref());
        hash.update(word.as_bytes());
        hash.update(&[0]);
        hash.update(&FORM.to_be_bytes());
        hash.update(&self.client);
        hash.update(&self.server);
        hash
    }

    fn proof(&self, key: &Key, word: &str) -> Opening {
        Opening::Proof(to_hex(&self.hash(key, word).finalize().into_bytes()))
    }

    /// Whether this is the proof for this word. The time of the comparison does not depend on the place of a difference.
    fn is_proven(&self, key: &Key, word: &str, proof: &str) -> bool {
        from_hex(proof).is_some_and(|proof| self.hash(key, word).verify_slice(&proof).is_ok())
    }
}

const CLIENT: &str = "client";
const SERVER: &str = "server";
const TO_CLIENT: &str = "to client";
const TO_SERVER: &str = "to server";

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    // HMAC takes keys of any length.
    Hmac::new_from_slice(key).expect("a key")
}

/// A connection to a peer that has the key.
pub struct Channel {
    /// The connection.
    pub socket: TcpStream,
    out: Numbered,
    arriving: Numbered,
}

/// Messages of one direction.
struct Numbered {
    key: Hmac<Sha256>,
    next: u64,
}

impl Numbered {
    fn new(key: &Hmac<Sha256>) -> Self {
        Self { key: keyed(&key.clone().finalize().into_bytes()), next: 0 }
    }

    /// The hash of the next message.
    fn next(&mut self, text: &[u8]) -> Hmac<Sha256> {
        let mut hash = self.key.clone();
        hash.update(&self.next.to_be_bytes());
        hash.update(text);
        self.next += 1;
        hash
    }
}

impl Channel {
    fn new(socket: TcpStream, [out, arriving]: [Hmac<Sha256>; 2]) -> Result<Self, String> {
        watch(&socket).map_err(|e| format!("cannot set the control connection: {e}"))?;
        Ok(Self { socket, out: Numbered::new(&out), arriving: Numbered::new(&arriving) })
    }

    /// Opens a channel as the host that has connected.
    ///
    /// # Errors
    ///
    /// When the peer is no server of this form, has another key, or does not answer in time.
    pub fn open(mut socket: TcpStream, key: &Key) -> Result<Self, String> {
        let (until, client) = (Instant::now() + OPENING, random()?);
        put(&mut socket, &hello(&client), until)?;
        let server = match opening(&mut socket, until)? {
            Opening::Hello { form, version, nonce } => challenge(form, &version, &nonce)?,
            other => return Err(unexpected(other)),
        };
        let both = Challenges { client, server };
        put(&mut socket, &both.proof(key, CLIENT), until)?;
        match opening(&mut socket, until)? {
            Opening::Proof(proof) if both.is_proven(key, SERVER, &proof) => {}
            Opening::Proof(_) => return Err(OTHER_KEY.to_owned()),
            other => return Err(unexpected(other)),
        }
        Self::new(socket, [both.hash(key, TO_SERVER), both.hash(key, TO_CLIENT)])
    }

    /// Opens a channel as the host that was connected to. A refused peer is sent the reason.
    ///
    /// # Errors
    ///
    /// See [`Self::open`].
    pub fn accept(mut socket: TcpStream, key: &Key) -> Result<Self, String> {
        let until = Instant::now() + OPENING;
        let accepted = Self::try_accept(&mut socket, key, until);
        match accepted {
            Ok(both) => Self::new(socket, [both.hash(key, TO_CLIENT), both.hash(key, TO_SERVER)]),
            Err(why) => {
                let _ = put(&mut socket, &Opening::Refused(why.clone()), until);
                Err(why)
            }
        }
    }

    fn try_accept(socket: &mut TcpStream, key: &Key, until: Instant) -> Result<Challenges, String> {
        let client = match opening(socket, until)? {
            Opening::Hello { form, version, nonce } => challenge(form, &version, &nonce)?,
            other => return Err(unexpected(other)),
        };
        let both = Challenges { client, server: random()? };
        put(socket, &hello(&both.server), until)?;
        match opening(socket, until)? {
            Opening::Proof(proof) if both.is_proven(key, CLIENT, &proof) => {}
            Opening::Proof(_) => return Err(OTHER_KEY.to_owned()),
            other => return Err(unexpected(other)),
        }
        put(socket, &both.proof(key, SERVER), until)?;
        Ok(both)
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// When the peer does not take the message in time.
    pub fn send(&mut self, message: &impl Serialize) -> Result<(), String> {
        let text = serde_json::to_vec(message).map_err(|e| format!("cannot write a message: {e}"))?;
        let hash = self.out.next(&text).finalize().into_bytes();
        write(&mut self.socket, &[&framed(&text, MOST_BYTES)?, &hash[..]].concat(), Instant::now() + MESSAGE)
    }

    /// Receives the next message, which may begin within this time.
    ///
    /// # Errors
    ///
    /// When no message comes, or the message is not of the peer with the key.
    pub fn receive<T: DeserializeOwned>(&mut self, patience: Duration) -> Result<T, String> {
        let text = read_frame(&mut self.socket, MOST_BYTES, Instant::now() + patience, MESSAGE)?;
        let mut hash = [0; 32];
        read(&mut self.socket, &mut hash, Instant::now() + MESSAGE)?;
        let forged = |_| "a message was not of the peer: it was changed, or somebody else speaks".to_owned();
        self.arriving.next(&text).verify_slice(&hash).map_err(forged)?;
        serde_json::from_slice(&text).map_err(|e| format!("a message of the peer can't be read: {e}"))
    }
}

/// The error for both hosts: neither can tell which of them has the right key.
const OTHER_KEY: &str = "it has another key: both hosts need the same, copy the file from one to the other";

fn hello(nonce: &[u8; 32]) -> Opening {
    Opening::Hello { form: FORM, version: env!("CARGO_PKG_VERSION").to_owned(), nonce: to_hex(nonce) }
}

/// The challenge in a hello.
fn challenge(form: u32, version: &str, nonce: &str) -> Result<[u8; 32], String> {
    if form != FORM {
        let (own, version) = (env!("CARGO_PKG_VERSION"), told(version));
        return Err(format!(
            "one topstat is {version} and speaks form {form} of the lab's messages, the other is {own} and speaks form \
             {FORM}: install the same version on both hosts"
        ));
    }
    from_hex(nonce).ok_or_else(|| NO_LAB.to_owned())
}

const NO_LAB: &str = "what it says is not of 'topstat lab'";

fn unexpected(opening: Opening) -> String {
    match opening {
        Opening::Refused(why) => format!("it refuses: {}", told(&why)),
        _ => NO_LAB.to_owned(),
    }
}

/// A text of an unproved peer, cut and escaped.
fn told(text: &str) -> String {
    let text: String = text.chars().take(MOST_TOLD).collect();
    escape(&text).into_owned()
}

fn opening(socket: &mut TcpStream, until: Instant) -> Result<Opening, String> {
    let text = read_frame(socket, MOST_BYTES_BEFORE, until, Duration::ZERO)?;
    serde_json::from_slice(&text).map_err(|_| NO_LAB.to_owned())
}

fn put(socket: &mut TcpStream, opening: &Opening, until: Instant) -> Result<(), String> {
    let text = serde_json::to_vec(opening).map_err(|e| format!("cannot write a message: {e}"))?;
    write(socket, &framed(&text, MOST_BYTES_BEFORE)?, until)
}

fn framed(text: &[u8], most: usize) -> Result<Vec<u8>, String> {
    let length = u32::try_from(text.len()).ok().filter(|_| text.len() <= most);
    let length = length.ok_or_else(|| format!("a message has {} bytes, of at most {most}", text.len()))?;
    Ok([&length.to_be_bytes()[..], text].concat())
}

/// Reads a message, which has to begin before `until` and to be whole within `later` after that.
fn read_frame(socket: &mut TcpStream, most: usize, until: Instant, later: Duration) -> Result<Vec<u8>, String> {
    let mut length = [0; 4];
    read(socket, &mut length, until)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > most {
        return Err(format!("{NO_LAB}: a message of {length} bytes, of at most {most}"));
    }
    let mut text = vec![0; length];
    read(socket, &mut text, until + later)?;
    Ok(text)
}

/// The error text of a connection that is closed, or does not go on.
fn lost(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "it says nothing any more".to_owned(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            "it has closed the connection".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Fills the buffer before `until`: a peer that sends a byte now and then has no more time.
fn read(socket: &mut TcpStream, buffer: &mut [u8], until: Instant) -> Result<(), String> {
    let mut done = 0;
    while done < buffer.len() {
        let read = left(until).and_then(|left| socket.set_read_timeout(Some(left))).and_then(|()| {
            match socket.read(&mut buffer[done..])? {
                0 => Err(ErrorKind::UnexpectedEof.into()),
                bytes => Ok(bytes),
            }
        });
        match read {
            Ok(bytes) => done += bytes,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(lost(&e)),
        }
    }
    Ok(())
}

fn write(socket: &mut TcpStream, buffer: &[u8], until: Instant) -> Result<(), String> {
    let mut done = 0;
    while done < buffer.len() {
        let written = left(until).and_then(|left| socket.set_write_timeout(Some(left)));
        match written.and_then(|()| socket.write(&buffer[done..])) {
            Ok(bytes) => done += bytes,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(lost(&e)),
        }
    }
    Ok(())
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Has the kernel notice the loss of a host, even while no message is sent.
fn watch(socket: &TcpStream) -> io::Result<()> {
    const SECOND: Duration = Duration::from_secs(1);
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, SECOND)?;
    sockopt::set_tcp_keepintvl(socket, SECOND)?;
    sockopt::set_tcp_keepcnt(socket, u32::try_from(MESSAGE.as_secs()).unwrap_or(u32::MAX))?;
    let milliseconds = u32::try_from(MESSAGE.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(socket, milliseconds)?)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::path::PathBuf;
    use std::thread::JoinHandle;

    use super::*;

    fn key(name: &str) -> Key {
        let path: PathBuf = std::env::temp_dir().join(format!("topstat-wire-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Key::create(&path).unwrap();
        let key = Key::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        key
    }

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    type Opened = Result<Channel, String>;

    fn accepting(server: TcpStream, key: &Key) -> JoinHandle<Opened> {
        let key = key.clone();
        std::thread::spawn(move || Channel::accept(server, &key))
    }

    fn why(opened: Opened) -> String {
        opened.map(drop).unwrap_err()
    }

    #[test]
    fn who_has_the_key_is_understood_in_order() {
        let key = key("same");
        let (client, server) = connected();
        let server = accepting(server, &key);
        let mut client = Channel::open(client, &key).unwrap();
        let mut server = server.join().unwrap().unwrap();
        for number in 0..3_u32 {
            client.send(&("to", number)).unwrap();
            server.send(&("back", number)).unwrap();
        }
        for number in 0..3 {
            assert_eq!(server.receive::<(String, u32)>(MESSAGE).unwrap(), ("to".to_owned(), number));
            assert_eq!(client.receive::<(String, u32)>(MESSAGE).unwrap(), ("back".to_owned(), number));
        }
        drop(client);
        assert_eq!(server.receive::<u32>(MESSAGE).unwrap_err(), "it has closed the connection");
    }

    #[test]
    fn who_has_another_key_is_refused_on_both_ends() {
        let (client, server) = connected();
        let server = accepting(server, &key("one"));
        let refused = why(Channel::open(client, &key("two")));
        assert!(refused.contains("it refuses: it has another key"), "{refused}");
        assert!(why(server.join().unwrap()).contains("it has another key"));
    }

    /// A server that repeats what it hears has proved nothing.
    #[test]
    fn a_server_without_the_key_is_refused() {
        let key = key("client");
        let (client, mut server) = connected();
        let mirror = std::thread::spawn(move || {
            for _ in 0..2 {
                let until = Instant::now() + OPENING;
                let text = read_frame(&mut server, MOST_BYTES_BEFORE, until, Duration::ZERO).unwrap();
                write(&mut server, &framed(&text, MOST_BYTES_BEFORE).unwrap(), until).unwrap();
            }
        });
        assert_eq!(why(Channel::open(client, &key)), OTHER_KEY);
        mirror.join().unwrap();
    }

    #[test]
    fn garbage_is_refused_with_a_message() {
        let key = key("garbage");
        for (garbage, said) in [
            (&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], "a message of 1195725856 bytes, of at most 4096"),
            (&[0xff; 64], "a message of 4294967295 bytes"),
            (&[0, 0, 0, 5, 1, 2, 3, 4, 5], NO_LAB),
            (b"\0\0\0\x0f{\"proof\":\"abc\"}", NO_LAB),
            (
                b"\0\0\0\x4b{\"hello\":{\"topstat-lab\":1,\"version\":\"1\",\"nonce\":\"zz\"}}                        ",
                NO_LAB,
            ),
        ] {
            let (mut client, server) = connected();
            let server = accepting(server, &key);
            client.write_all(garbage).unwrap();
            let refused = why(server.join().unwrap());
            assert!(refused.contains(said), "{refused}");
            match opening(&mut client, Instant::now() + OPENING) {
                Ok(Opening::Refused(why)) => assert_eq!(why, refused),
                // Unread data resets the connection, and the answer may be lost with it.
                other => assert!(other.is_err(), "{other:?}"),
            }
        }
    }

    #[test]
    fn another_form_is_named_on_both_ends() {
        let key = key("form");
        let other = r#"{"hello":{"topstat-lab":7,"version":"9.1","else":[1]}}"#;
        let other = framed(other.as_bytes(), MOST_BYTES_BEFORE).unwrap();
        let expected = "one topstat is 9.1 and speaks form 7 of the lab's messages";
        let (mut client, server) = connected();
        let server = accepting(server, &key);
        client.write_all(&other).unwrap();
        assert!(why(server.join().unwrap()).contains(expected));
        let (client, mut server) = connected();
        server.write_all(&other).unwrap();
        assert!(why(Channel::open(client, &key)).contains(expected));
    }

    #[test]
    fn a_message_that_was_changed_or_is_said_again_is_refused() {
        for (name, tamper) in [
            ("changed", (|message| message[6] ^= 1) as fn(&mut Vec<u8>)),
            ("hash", |message| *message.last_mut().unwrap() ^= 1),
            ("again", |message| *message = [&message[..], &message[..]].concat()),
        ] {
            let key = key(name);
            let (client, server) = connected();
            let server = accepting(server, &key);
            let mut client = Channel::open(client, &key).unwrap();
            let mut server = server.join().unwrap().unwrap();
            let text = serde_json::to_vec("a word").unwrap();
            let hash = client.out.next(&text).finalize().into_bytes();
            let mut message = [&framed(&text, MOST_BYTES).unwrap(), &hash[..]].concat();
            tamper(&mut message);
            client.socket.write_all(&message).unwrap();
            let first = server.receive::<String>(MESSAGE);
            let refused = if name == "again" {
                assert_eq!(first.unwrap(), "a word");
                server.receive::<String>(MESSAGE)
            } else {
                first
            };
            assert!(refused.unwrap_err().contains("was not of the peer"), "{name}");
        }
    }

    #[test]
    fn one_that_says_nothing_is_not_waited_for() {
        let key = key("silent");
        let (_client, server) = connected();
        let begun = Instant::now();
        let refused = why(accepting(server, &key).join().unwrap());
        assert!(refused.contains("it says nothing any more") && begun.elapsed() >= OPENING, "{refused}");
        assert!(begun.elapsed() < 2 * OPENING);
    }
}
