// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares histograms of packets on the running kernel with the counts of the device and of the reader, and with waits that the
//! test makes.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use topstat_families::netstack::{Chosen, Counter};
use topstat_live::netns::{Bridged, PORT_RIGHT, RIGHT};
use topstat_live::{Case, Netns, alone, harness, note};
use topstat_model::histograms::{Histogram, Histograms, Subject};

pub fn cases() -> Vec<Case> {
    vec![
        alone!(Cpu: packets_are_those_that_the_device_counts, Root, Netns),
        alone!(Cpu: copied_bytes_are_those_that_were_read, Root, Netns),
        alone!(Cpu: waiting_for_a_cpu_is_told_from_waiting_in_a_queue, Root, Netns, RealTime),
    ]
}

/// The device of the receiving end.
const DEVICE: &str = "eth0";
/// Bytes of each flow.
const BYTES: usize = 8 << 20;
/// A device is quiet if it counts nothing for this time.
const QUIET: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the test lets data wait.
const WAIT: Duration = Duration::from_millis(40);

/// Packets that the device of this namespace has received.
fn received() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").expect("statistics of devices");
    let line = text.lines().find_map(|line| line.trim().strip_prefix(DEVICE)?.strip_prefix(':')).expect("the device");
    line.split_whitespace().nth(1).expect("packets").parse().expect("a number")
}

/// Switches a feature of a device of this namespace on or off, by a command of `linux/ethtool.h`.
fn set(device: &str, command: u32, on: u32) {
    #[repr(C)]
    struct Request {
        name: [u8; libc::IFNAMSIZ],
        value: *mut [u32; 2],
        rest: [u64; 2],
    }
    let any = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let mut value = [command, on];
    let mut request = Request { name: [0; libc::IFNAMSIZ], value: &raw mut value, rest: [0; 2] };
    request.name[..device.len()].copy_from_slice(device.as_bytes());
    // SAFETY: the request is as long as the kernel's, and both it and the value live through the call.
    let done = unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    assert_eq!(done, 0, "{command:#x}: {}", std::io::Error::last_os_error());
}

const SET_TSO: u32 = 0x1f;
const SET_GRO: u32 = 0x2c;

/// Reads until the device is quiet before and after a reading, and returns the number of packets that it has received by then.
fn read_when_quiet(counters: &mut [&mut Counter], sums: &mut [[u64; 2]]) -> u64 {
    let begun = Instant::now();
    loop {
        let before = received();
        std::thread::sleep(QUIET);
        for (counter, sum) in counters.iter_mut().zip(&mut *sums) {
            let read = counter.read().expect("a histogram");
            // Multicast listener discovery of IPv6 has a header of options; ports behind it are not read.
            assert!(read.beside("lost") == 0 && read.beside("unread") < 100, "{read:?}");
            for (sum, name) in sum.iter_mut().zip(["before_gro", "after_gro"]) {
                *sum += read.series(name).expect(name).count();
            }
        }
        if received() == before {
            return before;
        }
        assert!(begun.elapsed() < PATIENCE, "the device is never quiet");
    }
}

/// Sends some bytes over a connection to the other end, and returns the port there.
fn carry(net: &Bridged) -> u16 {
    let listener = net.right.inside(|| TcpListener::bind((IpAddr::from(RIGHT), 0)).expect("a listener"));
    let to = listener.local_addr().expect("its address");
    let mut sender = net.left.inside(|| TcpStream::connect(to).expect("a connection"));
    let (mut receiver, _) = listener.accept().expect("the connection");
    std::thread::scope(|scope| {
        scope.spawn(move || sender.write_all(&vec![1; BYTES]).expect("sent"));
        assert_eq!(std::io::copy(&mut receiver, &mut std::io::sink()).expect("received"), BYTES as u64);
    });
    to.port()
}

