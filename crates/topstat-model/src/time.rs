// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instants as text: in the time zone of the reader, with its offset, so that each text stands for one instant.

use std::sync::{PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The time zone in which instants are written and read; UTC where none was set.
static ZONE: RwLock<Option<TimeZone>> = RwLock::new(None);

/// Sets the time zone in which the whole process writes and reads instants.
pub fn use_zone(zone: TimeZone) {
    *ZONE.write().unwrap_or_else(PoisonError::into_inner) = Some(zone);
}

/// The time zone in which instants are written and read.
pub fn zone() -> TimeZone {
    ZONE.read().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or(TimeZone::UTC)
}

/// An instant as RFC 3339 with milliseconds and the offset that its time zone has then: `2026-11-21T09:00:00.000+01:00`, in
/// UTC `2026-11-21T08:00:00.000Z`.
///
/// A clock that is set to before 1970 or to the end of the year 9999 is shown as the nearest instant that can be written.
pub fn rfc3339(time: SystemTime) -> String {
    written(time, "%Y-%m-%dT%H:%M:%S%.3f", &zone())
}

/// As [`rfc3339`], with nanoseconds.
pub(crate) fn rfc3339_local_nanos(time: SystemTime) -> String {
    written(time, "%Y-%m-%dT%H:%M:%S%.9f", &zone())
}

/// As [`rfc3339`], in UTC with nanoseconds, for files that are read on other hosts.
pub(crate) fn rfc3339_nanos(time: SystemTime) -> String {
    written(time, "%Y-%m-%dT%H:%M:%S%.9f", &TimeZone::UTC)
}

/// An instant to the minute: `2026-11-21T09:00+01:00`.
pub fn to_the_minute(time: SystemTime) -> String {
    written(time, "%Y-%m-%dT%H:%M", &zone())
}

/// The time of the day alone, to the second: `09:00:00`, in the zone of the other times.
pub fn to_the_second(time: SystemTime) -> String {
    written(time, "%H:%M:%S", &zone())
}

/// The time of the day alone, with microseconds: `09:00:00.000123+01:00`.
pub(crate) fn clock(time: SystemTime) -> String {
    written(time, "%H:%M:%S%.6f", &zone())
}

/// Parses an instant in RFC 3339, with any offset.
pub fn parse_rfc3339(text: &str) -> Option<SystemTime> {
    // The first parser is for instants in UTC, up to the last of the year 9999.
    humantime::parse_rfc3339(text).ok().or_else(|| text.parse::<Timestamp>().ok().map(SystemTime::from))
}

/// The last instant that can be written in every time zone.
fn last() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(Timestamp::MAX.as_millisecond().unsigned_abs())
}

/// Whether a time zone is UTC by one of its names. A host without a time zone has UTC.
fn is_utc(zone: &TimeZone) -> bool {
    const NAMES: [&str; 4] = ["UTC", "UCT", "Universal", "Zulu"];
    let name = zone.iana_name().unwrap_or_default();
    zone.is_unknown() || NAMES.contains(&name.strip_prefix("Etc/").unwrap_or(name))
}

fn written(time: SystemTime, format: &str, zone: &TimeZone) -> String {
    let time = Timestamp::try_from(time.clamp(UNIX_EPOCH, last())).unwrap_or(Timestamp::MAX);
    let offset = if is_utc(zone) { "Z" } else { "%:z" };
    time.to_zoned(zone.clone()).strftime(&format!("{format}{offset}")).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: &str = "%Y-%m-%dT%H:%M:%S%.3f";

    fn in_zone(seconds: u64, zone: &str) -> String {
        written(UNIX_EPOCH + Duration::from_secs(seconds), MS, &TimeZone::posix(zone).unwrap())
    }

    #[test]
    fn instants_are_utc_with_milliseconds_where_no_zone_was_set() {
        let at = |ms| rfc3339(UNIX_EPOCH + Duration::from_millis(ms));
        assert_eq!(at(1_795_248_000_000), "2026-11-21T08:00:00.000Z");
        assert_eq!(at(7), "1970-01-01T00:00:00.007Z");
        let time = UNIX_EPOCH + Duration::new(1_795_248_000, 123_456_789);
        assert_eq!(rfc3339_nanos(time), "2026-11-21T08:00:00.123456789Z");
        assert_eq!((to_the_minute(time).as_str(), clock(time).as_str()), ("2026-11-21T08:00Z", "08:00:00.123456Z"));
    }

    /// Central European time: the clock goes from 02:00 to 03:00 on 2026-03-29, and from 03:00 back to 02:00 on 2026-10-25.
    const CET: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

    #[test]
    fn an_hour_that_a_clock_shows_twice_is_told_by_its_offset() {
        const SPRING: u64 = 1_774_746_000; // 2026-03-29T01:00:00Z
        const AUTUMN: u64 = 1_792_890_000; // 2026-10-25T01:00:00Z
        for (seconds, text) in [
            (SPRING - 1, "2026-03-29T01:59:59.000+01:00"),
            (SPRING, "2026-03-29T03:00:00.000+02:00"),
            (AUTUMN - 1800, "2026-10-25T02:30:00.000+02:00"),
            (AUTUMN - 1, "2026-10-25T02:59:59.000+02:00"),
            (AUTUMN, "2026-10-25T02:00:00.000+01:00"),
            (AUTUMN + 1800, "2026-10-25T02:30:00.000+01:00"),
        ] {
            assert_eq!(in_zone(seconds, CET), text);
            assert_eq!(parse_rfc3339(text), Some(UNIX_EPOCH + Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(in_zone(AUTUMN, "<+0545>-5:45"), "2026-10-25T06:45:00.000+05:45");
        assert_eq!(in_zone(AUTUMN, "NST3:30"), "2026-10-24T21:30:00.000-03:30");
        assert_eq!(in_zone(AUTUMN, "GMT0BST,M3.5.0/1,M10.5.0"), "2026-10-25T01:00:00.000+00:00");
        assert!(is_utc(&TimeZone::UTC) && is_utc(&TimeZone::unknown()));
    }

    #[test]
    fn clocks_outside_the_range_are_clamped() {
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(last() + Duration::from_secs(1)), "9999-12-30T22:00:00.999Z");
        let text = "9999-12-31T23:59:59.999Z";
        assert!(parse_rfc3339(text).is_some_and(|time| time > last()), "what earlier versions wrote is read");
        assert_eq!(parse_rfc3339("2026-11-21 08:00"), None);
    }
}
