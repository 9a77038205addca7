//! The figures: what the machines cost, from their lives and prices.

use std::collections::{BTreeMap, HashMap};

use reprieve_azure::prices::price_text;
use reprieve_core::ledger::{Interruption, Life};
use reprieve_plan::{Cost, Price};
use serde::{Serialize, Serializer, ser};
use serde_json::value::RawValue;

use super::book::{Basis, Book, length};

/// Interruptions no further than this from an eviction are of it: notices come up to some minutes before.
const OF_EVICTION_MS: i64 = 5 * 60_000;

/// What the machines cost in the time of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Money {
    pub(super) currency: String,
    pub(super) total: Sums,
    /// By size, region and priority.
    pub(super) machines: Vec<Row>,
    /// The machines whose cost is not known: in no sum.
    pub(super) unpriced: Vec<Unpriced>,
    pub(super) notes: Vec<String>,
    /// What each of the lives cost, and what it would have cost on a regular machine, in their order.
    #[serde(skip)]
    pub(super) each: Vec<Option<(Cost, Cost)>>,
}

/// Sums of machines. Times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(super) struct Sums {
    /// How many boots of machines.
    pub(super) machines: u64,
    /// From boot to the end, summed.
    pub(super) billed_ms: u64,
    /// What that cost.
    #[serde(serialize_with = "cost")]
    pub(super) cost: Cost,
    /// What regular machines would have cost: the same without what evictions lost.
    #[serde(serialize_with = "cost")]
    pub(super) regular: Cost,
    /// The difference in millionths: below zero where Spot cost more.
    #[serde(rename = "saved", serialize_with = "micros")]
    pub(super) saved_micros: i128,
    /// The time of machines whose work evictions lost: in what it cost.
    pub(super) lost_ms: u64,
    #[serde(serialize_with = "cost")]
    pub(super) lost: Cost,
    /// The time from boots to the first workers: in what it cost.
    pub(super) boots_ms: u64,
    #[serde(serialize_with = "cost")]
    pub(super) boots: Cost,
}

/// Machines of one size, region and priority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    pub(super) size: String,
    pub(super) region: String,
    pub(super) priority: &'static str,
    /// How well the price fits the time.
    pub(super) basis: Basis,
    /// The lowest and the highest price of an hour.
    #[serde(serialize_with = "price")]
    pub(super) price_from: Price,
    #[serde(serialize_with = "price")]
    pub(super) price_to: Price,
    /// The time before the first known price, which counts at that one.
    pub(super) before_prices_ms: u64,
    #[serde(flatten)]
    pub(super) sums: Sums,
}

/// Machines without a price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Unpriced {
    pub(super) size: String,
    pub(super) region: String,
    pub(super) priority: String,
    pub(super) why: &'static str,
    pub(super) machines: u64,
    pub(super) billed_ms: u64,
}

/// The priority of a machine, as far as its price depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Priority {
    Regular,
    Spot,
}

