// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of a push compared with other ways to count a packet: `bench.bpf.c`, run on sockets that the caller has open.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use libbpf_rs::{Object, ProgramInput};

use super::abi;
use topstat_kernel::bpf::{self, Shared, program};
use topstat_kernel::ranking::{RankedFamily, Ranking, bank_size, load};
use topstat_kernel::{Error, Options, State as _, TableInfo};

/// Ports of the flows on each address; `BENCH_PORTS` in `bench.bpf.c`.
const PORTS: u32 = 16384;
/// The most flows at once.
pub const FLOWS_MAX: u32 = 131_072;
/// The remote address of all flows' sockets.
pub const REMOTE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9);

/// The address that the socket of a flow is bound to.
pub fn local(flow: u32) -> SocketAddrV4 {
    let ip = Ipv4Addr::from(0x7f10_0001 + ((flow / PORTS) << 8));
    SocketAddrV4::new(ip, u16::try_from(PORTS + flow % PORTS).unwrap_or(0))
}

/// Bytes of the tables of one sample on one CPU, for `top` rows.
///
/// # Errors
/// When this many rows can't be kept.
pub fn bank_bytes(top: u32) -> Result<usize, Error> {
    topstat_engine::entries_for(top).map(bank_size).map_err(|e| Error::Option(e.to_string()))
}

/// The ways to count a packet: the names of the programs, and their descriptions.
pub const WAYS: &[(&str, &str)] = &[
    ("bench_empty", "nothing (finding the socket)"),
    ("bench_count_one", "counting alone: socket storage, 1 add"),
    ("bench_count_one_fullsock", "counting alone: socket storage, 1 add, after bpf_sk_fullsock"),
    ("bench_count", "counting alone: socket storage, packets and bytes"),
    ("bench_count_fullsock", "counting alone: socket storage, packets and bytes, after bpf_sk_fullsock"),
    ("bench_tuple4", "one hash map, keyed by an IPv4 tuple (12 bytes)"),
    ("bench_tuple", "one hash map, keyed by the tuple as tcptop has it"),
    ("bench_tcptop", "one hash map, keyed by tuple, pid and name (tcptop)"),
    ("bench_topstat", "topstat"),
];

/// The observer, attached, and the programs to compare.
pub struct Bench {
    observer: Ranking,
    object: Object,
    parameters: Shared,
}

impl Bench {
    /// Loads everything. The observer sees the sockets that are made from now on.
    ///
    /// # Errors
    /// As [`topstat_kernel::load`].
    pub fn new(tables: &[Arc<TableInfo>], options: &Options) -> Result<Self, Error> {
        let family = crate::catalogue().family_of("udp_v4").expect("a sample of this family");
        let family = RankedFamily::of(&family).expect("a family of ranked tables");
        let observer = load(&family, tables, options)?;
        let mut object = bpf::open("bench", object!("inet/bench.bpf.o"))?;
        observer.maps().share(&mut object)?;
        let object = bpf::load("bench", object)?;
        let parameters = Shared::new(&bpf::map(&object, ".data.bench")?)?;
        Ok(Self { observer, object, parameters })
    }

    /// Sets which tables are on.
    ///
    /// # Errors
    /// When the observer can't be written to.
    pub fn set(&mut self, tables: &[Arc<TableInfo>]) -> Result<(), Error> {
        for table in self.observer.samples().iter().flat_map(|s| &s.tables) {
            topstat_kernel::update(&self.observer, table, |settings| {
                settings.enabled = tables.contains(table);
            })?;
        }
        Ok(())
    }

    /// Runs one of [`WAYS`] on `flows` flows, and returns its nanoseconds per packet.
    ///
    /// # Errors
    /// When the kernel refuses, or a flow's socket is not there.
    pub fn run(&self, way: &str, flows: u32, packets: u32) -> Result<f64, Error> {
        let failed = |why: String| Error::Kernel { what: format!("measure {way}"), why };
        self.parameters.write(0, 0, abi::inet_bench { flows, next: 0, not_found: 0 });
        let packet = udp_packet();
        let input = ProgramInput { data_in: Some(&packet), repeat: packets, ..Default::default() };
        // The CPU time of this thread: others may run in between.
        let begun = thread_ns();
        program(&self.object, way)?.test_run(input).map_err(|e| failed(e.to_string()))?;
        let ns = (thread_ns() - begun) as f64 / f64::from(packets);
        match self.parameters.read::<abi::inet_bench>(0, 0).not_found {
            0 => Ok(ns),
            n => Err(failed(format!("{n} of {packets} sockets were not found"))),
        }
    }
}

/// CPU time of this thread, in nanoseconds.
fn thread_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// An IPv4 UDP packet with 64 bytes of payload, behind an Ethernet header.
fn udp_packet() -> [u8; 106] {
    let mut p = [0; 106];
    p[12..14].copy_from_slice(&[0x08, 0x00]);
    p[14] = 0x45;
    p[16..18].copy_from_slice(&92_u16.to_be_bytes());
    p[22] = 64;
    p[23] = 17;
    p[26..30].copy_from_slice(&Ipv4Addr::LOCALHOST.octets());
    p[30..34].copy_from_slice(&local(0).ip().octets());
    p[36..38].copy_from_slice(&9_u16.to_be_bytes());
    p[38..40].copy_from_slice(&72_u16.to_be_bytes());
    p
}
