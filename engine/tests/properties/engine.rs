// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The whole engine, with several CPUs, tables and objects, under all kinds of operations.

use crate::driver::Driver;
use crate::ops::{DELAYS, HZ, Op, PERIODS, PushOp, Setup};
use proptest::prelude::*;
use topstat_engine::abi::{TS_DYNAMIC, TS_STATIC};
use topstat_engine::config;
use topstat_engine::sim::{Amounts, Engine, TABLES};

type Tables = [Option<(u32, u32, u32)>; TABLES];

fn any_period() -> impl Strategy<Value = u32> {
    prop::sample::select(PERIODS.to_vec())
}

/// A few objects have most of the traffic, and there are more objects than fit into a table.
fn object() -> impl Strategy<Value = usize> {
    prop_oneof![3 => 0usize..3, 3 => 0usize..12, 4 => 0usize..64]
}

/// 0 for a table that gets nothing of this push, as a table of bytes for packets without payload.
fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![2 => Just(0u64), 4 => 1u64..4, 3 => 1u64..100_000, 1 => 1u64..1 << 40]
}

fn push() -> impl Strategy<Value = PushOp> {
    let refused = prop::bool::weighted(0.03);
    (prop::option::weighted(0.97, object()), refused, 0u32..2, prop::array::uniform4(amount()))
        .prop_map(|(object, refused, part, amounts): (_, _, _, Amounts)| PushOp { object, refused, part, amounts })
}

fn delay() -> impl Strategy<Value = u32> {
    prop_oneof![2 => Just(0u32), 1 => prop::sample::select(DELAYS.to_vec())]
}

/// The time without operations: on the scale of a period's jiffies, of its slides, or of the whole period.
fn wait() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..1_000_000, 0u64..20_000_000, 0u64..200_000_000, 0u64..3_000_000_000]
}

fn op(settings: bool) -> impl Strategy<Value = Op> {
    let set = (0..TABLES, any_period(), delay(), prop::bool::weighted(0.8))
        .prop_map(|(table, period_ms, delay_ms, enabled)| Op::Set { table, period_ms, delay_ms, enabled });
    prop_oneof![
        60 => (0usize..4, push()).prop_map(|(cpu, push)| Op::Push(cpu, push)),
        3 => (0usize..4, prop::collection::vec(push(), 1..4), prop::option::weighted(0.3, object()))
            .prop_map(|(cpu, pushes, kill)| Op::Nested(cpu, pushes, kill)),
        12 => wait().prop_map(Op::Wait),
        4 => (0usize..4, object()).prop_map(|(cpu, object)| Op::Kill(cpu, object)),
        4 => object().prop_map(Op::Birth),
        8 => (0..TABLES).prop_map(Op::Snapshot),
        u32::from(settings) => set,
    ]
}

fn setup(tables: impl Strategy<Value = Tables>) -> impl Strategy<Value = Setup> {
    (1usize..=4, 1u32..=6, 1usize..=64, prop::sample::select(HZ.to_vec()), tables, any::<[bool; 2]>()).prop_map(
        |(cpus, top, objects, hz, tables, [quiet, keeps])| Setup {
            cpus,
            top,
            objects,
            hz,
            tables,
            quiet,
            left: false,
            keeps,
        },
    )
}

/// Two dynamic tables and a static one, ordered on every push.
fn undelayed() -> impl Strategy<Value = Tables> {
    (any_period(), any_period(), any_period())
        .prop_map(|(a, b, c)| [Some((TS_DYNAMIC, a, 0)), Some((TS_DYNAMIC, b, 0)), None, Some((TS_STATIC, c, 0))])
}

fn delayed() -> impl Strategy<Value = Tables> {
    let table = |table_type| (any_period(), delay()).prop_map(move |(period, delay)| Some((table_type, period, delay)));
    prop_oneof![
        (table(TS_DYNAMIC), table(TS_DYNAMIC), table(TS_STATIC)).prop_map(|(a, b, c)| [a, b, None, c]),
        // By jiffies and with the longest delays, so that pushes can be quiet.
        (prop::sample::select(DELAYS.to_vec()), any::<bool>()).prop_map(|(delay, other)| {
            let table = |table_type| Some((table_type, 1000, delay.max(40)));
            [table(TS_DYNAMIC), table(TS_DYNAMIC), None, table(TS_STATIC).filter(|_| other)]
        }),
    ]
}

