// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The units of values, and how values are written for people.

/// The unit of a table's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Packets on a wire or through a layer; the sample says which.
    Packets,
    /// Bits: `4.50Gbit`.
    Bits,
    /// Bytes: `4.19GiB`.
    Bytes,
    /// TCP segments.
    Segments,
    /// Time, of whatever clock the sample uses: `12.3ms`.
    Nanoseconds,
    /// Any other counts: events, calls, errors.
    Count,
}

/// A larger unit: the value, in basic units, from which on it is used, and its name.
type Step = (f64, &'static str);

const SI: &[Step] = &[(1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P"), (1e18, "E")];
const SI_BIT: &[Step] = &[(1e3, "kbit"), (1e6, "Mbit"), (1e9, "Gbit"), (1e12, "Tbit"), (1e15, "Pbit"), (1e18, "Ebit")];
const KIB: f64 = 1024.0;
const IEC: &[Step] = &[
    (KIB, "KiB"),
    (KIB * KIB, "MiB"),
    (KIB * KIB * KIB, "GiB"),
    (KIB * KIB * KIB * KIB, "TiB"),
    (KIB * KIB * KIB * KIB * KIB, "PiB"),
    (KIB * KIB * KIB * KIB * KIB * KIB, "EiB"),
];
const TIME: &[Step] = &[(1e3, "µs"), (1e6, "ms"), (1e9, "s"), (6e10, "min"), (3.6e12, "h"), (8.64e13, "d")];

impl Unit {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Packets, Self::Bits, Self::Bytes, Self::Segments, Self::Nanoseconds, Self::Count];

    /// The name in JSON, and in the titles of text: `packets`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Bits => "bits",
            Self::Bytes => "bytes",
            Self::Segments => "segments",
            Self::Nanoseconds => "nanoseconds",
            Self::Count => "count",
        }
    }

    /// The unit with this [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name() == name)
    }

    /// A value with three significant digits in the largest unit that fits: `990`, `1.23M`, `4.50Gbit`, `1.00KiB`,
    /// `12.3ms`. Values below the first larger unit are exact.
    pub fn human(self, value: u64) -> String {
        let (basic, steps) = self.steps();
        // A u64 beyond 2^53 loses digits as f64 that are not shown.
        match scale(value as f64, steps) {
            Some(scaled) => scaled,
            None => format!("{value}{basic}"),
        }
    }

    /// Like [`Unit::human`] for a value that may have a fraction, such as a rate: `0.30`, `12.5`, `1.23k`.
    ///
    /// A value above zero that is too small to show is `<0.01`.
    pub fn human_rate(self, value: f64) -> String {
        let (basic, steps) = self.steps();
        match scale(value, steps) {
            Some(scaled) => scaled,
            None if value == value.trunc() => format!("{value}{basic}"),
            None if value < 0.005 => format!("<0.01{basic}"),
            None => format!("{}{basic}", three_digits(value)),
        }
    }

    fn steps(self) -> (&'static str, &'static [Step]) {
        match self {
            Self::Packets | Self::Segments | Self::Count => ("", SI),
            Self::Bits => ("bit", SI_BIT),
            Self::Bytes => ("B", IEC),
            Self::Nanoseconds => ("ns", TIME),
        }
    }
}

/// The value in the largest step that it reaches after rounding (so never `1000k`); `None` if it reaches no step.
fn scale(value: f64, steps: &[Step]) -> Option<String> {
    let mut reached = steps.iter().rposition(|(size, _)| value >= *size)?;
    // Three digits are within 0.5% of the value: a value further below does not reach the next step.
    if let Some((next, _)) = steps.get(reached + 1).filter(|(next, _)| value * 1.01 >= *next) {
        let size = steps[reached].0;
        let shown: f64 = three_digits(value / size).parse().expect("just formatted");
        if shown * size >= *next {
            reached += 1;
        }
    }
    let (size, name) = steps[reached];
    Some(format!("{}{name}", three_digits(value / size)))
}

