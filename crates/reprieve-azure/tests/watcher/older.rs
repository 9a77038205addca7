//! The watcher on a service on which neither the newest nor the documented api-version answers, but an
//! older one does.

use std::time::Duration;

use reprieve_azure::scheduled_events::{ApiVersion, Watcher};
use reprieve_core::ports::{Change, Ending};
use reprieve_core::{NoticeKind, Phase};
use reprieve_sim::metadata::{FaultRule, MetadataServer, Which};
use tokio::time::{Instant, sleep};

use crate::support::{ME, calm, calm_for, check, next, noticed, over, seconds, server, until, watch};

const FAULTS: [&str; 11] =
    ["400", "403", "404", "410", "429", "500", "503", "hang", "reset", "break-off", "empty"];

/// The older versions that list evictions.
const OLDER: [ApiVersion; 4] =
    [ApiVersion::V2019_08_01, ApiVersion::V2019_04_01, ApiVersion::V2019_01_01, ApiVersion::V2017_11_01];

const IN_TIME: Duration = Duration::from_millis(1_500);

fn fail(server: &MetadataServer, kind: &str, versions: impl IntoIterator<Item = ApiVersion>) {
    for version in versions {
        let rule = FaultRule { version: Some(version.to_string()), ..FaultRule::new(kind) };
        server.add_fault(&rule).expect("a rule");
    }
}

fn all_but(answers: ApiVersion) -> impl Iterator<Item = ApiVersion> {
    ApiVersion::ALL.into_iter().filter(move |version| *version != answers)
}

/// Evicts this VM, and checks that the watcher reports that in time.
async fn hears(server: &MetadataServer, watcher: &Watcher, what: &str) {
    let evicted = server.evict(ME, seconds(600)).expect("a known VM");
    let announced = Instant::now();
    let notice = noticed(watcher, seconds(30)).await;
    check(&notice, &NoticeKind::Preempt, Phase::Scheduled);
    let took = notice.received - announced;
    assert!(took <= IN_TIME, "{what}: {took:?}");
    server.withdraw(&Which::EventId(evicted.event_id)).expect("an event");
    assert_eq!(over(watcher, seconds(12)).await, Ending::Withdrawn, "{what}");
}

#[tokio::test(start_paused = true)]
async fn a_preempt_is_heard_in_the_second_in_which_all_versions_but_an_older_one_begin_to_fail() {
    for (kind, answers) in FAULTS.into_iter().flat_map(|kind| OLDER.map(|version| (kind, version))) {
        let (server, watcher) = calm().await;
        sleep(seconds(20) + Duration::from_millis(317)).await;
        fail(&server, kind, all_but(answers));
        for _ in 0..2 {
            hears(&server, &watcher, &format!("{kind} in all but {answers}")).await;
            sleep(seconds(20)).await;
        }
        assert_eq!(watcher.stats().version, answers, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_preempt_is_heard_while_only_an_older_version_answers_from_the_start() {
    for (kind, answers) in FAULTS.into_iter().flat_map(|kind| OLDER.map(|version| (kind, version))) {
        let server = server().await;
        fail(&server, kind, all_but(answers));
        let watcher = watch(&server);
        assert_eq!(next(&watcher, seconds(20)).await, Change::Answered, "{kind} in all but {answers}");
        hears(&server, &watcher, &format!("{kind} in all but {answers}")).await;
    }
}

/// When it is listed already, or in the first seconds, whatever the other versions do.
#[tokio::test(start_paused = true)]
async fn a_preempt_that_comes_with_the_start_is_heard_in_time_by_an_older_version() {
    for (kind, answers) in FAULTS.into_iter().flat_map(|kind| OLDER.map(|version| (kind, version))) {
        for later_ms in [0, 200, 700, 1_200, 1_700, 2_300] {
            let server = server().await;
            fail(&server, kind, all_but(answers));
            let watcher = watch(&server);
            sleep(Duration::from_millis(later_ms)).await;
            server.evict(ME, seconds(600)).expect("a known VM");
            let announced = Instant::now();
            let notice = match next(&watcher, seconds(30)).await {
                Change::Answered => noticed(&watcher, seconds(30)).await,
                Change::Noticed(notice) => notice,
                other => panic!("a notice was due, not {other:?}"),
            };
            let took = notice.received - announced;
            // A 429 may mean that there are too many requests, so others follow later.
            let at_most = if kind == "429" { Duration::from_millis(2_500) } else { IN_TIME };
            assert!(took <= at_most, "{kind} in all but {answers}, after {later_ms} ms: {took:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_preempt_is_heard_when_the_version_that_replaced_the_newest_begins_to_fail() {
    for kind in FAULTS {
        let (server, watcher) = calm().await;
        fail(&server, "404", [ApiVersion::NEWEST]);
        sleep(seconds(17)).await;
        fail(&server, kind, [ApiVersion::DOCUMENTED]);
        hears(&server, &watcher, kind).await;
        // And the older one that replaced both.
        sleep(seconds(20)).await;
        fail(&server, kind, [ApiVersion::V2019_08_01]);
        hears(&server, &watcher, kind).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_older_version_is_polled_until_a_newer_one_is_back() {
    let (server, watcher) = calm().await;
    fail(&server, "500", [ApiVersion::NEWEST, ApiVersion::DOCUMENTED]);
    until("an older version is used", || watcher.stats().version == ApiVersion::V2019_08_01).await;
    sleep(seconds(12)).await;
    let polls = watcher.stats().polls;
    sleep(seconds(60)).await;
    let sent = watcher.stats().polls - polls;
    assert!((57..=66).contains(&sent), "one each second, and the two every 30 s: {sent}");
    server.clear_faults();
    until("the newest version is used again", || watcher.stats().version == ApiVersion::NEWEST).await;
    sleep(seconds(35)).await;
    let polls = watcher.stats().polls;
    calm_for(&watcher, seconds(60)).await;
    let sent = watcher.stats().polls - polls;
    assert!((112..=122).contains(&sent), "the two each second, and no other: {sent}");
}
