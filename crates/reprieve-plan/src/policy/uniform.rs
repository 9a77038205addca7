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
