//! Plans: which strategy is advised and why, what is simulated, and what is refused.

use reprieve_plan::Price;
use reprieve_plan::availability::{Loss, Series, losses};
use reprieve_plan::fleet::{Mix, PriceSteps, Strategy};
use reprieve_plan::money::Cost;
use reprieve_plan::plan::{Inputs, Known, Plan, PlanError, Source, Verdict, parameters};
use reprieve_plan::vm_state::MaxPrice;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

fn price(nanos_per_hour: u64) -> Price {
    Price::from_nanos_per_hour(nanos_per_hour)
}

/// 100 jobs of 40 min on ten machines, with Spot at a fifth and a rate of 5 to 10 % an hour.
fn inputs() -> Inputs {
    Inputs {
        evictions: rate(0.05, Some(0.1)),
        runs: 40,
        ..Inputs::new(100, 40 * MINUTE_MS, 10, price(46_000_000), price(230_000_000))
    }
}

fn rate(low: f64, high: Option<f64>) -> Known {
    Known::Rate { low, high, pattern: None, source: Source::Given }
}

#[track_caller]
fn plan(inputs: &Inputs) -> Plan {
    Plan::new(inputs, |_, _| {}).expect("a plan")
}

#[track_caller]
fn refusal(inputs: &Inputs) -> String {
    Plan::new(inputs, |_, _| {}).expect_err("a refusal").to_string()
}

fn advised(plan: &Plan) -> Option<&str> {
    plan.advice.strategy.map(|index| plan.rows[index].strategy.name.as_str())
}

fn value<'a>(plan: &'a Plan, subject: &str) -> (&'a str, &'a Source) {
    let found = plan.assumptions.iter().find(|assumption| assumption.subject == subject);
    let found = found.unwrap_or_else(|| panic!("no assumption on {subject}"));
    (&found.value, &found.source)
}

#[test]
fn the_cheapest_strategy_that_meets_the_deadline_is_advised() {
    let evictions = rate(0.01, Some(0.3));
    let plan = plan(&Inputs { deadline_ms: Some(8 * HOUR_MS), evictions, ..inputs() });
    assert_eq!(plan.advice.verdict, Verdict::Spot);
    let index = plan.advice.strategy.unwrap();
    let worst = |index: usize| {
        plan.rows[index].summaries.iter().map(|summary| summary.cost_micros.mean).fold(0.0, f64::max)
    };
    for (other, row) in plan.rows.iter().enumerate() {
        let is_late = row.summaries.iter().any(|summary| summary.chance() < 0.95);
        assert!(is_late || worst(other) >= worst(index), "{} is cheaper", row.strategy.name);
    }
    let cost =
        format!("at the worse end of the eviction rate, it costs ${:.2} on average", worst(index) / 1e6);
    assert!(plan.advice.reason.contains(&cost), "{}", plan.advice.reason);
    assert!(
        plan.advice.reason.ends_with("the deadline is met in 100 % of the runs"),
        "{}",
        plan.advice.reason
    );
}

#[test]
fn advice_says_where_the_rate_is_open_or_unknown() {
    let reason = |evictions| plan(&Inputs { evictions, runs: 5, ..inputs() }).advice.reason;
    let open = reason(rate(0.2, None));
    assert!(open.ends_with("; the eviction rate has no upper end, so it may cost more"), "{open}");
    let unknown = reason(Known::Unknown);
    assert!(unknown.ends_with("; the eviction rate is unknown, so it may cost more"), "{unknown}");
    assert!(!reason(rate(0.05, Some(0.1))).contains(';'));
}

#[test]
fn spot_is_not_advised_where_long_jobs_that_cannot_save_are_always_interrupted() {
    let harsh = Inputs {
        jobs_ms: vec![6 * HOUR_MS; 20],
        can_save: false,
        deadline_ms: Some(14 * HOUR_MS),
        evictions: rate(0.3, None),
        // Without a regular machine there is nothing that saves a strategy.
        mix: Mix { base: 0, percent_above: 0 },
        ..inputs()
    };
    let plan = plan(&harsh);
    assert_eq!((plan.advice.verdict, advised(&plan)), (Verdict::NoSpot, Some("all regular")));
    assert!(plan.advice.reason.starts_with("don't use Spot for this: "), "{}", plan.advice.reason);
    assert!(
        plan.advice.reason.contains("meets the deadline in 0 % of the runs only"),
        "{}",
        plan.advice.reason
    );
}

