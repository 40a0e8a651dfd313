// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instants as text.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// 9999-12-31T23:59:59.999Z, the last instant that RFC 3339 can write.
const LAST_MS: u64 = 253_402_300_799_999;

/// An instant as RFC 3339 in UTC with milliseconds: `2026-11-21T08:00:00.000Z`.
///
/// A clock that is set to before 1970 or after 9999 is shown as the nearest instant that can be written.
pub fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(in_range(time)).to_string()
}

/// The same with nanoseconds.
pub(crate) fn rfc3339_nanos(time: SystemTime) -> String {
    humantime::format_rfc3339_nanos(in_range(time)).to_string()
}

/// The time of the day alone, in UTC, with microseconds: `08:00:00.000123`.
pub(crate) fn clock(time: SystemTime) -> String {
    let written = humantime::format_rfc3339_micros(in_range(time)).to_string();
    written["2026-11-21T".len()..].trim_end_matches('Z').to_owned()
}

/// The nearest instant that can be written.
fn in_range(time: SystemTime) -> SystemTime {
    time.clamp(UNIX_EPOCH, UNIX_EPOCH + Duration::from_millis(LAST_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_utc_with_milliseconds() {
        let at = |ms| rfc3339(UNIX_EPOCH + Duration::from_millis(ms));
        assert_eq!(at(1_795_248_000_000), "2026-11-21T08:00:00.000Z");
        assert_eq!(at(7), "1970-01-01T00:00:00.007Z");
    }

    #[test]
    fn clocks_outside_the_range_are_clamped() {
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_millis(LAST_MS + 1)), "9999-12-31T23:59:59.999Z");
    }
}
