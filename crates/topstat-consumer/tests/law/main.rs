// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests the control law against a simulated producer: the invariants of `law.rs` (L1 to L3), and their consequences.

mod simulation;

use proptest::prelude::*;
use proptest::strategy::Strategy;
use simulation::{Machine, Outcome, Piece, Simulation};
use topstat_consumer::law::{Fills, IDLE_NS, LEAST_SHARE, LONGEST_NS, Law, Next, SHORTEST_NS, Wake};

const FULL: u64 = 8 << 20;
const FILLS: Fills = Fills { full: FULL, target: FULL * 40 / 100, wake: FULL / 2 };
const MS: u64 = 1_000_000;
/// Bytes per µs: 12 GB/s, more than a traced system call can write.
const FASTEST: u64 = 12_000;
/// The consumer reads only heads, however long records are.
const DRAINS: u64 = 100_000;

fn quiet() -> Machine {
    Machine { drains: DRAINS, latency_ns: 30_000, descheduled: Vec::new() }
}

fn adaptive(load: &[Piece], machine: &Machine) -> Outcome {
    let mut law = Law::new(FILLS);
    Simulation::new(FILLS, load, machine).run(|seen| (law.next(seen), law.rate()))
}

/// Repeats the pieces.
fn again(pieces: &[(u64, u64)], times: usize) -> Vec<Piece> {
    pieces.iter().map(|&(rate, us)| Piece { rate, ns: us * 1000 }).cycle().take(pieces.len() * times).collect()
}

/// Rates from slow to fast: each order of magnitude is equally frequent.
fn rate() -> impl Strategy<Value = u64> {
    (0.0f64..(FASTEST as f64).log10()).prop_map(|exponent| 10f64.powf(exponent) as u64)
}

fn steady() -> impl Strategy<Value = Vec<Piece>> {
    rate().prop_map(|rate| vec![Piece { rate, ns: 500 * MS }])
}

/// One burst and one gap, repeated.
fn bursts() -> impl Strategy<Value = Vec<Piece>> {
    (rate(), 1..5000u64, 1..40_000u64).prop_map(|(rate, on, off)| {
        let both = [Piece { rate, ns: on * 1000 }, Piece { rate: 0, ns: off * 1000 }];
        both.into_iter().cycle().take(100).collect()
    })
}

/// Ramps up to a rate and down again, in steps.
fn ramps() -> impl Strategy<Value = Vec<Piece>> {
    (rate(), 1..40u64, 1..20u64).prop_map(|(top, steps, ms)| {
        let up = (0..=steps).map(|step| top * step / steps);
        let down = up.clone().rev();
        up.chain(down).map(|rate| Piece { rate, ns: ms * MS }).collect()
    })
}

/// Any load.
fn wild() -> impl Strategy<Value = Vec<Piece>> {
    let piece = (prop_oneof![Just(0), rate()], 1..20_000u64).prop_map(|(rate, us)| Piece { rate, ns: us * 1000 });
    proptest::collection::vec(piece, 1..60)
}

fn any_load() -> impl Strategy<Value = Vec<Piece>> {
    prop_oneof![steady(), bursts(), ramps(), wild()]
}