#[test]
fn spot_is_not_advised_for_a_saving_that_is_not_worth_it() {
    let mut inputs = inputs();
    inputs.prices.spot = reprieve_plan::fleet::PriceSteps::constant(price(215_000_000));
    inputs.evictions = rate(0.0, None);
    let plan = plan(&inputs);
    assert_eq!(plan.advice.verdict, Verdict::NoSpot);
    assert!(plan.advice.reason.ends_with("which is less than 10 %"), "{}", plan.advice.reason);
}

#[test]
fn a_budget_that_nothing_keeps_is_answered_with_what_it_takes() {
    let budget = |micros: u64| Inputs { budget: Some(Cost::from_nanos(micros * 1000)), ..inputs() };
    let refused = plan(&budget(1_000_000));
    assert_eq!((refused.advice.verdict, refused.advice.strategy), (Verdict::Nothing, None));
    let (_, needed) = refused.advice.reason.split_once(" needs $").expect("what it needs");
    let cents: u64 = needed.split(',').next().unwrap().replace('.', "").parse().unwrap();
    let enough = plan(&budget(cents * 10_000));
    assert_eq!(enough.advice.verdict, Verdict::Spot, "{}", refused.advice.reason);
    assert_eq!(plan(&budget((cents - 1) * 10_000)).advice.verdict, Verdict::Nothing);
}

#[test]
fn both_ends_of_a_rate_are_simulated_and_an_open_one_has_no_upper_end() {
    let names = |evictions| {
        let plan = plan(&Inputs { evictions, runs: 2, ..inputs() });
        plan.scenarios.iter().map(|scenario| scenario.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(rate(0.05, Some(0.1))), ["5 % evicted an hour", "10 % evicted an hour"]);
    assert_eq!(names(rate(0.2, None)), ["20 % evicted an hour"]);
    assert_eq!(names(rate(0.07, Some(0.07))), ["7 % evicted an hour"]);
    assert_eq!(names(Known::Unknown), ["0 % evicted an hour", "20 % evicted an hour"]);
    let open = plan(&Inputs { evictions: rate(0.2, None), runs: 2, ..inputs() });
    assert_eq!(value(&open, "evictions").0, "20 % of the machines an hour or more: there is no upper end");
    let unknown = plan(&Inputs { evictions: Known::Unknown, runs: 2, ..inputs() });
    assert!(matches!(value(&unknown, "evictions").1, Source::Assumed(_)));
}

#[test]
fn the_interval_is_that_of_workers_for_the_losses() {
    let seconds = |inputs: Inputs| {
        let plan = plan(&Inputs { runs: 1, save_ms: Some(1000), ..inputs });
        plan.scenarios.last().unwrap().model.work.checkpoint_ms.map(|interval| interval.get() / 1000)
    };
    let blind = |share| Inputs { evictions: rate(share, None), notice: None, ..inputs() };
    // Nothing is lost in 67 VM-hours and more: two in 20 more.
    assert!((540..=600).contains(&seconds(blind(0.0)).unwrap()));
    // About one an hour, as in "20 losses in 20 VM-hours".
    let often = seconds(blind(0.63)).unwrap();
    assert!((75..=115).contains(&often), "{often}");
    // A notice saves all, so it is no loss.
    let noticed = Inputs {
        notice: Some(reprieve_plan::fleet::Notice { lead_ms: 30_000, share: 1.0, blind_ms: 0 }),
        ..blind(0.63)
    };
    assert!(seconds(noticed).unwrap() >= 540);
    assert_eq!(seconds(Inputs { can_save: false, ..blind(0.1) }), None);
}

#[test]
fn rows_have_the_idle_month_the_quota_and_the_parameters() {
    let mut inputs = Inputs { runs: 5, ..inputs() };
    inputs.prices.disks = price(3_000_000);
    inputs.prices.always = price(50_000_000);
    let plan = plan(&inputs);
    let row = |name: &str| plan.rows.iter().find(|row| row.strategy.name == name).expect("a row");
    // 730 h: the gateway, and the machines that are kept without a job with their disks.
    let gateway = 36_500_000;
    assert_eq!(row("elastic").idle_month.micros(), gateway);
    assert_eq!(row("steady").idle_month.micros(), gateway + 10 * 730 * 49_000);
    assert_eq!(row("balanced").idle_month.micros(), gateway + 2 * 730 * 233_000);
    assert_eq!(row("all regular").quota, (0, 10));
    assert_eq!(row("steady").quota, (10, 0));
    // Two, and 25 % of eight.
    assert_eq!(row("balanced").quota, (6, 4));
    let lines = ["param preset = 'elastic'", "param instances = 10", "param jobsPerInstance = 1"];
    assert_eq!(row("elastic").parameters, lines);
    for row in &plan.rows {
        for summary in &row.summaries {
            assert!(summary.parts_micros[4] > 0, "the gateway is part of {}", row.strategy.name);
        }
    }
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "small sums")]
fn traffic_between_regions_is_paid_for_each_save_and_restore() {
    let mut inputs = Inputs { save_ms: Some(1000), evictions: rate(0.3, None), runs: 10, ..inputs() };
    let free = plan(&inputs);
    inputs.prices.traffic = Cost::from_nanos(2_000_000);
    let paid = plan(&inputs);
    for (free, paid) in free.rows.iter().zip(&paid.rows) {
        let (free, paid) = (&free.summaries[0], &paid.summaries[0]);
        assert_eq!((free.parts_micros[5], free.saves.to_bits()), (0, paid.saves.to_bits()));
        // 0.002 a save at least, and no more than three restores for each eviction.
        let (least, traffic) = (paid.saves * 2_000.0, paid.parts_micros[5] as f64);
        assert!(
            traffic + 1.0 >= least && traffic <= least + paid.evictions * 6_000.0 + 1.0,
            "{traffic}, {least}"
        );
        let difference = paid.cost_micros.mean - free.cost_micros.mean;
        assert!((difference - traffic).abs() < 2.0, "{difference}, {traffic}");
    }
    let elastic = &paid.rows[3].summaries[0];
    assert!(elastic.parts_micros[5] as f64 > elastic.saves * 2_000.0 + 1_000.0, "restores count");
    assert!(matches!(value(&free, "traffic between regions").1, Source::Assumed(_)));
    assert_eq!(
        value(&paid, "traffic between regions"),
        ("0.002000 USD for each save and each restore", &Source::Given)
    );
}