/// With and without segmentation and GRO, the histogram has every packet that passes the device.
fn packets_are_those_that_the_device_counts() {
    for (tso, gro) in [(1, 0), (0, 1), (0, 0)] {
        let net = Bridged::new();
        net.left.inside(|| set(DEVICE, SET_TSO, tso));
        // Packets from a device that takes large buffers are not merged.
        net.bridge.inside(|| set(PORT_RIGHT, SET_TSO, tso));
        net.right.inside(|| {
            set(DEVICE, SET_GRO, gro);
            let device = Some(DEVICE.to_owned());
            let mut all = Counter::open(Subject::Skb, &Chosen { device, ..Chosen::default() }).expect("a histogram");
            let mut everywhere = Counter::open(Subject::Skb, &Chosen::default()).expect("a histogram");
            read_when_quiet(&mut [&mut all], &mut [[0; 2]]);
            let (mut sums, mut counted) = ([[0; 2]], 0);
            let begun = read_when_quiet(&mut [&mut all], &mut [[0; 2]]);
            let ports = [carry(&net), carry(&net)];
            assert_ne!(ports[0], ports[1]);
            counted += read_when_quiet(&mut [&mut all], &mut sums) - begun;
            let [[before, after]] = sums;
            note(format!("tso {tso}, gro {gro}: {before} packets of {counted}, {after} after GRO"));
            assert_eq!(before, counted, "tso {tso}, gro {gro}");
            assert!(after <= before && (gro == 0 || after * 2 < before), "{after} of {before} after GRO");
            assert!(gro == 1 || after == before, "{after} of {before} without GRO");
            assert!(everywhere.read().expect("a histogram").series("before_gro").expect("one").count() > before);
        });
    }
    ports_are_told_apart();
}

/// Each of two connections has its own packets, and both together have all of them.
fn ports_are_told_apart() {
    let net = Bridged::new();
    net.right.inside(|| {
        let listener = [0, 1].map(|_| TcpListener::bind((IpAddr::from(RIGHT), 0)).expect("a listener"));
        let to = listener.each_ref().map(|listener| listener.local_addr().expect("its address"));
        let of = |ports: Vec<u16>| {
            let chosen = Chosen { device: Some(DEVICE.to_owned()), ports, ..Chosen::default() };
            Counter::open(Subject::Skb, &chosen).expect("a histogram")
        };
        let mut both = of(vec![to[0].port(), to[1].port()]);
        let (mut one, mut other) = (of(vec![to[0].port()]), of(vec![to[1].port()]));
        for (listener, to, times) in [(&listener[0], to[0], 1), (&listener[1], to[1], 3)] {
            let mut sender = net.left.inside(|| TcpStream::connect(to).expect("a connection"));
            let (mut receiver, _) = listener.accept().expect("the connection");
            std::thread::scope(|scope| {
                scope.spawn(move || sender.write_all(&vec![1; times * BYTES]).expect("sent"));
                std::io::copy(&mut receiver, &mut std::io::sink()).expect("received");
            });
        }
        let mut sums = [[0; 2]; 3];
        read_when_quiet(&mut [&mut both, &mut one, &mut other], &mut sums);
        let [[both, _], [one, _], [other, _]] = sums;
        note(format!("of {both} packets {one} and {other} by their ports"));
        assert_eq!(one + other, both);
        // The ratio of the packets depends on how they were merged, so it may differ from three.
        assert!(one > 0 && other > one, "{one}, {other}");
    });
}

/// Both ends of a connection over loopback, in a separate namespace, and the port of the listening end.
fn connection(ns: &Netns) -> (TcpStream, TcpStream, u16) {
    ns.inside(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let to: SocketAddr = listener.local_addr().expect("its address");
        let sender = TcpStream::connect(to).expect("a connection");
        sender.set_nodelay(true).expect("no delay");
        (sender, listener.accept().expect("the connection").0, to.port())
    })
}

