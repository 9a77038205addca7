//! The least that a schedule could cost that knew the whole window.

use crate::availability::Window;
use crate::money::Cost;
use crate::task::Task;

/// A lower bound of the cost of every schedule that does the task's work before the deadline.
///
/// Each stretch of Spot pays one boot and then works until it ends. The longest stretches give the
/// most work per boot, so for every number of stretches those are the best, and the bound is the
/// least over these numbers. The rest runs on regular machines with a single boot, at any time. That
/// leaves out what a real schedule also pays: further boots of regular machines, and the slack for
/// them.
#[must_use]
pub fn least_cost(task: &Task, window: &Window) -> Cost {
    let mut left_ms = task.work_ms();
    let mut on_spot = Cost::default();
    let mut least = task.regular.cost(task.machines, left_ms + task.move_ms);
    for stretch_ms in longest_first(window, task.deadline_ms) {
        let work_ms = stretch_ms.saturating_sub(task.move_ms).min(left_ms);
        if work_ms == 0 {
            break;
        }
        on_spot += task.spot.cost(task.machines, work_ms + task.move_ms);
        left_ms -= work_ms;
        let rest_ms = if left_ms == 0 { 0 } else { left_ms + task.move_ms };
        least = least.min(on_spot + task.regular.cost(task.machines, rest_ms));
    }
    least
}

/// The lengths of the stretches in which Spot is available, before the deadline.
fn longest_first(window: &Window, deadline_ms: u64) -> Vec<u64> {
    let mut stretches = Vec::new();
    let (mut available, mut from_ms) = (window.first(), 0);
    for at_ms in window.changes().take_while(|at_ms| *at_ms < deadline_ms).chain([deadline_ms]) {
        if available {
            stretches.push(at_ms - from_ms);
        }
        (available, from_ms) = (!available, at_ms);
    }
    stretches.sort_unstable_by_key(|length_ms| std::cmp::Reverse(*length_ms));
    stretches
}

#[cfg(test)]
mod tests {
    use super::least_cost;
    use crate::availability::Window;
    use crate::money::Price;
    use crate::task::Task;

    const MINUTE_MS: u64 = 60_000;

    fn task() -> Task {
        Task::new(Price::from_nanos_per_hour(100), Price::from_nanos_per_hour(300))
    }

    #[test]
    fn one_long_stretch_costs_the_work_and_one_boot_on_spot() {
        let window = Window::new(true, vec![]);
        assert_eq!(least_cost(&task(), &window), task().spot.cost(1, 66 * MINUTE_MS));
    }

    #[test]
    fn without_spot_all_work_is_regular() {
        let window = Window::new(false, vec![120 * MINUTE_MS]);
        assert_eq!(least_cost(&task(), &window), task().regular.cost(1, 66 * MINUTE_MS));
    }

    #[test]
    fn a_stretch_that_costs_more_than_it_saves_is_not_used() {
        // 1 min of work for a boot of 6 at a third of the price: 7 of Spot, for 3 of Spot's price.
        let window = Window::new(true, vec![7 * MINUTE_MS]);
        assert_eq!(least_cost(&task(), &window), task().regular.cost(1, 66 * MINUTE_MS));
        let window = Window::new(true, vec![40 * MINUTE_MS]);
        let mixed = task().spot.cost(1, 40 * MINUTE_MS) + task().regular.cost(1, 32 * MINUTE_MS);
        assert_eq!(least_cost(&task(), &window), mixed);
    }
}
