//! What a fleet's own ledger says of evictions, as what a plan knows: it is preferred to Azure's bucket.

use super::inputs::{Known, Source};
use crate::measured::{Band, Export};

/// How many moments a fleet must have shown before their pattern is taken.
const MOMENTS_MIN: usize = 5;

impl Known {
    /// What an export of the ledger says: the interval of its rate, with the pattern in which machines went together if
    /// there were moments enough, and beside it in the source what Azure says. `None` if machines were seen for no time.
    #[must_use]
    pub fn measured(export: &Export, azure: Option<Band>) -> Option<Self> {
        let rate = export.rate()?;
        if rate.high >= 1.0 && rate.evictions == 0 {
            // Some minutes without an eviction exclude nothing.
            return Some(Self::Unknown);
        }
        let losses = export.losses();
        let takes_time = losses.iter().map(|loss| loss.after_ms).sum::<u64>() >= losses.len() as u64 * 1_000;
        Some(Self::Rate {
            low: rate.low,
            high: Some(rate.high).filter(|high| *high < 1.0),
            pattern: (losses.len() >= MOMENTS_MIN && takes_time).then_some(losses),
            // Rare moments that take all may not have come yet.
            source: Source::Measured(format!(
                "the ledger: {}; a moment with more machines than any seen is not in the interval",
                rate.beside(azure)
            )),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, Source};
    use crate::availability::Life;
    use crate::measured::{Band, Export, Seen};

    const HOUR_MS: i64 = 3_600_000;

    /// Machines of ten hours, of which the first ones are evicted, an hour apart.
    fn export(machines: i64, evicted: i64) -> Export {
        let seen = |number| Seen {
            from_ms: number * HOUR_MS,
            until_ms: (number + 10) * HOUR_MS,
            evicted: number < evicted,
        };
        Export { seen: (0..machines).map(seen).collect(), lives: Vec::<Life>::new(), regular: 0 }
    }

    #[test]
    fn the_interval_of_the_ledger_comes_before_azures_bucket() {
        let azure = Some(Band { low: 0.05, high: Some(0.1) });
        let Some(Known::Rate { low, high: Some(high), pattern, source }) =
            Known::measured(&export(100, 10), azure)
        else {
            panic!("a rate")
        };
        assert!((0.004..0.01).contains(&low) && (0.01..0.02).contains(&high), "{low} to {high}");
        assert_eq!(pattern.map(|losses| losses.len()), Some(10));
        let expected = "the ledger: measured 1 % an hour (0.5 to 1.8) in 1000 h of machines, Azure says 5 to 10 %, which \
                        is more; a moment with more machines than any seen is not in the interval";
        assert_eq!(source, Source::Measured(expected.to_owned()));
    }

    #[test]
    fn some_minutes_without_an_eviction_are_no_knowledge() {
        let seen = Seen { from_ms: 0, until_ms: 5 * 60_000, evicted: false };
        let export = Export { seen: vec![seen], lives: Vec::new(), regular: 0 };
        assert!(matches!(Known::measured(&export, None), Some(Known::Unknown)));
    }

    #[test]
    fn a_few_moments_are_no_pattern_and_none_are_an_interval_from_zero() {
        let Some(Known::Rate { pattern, .. }) = Known::measured(&export(100, 4), None) else {
            panic!("a rate")
        };
        assert_eq!(pattern, None);
        let Some(Known::Rate { low, high, pattern, .. }) = Known::measured(&export(10, 0), None) else {
            panic!("a rate")
        };
        assert!(low.to_bits() == 0 && high.is_some_and(|high| high > 0.03) && pattern.is_none());
        assert!(Known::measured(&export(0, 0), None).is_none());
    }
}
