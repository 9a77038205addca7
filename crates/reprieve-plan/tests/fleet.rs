//! The simulated fleet against arithmetic: what it costs, when it is done, and where its time went.

use std::num::NonZeroU64;

use reprieve_plan::Price;
use reprieve_plan::availability::{Life, Loss, Series, losses};
use reprieve_plan::fleet::{
    Bursts, Evictions, LIMIT_MAX_MS, Mix, Model, ModelError, Notice, Outcome, PriceSteps, Strategy, Swap,
    Upkeep, simulate,
};
use reprieve_plan::lifetime::{Lifetime, Resampled};
use reprieve_plan::vm_state::{EvictionPolicy, MaxPrice};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const SPOT: Price = Price::from_nanos_per_hour(60_000_000);
const REGULAR: Price = Price::from_nanos_per_hour(240_000_000);
const DISKS: Price = Price::from_nanos_per_hour(3_000_000);
const NOTICE: Notice = Notice { lead_ms: 30_000, share: 1.0, blind_ms: 0 };

/// Jobs that boot in 3 min, save each 5 min in 2 s and restore in 4 s, without evictions.
fn model(jobs: usize, minutes: u64) -> Model {
    let mut model = Model::new(jobs, minutes * MINUTE_MS, SPOT, REGULAR);
    model.work.save_ms = 2_000;
    model.work.restore_ms = 4_000;
    model.machines.boot_ms = (3 * MINUTE_MS, 3 * MINUTE_MS);
    model.market.disks = DISKS;
    model
}

/// Machines that all live for so many minutes.
fn lives(minutes: u64) -> Evictions {
    let life = Life { lived_ms: minutes * MINUTE_MS, evicted: true };
    Evictions::Each(Lifetime::Resampled(Resampled::new(&[life])))
}

/// A fixed fleet whose evicted machines are replaced at once.
fn replaced(instances: u32) -> Strategy {
    Strategy { upkeep: Upkeep::Maintain { delay_ms: 0 }, ..Strategy::steady_fleet(instances) }
}

/// Checks that every slot's time is counted once, and no work twice.
#[track_caller]
fn check_account(model: &Model, outcome: &Outcome) {
    let time = outcome.time;
    assert_eq!(time.kept_ms + time.lost_ms + time.overhead_ms(), outcome.slot_ms, "{outcome:?}");
    let work_ms: u64 = model.work.jobs_ms.iter().sum();
    if outcome.finished_ms.is_some() {
        assert_eq!(time.kept_ms, work_ms, "work is done once: {outcome:?}");
    } else {
        assert!(time.kept_ms < work_ms, "{outcome:?}");
    }
    let used_ms: u64 = outcome.hours.iter().map(|hour| hour.spot_ms + hour.regular_ms).sum();
    assert_eq!(used_ms * u64::from(model.machines.slots), outcome.slot_ms);
    assert_eq!(
        SPOT.cost(1, outcome.hours.iter().map(|hour| hour.spot_ms).sum()),
        outcome.cost.spot,
        "hours are those that were billed"
    );
}

#[test]
fn models_that_cannot_be_simulated_are_refused() {
    let refused = |change: fn(&mut Model)| {
        let mut model = model(2, 10);
        assert_eq!(model.check(), Ok(()));
        change(&mut model);
        model.check().expect_err("a refusal")
    };
    assert_eq!(refused(|model| model.work.jobs_ms.clear()), ModelError::NoWork);
    assert_eq!(refused(|model| model.work.jobs_ms[1] = 0), ModelError::NoWork);
    assert_eq!(refused(|model| model.limit_ms = LIMIT_MAX_MS + 1), ModelError::Limit);
    assert_eq!(refused(|model| model.machines.slots = 0), ModelError::NoSlots);
    assert_eq!(refused(|model| model.machines.boot_ms = (2, 1)), ModelError::Boot);
    assert_eq!(refused(|model| model.market.retry_ms = 0), ModelError::NoRetry);
    assert_eq!(refused(|model| model.market.refused = 1.0), ModelError::Refused);
    let notice = |model: &mut Model| model.market.notice = Some(Notice { share: 1.1, ..NOTICE });
    assert_eq!(refused(notice), ModelError::NoticeShare);
}

