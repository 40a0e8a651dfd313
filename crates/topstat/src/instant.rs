// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instants as users write them, in the time zone of the output: the zone of TZ, the zone of the host, or UTC with `--utc`.

use std::time::SystemTime;

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _, Zoned};

const WANTED: &str = "a clock time (03:12), a date with one (2026-11-21 03:12), or how long ago (-5m)";

/// The instant that a text means: `03:12` (the last time that the clock showed it), `2026-11-21 03:12`,
/// `2026-11-21T03:12:00Z`, `-5m`, `now`.
///
/// # Errors
///
/// When the text is no instant. The error names the accepted forms.
pub fn parse(text: &str, now: SystemTime) -> Result<SystemTime, String> {
    parse_in(text, now, topstat_model::zone())
}

fn parse_in(text: &str, now: SystemTime, zone: TimeZone) -> Result<SystemTime, String> {
    let text = text.trim();
    let wrong = || format!("not a time: give {WANTED}");
    let now = Timestamp::try_from(now).map_err(|_| wrong())?.to_zoned(zone);
    if text == "now" {
        return Ok(now.timestamp().into());
    }
    let zoned = match text.strip_prefix('-') {
        Some(ago) => ago_of(&now, ago).ok_or_else(wrong)?,
        None => clock(&now, text).ok_or_else(wrong)?,
    };
    Ok(zoned.timestamp().into())
}

fn ago_of(now: &Zoned, text: &str) -> Option<Zoned> {
    let ago = humantime::parse_duration(text).ok()?;
    now.checked_sub(SignedDuration::try_from(ago).ok()?).ok()
}

fn clock(now: &Zoned, text: &str) -> Option<Zoned> {
    // The text names a zone: `…Z`, `…+01:00`.
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Some(timestamp.to_zoned(now.time_zone().clone()));
    }
    // The time is today's, unless that is still to come.
    if let Some(time) = time_of_day(text) {
        let today = now.date().to_datetime(time).to_zoned(now.time_zone().clone()).ok()?;
        if today <= *now {
            return Some(today);
        }
        return now.date().checked_sub(1.day()).ok()?.to_datetime(time).to_zoned(now.time_zone().clone()).ok();
    }
    text.parse::<DateTime>().ok()?.to_zoned(now.time_zone().clone()).ok()
}

/// `03:12`, `3:12`, `03:12:30`.
fn time_of_day(text: &str) -> Option<Time> {
    let parts: Vec<_> = text.split(':').collect();
    let two = |text: &&str| (1..=2).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit());
    if !(2..=3).contains(&parts.len()) || !parts.iter().all(two) {
        return None;
    }
    let number = |place: usize| parts.get(place).map_or(Some(0), |text| text.parse::<i8>().ok());
    Time::new(number(0)?, number(1)?, number(2)?, 0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    /// 2026-11-21T08:00:00Z
    const NOW: u64 = 1_795_248_000;

    fn at(text: &str, zone: &str) -> Result<u64, String> {
        let zone = TimeZone::posix(zone).unwrap();
        let time = parse_in(text, UNIX_EPOCH + Duration::from_secs(NOW), zone)?;
        Ok(time.duration_since(UNIX_EPOCH).unwrap().as_secs())
    }

    #[test]
    fn an_instant_is_a_clock_time_a_date_or_how_long_ago() {
        for (text, zone, ago) in [
            ("03:12", "UTC0", 4 * 3600 + 48 * 60),
            ("8:00:00", "UTC0", 0),
            // This time is still to come today, so it is yesterday's.
            ("08:01", "UTC0", 24 * 3600 - 60),
            // The clock of this zone shows 09:00.
            ("03:12", "CET-1", 5 * 3600 + 48 * 60),
            ("2026-11-21 07:00", "UTC0", 3600),
            ("2026-11-21T07:00:30", "CET-1", 2 * 3600 - 30),
            ("2026-11-21T07:00:00Z", "CET-1", 3600),
            ("2026-11-21T09:00:00+02:00", "UTC0", 3600),
            ("-5m", "UTC0", 300),
            ("-1h 30m", "UTC0", 5400),
            ("now", "UTC0", 0),
            // The form of the output.
            ("2026-11-21T08:59:59.500+01:00", "UTC0", 1),
        ] {
            assert_eq!(at(text, zone), Ok(NOW - ago), "{text} {zone}");
        }
    }

    /// Central European time, on the days when the clock is put forward and back.
    #[test]
    fn a_clock_time_that_there_is_twice_or_never_is_the_first_of_two_or_what_the_clock_showed_then() {
        let at = |text: &str, now: u64| {
            let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
            let time = parse_in(text, UNIX_EPOCH + Duration::from_secs(now), zone).unwrap();
            time.duration_since(UNIX_EPOCH).unwrap().as_secs()
        };
        const AUTUMN: u64 = 1_792_890_000; // 2026-10-25T01:00:00Z, 03:00 becomes 02:00
        assert_eq!(at("02:30", AUTUMN + 7200), AUTUMN - 1800);
        assert_eq!(at("2026-10-25T02:30:00+01:00", AUTUMN + 7200), AUTUMN + 1800);
        assert_eq!(at("-1h", AUTUMN + 1800), AUTUMN - 1800, "an hour is an hour");
        const SPRING: u64 = 1_774_746_000; // 2026-03-29T01:00:00Z, 02:00 becomes 03:00
        assert_eq!(at("02:30", SPRING + 7200), SPRING + 1800, "03:30 of summer time");
    }

    #[test]
    fn what_is_none_is_refused_with_what_would_be_one() {
        for text in ["", "abc", "25:00", "03:60", "3", "2026-13-01 00:00", "-x", "5m"] {
            assert_eq!(at(text, "UTC0"), Err(format!("not a time: give {WANTED}")), "{text}");
        }
    }
}