fn quiet_as_the_other(setup: &Setup, ops: &[Op]) {
    let [mut a, mut b] = [false, true].map(|quiet| Driver::new(&Setup { quiet, ..setup.clone() }));
    for op in ops {
        a.apply(op);
        b.apply(op);
        for object in 0..setup.objects {
            let (a, b) = (a.engine.object(object), b.engine.object(object));
            for table in 0..TABLES {
                assert_eq!(a.windows[table].sum, b.windows[table].sum);
                assert_eq!(a.windows[table].slide, b.windows[table].slide);
                assert_eq!(a.counts[table].sum, b.counts[table].sum);
            }
        }
    }
    for table in 0..TABLES {
        assert_eq!(a.snapshot(table), b.snapshot(table));
    }
}

/// The delay had other units at the object's latest ordering, which therefore lies in the future: the object is still due.
#[test]
fn quiet_after_a_delay_in_other_units() {
    let table = Some((TS_DYNAMIC, 1000, 40));
    let setup = Setup {
        cpus: 1,
        top: 1,
        objects: 4,
        hz: 100,
        tables: [table, table, None, None],
        quiet: false,
        left: false,
        keeps: false,
    };
    let push = |object, amounts| Op::Push(0, PushOp { object: Some(object), refused: false, part: 0, amounts });
    let set = |period_ms, delay_ms| Op::Set { table: 0, period_ms, delay_ms, enabled: true };
    // By the clock in nanoseconds, and then by jiffies.
    for delay_ms in [1, 10, 100, 1500] {
        let ops = [
            set(40, delay_ms),
            push(0, [1, 1, 0, 0]),
            set(10_000, 10),
            Op::Wait(152_681_998),
            push(1, [3, 0, 0, 0]),
            push(2, [2, 0, 0, 0]),
            push(0, [0, 2, 0, 0]),
            push(0, [1000, 0, 0, 0]),
        ];
        quiet_as_the_other(&setup, &ops);
    }
}