impl Money {
    /// The figures of these lives, which are cut to a time that begins at `since_unix_ms`.
    pub(crate) fn of(book: Book, lives: &[Life], interruptions: &[Interruption], since_unix_ms: i64) -> Self {
        let mut of_boot: HashMap<&str, Vec<&Interruption>> = HashMap::new();
        for it in interruptions {
            of_boot.entry(&it.boot).or_default().push(it);
        }
        let mut rows: BTreeMap<(String, String, Priority), Row> = BTreeMap::new();
        let mut unpriced: BTreeMap<(String, String, String, &'static str), (u64, u64)> = BTreeMap::new();
        let mut each = Vec::with_capacity(lives.len());
        for life in lives {
            let of_life = of_boot.get(life.boot.as_str()).map_or(&[][..], Vec::as_slice);
            match Priced::of(&book, life, of_life, since_unix_ms) {
                Ok(priced) => {
                    each.push(Some((priced.sums.cost, priced.sums.regular)));
                    priced.add_to(&mut rows, life);
                }
                Err(why) => {
                    each.push(None);
                    let it = &life.machine;
                    let key = (it.size.clone(), it.region.clone(), it.priority.clone(), why);
                    let (machines, billed_ms) = unpriced.entry(key).or_default();
                    *machines += 1;
                    *billed_ms = billed_ms.saturating_add(billed(life, since_unix_ms).length());
                }
            }
        }
        let unpriced = unpriced.into_iter().map(|((size, region, priority, why), (machines, billed_ms))| {
            Unpriced { size, region, priority, why, machines, billed_ms }
        });
        let machines: Vec<_> = rows.into_values().collect();
        let total = machines.iter().fold(Sums::default(), |sum, row| sum + row.sums);
        let (currency, unpriced, notes) = (book.currency, unpriced.collect(), book.notes);
        Self { currency, total, machines, unpriced, notes, each }
    }

    /// What a life cost, and what it would have cost on a regular machine; by its place among the lives.
    pub(crate) fn of_life(&self, index: usize) -> Option<(Cost, Cost)> {
        self.each.get(index).copied().flatten()
    }

    /// What is to be said about the prices.
    pub(crate) fn notes(&self) -> impl Iterator<Item = &str> {
        self.notes.iter().map(String::as_str)
    }

    /// The machine time before the first known price of each size.
    pub(super) fn before_prices_ms(&self) -> u64 {
        self.machines.iter().map(|row| row.before_prices_ms).fold(0, u64::saturating_add)
    }
}

/// A part of time, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy)]
struct Billed {
    from: i64,
    to: i64,
}

impl Billed {
    fn length(self) -> u64 {
        length(self.from, self.to)
    }
}

/// The time for which Azure bills a machine, as far as the ledger knows it: from its boot, which is a moment after the
/// allocation, to when it was last seen.
fn billed(life: &Life, since_unix_ms: i64) -> Billed {
    let born = life.born_unix_ms.unwrap_or(life.seen_unix_ms);
    Billed { from: born.max(since_unix_ms).min(life.seen_unix_ms), to: life.until_unix_ms }
}

/// A machine with its cost.
struct Priced {
    priority: Priority,
    basis: Basis,
    before_prices_ms: u64,
    range: (Price, Price),
    sums: Sums,
}

impl Priced {
    fn of(book: &Book, life: &Life, of_life: &[&Interruption], since: i64) -> Result<Self, &'static str> {
        let entry = book.of(&life.machine)?;
        let regular = entry.regular.ok_or("there is no regular price of its size and region")?;
        let priority = Priority::of(&life.machine.priority).ok_or("whether it is Spot is unknown")?;
        let billed = billed(life, since);
        let lost_ms = lost_ms(life, of_life).min(billed.length());
        let lost_from = billed.to.saturating_sub(i64::try_from(lost_ms).unwrap_or(i64::MAX));
        let boots_ms = length(billed.from, life.seen_unix_ms.min(billed.to));
        let of_regular = |time_ms| regular.cost(1, time_ms);
        let time = Sums { machines: 1, billed_ms: billed.length(), lost_ms, boots_ms, ..Sums::default() };
        let (range, before_prices_ms, basis, sums) = match priority {
            Priority::Regular => {
                let cost = of_regular(billed.length());
                let (lost, boots) = (of_regular(lost_ms), of_regular(boots_ms));
                let basis = entry.basis.min(Basis::Now);
                ((regular, regular), 0, basis, Sums { cost, regular: cost, lost, boots, ..time })
            }
            Priority::Spot => {
                let steps = entry.spot.as_ref().ok_or("there is no Spot price of its size and region")?;
                let all = steps.cost(billed.from, billed.to);
                let lost = steps.cost(lost_from, billed.to).cost;
                let boots = steps.cost(billed.from, billed.from.saturating_add_unsigned(boots_ms)).cost;
                let regular = of_regular(billed.length() - lost_ms);
                let sums = Sums { cost: all.cost, regular, lost, boots, ..time };
                (all.range, all.before_ms, entry.basis, sums)
            }
        };
        Ok(Self { priority, basis, before_prices_ms, range, sums: sums.with_saved() })
    }

