//! The lifecycles of events, at given moments.

use std::num::NonZeroU32;
use std::time::{Duration, UNIX_EPOCH};

use reprieve_azure::scheduled_events::ApiVersion;
use reprieve_azure::scheduled_events::document::{EventStatus, EventType};
use reprieve_core::ErrorKind;
use tokio::time::Instant;

use super::*;
use crate::metadata::announcement::{Announcement, OtherTenants};
use crate::metadata::state::{Status, Which};

const NOTICE: Duration = Duration::from_secs(30);
const STARTED_FOR: Duration = Duration::from_secs(10);
const NEWEST: ApiVersion = ApiVersion::NEWEST;

/// The beginning of 1970.
fn start() -> Moment {
    Moment { at: Instant::now(), wall: UNIX_EPOCH }
}

/// The moment `span` after `start`.
fn after(start: Moment, span: Duration) -> Moment {
    Moment { at: start.at + span, wall: start.wall + span }
}

fn world(start: Moment) -> World {
    let mut world = World::new(STARTED_FOR, NonZeroU32::MIN, Vec::new());
    for name in ["w_0", "w_1"] {
        world.add_vm(name, start).expect("a name");
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
    let now = start();
    let mut world = world(now);
    assert_eq!(shown(&world), ("1".to_owned(), vec![]));
    let evicted = world.evict("W_1", NOTICE, now).expect("a known VM");
    assert_eq!((evicted.vm.as_str(), evicted.not_before.as_str()), ("w_1", "Thu, 01 Jan 1970 00:00:30 GMT"));
    let scheduled = ("2".to_owned(), vec![(EventStatus::Scheduled, evicted.not_before)]);
    world.settle(after(now, Duration::from_millis(29_999)));
    assert_eq!(shown(&world), scheduled);
    world.settle(after(now, NOTICE));
    assert_eq!(shown(&world), ("3".to_owned(), vec![(EventStatus::Started, String::new())]));
    assert_eq!(world.document().events[0].event_id, evicted.event_id);
    world.settle(after(now, NOTICE + STARTED_FOR));
    assert_eq!(shown(&world), ("4".to_owned(), vec![]));
}

#[test]
fn events_proceed_without_requests() {
    let now = start();
    let mut world = world(now);
    world.evict("w_0", NOTICE, now).expect("a known VM");
    world.settle(after(now, Duration::from_hours(1)));
    assert_eq!(shown(&world), ("4".to_owned(), vec![]), "it started and ended: two changes");
}

#[test]
fn a_preempt_looks_as_real_ones_do() {
    let now = start();
    let mut world = world(now);
    world.evict("w_0", NOTICE, now).expect("a known VM");
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
    let now = start();
    let mut world = world(now);
    let id = world.evict("w_0", NOTICE, now).expect("a known VM").event_id;
    let approved_at = after(now, Duration::from_secs(2));
    world.approve(&[id.to_lowercase()], "w_0", NEWEST, approved_at).expect("a known event");
    assert_eq!(shown(&world), ("3".to_owned(), vec![(EventStatus::Started, String::new())]));
    world
        .approve(&[id], "w_1", NEWEST, after(approved_at, Duration::from_secs(1)))
        .expect("another VM may approve it too");
    world.settle(after(approved_at, STARTED_FOR));
    assert_eq!(shown(&world), ("4".to_owned(), vec![]));
}

#[test]
fn an_approval_that_names_an_unknown_event_approves_none() {
    let now = start();
    let mut world = world(now);
    let id = world.evict("w_0", NOTICE, now).expect("a known VM").event_id;
    assert_eq!(
        world.approve(&[id, "?".to_owned()], "w_0", NEWEST, now).expect_err("unknown").kind,
        ErrorKind::Invalid
    );
    assert_eq!(world.document().events[0].event_status, EventStatus::Scheduled);
}

#[test]
fn only_what_has_not_started_is_withdrawn() {
    let now = start();
    let mut world = world(now);
    let vm = Which::Vm("W_0".to_owned());
    assert_eq!(world.withdraw(&vm, now).expect_err("nothing").kind, ErrorKind::NotFound);
    let first = world.evict("w_0", NOTICE, now).expect("a known VM").event_id;
    world.evict("w_1", NOTICE, now).expect("a known VM");
    assert_eq!(world.withdraw(&vm, now).expect("an event"), [first]);
    assert_eq!(world.document().events.len(), 1, "the neighbour's is active");
    world.settle(after(now, NOTICE));
    let id = Which::EventId(world.document().events[0].event_id.to_lowercase());
    assert_eq!(world.withdraw(&id, after(now, NOTICE)).expect_err("started").kind, ErrorKind::Conflict);
}

#[test]
fn a_vm_is_evicted_again_only_after_the_first_has_ended() {
    let now = start();
    let mut world = world(now);
    world.evict("w_0", NOTICE, now).expect("a known VM");
    assert_eq!(world.evict("w_0", NOTICE, now).expect_err("twice").kind, ErrorKind::Conflict);
    world.settle(after(now, NOTICE + STARTED_FOR));
    world.evict("w_0", NOTICE, now).expect("the first has ended");
}

#[test]
fn names_are_azures_and_compared_without_case() {
    let now = start();
    let mut world = world(now);
    for bad in ["", "a b", "a/b", "_a", "a-", "é", &"x".repeat(65)] {
        assert_eq!(world.add_vm(bad, now).expect_err(bad).kind, ErrorKind::Invalid);
    }
    assert_eq!(world.add_vm("W_0", now).expect_err("taken").kind, ErrorKind::Conflict);
    let refusal = world.remove_vm("w_2", now).expect_err("unknown");
    assert_eq!(refusal.message, r#"there is no VM called "w_2"; there are: w_0, w_1"#);
    world.remove_vm("W_0", now).expect("known");
    assert_eq!(world.vm(None).expect("one is left").name, "w_1");
}

/// Announces an event of this type for both VMs, and returns its id.
fn announce(world: &mut World, event_type: EventType, tenants: OtherTenants, now: Moment) -> String {
    let event = Announcement {
        other_tenants: tenants,
        ..Announcement::new(event_type, ["w_0", "w_1"], Some(Duration::from_secs(600)))
    };
    world.announce(event, now).expect("an event").event_id
}

fn status(world: &World, id: &str, now: Moment) -> Status {
    world.state(now).events.iter().find(|event| event.event_id == id).expect("it is remembered").status
}

#[test]
fn other_tenants_delay_an_event_that_its_set_has_approved() {
    let now = start();
    let mut world = world(now);
    let held = announce(&mut world, EventType::Freeze, OtherTenants::Silent, now);
    let slow = announce(&mut world, EventType::Redeploy, OtherTenants::ApproveAfter(NOTICE), now);
    let early = after(now, Duration::from_secs(5));
    world.approve(&[held.clone(), slow.clone()], "w_1", NEWEST, early).expect("both are active");
    world.settle(after(now, Duration::from_millis(29_999)));
    assert_eq!(status(&world, &slow, now), Status::Scheduled);
    world.settle(after(now, NOTICE));
    assert_eq!(status(&world, &slow, now), Status::Started);
    world.settle(after(now, Duration::from_millis(599_999)));
    assert_eq!(status(&world, &held, now), Status::Scheduled);
    world.settle(after(now, Duration::from_secs(600)));
    assert_eq!(status(&world, &held, now), Status::Started);
    let approvals = &world.state(now).events[0].approvals;
    assert_eq!((approvals[0].vm.as_str(), approvals[0].at_unix_ms, approvals.len()), ("w_1", 5_000, 1));
}

#[test]
fn a_deletion_waits_for_the_approval_of_all_deletions() {
    let now = start();
    let mut world = world(now);
    let [first, second] =
        [(); 2].map(|()| announce(&mut world, EventType::Terminate, OtherTenants::None, now));
    let reboot = announce(&mut world, EventType::Reboot, OtherTenants::None, now);
    world.approve(&[first.clone(), reboot.clone()], "w_0", NEWEST, now).expect("both are active");
    assert_eq!(status(&world, &reboot, now), Status::Started);
    assert_eq!(status(&world, &first, now), Status::Scheduled);
    world.approve(std::slice::from_ref(&second), "w_1", NEWEST, now).expect("it is active");
    assert_eq!([&first, &second].map(|id| status(&world, id, now)), [Status::Started; 2]);
}

#[test]
fn a_deletion_that_is_withdrawn_holds_no_other() {
    let now = start();
    let mut world = world(now);
    let [first, second] =
        [(); 2].map(|()| announce(&mut world, EventType::Terminate, OtherTenants::None, now));
    world.approve(std::slice::from_ref(&first), "w_0", NEWEST, now).expect("it is active");
    world.withdraw(&Which::EventId(second.clone()), now).expect("it is active");
    world.settle(now);
    assert_eq!([&first, &second].map(|id| status(&world, id, now)), [Status::Started, Status::Withdrawn]);
}

#[test]
fn an_advice_is_approved_in_vain_and_never_begins() {
    let now = start();
    let mut world = world(now);
    let id = announce(&mut world, EventType::SpotRebalanceRecommendation, OtherTenants::None, now);
    world.approve(std::slice::from_ref(&id), "w_0", NEWEST, now).expect("it is active");
    assert_eq!(status(&world, &id, now), Status::Scheduled);
    let refusal = world.start(&Which::EventId(id.clone()), now).expect_err("a recommendation");
    assert_eq!(refusal.kind, ErrorKind::Conflict);
    world.settle(after(now, Duration::from_secs(600)));
    assert_eq!(status(&world, &id, now), Status::Withdrawn);
}

#[test]
fn an_event_that_a_version_hides_is_unknown_to_it() {
    let now = start();
    let mut world = world(now);
    let id = world.evict("w_0", NOTICE, now).expect("a known VM").event_id;
    let approve = |world: &mut World, version| world.approve(std::slice::from_ref(&id), "w_0", version, now);
    assert_eq!(approve(&mut world, ApiVersion::V2017_08_01).expect_err("hidden").kind, ErrorKind::Invalid);
    approve(&mut world, ApiVersion::V2017_11_01).expect("known");
}

#[test]
fn an_event_can_be_started_and_completed() {
    let now = start();
    let mut world = world(now);
    let id = announce(&mut world, EventType::Reboot, OtherTenants::None, now);
    let which = Which::EventId(id.to_lowercase());
    assert_eq!(world.complete(&which, now).expect_err("it has not begun").kind, ErrorKind::Conflict);
    assert_eq!(world.start(&which, now).expect("it is active"), [id.as_str()]);
    assert_eq!(world.start(&which, now).expect_err("it has begun").kind, ErrorKind::Conflict);
    assert_eq!(world.complete(&which, now).expect("it has begun"), [id.as_str()]);
    assert_eq!(shown(&world), ("4".to_owned(), vec![]));
    assert_eq!(status(&world, &id, now), Status::Completed);
}

#[test]
fn a_vm_can_be_gone_when_its_event_begins() {
    let now = start();
    let mut world = world(now);
    let event = Announcement { gone: true, ..Announcement::preempt("W_1", NOTICE) };
    world.announce(event, now).expect("an event");
    world.settle(after(now, Duration::from_millis(29_999)));
    assert!(world.vm(Some("w_1")).is_some());
    world.settle(after(now, NOTICE));
    assert!(world.vm(Some("w_1")).is_none() && world.vm(Some("w_0")).is_some());
    let whats: Vec<_> = world.state(now).timeline.iter().map(|entry| entry.what).collect();
    assert_eq!(whats, [What::VmAdded, What::VmAdded, What::Announced, What::Started, What::VmGone]);
}

#[test]
fn a_restart_counts_from_1_again_and_keeps_the_events() {
    let now = start();
    let mut world = world(now);
    world.evict("w_0", NOTICE, now).expect("a known VM");
    world.restart(now);
    let (incarnation, events) = shown(&world);
    assert_eq!((incarnation.as_str(), events.len()), ("1", 1));
}

#[test]
fn at_a_higher_speed_every_time_is_shorter() {
    let now = start();
    let mut world = world(now);
    world.set_speed(NonZeroU32::new(10).expect("not zero"));
    let evicted = world.evict("w_0", NOTICE, now).expect("a known VM");
    assert_eq!(evicted.not_before, "Thu, 01 Jan 1970 00:00:03 GMT");
    world.settle(after(now, Duration::from_secs(3)));
    assert_eq!(status(&world, &evicted.event_id, now), Status::Started);
    world.settle(after(now, Duration::from_secs(4)));
    assert_eq!(status(&world, &evicted.event_id, now), Status::Completed);
}

#[test]
fn ended_events_and_the_log_are_kept_up_to_a_limit() {
    let now = start();
    let mut world = world(now);
    for _ in 0..TIMELINE_MAX {
        world.evict("w_0", Duration::ZERO, now).expect("the last has ended");
        world.settle(after(now, STARTED_FOR));
    }
    let state = world.state(now);
    assert_eq!((state.events.len(), state.timeline.len()), (ENDED_MAX, TIMELINE_MAX));
    assert_eq!(state.timeline.last().expect("a line").what, What::Completed);
}
