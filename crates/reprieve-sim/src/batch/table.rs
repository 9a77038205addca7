//! The comparison as a table, and as lines about one scenario.

use std::fmt::{self, Display, Formatter};

use reprieve_plan::fleet::{Outcome, Spread};

use super::Played;
use super::compare::{Compared, Ratio};
use super::scenarios::Scenario;

/// The head of the table.
pub const HEAD: &str = "\
| scenario | cost, model | cost, workers | ratio | p95, model | p95, workers | ratio | within 10 % |
|---|---|---|---|---|---|---|---|";

/// A row of the table: costs in cents, times in minutes.
#[derive(Debug)]
pub struct Row<'a>(pub &'a Scenario, pub &'a Compared);

/// Where the two differ, in the mean of the runs.
#[derive(Debug)]
pub struct Details<'a>(pub &'a Compared);

impl Compared {
    /// Whether both figures are close enough.
    #[must_use]
    pub fn is_within(&self) -> bool {
        self.cost().is_within() && self.finish().is_within()
    }
}

impl Display for Ratio {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ({:.3} to {:.3})", self.value, self.low, self.high)
    }
}

impl Display for Row<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(scenario, compared) = self;
        let spread = |values: &Vec<u64>| Spread::new(values.iter().copied());
        let [model, workers] = compared.costs_micros();
        let [modelled_ms, played_ms] = compared.finishes_ms();
        write!(f, "| {} |", scenario.name)?;
        for cost in [model, workers] {
            let cost = spread(&cost);
            write!(f, " {:.2} ± {:.2} |", cost.mean / 1e4, cost.half_width / 1e4)?;
        }
        write!(f, " {} |", compared.cost())?;
        for finish_ms in [modelled_ms, played_ms] {
            write!(f, " {:.1} |", minutes(spread(&finish_ms).p95))?;
        }
        let verdict = if compared.is_within() { "yes" } else { "**no**" };
        write!(f, " {} | {verdict} |", compared.finish())
    }
}

impl Display for Details<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Compared { modelled, played, .. } = self.0;
        let both = |of: fn(&Outcome) -> u64, other: fn(&Played) -> u64| {
            [mean(modelled.iter().map(of)), mean(played.iter().map(other))]
        };
        let rows = [
            ("evictions", both(|it| it.evictions.into(), |it| it.evictions.into()), 1.0),
            ("refusals", both(|it| it.refusals.into(), |it| it.refusals.into()), 1.0),
            ("saves", both(|it| it.saves, |it| it.saves), 1.0),
            ("moved jobs", both(|it| it.swaps.into(), |it| it.moved.into()), 1.0),
            ("given up", both(|_| 0, |it| it.poisoned), 1.0),
            (
                "unfinished",
                both(|it| it.finished_ms.is_none().into(), |it| it.finished_ms.is_none().into()),
                1.0,
            ),
            ("work lost, min", both(|it| it.time.lost_ms, |it| it.lost_ms), 60_000.0),
            (
                "finish, min",
                both(|it| it.finished_ms.unwrap_or(0), |it| it.finished_ms.unwrap_or(0)),
                60_000.0,
            ),
        ];
        for (name, [model, workers], unit) in rows {
            writeln!(f, "  {name:<15} model {:>9.2}  workers {:>9.2}", model / unit, workers / unit)?;
        }
        Ok(())
    }
}

fn mean(values: impl Iterator<Item = u64>) -> f64 {
    Spread::new(values).mean
}

#[expect(clippy::cast_precision_loss, reason = "a time of less than ten years")]
const fn minutes(ms: u64) -> f64 {
    ms as f64 / 60_000.0
}
