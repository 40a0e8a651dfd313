// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shares of CPU time, such as the budget of the observers.

use std::fmt;

/// A share of the time of each CPU, on average over all of them, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

/// Below 0.01% the measurement itself would cost more.
const LEAST: Share = Share(100);
/// Above 50% a share is not a budget any more.
const MOST: Share = Share(500_000);

impl Share {
    /// Parses a budget: `1%`, `0.25%`, or `off` for no budget.
    pub fn budget(text: &str) -> Result<Option<Self>, String> {
        if text == "off" {
            return Ok(None);
        }
        let percent = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
        let share = percent.filter(|percent| percent.is_finite()).map(Self::from_percent);
        let range = LEAST..=MOST;
        share.filter(|share| range.contains(share)).map(Some).ok_or_else(|| {
            format!("allowed are \"off\" and a share of each CPU from {LEAST} to {MOST}, such as \"1%\"")
        })
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it saturates, and a budget is then refused
    fn from_percent(percent: f64) -> Self {
        Self((percent * 10_000.0).round() as u32)
    }

    /// A share of this many millionths.
    #[cfg(test)]
    pub const fn millionths(millionths: u32) -> Self {
        Self(millionths)
    }

    /// The share as a fraction of 1.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / 1e6
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 10_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_shares() {
        for (text, share) in [("1%", 10_000), ("0.25%", 2500), ("0.01%", 100), ("50%", 500_000), ("2 %", 20_000)] {
            assert_eq!(Share::budget(text), Ok(Some(Share(share))), "{text}");
        }
        assert_eq!(Share::budget("off"), Ok(None));
        for text in ["", "1", "%", "0%", "-1%", "51%", "0.001%", "NaN%", "inf%", "1e300%", "one%", "OFF"] {
            let error = Share::budget(text).unwrap_err();
            assert_eq!(
                error, "allowed are \"off\" and a share of each CPU from 0.01% to 50%, such as \"1%\"",
                "{text}"
            );
        }
        assert_eq!(Share(12_300).to_string(), "1.23%");
    }
}