#[test]
fn equal_jobs_on_a_fixed_fleet_cost_and_take_what_arithmetic_says() {
    let model = model(100, 40);
    // 40 min of work have 7 saves of 2 s; each machine does 10 jobs after its boot of 3 min.
    let finish_ms = 3 * MINUTE_MS + 10 * (40 * MINUTE_MS + 7 * 2_000);
    for (strategy, regular, spot) in [
        (Strategy::all_regular(10), 10, 0),
        (replaced(10), 0, 10),
        (Strategy { mix: Mix { base: 2, percent_above: 25 }, ..replaced(10) }, 4, 6),
    ] {
        let outcome = simulate(&model, &strategy, 1);
        assert_eq!(outcome.finished_ms, Some(finish_ms), "{}", strategy.name);
        assert_eq!(outcome.cost.regular, REGULAR.cost(regular, finish_ms));
        assert_eq!(outcome.cost.spot, SPOT.cost(spot, finish_ms));
        assert_eq!(outcome.cost.disks, DISKS.cost(10, finish_ms));
        assert_eq!((outcome.saves, outcome.done, outcome.evictions), (700, 100, 0));
        assert_eq!((outcome.regular_quota, outcome.spot_quota), (regular, spot));
        check_account(&model, &outcome);
    }
}

#[test]
fn slots_share_a_machine_and_the_last_wave_may_be_short() {
    let mut model = model(7, 10);
    model.machines.slots = 2;
    model.work.checkpoint_ms = None;
    let outcome = simulate(&model, &replaced(2), 1);
    assert_eq!(outcome.finished_ms, Some(23 * MINUTE_MS));
    assert_eq!(outcome.time.idle_ms, 10 * MINUTE_MS, "one of four slots has no second job");
    check_account(&model, &outcome);
}

#[test]
fn autoscale_starts_what_messages_need_late_and_lingers() {
    let mut model = model(3, 10);
    model.work.checkpoint_ms = None;
    let outcome = simulate(&model, &Strategy::elastic(20), 1);
    // Seen after 2 min, booted after 3, and gone 10 min after the last job.
    assert_eq!(outcome.finished_ms, Some(15 * MINUTE_MS));
    assert_eq!(outcome.cost.spot, SPOT.cost(3, 23 * MINUTE_MS));
    let balanced = simulate(&model, &Strategy::balanced(20, Mix { base: 1, percent_above: 50 }), 1);
    // One of the two above the base is regular.
    assert_eq!(balanced.cost.spot, SPOT.cost(1, 23 * MINUTE_MS));
    assert_eq!(balanced.cost.regular, REGULAR.cost(1, 25 * MINUTE_MS) + REGULAR.cost(1, 23 * MINUTE_MS));
}

#[test]
fn autoscale_replaces_no_more_machines_than_messages_need() {
    let mut model = model(3, 5);
    model.work.jobs_ms[2] = HOUR_MS;
    model.market.evictions = lives(40);
    model.market.notice = Some(NOTICE);
    let outcome = simulate(&model, &Strategy::elastic(3), 1);
    // All three are evicted, and one message is left.
    assert_eq!((outcome.evictions, outcome.done), (3, 3));
    assert_eq!(outcome.time.booting_ms, 4 * 3 * MINUTE_MS);
}

#[test]
fn a_notice_saves_all_work_and_releases_at_once() {
    let mut model = model(1, 20);
    model.market.evictions = lives(10);
    model.market.notice = Some(NOTICE);
    let outcome = simulate(&model, &replaced(1), 1);
    // 3 boot, 5:02 work, 2 s save, then 116 s of work when the notice comes at 10:00, and a save of 2 s. The machine is
    // gone at 10:30; 3:00 boot, 4 s restore, and so on until 20 min are done.
    let first = 5 * MINUTE_MS + 118_000;
    let second = 7 * MINUTE_MS - 4_000 - 2_000;
    let third = 20 * MINUTE_MS - first - second;
    assert_eq!(outcome.time.lost_ms, 0);
    assert_eq!(outcome.finished_ms, Some(2 * 630_000 + 3 * MINUTE_MS + 4_000 + third + 2_000));
    assert_eq!((outcome.evictions, outcome.interruptions, outcome.saves), (2, 2, 5));
    check_account(&model, &outcome);
}

#[test]
fn without_a_notice_work_since_the_last_save_is_lost_and_the_lease_has_to_end() {
    let mut model = model(1, 8);
    model.market.evictions = lives(10);
    model.machines.lease_ms = 30 * MINUTE_MS;
    let outcome = simulate(&model, &replaced(1), 1);
    // 3 boot, 5:02 work, 2 s save.
    assert_eq!(outcome.time.lost_ms, 116_000);
    // The lease was renewed in the last third of it.
    let visible_ms = outcome.finished_ms.unwrap() - 4_000 - (3 * MINUTE_MS - 2_000);
    assert!((30 * MINUTE_MS..=40 * MINUTE_MS).contains(&visible_ms), "{visible_ms}");
    check_account(&model, &outcome);
}

