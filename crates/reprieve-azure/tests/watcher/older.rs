//! The watcher on a service on which neither the newest nor the documented api-version answers, but an
//! older one does.

use std::num::NonZeroU32;
use std::time::Duration;

use reprieve_azure::scheduled_events::{ApiVersion, Watcher};
use reprieve_core::ports::{Change, Ending};
use reprieve_core::{NoticeKind, Phase};
use reprieve_sim::metadata::{Config, FaultRule, MetadataServer, Which};
use tokio::time::{Instant, sleep};

use crate::support::{ME, NEIGHBOUR, calm, calm_for, check, next, noticed, over, seconds, until, watch};

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

/// The limits of a service, in requests of a VM in a second: none, and the one that is documented.
const LIMITS: [Option<NonZeroU32>; 2] = [None, NonZeroU32::new(5)];

/// How late a notice may be where only this version answers. The two that are polled each second and the
/// four older ones are one request more than the limit, so the last one waits for the next second; or for a
/// pause, where the service answers the others with 429, too.
fn in_time(limit: Option<NonZeroU32>, kind: &str, answers: ApiVersion) -> Duration {
    match answers {
        ApiVersion::V2017_11_01 if limit.is_some() && kind == "429" => seconds(4),
        ApiVersion::V2017_11_01 if limit.is_some() => Duration::from_millis(2_400),
        _ => IN_TIME,
    }
}

fn cases() -> impl Iterator<Item = (Option<NonZeroU32>, &'static str, ApiVersion)> {
    let of_kind =
        |kind| LIMITS.into_iter().flat_map(move |limit| OLDER.map(|version| (limit, kind, version)));
    FAULTS.into_iter().flat_map(of_kind)
}

async fn limited(requests_per_second: Option<NonZeroU32>) -> MetadataServer {
    let config = Config { requests_per_second, ..Config::with_vms([ME, NEIGHBOUR]) };
    MetadataServer::start(config).await.expect("a mock")
}

/// Evicts this VM, and checks that the watcher reports that in time.
async fn hears(server: &MetadataServer, watcher: &Watcher, at_most: Duration, what: &str) {
    let evicted = server.evict(ME, seconds(600)).expect("a known VM");
    let announced = Instant::now();
    let notice = noticed(watcher, seconds(30)).await;
    check(&notice, &NoticeKind::Preempt, Phase::Scheduled);
    let took = notice.received - announced;
    assert!(took <= at_most, "{what}: {took:?}");
    server.withdraw(&Which::EventId(evicted.event_id)).expect("an event");
    assert_eq!(over(watcher, seconds(12)).await, Ending::Withdrawn, "{what}");
}

#[tokio::test(start_paused = true)]
async fn a_preempt_is_heard_in_the_second_in_which_all_versions_but_an_older_one_begin_to_fail() {
    for (limit, kind, answers) in cases() {
        let server = limited(limit).await;
        let watcher = watch(&server);
        assert_eq!(next(&watcher, seconds(2)).await, Change::Answered);
        sleep(seconds(20) + Duration::from_millis(317)).await;
        fail(&server, kind, all_but(answers));
        for _ in 0..2 {
            let what = format!("{kind} in all but {answers}, limit {limit:?}");
            hears(&server, &watcher, in_time(limit, kind, answers), &what).await;
            sleep(seconds(20)).await;
        }
        assert_eq!(watcher.stats().version, answers, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_preempt_is_heard_while_only_an_older_version_answers_from_the_start() {
    for (limit, kind, answers) in cases() {
        let server = limited(limit).await;
        fail(&server, kind, all_but(answers));
        let watcher = watch(&server);
        assert_eq!(next(&watcher, seconds(20)).await, Change::Answered, "{kind} in all but {answers}");
        let what = format!("{kind} in all but {answers}, limit {limit:?}");
        hears(&server, &watcher, in_time(limit, kind, answers), &what).await;
    }
}

/// When it is listed already, or in the first seconds, whatever the other versions do.
#[tokio::test(start_paused = true)]
async fn a_preempt_that_comes_with_the_start_is_heard_in_time_by_an_older_version() {
    for (limit, kind, answers) in cases() {
        for later_ms in [0, 200, 700, 1_200, 1_700, 2_300, 5_100] {
            let server = limited(limit).await;
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
            let at_most = in_time(limit, kind, answers);
            let what = format!("{kind} in all but {answers}, limit {limit:?}, after {later_ms} ms");
            assert!(took <= at_most, "{what}: {took:?}");
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
        hears(&server, &watcher, IN_TIME, kind).await;
        // And the older one that replaced both.
        sleep(seconds(20)).await;
        fail(&server, kind, [ApiVersion::V2019_08_01]);
        hears(&server, &watcher, IN_TIME, kind).await;
    }
}

/// All but one older version fail, all are well for some seconds, and then all but another one fail.
#[tokio::test(start_paused = true)]
async fn a_preempt_is_heard_when_the_only_version_that_answers_changes_within_ten_seconds() {
    for (kind, first) in
        FAULTS.into_iter().filter(|kind| *kind != "429").flat_map(|kind| OLDER.map(|first| (kind, first)))
    {
        for second in OLDER.into_iter().filter(|second| *second != first) {
            for well_ms in [0, 700, 2_300, 5_100] {
                let (server, watcher) = calm().await;
                fail(&server, kind, all_but(first));
                sleep(seconds(3) + Duration::from_millis(171)).await;
                server.clear_faults();
                sleep(Duration::from_millis(well_ms)).await;
                fail(&server, kind, all_but(second));
                let what =
                    format!("{kind} in all but {first}, and {well_ms} ms of health later but {second}");
                hears(&server, &watcher, IN_TIME, &what).await;
            }
        }
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
