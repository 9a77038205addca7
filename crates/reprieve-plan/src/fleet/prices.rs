//! The price of a Spot machine over time.

use std::borrow::Cow;

use crate::money::{Cost, Price};

const HOUR_MS: u128 = 3_600_000;

/// Prices, each from a moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceSteps {
    /// The first is from zero on, and times rise.
    steps: Vec<(u64, Price)>,
    /// What a machine has cost at the beginning of each.
    sums: Vec<Cost>,
    highest: Price,
}

impl PriceSteps {
    /// One price for all time.
    #[must_use]
    pub fn constant(price: Price) -> Self {
        Self::of(vec![(0, price)])
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
        Self::of(steps)
    }

    fn of(steps: Vec<(u64, Price)>) -> Self {
        let highest = steps.iter().map(|(_, price)| *price).max().unwrap_or(Price::from_nanos_per_hour(0));
        let costs = steps.windows(2).map(|pair| pair[0].1.cost(1, pair[1].0 - pair[0].0));
        let later = costs.scan(Cost::default(), |sum, cost| {
            *sum += cost;
            Some(*sum)
        });
        let sums = std::iter::once(Cost::default()).chain(later).collect();
        Self { steps, sums, highest }
    }

    /// The same prices, but none above `limit`.
    pub(super) fn up_to(&self, limit: Price) -> Cow<'_, Self> {
        if self.highest <= limit {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Self::of(self.steps.iter().map(|(at_ms, price)| (*at_ms, limit.min(*price))).collect()))
    }

    /// When the price rises above `limit`, which it was not above before.
    pub(super) fn rises_above(&self, limit: Price) -> impl Iterator<Item = u64> {
        let pairs = self.steps.windows(2).filter(move |pair| pair[0].1 <= limit && pair[1].1 > limit);
        pairs.map(|pair| pair[1].0)
    }

    /// The price at a moment.
    #[must_use]
    pub fn at(&self, now_ms: u64) -> Price {
        // The first step is at zero.
        self.steps[self.steps.partition_point(|(at_ms, _)| *at_ms <= now_ms) - 1].1
    }

    /// The price that stays.
    #[must_use]
    pub fn last(&self) -> Price {
        self.steps.last().map_or(self.at(0), |(_, price)| *price)
    }

    /// When the price changes.
    pub fn changes(&self) -> impl Iterator<Item = u64> {
        self.steps.iter().skip(1).map(|(at_ms, _)| *at_ms)
    }

    /// The lowest and the highest price.
    #[must_use]
    pub fn bounds(&self) -> (Price, Price) {
        let prices = || self.steps.iter().map(|(_, price)| *price);
        let first = self.at(0);
        (prices().min().unwrap_or(first), prices().max().unwrap_or(first))
    }

    /// The mean price of the time until `until_ms`, of which no hour costs more than `limit`.
    #[must_use]
    pub fn mean(&self, until_ms: u64, limit: Price) -> Price {
        if self.steps.len() == 1 || until_ms == 0 {
            return self.at(0).min(limit);
        }
        let nanos = self.cost(0, until_ms, limit).nanos().saturating_mul(HOUR_MS) / u128::from(until_ms);
        Price::from_nanos_per_hour(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The cost of one machine from `from_ms` to `to_ms`, of which no hour costs more than `limit`.
    #[must_use]
    pub fn cost(&self, from_ms: u64, to_ms: u64, limit: Price) -> Cost {
        let steps = self.up_to(limit);
        if from_ms < to_ms { steps.until(to_ms).without(steps.until(from_ms)) } else { Cost::default() }
    }

    /// What a machine has cost since the beginning.
    fn until(&self, now_ms: u64) -> Cost {
        let step = self.steps.partition_point(|(at_ms, _)| *at_ms <= now_ms) - 1;
        let (since_ms, price) = self.steps[step];
        self.sums[step] + price.cost(1, now_ms - since_ms)
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
        assert_eq!(steps.cost(HOUR_MS, HOUR_MS, price(30)).nanos(), 0);
        assert_eq!(steps.cost(4 * HOUR_MS, 5 * HOUR_MS, price(30)).nanos(), 20);
        assert_eq!((steps.bounds(), steps.mean(4 * HOUR_MS, price(30))), ((price(10), price(40)), price(22)));
        assert_eq!(PriceSteps::constant(price(7)).mean(3, price(30)), price(7));
        assert_eq!(steps.cost(2 * HOUR_MS, HOUR_MS, price(30)).nanos(), 0);
        let rises = |limit| steps.rises_above(price(limit)).collect::<Vec<_>>();
        assert_eq!(
            [rises(5), rises(10), rises(20), rises(40)],
            [vec![], vec![HOUR_MS], vec![HOUR_MS], vec![]]
        );
        assert_eq!([0, HOUR_MS - 1, HOUR_MS].map(|at| steps.at(at)), [price(10), price(10), price(40)]);
    }
}