/// A worker's first save of a delivery comes a whole interval after it began: ten minutes here.
#[test]
fn jobs_that_are_done_within_an_interval_make_no_save_however_long_one_takes() {
    for (minutes, save_s, saves) in [(10, 100, 0.0), (10, 290, 0.0), (5, 601, 0.0), (11, 100, 20.0)] {
        let no_boot = Some((0, 0));
        let jobs = Inputs::new(20, minutes * MINUTE_MS, 4, price(46_000_000), price(230_000_000));
        let (save_ms, evictions) = (Some(save_s * 1_000), rate(0.0, None));
        let plan = plan(&Inputs { save_ms, evictions, runs: 2, boot_ms: no_boot, ..jobs });
        let steady = &plan.rows[1].summaries[0];
        assert_eq!(steady.saves.to_bits(), f64::to_bits(saves), "{minutes} min, {save_s} s a save");
        let busy_ms = minutes * MINUTE_MS + if saves > 0.0 { save_s * 1_000 } else { 0 };
        assert_eq!(steady.finished_ms.p50, 5 * busy_ms, "{minutes} min, {save_s} s a save");
    }
    let endless = Inputs { save_ms: Some(601_000), evictions: rate(0.0, None), ..inputs() };
    assert!(refusal(&endless).starts_with("a save takes"), "jobs of 40 min");
}

#[test]
fn presets_have_the_parameters_of_their_files() {
    let balanced = Strategy::balanced(20, Mix { base: 2, percent_above: 25 });
    for (strategy, text, count) in [
        (Strategy::steady(4), include_str!("../../../infra/presets/steady.bicepparam"), 3),
        (Strategy::steady_fleet(4), include_str!("../../../infra/presets/steady-fleet.bicepparam"), 2),
        (Strategy::elastic(20), include_str!("../../../infra/presets/elastic.bicepparam"), 3),
        (balanced, include_str!("../../../infra/presets/balanced.bicepparam"), 5),
        (Strategy::swap(20, 2, 3), include_str!("../../../infra/presets/swap.bicepparam"), 5),
    ] {
        let lines = parameters(&strategy, 2);
        assert_eq!(lines.len(), count, "{}", strategy.name);
        // The files leave it at its default, which is 2.
        for line in lines.iter().filter(|line| *line != "param jobsPerInstance = 2") {
            assert!(text.lines().any(|given| given == line), "{}: {line}", strategy.name);
        }
    }
    assert!(parameters(&Strategy::all_regular(4), 2).is_empty());
}

