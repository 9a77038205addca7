//! What a fleet of one's own has shown of evictions: its ledger's export, and what follows from it.
//!
//! | file | concept |
//! |---|---|
//! | `export` | [`Export`]: the lives of machines, from `reprieve report --json` or `--csv` |
//! | `rate` | [`Rate`]: how many machines are evicted in an hour, with its interval, beside what Azure says |
//! | `hours` | [`BestHour`]: the hour of the day to begin, if the data tell |
//! | `gamma` | the quantiles of the gamma distribution |
//! | `records` | the records of a CSV file with quotes |
//!
//! # Example: the rate of a ledger beside Azure's
//!
//! ```
//! use reprieve_plan::measured::{Band, Rate, Seen};
//!
//! let hour = 3_600_000;
//! // 40 machines for 5 hours each, one after the other; every fifth of them was evicted.
//! let seen: Vec<Seen> = (0..40)
//!     .map(|n| Seen { from_ms: n * 5 * hour, until_ms: (n + 1) * 5 * hour, evicted: n % 5 == 0 })
//!     .collect();
//! let rate = Rate::of(&seen).expect("machines were seen");
//! let azure = Band { low: 0.05, high: Some(0.1) };
//! assert_eq!(
//!     rate.beside(Some(azure)),
//!     "measured 3.9 % an hour (1.7 to 7.6) in 200 h of machines, Azure says 5 to 10 %, which may be the same"
//! );
//! ```

mod export;
mod gamma;
mod hours;
mod rate;
mod records;

pub use export::{Export, ExportError};
pub use hours::BestHour;
pub use rate::{Band, Rate};

/// Evictions no further than this from the first of them came together: they are of one moment, as in the ledger.
const TOGETHER_MS: i64 = 5 * 60_000;

/// For how long a machine was seen, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When it was first seen.
    pub from_ms: i64,
    /// When it was evicted, or last seen.
    pub until_ms: i64,
    /// Whether it was evicted then.
    pub evicted: bool,
}

impl Seen {
    /// For how long; zero for one whose clock went back.
    fn lived_ms(&self) -> u64 {
        u64::try_from(self.until_ms.saturating_sub(self.from_ms)).unwrap_or(0)
    }
}

/// The moments in which machines were evicted: the time of the first one, and how many.
fn moments(seen: &[Seen]) -> Vec<(i64, u32)> {
    let mut times: Vec<i64> = seen.iter().filter(|it| it.evicted).map(|it| it.until_ms).collect();
    times.sort_unstable();
    let mut moments: Vec<(i64, u32)> = Vec::new();
    for at in times {
        match moments.last_mut() {
            Some((first, count)) if at.saturating_sub(*first) <= TOGETHER_MS => *count += 1,
            _ => moments.push((at, 1)),
        }
    }
    moments
}

/// Milliseconds in hours.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn in_hours(ms: u64) -> f64 {
    ms as f64 / 3_600_000.0
}