proptest! {
    #![proptest_config(crate::cases(200))]

    /// Rows that are marked as proven are the true top, rows have their true values, and missed[] bounds every object that is not
    /// in a table.
    #[test]
    fn exact(setup in setup(undelayed()), ops in prop::collection::vec(op(false), 1..250)) {
        Driver::run(&setup, &ops);
    }

    /// As `exact`, where pushes leave objects to readers, which order them on any CPU before they read.
    #[test]
    fn exact_when_left(setup in setup(undelayed()), ops in prop::collection::vec(op(false), 1..250)) {
        Driver::run(&Setup { left: true, ..setup }, &ops);
    }

    /// A reader orders an object that was left to it, and the object's first push in that slide comes later: the slide is spread
    /// from that push on.
    #[test]
    fn exact_when_left_before_the_first_push_of_a_slide(
        hz in prop::sample::select(HZ.to_vec()),
        period in any_period(),
        permille in prop::array::uniform3(0u64..150),
        amount in 1u64..1 << 40,
    ) {
        let setup = Setup {
            cpus: 2, top: 1, objects: 2, hz, quiet: false, left: true, keeps: false,
            tables: [Some((TS_DYNAMIC, period, 0)), None, None, None],
        };
        let wait = |permille: u64| Op::Wait(u64::from(period) * 1000 * permille);
        let push = |amount| {
            let push = PushOp { object: Some(0), refused: false, part: 0, amounts: [amount, 0, 0, 0] };
            Op::Nested(0, vec![push], None)
        };
        let [before, pushed, ordered] = permille;
        let mut ops = vec![wait(before), push(1), wait(pushed), Op::Snapshot(0), wait(ordered), push(amount)];
        // Past the end of the period, in steps of a tenth of a slide.
        ops.extend((0..120).flat_map(|_| [wait(10), Op::Snapshot(0)]));
        Driver::run(&setup, &ops);
    }

    /// Rows add up and are alive, whatever settings change in between.
    #[test]
    fn additive(setup in setup(delayed()), left in any::<bool>(), ops in prop::collection::vec(op(true), 1..250)) {
        Driver::run(&Setup { left, ..setup }, &ops);
    }

    /// The quiet path counts the same amounts as the other path, to the same slides, and orders alike.
    #[test]
    fn quiet(setup in setup(delayed()), ops in prop::collection::vec(op(true), 1..250)) {
        quiet_as_the_other(&setup, &ops);
    }

    /// All pushes are within a period: the tables hold the whole top, for every order and CPU of the pushes.
    #[test]
    fn recall_within_a_period(
        cpus in 1usize..=4,
        top in 1u32..=20,
        hz in prop::sample::select(HZ.to_vec()),
        pushes in prop::collection::vec((0usize..4, 0usize..100, 1u64..50, 0u64..4_000_000), 1..600),
    ) {
        let setup = Setup {
            cpus, top, objects: 100, hz, quiet: false, left: false, keeps: true,
            tables: [Some((TS_DYNAMIC, 10_000, 0)), Some((TS_STATIC, 1000, 0)), None, None],
        };
        let mut driver = Driver::new(&setup);
        let mut sums = vec![0; 100];
        for &(cpu, object, amount, wait) in &pushes {
            sums[object] += amount;
            driver.apply(&Op::Wait(wait));
            driver.apply(&Op::Push(cpu, PushOp { object: Some(object), refused: false, part: 0, amounts: [amount; TABLES] }));
        }
        sums.retain(|&sum| sum != 0);
        sums.sort_unstable_by(|a, b| b.cmp(a));
        sums.truncate(top as usize);
        for table in 0..2 {
            let snapshot = driver.snapshot(table);
            let rows: Vec<_> = snapshot.rows.iter().take(top as usize).map(|row| row.value.value).collect();
            prop_assert_eq!(&rows, &sums);
            prop_assert!(snapshot.rows.iter().take(top as usize).all(|row| row.proven));
        }
    }

    /// New objects push in every period, and the old ones fade, or a change of a setting ends their epoch: the table follows. The
    /// whole top is in it, although earlier large objects had taken every slot, and whether or not a reader comes in between.
    #[test]
    fn recall_when_objects_come_and_go(
        top in 1u32..=16,
        rounds in prop::collection::vec((1u64..1000, any::<bool>(), any_period(), 0u64..2_000_000_000), 2..6),
        change in any::<bool>(),
    ) {
        let mut engine = Engine::new(2, top, 6 * 100, 250).unwrap();
        let mut now = 0;
        engine.set_config(0, config(1000, 0, TS_DYNAMIC, true, 1, 250).unwrap());
        for (round, &(scale, read, period, wait)) in rounds.iter().enumerate() {
            let last = round == rounds.len() - 1;
            for object in 0..100 {
                engine.birth(round * 100 + object);
            }
            let period = if change && !last { period } else { 1000 };
            engine.set_config(0, config(period, 0, TS_DYNAMIC, true, 1 + round as u32, 250).unwrap());
            for step in 0..10u64 {
                for object in 0..100 {
                    now += 900_000;
                    engine.set_time(now);
                    let amount = scale * (1 + (object as u64 * 37 + step) % 100);
                    engine.push(object % 2, round * 100 + object, 0, &[amount, 0, 0, 0]);
                }
            }
            if last || read {
                let snapshot = engine.snapshot(0);
                if period == 1000 {
                    let newest = snapshot.rows.iter().take(top as usize).filter(|row| row.id > round as u64 * 100);
                    prop_assert_eq!(newest.count(), top as usize);
                }
            }
            now += wait;
        }
    }

    /// P3, to the grain of the clock; and the next value contains the amounts that were summed in between.
    #[test]
    fn ordered_once_per_delay(
        period in any_period(), delay_ms in 1u32..2000, hz in prop::sample::select(HZ.to_vec()),
        quiet in any::<bool>(), waits in prop::collection::vec(0u64..300_000_000, 1..80),
    ) {
        for table_type in [TS_DYNAMIC, TS_STATIC] {
            let mut engine = Engine::new(1, 1, 1, hz).unwrap();
            engine.quiet = quiet;
            let config = config(period, delay_ms, table_type, true, 1, hz).unwrap();
            engine.set_config(0, config);
            engine.birth(0);
            let mut now = 0;
            let (mut due, mut ordered) = (0, 0);
            for (i, wait) in waits.iter().enumerate() {
                now += wait;
                engine.set_time(now);
                engine.push(0, 0, 0, &[1, 0, 0, 0]);
                let unit = engine.ticks(0) >> config.delay_shift;
                // The unit that would read as "never" counts as the next one.
                let unit = if unit as u32 == u32::MAX { unit + 1 } else { unit };
                if i == 0 || unit - due >= u64::from(config.delay) {
                    (due, ordered) = (unit, ordered + 1);
                }
                prop_assert_eq!(engine.ordered(0, 0, 0), ordered);
            }
        }
    }
}

