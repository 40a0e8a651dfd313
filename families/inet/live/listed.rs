// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which sockets a reader looks at: all that may have counted, also those that no process has open; and none once all are silent.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use libbpf_rs::{MapCore as _, MapFlags};
use topstat_kernel::{Options, load_state};
use topstat_live::attached::Ids;
use topstat_live::nest::inet;
use topstat_live::watch::{everything, table};
use topstat_live::{Case, Key, Watch, alone, case, eventually, note, truth};

pub fn cases() -> Vec<Case> {
    vec![
        case!(a_connection_that_no_process_has_open, Root; EveryKernel, Gate),
        alone!(Totals: none_once_all_are_silent, Root; EveryKernel, Gate),
    ]
}

const PPS: &str = "tcp_v4/conns_pps";
const BYTES: &str = "tcp_v4/conns_bytes";
const DATAGRAMS: &str = "udp_v4/conns_pps";

/// Sets the size of a buffer, also beyond what a user may set. The kernel does not change it any more.
fn set_buffer(socket: &impl AsRawFd, option: libc::c_int, bytes: usize) {
    let size = libc::c_int::try_from(bytes).unwrap();
    // SAFETY: the value outlives the call.
    let set = unsafe {
        let value = (&raw const size).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, size_of_val(&size) as libc::socklen_t)
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// The two ends of a connection. An accepted socket receives into a buffer that the kernel does not enlarge.
fn pair() -> (TcpStream, TcpStream) {
    const BUFFER: usize = 100_000;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    set_buffer(&listener, libc::SO_RCVBUFFORCE, BUFFER);
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// A client closes its connection while most of its data waits for the server: the kernel goes on sending it. Another connection has
/// two descriptors, and must not count as two.
fn a_connection_that_no_process_has_open() {
    const DATA: usize = 2 << 20;
    const PIECE: usize = 100_000;
    let mut watch = Watch::load(&[BYTES], &everything());
    let (twice, _peer) = pair();
    let _copy = twice.try_clone().unwrap();
    let (mut client, mut server) = pair();
    set_buffer(&client, libc::SO_SNDBUFFORCE, DATA);
    let key = Key::new(client.local_addr().unwrap(), client.peer_addr().unwrap());
    client.write_all(&vec![7; DATA]).unwrap();
    drop(client);
    let mut piece = vec![0; PIECE];
    let mut checked = 0;
    for _ in 0..DATA / PIECE {
        (&twice).write_all(&[1]).unwrap();
        server.read_exact(&mut piece).unwrap();
        let received = truth::at_rest(|| truth::tcp_info(&server)).bytes_rx;
        if received as usize >= DATA {
            break;
        }
        let view = watch.snapshot(BYTES);
        let row = view.find(key).unwrap_or_else(|| panic!("no row of {key:?}: {}", view.summary()));
        // Data that found no room at the server was sent, and will be sent again.
        assert!(row.tx >= received, "sent {} of {received} that are received: {}", row.tx, view.summary());
        checked += 1;
    }
    assert!(checked > 3, "the server received all data at once");
    note(format!("{checked} times"));
}

/// The number of sockets on the list of this process's observer.
fn on_list() -> u32 {
    let map = Ids::own().map(".data.on_list").expect("the map .data.on_list");
    let word = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap().expect("its value");
    u32::from_ne_bytes(word[..4].try_into().unwrap())
}

/// Connections and sockets that end, and some that stay, leave the list, whatever way they end.
fn none_once_all_are_silent() {
    const MANY: usize = 300;
    /// Sockets of others on this host.
    const OTHERS: u32 = 30;
    // A socket stays on the list until the slide after its last record has begun: with the tests' usual period for up to a minute.
    let options = Options { period_ms: 1000, ..everything() };
    let tables = [table(PPS), table(BYTES), table(DATAGRAMS)];
    let state = load_state(inet(), &tables, &options).unwrap_or_else(|e| panic!("{e}"));
    let mut watch = Watch::of(state.reader().unwrap());
    let kept: Vec<_> = (0..MANY).map(|_| pair()).collect();
    for (client, server) in &kept {
        (&mut &*client).write_all(&[1]).unwrap();
        (&mut &*server).read_exact(&mut [0]).unwrap();
    }
    let before = on_list();
    assert!(before as usize >= 2 * MANY, "{before} on the list");
    for round in 0..MANY {
        let (mut client, mut server) = pair();
        client.write_all(&[1; 100]).unwrap();
        server.read_exact(&mut [0; 50]).unwrap();
        // The server's end resets the connection where data is left unread.
        if round % 2 == 0 {
            server.read_exact(&mut [0; 50]).unwrap();
        }
        drop(server);
        let (one, other) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        one.send_to(&[1], other.local_addr().unwrap()).unwrap();
        other.recv(&mut [0; 8]).unwrap();
        if round % 50 == 0 {
            watch.snapshot(DATAGRAMS);
        }
    }
    let ended = on_list();
    assert!(ended as usize <= 2 * MANY + OTHERS as usize, "{ended} on the list, of which {} are open", 2 * MANY);
    let silent = eventually(Duration::from_secs(30), || {
        watch.snapshot(PPS);
        std::thread::sleep(Duration::from_millis(200));
        on_list() < OTHERS
    });
    assert!(silent, "{} are still on the list", on_list());
    drop(kept);
    note(format!("{before}, {ended} and {} sockets on the list", on_list()));
}
