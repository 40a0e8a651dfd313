// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The value of a window at a moment.

use crate::abi::{self, TS_PARTS, ts_config, ts_count, ts_tick, ts_value, ts_window};

/// The value of a window or a count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// The sum of `parts`.
    pub value: u64,
    /// Received and sent, for traffic.
    pub parts: [u64; TS_PARTS as usize],
}

impl From<ts_value> for Value {
    fn from(v: ts_value) -> Self {
        Self { value: v.value, parts: v.part }
    }
}

/// The value, at a moment (see [`tick_at`]), of a window that was copied from the kernel.
///
/// `None` when the copy was taken while a CPU wrote the window's marks, or when the window is two or more slides ahead of the
/// moment: take another copy, or ask for a later moment.
pub fn window_value(window: &ts_window, tick: &ts_tick) -> Option<Value> {
    let mut value = ts_value::default();
    // SAFETY: all three are valid and stay in place for the call, which only reads `window` and `tick`.
    let busy = unsafe { abi::topstat_window_eval(window, tick, &mut value) };
    (busy == 0).then(|| value.into())
}

/// An upper bound of the value of any part of a window's pushes at a moment, however the pushes are divided: the slide in which
/// the period began counts whole. (A part may have been pushed at that slide's end, and not fade yet.) `None` as for
/// [`window_value`].
pub fn window_most(window: &ts_window, tick: &ts_tick) -> Option<u64> {
    window_value(window, &ts_tick { fraction: 0, ..*tick }).map(|most| most.value)
}

/// Whether no CPU was writing to a window when it was copied from the kernel.
pub fn window_is_done(window: &ts_window) -> bool {
    // SAFETY: the window is valid and stays in place for the call, which only reads it.
    unsafe { abi::topstat_window_is_done(window) != 0 }
}

/// The least value of a proven row: no object without a row is larger. `missed` bounds the objects that are in no table (T5).
/// `absent` bounds them, too: in a static table it is the sum of all pushes that are in no row, otherwise `u64::MAX`. `hidden` is
/// the largest object that is in a table and not among the rows. `refused` bounds the unknown part of any object (T6).
///
/// In a dynamic table a push may leave the total a slide before it leaves its object, and a burst fades later than the total as a
/// whole: the pushes that are in no row do not bound an object there.
pub fn proof(missed: u64, absent: u64, hidden: u64, refused: u64) -> u64 {
    missed.min(absent).max(hidden).saturating_add(refused)
}

/// The value of an object of a static table: the running total.
pub fn count_value(count: &ts_count) -> Value {
    Value { value: count.sum.iter().fold(0, |sum, part| sum.wrapping_add(*part)), parts: count.sum }
}

/// The tick of `now` in the slides of a table. `now` is in ticks of the table's clock: jiffies, or nanoseconds where the table is
/// `precise`.
pub fn tick_at(config: &ts_config, now: u64) -> ts_tick {
    let mut tick = ts_tick::default();
    // SAFETY: both are valid and stay in place for the call. A tick of all zeroes is out of date for every moment, so the call
    // computes all of it.
    unsafe { abi::topstat_tick_to(&mut tick, config, now) };
    tick
}
