use proptest::prelude::*;

use super::*;
use crate::interruption::{Approve, ApproveUser, DuringFreeze, PredictedFailure};
use crate::notice::Initiator;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn event(id: &str, kind: NoticeKind, notice_s: u64) -> Notice {
    Notice::now(id, kind).at(Instant::now() + secs(notice_s)).of(["vm_0"], "vm_0")
}

fn key(source: usize, id: &str) -> Key {
    (source, NoticeId::new(id))
}

fn state(drained: bool) -> State {
    State { now: Instant::now(), budget: secs(10), drained, leases_end: None }
}

/// The notices for which a drain is ordered.
fn drains(orders: &Orders) -> Vec<&str> {
    orders.drain.iter().map(|(notice, _)| notice.id.as_str()).collect()
}

fn approvals(orders: &Orders) -> Vec<&str> {
    orders.approve.values().flatten().map(|notice| notice.id.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn an_order_is_not_repeated() {
    let mut notices = ActiveNotices::default();
    let policy = Policy { approve: Approve::Any, ..Policy::default() };
    notices.noticed(0, event("reboot", NoticeKind::Reboot, 900), Instant::now());
    assert!(notices.review(&state(false), &policy).checkpoint);
    assert!(!notices.review(&state(false), &policy).checkpoint);
    notices.noticed(0, event("redeploy", NoticeKind::Redeploy, 7 * 24 * 3600), Instant::now());
    let orders = notices.review(&state(false), &policy);
    assert_eq!((orders.checkpoint, orders.redeploy_early.len()), (true, 1));
    assert_eq!(notices.review(&state(false), &policy).redeploy_early, []);

    tokio::time::advance(secs(885)).await;
    assert_eq!(drains(&notices.review(&state(false), &policy)), ["reboot"]);
    assert_eq!(drains(&notices.review(&state(false), &policy)), [""; 0]);
    assert_eq!(approvals(&notices.review(&state(true), &policy)), ["reboot"]);
    assert_eq!(approvals(&notices.review(&state(true), &policy)), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_was_put_off_has_its_whole_budget_and_ends_before_the_event() {
    let mut notices = ActiveNotices::default();
    notices.noticed(0, event("reboot", NoticeKind::Reboot, 900), Instant::now());
    let first = notices.review(&state(false), &Policy::default());
    assert_eq!(first.look_again, Some(Instant::now() + secs(885)));
    tokio::time::advance(secs(885)).await;
    let orders = notices.review(&state(false), &Policy::default());
    let deadline = orders.drain[0].1;
    assert_eq!((deadline.asked(), deadline.hard()), (Instant::now(), Instant::now() + secs(10)));
}

#[tokio::test(start_paused = true)]
async fn the_hardest_plan_wins_and_none_is_forgotten() {
    let mut notices = ActiveNotices::default();
    let policy = Policy { during_freeze: DuringFreeze::Pause, ..Policy::default() };
    let freeze = Notice { phase: Phase::Started, ..event("freeze", NoticeKind::Freeze, 0) };
    notices.noticed(0, freeze, Instant::now());
    notices.noticed(0, event("reboot", NoticeKind::Reboot, 900), Instant::now());
    notices.noticed(0, event("advice", NoticeKind::Rebalance, 60), Instant::now());
    notices.noticed(1, event("preempt", NoticeKind::Preempt, 5), Instant::now());
    let orders = notices.review(&state(false), &policy);
    assert_eq!(drains(&orders), ["preempt"]);
    assert_eq!(orders.drain[0].1.hard(), Instant::now() + secs(5));
    let ends_at = Some(Instant::now() + secs(885));
    let expected = Throttle { paused: true, below: Some(secs(60)), ends_at, outlast: Some(secs(125)) };
    assert_eq!(orders.throttle, expected);
    assert_eq!(orders.look_again, Some(Instant::now() + secs(600)));

    for id in ["preempt", "freeze", "advice"] {
        notices.over(&key(usize::from(id == "preempt"), id), Instant::now());
    }
    tokio::time::advance(secs(885)).await;
    let orders = notices.review(&state(false), &policy);
    assert_eq!((drains(&orders), orders.throttle), (vec!["reboot"], Throttle::default()));
}

#[tokio::test(start_paused = true)]
async fn several_events_of_one_source_are_approved_in_one_go_and_a_failure_is_tried_again() {
    let mut notices = ActiveNotices::default();
    let policy = Policy { approve: Approve::Any, ..Policy::default() };
    notices.noticed(0, event("a", NoticeKind::Terminate, 300), Instant::now());
    notices.noticed(0, event("b", NoticeKind::Terminate, 300), Instant::now());
    notices.noticed(1, event("c", NoticeKind::Terminate, 300), Instant::now());
    let orders = notices.review(&state(true), &policy);
    let of = |source| orders.approve[&source].iter().map(|notice| notice.id.as_str()).collect::<Vec<_>>();
    assert_eq!((of(0), of(1)), (vec!["a", "b"], vec!["c"]));

    let again = Instant::now() + secs(5);
    notices.approval(&key(0, "a"), Approval::Again(again));
    notices.approval(&key(0, "b"), Approval::Done);
    let orders = notices.review(&state(true), &policy);
    assert_eq!((approvals(&orders), orders.look_again), (vec![], Some(again)));
    tokio::time::advance(secs(5)).await;
    assert_eq!(approvals(&notices.review(&state(true), &policy)), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_comes_again_keeps_its_account_and_a_new_phase_begins_a_new_time() {
    let mut notices = ActiveNotices::default();
    let policy = Policy::default();
    let advice = || event("advice", NoticeKind::Rebalance, 60);
    notices.noticed(0, advice(), Instant::now());
    assert!(notices.review(&state(false), &policy).checkpoint);
    tokio::time::advance(secs(599)).await;
    notices.noticed(0, advice(), Instant::now());
    let orders = notices.review(&state(false), &policy);
    assert!(!orders.checkpoint && orders.throttle.below.is_some());
    tokio::time::advance(secs(1)).await;
    assert_eq!(notices.review(&state(false), &policy).throttle.below, None);
    notices.noticed(0, Notice { phase: Phase::Started, ..advice() }, Instant::now());
    assert!(notices.review(&state(false), &policy).throttle.below.is_some());
}

#[tokio::test(start_paused = true)]
async fn looks_that_follow_each_other_at_once_find_the_same_limit_for_jobs() {
    let mut notices = ActiveNotices::default();
    notices.noticed(0, event("advice", NoticeKind::Rebalance, 600), Instant::now());
    tokio::time::advance(Duration::from_millis(100)).await;
    let first = notices.review(&state(false), &Policy::default()).throttle;
    tokio::time::advance(Duration::from_millis(200)).await;
    assert_eq!(notices.review(&state(false), &Policy::default()).throttle, first);
}

#[tokio::test(start_paused = true)]
async fn an_approvals_outcome_outlives_the_wait_for_other_vms() {
    let mut notices = ActiveNotices::default();
    notices.noticed(0, event("a", NoticeKind::Terminate, 300), Instant::now());
    let policy = Policy { approve: Approve::Any, ..Policy::default() };
    for (had, approvals_again) in [(Approval::UnderWay, 1), (Approval::Done, 0), (Approval::Closed, 0)] {
        notices.approval(&key(0, "a"), had);
        notices.reopen(&key(0, "a"));
        assert_eq!(approvals(&notices.review(&state(true), &policy)).len(), approvals_again, "{had:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_turns_into_another_kind_is_as_old_as_that() {
    let mut notices = ActiveNotices::default();
    let begun = |kind| Notice { phase: Phase::Started, not_before: None, ..event("e", kind, 0) };
    notices.noticed(0, begun(NoticeKind::Freeze), Instant::now());
    tokio::time::advance(secs(3600)).await;
    notices.noticed(0, begun(NoticeKind::Reboot), Instant::now());
    assert_eq!(drains(&notices.review(&state(false), &Policy::default())), ["e"]);
}

/// An event in the life of an notices.
#[derive(Debug, Clone)]
enum Turn {
    Notice { id: u8, kind: u8, started: bool, notice_s: u64, ours: u8, user: bool, duration: Option<u64> },
    Over(u8),
    Wait(u64),
    Drained(bool),
    Answered(u8, bool),
}

fn turn() -> impl Strategy<Value = Turn> {
    let seconds = prop_oneof![Just(0), 1..40_u64, 600..1_000_u64, Just(7 * 24 * 3600)];
    let duration = prop::option::of(0..40_u64);
    prop_oneof![
        5 => (0..4_u8, 0..7_u8, any::<bool>(), seconds, 0..4_u8, any::<bool>(), duration).prop_map(
            |(id, kind, started, notice_s, ours, user, duration)| Turn::Notice {
                id, kind, started, notice_s, ours, user, duration
            }
        ),
        2 => (0..4_u8).prop_map(Turn::Over),
        3 => (0..700_u64).prop_map(Turn::Wait),
        2 => any::<bool>().prop_map(Turn::Drained),
        2 => (0..4_u8, any::<bool>()).prop_map(|(id, ok)| Turn::Answered(id, ok)),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    let approves = [Approve::Never, Approve::Sole, Approve::Leader, Approve::Any];
    (0..4_usize, any::<bool>(), any::<bool>(), 0..20_u64).prop_map(move |(approve, at_once, drain, under)| {
        Policy {
            approve: approves[approve],
            approve_user: if at_once { ApproveUser::AtOnce } else { ApproveUser::Drained },
            predicted_failure: if drain { PredictedFailure::Drain } else { PredictedFailure::Warn },
            approve_freeze_under: secs(under),
            ..Policy::default()
        }
    })
}

fn notice_of(turn: &Turn) -> Option<Notice> {
    let Turn::Notice { id, kind, started, notice_s, ours, user, duration } = turn else { return None };
    let kind = match kind {
        0 => NoticeKind::Preempt,
        1 => NoticeKind::Terminate,
        2 => NoticeKind::Reboot,
        3 => NoticeKind::Redeploy,
        4 => NoticeKind::Freeze,
        5 => NoticeKind::Rebalance,
        _ => NoticeKind::Other("Surprise".to_owned()),
    };
    let (resources, machine): (&[&str], _) = match ours {
        0 => (&["vm_0"], "vm_0"),
        1 => (&["vm_0", "vm_1"], "vm_0"),
        2 => (&["vm_1", "vm_0"], "vm_0"),
        _ => (&[], ""),
    };
    let notice = event(&id.to_string(), kind, *notice_s).of(resources.iter().copied(), machine);
    Some(Notice {
        phase: if *started { Phase::Started } else { Phase::Scheduled },
        not_before: notice.not_before.filter(|_| !started),
        initiator: if *user { Initiator::User } else { Initiator::Platform },
        duration: duration.map(secs),
        ..notice
    })
}

/// Checks the notices after each turn, whatever is reported in whatever order.
async fn no_order_is_wrong(turns: &[Turn], policy: &Policy) -> Result<(), TestCaseError> {
    let mut notices = ActiveNotices::default();
    let (mut drained, mut under_way) = (false, std::collections::BTreeSet::new());
    for turn in turns {
        match turn {
            Turn::Notice { .. } => notices.noticed(0, notice_of(turn).expect("a notice"), Instant::now()),
            Turn::Over(id) => {
                notices.over(&key(0, &id.to_string()), Instant::now());
                under_way.remove(&id.to_string());
            }
            Turn::Wait(seconds) => tokio::time::advance(secs(*seconds)).await,
            Turn::Drained(is) => drained = *is,
            Turn::Answered(id, ok) => {
                if under_way.remove(&id.to_string()) {
                    let approval = if *ok { Approval::Done } else { Approval::Again(Instant::now()) };
                    notices.approval(&key(0, &id.to_string()), approval);
                }
            }
        }
        let orders = notices.review(&state(drained), policy);
        for notice in
            orders.approve.values().flatten().chain(orders.gather.iter().map(|(_, notice, _)| notice))
        {
            prop_assert!(!matches!(
                notice.kind,
                NoticeKind::Preempt | NoticeKind::Rebalance | NoticeKind::Other(_)
            ));
            prop_assert_eq!(notice.phase, Phase::Scheduled);
            prop_assert_eq!(&notice.machine, "vm_0");
            prop_assert!(policy.approve != Approve::Never);
            prop_assert!(under_way.insert(notice.id.to_string()), "approved while an approval is under way");
        }
        for notice in orders.approve.values().flatten() {
            prop_assert!(notice.resources.len() == 1 || policy.approve == Approve::Any);
        }
        for (_, deadline) in &orders.drain {
            // No drain is unlimited: a patient one has an end, and any other has the budget.
            let whole = deadline.patient_until().unwrap_or(deadline.asked()) + secs(10);
            prop_assert!(deadline.hard() <= whole);
        }
        // A rest and a limit to short jobs are always reviewed again.
        if orders.throttle.paused || orders.throttle.below.is_some() {
            prop_assert!(orders.look_again.is_some_and(|at| at <= Instant::now() + secs(900)));
        }
        prop_assert!(
            orders.look_again.is_none_or(|at| at > Instant::now()),
            "looked at again without a pause"
        );
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_order_of_events_approves_what_is_not_ours_or_waits_for_ever(
        turns in prop::collection::vec(turn(), 0..40),
        policy in policy(),
    ) {
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        clock.block_on(no_order_is_wrong(&turns, &policy))?;
    }
}
