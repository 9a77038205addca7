//! Sequences of answers of the metadata service, as bytes. Nothing panics, including a worker's
//! plans for its notices, and the published changes add up to the active events.
//!
//! Each line is one answer: a digit that chooses the api-version, then the body.

use std::collections::BTreeMap;
use std::time::Duration;

use reprieve_azure::scheduled_events::document::{Document, EventType, ServiceClock};
use reprieve_azure::scheduled_events::{
    ActiveEvents, Answer, ApiVersion, ChangeKind, Compute, EventChange, NotBefore, Scope,
};
use reprieve_core::interruption::{
    Approve, ApproveUser, Authority, DuringFreeze, Own, Policy, PredictedFailure, authority, plan,
};
use reprieve_core::ports::{Change, Ending};
use reprieve_core::{Deadline, Notice, NoticeId, Phase};

const ME: &str = "me_0";

/// The active events, as a subscriber learns them from the changes.
type Known = BTreeMap<(Scope, NoticeId), EventChange>;

/// The active notices, as a worker learns them from the changes.
type Believed = BTreeMap<NoticeId, Notice>;

/// Applies the answers that these bytes encode, and checks the changes after each.
pub(crate) fn hear(data: &[u8]) {
    let mut active_events = ActiveEvents::default();
    let mut known = Known::new();
    let mut believed = Believed::new();
    for line in data.split(|byte| *byte == b'\n') {
        let Some((version, body)) = line.split_first() else { continue };
        let version = ApiVersion::ALL[usize::from(*version) % ApiVersion::ALL.len()];
        let _: Option<Compute> = Compute::read(body).ok();
        let Ok(document) = Document::read_as(version, body) else { continue };
        reads_what_it_writes(&document);
        let answer = Answer::now(document, version);
        for change in active_events.update(&answer, ME) {
            believe(&mut believed, change.for_worker(ME, ServiceClock { at: answer.at, wall: answer.wall }));
            follow(&mut known, change);
        }
        let this = known.keys().filter(|(whose, _)| *whose == Scope::ThisVm).map(|(_, id)| id);
        assert!(this.eq(believed.keys()), "{known:?} {believed:?}");
        let learned: Vec<_> =
            known.iter().map(|((whose, _), change)| (*whose, change.event.clone())).collect();
        let active: Vec<_> = active_events.changes().map(|change| (change.scope, change.event)).collect();
        assert_eq!(learned, active);
        assert_eq!(active_events.update(&answer, ME), [], "the same answer again changes nothing");
        only_what_may_be_is_approved(&active_events, &answer.document);
    }
}

fn reads_what_it_writes(document: &Document) {
    let written = serde_json::to_vec(document).expect("a document can be written");
    // Without the incarnation, because JSON's fractions are not read to the last bit.
    assert_eq!(Document::read(&written).expect("what was written is read").events, document.events);
    for event in &document.events {
        if let NotBefore::At(at) = NotBefore::read(&event.not_before)
            && let Some(text) = NotBefore::write(at)
        {
            assert!(matches!(NotBefore::read(&text), NotBefore::At(_)), "{text:?}");
        }
    }
}

fn follow(known: &mut Known, change: EventChange) {
    serde_json::to_string(&change).expect("a change can be written");
    let key = (change.scope, change.id());
    let before = known.get(&key).map(|before| before.event.event_status.phase());
    let now = change.event.event_status.phase();
    match change.kind {
        ChangeKind::Noticed => assert_eq!((before, now), (None, Phase::Scheduled)),
        ChangeKind::Started => assert!(before != Some(Phase::Started) && now == Phase::Started),
        ChangeKind::Changed => assert!(before.is_some()),
        ChangeKind::Withdrawn => assert_eq!(before, Some(Phase::Scheduled)),
        ChangeKind::Completed => assert_eq!(before, Some(Phase::Started)),
    }
    if change.kind.has_ended() {
        known.remove(&key);
    } else {
        known.insert(key, change);
    }
}

fn believe(believed: &mut Believed, change: Option<Change>) {
    match change {
        None => {}
        Some(Change::Answered | Change::Named(_)) => panic!("only the watcher answers"),
        Some(Change::Noticed(notice)) => {
            plan_for(&notice);
            believed.insert(notice.id.clone(), notice);
        }
        Some(Change::Over(id, ending)) => {
            let over = believed.remove(&id).expect("only an active notice ends");
            assert_eq!(ending == Ending::Completed, over.phase == Phase::Started);
        }
    }
}

/// Everything that a worker works out from a notice, now and much later.
fn plan_for(notice: &Notice) {
    let others = Policy {
        approve: Approve::Any,
        approve_user: ApproveUser::AtOnce,
        during_freeze: DuringFreeze::Pause,
        predicted_failure: PredictedFailure::Drain,
        ..Policy::default()
    };
    for (policy, later) in [(Policy::default(), 0), (others.clone(), 1_000), (others, 1 << 32)] {
        let budget = Duration::from_secs(25);
        let now = notice.received + Duration::from_secs(later);
        let own = Own {
            now,
            since: notice.received,
            budget,
            draining: later > 0,
            drained: later > 1_000,
            leases_end: Some(now + budget),
        };
        let plan = plan(notice, &own, &policy);
        if let Some(outlast) = plan.outlast {
            assert!(now.checked_add(outlast).is_some(), "{outlast:?} is too long");
        }
        let _: Authority = authority(notice, &policy);
        let deadline = Deadline::from(now, notice, budget);
        for at in [deadline.report_by(), deadline.soft(budget)] {
            assert!(at >= now && at <= deadline.hard(), "{deadline:?}");
        }
    }
}

fn only_what_may_be_is_approved(active_events: &ActiveEvents, document: &Document) {
    for event in &document.events {
        if let Ok(Some(id)) = active_events.approval(&event.notice_id()) {
            let is_it = |change: &EventChange| change.scope == Scope::ThisVm && change.event.event_id == id;
            let mut found = active_events.changes().filter(is_it);
            assert!(found.any(|change| change.event.event_type != EventType::SpotRebalanceRecommendation));
        }
    }
}
