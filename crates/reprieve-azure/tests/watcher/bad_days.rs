//! The watcher on a service that is slow, wrong or away: polling continues, and no failure counts
//! as "no events".

use std::time::Duration;

use crate::support::{
    ME, NEIGHBOUR, NOTICE, calm, calm_for, client, next, noticed, over, seconds, server, until, watch,
};
use reprieve_azure::scheduled_events::{ApiVersion, FailureKind, Watcher};
use reprieve_core::Phase;
use reprieve_core::ports::{Change, Ending};
use reprieve_sim::metadata::{Config, Endpoint, Fault, FaultRule, MetadataServer};
use tokio::time::{Instant, sleep};

/// Fails the next `requests` in each version in this way while a notice is active. The notice must
/// stay active and be withdrawn afterwards.
async fn a_notice_survives(fault: Fault, requests: usize) {
    let (server, watcher) = calm().await;
    server.evict(ME, seconds(600)).expect("a known VM");
    noticed(&watcher, seconds(2)).await;

    let errors = watcher.stats().errors;
    server.inject(Endpoint::ScheduledEvents, &fault, 2 * requests);
    calm_for(&watcher, seconds(requests as u64 + 5)).await;
    // The last failure may be cancelled when the next good answer overtakes it. Of the failures that
    // may mean the version, those of the newest one do not count, and probes also get them.
    let share = if matches!(fault, Fault::Status(400 | 404)) { 3 } else { 1 };
    assert!(
        watcher.stats().errors + 1 >= errors + requests as u64 / share,
        "{fault:?}: {:?}",
        watcher.stats()
    );
    // After a 429 one of the two versions rests, because this VM sends too many requests.
    if fault != Fault::Status(429) {
        let version = watcher.stats().version;
        assert_eq!(version, ApiVersion::NEWEST, "{fault:?} does not change the version for good");
    }
    assert!(watcher.stats().answer_age.expect("an answer") < seconds(3), "{fault:?}: {:?}", watcher.stats());

    server.withdraw(&reprieve_sim::metadata::Which::Vm(ME.to_owned())).expect("an event");
    // After many of them an older version answers, and its polls are up to three seconds apart for a while.
    let within = if fault == Fault::Status(429) { seconds(12) } else { seconds(2) };
    assert_eq!(over(&watcher, within).await, Ending::Withdrawn, "{fault:?}");
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_429_withdraws_nothing() {
    a_notice_survives(Fault::Status(429), 5).await;
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_410_withdraws_nothing() {
    a_notice_survives(Fault::Status(410), 70).await;
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_server_errors_withdraws_nothing() {
    a_notice_survives(Fault::Status(500), 5).await;
    a_notice_survives(Fault::Status(503), 5).await;
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_404_or_400_withdraws_nothing() {
    a_notice_survives(Fault::Status(404), 5).await;
    a_notice_survives(Fault::Status(400), 5).await;
}

#[tokio::test(start_paused = true)]
async fn failures_are_counted_by_kind() {
    let (server, watcher) = calm().await;
    let faults = [
        (Fault::Status(429), FailureKind::Throttled),
        (Fault::Status(410), FailureKind::Updating),
        (Fault::Status(500), FailureKind::Server),
        (Fault::Status(405), FailureKind::Refused),
        (Fault::BreakOff, FailureKind::Unreachable),
        (Fault::Empty, FailureKind::Garbage),
    ];
    for (fault, kind) in faults {
        server.inject(Endpoint::ScheduledEvents, &fault, 1);
        until(kind.as_str(), || watcher.stats().failures.of(kind) == 1).await;
    }
    // One request is cancelled at the next answer. So a timeout shows only after as many requests
    // as a poll may last seconds.
    server.inject(Endpoint::ScheduledEvents, &Fault::Hang, 100);
    until("a request times out", || watcher.stats().failures.of(FailureKind::TimedOut) >= 1).await;
    assert_eq!(watcher.stats().errors, watcher.stats().failures.total());
}

#[tokio::test(start_paused = true)]
async fn an_empty_body_withdraws_nothing() {
    a_notice_survives(Fault::Empty, 5).await;
}

#[tokio::test(start_paused = true)]
async fn garbage_withdraws_nothing() {
    for words in ["<html>proxy</html>", "null", "{}", r#"{"DocumentIncarnation":9}"#] {
        a_notice_survives(Fault::Garbage(words.to_owned()), 3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_break_off_withdraw_nothing() {
    a_notice_survives(Fault::BreakOff, 5).await;
}

#[tokio::test(start_paused = true)]
async fn an_endless_answer_is_cut_off() {
    a_notice_survives(Fault::Garbage("x".repeat(2 << 20)), 2).await;
}

#[tokio::test(start_paused = true)]
async fn an_eviction_during_a_burst_is_noticed_when_it_ends() {
    let (server, watcher) = calm().await;
    server.add_fault(&FaultRule { lasts: Some(seconds(6).into()), ..FaultRule::new("429") }).expect("a rule");
    server.evict(ME, NOTICE).expect("a known VM");
    let announced = Instant::now();
    let notice = noticed(&watcher, seconds(11)).await;
    assert!(notice.received - announced > seconds(5), "no poll met the burst");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_hangs_delays_no_notice() {
    let (server, watcher) = calm().await;
    server.inject(Endpoint::ScheduledEvents, &Fault::Hang, 1);
    let polls = server.state().vms[0].polls;
    until("a request hangs", || server.state().vms[0].polls > polls).await;
    server.evict(ME, NOTICE).expect("a known VM");
    noticed(&watcher, seconds(2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_hangs_for_a_minute_is_asked_on_and_on() {
    let (server, watcher) = calm().await;
    server
        .add_fault(&FaultRule { lasts: Some(seconds(60).into()), ..FaultRule::new("hang") })
        .expect("a rule");
    let polls = watcher.stats().polls;
    server.evict(ME, seconds(600)).expect("a known VM");
    let announced = Instant::now();
    let notice = noticed(&watcher, seconds(70)).await;
    let took = notice.received - announced;
    assert!(took > seconds(55), "the hanging was not met: {took:?}");
    assert!(watcher.stats().polls >= polls + 60, "{:?}", watcher.stats());
}

#[tokio::test(start_paused = true)]
async fn slow_answers_are_heard_as_late_as_they_are() {
    let server = server().await;
    server.inject(Endpoint::ScheduledEvents, &Fault::Late(seconds(6)), 1000);
    let watcher = watch(&server);
    assert_eq!(next(&watcher, seconds(8)).await, Change::Answered);
    sleep(seconds(10)).await;
    server.evict(ME, seconds(600)).expect("a known VM");
    let announced = Instant::now();
    let notice = noticed(&watcher, seconds(15)).await;
    let took = notice.received - announced;
    assert!(took > seconds(5), "no poll met the slow answers");
    assert!(took <= Duration::from_millis(7_500), "as late as the answers, and a poll's interval: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_a_later_one_has_overtaken_is_no_news() {
    let (server, watcher) = calm().await;
    // The answer has no events, and arrives after an answer with one.
    server.inject(Endpoint::ScheduledEvents, &Fault::Late(Duration::from_millis(2500)), 1);
    let polls = server.state().vms[0].polls;
    until("a request waits", || server.state().vms[0].polls > polls).await;
    server.evict(ME, NOTICE).expect("a known VM");
    noticed(&watcher, seconds(2)).await;
    calm_for(&watcher, seconds(5)).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_answer_may_take_two_minutes() {
    let config = Config { first_answer_after: seconds(120), ..Config::with_vms([ME]) };
    let server = MetadataServer::start(config).await.expect("a mock");
    let watcher = watch(&server);
    let began = Instant::now();
    assert_eq!(next(&watcher, seconds(122)).await, Change::Answered);
    assert!(began.elapsed() > seconds(118), "{:?}", began.elapsed());
    assert!(watcher.stats().polls > 100, "polls overlap: {:?}", watcher.stats());
}

#[tokio::test(start_paused = true)]
async fn the_service_is_disabled_after_a_day_without_a_request_and_slow_again_then() {
    let config = Config { first_answer_after: seconds(120), ..Config::with_vms([ME]) };
    let server = MetadataServer::start(config).await.expect("a mock");
    for (pause, answers_after) in [(0, 120), (23, 0), (25, 120)] {
        sleep(seconds(pause * 3600)).await;
        let (watcher, began) = (watch(&server), Instant::now());
        assert_eq!(next(&watcher, seconds(answers_after + 2)).await, Change::Answered);
        assert!(began.elapsed() + seconds(2) > seconds(answers_after), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn work_waits_for_the_name_and_the_name_is_asked_for_until_it_comes() {
    let server = server().await;
    server.inject(Endpoint::Instance, &Fault::Status(429), 2);
    server.inject(Endpoint::Instance, &Fault::Hang, 1);
    server.inject(Endpoint::Instance, &Fault::Garbage("{}".to_owned()), 2);
    server.evict(ME, seconds(600)).expect("a known VM");
    let began = Instant::now();
    let watcher = watch(&server);
    assert_eq!(noticed(&watcher, seconds(20)).await.phase, Phase::Scheduled);
    assert!(began.elapsed() > seconds(12), "the faults were not met: {:?}", began.elapsed());
    assert_eq!(next(&watcher, seconds(1)).await, Change::Answered);
    assert_eq!(watcher.stats().errors, 0, "polls succeeded meanwhile");
}

#[cfg(not(target_os = "macos"))]
#[tokio::test(start_paused = true)]
async fn a_service_that_restarts_forgets_its_events_and_incarnations() {
    let server = crate::support::server_at_its_own_address().await;
    let watcher = watch(&server);
    assert_eq!(next(&watcher, seconds(2)).await, Change::Answered);
    server.evict(ME, seconds(600)).expect("a known VM");
    let first = noticed(&watcher, seconds(2)).await;
    let config = Config { addr: server.addr(), ..Config::with_vms([ME, NEIGHBOUR]) };
    server.stop().await;
    // The service is away: the notice stays active.
    calm_for(&watcher, seconds(5)).await;

    let server = MetadataServer::start(config).await.expect("the port is free again");
    server.evict(ME, seconds(600)).expect("a known VM");
    // The incarnation is 2 again, with another event.
    let second = noticed(&watcher, seconds(2)).await;
    assert_eq!(watcher.stats().resets, 0, "the same number is no reset, and hides nothing");
    assert_ne!(first.id, second.id);
    assert_eq!(next(&watcher, seconds(1)).await, Change::Over(first.id, Ending::Withdrawn));
}

#[cfg(not(target_os = "macos"))]
#[tokio::test(start_paused = true)]
async fn the_service_may_come_up_later_than_the_watcher() {
    let server = crate::support::server_at_its_own_address().await;
    let (client, config) = (client(&server), Config { addr: server.addr(), ..Config::with_vms([ME]) });
    server.stop().await;
    let watcher = Watcher::spawn(client, None);
    calm_for(&watcher, seconds(20)).await;
    assert!(watcher.stats().errors >= 14 && watcher.stats().answer_age.is_none(), "{:?}", watcher.stats());
    let _server = MetadataServer::start(config).await.expect("the port is free again");
    assert_eq!(next(&watcher, seconds(3)).await, Change::Answered);
}