/// A missed value counts for a period and a slide; then rows are proven again.
#[test]
fn rows_are_proven_again_after_a_period() {
    let mut engine = Engine::new(2, 1, 10, 1000).unwrap();
    engine.set_config(0, config(1000, 0, TS_DYNAMIC, true, 1, 1000).unwrap());
    for object in 0..10 {
        engine.birth(object);
        engine.push(1, object, 0, &[10 + object as u64, 0, 0, 0]);
    }
    let snapshot = engine.snapshot(0);
    assert_eq!((snapshot.missed, snapshot.rows.len()), (17, 2));
    engine.set_time(600_000_000);
    engine.push(0, 3, 0, &[1, 0, 0, 0]);
    let proven: Vec<_> = engine.snapshot(0).rows.iter().map(|row| (row.value.value, row.proven)).collect();
    assert_eq!(proven, [(19, true), (18, true), (14, false)]);
    engine.set_time(1_300_000_000);
    let snapshot = engine.snapshot(0);
    assert_eq!((snapshot.missed, snapshot.rows.len(), snapshot.total), (0, 1, 1));
    assert!(snapshot.rows[0].proven);
}

/// A static table never forgets missed[]. The sum of all pushes that are in no row bounds the objects without a row, too: after
/// pushes that were not ordered, and while there is a delay.
#[test]
fn a_static_row_larger_than_all_that_no_row_has_is_proven() {
    let mut engine = Engine::new(2, 2, 4, 1000).unwrap();
    let set = |delay_ms| config(1000, delay_ms, TS_STATIC, true, 1, 1000).unwrap();
    let proven = |engine: &mut Engine| -> Vec<_> {
        engine.snapshot(0).rows.iter().map(|row| (row.value.value, row.proven)).collect()
    };
    engine.set_config(0, set(0));
    for object in 0..4 {
        engine.birth(object);
    }
    engine.push(0, 0, 0, &[10, 0, 0, 0]);
    engine.push(0, 1, 0, &[6, 0, 0, 0]);
    engine.interrupted(0, |engine| {
        engine.push(0, 2, 0, &[7, 0, 0, 0]);
    });
    assert_eq!(engine.snapshot(0).missed, 7);
    assert_eq!(proven(&mut engine), [(10, true), (6, false)]);
    // The object is in the table now: nothing is absent.
    engine.push(0, 2, 0, &[1, 0, 0, 0]);
    assert_eq!(engine.snapshot(0).missed, 7);
    assert_eq!(proven(&mut engine), [(10, true), (8, true), (6, true)]);
    engine.set_config(0, set(3_600_000));
    engine.push(0, 3, 0, &[7, 0, 0, 0]);
    engine.push(0, 0, 0, &[3, 0, 0, 0]);
    assert_eq!(proven(&mut engine), [(13, true), (8, true), (7, true), (6, true)]);
    engine.kill(0, 3);
    assert_eq!(proven(&mut engine), [(13, true), (8, true), (6, false)]);
}

