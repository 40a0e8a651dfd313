// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The settings of a table: converts milliseconds to the units that the kernel computes with.

use crate::abi::{
    TS_DYNAMIC, TS_EPOCH_SHIFT, TS_SLIDES, TS_SPARE, TS_STATIC, TS_SWITCH_ALL, TS_SWITCH_SYNC, TS_TOP_MAX, TS_TOP_MIN,
    ts_config,
};

/// The longest period and the longest delay, in milliseconds: an hour.
pub const MS_MAX: u32 = 3_600_000;
/// With fewer jiffies to a slide, the clock's grain would show in the values.
const JIFFIES_PER_SLIDE_MIN: u64 = 10;
/// Slides are whole jiffies. Where that makes the period longer or shorter by more than one part in this many, the clock is
/// nanoseconds; otherwise values would be off by that part.
const ROUNDING: u64 = 200;
/// As `ROUNDING`, with the jiffy in which the period ends: a push counts through that jiffy.
const ROUNDING_AND_GRAIN: u64 = 100;
/// Delays are counted in units of 2^20 ns, about a millisecond: they have 32 bits.
const PRECISE_DELAY_SHIFT: u32 = 20;
/// No kernel ticks faster (CONFIG_HZ is 1000 at most, 1024 on some architectures).
const HZ_MAX: u32 = 10_000;
/// The fixed point of `ts_config.fraction`.
const FRACTION_ONE: u64 = 1 << 56;
const NS_PER_MS: u64 = 1_000_000;
const MS_PER_S: u64 = 1000;

/// A setting that a table can't have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The period is out of range.
    #[error("period of {0} ms is out of range: 1 to {MS_MAX} ms are allowed")]
    Period(u32),
    /// The delay is out of range.
    #[error("delay of {0} ms is out of range: 0 to {MS_MAX} ms are allowed")]
    Delay(u32),
    /// The number of rows is out of range.
    #[error("a table of {0} rows is out of range: {TS_TOP_MIN} to {TS_TOP_MAX} rows are allowed")]
    Top(u32),
    /// The type is neither dynamic nor static.
    #[error("type {0} of a table: {TS_DYNAMIC} (dynamic) and {TS_STATIC} (static) are allowed")]
    Type(u32),
    /// Epochs have 16 bits, and 0 stands for no table.
    #[error("epoch {0}: 1 to 65535 are allowed")]
    Epoch(u32),
    /// The kernel's tick rate is not known.
    #[error("a kernel of {0} jiffies a second: 1 to {HZ_MAX} are allowed")]
    Hz(u32),
}

/// The contents of a table's `ts_config`. The caller writes the epoch last. `epoch` must change whenever the period does; `hz` is
/// the kernel's number of jiffies a second. The `switches` are all on, and `quiet` is as for the only table of a sample: a caller
/// with several tables sets both.
///
/// The clock is jiffies where a slide has at least ten of them, and where whole jiffies change no value by more than 1%;
/// otherwise it is nanoseconds.
pub fn config(
    period_ms: u32,
    delay_ms: u32,
    table_type: u32,
    enabled: bool,
    epoch: u32,
    hz: u32,
) -> Result<ts_config, Error> {
    if !(1..=MS_MAX).contains(&period_ms) {
        return Err(Error::Period(period_ms));
    }
    if delay_ms > MS_MAX {
        return Err(Error::Delay(delay_ms));
    }
    if table_type != TS_DYNAMIC && table_type != TS_STATIC {
        return Err(Error::Type(table_type));
    }
    if !(1..1 << (u64::BITS - TS_EPOCH_SHIFT)).contains(&epoch) {
        return Err(Error::Epoch(epoch));
    }
    if !(1..=HZ_MAX).contains(&hz) {
        return Err(Error::Hz(hz));
    }
    let (period, delay, slides) = (u64::from(period_ms), u64::from(delay_ms), u64::from(TS_SLIDES));
    // All in jiffies times MS_PER_S, except the slide.
    let exact = period * u64::from(hz);
    let in_jiffies = (exact + slides * MS_PER_S / 2) / (slides * MS_PER_S);
    let rounded = in_jiffies * slides * MS_PER_S;
    let precise = exact < slides * JIFFIES_PER_SLIDE_MIN * MS_PER_S
        || rounded.abs_diff(exact) * ROUNDING > exact
        || (rounded + MS_PER_S).abs_diff(exact) * ROUNDING_AND_GRAIN > exact;
    let (slide, units, delay_shift) = if precise {
        (period * NS_PER_MS / slides, (delay * NS_PER_MS).div_ceil(1 << PRECISE_DELAY_SHIFT), PRECISE_DELAY_SHIFT)
    } else {
        (in_jiffies, (delay * u64::from(hz)).div_ceil(MS_PER_S), 0)
    };
    Ok(ts_config {
        enabled: u32::from(enabled),
        type_: table_type,
        epoch,
        precise: u32::from(precise),
        slide,
        fraction: FRACTION_ONE / slide,
        delay: u32::try_from(units).expect("an hour at 10 kHz has 25 bits"),
        delay_shift,
        period_ms,
        delay_ms,
        switches: TS_SWITCH_ALL | TS_SWITCH_SYNC,
        quiet: u32::from(units > 0),
        raised_ms: 0,
        pad: 0,
    })
}

