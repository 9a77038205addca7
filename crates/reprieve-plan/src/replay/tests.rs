use super::{Outcome, replay};
use crate::availability::Window;
use crate::money::Price;
use crate::policy::{AllRegular, Greedy, Moment, Place, Policy};
use crate::task::Task;

const MINUTE_MS: u64 = 60_000;

fn task() -> Task {
    Task::new(Price::from_nanos_per_hour(100), Price::from_nanos_per_hour(300))
}

fn window(first: bool, minutes: &[u64]) -> Window {
    Window::new(first, minutes.iter().map(|minute| minute * MINUTE_MS).collect())
}

#[test]
fn all_regular_costs_its_boot_and_its_work() {
    let outcome = replay(&task(), &AllRegular, &window(true, &[30, 40]));
    let expected = Outcome {
        cost: task().regular.cost(1, 66 * MINUTE_MS),
        finished_ms: 66 * MINUTE_MS,
        met_deadline: true,
        moves: 1,
        regular_ms: 66 * MINUTE_MS,
        ..Outcome::default()
    };
    assert_eq!(outcome, expected);
    assert_eq!(outcome.cost.nanos(), 330);
}

#[test]
fn jobs_on_several_machines_run_in_waves() {
    let task = Task { jobs: 7, machines: 3, deadline_ms: 400 * MINUTE_MS, ..task() };
    let outcome = replay(&task, &Greedy, &window(true, &[]));
    assert_eq!(outcome.finished_ms, 186 * MINUTE_MS);
    assert_eq!(outcome.cost.nanos(), 3 * 310);
}

#[test]
fn an_eviction_loses_what_was_done_since_the_last_checkpoint() {
    // Works from 6, is evicted at 29 with 23 min done and 20 saved, works again from 46 to 86.
    let outcome = replay(&task(), &Greedy, &window(true, &[29, 40]));
    let expected = Outcome {
        cost: task().spot.cost(1, (29 + 46) * MINUTE_MS),
        finished_ms: 86 * MINUTE_MS,
        met_deadline: true,
        moves: 2,
        evictions: 1,
        lost_ms: 3 * MINUTE_MS,
        spot_ms: 75 * MINUTE_MS,
        ..Outcome::default()
    };
    assert_eq!(outcome, expected);
}

#[test]
fn evictions_and_lost_work_are_those_of_all_machines_and_slots() {
    // Seven jobs of 60 min with 11 saves of 2 min: four and then three of them on two machines with two slots. Evicted at
    // 6 + 82 + 9 + 4 min: three jobs have lost 4 min each. The next boot is over at 116.
    let task = Task {
        jobs: 7,
        machines: 2,
        slots: 2,
        save_ms: 2 * MINUTE_MS,
        deadline_ms: 400 * MINUTE_MS,
        ..task()
    };
    let outcome = replay(&task, &Greedy, &window(true, &[101, 110]));
    assert_eq!((outcome.evictions, outcome.lost_ms), (2, 12 * MINUTE_MS));
    assert_eq!(outcome.finished_ms, (116 + 73) * MINUTE_MS);
    assert_eq!(outcome.cost, task.spot.cost(2, (101 + 79) * MINUTE_MS));
}

#[test]
fn a_move_by_choice_saves_before_the_next_machine_is_asked_for() {
    // 82 min of work, of which 4 are not saved at minute 10, and two moves of 6 min with saves of 2 fill 108 then.
    let task = Task { save_ms: 2 * MINUTE_MS, deadline_ms: 108 * MINUTE_MS, ..task() };
    let outcome = replay(&task, &Reckless, &window(true, &[]));
    let expected = Outcome {
        cost: task.spot.cost(1, 10 * MINUTE_MS) + task.regular.cost(1, (2 + 6 + 78) * MINUTE_MS),
        finished_ms: 96 * MINUTE_MS,
        met_deadline: true,
        moves: 2,
        spot_ms: 10 * MINUTE_MS,
        regular_ms: 86 * MINUTE_MS,
        ..Outcome::default()
    };
    assert_eq!(outcome, expected);
    let enough = Task { deadline_ms: 113 * MINUTE_MS, ..task };
    assert_eq!(
        replay(&enough, &Reckless, &window(true, &[])).regular_ms,
        0,
        "each interval ends with a save"
    );
}

#[test]
fn an_eviction_during_the_boot_loses_no_work() {
    let outcome = replay(&task(), &Greedy, &window(true, &[4, 10]));
    assert_eq!((outcome.evictions, outcome.lost_ms), (1, 0));
    assert_eq!(outcome.finished_ms, 76 * MINUTE_MS);
    assert_eq!(outcome.cost, task().spot.cost(1, 70 * MINUTE_MS));
}

#[test]
fn a_job_that_cannot_be_cut_begins_anew() {
    let task = Task { checkpoint_ms: None, deadline_ms: 300 * MINUTE_MS, ..task() };
    let outcome = replay(&task, &Greedy, &window(true, &[29, 40]));
    assert_eq!((outcome.lost_ms, outcome.finished_ms), (23 * MINUTE_MS, 106 * MINUTE_MS));
}

#[test]
fn greedy_waits_until_work_and_two_moves_fill_the_time_left() {
    // 60 min of work and two moves of 6 fill the last 72 of 120 min: from minute 48 on it is regular.
    let outcome = replay(&task(), &Greedy, &window(false, &[50]));
    assert_eq!((outcome.regular_ms, outcome.spot_ms), (66 * MINUTE_MS, 0));
    assert_eq!(outcome.finished_ms, (48 + 66) * MINUTE_MS);
    assert!(outcome.met_deadline);
}

/// Asks for Spot, whether there is any or not, and never for anything else.
struct Reckless;

impl Policy for Reckless {
    fn name(&self) -> &'static str {
        "reckless"
    }

    fn next(&self, _moment: &Moment<'_>) -> Place {
        Place::Spot
    }
}

#[test]
fn the_net_keeps_the_deadline_of_a_policy_that_does_not() {
    // Spot goes away just before each checkpoint.
    let changes: Vec<u64> = (0..40).flat_map(|n| [n * 12 + 10, n * 12 + 12]).collect();
    let outcome = replay(&task(), &Reckless, &window(true, &changes));
    assert!(outcome.met_deadline, "{outcome:?}");
    assert!(outcome.evictions > 1, "{outcome:?}");
}

#[test]
fn a_deadline_that_cannot_be_met_is_reported_as_missed() {
    let task = Task { deadline_ms: 65 * MINUTE_MS, ..task() };
    let outcome = replay(&task, &Greedy, &window(true, &[]));
    assert_eq!((outcome.met_deadline, outcome.finished_ms), (false, 66 * MINUTE_MS));
}
