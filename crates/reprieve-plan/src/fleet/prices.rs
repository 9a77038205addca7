//! The price of a Spot machine over time.

use crate::money::{Cost, Price};

/// Prices, each from a moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceSteps {
    /// The first is from zero on, and times rise.
    steps: Vec<(u64, Price)>,
}

impl PriceSteps {
    /// One price for all time.
    #[must_use]
    pub fn constant(price: Price) -> Self {
        Self { steps: vec![(0, price)] }
    }

    /// `first`, and then each price from its time on.
    ///
    /// # Panics
    ///
    /// If the times are not above zero and rising.
    #[must_use]
    pub fn new(first: Price, later: impl IntoIterator<Item = (u64, Price)>) -> Self {
        let mut steps = vec![(0, first)];
        for (at_ms, price) in later {
            assert!(
                steps.last().is_some_and(|(last_ms, _)| *last_ms < at_ms),
                "times of prices have to rise"
            );
            steps.push((at_ms, price));
        }
        Self { steps }
    }

    /// The price at a moment.
    #[must_use]
    pub fn at(&self, now_ms: u64) -> Price {
        // The first step is at zero.
        self.steps[self.steps.partition_point(|(at_ms, _)| *at_ms <= now_ms) - 1].1
    }

    /// When the price changes.
    pub fn changes(&self) -> impl Iterator<Item = u64> {
        self.steps.iter().skip(1).map(|(at_ms, _)| *at_ms)
    }

    /// The cost of one machine from `from_ms` to `to_ms`, of which no hour costs more than `limit`.
    #[must_use]
    pub fn cost(&self, from_ms: u64, to_ms: u64, limit: Price) -> Cost {
        let ends = self.changes().chain([u64::MAX]);
        let parts = self.steps.iter().zip(ends).map(|((start_ms, price), end_ms)| {
            let time_ms = end_ms.min(to_ms).saturating_sub(from_ms.max(*start_ms));
            limit.min(*price).cost(1, time_ms)
        });
        parts.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::PriceSteps;
    use crate::money::Price;

    const HOUR_MS: u64 = 3_600_000;

    fn price(nanos_per_hour: u64) -> Price {
        Price::from_nanos_per_hour(nanos_per_hour)
    }

    #[test]
    fn each_time_is_billed_at_its_price_up_to_the_limit() {
        let steps = PriceSteps::new(price(10), [(HOUR_MS, price(40)), (3 * HOUR_MS, price(20))]);
        assert_eq!(steps.cost(0, 4 * HOUR_MS, price(100)).nanos(), 10 + 80 + 20);
        assert_eq!(steps.cost(HOUR_MS / 2, HOUR_MS * 3 / 2, price(100)).nanos(), 5 + 20);
        assert_eq!(steps.cost(0, 4 * HOUR_MS, price(30)).nanos(), 10 + 60 + 20);
        assert_eq!([0, HOUR_MS - 1, HOUR_MS].map(|at| steps.at(at)), [price(10), price(10), price(40)]);
    }
}