/// Moments at which another thread takes the CPU, and for how long.
fn descheduled(most_us: u64) -> impl Strategy<Value = Vec<(u64, u64)>> {
    proptest::collection::vec((0..500 * MS, (1..most_us).prop_map(|us| us * 1000)), 0..50)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// L1 and L3, for any load and any lateness of the scheduler.
    #[test]
    fn it_never_sleeps_past_the_moment_the_ring_is_full(load in any_load(), descheduled in descheduled(8000)) {
        let outcome = adaptive(&load, &Machine { descheduled, ..quiet() });
        for (unread, rate, late, ns) in outcome.decisions {
            prop_assert!(ns <= LONGEST_NS || ns == IDLE_NS);
            let to_full = (FULL as f64 - unread) / rate;
            let to_target = (FILLS.target as f64 - unread) / rate;
            // Without a rate the ring is never full.
            if rate > 0.0 {
                prop_assert!(ns as f64 <= to_full + 1.0, "it sleeps {ns} ns, and the ring is full in {to_full}");
                let in_time = (to_full - late as f64).max(to_target / LEAST_SHARE as f64);
                prop_assert!(ns as f64 <= in_time + 1.0, "{late} ns late of late, it sleeps {ns} of {to_full}");
            }
        }
    }

    /// L2: it sleeps, and wakes up no more often than it has to.
    #[test]
    fn at_a_steady_rate_it_does_not_spin(load in steady()) {
        let outcome = adaptive(&load, &quiet());
        let targets = outcome.produced / FILLS.target as f64;
        // Latency, and bytes that come while it drains, make fills larger and sleeps fewer. It also sleeps at slow rates.
        let most = 1.5 * targets + 2.0 * outcome.ns as f64 / LONGEST_NS as f64 + 5.0;
        prop_assert_eq!(outcome.spins, 0);
        prop_assert!(outcome.sleeps as f64 <= most, "{} sleeps, for {targets:.0} target fills", outcome.sleeps);
        // Two events may wake it: the first one, and one before the rate is known. All others are foreseen.
        prop_assert!(outcome.rung <= 3, "{} times it had to be woken", outcome.rung);
    }

    /// Nothing is dropped while the scheduler runs the consumer in time: a producer that fills the rest of the ring in that time
    /// would be faster than any program is.
    #[test]
    fn nothing_is_dropped_on_a_quiet_machine(load in any_load()) {
        let outcome = adaptive(&load, &quiet());
        prop_assert!(outcome.dropped == 0.0, "{} bytes of {} are dropped", outcome.dropped, outcome.produced);
    }

    /// Nothing is dropped either where another thread takes the CPU now and then, for at most a third of the time in which the
    /// rest of the ring is filled. The consumer may have to wait when it wakes up, and again while it drains.
    #[test]
    fn nothing_is_dropped_while_the_rest_of_the_ring_lasts(load in any_load(), mut wished in descheduled(1_000_000)) {
        let fastest = load.iter().map(|piece| piece.rate).max().unwrap_or(0).max(1);
        let lasts = (FULL - FILLS.wake) * 1000 / fastest;
        let most = (lasts / 3).saturating_sub(quiet().latency_ns);
        // Two pauses at once would be a longer one.
        let mut descheduled = Vec::new();
        let mut free_from = 0;
        wished.sort_unstable();
        for (from, ns) in wished {
            if from >= free_from && most > 0 {
                let ns = ns % most + 1;
                free_from = from + ns + 2 * lasts;
                descheduled.push((from, ns));
            }
        }
        let outcome = adaptive(&load, &Machine { descheduled, ..quiet() });
        prop_assert!(outcome.dropped == 0.0, "{} bytes of {} are dropped", outcome.dropped, outcome.produced);
    }

    /// L3: no event waits longer than a person notices.
    #[test]
    fn nothing_waits_longer_than_the_longest_sleep(load in any_load()) {
        let outcome = adaptive(&load, &quiet());
        prop_assert!(outcome.waited_ns <= LONGEST_NS + quiet().latency_ns + 100_000, "{} ns", outcome.waited_ns);
    }

    /// An event wakes it only where the fill is worth a wake-up, never at each event.
    #[test]
    fn producers_wake_it_once_for_a_fill(load in any_load()) {
        let outcome = adaptive(&load, &quiet());
        let fills = outcome.produced / FILLS.wake as f64;
        let most = fills + outcome.ns as f64 / LONGEST_NS as f64 + 1.0;
        prop_assert!(outcome.rung as f64 <= most, "{} times, for {fills:.0} fills", outcome.rung);
    }
}

#[test]
fn idle_costs_next_to_nothing() {
    let outcome = adaptive(&[Piece { rate: 0, ns: 10_000 * MS }], &quiet());
    // Once it knows that no event comes, it checks five times a second whether it has to stop.
    assert!(outcome.sleeps <= 10_000 * MS / IDLE_NS + 3, "{} sleeps in 10 s", outcome.sleeps);
}

#[test]
fn the_first_event_after_a_rest_wakes_it_at_once() {
    let load = [Piece { rate: 0, ns: 1000 * MS }, Piece { rate: 1, ns: MS }, Piece { rate: 0, ns: 1000 * MS }];
    let machine = quiet();
    let outcome = adaptive(&load, &machine);
    assert_eq!(outcome.rung, 1);
    // Events after the first wait until the longest sleep is over.
    assert!(outcome.waited_ns <= LONGEST_NS + machine.latency_ns + SHORTEST_NS);
}

/// 20 MB in 2 ms, then 5 ms of rest.
const BURST: [(u64, u64); 2] = [(10_000, 2000), (0, 5000)];

#[test]
fn a_burst_is_met_like_the_last_one() {
    // Of the five fills of a burst, the first may wake it; the others are foreseen.
    let outcome = adaptive(&again(&BURST, 100), &quiet());
    assert!(outcome.rung <= 100 + 5, "{} times it had to be woken in 100 bursts", outcome.rung);
}

#[test]
fn a_short_pause_makes_no_difference() {
    let outcome = adaptive(&again(&[(10_000, 5000), (0, 300)], 100), &quiet());
    assert!(outcome.rung <= 10, "{} times it had to be woken after 100 pauses", outcome.rung);
}

#[test]
fn a_late_scheduler_does_not_make_it_spin() {
    // Every 10 ms another thread has the CPU for longer than the ring takes to fill.
    let descheduled = (0..50).map(|i| (i * 10 * MS, 5 * MS)).collect();
    let outcome = adaptive(&[Piece { rate: 10_000, ns: 500 * MS }], &Machine { descheduled, ..quiet() });
    assert_eq!(outcome.spins, 0);
}

#[test]
fn bursts_are_met_where_doubling_drops() {
    let load = again(&BURST, 100);
    // falco's law: 0.5 ms after an event, and twice as long each time while none comes.
    let mut slept_ns = 0;
    let doubling = Simulation::new(FILLS, &load, &quiet()).run(|seen| {
        slept_ns = if seen.progress { MS / 2 } else { (slept_ns * 2).clamp(MS / 2, LONGEST_NS) };
        (Next::Sleep { ns: slept_ns, wake: Wake::Nobody }, 0.0)
    });
    assert_eq!(adaptive(&load, &quiet()).dropped, 0.0);
    assert!(doubling.dropped > doubling.produced / 10.0, "the load is too easy: {doubling:?}");
}
