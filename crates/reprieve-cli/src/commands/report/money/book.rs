//! Prices by size and region, and of Spot by the time.

use std::collections::HashMap;

use reprieve_core::ledger::Machine;
use reprieve_plan::{Cost, Price};
use serde::Serialize;

/// The prices that a report knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Book {
    pub(super) currency: String,
    /// What is to be said about the prices.
    pub(super) notes: Vec<String>,
    /// The prices of every machine, whatever its size is.
    all: Option<Entry>,
    entries: HashMap<(String, String), Entry>,
}

/// The prices of a size in a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) spot: Option<Steps>,
    pub(super) regular: Option<Price>,
    pub(super) basis: Basis,
}

/// How well the Spot price fits the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Basis {
    /// The user gave it.
    Given,
    /// The price of one moment, for all time.
    Now,
    /// Each hour at its price.
    History,
}

/// Prices, each from its time on, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Steps(Vec<(i64, Price)>);

/// What a time cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Priced {
    pub(super) cost: Cost,
    /// The part of the time before the first known price. It counts at that one.
    pub(super) before_ms: u64,
    /// The lowest and the highest price in it.
    pub(super) range: (Price, Price),
}

/// Prices with their times, in any order; `None` for none. Of several from one time on the last counts.
pub(super) fn steps(known: impl IntoIterator<Item = (i64, Price)>) -> Option<Steps> {
    let mut steps: Vec<(i64, Price)> = known.into_iter().collect();
    steps.sort_by_key(|(since, _)| *since);
    steps.dedup_by(|later, kept| {
        let is_same = later.0 == kept.0;
        if is_same {
            kept.1 = later.1;
        }
        is_same
    });
    (!steps.is_empty()).then_some(Steps(steps))
}

impl Steps {
    /// The cost of one machine from `from` to `to`.
    pub(super) fn cost(&self, from: i64, to: i64) -> Priced {
        let first = self.0[0];
        let mut priced = Priced {
            cost: Cost::default(),
            before_ms: length(from, to.min(first.0)),
            range: (first.1, first.1),
        };
        let ends = self.0.iter().skip(1).map(|(since, _)| *since).chain([i64::MAX]);
        let mut range: Option<(Price, Price)> = None;
        for (index, ((since, price), end)) in self.0.iter().zip(ends).enumerate() {
            let since = if index == 0 { i64::MIN } else { *since };
            let time_ms = length(from.max(since), to.min(end));
            if time_ms > 0 {
                priced.cost += price.cost(1, time_ms);
                let (low, high) = range.unwrap_or((*price, *price));
                range = Some((low.min(*price), high.max(*price)));
            }
        }
        priced.range = range.unwrap_or(priced.range);
        priced
    }
}

/// The time between two moments; zero if the second one is earlier.
pub(super) fn length(from: i64, to: i64) -> u64 {
    u64::try_from(to.saturating_sub(from)).unwrap_or(0)
}

impl Book {
    pub(super) fn new(currency: &str) -> Self {
        Self { currency: currency.to_owned(), notes: Vec::new(), all: None, entries: HashMap::new() }
    }

    /// The same prices for every machine, in US dollars.
    pub(super) fn of_all(spot: Price, regular: Price) -> Self {
        let all = Entry { spot: steps([(i64::MIN, spot)]), regular: Some(regular), basis: Basis::Given };
        Self { all: Some(all), ..Self::new("USD") }
    }

    pub(super) fn insert(&mut self, size: &str, region: &str, entry: Entry) {
        self.entries.insert(key(size, region), entry);
    }

    /// Whether there are prices of this size and region.
    pub(super) fn has(&self, size: &str, region: &str) -> bool {
        self.entries.contains_key(&key(size, region))
    }

    /// Takes these Spot prices for a size in a region, if there are any.
    pub(super) fn set_history(&mut self, size: &str, region: &str, history: Option<Steps>) {
        let entry = self.entries.get_mut(&key(size, region));
        if let Some((entry, history)) = entry.zip(history) {
            (entry.spot, entry.basis) = (Some(history), Basis::History);
        }
    }

    /// The prices of a machine, or why there are none.
    pub(super) fn of(&self, machine: &Machine) -> Result<&Entry, &'static str> {
        if let Some(all) = &self.all {
            return Ok(all);
        }
        if machine.size.is_empty() || machine.region.is_empty() {
            return Err("its size or region is unknown");
        }
        self.entries
            .get(&key(&machine.size, &machine.region))
            .ok_or("there is no price of its size and region")
    }
}

fn key(size: &str, region: &str) -> (String, String) {
    (size.to_ascii_lowercase(), region.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    const fn price(nanos_per_hour: u64) -> Price {
        Price::from_nanos_per_hour(nanos_per_hour)
    }

    #[test]
    fn each_time_counts_at_its_price_and_what_was_before_at_the_first() {
        let steps =
            steps([(30 * HOUR, price(40)), (10 * HOUR, price(10)), (20 * HOUR, price(20))]).expect("some");
        let cost = |from: i64, to: i64| {
            let it = steps.cost(from * HOUR, to * HOUR);
            (
                it.cost.nanos(),
                it.before_ms / 3_600_000,
                (it.range.0.nanos_per_hour(), it.range.1.nanos_per_hour()),
            )
        };
        assert_eq!(cost(12, 18), (60, 0, (10, 10)));
        assert_eq!(cost(18, 32), (20 + 200 + 80, 0, (10, 40)));
        assert_eq!(cost(4, 12), (80, 6, (10, 10)));
        assert_eq!(cost(40, 41), (40, 0, (40, 40)));
        assert_eq!(cost(5, 5), (0, 0, (10, 10)));
        assert_eq!(cost(9, 2), (0, 0, (10, 10)), "a clock went back");
    }

    #[test]
    fn of_two_prices_from_one_time_on_the_later_entry_counts() {
        let steps = steps([(0, price(1)), (0, price(2))]).expect("some");
        assert_eq!(steps.cost(0, HOUR).cost.nanos(), 2);
        assert_eq!(super::steps([]), None);
    }

    #[test]
    fn a_machine_has_the_price_of_its_size_and_region_in_any_spelling() {
        let mut book = Book::new("USD");
        let entry =
            |nanos| Entry { spot: steps([(i64::MIN, price(nanos))]), regular: None, basis: Basis::Now };
        book.insert("Standard_D4s_v5", "westeurope", entry(5));
        let machine = |size: &str, region: &str| Machine {
            size: size.to_owned(),
            region: region.to_owned(),
            ..Machine::default()
        };
        assert_eq!(book.of(&machine("standard_d4s_V5", "WestEurope")), Ok(&entry(5)));
        assert_eq!(
            book.of(&machine("Standard_D4s_v5", "northeurope")),
            Err("there is no price of its size and region")
        );
        for unknown in [machine("", "westeurope"), machine("Standard_D4s_v5", "")] {
            assert_eq!(book.of(&unknown), Err("its size or region is unknown"));
        }
        let all = Book::of_all(price(1), price(2));
        assert!(all.of(&machine("", "")).is_ok_and(|entry| entry.basis == Basis::Given));
    }
}
