// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is done to an engine in a test: from bytes, for the fuzzer, or as proptest likes it.
//! Every number is taken modulo what there is, so that all inputs mean something.

use topstat_engine::abi::{TS_DYNAMIC, TS_STATIC};
use topstat_engine::sim::{Amounts, TABLES};

/// What an engine is made with.
#[derive(Clone, Debug)]
pub struct Setup {
    pub cpus: usize,
    pub top: u32,
    pub objects: usize,
    pub hz: u32,
    /// Type, period and delay of each table; `None`: no such table.
    pub tables: [Option<(u32, u32, u32)>; TABLES],
    pub quiet: bool,
    /// Pushes order only where that is little work, whatever the delay, and leave the rest to readers.
    pub known: bool,
    /// Dynamic tables keep what has ended.
    pub keeps: bool,
}

/// A push to an object, or to the totals alone where there is none.
#[derive(Clone, Debug)]
pub struct PushOp {
    pub object: Option<usize>,
    /// What the object should get it does not: only the totals do.
    pub refused: bool,
    pub part: u32,
    pub amounts: Amounts,
}

/// What happens next.
#[derive(Clone, Debug)]
pub enum Op {
    Push(usize, PushOp),
    /// Pushes, and a death, that interrupt the holder of the claim.
    Nested(usize, Vec<PushOp>, Option<usize>),
    /// Time goes on, by so many nanoseconds.
    Wait(u64),
    Kill(usize, usize),
    /// A dead object's memory is another's.
    Birth(usize),
    Set {
        table: usize,
        period_ms: u32,
        delay_ms: u32,
        enabled: bool,
    },
    Snapshot(usize),
}

pub const HZ: [u32; 4] = [100, 250, 300, 1000];
pub const PERIODS: [u32; 8] = [1, 7, 40, 100, 400, 1000, 1050, 10_000];
pub const DELAYS: [u32; 4] = [1, 10, 100, 1500];

/// Bytes, and zeroes when they have run out.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    fn below(&mut self, n: usize) -> usize {
        usize::from(self.next()) % n
    }

    /// Small numbers mostly; at times up to 2^40.
    fn amount(&mut self) -> u64 {
        match self.next() {
            byte @ 0..=199 => u64::from(byte % 20),
            byte => (u64::from(self.next()) + 1) << (byte - 200).min(32),
        }
    }

    /// Often the same amounts in all tables.
    fn amounts(&mut self) -> Amounts {
        let first = self.amount();
        if self.next() < 128 { [first.max(1); TABLES] } else { [first, self.amount(), self.amount(), self.amount()] }
    }

    fn push(&mut self) -> PushOp {
        let which = self.next();
        let object = (which < 253).then_some(usize::from(which));
        PushOp { object, refused: which >= 240, part: self.next().into(), amounts: self.amounts() }
    }
}

/// The setup and the operations that `bytes` stand for.
pub fn decode(bytes: &[u8]) -> (Setup, Vec<Op>) {
    let mut b = Bytes(bytes);
    let mut setup = Setup {
        cpus: 1 + b.below(4),
        top: 1 + b.below(8) as u32,
        objects: 1 + b.below(64),
        hz: HZ[b.below(HZ.len())],
        tables: [None; TABLES],
        quiet: false,
        known: false,
        keeps: false,
    };
    let how = b.below(8);
    setup.keeps = how >= 4;
    match how % 4 {
        1 | 3 => setup.quiet = true,
        2 => setup.known = true,
        _ => {}
    }
    for table in &mut setup.tables {
        let table_type = match b.below(8) {
            0 => continue,
            1..4 => TS_STATIC,
            _ => TS_DYNAMIC,
        };
        let period = PERIODS[b.below(PERIODS.len())];
        let delay = if b.below(4) == 0 { DELAYS[b.below(DELAYS.len())] } else { 0 };
        *table = Some((table_type, period, delay));
    }
    let mut ops = vec![];
    while !b.0.is_empty() {
        ops.push(match b.next() {
            0..140 => Op::Push(b.next().into(), b.push()),
            140..150 => {
                let kill = b.below(3) == 0;
                let pushes = (0..1 + b.below(3)).map(|_| b.push()).collect();
                Op::Nested(b.next().into(), pushes, kill.then(|| b.next().into()))
            }
            150..190 => Op::Wait(u64::from(b.next()) << (b.next() % 32)),
            190..205 => Op::Kill(b.next().into(), b.next().into()),
            205..220 => Op::Birth(b.next().into()),
            220..224 => Op::Set {
                table: b.below(TABLES),
                period_ms: PERIODS[b.below(PERIODS.len())],
                delay_ms: if b.below(2) == 0 { DELAYS[b.below(DELAYS.len())] } else { 0 },
                enabled: b.next() < 200,
            },
            _ => Op::Snapshot(b.below(TABLES)),
        });
    }
    (setup, ops)
}