    fn add_to(self, rows: &mut BTreeMap<(String, String, Priority), Row>, life: &Life) {
        let Self { priority, basis, before_prices_ms, range, sums } = self;
        let (size, region) = (life.machine.size.clone(), life.machine.region.clone());
        let new = || Row {
            size: size.clone(),
            region: region.clone(),
            priority: priority.as_str(),
            basis,
            price_from: range.0,
            price_to: range.1,
            before_prices_ms: 0,
            sums: Sums::default(),
        };
        let row = rows.entry((size.clone(), region.clone(), priority)).or_insert_with(new);
        row.price_from = row.price_from.min(range.0);
        row.price_to = row.price_to.max(range.1);
        row.before_prices_ms = row.before_prices_ms.saturating_add(before_prices_ms);
        row.sums = row.sums + sums;
    }
}

/// The time of an evicted machine whose work was lost. Its jobs share it: of four that it held, each lost minute is a
/// quarter of one of the machine.
fn lost_ms(life: &Life, of_life: &[&Interruption]) -> u64 {
    if life.evicted.is_none() {
        return 0;
    }
    let is_of_it =
        |it: &&&Interruption| it.at_unix_ms.abs_diff(life.until_unix_ms) <= OF_EVICTION_MS.unsigned_abs();
    let of_it = of_life.iter().filter(is_of_it);
    let (lost, held) = of_it.fold((0_u64, 0_u64), |(lost, held), it| {
        (lost.saturating_add(it.work_lost_ms()), held.saturating_add(it.held()))
    });
    lost / held.max(1)
}

impl Priority {
    /// Reads what the platform says; `None` for what is neither.
    fn of(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        match text.as_str() {
            "regular" => Some(Self::Regular),
            // Before Spot it was called low priority, and the service still has that value.
            "spot" | "low" => Some(Self::Spot),
            _ => None,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Regular => "Regular",
            Self::Spot => "Spot",
        }
    }
}

impl Sums {
    /// With what was saved, of the sums as they are shown: that of each machine is rounded to millionths.
    fn with_saved(self) -> Self {
        // Costs are below 2^127 millionths: of less than 10^19 billionths an hour.
        let micros = |cost: Cost| i128::try_from(cost.micros()).unwrap_or(i128::MAX);
        Self { saved_micros: micros(self.regular) - micros(self.cost), ..self }
    }

    /// The savings for text: an amount other than zero is never shown as zero.
    pub(super) fn saved_micros_shown(&self) -> i128 {
        if self.saved_micros == 0 { self.saved_nanos().signum() } else { self.saved_micros }
    }

    /// The savings in billionths: below zero where Spot cost more.
    pub(super) fn saved_nanos(&self) -> i128 {
        let nanos = |cost: Cost| i128::try_from(cost.nanos()).unwrap_or(i128::MAX);
        nanos(self.regular).saturating_sub(nanos(self.cost))
    }
}

impl std::ops::Add for Sums {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            machines: self.machines + other.machines,
            billed_ms: self.billed_ms.saturating_add(other.billed_ms),
            cost: self.cost + other.cost,
            regular: self.regular + other.regular,
            saved_micros: 0,
            lost_ms: self.lost_ms.saturating_add(other.lost_ms),
            lost: self.lost + other.lost,
            boots_ms: self.boots_ms.saturating_add(other.boots_ms),
            boots: self.boots + other.boots,
        }
        .with_saved()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
fn price<S: Serializer>(price: &Price, serializer: S) -> Result<S::Ok, S::Error> {
    RawValue::from_string(price_text(*price)).map_err(ser::Error::custom)?.serialize(serializer)
}

fn micros<S: Serializer>(micros: &i128, serializer: S) -> Result<S::Ok, S::Error> {
    let (sign, whole) = (if *micros < 0 { "-" } else { "" }, micros.unsigned_abs());
    let text = format!("{sign}{}.{:06}", whole / 1_000_000, whole % 1_000_000);
    RawValue::from_string(text).map_err(ser::Error::custom)?.serialize(serializer)
}

fn cost<S: Serializer>(cost: &Cost, serializer: S) -> Result<S::Ok, S::Error> {
    RawValue::from_string(cost.to_string()).map_err(ser::Error::custom)?.serialize(serializer)
}

#[cfg(test)]
mod tests;
