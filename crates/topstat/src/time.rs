// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times as users write them.

use std::time::Duration;

use topstat_history::layout::HOUR;
use topstat_model::human_ms;

/// The shortest interval: below it, a table would be read more often than it is worth.
const SHORTEST: Duration = Duration::from_millis(10);
/// The longest interval: a day.
const LONGEST: Duration = Duration::from_secs(86_400);

/// The longest time for which data is kept: ten years.
const OLDEST: Duration = Duration::from_secs(3660 * 86_400);

/// The longest period and delay of a table: an hour.
const MOST_MS: u32 = 3_600_000;

/// An interval: seconds, or a time with a unit.
pub fn interval(text: &str) -> Result<Duration, String> {
    let time = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => with_unit(text),
    };
    // A number that no Duration can hold is out of range as well, if it is a number.
    let is_number = text.parse::<f64>().is_ok_and(|seconds| !seconds.is_nan());
    match time {
        Some(time) if (SHORTEST..=LONGEST).contains(&time) => Ok(time),
        None if !is_number => Err("not a time: give seconds (0.5) or a unit (500ms, 2s, 1m)".to_owned()),
        _ => Err("an interval is 10ms to 1 day".to_owned()),
    }
}

/// How long data is kept: seconds, or a time with a unit.
pub fn age(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<u64>().ok().map(Duration::from_secs);
    let time = seconds.or_else(|| with_unit(text)).ok_or("not a time: give seconds (3600) or a unit (2h, 7d)")?;
    if time <= OLDEST { Ok(time) } else { Err("at most 10 years".to_owned()) }
}

/// A part of an hour: whole minutes that divide it.
pub fn part_of_hour(text: &str) -> Result<Duration, String> {
    let time = with_unit(text).ok_or("not a time with a unit: give 1m to 1h")?;
    let seconds = time.as_secs();
    if time.subsec_nanos() == 0 && seconds.is_multiple_of(60) && seconds > 0 && HOUR.as_secs().is_multiple_of(seconds) {
        return Ok(time);
    }
    Err("no part of an hour: 1m, 2m, 3m, 4m, 5m, 6m, 10m, 12m, 15m, 20m, 30m or 1h".to_owned())
}

/// The period of a table: milliseconds, or a time with a unit.
pub fn period(text: &str) -> Result<u32, String> {
    milliseconds(text, 1..=MOST_MS)
}

/// The delay of a table: milliseconds, or a time with a unit.
pub fn delay(text: &str) -> Result<u32, String> {
    milliseconds(text, 0..=MOST_MS)
}

fn milliseconds(text: &str, range: std::ops::RangeInclusive<u32>) -> Result<u32, String> {
    let is_number = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    let ms = if is_number {
        text.parse().ok()
    } else {
        let time = with_unit(text).ok_or("not a time: give milliseconds (500) or a unit (500ms, 1s, 1m)")?;
        if time.subsec_nanos() % 1_000_000 != 0 {
            return Err("not a whole number of milliseconds".to_owned());
        }
        u32::try_from(time.as_millis()).ok()
    };
    ms.filter(|ms| range.contains(ms)).ok_or_else(|| {
        let (least, most) = (human_ms(*range.start()), human_ms(*range.end()));
        format!("not in {least} to {most}")
    })
}

fn with_unit(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_hour_divide_it() {
        for (text, seconds) in [("1m", 60), ("5min", 300), ("12m", 720), ("1h", 3600), ("120s", 120)] {
            assert_eq!(part_of_hour(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["7m", "0m", "30s", "2h", "5", "1m 30s", "1m 1ns", "x", ""] {
            part_of_hour(text).unwrap_err();
        }
    }

    #[test]
    fn intervals_are_seconds_or_have_a_unit() {
        for (text, ms) in [
            ("1", 1000),
            ("0.5", 500),
            (".25", 250),
            ("500ms", 500),
            ("2s", 2000),
            ("1m", 60_000),
            ("1m 30s", 90_000),
            ("10ms", 10),
            ("86400", 86_400_000),
        ] {
            assert_eq!(interval(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn bad_intervals_are_refused_with_what_would_be_good() {
        for text in ["", "abc", "1x", "1,5", "NaN", "0x10", "1 s s"] {
            let error = interval(text).unwrap_err();
            assert!(error.starts_with("not a time: give seconds"), "{text}: {error}");
        }
        for text in ["0", "0.001", "-1", "1e300", "inf", "-inf", "86401", "2days", "9ms"] {
            let error = interval(text).unwrap_err();
            assert_eq!(error, "an interval is 10ms to 1 day", "{text}");
        }
    }

    #[test]
    fn periods_and_delays_are_milliseconds_or_have_a_unit() {
        assert_eq!(period("1"), Ok(1));
        assert_eq!(period("1000"), Ok(1000));
        assert_eq!(period("1s"), Ok(1000));
        assert_eq!(period("1h"), Ok(3_600_000));
        assert_eq!(delay("0"), Ok(0));
        assert_eq!(delay("100ms"), Ok(100));
        for (text, why) in [
            ("0", "not in 1ms to 3600s"),
            ("3600001", "not in 1ms to 3600s"),
            ("99999999999999999999", "not in 1ms to 3600s"),
            ("2h", "not in 1ms to 3600s"),
            ("1500us", "not a whole number of milliseconds"),
            ("", "not a time: give milliseconds (500) or a unit (500ms, 1s, 1m)"),
            ("-1", "not a time: give milliseconds (500) or a unit (500ms, 1s, 1m)"),
            ("0.5", "not a time: give milliseconds (500) or a unit (500ms, 1s, 1m)"),
        ] {
            assert_eq!(period(text), Err(why.to_owned()), "{text}");
        }
        assert_eq!(delay("3600001"), Err("not in 0ms to 3600s".to_owned()));
    }
}
