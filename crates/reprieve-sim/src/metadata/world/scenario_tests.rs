//! The events of each built-in scenario, and the behaviour of custom scenarios.

use std::num::NonZeroU32;
use std::time::{Duration, UNIX_EPOCH};

use reprieve_azure::scheduled_events::ApiVersion;
use tokio::time::Instant;

use super::*;
use crate::metadata::state::What::{Announced, Completed, Started, StepFailed, Withdrawn};
use crate::metadata::state::Which;

const MINUTE: i64 = 60;

fn start() -> Moment {
    Moment { at: Instant::now(), wall: UNIX_EPOCH }
}

fn world(now: Moment, scenarios: Vec<Scenario>) -> World {
    let mut world = World::new(Duration::from_secs(10), NonZeroU32::MIN, scenarios);
    for name in ["w_0", "w_1"] {
        world.add_vm(name, now).expect("a name");
    }
    world
}

/// Runs a scenario for the second VM, and returns the log of a month: seconds, and the kind of
/// entry.
fn life(world: &mut World, scenario: &str, now: Moment) -> Vec<(i64, What)> {
    world.run(scenario, Some("W_1"), now).expect("a scenario");
    let month = Duration::from_hours(30 * 24);
    let later = Moment { at: now.at + month, wall: now.wall + month };
    world.settle(later);
    let state = world.state(later);
    assert_eq!(state.running, []);
    assert!(state.events.iter().all(|event| event.vms == ["w_1"]), "{:?}", state.events);
    let of_vms = [What::VmAdded, What::ScenarioBegan];
    let entries = state.timeline.into_iter().filter(|entry| !of_vms.contains(&entry.what));
    entries.map(|entry| (entry.at_unix_ms / 1000, entry.what)).collect()
}

#[track_caller]
fn check(scenario: &str, lives: &[(i64, What)]) {
    let now = start();
    assert_eq!(life(&mut world(now, Vec::new()), scenario, now), lives, "{scenario}");
}

#[test]
fn every_scenario_that_is_built_in_goes_as_in_azure() {
    let notice = |notice: i64, started_for: i64| {
        [(0, Announced), (notice, Started), (notice + started_for, Completed)]
    };
    check("live-migration", &notice(15 * MINUTE, 5 * MINUTE));
    check("host-maintenance", &notice(15 * MINUTE, 10 * MINUTE));
    check("user-reboot", &notice(15 * MINUTE, 10 * MINUTE));
    check("user-redeploy", &notice(15 * MINUTE, 10 * MINUTE));
    check("hardware-failure", &[(0, Started), (10 * MINUTE, Completed)]);
    check("cancelled-maintenance", &[(0, Announced), (8 * MINUTE, Withdrawn)]);
    check("preempt", &notice(30, 10));
    check("terminate", &notice(5 * MINUTE, 10));
    check("predicted-failure", &notice(7 * 24 * 60 * MINUTE, 10 * MINUTE));
    check(
        "rebalance-then-preempt",
        &[
            (0, Announced),
            (5 * MINUTE, Announced),
            (5 * MINUTE + 30, Started),
            (5 * MINUTE + 40, Completed),
            (10 * MINUTE, Withdrawn),
        ],
    );
    assert_eq!(Scenario::built_in().len(), 10, "all of them are above");
}

#[test]
fn the_fields_of_built_in_scenarios_are_azures() {
    let now = start();
    for (scenario, source, duration) in [
        ("live-migration", "Platform", 5),
        ("host-maintenance", "Platform", 9),
        ("user-reboot", "User", -1),
        ("user-redeploy", "User", -1),
        ("hardware-failure", "Platform", -1),
        ("preempt", "Platform", -1),
    ] {
        let mut world = world(now, Vec::new());
        assert_eq!(world.run(scenario, None, now).expect("a scenario"), "w_0", "the first by default");
        let event = &world.document().events[0];
        assert_eq!((event.event_source.as_str(), event.duration_in_seconds), (source, Some(duration)));
        assert_eq!(event.description.is_empty(), scenario == "preempt", "{event:?}");
    }
}

#[test]
fn maintenance_is_cancelled_though_a_vm_has_approved_it() {
    let now = start();
    let mut world = world(now, Vec::new());
    world.run("cancelled-maintenance", Some("w_1"), now).expect("a scenario");
    let id = world.document().events[0].event_id.clone();
    world.approve(&[id], "w_1", ApiVersion::NEWEST, now).expect("it is active");
    let later = Moment { at: now.at + Duration::from_mins(8), wall: now.wall + Duration::from_mins(8) };
    world.settle(later);
    let whats: Vec<_> = world.state(later).timeline.into_iter().map(|entry| entry.what).collect();
    assert_eq!(whats[3..], [Announced, What::Approved, Withdrawn], "{whats:?}");
}

#[test]
fn at_a_higher_speed_a_scenario_is_over_sooner() {
    let now = start();
    let mut world = world(now, Vec::new());
    world.set_speed(NonZeroU32::new(60).expect("not zero"));
    let life = life(&mut world, "cancelled-maintenance", now);
    assert_eq!(life, [(0, What::Announced), (8, What::Withdrawn)]);
}

