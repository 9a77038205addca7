//! The watcher on a service whose api-versions fail apart: either version is enough.

use reprieve_azure::scheduled_events::{ApiVersion, Watcher};
use reprieve_core::ports::{Change, Ending};
use reprieve_core::{NoticeKind, Phase};
use reprieve_sim::metadata::{FaultRule, Which};
use tokio::time::{Instant, sleep};

use crate::support::{
    ME, NOTICE, calm, calm_for, check, client, next, noticed, over, seconds, server, until, watch,
};

const FAULTS: [&str; 14] = [
    "400",
    "403",
    "404",
    "410",
    "429",
    "500",
    "503",
    "hang",
    "reset",
    "break-off",
    "empty",
    "garbage",
    "slow",
    "none",
];

const VERSIONS: [ApiVersion; 2] = [ApiVersion::NEWEST, ApiVersion::DOCUMENTED];

/// A fault of one version that lasts until it is cleared.
fn fault(kind: &str, version: ApiVersion) -> FaultRule {
    FaultRule { version: Some(version.to_string()), ..FaultRule::new(kind) }
}

#[tokio::test(start_paused = true)]
async fn a_preempt_is_heard_while_one_version_fails_from_the_start() {
    for (kind, version) in FAULTS.into_iter().flat_map(|kind| VERSIONS.map(|version| (kind, version))) {
        let server = server().await;
        server.add_fault(&fault(kind, version)).expect("a rule");
        let watcher = watch(&server);
        assert_eq!(next(&watcher, seconds(2)).await, Change::Answered, "{kind} in {version}");
        server.evict(ME, NOTICE).expect("a known VM");
        let announced = Instant::now();
        let notice = noticed(&watcher, seconds(2)).await;
        check(&notice, &NoticeKind::Preempt, Phase::Scheduled);
        assert!(notice.received - announced <= seconds(2), "{kind} in {version}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_preempt_is_heard_when_a_version_that_worked_begins_to_fail() {
    for (kind, version) in FAULTS.into_iter().flat_map(|kind| VERSIONS.map(|version| (kind, version))) {
        let (server, watcher) = calm().await;
        sleep(seconds(20)).await;
        server.add_fault(&fault(kind, version)).expect("a rule");
        for _ in 0..2 {
            sleep(seconds(20)).await;
            let evicted = server.evict(ME, seconds(600)).expect("a known VM");
            noticed(&watcher, seconds(2)).await;
            server.withdraw(&Which::EventId(evicted.event_id)).expect("an event");
            // Only an answer shows the end.
            assert_eq!(over(&watcher, seconds(8)).await, Ending::Withdrawn, "{kind} in {version}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_outlives_the_version_that_fails_and_ends_by_the_other() {
    for (failing, other) in [(VERSIONS[0], VERSIONS[1]), (VERSIONS[1], VERSIONS[0])] {
        for kind in ["hang", "500", "403"] {
            let (server, watcher) = calm().await;
            server.evict(ME, seconds(600)).expect("a known VM");
            noticed(&watcher, seconds(2)).await;
            server.add_fault(&fault(kind, failing)).expect("a rule");
            calm_for(&watcher, seconds(60)).await;
            assert_eq!(watcher.stats().version, other);
            server.withdraw(&Which::Vm(ME.to_owned())).expect("an event");
            assert_eq!(over(&watcher, seconds(2)).await, Ending::Withdrawn);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_fails_lastingly_is_asked_every_30_s_and_used_when_it_answers() {
    let (server, watcher) = calm().await;
    server.add_fault(&fault("403", ApiVersion::NEWEST)).expect("a rule");
    sleep(seconds(15)).await;
    let (errors, polls) = (watcher.stats().errors, watcher.stats().polls);
    assert!((9..=12).contains(&errors), "it rests after 10 s: {errors}");
    sleep(seconds(300)).await;
    let asked = (watcher.stats().errors - errors, watcher.stats().polls - polls);
    assert!((9..=11).contains(&asked.0) && (290..=315).contains(&asked.1), "{asked:?}");
    assert_eq!(watcher.stats().version, ApiVersion::DOCUMENTED);
    server.clear_faults();
    until("the newest version is used again", || watcher.stats().version == ApiVersion::NEWEST).await;
    let polls = watcher.stats().polls;
    sleep(seconds(30)).await;
    assert!(watcher.stats().polls >= polls + 56, "both are polled again");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_rests_is_asked_at_once_when_the_other_one_fails() {
    for (rests, fails) in [(VERSIONS[0], VERSIONS[1]), (VERSIONS[1], VERSIONS[0])] {
        for kind in ["hang", "500", "reset", "429"] {
            let (server, watcher) = calm().await;
            server.add_fault(&fault("500", rests)).expect("a rule");
            sleep(seconds(16)).await;
            server.clear_faults();
            sleep(seconds(4)).await;
            server.add_fault(&fault(kind, fails)).expect("a rule");
            server.evict(ME, NOTICE).expect("a known VM");
            let announced = Instant::now();
            let notice = noticed(&watcher, seconds(4)).await;
            let took = notice.received - announced;
            assert!(took <= std::time::Duration::from_millis(1_500), "{kind} in {fails}: {took:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_first_answer_of_one_version_is_no_failure() {
    let server = server().await;
    let late = Some(seconds(119).into());
    let slow = FaultRule { after: late, lasts: late, ..fault("slow", ApiVersion::NEWEST) };
    server.add_fault(&slow).expect("a rule");
    let watcher = watch(&server);
    assert_eq!(next(&watcher, seconds(2)).await, Change::Answered);
    sleep(seconds(125)).await;
    assert_eq!(watcher.stats().errors, 0, "{:?}", watcher.stats());
}

#[tokio::test(start_paused = true)]
async fn a_pinned_version_is_the_only_one_that_is_polled() {
    for pinned in VERSIONS {
        let server = server().await;
        for version in ApiVersion::ALL.into_iter().filter(|version| *version != pinned) {
            server.add_fault(&fault("500", version)).expect("a rule");
        }
        let watcher = Watcher::spawn(client(&server).with_version(pinned), None);
        assert_eq!(next(&watcher, seconds(2)).await, Change::Answered);
        sleep(seconds(60)).await;
        let stats = watcher.stats();
        assert_eq!((stats.errors, stats.version), (0, pinned));
        assert!((58..=62).contains(&stats.polls), "{stats:?}");
    }
}