/// A refused amount may belong to an object larger than a row: for a period and a slide, in a static table for ever.
#[test]
fn what_was_refused_counts_against_smaller_rows() {
    let mut engine = Engine::new(2, 2, 2, 1000).unwrap();
    engine.set_config(0, config(1000, 0, TS_DYNAMIC, true, 1, 1000).unwrap());
    engine.set_config(1, config(1000, 0, TS_STATIC, true, 1, 1000).unwrap());
    engine.birth(0);
    engine.birth(1);
    engine.push(0, 0, 0, &[10, 10, 0, 0]);
    engine.push(1, 1, 0, &[5, 5, 0, 0]);
    let proven = |engine: &mut Engine, table: usize| {
        let snapshot = engine.snapshot(table);
        let rows: Vec<_> = snapshot.rows.iter().map(|row| (row.value.value, row.proven)).collect();
        (snapshot.refused, rows)
    };
    assert_eq!(proven(&mut engine, 0), (0, vec![(10, true), (5, true)]));
    engine.push_refused(0, 0, &[4, 4, 0, 0]);
    engine.push_refused(1, 1, &[3, 3, 0, 0]);
    for table in 0..2 {
        assert_eq!(proven(&mut engine, table), (7, vec![(10, true), (5, false)]));
        assert_eq!(engine.snapshot(table).total, 22);
    }
    engine.set_time(1_300_000_000);
    engine.push(1, 1, 0, &[1, 1, 0, 0]);
    assert_eq!(proven(&mut engine, 0), (0, vec![(1, true)]));
    assert_eq!(proven(&mut engine, 1), (7, vec![(10, true), (6, false)]));
}

fn assert_top_ordered(engine: &Engine, objects: std::ops::Range<usize>) {
    for object in objects {
        assert!(engine.key(0, 0, object).is_some(), "object {object} is not in the table");
    }
}

/// A table full of large objects: newcomers get in by their own pushes, without a reader.
fn full_of_large(top: u32) -> (Engine, usize) {
    let entries = 2 * top as usize;
    let mut engine = Engine::new(1, top, 3 * entries, 1000).unwrap();
    engine.set_config(0, config(1000, 0, TS_DYNAMIC, true, 1, 1000).unwrap());
    for object in 0..3 * entries {
        engine.birth(object);
        if object < entries {
            engine.push(0, object, 0, &[1000, 0, 0, 0]);
        }
    }
    (engine, entries)
}

/// All pushes are in one slide, each with less than the previous one, so that all but the first are refused until an entry that
/// has faded is found.
fn push_falling(engine: &mut Engine, entries: usize) {
    for _ in 0..4 {
        for i in 0..entries {
            engine.push(0, entries + i, 0, &[(entries - i) as u64, 0, 0, 0]);
        }
    }
}

#[test]
fn faded_entries_make_room_in_a_slide() {
    let (mut engine, entries) = full_of_large(8);
    engine.set_time(1_150_000_000);
    push_falling(&mut engine, entries);
    assert_top_ordered(&engine, entries..2 * entries);
}

#[test]
fn entries_of_an_epoch_before_make_room_in_the_same_slide() {
    let (mut engine, entries) = full_of_large(8);
    engine.set_config(0, config(1000, 0, TS_DYNAMIC, true, 2, 1000).unwrap());
    push_falling(&mut engine, entries);
    assert_top_ordered(&engine, entries..2 * entries);
}

/// Objects that were large and continue with small pushes lose their places.
#[test]
fn what_pushes_on_fades_too() {
    let (mut engine, entries) = full_of_large(4);
    for slide in 1..20 {
        engine.set_time(slide * 100_000_000);
        for object in 0..entries {
            engine.push(0, object, 0, &[1, 0, 0, 0]);
        }
        for object in entries..entries + 4 {
            engine.push(0, object, 0, &[10, 0, 0, 0]);
        }
    }
    assert_top_ordered(&engine, entries..entries + 4);
}
