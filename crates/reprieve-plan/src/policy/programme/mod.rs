//! A dynamic programme over Spot as an estimated Markov chain.

mod chains;
mod table;

use crate::history::History;
use crate::task::Task;

use super::{Moment, Place, Policy};
use chains::Chain;
use table::{Grid, Table};

/// The cheapest place in expectation, for a Spot market that is a two-state Markov chain.
///
/// [`Programme::new`] solves the programme for 49 chains: the least expected cost for every work left, slack,
/// place, and state of Spot. Each decision weighs the solved chains by what the history and a weak prior leave
/// likely, and takes the place that is cheapest in their mean; in doubt it waits. The net is part of the programme:
/// without slack, all work that is left costs the regular price.
#[derive(Debug)]
pub struct Programme {
    grid: Grid,
    tables: Vec<Table>,
}

/// By which part of all that is left a regular machine must be the cheaper one before Spot has come back once. The part
/// shrinks with the square root of the returns, as what is not known of the market does.
///
/// The programme takes the chain for known, and so sees no worth in a wait that shows how soon Spot comes back. Without
/// the part it costs up to 1.2 % more than greedy in markets that lose Spot often and get it back soon, and 0.8 % with
/// it; with more it saves less where Spot stays away for hours.
const DOUBT: f64 = 0.002;

/// After how many losses, and for how long each, a batch without a machine waits whatever the programme says: that shows how
/// soon Spot comes back, where the prior expects it in 45 minutes. Without it short tasks cost up to 1.9 % more than greedy
/// where Spot is back after three; with more losses or time it saves less where Spot stays away.
const PATIENT_LOSSES: u32 = 3;
const PATIENCE_MS: u64 = 5 * 60_000;

impl Programme {
    /// Solves the programme for a task, which takes some 20 ms; a policy for that task only.
    ///
    /// `task` must have passed [`Task::check`].
    #[must_use]
    pub fn new(task: &Task) -> Self {
        let grid = Grid::new(task);
        let tables = Chain::all().map(|chain| Table::solve(&grid, &chain)).collect();
        Self { grid, tables }
    }

    fn cheapest(&self, moment: &Moment<'_>, places: &[Place]) -> Place {
        let point = self.grid.point(moment);
        let chains: Vec<_> = Chain::likely(moment.history).collect();
        let cost = |place: Place| -> f64 {
            chains
                .iter()
                .map(|(index, weight)| weight * self.tables[*index].cost(&self.grid, &point, place))
                .sum()
        };
        let doubt = DOUBT / (1.0 + f64::from(moment.history.returns)).sqrt();
        let costs = places.iter().map(|place| {
            let moves_to_regular = *place == Place::Regular && moment.place != Place::Regular;
            (*place, cost(*place) * if moves_to_regular { 1.0 + doubt } else { 1.0 })
        });
        costs.min_by(|(_, one), (_, other)| one.total_cmp(other)).map_or(Place::Regular, |(place, _)| place)
    }
}

fn is_patient(history: &History) -> bool {
    let losses = 1..=PATIENT_LOSSES;
    losses.contains(&history.losses) && history.down_ms < u64::from(history.losses) * PATIENCE_MS
}

impl Policy for Programme {
    fn name(&self) -> &'static str {
        "programme"
    }

    fn next(&self, moment: &Moment<'_>) -> Place {
        match (moment.place, moment.spot) {
            // It is paid for, and another Spot machine would last no longer. Without any, the net is there for a bad guess:
            // to wait for better Spot, or to go to regular at once, is worth less than the estimate errs.
            (Place::Spot | Place::Nothing, true) => Place::Spot,
            (Place::Regular, true) => self.cheapest(moment, &[Place::Spot, Place::Regular]),
            (Place::Nothing, false) if is_patient(moment.history) => Place::Nothing,
            (_, false) => self.cheapest(moment, &[Place::Regular, Place::Nothing]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Programme;
    use crate::history::History;
    use crate::money::Price;
    use crate::policy::{Moment, Place, Policy};
    use crate::task::Task;

    const MINUTE_MS: u64 = 60_000;
    const HOUR_MS: u64 = 60 * MINUTE_MS;

    fn task() -> Task {
        let (spot, regular) = (Price::from_nanos_per_hour(100), Price::from_nanos_per_hour(300));
        Task { job_ms: 8 * HOUR_MS, deadline_ms: 12 * HOUR_MS, ..Task::new(spot, regular) }
    }

    /// Where the programme goes without Spot and without a machine, with all work left.
    fn without_spot(task: &Task, time_left_ms: u64, history: &History) -> Place {
        Programme::new(task).next(&Moment {
            task,
            time_left_ms,
            work_left_ms: task.work_ms(),
            unsaved_ms: 0,
            place: Place::Nothing,
            ready_in_ms: 0,
            spot: false,
            history,
        })
    }

    #[test]
    fn keeps_slack_for_spot_that_returns_soon_and_not_for_spot_that_stays_away() {
        let soon =
            History { up_ms: 20 * HOUR_MS, down_ms: HOUR_MS, losses: 4, returns: 4, ..History::default() };
        let late = History {
            up_ms: 2 * HOUR_MS,
            down_ms: 40 * HOUR_MS,
            losses: 2,
            returns: 2,
            ..History::default()
        };
        let task = task();
        assert_eq!(without_spot(&task, 8 * HOUR_MS + 70 * MINUTE_MS, &soon), Place::Regular);
        assert_eq!(without_spot(&task, 8 * HOUR_MS + 70 * MINUTE_MS, &late), Place::Nothing);
        assert_eq!(without_spot(&task, 8 * HOUR_MS + 45 * MINUTE_MS, &late), Place::Regular);
    }

    #[test]
    fn waits_while_there_is_more_slack_than_spot_needs_and_where_there_is_too_little_for_it() {
        let history = History {
            up_ms: 20 * HOUR_MS,
            down_ms: 10 * HOUR_MS,
            losses: 8,
            returns: 8,
            ..History::default()
        };
        let task = task();
        assert_eq!(without_spot(&task, 12 * HOUR_MS, &history), Place::Nothing);
        // Two moves and a checkpoint take 17 min beyond the net's 12: less is of no use for Spot.
        assert_eq!(without_spot(&task, 8 * HOUR_MS + 20 * MINUTE_MS, &history), Place::Nothing);
    }

    #[test]
    fn spot_that_costs_as_much_as_a_regular_machine_is_not_used() {
        let task = Task { spot: task().regular, ..task() };
        let history = History::default();
        let moment = Moment {
            task: &task,
            time_left_ms: task.deadline_ms,
            work_left_ms: task.work_ms(),
            unsaved_ms: 0,
            place: Place::Regular,
            ready_in_ms: 0,
            spot: true,
            history: &history,
        };
        assert_eq!(Programme::new(&task).next(&moment), Place::Regular);
    }
}
