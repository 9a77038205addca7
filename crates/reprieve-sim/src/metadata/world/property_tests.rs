//! Properties that hold after any changes to the world, however long it goes unobserved.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use proptest::sample::select;
use reprieve_azure::scheduled_events::document::{Event, EventStatus, EventType};
use reprieve_azure::scheduled_events::{ApiVersion, NotBefore};
use tokio::time::Instant;

use super::*;
use crate::metadata::announcement::{Announcement, OtherTenants};
use crate::metadata::state::{Status, Which};

/// A change to the world. Numbers choose among the active events.
#[derive(Debug, Clone)]
enum Command {
    Announce(EventType, Option<u64>, OtherTenants),
    Approve(usize),
    Start(usize),
    Complete(usize),
    Withdraw(usize),
    Run(&'static str),
    Wait(u64),
}

fn commands() -> impl Strategy<Value = Vec<Command>> {
    let kinds = select(vec![
        EventType::Freeze,
        EventType::Preempt,
        EventType::Terminate,
        EventType::SpotRebalanceRecommendation,
    ]);
    let tenants = prop_oneof![
        3 => Just(OtherTenants::None),
        1 => Just(OtherTenants::Silent),
        1 => (0..60_000_u64).prop_map(|ms| OtherTenants::ApproveAfter(Duration::from_millis(ms))),
    ];
    let announce = (kinds, proptest::option::weighted(0.8, 1..60_000_u64), tenants);
    let command = prop_oneof![
        4 => announce.prop_map(|(kind, notice, tenants)| {
            // An advice never starts, so it always gives notice.
            let advice = is_advice(&kind);
            Command::Announce(kind, if advice { notice.or(Some(1)) } else { notice }, tenants)
        }),
        2 => (0..8_usize).prop_map(Command::Approve),
        1 => (0..8_usize).prop_map(Command::Start),
        1 => (0..8_usize).prop_map(Command::Complete),
        1 => (0..8_usize).prop_map(Command::Withdraw),
        1 => select(vec!["preempt", "cancelled-maintenance", "rebalance-then-preempt"]).prop_map(Command::Run),
        6 => (1..90_000_u64).prop_map(Command::Wait),
    ];
    proptest::collection::vec(command, 1..40)
}

/// The world, and the events that were approved or started in it.
struct Trial {
    world: World,
    now: Moment,
    forced: Vec<String>,
    /// The announced start of each event when it was first seen, in milliseconds: only a forced
    /// event may begin earlier.
    not_before: HashMap<String, i64>,
}

impl Trial {
    fn do_it(&mut self, command: &Command) {
        let (world, now) = (&mut self.world, self.now);
        let id =
            |at: usize| world.events.get(at).map_or("?".to_owned(), |planned| planned.event.event_id.clone());
        // Many changes are refused, and a refused change must change nothing.
        match command {
            Command::Announce(kind, notice, tenants) => {
                let event = Announcement {
                    other_tenants: *tenants,
                    ..Announcement::new(kind.clone(), ["w_0"], notice.map(Duration::from_millis))
                };
                world.announce(event, now).expect("a new event");
            }
            Command::Approve(at) => {
                let id = id(*at);
                if world.approve(std::slice::from_ref(&id), "w_0", ApiVersion::NEWEST, now).is_ok() {
                    self.forced.push(id);
                }
            }
            Command::Start(at) => {
                let started = world.start(&Which::EventId(id(*at)), now);
                self.forced.extend(started.unwrap_or_default());
            }
            Command::Complete(at) => drop(world.complete(&Which::EventId(id(*at)), now)),
            Command::Withdraw(at) => drop(world.withdraw(&Which::EventId(id(*at)), now)),
            Command::Run(name) => drop(world.run(name, None, now).expect("a scenario")),
            Command::Wait(ms) => {
                let span = Duration::from_millis(*ms);
                self.now = Moment { at: now.at + span, wall: now.wall + span };
            }
        }
        self.world.settle(self.now);
        for event in self.world.state(self.now).events {
            if event.status == Status::Scheduled
                && let Some(at) = event.starts_at_unix_ms
                && !self.forced.contains(&event.event_id)
            {
                self.not_before.entry(event.event_id).or_insert(at);
            }
        }
    }
}

/// Returns an event without the fields that may change.
fn lasting(event: &Event) -> Event {
    Event { event_status: EventStatus::default(), not_before: String::new(), ..event.clone() }
}

proptest! {
    #[test]
    fn every_document_keeps_what_is_documented(commands in commands()) {
        let mut world = World::new(Duration::from_secs(10), NonZeroU32::MIN, Vec::new());
        let now = Moment { at: Instant::now(), wall: UNIX_EPOCH };
        world.add_vm("w_0", now).expect("a name");
        let mut trial = Trial { world, now, forced: Vec::new(), not_before: HashMap::new() };
        let mut lives: HashMap<String, Event> = HashMap::new();
        for command in &commands {
            let before = (trial.world.incarnation, trial.world.document().events);
            trial.do_it(command);
            let after = (trial.world.incarnation, trial.world.document().events);
            prop_assert!(after.0 >= before.0, "{command:?} set the incarnation back");
            if after.1 != before.1 {
                prop_assert_ne!(after.0, before.0, "{:?} changed the events in secret", command);
            } else if !matches!(command, Command::Wait(_) | Command::Run(_)) && after.0 != before.0 {
                // An event that came and went between two observations changes only the
                // incarnation; that takes time.
                prop_assert!(false, "{command:?} changed nothing but the incarnation");
            }
            for event in &after.1 {
                let first = lives.entry(event.event_id.clone()).or_insert_with(|| lasting(event));
                prop_assert_eq!(&*first, &lasting(event), "it is another event under the same id");
                let started = event.event_status == EventStatus::Started;
                prop_assert_eq!(event.not_before.is_empty(), started, "{:?}", event);
                prop_assert_ne!(NotBefore::read(&event.not_before), NotBefore::Unreadable);
            }
        }
        let world = &trial.world;
        for event in world.state(trial.now).events {
            let forced = trial.forced.contains(&event.event_id);
            if let (Status::Started | Status::Completed, Some(started)) = (event.status, event.starts_at_unix_ms)
                && let Some(not_before) = trial.not_before.get(&event.event_id)
            {
                prop_assert!(forced || started == *not_before, "{event:?} began early or late");
                prop_assert!(started <= *not_before, "{event:?} began late");
            }
            for pair in [event.announced_at_unix_ms, event.starts_at_unix_ms.unwrap_or(i64::MAX)].windows(2) {
                prop_assert!(pair[0] <= pair[1], "{event:?}");
            }
        }
    }
}
