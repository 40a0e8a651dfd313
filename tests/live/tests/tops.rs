// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects that enter and leave the top of a table, as topstat reports them: compared with the snapshots themselves, and with
//! the senders' own times. Also the output of the program.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use topstat::{Exit, Kernel, SystemConsole};
use topstat_kernel::events::Top;
use topstat_kernel::{Error, MAX_TOP, Options, Source, TableInfo};
use topstat_live::events::{during_tops, field, number, text};
use topstat_live::watch::{load, table};
use topstat_live::{Case, Netns, case, eventually, note, pace};
use topstat_model::events::Event;
use topstat_model::{Dump, Field, Row, Snapshot};

pub fn cases() -> Vec<Case> {
    vec![
        case!(it_is_what_a_plain_model_makes_of_the_snapshots, Root, Netns; EveryKernel),
        case!(sockets_enter_when_they_send_and_leave_a_period_after, Root, Netns; EveryKernel),
        case!(the_program_tells_it, Root, Netns; Daemon),
    ]
}

const TABLE: &str = "udp_v4/conns_pps";
/// The maximum wait for an action that takes a moment.
const PATIENCE: Duration = Duration::from_secs(60);

/// A source that keeps its snapshots, each with the time at which its read ended.
struct Recorded {
    source: Box<dyn Source>,
    taken: Taken,
}

type Taken = Arc<Mutex<Vec<(SystemTime, Snapshot)>>>;

impl Recorded {
    fn load(options: &Options) -> (Self, Taken) {
        let taken = Taken::default();
        (Self { source: load(&[TABLE], options), taken: Arc::clone(&taken) }, taken)
    }
}

impl Source for Recorded {
    fn snapshot(&mut self, table: &TableInfo) -> Result<Snapshot, Error> {
        let snapshot = self.source.snapshot(table)?;
        self.taken.lock().expect("no panic").push((SystemTime::now(), snapshot.clone()));
        Ok(snapshot)
    }

    fn peek(&mut self, table: &TableInfo) -> Result<Snapshot, Error> {
        self.source.peek(table)
    }

    fn refill(&mut self, table: &TableInfo) -> Result<u64, Error> {
        self.source.refill(table)
    }

    fn dump(&mut self, table: &TableInfo) -> Result<Dump, Error> {
        self.source.dump(table)
    }
}

/// Waits until the current top was read.
fn be_looked_at(taken: &Mutex<Vec<(SystemTime, Snapshot)>>) {
    let looks = || taken.lock().expect("no panic").len();
    let before = looks();
    // One read may be running already.
    assert!(eventually(PATIENCE, || looks() >= before + 2), "nobody looks any more, after {before} times");
}

fn bound() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").expect("a socket")
}

fn port(socket: &UdpSocket) -> u64 {
    socket.local_addr().expect("its address").port().into()
}

fn send(socket: &UdpSocket, to: SocketAddr, packets: u64) {
    for _ in 0..packets {
        socket.send_to(b"x", to).expect("send");
    }
}

/// The rows of a top; and the number of new sockets in each phase, which send more than all earlier ones.
const ROWS: usize = 5;
const PHASES: u64 = 12;
const SOCKETS: u64 = 20;