/// The entries of a table of `top` rows.
pub fn entries_for(top: u32) -> Result<u32, Error> {
    if !(TS_TOP_MIN..=TS_TOP_MAX).contains(&top) {
        return Err(Error::Top(top));
    }
    Ok((top * TS_SPARE).next_power_of_two())
}

/// The bytes of a table with this number of entries (see [`entries_for`]). They are a multiple of a cache line, so that tables
/// can follow each other in memory.
pub fn table_size(entries: u32) -> usize {
    // SAFETY: computes with its argument alone.
    let bytes = unsafe { crate::abi::topstat_table_size(entries) };
    usize::try_from(bytes).expect("a table fits in memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jiffies_where_ten_make_a_slide() {
        for (period, hz, precise, slide) in [
            (1000, 250, 0, 25),
            (1000, 100, 0, 10),
            (1000, 1000, 0, 100),
            (3_600_000, 1000, 0, 360_000),
            (999, 100, 1, 99_900_000),
            (100, 1000, 0, 10),
            (99, 1000, 1, 9_900_000),
            (1, 1000, 1, 100_000),
            // 10.5 jiffies: neither 10 nor 11 is close enough.
            (1050, 100, 1, 105_000_000),
            (1005, 250, 0, 25),
            // 10.95 jiffies: rounded, and with the jiffy in which a push ends, 1.4% too long.
            (1095, 100, 1, 109_500_000),
        ] {
            let c = config(period, 0, TS_DYNAMIC, true, 1, hz).unwrap();
            assert_eq!((c.precise, c.slide), (precise, slide), "{period} ms at {hz} Hz");
            assert_eq!(c.fraction, (1 << 56) / slide);
        }
    }

    #[test]
    fn delays_are_rounded_up() {
        for (period, delay, hz, units, shift) in [
            (1000, 0, 250, 0, 0),
            (1000, 1, 250, 1, 0),
            (1000, 4, 250, 1, 0),
            (1000, 5, 250, 2, 0),
            (1000, 3_600_000, 1000, 3_600_000, 0),
            (10, 0, 250, 0, 20),
            (10, 1, 250, 1, 20),
            (10, 2, 250, 2, 20),
            (10, 3_600_000, 250, 3_433_228, 20),
        ] {
            let c = config(period, delay, TS_STATIC, false, 7, hz).unwrap();
            assert_eq!((c.delay, c.delay_shift), (units, shift), "{delay} ms at {hz} Hz");
            assert_eq!((c.period_ms, c.delay_ms, c.epoch, c.enabled), (period, delay, 7, 0));
        }
    }

    #[test]
    fn errors_name_what_is_allowed() {
        for (period, delay, epoch, hz, message) in [
            (0, 0, 1, 250, "period of 0 ms is out of range: 1 to 3600000 ms are allowed"),
            (3_600_001, 0, 1, 250, "period of 3600001 ms is out of range: 1 to 3600000 ms are allowed"),
            (1, 3_600_001, 1, 250, "delay of 3600001 ms is out of range: 0 to 3600000 ms are allowed"),
            (1, 0, 0, 250, "epoch 0: 1 to 65535 are allowed"),
            (1, 0, 65_536, 250, "epoch 65536: 1 to 65535 are allowed"),
            (1, 0, 1, 0, "a kernel of 0 jiffies a second: 1 to 10000 are allowed"),
        ] {
            let error = config(period, delay, TS_DYNAMIC, true, epoch, hz).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn entries_are_a_power_of_two() {
        for (top, entries) in [(1, 2), (2, 4), (3, 8), (100, 256), (128, 256), (1000, 2048), (1024, 2048)] {
            assert_eq!(entries_for(top), Ok(entries));
            assert!(table_size(entries) > 64 * entries as usize);
            assert_eq!(table_size(entries) % 64, 0);
        }
        for top in [0, 1025, u32::MAX] {
            let error = entries_for(top).unwrap_err();
            assert_eq!(error.to_string(), format!("a table of {top} rows is out of range: 1 to 1024 rows are allowed"));
        }
    }
}
