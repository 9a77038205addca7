use super::*;
use crate::interruption::Approve;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A notice at a moment of the worker's life; times count from the notice.
struct Case {
    notice: Notice,
    own: Own,
    policy: Policy,
}

impl Case {
    /// An event of the platform that was noticed now, `notice_s` before its `NotBefore`.
    fn scheduled(kind: NoticeKind, notice_s: u64) -> Self {
        let now = Instant::now();
        let notice = Notice::now("e", kind).at(now + secs(notice_s)).of(["vm_0"], "vm_0");
        let own =
            Own { now, since: now, budget: secs(10), draining: false, drained: false, leases_end: None };
        Self { notice: Notice { initiator: Initiator::Platform, ..notice }, own, policy: Policy::default() }
    }

    fn started(kind: NoticeKind) -> Self {
        let case = Self::scheduled(kind, 0);
        Self { notice: Notice { phase: Phase::Started, not_before: None, ..case.notice }, ..case }
    }

    fn by_user(mut self) -> Self {
        self.notice.initiator = Initiator::User;
        self
    }

    fn lasting(mut self, seconds: u64) -> Self {
        self.notice.duration = Some(secs(seconds));
        self
    }

    fn after(mut self, seconds: u64) -> Self {
        self.own.now += secs(seconds);
        self
    }

    fn drained(mut self) -> Self {
        (self.own.draining, self.own.drained) = (true, true);
        self
    }

    fn leases_for(mut self, seconds: u64) -> Self {
        self.own.leases_end = Some(self.own.now + secs(seconds));
        self
    }