#[test]
fn a_notice_that_is_too_short_for_a_save_saves_nothing() {
    let mut model = model(1, 8);
    model.market.evictions = lives(10);
    model.market.notice = Some(NOTICE);
    model.work.save_ms = 31_000;
    let outcome = simulate(&model, &replaced(1), 1);
    // 3 boot, 5:31 work, 31 s save. Released at the notice: the new machine is the only wait.
    assert_eq!(outcome.time.lost_ms, 7 * MINUTE_MS - 5 * MINUTE_MS - 2 * 31_000);
    assert_eq!(outcome.finished_ms, Some(630_000 + 3 * MINUTE_MS + 4_000 + 3 * MINUTE_MS - 31_000));
    check_account(&model, &outcome);
}

#[test]
fn a_machine_that_has_just_booted_gets_no_notice() {
    let mut model = model(1, 8);
    model.market.evictions = lives(10);
    model.market.notice = Some(Notice { blind_ms: 8 * MINUTE_MS, ..NOTICE });
    assert_eq!(simulate(&model, &replaced(1), 1).time.lost_ms, 116_000);
    model.market.notice = Some(Notice { blind_ms: 7 * MINUTE_MS, ..NOTICE });
    assert_eq!(simulate(&model, &replaced(1), 1).time.lost_ms, 0);
}

#[test]
fn boots_take_any_time_between_their_bounds() {
    let mut model = model(100, 8);
    model.machines.boot_ms = (MINUTE_MS, 3 * MINUTE_MS);
    let boots: Vec<_> = (0..200).map(|seed| simulate(&model, &replaced(1), seed).time.booting_ms).collect();
    assert!(boots.iter().all(|boot_ms| (MINUTE_MS..=3 * MINUTE_MS).contains(boot_ms)), "{boots:?}");
    // Four standard deviations of the mean of 200: 35 s / √200 each.
    let mean_ms = boots.iter().sum::<u64>() / 200;
    assert!(mean_ms.abs_diff(2 * MINUTE_MS) < 10_000, "{mean_ms}");
}

#[test]
fn machines_that_are_evicted_while_they_boot_do_no_work_and_cost_money() {
    let mut model = model(1, 8);
    model.market.evictions = lives(2);
    model.limit_ms = HOUR_MS;
    let outcome = simulate(&model, &replaced(1), 1);
    assert_eq!((outcome.finished_ms, outcome.done, outcome.time.kept_ms), (None, 0, 0));
    assert_eq!((outcome.evictions, outcome.boot_evictions), (30, 30));
    assert_eq!(outcome.cost.spot, SPOT.cost(1, HOUR_MS));
    check_account(&model, &outcome);
}

#[test]
fn deallocated_machines_never_restart_by_themselves_and_keep_disks_and_quota() {
    let mut model = model(10, 60);
    model.market.evictions = lives(10);
    model.limit_ms = HOUR_MS;
    let nobody = Strategy { upkeep: Upkeep::Nobody, ..Strategy::steady(2) };
    let outcome = simulate(&model, &nobody, 1);
    assert_eq!((outcome.finished_ms, outcome.evictions, outcome.spot_quota), (None, 2, 2));
    assert_eq!(outcome.cost.spot, SPOT.cost(2, 10 * MINUTE_MS));
    assert_eq!(outcome.cost.disks, DISKS.cost(2, HOUR_MS));
    let deleted = simulate(&model, &Strategy { policy: EvictionPolicy::Delete, ..nobody }, 1);
    assert_eq!(deleted.cost.disks, DISKS.cost(2, 10 * MINUTE_MS));
    assert_eq!(deleted.finished_ms, None, "the instance count is lower, so nothing replaces them");
}

