//! Buckets of eviction rates.

use std::fmt;

use serde::Serialize;

/// A bucket of the eviction rate of a size in a region, in percent of the VMs per hour.
///
/// Microsoft's page says once that it is of the last 7 days and once of 28.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EvictionRate {
    /// The lower end.
    pub low_percent: u32,
    /// The upper end; `None` for the highest bucket, which has none.
    pub high_percent: Option<u32>,
}

impl EvictionRate {
    /// Reads a bucket such as `0-5` or `20+`. How the service writes them is not documented, so spaces, percent
    /// signs, long dashes and `>20` are accepted, too.
    ///
    /// Returns `None` for everything else, an empty text among it: the rate is unknown then, and not zero.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text: String = text.chars().filter(|c| !c.is_whitespace() && *c != '%').collect();
        let percent = |digits: &str| {
            let number = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?;
            number.filter(|percent| *percent <= 100)
        };
        if let Some(low) = text.strip_suffix('+').or_else(|| text.strip_prefix('>')) {
            return Some(Self { low_percent: percent(low)?, high_percent: None });
        }
        let (low, high) = text.split_once(['-', '–', '—'])?;
        let (low_percent, high) = (percent(low)?, percent(high)?);
        (low_percent <= high).then_some(Self { low_percent, high_percent: Some(high) })
    }
}

/// Prints the bucket as the service does, such as `0-5` or `20+`.
impl fmt::Display for EvictionRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.high_percent {
            Some(high) => write!(f, "{}-{high}", self.low_percent),
            None => write!(f, "{}+", self.low_percent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_an_interval_and_the_highest_has_no_upper_end() {
        for (text, expected) in [
            ("0-5", Some((0, Some(5)))),
            ("5-10", Some((5, Some(10)))),
            ("15 - 20 %", Some((15, Some(20)))),
            ("0–5%", Some((0, Some(5)))),
            ("20+", Some((20, None))),
            ("20%+", Some((20, None))),
            ("> 20", Some((20, None))),
        ] {
            let bucket = EvictionRate::parse(text).map(|bucket| (bucket.low_percent, bucket.high_percent));
            assert_eq!(bucket, expected, "{text}");
        }
        assert_eq!(EvictionRate::parse("20%+").map(|it| it.to_string()), Some("20+".to_owned()));
        assert_eq!(EvictionRate::parse("0 - 5").map(|it| it.to_string()), Some("0-5".to_owned()));
    }

    #[test]
    fn what_is_no_bucket_is_unknown_and_not_zero() {
        for text in [
            "", " ", "-", "+", "0", "5", "N/A", "unknown", "10-5", "-5", "0-500", "0-5-10", "a-b", "+20",
            "<5",
        ] {
            assert_eq!(EvictionRate::parse(text), None, "{text}");
        }
    }
}
