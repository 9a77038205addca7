//! Uniform progress: the work stays in proportion to the time that has passed.
//!
//! The policy of Wu et al., "Can't Be Late: Optimizing Spot Instance Savings under Deadlines" (NSDI 24),
//! section 5.2.

use super::{Moment, Place, Policy};

/// Keeps the work done in proportion to the time passed, with regular machines where Spot did not.
///
/// 1. Spot is used whenever it is available and the task is on no machine, and until it goes away.
/// 2. Without Spot, a task that is behind moves to regular machines.
/// 3. It stays there until it is two moves ahead, so that it does not pay for moves at each change.
#[derive(Clone, Copy, Debug)]
pub struct Uniform;

impl Policy for Uniform {
    fn name(&self) -> &'static str {
        "uniform"
    }

    fn next(&self, moment: &Moment<'_>) -> Place {
        let ahead_ms = match moment.place {
            Place::Regular => moment.task.move_ms.saturating_mul(2),
            Place::Nothing | Place::Spot => 0,
        };
        match moment.place {
            Place::Regular if is_behind(moment, ahead_ms) => Place::Regular,
            _ if moment.spot => Place::Spot,
            _ if is_behind(moment, ahead_ms) => Place::Regular,
            _ => Place::Nothing,
        }
    }
}

/// Whether less is done than a steady pace would have done `ahead_ms` from now.
fn is_behind(moment: &Moment<'_>, ahead_ms: u64) -> bool {
    let deadline_ms = u128::from(moment.task.deadline_ms);
    let work_ms = u128::from(moment.task.work_ms());
    let done_ms = work_ms.saturating_sub(moment.work_left_ms.into());
    let passed_ms = deadline_ms.saturating_sub(moment.time_left_ms.into()) + u128::from(ahead_ms);
    done_ms * deadline_ms < work_ms * passed_ms.min(deadline_ms)
}

#[cfg(test)]
mod tests {
    use super::Uniform;
    use crate::history::History;
    use crate::money::Price;
    use crate::policy::{Moment, Place, Policy};
    use crate::task::Task;

    const MINUTE_MS: u64 = 60_000;

    /// Where 60 min of work in 120 go, of which some are done, at a place and after a time.
    fn next(place: Place, spot: bool, done: u64, passed: u64) -> Place {
        let task = Task::new(Price::from_nanos_per_hour(1), Price::from_nanos_per_hour(3));
        Uniform.next(&Moment {
            task: &task,
            time_left_ms: (120 - passed) * MINUTE_MS,
            work_left_ms: (60 - done) * MINUTE_MS,
            unsaved_ms: 0,
            place,
            ready_in_ms: 0,
            spot,
            history: &History::default(),
        })
    }

    #[test]
    fn waits_for_spot_until_it_is_behind() {
        assert_eq!(next(Place::Nothing, false, 20, 40), Place::Nothing);
        assert_eq!(next(Place::Nothing, false, 20, 41), Place::Regular);
    }

    #[test]
    fn takes_spot_also_when_it_is_behind() {
        assert_eq!(next(Place::Nothing, true, 0, 40), Place::Spot);
        assert_eq!(next(Place::Spot, true, 0, 40), Place::Spot);
    }

    #[test]
    fn stays_on_regular_machines_until_it_is_two_moves_ahead() {
        // Two moves of 6 min are worth 6 min of work at this pace.
        for spot in [false, true] {
            assert_eq!(next(Place::Regular, spot, 25, 40), Place::Regular);
        }
        assert_eq!(next(Place::Regular, true, 26, 40), Place::Spot);
        assert_eq!(next(Place::Regular, false, 26, 40), Place::Nothing);
    }
}