/// The bounds of a parameter of infra/, by its decorators.
fn bounds(name: &str) -> (u32, u32, Option<Vec<String>>) {
    let template = include_str!("../../../infra/fleet.bicep");
    let (before, _) = template.split_once(&format!("\nparam {name} ")).unwrap_or_else(|| panic!("no {name}"));
    let decorators: Vec<_> = before.lines().rev().take_while(|line| line.starts_with('@')).collect();
    let inside = |decorator: &str| {
        let found = decorators.iter().find_map(|line| line.strip_prefix(decorator));
        found.map(|inside| inside.trim_start_matches('(').trim_end_matches(')').to_owned())
    };
    let number =
        |decorator, without| inside(decorator).map_or(without, |text| text.parse().expect("a number"));
    let allowed = inside("@allowed")
        .map(|list| list.trim_matches(['[', ']']).split(',').map(|it| it.trim().to_owned()).collect());
    (number("@minValue", 0), number("@maxValue", u32::MAX), allowed)
}

#[test]
fn no_parameters_are_printed_that_the_templates_refuse() {
    let mut printed = 0;
    for instances in [1, 2, 3, 20, 1000, 1001, 1_000_000] {
        let mixes = [(0, 0), (0, 25), (1, 0), (2, 99), (2, 100), (20, 25), (19, 25)];
        let mut strategies = vec![Strategy::steady(instances), Strategy::steady_fleet(instances)];
        strategies.extend(
            mixes.map(|(base, percent_above)| Strategy::balanced(instances, Mix { base, percent_above })),
        );
        strategies.extend(
            [(0, 3), (2, 0), (2, 3), (100, 1), (101, 3)]
                .map(|(regular, after)| Strategy::swap(instances, regular, after)),
        );
        for (strategy, slots) in strategies.iter().flat_map(|it| [1, 1024, 100_001].map(|slots| (it, slots)))
        {
            let lines = parameters(strategy, slots);
            printed += u32::from(!lines.is_empty());
            let value = |name: &str| {
                let start = format!("param {name} = ");
                lines.iter().find_map(|line| line.strip_prefix(start.as_str()))
            };
            for line in &lines {
                let (name, value) = line.strip_prefix("param ").unwrap().split_once(" = ").unwrap();
                let (least, most, allowed) = bounds(name);
                match allowed {
                    Some(allowed) => assert!(allowed.iter().any(|it| it == value), "{line}"),
                    None => assert!((least..=most).contains(&value.parse().unwrap()), "{line}"),
                }
            }
            // What the template checks itself.
            let base = value("baseInstances").map(|base| base.parse::<u32>().unwrap());
            assert_eq!(base.is_some(), value("preset") == Some("'balanced'"), "{lines:?}");
            assert!(base.is_none_or(|base| base >= 1 && base < instances), "{lines:?}");
        }
    }
    assert!(printed > 50, "{printed}");
}

#[test]
fn balanced_is_left_out_where_it_has_no_base_or_no_spot_machine() {
    let of = |base, percent_above, instances| {
        let mix = Mix { base, percent_above };
        let plan = plan(&Inputs { mix, instances, runs: 1, ..inputs() });
        let has = plan.rows.iter().filter(|row| row.strategy.name.starts_with("balanced")).count();
        (has, value(&plan, "balanced").0.to_owned())
    };
    let said = |count, text: &str| (count, text.to_owned());
    assert_eq!(of(2, 25, 10), said(2, "2 regular machines, and 25 % of those above"));
    assert_eq!(of(2, 0, 10), said(1, "2 regular machines, and 0 % of those above"));
    assert_eq!(of(0, 25, 10), said(0, "left out: without a base it is elastic"));
    assert_eq!(of(2, 25, 2), said(0, "left out: a base of 2 regular machines leaves no Spot machine of 2"));
    assert_eq!(of(2, 100, 10), said(0, "left out: all machines would be regular"));
}

#[test]
fn a_maximum_price_is_not_for_what_is_restored() {
    let plan = plan(&Inputs { max_price: MaxPrice::Of(price(50_000_000)), runs: 1, ..inputs() });
    for row in plan.rows.iter().filter(|row| row.strategy.uses_spot()) {
        let is_limited = row.strategy.max_price != MaxPrice::OnDemand;
        assert_eq!(is_limited, row.strategy.name != "steady", "{}", row.strategy.name);
    }
}