#[test]
fn steps_name_their_events_and_go_on_when_one_cannot_be_done() {
    let scenario = Scenario::read(
        r#"{
        "name": "busy",
        "description": "Two at once.",
        "steps": [
            {"at": "2s", "action": "start", "event": "first"},
            {"action": "announce", "type": "reboot", "vms": ["@target"], "label": "first"},
            {"at": "1s", "action": "announce", "type": "Freeze", "vms": ["@target"], "notice": "1h"},
            {"at": "3s", "action": "withdraw", "event": "first"},
            {"at": "4s", "action": "complete", "event": "first"},
            {"at": "5s", "action": "withdraw"},
            {"at": "6s", "action": "withdraw"}
        ]}"#,
    );
    let now = start();
    let mut world = world(now, vec![scenario.expect("JSON will do")]);
    let steps = [
        (0, Announced),
        (1, Announced),
        (2, Started),
        (3, StepFailed),
        (4, Completed),
        (5, Withdrawn),
        (6, StepFailed),
    ];
    assert_eq!(life(&mut world, "busy", now), steps);
    let state = world.state(now);
    let types: Vec<_> = state.events.iter().map(|event| event.event_type.as_str()).collect();
    assert_eq!(types, ["Reboot", "Freeze"], "in the order in which they were over");
    let failed = state.timeline.iter().filter(|entry| entry.what == StepFailed);
    let notes: Vec<_> = failed.map(|entry| entry.note.as_str()).collect();
    assert_eq!(notes, ["busy: the event has started, so it can't be withdrawn", "busy: the event has ended"]);
}

#[test]
fn faults_and_restarts_are_steps_too() {
    let text = r#"
name = "bad-day"
description = "Nothing works for one VM."
steps = [
    { action = "fault", kind = "410", for = "70s", vm = "@target" },
    { action = "announce", type = "Freeze", vms = ["@all", "elsewhere_7"] },
    { at = "1s", action = "restart" },
]
"#;
    let now = start();
    let mut world = world(now, vec![Scenario::read(text).expect("a scenario")]);
    world.run("bad-day", Some("w_1"), now).expect("a scenario");
    let [fault] = &world.state(now).faults[..] else { panic!("{:?}", world.state(now).faults) };
    assert_eq!((fault.vm.as_deref(), fault.until_unix_ms), (Some("w_1"), Some(70_000)));
    assert_eq!(world.document().events[0].resources, ["w_0", "w_1", "elsewhere_7"]);
    let second = Duration::from_secs(1);
    world.settle(Moment { at: now.at + second, wall: now.wall + second });
    assert_eq!(world.document().document_incarnation.to_string(), "1");
}

#[test]
fn a_scenario_of_the_same_name_takes_the_place_of_another() {
    let mine = "name = 'preempt'\ndescription = 'mine'\n[[steps]]\naction = 'restart'\n";
    let world = world(start(), vec![Scenario::read(mine).expect("a scenario")]);
    assert_eq!(world.scenario("preempt").expect("it is there").text(), mine);
    assert_eq!(world.scenarios().len(), Scenario::built_in().len());
    let refusal = world.scenario("nothing").expect_err("unknown");
    assert!(refusal.message.starts_with(r#"there is no scenario "nothing"; there are: live-migration, "#));
}

#[test]
fn an_unknown_target_runs_nothing() {
    let now = start();
    let mut world = world(now, Vec::new());
    world.run("preempt", Some("w_9"), now).expect_err("unknown");
    assert_eq!((world.state(now).events, world.state(now).running), (vec![], vec![]));
    let none = Which::Vm("w_0".to_owned());
    world.withdraw(&none, now).expect_err("nothing is active");
}

#[test]
fn an_invalid_scenario_is_refused_in_a_sentence() {
    let step = |step: &str| format!("name = 'x'\ndescription = ''\n[[steps]]\n{step}\n");
    let announce =
        |more: &str| step(&format!("action = 'announce'\ntype = 'Freeze'\nvms = ['@target']\n{more}"));
    for (text, expected) in [
        ("name = 'x'".to_owned(), "missing field `description`"),
        ("name = 'x'\ndescription = ''\nsteps = []\n".to_owned(), "x has no steps"),
        (
            "name = 'a b'\ndescription = ''\nsteps = []\n".to_owned(),
            "\"a b\" is no name: letters, digits and hyphens",
        ),
        ("{".to_owned(), "EOF while parsing"),
        (step("action = 'explode'"), "unknown variant `explode`"),
        (step("action = 'restart'\nwhy = 1"), "unknown field `why`"),
        (step("action = 'withdraw'"), "step 1 of x: \"the event\" is not announced before it"),
        (announce("notise = '5s'"), "unknown field `notise`"),
        (announce("notice = '5'"), "\"5\" is not a number and a unit"),
        (announce("started = true\nnotice = '5s'"), "step 1 of x: a started event can't have a notice"),
        (announce("source = 'Me'"), "step 1 of x: \"Me\" is no source; there are Platform and User"),
        (announce("other_tenants = 5"), "expected true, false or a duration"),
        (announce("event_id = ' '"), "step 1 of x: an event's id must not be blank"),
        (announce("").replace("@target", "@nobody"), "step 1 of x: \"@nobody\" is not a VM"),
        (announce("").replace("'@target'", ""), "step 1 of x: an event needs at least one VM"),
        (announce("").replace("Freeze", "Thaw"), "\"Thaw\" is no type of event; there are Freeze, Reboot"),
        (step("action = 'fault'\nkind = '200'"), "step 1 of x: \"200\" is no kind of fault"),
        (step("action = 'fault'\nkind = 'hang'\nafter = '1s'"), "step 1 of x: only a slow answer has"),
    ] {
        let error = Scenario::read(&text).expect_err(&text);
        assert!(error.message().contains(expected), "{text}\n{error}");
        assert!(!error.message().contains('\n'), "{error}");
    }
}

#[test]
fn the_example_of_the_manual_is_a_scenario() {
    const MANUAL: &str = include_str!("../../../../../docs/metadata.md");
    let example = MANUAL.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    let scenario = Scenario::read(example.expect("an example")).expect("a scenario");
    assert_eq!(scenario.name(), "two-at-once");
    for scenario in Scenario::built_in() {
        assert!(MANUAL.contains(&format!("| `{}` |", scenario.name())), "{} is not listed", scenario.name());
    }
}