    fn with(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// The instant this many seconds after the notice.
    fn at(&self, seconds: u64) -> Instant {
        self.own.since + secs(seconds)
    }

    fn plan(&self) -> Plan {
        plan(&self.notice, &self.own, &self.policy)
    }

    /// The plan without the time of the next review.
    fn now(&self) -> Plan {
        Plan { look_again: None, ..self.plan() }
    }
}

const DRAIN_WHEN_READY: Plan = Plan { ready: true, ..Plan::DRAIN };

fn every_policy() -> impl Iterator<Item = Policy> {
    let approves = [Approve::Never, Approve::Sole, Approve::Leader, Approve::Any];
    approves.into_iter().flat_map(|approve| {
        [ApproveUser::Drained, ApproveUser::AtOnce].into_iter().flat_map(move |approve_user| {
            [PredictedFailure::Warn, PredictedFailure::Drain].map(|predicted_failure| Policy {
                approve,
                approve_user,
                predicted_failure,
                ..Policy::default()
            })
        })
    })
}

#[tokio::test(start_paused = true)]
async fn an_eviction_drains_at_once_whatever_is_set() {
    for policy in every_policy() {
        for case in [Case::scheduled(NoticeKind::Preempt, 30), Case::started(NoticeKind::Preempt)] {
            assert_eq!(case.by_user().with(policy.clone()).now(), Plan::DRAIN);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_first_seen_as_started_is_acted_on_at_once() {
    for kind in [NoticeKind::Terminate, NoticeKind::Reboot, NoticeKind::Redeploy] {
        assert_eq!(Case::started(kind.clone()).now(), Plan::DRAIN);
        let no_time_given = Case {
            notice: Notice { not_before: None, ..Case::scheduled(kind.clone(), 9).notice },
            ..Case::started(kind)
        };
        assert_eq!(no_time_given.now(), Plan::DRAIN);
    }
    assert_eq!(Case::started(NoticeKind::Freeze).plan().outlast, Some(secs(125)));
}

#[tokio::test(start_paused = true)]
async fn a_termination_leaves_jobs_that_will_be_done_in_time_and_is_ready_when_drained() {
    let case = Case::scheduled(NoticeKind::Terminate, 300);
    let at = Some(case.at(285));
    let patient = Plan { work: Work::DrainBy(case.at(285)), look_again: at, ..Plan::NOTHING };
    assert_eq!(case.plan(), patient);
    assert_eq!(case.after(60).drained().plan(), Plan { ready: true, ..patient });
    assert_eq!(Case::scheduled(NoticeKind::Terminate, 300).after(285).now(), Plan::DRAIN);
    assert_eq!(Case::scheduled(NoticeKind::Terminate, 15).now(), Plan::DRAIN);
}

#[tokio::test(start_paused = true)]
async fn a_restart_by_the_platform_is_drained_for_in_time_with_progress_saved_at_once() {
    for kind in [NoticeKind::Reboot, NoticeKind::Redeploy] {
        let case = Case::scheduled(kind.clone(), 900);
        let going_on = Plan {
            checkpoint: true,
            ends_at: Some(case.at(885)),
            look_again: Some(case.at(885)),
            ..Plan::NOTHING
        };
        assert_eq!(case.plan(), going_on);
        assert_eq!(case.after(884).plan(), going_on);
        assert_eq!(Case::scheduled(kind.clone(), 900).after(885).now(), Plan::DRAIN);
        assert_eq!(Case::scheduled(kind, 900).after(890).drained().now(), DRAIN_WHEN_READY);
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_that_a_user_waits_for_is_drained_for_at_once() {
    for kind in [NoticeKind::Reboot, NoticeKind::Redeploy] {
        assert_eq!(Case::scheduled(kind.clone(), 900).by_user().now(), Plan::DRAIN);
        assert_eq!(Case::scheduled(kind.clone(), 900).by_user().drained().now(), DRAIN_WHEN_READY);
        let at_once = Policy { approve_user: ApproveUser::AtOnce, ..Policy::default() };
        assert_eq!(Case::scheduled(kind, 900).by_user().with(at_once).now(), DRAIN_WHEN_READY);
    }
}

#[tokio::test(start_paused = true)]
async fn a_predicted_failure_is_warned_of_or_drained_for_as_set() {
    const WEEK: u64 = 7 * 24 * 3600;
    let plan = Case::scheduled(NoticeKind::Redeploy, WEEK).plan();
    assert_eq!((plan.work, plan.redeploy_early, plan.ready), (Work::Freely, true, false));
    let drain = Policy { predicted_failure: PredictedFailure::Drain, ..Policy::default() };
    assert_eq!(Case::scheduled(NoticeKind::Redeploy, WEEK).with(drain.clone()).now(), Plan::DRAIN);
    let later = Case::scheduled(NoticeKind::Redeploy, WEEK).with(drain.clone()).after(60).drained();
    assert_eq!(later.now(), DRAIN_WHEN_READY);
    // Also when less than an hour is left by then.
    let late = Case::scheduled(NoticeKind::Redeploy, WEEK).with(drain.clone()).after(WEEK - 60).drained();
    assert_eq!(late.now(), DRAIN_WHEN_READY);
    assert!(!Case::scheduled(NoticeKind::Redeploy, 600).with(drain.clone()).plan().redeploy_early);
    assert_eq!(Case::scheduled(NoticeKind::Redeploy, 600).with(drain.clone()).plan().work, Work::Freely);
    assert_eq!(Case::scheduled(NoticeKind::Reboot, WEEK).with(drain).plan().work, Work::Freely);
    // The type of such an event is not documented.
    for kind in [NoticeKind::Reboot, NoticeKind::Freeze, NoticeKind::Other("Move".to_owned())] {
        let plan = Case::scheduled(kind.clone(), WEEK).plan();
        assert_eq!((plan.work, plan.redeploy_early), (Work::Freely, true), "{kind:?}");
        assert!(!Case::scheduled(kind, 900).plan().redeploy_early);
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_freeze_is_ready_as_soon_as_the_leases_outlast_it() {
    let held = Plan { outlast: Some(secs(15)), ..Plan::NOTHING };
    let ready = Plan { ready: true, ..held };
    let freeze = || Case::scheduled(NoticeKind::Freeze, 900).lasting(5);
    assert_eq!(freeze().plan(), ready, "nothing is held");
    assert_eq!(freeze().leases_for(14).plan(), held);
    assert_eq!(freeze().leases_for(15).plan(), ready);
    assert_eq!(Case::started(NoticeKind::Freeze).lasting(5).plan().work, Work::Freely);
    assert_eq!(freeze().lasting(9).plan().outlast, Some(secs(23)));
}

#[tokio::test(start_paused = true)]
async fn the_threshold_of_a_short_freeze_is_exclusive_and_can_be_set() {
    let is_ready = |seconds, under| {
        let policy = Policy { approve_freeze_under: secs(under), ..Policy::default() };
        Case::scheduled(NoticeKind::Freeze, 900).lasting(seconds).with(policy).plan().ready
    };
    assert_eq!(
        [is_ready(9, 10), is_ready(10, 10), is_ready(8, 9), is_ready(9, 9)],
        [true, false, true, false]
    );
    assert_eq!([is_ready(0, 10), is_ready(0, 0)], [true, false]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_interrupts_nothing_is_not_rested_for() {
    let policy = Policy { approve_freeze_under: Duration::ZERO, ..Policy::default() };
    assert_eq!(Case::started(NoticeKind::Freeze).lasting(0).with(policy).plan(), Plan::NOTHING);
}

#[tokio::test(start_paused = true)]
async fn leases_outlast_a_long_or_unknown_freeze_from_a_minute_before_and_jobs_continue() {
    for (case, started, outlast) in [
        (
            Case::scheduled(NoticeKind::Freeze, 900).lasting(30),
            Case::started(NoticeKind::Freeze).lasting(30),
            secs(65),
        ),
        (Case::scheduled(NoticeKind::Freeze, 900), Case::started(NoticeKind::Freeze), secs(125)),
    ] {
        assert_eq!(case.plan(), Plan { look_again: Some(case.at(840)), ..Plan::NOTHING });
        let held = Plan { outlast: Some(outlast), ..Plan::NOTHING };
        assert_eq!(case.after(840).plan(), held);
        assert_eq!(started.plan(), held);
        assert_eq!(started.after(900).plan(), held);
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_pause_if_set_while_a_freeze_is_started_and_not_forever() {
    let pause = || Policy { during_freeze: DuringFreeze::Pause, ..Policy::default() };
    let scheduled = Case::scheduled(NoticeKind::Freeze, 900).lasting(30).with(pause()).after(840);
    assert_eq!(scheduled.plan().work, Work::Freely);
    let case = Case::started(NoticeKind::Freeze).lasting(30).with(pause());
    let pausing =
        Plan { work: Work::Paused, outlast: Some(secs(65)), look_again: Some(case.at(900)), ..Plan::NOTHING };
    assert_eq!(case.plan(), pausing);
    let long_after = case.after(900).plan();
    assert_eq!((long_after.work, long_after.look_again), (Work::Freely, None));
}

#[tokio::test(start_paused = true)]
async fn an_advice_saves_and_lets_short_jobs_only_begin_for_ten_minutes() {
    for case in [Case::scheduled(NoticeKind::Rebalance, 0), Case::started(NoticeKind::Rebalance)] {
        let heeded = Plan {
            work: Work::Below(secs(30)),
            checkpoint: true,
            look_again: Some(case.at(600)),
            ..Plan::NOTHING
        };
        assert_eq!(case.plan(), heeded);
        assert_eq!(case.after(600).plan(), Plan::NOTHING);
    }
    assert_eq!(Case::scheduled(NoticeKind::Rebalance, 120).plan().work, Work::Below(secs(120)));
    for policy in every_policy() {
        assert!(!Case::scheduled(NoticeKind::Rebalance, 120).by_user().with(policy).drained().plan().ready);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_type_drains_to_end_before_its_time_and_is_never_approved() {
    let kind = || NoticeKind::Other("Surprise".to_owned());
    let case = || Case::scheduled(kind(), 900);
    let saved = Plan {
        checkpoint: true,
        ends_at: Some(case().at(885)),
        look_again: Some(case().at(885)),
        ..Plan::NOTHING
    };
    assert_eq!(case().plan(), saved);
    assert_eq!(case().after(885).now(), Plan::DRAIN);
    assert_eq!(Case::scheduled(kind(), 900).after(895).drained().now(), Plan::DRAIN, "not ready");
    assert_eq!(Case::started(kind()).now(), Plan::DRAIN);
    let untimed = Case { notice: Notice { not_before: None, ..case().notice }, ..case() };
    assert_eq!(untimed.plan(), Plan { checkpoint: true, ..Plan::NOTHING });
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_has_outlived_its_end_works_again() {
    let outlived = Plan { work: Work::Outlived, ..Plan::NOTHING };
    for kind in [NoticeKind::Preempt, NoticeKind::Terminate, NoticeKind::Reboot, NoticeKind::Redeploy] {
        let case = Case::started(kind.clone());
        assert_eq!(case.plan().look_again, Some(case.at(1800)));
        assert_eq!(case.after(1799).now(), Plan::DRAIN);
        assert_eq!(Case::started(kind.clone()).after(1800).plan(), outlived);
        let case = Case::scheduled(kind.clone(), 30).after(15).drained();
        assert_eq!(case.now().work, Work::Drain);
        assert_eq!(case.after(1800).now().work, Work::Drain, "half an hour after it could have begun");
        assert_eq!(Case::scheduled(kind, 30).drained().after(1830).plan(), outlived);
    }
    for kind in [NoticeKind::Signal, NoticeKind::Manual, NoticeKind::Repair, NoticeKind::Restart] {
        assert_eq!(Case::started(kind).after(1_000_000).plan(), Plan::DRAIN);
    }
}