#[test]
fn a_price_above_the_maximum_evicts_refuses_and_is_never_billed_by_the_maximum() {
    // 4 cents, 9 from minute 61 to 120, and 4 again; the maximum is 5.
    let mut inputs = Inputs {
        evictions: rate(0.0, Some(0.0)),
        boot_ms: Some((0, 0)),
        notice: None,
        can_save: false,
        max_price: MaxPrice::Of(price(50_000_000)),
        runs: 1,
        ..Inputs::new(2, 150 * MINUTE_MS, 1, price(40_000_000), price(230_000_000))
    };
    inputs.jobs_ms = vec![30 * MINUTE_MS; 4];
    let steps = [(61 * MINUTE_MS, price(90_000_000)), (2 * HOUR_MS, price(40_000_000))];
    inputs.prices.spot = PriceSteps::new(price(40_000_000), steps);
    let limited = plan(&inputs);
    let of = |plan: &Plan, name: &str| {
        let row = plan.rows.iter().find(|row| row.strategy.name == name).expect("a row");
        let summary = &row.summaries[0];
        (summary.parts_micros[1], summary.finished_ms.p50 / MINUTE_MS, summary.refusals > 50.0)
    };
    // Two jobs, and a minute of the third, before the price rises, and two from the third hour on: 121 min at 4 cents. A
    // Compute Fleet asks each minute.
    assert_eq!(of(&limited, "steady-fleet"), (80_667, 180, true));
    // Without a maximum all four in two hours, of which 59 min at 9.
    assert_eq!(of(&limited, "steady"), (129_167, 120, false));
    assert!(
        value(&limited, "maximum price").0.starts_with("0.050000 USD an hour: a machine is evicted when")
    );
    let free = plan(&Inputs { max_price: MaxPrice::OnDemand, ..inputs.clone() });
    assert_eq!(of(&free, "steady-fleet"), (129_167, 120, false));
    assert!(matches!(value(&free, "maximum price").1, Source::Documented(_)));
    inputs.max_price = MaxPrice::Of(price(30_000_000));
    assert!(refusal(&inputs).starts_with("the Spot price is above the maximum price at all times"));
}

#[test]
fn the_swap_is_as_it_is_given() {
    let given = plan(&Inputs { swap: (4, 1), runs: 1, ..inputs() });
    let lines = &given.rows.last().expect("swap").parameters;
    assert!(
        lines.ends_with(&["param escalationInstances = 4".to_owned(), "param escalateAfter = 1".to_owned()]),
        "{lines:?}"
    );
    let said = "up to 4 regular machines for jobs after 1 interruption without progress";
    assert_eq!(value(&given, "swap"), (said, &Source::Given));
    assert!(matches!(value(&plan(&Inputs { runs: 1, ..inputs() }), "swap").1, Source::Assumed(_)));
}

#[test]
fn deadline_policies_are_replayed_where_availability_is_known() {
    let series = Series::parse(include_str!("../traces/aws-p3-fleet.csv")).unwrap();
    let known = Known::Availability(series, Source::Given);
    let inputs = Inputs { evictions: known, deadline_ms: Some(12 * HOUR_MS), ..inputs() };
    let found = plan(&inputs);
    let names: Vec<_> = found.policies.iter().map(|row| (row.name, row.met)).collect();
    assert_eq!(names, [("greedy", 40), ("uniform", 40), ("programme", 40)]);
    assert!(plan(&Inputs { deadline_ms: None, ..inputs.clone() }).policies.is_empty());
    let mut unequal = inputs;
    unequal.jobs_ms[3] += 1;
    assert!(plan(&unequal).policies.is_empty(), "a policy moves all machines together");
}

#[test]
fn a_policy_that_meets_a_deadline_is_one_that_regular_machines_alone_meet() {
    // A series of one machine that goes now and then; saves of 2 min take more than a tenth of the time.
    let text = r#"{"metadata":{"gap_seconds":600},"data":[1,1,1,1,1,0,0,1,1,1,0,1,1,1,1,1,1,1,1,1]}"#;
    let series = Series::parse(text).unwrap().times(20);
    let mut met = Vec::new();
    for minutes in [410, 440, 450, 460, 470, 480, 520] {
        let found = plan(&Inputs {
            save_ms: Some(2 * MINUTE_MS),
            evictions: Known::Availability(series.clone(), Source::Given),
            deadline_ms: Some(minutes * MINUTE_MS),
            runs: 10,
            ..Inputs::new(200, 40 * MINUTE_MS, 20, price(46_000_000), price(230_000_000))
        });
        let regular = found.rows[0].summaries[0].met;
        for row in &found.policies {
            assert!(row.met < 10 || regular == 10, "{minutes} min: {row:?}, all regular {regular}");
        }
        met.push((found.policies[0].met, regular));
    }
    // Ten jobs of 40 min with their saves do not fit into 410 min, and do into 520.
    assert_eq!((met.first(), met.last()), (Some(&(0, 0)), Some(&(10, 10))), "{met:?}");
}