/// Sends and reads bytes until the kernel records when packets arrive: it begins a moment after the request.
fn until_dated(counter: &mut Counter, sender: &mut TcpStream, receiver: &mut TcpStream) {
    let (begun, mut byte) = (Instant::now(), [1]);
    loop {
        // For a thread's first copy, its waits are not known yet.
        for _ in 0..3 {
            sender.write_all(&byte).expect("sent");
            receiver.read_exact(&mut byte).expect("received");
        }
        let read = counter.read().expect("a histogram");
        if read.beside("undated") == 0 && read.beside("unsplit") == 0 {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{read:?}");
    }
}

/// Checks the invariants of a histogram of latencies.
fn adds_up(read: &Histograms) {
    let series = |name: &str| read.series(name).expect("a histogram");
    let [latency, scheduling, queueing] = ["latency", "scheduling", "queueing"].map(series);
    assert_eq!(latency.count() + read.beside("undated"), read.beside("copies"), "{read:?}");
    assert_eq!(scheduling.count() + read.beside("unsplit"), latency.count(), "{read:?}");
    assert_eq!(queueing.count(), scheduling.count(), "{read:?}");
    assert!(scheduling.sum + queueing.sum <= latency.sum, "{read:?}");
    assert!(read.beside("unsplit") > 0 || scheduling.sum + queueing.sum == latency.sum, "{read:?}");
    assert_eq!(read.beside("lost"), 0, "{read:?}");
}

fn copied_bytes_are_those_that_were_read() {
    let ns = Netns::new("copied");
    let (mut sender, mut receiver, port) = connection(&ns);
    let mut counter =
        Counter::open(Subject::Latency, &Chosen { ports: vec![port], ..Chosen::default() }).expect("a histogram");
    until_dated(&mut counter, &mut sender, &mut receiver);
    let bytes = std::thread::scope(|scope| {
        scope.spawn(move || {
            sender.write_all(&vec![1; BYTES]).expect("sent");
            for size in [1, 100, 5000, 100_000] {
                sender.write_all(&vec![1; size]).expect("sent");
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        std::io::copy(&mut receiver, &mut std::io::sink()).expect("received")
    });
    let read = counter.read().expect("a histogram");
    adds_up(&read);
    note(format!("{bytes} bytes in {} copies, {} undated", read.beside("copies"), read.beside("undated")));
    assert_eq!(read.beside("bytes"), bytes);
    assert_eq!(read.beside("undated"), 0, "{read:?}");
}

/// The number of entries in buckets that contain values above half of the wait.
fn long_ones(histogram: &Histogram) -> u64 {
    let least = u64::try_from(WAIT.as_nanos()).unwrap_or(0) / 2;
    let is_long = |bucket: &usize| Histogram::bounds(*bucket).1 > least;
    histogram.buckets.iter().enumerate().filter(|(bucket, _)| is_long(bucket)).map(|(_, count)| count).sum()
}

/// Data that waits because no thread reads it is queueing. Data whose reader is ready, but has no CPU, is scheduling.
fn waiting_for_a_cpu_is_told_from_waiting_in_a_queue() {
    const TIMES: u64 = 5;
    let ns = Netns::new("waiting");
    let (mut sender, mut receiver, port) = connection(&ns);
    let chosen = Chosen { ports: vec![port], pids: vec![std::process::id()], ..Chosen::default() };
    let mut counter = Counter::open(Subject::Latency, &chosen).expect("a histogram");
    let cpus = rustix::thread::sched_getaffinity(None).expect("CPUs");
    let mut only = rustix::thread::CpuSet::new();
    only.set((0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| cpus.is_set(*cpu)).expect("a CPU"));
    let (mut byte, nothing) = ([1], Histogram::default());
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            rustix::thread::sched_setaffinity(None, &only).expect("a CPU of this process");
            until_dated(&mut counter, &mut sender, &mut receiver);
            for _ in 0..TIMES {
                sender.write_all(&byte).expect("sent");
                std::thread::sleep(WAIT);
                receiver.read_exact(&mut byte).expect("received");
            }
            let queued = counter.read().expect("a histogram");
            adds_up(&queued);
            // The sender runs on the reader's CPU, and does not leave it for a while.
            let reader = std::thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    for _ in 0..TIMES + 2 {
                        receiver.read_exact(&mut byte).expect("received");
                    }
                });
                let hog = scope.spawn(|| {
                    let parameters = libc::sched_param { sched_priority: 1 };
                    // SAFETY: the call reads the structure, which lives through the call, and concerns the calling thread only.
                    let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
                    assert_eq!(set, 0, "SCHED_FIFO");
                    for _ in 0..TIMES + 2 {
                        std::thread::sleep(WAIT);
                        sender.write_all(&[2]).expect("sent");
                        let until = Instant::now() + WAIT;
                        while Instant::now() < until {
                            std::hint::spin_loop();
                        }
                    }
                });
                hog.join().expect("the sender");
                reader.join()
            });
            reader.expect("the reader");
            let scheduled = counter.read().expect("a histogram");
            adds_up(&scheduled);
            (queued, scheduled)
        });
        let (queued, scheduled) = work.join().expect("both");
        let long = |read: &Histograms, name: &str| long_ones(read.series(name).unwrap_or(&nothing));
        let of = |read: &Histograms| [long(read, "latency"), long(read, "scheduling"), long(read, "queueing")];
        note(format!("long ones: {:?} in a queue, {:?} without a CPU", of(&queued), of(&scheduled)));
        if queued.beside("undated") > 0 {
            harness::skip("the clock was set meanwhile");
        }
        assert_eq!(of(&queued)[0], TIMES, "{queued:?}");
        assert!(of(&queued)[2] == TIMES && of(&queued)[1] == 0, "{queued:?}");
        // Up to two may count as queueing: a copy whose waits are unknown, and a copy whose sender a busy host has kept from the
        // CPU.
        assert!(of(&scheduled)[1] >= TIMES && of(&scheduled)[2] <= 2, "{scheduled:?}");
    });
}