/// Three significant digits of a number from 0.01 on, and all digits before the point.
fn three_digits(number: f64) -> String {
    // The bounds are where rounding carries into one more digit: 9.996 is 10.0, not 10.00.
    let decimals = match number {
        n if n < 9.995 => 2,
        n if n < 99.95 => 1,
        _ => 0,
    };
    format!("{number:.decimals$}")
}

/// A value per period as a value per second.
///
/// `period_ms` is in milliseconds, and at least 1 as in every table; 0 counts as 1.
///
/// ```
/// assert_eq!(topstat_model::per_second(3, 10_000), 0.3);
/// ```
pub fn per_second(value: u64, period_ms: u32) -> f64 {
    value as f64 * 1000.0 / f64::from(period_ms.max(1))
}

/// A number of milliseconds for people, exactly: `500ms`, `1s`, `1.5s`, `60s`.
pub fn human_ms(ms: u32) -> String {
    match ms {
        0..1000 => format!("{ms}ms"),
        _ => format!("{}s", f64::from(ms) / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_three_digits_in_the_unit_that_fits() {
        for (unit, value, written) in [
            (Unit::Packets, 0, "0"),
            (Unit::Packets, 999, "999"),
            (Unit::Packets, 1000, "1.00k"),
            (Unit::Packets, 1_234_567, "1.23M"),
            (Unit::Segments, 12_345, "12.3k"),
            (Unit::Count, u64::MAX, "18.4E"),
            (Unit::Bits, 999, "999bit"),
            (Unit::Bits, 4_500_000_000, "4.50Gbit"),
            (Unit::Bytes, 1023, "1023B"),
            (Unit::Bytes, 1024, "1.00KiB"),
            (Unit::Bytes, 1000 * 1024, "1000KiB"),
            (Unit::Bytes, u64::MAX, "16.0EiB"),
            (Unit::Nanoseconds, 990, "990ns"),
            (Unit::Nanoseconds, 12_345_678, "12.3ms"),
            (Unit::Nanoseconds, 90_000_000_000, "1.50min"),
            (Unit::Nanoseconds, 36_000_000_000_000, "10.0h"),
        ] {
            assert_eq!(unit.human(value), written, "{value} {unit:?}");
        }
    }

    #[test]
    fn rounding_carries_into_the_next_unit() {
        assert_eq!(Unit::Packets.human(999_499), "999k");
        assert_eq!(Unit::Packets.human(999_500), "1.00M");
        assert_eq!(Unit::Packets.human(9_996), "10.0k");
        assert_eq!(Unit::Packets.human(99_960), "100k");
        assert_eq!(Unit::Bytes.human(1024 * 1024 - 1), "1.00MiB");
        assert_eq!(Unit::Nanoseconds.human(59_999_000_000), "1.00min");
    }

    #[test]
    fn rates_may_have_fractions() {
        assert_eq!(Unit::Packets.human_rate(0.3), "0.30");
        assert_eq!(Unit::Packets.human_rate(12.5), "12.5");
        assert_eq!(Unit::Packets.human_rate(500.0), "500");
        assert_eq!(Unit::Packets.human_rate(0.0), "0");
        assert_eq!(Unit::Packets.human_rate(0.000_3), "<0.01");
        assert_eq!(Unit::Bits.human_rate(1.5e9), "1.50Gbit");
        assert_eq!(Unit::Packets.human_rate(999.7), "1000");
    }

    #[test]
    fn periods_are_exact() {
        assert_eq!(human_ms(1), "1ms");
        assert_eq!(human_ms(1000), "1s");
        assert_eq!(human_ms(1500), "1.5s");
        assert_eq!(human_ms(3_600_000), "3600s");
        assert_eq!(per_second(u64::MAX, 1000), u64::MAX as f64);
    }
}
