//! The net below every policy: a regular machine from the last safe moment on.
//!
//! The moment is when the work left plus two moves fill the time left. Work counts as left until it
//! is saved, because an eviction loses the rest. From then on a regular machine needs one move, and
//! the second is for the machine that the task leaves at that moment. Regular machines are not
//! evicted, so the deadline is met, whatever the policy and Spot do.

use crate::policy::{Moment, Place, Policy};

/// Where the task runs: on a regular machine if the net holds it, else where `policy` says.
///
/// A policy that asks for Spot while there is none gets nothing.
#[must_use]
pub fn decide(policy: &dyn Policy, moment: &Moment<'_>) -> Place {
    if slack_ms(moment) == 0 {
        return Place::Regular;
    }
    match policy.next(moment) {
        Place::Spot if !moment.spot => Place::Nothing,
        place => place,
    }
}

/// The time until the net holds the task if it saves nothing until then; zero if it does.
#[must_use]
pub fn slack_ms(moment: &Moment<'_>) -> u64 {
    moment.time_left_ms.saturating_sub(moment.task.reserve_ms(moment.unsaved_ms + moment.work_left_ms))
}

#[cfg(test)]
mod tests {
    use super::{decide, slack_ms};
    use crate::history::History;
    use crate::money::Price;
    use crate::policy::{Moment, Place, Policy};
    use crate::task::Task;

    const MINUTE_MS: u64 = 60_000;

    /// Always answers the same.
    struct Fixed(Place);

    impl Policy for Fixed {
        fn name(&self) -> &'static str {
            "fixed"
        }

        fn next(&self, _moment: &Moment<'_>) -> Place {
            self.0
        }
    }

    /// A moment on Spot with 30 min of work left, a move of 6, and `minutes` left.
    fn check(minutes: u64, unsaved: u64, spot: bool, wish: Place) -> Place {
        let task = Task::new(Price::from_nanos_per_hour(1), Price::from_nanos_per_hour(3));
        let moment = Moment {
            task: &task,
            time_left_ms: minutes * MINUTE_MS,
            work_left_ms: 30 * MINUTE_MS,
            unsaved_ms: unsaved * MINUTE_MS,
            place: Place::Spot,
            ready_in_ms: 0,
            spot,
            history: &History::default(),
        };
        assert_eq!(slack_ms(&moment), minutes.saturating_sub(42 + unsaved) * MINUTE_MS);
        decide(&Fixed(wish), &moment)
    }

    #[test]
    fn the_net_holds_when_work_and_two_moves_fill_the_time_left() {
        for wish in [Place::Nothing, Place::Spot, Place::Regular] {
            assert_eq!(check(42, 0, true, wish), Place::Regular);
            assert_eq!(check(43, 0, true, wish), wish);
            assert_eq!(check(0, 0, true, wish), Place::Regular);
        }
    }

    #[test]
    fn unsaved_work_counts_as_left() {
        assert_eq!(check(46, 4, true, Place::Spot), Place::Regular);
        assert_eq!(check(47, 4, true, Place::Spot), Place::Spot);
    }

    #[test]
    fn spot_that_cannot_be_had_is_nothing() {
        assert_eq!(check(60, 0, false, Place::Spot), Place::Nothing);
        assert_eq!(check(42, 0, false, Place::Spot), Place::Regular);
    }
}
