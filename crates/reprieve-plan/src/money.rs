//! Prices and costs as whole numbers.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

const MS_PER_HOUR: u128 = 3_600_000;

/// The price of one machine for an hour, in billionths of the currency.
///
/// Retail prices have at most eight decimals, so every one of them is a whole number of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Price {
    nanos_per_hour: u64,
}

impl Price {
    /// A price of `nanos_per_hour` billionths: 0.192 an hour is 192,000,000.
    #[must_use]
    pub const fn from_nanos_per_hour(nanos_per_hour: u64) -> Self {
        Self { nanos_per_hour }
    }

    /// The price in billionths of the currency per hour.
    #[must_use]
    pub const fn nanos_per_hour(self) -> u64 {
        self.nanos_per_hour
    }

    /// The cost of `machines` for `time_ms` milliseconds, billed by the millisecond.
    #[must_use]
    pub fn cost(self, machines: u32, time_ms: u64) -> Cost {
        let machine_ms = u128::from(machines) * u128::from(time_ms);
        Cost { nano_ms: u128::from(self.nanos_per_hour).saturating_mul(machine_ms) }
    }
}

/// A sum of money, exact for whole milliseconds at whole prices.
///
/// It is kept as price times time and divided when it is read, so that sums have no rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    /// Billionths per hour, times milliseconds.
    nano_ms: u128,
}

impl Cost {
    /// A cost of `nanos` billionths of the currency.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        // Below 2^64 · 2^22, so it fits.
        Self { nano_ms: nanos as u128 * MS_PER_HOUR }
    }

    /// The cost of `bytes` at a price for each GB, 10^9 of them.
    #[must_use]
    pub fn of_bytes(per_gb: Price, bytes: u64) -> Self {
        let nano_bytes = u128::from(per_gb.nanos_per_hour) * u128::from(bytes);
        // Times the milliseconds of an hour, divided by 10^9.
        Self { nano_ms: (nano_bytes / 10_000).saturating_mul(36) + nano_bytes % 10_000 * 36 / 10_000 }
    }

    /// What is left of this cost without a part of it.
    pub(crate) const fn without(self, part: Self) -> Self {
        Self { nano_ms: self.nano_ms.saturating_sub(part.nano_ms) }
    }

    /// This cost `count` times.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self { nano_ms: self.nano_ms.saturating_mul(u128::from(count)) }
    }

    /// The cost in millionths of the currency, rounded half up.
    #[must_use]
    pub const fn micros(self) -> u128 {
        self.nano_ms.saturating_add(MS_PER_HOUR * 500) / (MS_PER_HOUR * 1000)
    }

    /// The cost in whole millionths: what is not nothing is one at least.
    #[must_use]
    pub fn micros_shown(self) -> u64 {
        u64::try_from(self.micros()).unwrap_or(u64::MAX).max(u64::from(self.nano_ms > 0))
    }

    /// The cost in billionths of the currency, rounded half up.
    #[must_use]
    pub const fn nanos(self) -> u128 {
        self.nano_ms.saturating_add(MS_PER_HOUR / 2) / MS_PER_HOUR
    }

    /// This cost as a share of `other`, for tables. Zero of zero is 1.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share for display")]
    pub fn share_of(self, other: Self) -> f64 {
        if self == other { 1.0 } else { self.nano_ms as f64 / other.nano_ms as f64 }
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { nano_ms: self.nano_ms.saturating_add(other.nano_ms) }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), Add::add)
    }
}

/// Prints units and six decimals, rounded half up, without the currency.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.micros();
        write!(f, "{}.{:06}", micros / 1_000_000, micros % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::{Cost, Price};

    const PRICE: Price = Price::from_nanos_per_hour(192_000_000);

    #[test]
    fn an_hour_costs_its_price() {
        assert_eq!(PRICE.cost(1, 3_600_000).nanos(), 192_000_000);
        assert_eq!(PRICE.cost(3, 5_400_000).to_string(), "0.864000");
        assert_eq!(PRICE.cost(3, 5_400_000).micros(), 864_000);
        assert_eq!(super::Cost::from_nanos(192_000_000), PRICE.cost(1, 3_600_000));
    }

    #[test]
    fn a_sum_of_parts_is_the_whole_to_the_last_billionth() {
        let parts: Cost = (0..3_600_000 / 7).map(|_| PRICE.cost(1, 7)).sum();
        assert_eq!(parts + PRICE.cost(1, 3_600_000 % 7), PRICE.cost(1, 3_600_000));
    }

    #[test]
    fn a_few_bytes_cost_something() {
        assert_eq!(Cost::of_bytes(PRICE, 1_000_000_000), Cost::from_nanos(192_000_000));
        assert_eq!(Cost::of_bytes(PRICE, 40).nanos(), 8);
        let tiny = Cost::of_bytes(Price::from_nanos_per_hour(20_000_000), 10);
        assert_eq!((tiny.nanos(), tiny.micros(), tiny.micros_shown(), tiny.times(5).nanos()), (0, 0, 1, 1));
        assert_eq!((Cost::default().micros_shown(), Cost::from_nanos(1_499).micros_shown()), (0, 1));
    }

    #[test]
    fn rounds_half_up_only_when_read() {
        let half = Price::from_nanos_per_hour(1).cost(1, 1_800_000);
        assert_eq!((half.nanos(), (half + half).nanos(), half.times(4).nanos()), (1, 1, 2));
    }
}
