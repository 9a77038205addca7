//! Spot while there is any, and else nothing, until the net holds the task.

use super::{Moment, Place, Policy};

/// Waits for Spot as long as the deadline allows.
///
/// It uses all slack first. Once that is gone the rest of the work runs on regular machines, also
/// if Spot comes back.
#[derive(Clone, Copy, Debug)]
pub struct Greedy;

impl Policy for Greedy {
    fn name(&self) -> &'static str {
        "greedy"
    }

    fn next(&self, moment: &Moment<'_>) -> Place {
        if moment.spot { Place::Spot } else { Place::Nothing }
    }
}