#[test]
fn restoring_brings_back_what_was_evicted_for_capacity_for_a_while() {
    let mut model = model(1, 8);
    model.market.evictions = lives(10);
    model.machines.lease_ms = 3;
    model.work.is_careful = false;
    let outcome = simulate(&model, &Strategy::steady(1), 1);
    // Tried after 5 min; 3 min boot, 4 s restore, 2:58 left.
    assert_eq!(outcome.finished_ms, Some(21 * MINUTE_MS + 2_000));
    assert_eq!(outcome.cost.disks, DISKS.cost(1, 21 * MINUTE_MS + 2_000));
    assert_eq!(outcome.cost.spot, SPOT.cost(1, 16 * MINUTE_MS + 2_000));
    // Nearly always without capacity, Azure gives up after 12 attempts, but the first machine was tried for longer.
    model.market.refused = 0.999;
    model.market.retry_ms = 1;
    let outcome = simulate(&model, &Strategy::steady(1), 1);
    assert_eq!(outcome.finished_ms, None, "{outcome:?}");
    model.market.retry_ms = HOUR_MS;
    model.market.evictions = Evictions::Each(Lifetime::Endless);
    assert!(simulate(&model, &Strategy::steady(1), 1).refusals > 12, "a deployment is tried on");
}

#[test]
fn a_price_above_the_maximum_evicts_and_nothing_restores_from_it() {
    let mut model = model(1, 20);
    let high = Price::from_nanos_per_hour(90_000_000);
    model.market.spot = PriceSteps::new(SPOT, [(10 * MINUTE_MS, high), (20 * MINUTE_MS, SPOT)]);
    model.limit_ms = HOUR_MS;
    let capped = |strategy: Strategy| Strategy { max_price: MaxPrice::Of(SPOT), ..strategy };
    let restored = simulate(&model, &capped(Strategy::steady(1)), 1);
    assert_eq!((restored.finished_ms, restored.price_evictions), (None, 1));
    let maintained = simulate(&model, &capped(replaced(1)), 1);
    // Asked for each minute until the price is back at 20 min.
    assert_eq!((maintained.evictions, maintained.price_evictions, maintained.refusals), (1, 1, 10));
    assert!(maintained.finished_ms.is_some());
    assert_eq!(maintained.cost.spot, SPOT.cost(1, maintained.finished_ms.unwrap() - 10 * MINUTE_MS));
    let uncapped = simulate(&model, &replaced(1), 1);
    assert_eq!(uncapped.evictions, 0);
    // 3 min boot, 20 min work, 3 saves: 23:06, of which 10 min are dear.
    assert_eq!(uncapped.cost.spot, SPOT.cost(1, 13 * MINUTE_MS + 6_000) + high.cost(1, 10 * MINUTE_MS));
}

#[test]
fn without_a_maximum_no_hour_costs_more_than_a_regular_one() {
    let mut model = model(1, 20);
    model.market.spot = PriceSteps::constant(Price::from_nanos_per_hour(900_000_000));
    let outcome = simulate(&model, &replaced(1), 1);
    assert_eq!(outcome.cost.spot, REGULAR.cost(1, outcome.finished_ms.unwrap()));
}

#[test]
fn machines_are_lost_together() {
    let mut model = model(8, 20);
    model.limit_ms = 24 * HOUR_MS;
    let all = Loss { after_ms: 13 * MINUTE_MS, lost: 4, of: 4 };
    model.market.evictions = Evictions::Together(Bursts::new(vec![all]));
    let outcome = simulate(&model, &replaced(4), 1);
    assert_eq!(outcome.evictions % 4, 0, "{outcome:?}");
    assert!(outcome.evictions >= 8 && outcome.finished_ms.is_some());
    // A half of four is two each time.
    let half = Loss { after_ms: 13 * MINUTE_MS, lost: 1, of: 2 };
    model.market.evictions = Evictions::Together(Bursts::new(vec![half]));
    let outcome = simulate(&model, &replaced(4), 1);
    assert_eq!(outcome.evictions % 2, 0, "{outcome:?}");
    check_account(&model, &outcome);
}