/// The events are exactly the changes from each snapshot to the next: in the same order, with the same rows and values, and
/// no others. Sockets overtake each other and end during the test.
fn it_is_what_a_plain_model_makes_of_the_snapshots() {
    let ns = Netns::new("tops-model");
    let (source, taken) = Recorded::load(&Options { period_ms: 5000, ..Options::default() });
    let top = Top::new(vec![table(TABLE)], Box::new(source), ROWS as u32, Some(Duration::from_millis(20)));
    let (told, ()) = during_tops(vec![top], || {
        ns.inside(|| {
            let sink = bound();
            let to = sink.local_addr().expect("its address");
            let mut open = Vec::new();
            for phase in 1..=PHASES {
                let sockets: Vec<_> = (0..SOCKETS).map(|_| bound()).collect();
                for (number, socket) in (0..).zip(&sockets) {
                    send(socket, to, phase * SOCKETS + number);
                }
                open.push(sockets);
                be_looked_at(&taken);
                if phase % 4 == 0 {
                    open.clear();
                }
            }
            be_looked_at(&taken);
        });
    });
    let mut events = told.events.iter();
    let (mut before, mut overtaken): (Vec<Row>, u32) = (Vec::new(), 0);
    let taken = taken.lock().expect("no panic");
    for (_, snapshot) in taken.iter() {
        let now = &snapshot.rows[..snapshot.rows.len().min(ROWS)];
        let is_in = |rows: &[Row], row: &Row| rows.iter().any(|other| other.id == row.id);
        for left in before.iter().filter(|row| !is_in(now, row)) {
            let event = next(&mut events, "leave");
            let still = snapshot.rows.iter().find(|row| row.id == left.id);
            let place = still.map_or([Field::None, Field::None], |row| [row.rank.into(), row.value.into()]);
            overtaken += u32::from(still.is_some());
            assert_eq!(event.fields[..2], place);
            assert_eq!(event.fields[2..][..left.object.len()], still.unwrap_or(left).object);
        }
        for entered in now.iter().filter(|row| !is_in(&before, row)) {
            let event = next(&mut events, "enter");
            assert_eq!(event.fields[..2], [entered.rank.into(), entered.value.into()]);
            assert_eq!(event.fields[2..][..entered.object.len()], entered.object);
            assert_eq!(text(event, "proven") == "yes", entered.rank <= snapshot.proven);
        }
        before = now.to_vec();
    }
    assert_eq!(events.next(), None, "more is told than has changed");
    assert!(overtaken > 0, "none was overtaken: the load is too easy");
    note(format!("{} looks: {:?}, {overtaken} overtaken", taken.len(), told.accounts[TABLE]));
}

/// The next event, which must have this kind and no CPU; events are numbered.
fn next<'a>(events: &mut std::slice::Iter<'a, Event>, is: &str) -> &'a Event {
    let event = events.next().unwrap_or_else(|| panic!("it is not told what changes: {is}"));
    assert_eq!((event.kind.event.as_str(), event.cpu), (is, None), "{event:?}");
    event
}

/// Sockets that send for a moment, and then rest.
const SENDERS: u64 = 100;
const PERIOD: Duration = Duration::from_secs(3);
/// The maximum difference of the two clocks: times of pushes are in jiffies, of 10 ms at most.
const SLACK: Duration = Duration::from_millis(50);