#[test]
fn deadline_policies_are_replayed_on_a_fleet_whose_losses_evict() {
    let text = include_str!("../traces/aws-p3-fleet.csv");
    let inputs = Inputs {
        evictions: Known::Losses(losses(text).unwrap(), Source::Given),
        availability: Some(Series::parse(text).unwrap()),
        deadline_ms: Some(12 * HOUR_MS),
        runs: 5,
        ..inputs()
    };
    assert_eq!(plan(&inputs).policies.len(), 3);
    assert!(plan(&Inputs { availability: None, ..inputs }).policies.is_empty());
}

#[test]
fn another_seed_gives_other_runs_and_overlapping_seeds_the_same() {
    let costs =
        |seed, runs| plan(&Inputs { seed, runs, ..inputs() }).rows[3].summaries[1].costs_micros.clone();
    let (first, second, both) = (costs(0, 3), costs(3, 3), costs(0, 6));
    assert_ne!(first, second);
    let mut joined = [first, second].concat();
    joined.sort_unstable();
    assert_eq!(joined, both);
}

#[test]
fn every_run_is_counted_and_the_plan_is_the_same_again() {
    let pattern = losses(include_str!("../traces/aws-g4dn-fleet.csv")).unwrap();
    let evictions =
        Known::Rate { low: 0.05, high: Some(0.15), pattern: Some(pattern), source: Source::Given };
    let inputs = Inputs { evictions, runs: 3, ..inputs() };
    let mut calls = Vec::new();
    let first = Plan::new(&inputs, |done, of| calls.push((done, of))).unwrap();
    let expected: Vec<_> = (1..=42).map(|done| (done, 42)).collect();
    assert_eq!(calls, expected);
    let again = plan(&inputs);
    for (a, b) in first.rows.iter().zip(&again.rows) {
        assert_eq!(a.summaries, b.summaries);
    }
    assert!(first.rows[3].summaries[1].evictions > first.rows[3].summaries[0].evictions);
}

#[test]
fn deadline_policies_that_would_take_long_have_fewer_windows_or_none_and_it_is_said() {
    let text = r#"{"metadata":{"gap_seconds":60},"data":[5,5,0,5,5]}"#;
    let known = Known::Availability(Series::parse(text).unwrap(), Source::Given);
    // A look and three changes each 5 min, for 20 h and for 2000 days.
    for (hours, windows, said) in
        [(20, 17, Some("in 17 windows instead of 40")), (48_000, 0, Some("left out"))]
    {
        let deadline_ms = Some(hours * HOUR_MS);
        let few = Inputs { evictions: known.clone(), deadline_ms, runs: 40, ..inputs() };
        let plan = plan(&Inputs { events_max: 40 * 963 * 17, jobs_ms: vec![MINUTE_MS; 4], ..few });
        assert!(plan.policies.iter().all(|row| row.runs == windows), "{:?}", plan.policies);
        assert_eq!(plan.policies.len(), if windows == 0 { 0 } else { 3 });
        let found = plan.assumptions.iter().find(|it| it.subject == "deadline policies");
        assert_eq!(found.map(|it| it.value.as_str()), said);
    }
}

/// A trace whose times are in seconds where milliseconds should be.
fn seconds_as_ms() -> Vec<Loss> {
    vec![Loss { after_ms: 60, lost: 1, of: 8 }; 9]
}