#[test]
fn no_more_machines_run_than_the_series_has() {
    let mut model = model(40, 30);
    // Half of the fleet, then all of it, for 30 min each: whatever the beginning, three quarters on average.
    let series = Series::parse(r#"{"metadata": {"gap_seconds": 1800}, "data": [2, 4]}"#).unwrap();
    for (seed, instances) in (0..20).flat_map(|seed| [(seed, 4), (seed, 8)]) {
        model.market.evictions = Evictions::Capacity(series.times(instances / 4));
        let outcome = simulate(&model, &replaced(instances), seed);
        let average_ms = u64::from(instances) * 45 * MINUTE_MS;
        for hour in &outcome.hours[..outcome.hours.len() - 1] {
            assert!(hour.spot_ms <= average_ms, "seed {seed}: {hour:?}");
            // Each machine that comes back is asked for within a minute.
            let late_ms = u64::from(instances) / 2 * MINUTE_MS;
            assert!(hour.spot_ms >= average_ms - late_ms, "seed {seed}: {hour:?}");
        }
        assert!(outcome.refusals > 0 && outcome.evictions > 0);
        check_account(&model, &outcome);
    }
}

#[test]
fn jobs_that_are_always_interrupted_move_to_regular_machines() {
    let mut model = model(4, 10);
    model.work.checkpoint_ms = None;
    model.market.evictions = lives(7);
    model.limit_ms = 24 * HOUR_MS;
    assert_eq!(simulate(&model, &Strategy::elastic(4), 1).finished_ms, None, "10 min never fit into 4");
    let outcome = simulate(&model, &Strategy::swap(4, 2, 3), 1);
    assert_eq!((outcome.swaps, outcome.interruptions, outcome.done), (4, 12, 4));
    assert!(outcome.finished_ms.is_some() && outcome.regular_quota == 2);
    check_account(&model, &outcome);
    let base = simulate(&model, &Strategy::balanced(4, Mix { base: 1, percent_above: 0 }), 1);
    assert_eq!((base.done, base.regular_quota), (4, 1), "the base does what Spot can't");
}

#[test]
fn a_machine_for_moved_jobs_goes_when_it_is_idle_and_not_before() {
    let mut model = model(2, 10);
    model.work.jobs_ms[0] = 4 * MINUTE_MS + 30_000;
    model.work.checkpoint_ms = None;
    model.market.evictions = lives(7);
    model.machines.lease_ms = 13 * MINUTE_MS;
    let swap = Swap { after: 1, instances: 1, delay_ms: 0, lingers_ms: 10 * MINUTE_MS };
    let strategy = Strategy { swap: Some(swap), ..Strategy::elastic(1) };
    let outcome = simulate(&model, &strategy, 1);
    // The third and the fourth machine of the fleet move a job each. The machine for these waits for the second one
    // for a minute and a half, and is in it ten minutes after the first.
    assert_eq!((outcome.done, outcome.interruptions, outcome.swaps), (2, 2, 2));
    // A second without a job is the end of it, so the second job gets another one.
    let brief = Strategy { swap: Some(Swap { lingers_ms: 1_000, ..swap }), ..strategy };
    let brief = simulate(&model, &brief, 1);
    assert_eq!((brief.done, brief.interruptions), (2, 2));
    let boots = |outcome: &Outcome| outcome.time.booting_ms / (3 * MINUTE_MS);
    assert_eq!((boots(&outcome), boots(&brief)), (5, 6));
}

#[test]
fn a_notice_leaves_a_save_the_first_six_seconds_of_a_drain() {
    for (lead_ms, save_ms, lost_ms) in
        [(30_000, 6_000, 0), (30_000, 6_001, 60_000), (5_000, 3_000, 0), (5_000, 3_001, 60_000)]
    {
        let mut model = model(1, 10);
        model.work.save_ms = save_ms;
        model.market.evictions = lives(4);
        model.market.notice = Some(Notice { lead_ms, ..NOTICE });
        let strategy = Strategy { upkeep: Upkeep::Nobody, ..replaced(1) };
        let outcome = simulate(&model, &strategy, 1);
        // A minute of work, none of which was saved before.
        assert_eq!((outcome.evictions, outcome.time.lost_ms), (1, lost_ms), "{save_ms} ms in {lead_ms}");
    }
}

#[test]
fn a_job_whose_worker_died_saves_soon_and_then_often_for_an_interval() {
    let mut model = model(1, 8);
    model.market.evictions = lives(5);
    model.machines.lease_ms = 0;
    model.limit_ms = 13 * MINUTE_MS;
    let careful = simulate(&model, &replaced(1), 1);
    model.work.is_careful = false;
    let careless = simulate(&model, &replaced(1), 1);
    // Each machine works for two minutes. The second saves after 5 s, and each 20 s from then on.
    assert_eq!((careless.saves, careless.time.kept_ms), (0, 0));
    assert_eq!((careful.evictions, careful.saves), (2, 6));
    assert_eq!(careful.time.kept_ms, 5_000 + 5 * 18_000);
}

#[test]
fn a_job_moves_when_a_machine_of_the_fleet_receives_it_behind_all_others() {
    let mut model = model(4, 10);
    model.work.checkpoint_ms = None;
    model.work.jobs_ms[0] = 30 * MINUTE_MS;
    model.machines.lease_ms = 0;
    model.market.evictions = lives(20);
    let swap = Swap { after: 1, instances: 1, delay_ms: 0, lingers_ms: 10 * MINUTE_MS };
    let strategy = Strategy { swap: Some(swap), ..replaced(1) };
    let outcome = simulate(&model, &strategy, 1);
    // The first job is interrupted at 20 min, and the third at 40. The machine after that does the fourth, until 53 min,
    // and then moves both.
    assert_eq!((outcome.done, outcome.swaps), (4, 2));
    assert_eq!(outcome.finished_ms, Some((53 + 3 + 40) * MINUTE_MS), "{outcome:?}");
}

#[test]
fn a_fleet_goes_when_all_its_jobs_have_moved() {
    let mut model = model(1, 600);
    model.work.checkpoint_ms = None;
    model.work.jobs_ms.insert(0, 60 * MINUTE_MS);
    model.market.evictions = lives(90);
    model.machines.lease_ms = 0;
    let swap = Swap { after: 1, instances: 1, delay_ms: 0, lingers_ms: 10 * MINUTE_MS };
    let outcome = simulate(&model, &Strategy { swap: Some(swap), ..Strategy::elastic(2) }, 1);
    // Both machines are evicted at 92 min. Another one, from 94 min on, moves the job at 97, and goes at 107.
    assert_eq!((outcome.evictions, outcome.swaps), (2, 1));
    assert_eq!(outcome.cost.spot, SPOT.cost(2, 90 * MINUTE_MS) + SPOT.cost(1, 13 * MINUTE_MS));
    // Of two with a life each, one that is idle goes ten minutes after the queue became empty.
    model.market.evictions =
        Evictions::Together(Bursts::new(vec![Loss { after_ms: 82 * MINUTE_MS, lost: 1, of: 2 }]));
    let late = (0..20)
        .map(|seed| simulate(&model, &Strategy { swap: Some(swap), ..Strategy::elastic(2) }, seed))
        .find(|outcome| outcome.swaps == 1 && outcome.evictions == 1)
        .expect("a run in which the long job's machine is lost first");
    assert_eq!(late.cost.spot, SPOT.cost(1, 80 * MINUTE_MS) + SPOT.cost(1, 90 * MINUTE_MS));
    check_account(&model, &late);
}

#[test]
fn machines_that_wait_for_a_scale_in_when_the_last_moved_job_is_done_go_ten_minutes_after_their_own() {
    let mut model = model(2, 78);
    model.work.save_ms = 0;
    model.machines.lease_ms = 0;
    model.market.evictions =
        Evictions::Together(Bursts::new(vec![Loss { after_ms: 82 * MINUTE_MS, lost: 1, of: 2 }]));
    let swap = Swap { after: 1, instances: 1, delay_ms: 0, lingers_ms: 10 * MINUTE_MS };
    let outcome = simulate(&model, &Strategy { swap: Some(swap), ..Strategy::elastic(2) }, 1);
    // One is lost after 77 min of work, of which 75 are saved; the other is done at 83 min, moves that job, and goes at
    // 93.
    assert_eq!(outcome.finished_ms, Some(89 * MINUTE_MS + 4_000));
    assert_eq!(outcome.cost.spot, SPOT.cost(1, 80 * MINUTE_MS) + SPOT.cost(1, 91 * MINUTE_MS));
    assert_eq!(outcome.cost.regular, REGULAR.cost(1, 16 * MINUTE_MS + 4_000));
}

#[test]
fn jobs_that_are_interrupted_but_move_on_stay_on_spot() {
    let mut model = model(1, 30);
    model.market.evictions = lives(7);
    model.market.notice = Some(NOTICE);
    let outcome = simulate(&model, &Strategy::swap(1, 1, 3), 1);
    assert!(outcome.interruptions >= 6 && outcome.finished_ms.is_some(), "{outcome:?}");
    assert_eq!((outcome.swaps, outcome.regular_quota), (0, 0));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let mut model = model(200, 30);
    let losses = losses(include_str!("../traces/aws-p3-fleet.csv")).unwrap();
    model.market.evictions = Evictions::Together(Bursts::new(losses));
    model.market.refused = 0.2;
    let strategy = Strategy::elastic(10);
    assert_eq!(simulate(&model, &strategy, 3), simulate(&model, &strategy, 3));
    assert_ne!(simulate(&model, &strategy, 3), simulate(&model, &strategy, 4));
}

#[test]
fn strategies_meet_the_same_market_whatever_else_they_draw() {
    let mut model = model(1_000, 600);
    model.machines.boot_ms = (MINUTE_MS, 3 * MINUTE_MS);
    model.market.refused = 1e-12;
    model.limit_ms = 24 * HOUR_MS;
    let loss = |minutes| Loss { after_ms: minutes * MINUTE_MS, lost: 4, of: 4 };
    model.market.evictions = Evictions::Together(Bursts::new(vec![loss(37), loss(83)]));
    let strategy =
        |instances| Strategy { upkeep: Upkeep::Maintain { delay_ms: 20 * MINUTE_MS }, ..replaced(instances) };
    let [small, large] = [4, 8].map(|instances| simulate(&model, &strategy(instances), 5));
    let double: Vec<_> = small.hours.iter().map(|hour| hour.spot_ms * 2).collect();
    assert_eq!(double, large.hours.iter().map(|hour| hour.spot_ms).collect::<Vec<_>>());
    assert!(double.iter().any(|spot_ms| *spot_ms < 8 * HOUR_MS), "no hour had a loss: {double:?}");
}

#[test]
fn the_market_and_the_fleet_are_drawn_apart() {
    // A machine can be had for ten minutes of twenty, and boots for any time up to twenty.
    let mut model = model(10, 600);
    model.machines.boot_ms = (0, 20 * MINUTE_MS - 1);
    model.limit_ms = HOUR_MS;
    let series = Series::parse(r#"{"metadata": {"gap_seconds": 600}, "data": [1, 0]}"#).unwrap();
    model.market.evictions = Evictions::Capacity(series);
    let strategy = Strategy { upkeep: Upkeep::Nobody, ..replaced(1) };
    let runs = (0..50).map(|seed| simulate(&model, &strategy, seed)).filter(|outcome| outcome.refusals == 0);
    // How far into the ten minutes the run began, which was drawn from the market, and the boot from the fleet.
    let drawn: Vec<_> = runs
        .map(|outcome| (10 * MINUTE_MS - outcome.hours[0].spot_ms, outcome.time.booting_ms))
        .filter(|(began_ms, booting_ms)| booting_ms + began_ms < 10 * MINUTE_MS)
        .collect();
    assert!(
        drawn.len() > 3 && drawn.iter().all(|(began_ms, booting_ms)| began_ms != booting_ms),
        "{drawn:?}"
    );
}

/// The mean time of exponential kills by Daly: M·e^(R/M)·(e^((τ+δ)/M) − 1) for each interval τ with its save δ, where
/// R is what has to pass without a kill before work goes on. (J. T. Daly, "A higher order estimate of the optimum
/// checkpoint interval for restart dumps", 2006.)
fn daly_ms(mean: f64, boot: f64, restore: f64, interval: f64, save: f64, intervals: u32) -> f64 {
    let attempt = |time: f64, restart: f64| mean * (restart / mean).exp() * (time / mean).exp_m1();
    // The first boot and the first interval have nothing to restore, and nothing is saved after the last.
    attempt(boot, 0.0)
        + attempt(interval + save, boot)
        + f64::from(intervals - 2) * attempt(interval + save, boot + restore)
        + attempt(interval, boot + restore)
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "means of times")]
fn exponential_kills_take_the_time_that_daly_expects() {
    const RUNS: u64 = 40_000;
    const MINUTE: f64 = MINUTE_MS as f64;
    for (mean_minutes, interval_minutes) in [(120_u32, 20), (60, 10), (600, 30)] {
        let mut model = Model::new(1, 2 * HOUR_MS, SPOT, REGULAR);
        model.work.checkpoint_ms = NonZeroU64::new(interval_minutes * MINUTE_MS);
        model.work.is_careful = false;
        model.work.save_ms = MINUTE_MS;
        model.work.restore_ms = 2 * MINUTE_MS;
        model.machines.boot_ms = (5 * MINUTE_MS, 5 * MINUTE_MS);
        model.machines.lease_ms = 0;
        let mean = f64::from(mean_minutes) * MINUTE;
        model.market.evictions = Evictions::Each(Lifetime::Exponential { mean_ms: mean });
        let times: Vec<_> = (0..RUNS)
            .map(|seed| simulate(&model, &replaced(1), seed).finished_ms.expect("a run that finishes") as f64)
            .collect();
        let found = times.iter().sum::<f64>() / RUNS as f64;
        let variance = times.iter().map(|time| (time - found).powi(2)).sum::<f64>() / (RUNS - 1) as f64;
        let half_width = 1.96 * (variance / RUNS as f64).sqrt();
        let intervals = u32::try_from(120 / interval_minutes).unwrap();
        let expected =
            daly_ms(mean, 5.0 * MINUTE, 2.0 * MINUTE, interval_minutes as f64 * MINUTE, MINUTE, intervals);
        println!(
            "a kill in {mean_minutes} min: {:.2} ± {:.2} min in {RUNS} runs, Daly {:.2} min",
            found / MINUTE,
            half_width / MINUTE,
            expected / MINUTE
        );
        assert!((found / expected - 1.0).abs() < 0.01, "{found} for {expected}");
        assert!(half_width / expected < 0.01, "too few runs: {half_width}");
    }
}

#[test]
fn a_machine_asked_for_when_the_capacity_changes_finds_the_new_one() {
    // Attempts to restore come every 5 min, as changes do; a second less between those takes both apart.
    let of = |gap_seconds: u32| {
        let data = ["1,1,1,0"; 50].join(",");
        let text = format!(r#"{{"metadata": {{"gap_seconds": {gap_seconds}}}, "data": [{data}]}}"#);
        let series = Series::parse(&text).unwrap();
        let mut model = model(400, 10);
        model.work.checkpoint_ms = None;
        model.machines.boot_ms = (0, 0);
        model.market.evictions = Evictions::Capacity(series.times(10));
        let outcome = simulate(&model, &Strategy::steady(10), 1);
        (outcome.finished_ms.expect("done") / MINUTE_MS, outcome.evictions)
    };
    let ((together_min, together), (apart_min, apart)) = (of(300), of(299));
    assert!(together_min.abs_diff(apart_min) * 10 <= apart_min, "{together_min} and {apart_min} min");
    assert!(together.abs_diff(apart) * 10 <= apart, "{together} and {apart} evictions");
}

#[test]
fn a_series_has_numbers_of_machines_whatever_the_fleet_asks_for() {
    let cost = |data: &str, instances: u32| {
        let text = format!(r#"{{"metadata": {{"gap_seconds": 1800}}, "data": [{data}]}}"#);
        let mut model = Model::new(8, HOUR_MS, SPOT, REGULAR);
        model.market.evictions = Evictions::Capacity(Series::parse(&text).unwrap());
        let outcome = simulate(&model, &replaced(instances), 1);
        (outcome.finished_ms.expect("done") / HOUR_MS, outcome.evictions)
    };
    assert_eq!(cost("2, 2", 4), (4, 0), "two machines, and never more");
    assert_eq!(cost("8, 4", 4), (2, 0), "more than the fleet asks for evict nobody as they become fewer");
    assert_eq!(cost("9", 4), (2, 0));
}

#[test]
fn a_job_that_is_done_when_the_capacity_falls_or_the_price_rises_is_not_lost() {
    // Ten minutes of boot and job, of which the series has ten.
    let mut model = Model::new(1, 5 * MINUTE_MS, SPOT, REGULAR);
    model.work.checkpoint_ms = None;
    model.machines.boot_ms = (5 * MINUTE_MS, 5 * MINUTE_MS);
    let series = Series::parse(r#"{"metadata": {"gap_seconds": 600}, "data": [1, 0]}"#).unwrap();
    let mut of_series = model.clone();
    of_series.market.evictions = Evictions::Capacity(series);
    // A run that begins while none is to be had gets its machine when the series has one again.
    let strategy = Strategy { upkeep: Upkeep::Maintain { delay_ms: 0 }, ..replaced(1) };
    of_series.market.retry_ms = 1;
    for seed in 0..20 {
        let outcome = simulate(&of_series, &strategy, seed);
        let began_late = outcome.refusals > 0 && outcome.evictions == 0;
        let tried_again = outcome.evictions == 1 && outcome.time.lost_ms < 5 * MINUTE_MS;
        assert!(began_late || tried_again, "seed {seed}: {outcome:?}");
    }
    model.market.spot = PriceSteps::new(SPOT, [(10 * MINUTE_MS, REGULAR)]);
    let limited = Strategy { max_price: MaxPrice::Of(SPOT), ..replaced(1) };
    let outcome = simulate(&model, &limited, 1);
    assert_eq!((outcome.finished_ms, outcome.evictions), (Some(10 * MINUTE_MS), 0));
}
