//! One life of an event after another, at given moments.

use std::time::UNIX_EPOCH;

use super::*;

const NOTICE: Duration = Duration::from_secs(30);
const STARTED_FOR: Duration = Duration::from_secs(10);
const WALL: SystemTime = UNIX_EPOCH;

fn world() -> World {
    let mut world = World::new(STARTED_FOR);
    for name in ["w_0", "w_1"] {
        world.add_vm(name).expect("a name");
    }
    world
}

fn shown(world: &World) -> (String, Vec<(EventStatus, String)>) {
    let document = world.document();
    let events = document.events.into_iter().map(|event| (event.event_status, event.not_before));
    (document.document_incarnation.to_string(), events.collect())
}

#[test]
fn an_eviction_is_scheduled_starts_and_vanishes_at_its_times() {
    let (mut world, now) = (world(), Instant::now());
    assert_eq!(shown(&world), ("1".to_owned(), vec![]));
    let evicted = world.evict("W_1", NOTICE, now, WALL).expect("a known VM");
    assert_eq!((evicted.vm.as_str(), evicted.not_before.as_str()), ("w_1", "Thu, 01 Jan 1970 00:00:30 GMT"));
    let scheduled = ("2".to_owned(), vec![(EventStatus::Scheduled, evicted.not_before)]);
    world.settle(now + NOTICE - Duration::from_millis(1));
    assert_eq!(shown(&world), scheduled);
    world.settle(now + NOTICE);
    assert_eq!(shown(&world), ("3".to_owned(), vec![(EventStatus::Started, String::new())]));
    assert_eq!(world.document().events[0].event_id, evicted.event_id);
    world.settle(now + NOTICE + STARTED_FOR);
    assert_eq!(shown(&world), ("4".to_owned(), vec![]));
}

#[test]
fn what_nobody_looked_at_has_happened_all_the_same() {
    let (mut world, now) = (world(), Instant::now());
    world.evict("w_0", NOTICE, now, WALL).expect("a known VM");
    world.settle(now + Duration::from_hours(1));
    assert_eq!(shown(&world), ("4".to_owned(), vec![]), "it started and ended: two changes");
}

#[test]
fn a_preempt_looks_as_real_ones_do() {
    let (mut world, now) = (world(), Instant::now());
    world.evict("w_0", NOTICE, now, WALL).expect("a known VM");
    let event = world.document().events.remove(0);
    let written = serde_json::to_string(&event).expect("JSON").replace(&event.event_id, "ID");
    assert_eq!(
        written,
        r#"{"EventId":"ID","EventStatus":"Scheduled","EventType":"Preempt","ResourceType":"VirtualMachine","Resources":["w_0"],"NotBefore":"Thu, 01 Jan 1970 00:00:30 GMT","Description":"","EventSource":"Platform","DurationInSeconds":-1}"#
    );
    let upper_guid = |id: &str| {
        id.len() == 36 && id.chars().all(|c| c == '-' || c.is_ascii_digit() || c.is_ascii_uppercase())
    };
    assert!(upper_guid(&event.event_id), "{}", event.event_id);
}

#[test]
fn an_approval_starts_an_event_at_once_and_only_once() {
    let (mut world, now) = (world(), Instant::now());
    let id = world.evict("w_0", NOTICE, now, WALL).expect("a known VM").event_id;
    let approved_at = now + Duration::from_secs(2);
    world.approve(&[id.to_lowercase()], approved_at).expect("a known event");
    assert_eq!(shown(&world), ("3".to_owned(), vec![(EventStatus::Started, String::new())]));
    world.approve(&[id], approved_at + Duration::from_secs(1)).expect("another VM may approve it too");
    world.settle(approved_at + STARTED_FOR);
    assert_eq!(shown(&world), ("4".to_owned(), vec![]));
}

#[test]
fn an_approval_that_names_an_unknown_event_approves_none() {
    let (mut world, now) = (world(), Instant::now());
    let id = world.evict("w_0", NOTICE, now, WALL).expect("a known VM").event_id;
    assert_eq!(world.approve(&[id, "?".to_owned()], now).expect_err("unknown").kind, ErrorKind::Invalid);
    assert_eq!(world.document().events[0].event_status, EventStatus::Scheduled);
}

#[test]
fn only_what_has_not_started_is_withdrawn() {
    let (mut world, now) = (world(), Instant::now());
    let vm = Which::Vm("W_0".to_owned());
    assert_eq!(world.withdraw(&vm).expect_err("nothing").kind, ErrorKind::NotFound);
    let first = world.evict("w_0", NOTICE, now, WALL).expect("a known VM").event_id;
    world.evict("w_1", NOTICE, now, WALL).expect("a known VM");
    assert_eq!(world.withdraw(&vm).expect("an event"), [first]);
    assert_eq!(world.document().events.len(), 1, "the neighbour's stands");
    world.settle(now + NOTICE);
    let id = Which::EventId(world.document().events[0].event_id.to_lowercase());
    assert_eq!(world.withdraw(&id).expect_err("started").kind, ErrorKind::Conflict);
}

#[test]
fn a_vm_is_evicted_once_and_again_when_that_is_over() {
    let (mut world, now) = (world(), Instant::now());
    world.evict("w_0", NOTICE, now, WALL).expect("a known VM");
    assert_eq!(world.evict("w_0", NOTICE, now, WALL).expect_err("twice").kind, ErrorKind::Conflict);
    world.settle(now + NOTICE + STARTED_FOR);
    world.evict("w_0", NOTICE, now, WALL).expect("the first is over");
}

#[test]
fn names_are_azures_and_told_apart_without_case() {
    let mut world = world();
    for bad in ["", "a b", "a/b", "_a", "a-", "é", &"x".repeat(65)] {
        assert_eq!(world.add_vm(bad).expect_err(bad).kind, ErrorKind::Invalid);
    }
    assert_eq!(world.add_vm("W_0").expect_err("taken").kind, ErrorKind::Conflict);
    let refusal = world.remove_vm("w_2").expect_err("unknown");
    assert_eq!(refusal.message, r#"there is no VM called "w_2"; there are: w_0, w_1"#);
    world.remove_vm("W_0").expect("known");
    assert_eq!(world.vm(None).expect("one is left").name, "w_1");
}