#[test]
fn bad_input_gets_one_sentence() {
    let cases = [
        (
            Inputs { deadline_ms: Some(3 * HOUR_MS), ..inputs() },
            "the deadline of 180 min can't be met: regular machines alone take 405 min, so allow more time or \
             more machines",
        ),
        (
            Inputs { boot_ms: Some((MINUTE_MS, HOUR_MS)), deadline_ms: Some(459 * MINUTE_MS), ..inputs() },
            "the deadline of 459 min can't be met: regular machines alone take 460 min, so allow more time or \
             more machines",
        ),
        (
            Inputs { evictions: rate(0.9, Some(1.0)), ..inputs() },
            "an eviction rate has to be from 0 to below 100 % an hour: at 100 % no machine is there to plan with",
        ),
        (
            Inputs { evictions: rate(0.2, Some(0.1)), ..inputs() },
            "the interval of the eviction rate is backwards: give its lower end first",
        ),
        (
            Inputs { size: Some("Standard_B2s".to_owned()), ..inputs() },
            "Standard_B2s is of the B series, which is not for Spot: give another series",
        ),
        (
            Inputs { region: Some("chinaeast2".to_owned()), ..inputs() },
            "chinaeast2 is in 21Vianet's cloud, which has no Spot: give a region outside China",
        ),
        (
            Inputs { jobs_ms: vec![u64::MAX; 3], deadline_ms: None, ..inputs() },
            "the batch takes more than ten years on regular machines alone: check the times of jobs, or give more \
             machines",
        ),
        (
            Inputs { evictions: Known::Losses(seconds_as_ms(), Source::Given), ..inputs() },
            "the trace has no losses with time between them: check its unit of time",
        ),
        (
            Inputs { evictions: Known::Losses(Vec::new(), Source::Given), ..inputs() },
            "the trace has no losses with time between them: check its unit of time",
        ),
        (Inputs { runs: 0, ..inputs() }, "the plan has no run: give at least one"),
        (
            Inputs { jobs_ms: Vec::new(), ..inputs() },
            "the batch has no work: give at least one job, and times above zero",
        ),
        (Inputs { instances: 0, ..inputs() }, "the strategy has no machine: give at least one"),
    ];
    for (inputs, expected) in cases {
        assert_eq!(refusal(&inputs), expected);
    }
    let mut free = inputs();
    free.prices.regular = price(0);
    assert_eq!(Plan::new(&free, |_, _| {}).unwrap_err(), PlanError::FreeRegular);
}

#[test]
fn every_assumption_has_a_value_and_only_what_was_given_is_called_so() {
    let plan = plan(&Inputs { runs: 1, ..inputs() });
    assert!(plan.assumptions.iter().all(|assumption| !assumption.value.is_empty()));
    assert_eq!(
        value(&plan, "evictions"),
        ("from 5 % to 10 % of the machines an hour: both ends", &Source::Given)
    );
    assert_eq!(
        value(&plan, "prices").0,
        "Spot 0.046000, regular 0.230000, disks 0.000000, whatever runs 0.000000 USD an hour; without your discounts"
    );
    assert_eq!(value(&plan, "Compute Fleet").0, "asks for another machine 1 min after an eviction");
    for subject in [
        "eviction rate",
        "boot",
        "a save",
        "notice of an eviction",
        "capacity",
        "evictions together",
        "Compute Fleet",
    ] {
        assert!(matches!(value(&plan, subject).1, Source::Assumed(_)), "{subject}");
    }
}

#[test]
fn an_idle_month_costs_what_holds_after_the_known_prices() {
    let idle = |spot: PriceSteps| {
        let mut inputs = Inputs { runs: 1, ..inputs() };
        inputs.prices.spot = spot;
        let found = plan(&inputs);
        found.rows.iter().map(|row| row.idle_month.micros()).collect::<Vec<_>>()
    };
    let fallen = PriceSteps::new(price(90_000_000), [(2 * HOUR_MS, price(50_000_000))]);
    assert_eq!(idle(fallen), idle(PriceSteps::constant(price(50_000_000))));
}

#[test]
fn an_idle_month_at_a_price_above_the_maximum_has_no_spot_machine() {
    let mut inputs = Inputs { max_price: MaxPrice::Of(price(60_000_000)), runs: 1, ..inputs() };
    inputs.evictions = rate(0.0, Some(0.0));
    inputs.prices.disks = price(1_000_000);
    inputs.prices.spot = PriceSteps::new(price(50_000_000), [(HOUR_MS, price(90_000_000))]);
    let found = plan(&inputs);
    let idle = |name: &str| {
        found.rows.iter().find(|row| row.strategy.name == name).map(|row| row.idle_month.micros())
    };
    // steady has no maximum: ten machines at 0.09 and their disks at 0.001, for 730 h.
    assert_eq!((idle("steady-fleet"), idle("steady")), (Some(0), Some(664_300_000)));
}

