//! The runs of all strategies in all worlds, on all cores.
//!
//! Runs differ by seed only, so which core plays which run changes nothing. How many there are is reckoned from the
//! events of the first run of each strategy in each world, and not from the time that they take: a plan is the same on
//! every machine.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::inputs::{Inputs, PlanError, RUNS_MIN};
use super::scenario::Scenario;
use crate::fleet::{Runs, Strategy, Summary};

/// The runs that a core plays at a time. They are few, so that no core is left with many at the end.
const SHARE: usize = 8;

/// The runs of a plan.
pub(super) struct Played {
    /// The number of runs of each strategy in each world.
    pub(super) runs: u32,
    /// For each strategy, and each world.
    pub(super) summaries: Vec<Vec<Summary>>,
}

/// A strategy in a world.
type Pair<'a> = (&'a Strategy, &'a Scenario);

/// Plays all runs on so many cores, and calls `progress` after each with the number of those that are done and of all.
///
/// # Errors
///
/// [`PlanError::TooManyEvents`] if a run has more than it may.
pub(super) fn play(
    inputs: &Inputs,
    scenarios: &[Scenario],
    strategies: &[Strategy],
    cores: NonZeroUsize,
    progress: impl FnMut(u64, u64) + Send,
) -> Result<Played, PlanError> {
    let worlds = |strategy| scenarios.iter().map(move |scenario| (strategy, scenario));
    let pairs: Vec<Pair<'_>> = strategies.iter().flat_map(worlds).collect();
    let count = pairs.len() as u64;
    let progress = Mutex::new((0, progress));
    // Set when there will be no plan, so that no core goes on for nothing.
    let is_refused = AtomicBool::new(false);
    let play = |(strategy, scenario): Pair<'_>, seeds: Range<u64>, of: u64| {
        if is_refused.load(Ordering::Relaxed) {
            return Err(PlanError::TooManyEvents);
        }
        let runs = Runs::play(&scenario.model, strategy, seeds, inputs.run_events_max(), || {
            // No code panics while it holds the lock.
            let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
            progress.0 += 1;
            let done = progress.0;
            (progress.1)(done, of);
        });
        is_refused.fetch_or(runs.is_none(), Ordering::Relaxed);
        runs.ok_or(PlanError::TooManyEvents)
    };
    let first = inputs.seed..inputs.seed + 1;
    let asked = count * u64::from(inputs.runs);
    let played = on_cores(cores, &pairs, |pair| play(*pair, first.clone(), asked));
    let mut played = played.into_iter().collect::<Result<Vec<_>, _>>()?;
    let runs = affordable(inputs, played.iter().map(Runs::events).sum());
    let seeds: Vec<u64> = (first.end..inputs.seed.saturating_add(runs)).collect();
    let shares =
        |index| seeds.chunks(SHARE).map(move |share| (index, share[0]..share[0] + share.len() as u64));
    let shares: Vec<_> = (0..pairs.len()).flat_map(shares).collect();
    let further = on_cores(cores, &shares, |(index, share)| play(pairs[*index], share.clone(), count * runs));
    for ((index, _), runs) in shares.iter().zip(further) {
        played[*index].add(runs?);
    }
    let of_model =
        |(runs, (_, scenario)): (Runs, &Pair<'_>)| runs.summary(inputs.deadline_ms, scenario.model.limit_ms);
    let mut summaries = played.into_iter().zip(&pairs).map(of_model);
    Ok(Played {
        // No more than were asked for.
        runs: u32::try_from(runs).unwrap_or(inputs.runs),
        summaries: strategies.iter().map(|_| summaries.by_ref().take(scenarios.len()).collect()).collect(),
    })
}

/// How many runs of each strategy in each world the plan can have, if the first of all had so many events.
fn affordable(inputs: &Inputs, events: u64) -> u64 {
    let asked = u64::from(inputs.runs);
    (inputs.events_max / events.max(1)).clamp(RUNS_MIN.min(asked), asked)
}

/// Does `work` for each of `items` on so many cores, and returns the results in their order.
pub(super) fn on_cores<T: Sync, R: Send>(
    cores: NonZeroUsize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let index = next.fetch_add(1, Ordering::Relaxed);
        items.get(index).map(|item| (index, work(item)))
    };
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let threads: Vec<_> = (1..cores.get().min(items.len()))
            .map(|_| scope.spawn(|| std::iter::from_fn(take).collect()))
            .collect();
        let mut done: Vec<_> = std::iter::from_fn(take).collect();
        for thread in threads {
            let others: Vec<_> = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            done.extend(others);
        }
        done
    });
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::super::inputs::{Inputs, Known, Source};
    use super::super::{Plan, strategies};
    use super::{affordable, on_cores};
    use crate::money::Price;

    fn inputs() -> Inputs {
        let [spot, regular] = [46_000_000, 230_000_000].map(Price::from_nanos_per_hour);
        Inputs {
            evictions: Known::Rate { low: 0.05, high: Some(0.3), pattern: None, source: Source::Given },
            runs: 30,
            ..Inputs::new(40, 40 * 60_000, 8, spot, regular)
        }
    }

    #[test]
    fn a_plan_is_the_same_on_any_number_of_cores() {
        let of = |cores| {
            let plan = Plan::on(NonZeroUsize::new(cores).unwrap(), &inputs(), |_, _| {}).unwrap();
            plan.rows.into_iter().map(|row| row.summaries).collect::<Vec<_>>()
        };
        let one = of(1);
        assert_eq!(one, of(2));
        assert_eq!(one, of(7));
    }

    #[test]
    fn a_plan_of_many_events_has_fewer_runs_which_are_the_first_ones() {
        let few = Inputs { events_max: 40_000, ..inputs() };
        let plan = Plan::new(&few, |_, _| {}).unwrap();
        assert!((10..30).contains(&plan.runs), "{}", plan.runs);
        let same = Plan::new(&Inputs { runs: plan.runs, ..inputs() }, |_, _| {}).unwrap();
        for (row, other) in plan.rows.iter().zip(&same.rows) {
            assert_eq!(row.summaries, other.summaries);
        }
        assert_eq!(plan.rows.len(), strategies(&few).len());
        let said = plan.assumptions.iter().find(|it| it.subject == "runs").expect("it is said");
        assert!(
            said.value.starts_with(&format!("{} instead of 30; mean costs are known to ± ", plan.runs)),
            "{said:?}"
        );
        assert!(same.assumptions.iter().all(|it| it.subject != "runs"));
    }

    #[test]
    fn no_plan_has_fewer_than_ten_runs_unless_fewer_are_asked_for() {
        let of = |runs, events| affordable(&Inputs { runs, events_max: 1_000, ..inputs() }, events);
        assert_eq!(
            [of(200, 0), of(200, 5), of(200, 50), of(200, 1_000_000), of(3, 1_000_000)],
            [200, 200, 20, 10, 3]
        );
    }

    #[test]
    fn results_are_in_the_order_of_their_items() {
        let items: Vec<u64> = (0..1000).collect();
        for cores in [1, 2, 9, 5000] {
            let cores = NonZeroUsize::new(cores).unwrap();
            assert!(
                on_cores(cores, &items, |item| item * 2).iter().zip(&items).all(|(two, one)| *two == one * 2)
            );
        }
        assert!(on_cores(NonZeroUsize::MIN, &[0; 0], |item| *item).is_empty());
    }
}