/// Every object has a row here, so packets of other programs make no difference. The truth comes from the senders: when they
/// began and ended to send, and how many packets.
fn sockets_enter_when_they_send_and_leave_a_period_after() {
    let ns = Netns::new("tops-senders");
    let period_ms = PERIOD.as_millis() as u32;
    let (source, taken) = Recorded::load(&Options { period_ms, top: MAX_TOP, ..Options::default() });
    let top = Top::new(vec![table(TABLE)], Box::new(source), MAX_TOP, None);
    let (told, (truth, in_time)) = during_tops(vec![top], || {
        ns.inside(|| {
            let sink = bound();
            let to = sink.local_addr().expect("its address");
            let sockets: Vec<_> = (0..SENDERS).map(|_| bound()).collect();
            let begun = Instant::now();
            let mut truth = Vec::new();
            for (number, socket) in (0..).zip(&sockets) {
                let (from, packets) = (SystemTime::now(), number % 7 + 1);
                send(socket, to, packets - 1);
                let last = SystemTime::now();
                send(socket, to, 1);
                truth.push((port(socket), packets, from, last));
            }
            be_looked_at(&taken);
            // A host that stalled may have read the table after the end of the period.
            let in_time = begun.elapsed() < PERIOD;
            let netns = Field::U64(ns.number());
            let is_silent = || {
                let taken = taken.lock().expect("no panic");
                let (_, last) = taken.last().expect("it was looked at");
                let at = last.column("netns").expect("a column");
                last.rows.iter().all(|row| row.object[at] != netns)
            };
            assert!(eventually(PATIENCE, is_silent), "rows of sockets that are silent don't go");
            be_looked_at(&taken);
            (truth, in_time)
        })
    });
    let netns = ns.number();
    let of = |port: u64| {
        let ours = |event: &&Event| number(event, "netns") == netns && number(event, "sport") == port;
        told.events.iter().filter(ours).collect::<Vec<_>>()
    };
    // An event has the time at which its read began; the change itself may have happened until the end of that read.
    let taken = taken.lock().expect("no panic");
    let end = |event: &Event| taken.iter().map(|(end, _)| *end).find(|end| *end >= event.time).expect("its look");
    for (port, packets, from, last) in truth {
        let events = of(port);
        if events.is_empty() && !in_time {
            continue;
        }
        let kinds: Vec<_> = events.iter().map(|event| event.kind.event.as_str()).collect();
        assert_eq!(kinds, ["enter", "leave"], "port {port}: {events:?}");
        let [entered, left] = events[..] else { unreachable!("there are two") };
        assert!(number(entered, "value") <= packets && end(entered) + SLACK >= from, "{entered:?}, since {from:?}");
        assert!(end(left) + SLACK >= last + PERIOD, "{left:?}, though it has sent at {last:?}");
        assert_eq!([field(left, "rank"), field(left, "value")], [&Field::None; 2], "{left:?}");
        let stayed = left.time.duration_since(entered.time).expect("it leaves after it has entered");
        assert!(stayed.abs_diff(Duration::from_nanos(number(left, "stayed_ns"))) < SLACK, "{left:?}: {stayed:?}");
    }
    note(format!("{:?}", told.accounts[TABLE]));
}

/// From the kernel to the lines of `topstat events`: a socket sends until its `enter` event arrives, and then rests.
fn the_program_tells_it() {
    let ns = Netns::new("tops-program");
    let (socket, sink) = ns.inside(|| (bound(), bound()));
    let (to, port) = (sink.local_addr().expect("its address"), port(&socket));
    let filter = format!("sport:{port} netns:{}", ns.number());
    let arguments = format!("topstat events {TABLE} --private --rows 1024 --every 50ms -o json -n 2 -f");
    let line: Vec<_> = arguments.split(' ').map(Into::into).chain([filter.into()]).collect();
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    let (entered, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let (exit, documents) = std::thread::scope(|scope| {
        let program = scope.spawn(|| {
            let exit = topstat::run(line, &mut Kernel, &mut SystemConsole::with_output(File::from(writer)));
            ended.store(true, Ordering::Release);
            exit
        });
        scope.spawn(|| {
            let begun = Instant::now();
            while !entered.load(Ordering::Acquire) && !ended.load(Ordering::Acquire) {
                assert!(begun.elapsed() < pace::patience(PATIENCE), "it is never told to have entered");
                socket.send_to(b"x", to).expect("send");
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let lines = BufReader::new(File::from(reader)).lines().map(|line| line.expect("a line"));
        let documents: Vec<Value> = lines
            .map(|line| {
                entered.store(true, Ordering::Release);
                serde_json::from_str(&line).expect("a document")
            })
            .collect();
        (program.join().expect("the program"), documents)
    });
    assert_eq!(exit, Exit::Done);
    let (accounts, events): (Vec<_>, Vec<_>) = documents.iter().partition(|document| document["event"] == "account");
    let kinds: Vec<_> = events.iter().map(|event| event["event"].as_str().expect("a text")).collect();
    assert_eq!(kinds, ["enter", "leave"], "{documents:?}");
    for event in events {
        assert_eq!((event["source"].as_str(), &event["cpu"]), (Some(TABLE), &Value::Null), "{event}");
        assert_eq!((event["sport"].as_u64(), event["comm"].is_string()), (Some(port), true), "{event}");
    }
    let account = accounts.last().expect("an account");
    assert_eq!(account["produced"], account["delivered"], "{account}");
    assert_eq!((&account["dropped"], &account["shown"]), (&0.into(), &2.into()), "{account}");
}
