// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes that act as clients and servers.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;

use topstat_live::role::{name, say, told};

/// Plays a role, if it is one of this family's.
pub fn play(role: &str, arguments: &[String]) -> Option<ExitCode> {
    match role {
        "net-client" => client(arguments.first().expect("a name")),
        "net-server" => server(arguments.first().expect("a name"), arguments.get(1).expect("an address")),
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

/// The size of a request: the wanted number of bytes, little-endian.
pub const REQUEST: usize = 8;

/// Asks for `bytes` bytes, and reads them.
pub fn ask(stream: &mut TcpStream, bytes: usize) -> std::io::Result<()> {
    stream.write_all(&(bytes as u64).to_le_bytes())?;
    let read = std::io::copy(&mut (&*stream).take(bytes as u64), &mut std::io::sink())?;
    assert_eq!(read, bytes as u64, "all of the answer");
    Ok(())
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut wanted = [0; REQUEST];
    while stream.read_exact(&mut wanted).is_ok() {
        let answer = vec![1; u64::from_le_bytes(wanted) as usize];
        stream.write_all(&answer)?;
    }
    Ok(())
}

/// Connects at `connect ADDRESS`; each other line is the number of bytes to ask the server for.
fn client(comm: &str) {
    name(comm);
    say("ready");
    let mut stream = None;
    while let Some(line) = told() {
        if let Some(at) = line.strip_prefix("connect ") {
            stream = Some(TcpStream::connect(at).expect("connect"));
        } else {
            ask(stream.as_mut().expect("a connection"), line.parse().expect("how many bytes")).expect("an answer");
        }
        say("done");
    }
}

/// Answers requests on any number of connections, until the test ends it.
fn server(comm: &str, at: &str) {
    name(comm);
    let listener = TcpListener::bind(at).expect("listen");
    say(format!("at {}", listener.local_addr().expect("its address")));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    told();
}
