// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One table by itself: T1 to T5 after every step, at every size.

use proptest::prelude::*;
use std::collections::HashMap;
use topstat_engine::abi::{TS_DYNAMIC, TS_STATIC};
use topstat_engine::config;
use topstat_engine::sim::Engine;

/// A step on a table. An object is a number modulo the number of objects.
#[derive(Clone, Debug)]
enum Step {
    /// Push an amount to an object.
    Push(usize, u64),
    /// The object dies. The next push to it makes another object at its address.
    Die(usize),
    /// The object dies on another CPU: this table is not informed.
    DieUnseen(usize),
    Read,
    /// Time goes on by this number of slides.
    Wait(u64),
}

/// Small ranges, so that keys are often equal; and a large range.
fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![1u64..4, 1u64..100, 1u64..1 << 50]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (any::<usize>(), amount()).prop_map(|(object, amount)| Step::Push(object, amount)),
        4 => any::<usize>().prop_map(Step::Die),
        2 => any::<usize>().prop_map(Step::DieUnseen),
        1 => Just(Step::Read),
        2 => (0u64..14).prop_map(Step::Wait),
    ]
}

/// Runs the steps on an engine, whose table is checked after each.
struct Run {
    engine: Engine,
    /// Sums of living objects of a static table, by id.
    sums: HashMap<u64, u64>,
}

impl Run {
    fn new(top: u32, objects: usize, dynamic: bool) -> Self {
        let mut engine = Engine::new(2, top, objects, 1000).unwrap();
        let table_type = if dynamic { TS_DYNAMIC } else { TS_STATIC };
        engine.set_config(0, config(1000, 0, table_type, true, 1, 1000).unwrap());
        Self { engine, sums: HashMap::new() }
    }

    fn push(&mut self, object: usize, amount: u64) -> u64 {
        let id = match self.engine.object(object).id {
            0 => self.engine.birth(object),
            id => id,
        };
        *self.sums.entry(id).or_default() += amount;
        let [value, ..] = self.engine.push(0, object, 0, &[amount, 0, 0, 0]);
        // The object is in the table with its value, or missed[] bounds it.
        match self.engine.key(0, 0, object) {
            Some(key) => assert!(key >= value, "T4: object {object} of {value} has {key}"),
            None => assert!(value <= self.engine.missed(0, 0), "T5: object {object} of {value}"),
        }
        value
    }

    fn die(&mut self, object: usize, seen: bool) {
        let id = self.engine.object(object).id;
        if id == 0 {
            return;
        }
        self.sums.remove(&id);
        self.engine.kill(usize::from(!seen), object);
        assert!(!seen || self.engine.key(0, 0, object).is_none(), "a dead object is in the table");
    }

    fn check(&self) {
        self.engine.check(0, 0).unwrap();
    }

    /// The rows of a static table are the largest objects, down to missed[].
    fn read(&mut self, dynamic: bool) {
        let snapshot = self.engine.snapshot(0);
        if dynamic {
            return;
        }
        assert!(snapshot.rows.iter().all(|row| self.sums.get(&row.id) == Some(&row.value.value)));
        for (id, sum) in &self.sums {
            let seen = snapshot.rows.iter().any(|row| row.id == *id);
            assert!(seen || *sum <= snapshot.missed, "T5: object {id} of {sum}, missed {}", snapshot.missed);
        }
    }
}

proptest! {
    #![proptest_config(crate::cases(300))]

    /// Small tables, three objects for each entry: many objects enter and leave.
    #[test]
    fn small(
        bits in 0u32..5, dynamic in any::<bool>(), steps in prop::collection::vec(step(), 1..400),
    ) {
        let entries = 2usize << bits;
        let mut run = Run::new(entries as u32 / 2, 3 * entries, dynamic);
        prop_assert_eq!(run.engine.entries() as usize, entries);
        for step in steps {
            match step {
                Step::Push(object, amount) => { run.push(object % (3 * entries), amount); }
                Step::Die(object) => run.die(object % (3 * entries), true),
                Step::DieUnseen(object) => run.die(object % (3 * entries), false),
                Step::Read => run.read(dynamic),
                Step::Wait(slides) => run.engine.set_time(run.engine.now_ns() + slides * 100_000_000),
            }
            run.check();
        }
        run.read(dynamic);
    }
}

/// Every size, filled twice over in rising, falling and mixed order, then emptied.
#[test]
fn every_size() {
    for bits in 0..=10 {
        let entries = 2usize << bits;
        for order in 0..3 {
            let mut run = Run::new(entries as u32 / 2, 2 * entries, false);
            let place = |i: usize| match order {
                0 => i,
                1 => 2 * entries - 1 - i,
                _ => (i * 2_654_435_761 + 7) % (2 * entries),
            };
            let often = (entries / 16).max(1);
            for i in 0..2 * entries {
                run.push(place(i), 1 + 3 * place(i) as u64);
                if i % often == 0 {
                    run.check();
                }
            }
            // The entries are the larger half of the objects; no chain was full.
            let t = run.engine.table(0, 0);
            let (n, crowded) = (t.n as usize, t.crowded as usize);
            assert_eq!((n, crowded), (entries, 0), "{entries} entries");
            for object in 0..2 * entries {
                assert_eq!(run.engine.key(0, 0, object).is_some(), object >= entries, "{entries} entries, {object}");
            }
            run.read(false);
            for i in 0..2 * entries {
                run.die(place(i), true);
                if i % often == 0 {
                    run.check();
                }
            }
            run.check();
            assert_eq!(run.engine.table(0, 0).n, 0);
        }
    }
}

/// On a CPU that was not informed of the end, an object at the address of a dead one is recognised as another object.
#[test]
fn a_successor_at_the_same_address_is_another() {
    let mut run = Run::new(2, 1, false);
    run.push(0, 1000);
    run.die(0, false);
    run.engine.birth(0);
    assert_eq!(run.engine.snapshot(0).rows, []);
    run.push(0, 5);
    run.die(0, false);
    run.push(0, 7);
    let snapshot = run.engine.snapshot(0);
    assert_eq!(snapshot.rows.len(), 1);
    assert_eq!((snapshot.rows[0].value.value, snapshot.total), (7, 1012));
}

/// More objects of one bucket than a chain may have: they are counted, and bounded.
#[test]
fn a_full_chain_is_counted() {
    let mut run = Run::new(16, 4096, false);
    let bucket = run.engine.bucket(0);
    let same: Vec<_> = (0..4096).filter(|&object| run.engine.bucket(object) == bucket).take(20).collect();
    assert_eq!(same.len(), 20);
    for (i, &object) in same.iter().enumerate() {
        run.push(object, 100 + i as u64);
        run.check();
    }
    let t = run.engine.table(0, 0);
    assert_eq!((t.n, t.crowded), (12, 8));
    let snapshot = run.engine.snapshot(0);
    assert_eq!((snapshot.missed, snapshot.crowded, snapshot.rows.len()), (119, 8, 12));
    assert!(snapshot.rows.iter().all(|row| !row.proven));
    // The chain has room again.
    run.die(same[0], true);
    run.push(same[19], 1);
    run.check();
    assert_eq!(run.engine.snapshot(0).rows[0].value.value, 120);
}