#[test]
fn a_run_lasts_until_its_deadline() {
    // No Spot for nine days, and then for nine: whatever the beginning, a machine is there for the job before day 30.
    let data = [["0"; 9], ["1"; 9]].concat().join(",");
    let text = format!(r#"{{"metadata":{{"gap_seconds":86400}},"data":[{data}]}}"#);
    let found = plan(&Inputs {
        evictions: Known::Availability(Series::parse(&text).unwrap(), Source::Given),
        deadline_ms: Some(30 * 24 * HOUR_MS),
        boot_ms: Some((0, 0)),
        can_save: false,
        ..Inputs::new(2, 10 * HOUR_MS, 1, price(46_000_000), price(230_000_000))
    });
    let fleet = found.rows.iter().find(|row| row.strategy.name == "steady-fleet").expect("a row");
    assert!((fleet.summaries[0].chance() - 1.0).abs() < f64::EPSILON, "{:?}", fleet.summaries[0].finished);
}

#[test]
fn a_short_series_has_its_length_in_minutes() {
    let value_of = |gap_seconds: u32| {
        let text = format!(r#"{{"metadata":{{"gap_seconds":{gap_seconds}}},"data":[1,1,0,1]}}"#);
        let known = Known::Availability(Series::parse(&text).unwrap(), Source::Given);
        let plan = plan(&Inputs { evictions: known, runs: 1, jobs_ms: vec![MINUTE_MS; 4], ..inputs() });
        value(&plan, "evictions").0.to_owned()
    };
    assert_eq!(
        value_of(300),
        "availability over 20 min, from a random moment of it, and from its beginning again"
    );
    assert_eq!(
        value_of(3_600),
        "availability over 4 h, from a random moment of it, and from its beginning again"
    );
}

#[test]
fn evictions_at_the_seam_of_a_series_are_said_to_be_of_no_trace() {
    let text = r#"{"metadata":{"gap_seconds":3600},"data":[0,0,0,2,2,2]}"#;
    let known = Known::Availability(Series::parse(text).unwrap(), Source::Given);
    let plan = plan(&Inputs { evictions: known, runs: 2, ..inputs() });
    let (said, _) = value(&plan, "evictions");
    assert!(said.contains("no machine was lost in it"), "{said}");
    assert!(
        said.ends_with("; it begins again with 2 fewer, which evicts machines that nobody saw go"),
        "{said}"
    );
    assert!(!plan.advice.reason.contains("no loss, so"), "{}", plan.advice.reason);
}

#[test]
fn the_quota_is_for_all_machines_that_a_strategy_asks_for_whatever_the_market_gives() {
    for text in ["[3,3,3,3]", "[0,0,0,3]"] {
        let text = format!(r#"{{"metadata":{{"gap_seconds":3600}},"data":{text}}}"#);
        let known = Known::Availability(Series::parse(&text).unwrap(), Source::Given);
        let found = plan(&Inputs {
            evictions: known,
            runs: 2,
            ..Inputs::new(20, 10 * MINUTE_MS, 8, price(46_000_000), price(230_000_000))
        });
        for (name, quota) in [
            ("all regular", (0, 8)),
            ("steady", (8, 0)),
            ("steady-fleet", (8, 0)),
            ("elastic", (8, 0)),
            ("balanced", (5, 3)),
        ] {
            let row = found.rows.iter().find(|row| row.strategy.name == name).unwrap();
            assert_eq!(row.quota, quota, "{name}, {text}");
        }
    }
}

#[test]
fn that_jobs_save_nothing_is_given() {
    let plan = plan(&Inputs { can_save: false, runs: 1, ..inputs() });
    assert_eq!(value(&plan, "a save"), ("none: interrupted jobs begin again", &Source::Given));
}

#[test]
fn a_plan_whose_runs_have_no_end_in_sight_is_refused() {
    // Machines come for a second and go for one, so no job that can't be cut is ever done.
    let text = format!(r#"{{"metadata":{{"gap_seconds":1}},"data":[{}]}}"#, ["1,0"; 50].join(","));
    let known = Known::Availability(Series::parse(&text).unwrap(), Source::Given);
    let inputs = Inputs { evictions: known, boot_ms: Some((0, 0)), events_max: 100_000, ..inputs() };
    let said = "a run has too many events to be simulated: give fewer machines, a trace with coarser steps, or a \
                shorter batch";
    for can_save in [true, false] {
        for runs in [1, 200] {
            assert_eq!(refusal(&Inputs { can_save, runs, ..inputs.clone() }), said);
        }
    }
}
