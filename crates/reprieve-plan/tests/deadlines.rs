//! Every policy keeps every deadline, and the programme costs least, in thousands of windows.

use std::num::NonZeroU64;

use reprieve_plan::availability::{Series, Window};
use reprieve_plan::compare::compare;
use reprieve_plan::generated::{Markov, Regimes};
use reprieve_plan::omniscient::least_cost;
use reprieve_plan::policy::{AllRegular, Greedy, Policy, Programme, Uniform};
use reprieve_plan::{Price, Task, replay};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const WINDOWS: usize = 1000;
const SEED: u64 = 20;

/// A job whose regular machines cost three times as much as Spot.
fn task(hours: u64, slack_percent: u64) -> Task {
    let (spot, regular) = (Price::from_nanos_per_hour(64_000_000), Price::from_nanos_per_hour(192_000_000));
    let job_ms = hours * HOUR_MS;
    Task { job_ms, deadline_ms: job_ms * (100 + slack_percent) / 100, ..Task::new(spot, regular) }
}

fn fleets() -> [(&'static str, Series); 2] {
    [
        ("g4dn", include_str!("../traces/aws-g4dn-fleet.csv")),
        ("p3", include_str!("../traces/aws-p3-fleet.csv")),
    ]
    .map(|(name, text)| (name, Series::parse(text).expect("a trace that is read")))
}

fn chains() -> impl Iterator<Item = (String, Markov)> {
    [5, 10, 25, 50, 75, 90].into_iter().flat_map(|percent| {
        [30, 120, 600].map(|minutes| {
            let available = f64::from(percent) / 100.0;
            (format!("{percent} %, {minutes} min"), Markov { available, mean_up_ms: minutes * MINUTE_MS })
        })
    })
}

/// Windows of fleets, and of chains from 5 to 90 %, by name.
fn settings(length_ms: u64, count: usize) -> Vec<(String, Vec<Window>)> {
    let fleets = fleets().map(|(name, fleet)| (name.to_owned(), fleet.draw_windows(length_ms, count, SEED)));
    let chains = chains().map(|(name, chain)| {
        // One series for all windows: its seed stands for a thousand.
        let series = chain.series(count as u64 * length_ms, SEED);
        let windows = (0..count as u64).map(|n| series.window(n * length_ms, length_ms, 1));
        (name, windows.collect())
    });
    fleets.into_iter().chain(chains).collect()
}

/// Checks all policies in `count` windows of each setting.
fn check_deadlines(name: &str, task: &Task, count: usize) {
    let programme = Programme::new(task);
    for (setting, windows) in settings(task.deadline_ms, count) {
        for (number, window) in windows.iter().enumerate() {
            let regular = replay(task, &AllRegular, window);
            assert!(regular.met_deadline, "{name} is to be met by regular machines");
            let bound = least_cost(task, window);
            for policy in [&Greedy as &dyn Policy, &Uniform, &programme] {
                let outcome = replay(task, policy, window);
                let place = format!("{name}, {setting}, seed {SEED}, window {number}, {}", policy.name());
                assert!(outcome.met_deadline, "{place}: missed by {outcome:?}");
                assert!(outcome.cost >= bound, "{place}: cheaper than the bound {bound}: {outcome:?}");
            }
        }
    }
}

/// The tightest deadline of the promise: regular machines meet it with two moves, a checkpoint
/// interval and the longest job to spare.
fn tightest(task: Task) -> Task {
    let spare_ms = 2 * task.move_ms + task.checkpoint_ms.map_or(0, NonZeroU64::get) + task.job_ms;
    Task { deadline_ms: task.all_regular_ms() + spare_ms, ..task }
}

#[test]
fn every_policy_meets_the_tightest_deadline_of_a_batch_of_short_jobs() {
    check_deadlines(
        "short jobs",
        &tightest(Task { jobs: 24, job_ms: 20 * MINUTE_MS, ..task(1, 0) }),
        WINDOWS,
    );
}

#[test]
fn every_policy_meets_the_tightest_deadline_of_jobs_that_cannot_be_cut() {
    let jobs = Task { jobs: 6, job_ms: 50 * MINUTE_MS, checkpoint_ms: None, ..task(1, 0) };
    check_deadlines("jobs that can't be cut", &tightest(jobs), WINDOWS);
}

#[test]
fn every_policy_meets_a_deadline_that_is_as_tight_as_regular_machines_allow() {
    for job_ms in [45 * MINUTE_MS, 4 * HOUR_MS] {
        let task = Task { job_ms, ..task(1, 0) };
        let deadline_ms = task.all_regular_ms();
        for more_ms in [0, task.move_ms, task.move_ms + 1, 2 * task.move_ms, 3 * task.move_ms] {
            let task = Task { deadline_ms: deadline_ms + more_ms, ..task };
            check_deadlines("no time to spare", &task, 100);
        }
    }
}

#[test]
fn every_policy_meets_the_tightest_deadline_of_jobs_whose_saves_take_long() {
    let jobs = Task { jobs: 24, job_ms: 20 * MINUTE_MS, save_ms: 2 * MINUTE_MS, slots: 3, ..task(1, 0) };
    for more_ms in [0, jobs.move_ms, 2 * jobs.move_ms, 3 * jobs.move_ms] {
        let task = Task { deadline_ms: jobs.all_regular_ms() + more_ms, ..jobs };
        check_deadlines("long saves", &task, 200);
    }
}

#[test]
fn every_policy_meets_an_ample_deadline() {
    check_deadlines("8 h with half as much slack", &task(8, 50), WINDOWS);
}

/// The mean costs of the policies, greedy first, over the windows of a setting.
fn means(task: &Task, windows: &[Window]) -> [f64; 3] {
    let programme = Programme::new(task);
    let summaries = compare(task, &[&Greedy, &Uniform, &programme], windows);
    [0, 1, 2].map(|policy| summaries[policy].mean)
}

/// Checks that the programme costs at most 1 % more than the better of the others in every setting,
/// and at least `gain` less than it in the mean of all.
fn check_costs(task: &Task, settings: &[(String, Vec<Window>)], gain: f64) {
    let rows: Vec<_> = settings.iter().map(|(name, windows)| (name, means(task, windows))).collect();
    for (name, [greedy, uniform, programme]) in &rows {
        let better = greedy.min(*uniform);
        assert!(
            *programme <= better * 1.01,
            "{name}, seed {SEED}: {programme:.3} of {greedy:.3}, {uniform:.3}"
        );
    }
    let overall = [0, 1, 2].map(|policy| rows.iter().map(|(_, means)| means[policy]).sum::<f64>());
    let better = overall[0].min(overall[1]);
    assert!(overall[2] <= better * (1.0 - gain), "seed {SEED}: {overall:?} of {} settings", rows.len());
}

#[test]
fn the_programme_costs_least_with_little_slack() {
    let task = task(24, 10);
    check_costs(&task, &settings(task.deadline_ms, 300), 0.05);
}

#[test]
fn the_programme_costs_least_with_half_as_much_slack_as_work() {
    let task = task(8, 50);
    check_costs(&task, &settings(task.deadline_ms, WINDOWS), 0.03);
}

#[test]
fn the_programme_costs_no_more_where_greedy_is_best() {
    let task = task(4, 100);
    check_costs(&task, &settings(task.deadline_ms, WINDOWS), 0.01);
}

#[test]
fn the_programme_costs_no_more_where_moves_take_long() {
    let task = Task { move_ms: 15 * MINUTE_MS, ..task(8, 50) };
    check_costs(&task, &settings(task.deadline_ms, WINDOWS), 0.01);
}

#[test]
fn the_programme_costs_least_over_two_days() {
    let task = task(48, 25);
    check_costs(&task, &settings(task.deadline_ms, 100), 0.07);
}

#[test]
fn the_programme_costs_no_more_where_regular_machines_cost_little_more() {
    for (hours, slack) in [(2, 300), (4, 300), (8, 100)] {
        let task = Task { regular: Price::from_nanos_per_hour(96_000_000), ..task(hours, slack) };
        check_costs(&task, &settings(task.deadline_ms, WINDOWS), 0.0);
    }
}

#[test]
fn the_programme_costs_no_more_where_spot_is_back_within_minutes() {
    for (hours, slack, ratio) in [(2, 50, 5), (4, 25, 3), (4, 25, 10)] {
        let regular = Price::from_nanos_per_hour(ratio * 64_000_000);
        let task = Task { regular, ..task(hours, slack) };
        check_costs(&task, &settings(task.deadline_ms, WINDOWS), 0.0);
    }
}

#[test]
fn the_programme_costs_no_more_in_the_windows_of_a_short_trace() {
    // Two weeks, as a team has them after its first batches. Each is a setting: its windows overlap, and one that is
    // calmer than its law is calmer in all of them.
    let task = task(48, 25);
    let markets = [(90, 120), (90, 60), (90, 30), (75, 600), (50, 120)];
    let traces =
        markets.iter().flat_map(|(percent, minutes)| (1..=6).map(move |seed| (*percent, *minutes, seed)));
    let traces = traces.map(|(percent, minutes, seed)| {
        let chain = Markov { available: f64::from(percent) / 100.0, mean_up_ms: minutes * MINUTE_MS };
        let windows = chain.series(14 * 24 * HOUR_MS, seed).draw_windows(task.deadline_ms, 300, SEED);
        (format!("two weeks of {percent} %, {minutes} min, seed {seed}"), windows)
    });
    check_costs(&task, &traces.collect::<Vec<_>>(), 0.05);
}

#[test]
fn the_programme_costs_least_where_spot_is_no_markov_chain() {
    let task = task(24, 25);
    let regimes = [(2, 70, 6), (5, 85, 12), (10, 95, 24), (30, 95, 36)].map(|(scarce, plenty, hours)| {
        let chain = |percent, minutes| Markov {
            available: f64::from(percent) / 100.0,
            mean_up_ms: minutes * MINUTE_MS,
        };
        let regimes = Regimes { chains: [chain(scarce, 20), chain(plenty, 180)], mean_ms: hours * HOUR_MS };
        let series = regimes.series(300 * task.deadline_ms, SEED);
        let windows = (0..300).map(|n| series.window(n * task.deadline_ms, task.deadline_ms, 1));
        (format!("{scarce}/{plenty} %, {hours} h"), windows.collect())
    });
    check_costs(&task, &regimes, 0.05);
}
