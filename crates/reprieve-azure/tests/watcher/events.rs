//! The watcher on a working service.

use std::time::Duration;

use crate::support::{
    ME, NEIGHBOUR, NOTICE, calm, calm_for, check, client, next, noticed, over, seconds, server, until, watch,
};
use reprieve_azure::scheduled_events::document::EventType;
use reprieve_azure::scheduled_events::{ChangeKind, Client, Scope, Watcher};
use reprieve_core::ports::{Change, Ending, InterruptionSource};
use reprieve_core::{ErrorKind, NoticeId, NoticeKind, Phase};
use reprieve_sim::metadata::{Announcement, Config, Endpoint, Fault, MetadataServer, Which};
use tokio::time::{Instant, timeout};

#[tokio::test(start_paused = true)]
async fn an_eviction_is_noticed_starts_and_ends() {
    let (server, watcher) = calm().await;
    let announced = Instant::now();
    let evicted = server.evict(ME, NOTICE).expect("a known VM");

    let notice = noticed(&watcher, seconds(2)).await;
    check(&notice, &NoticeKind::Preempt, Phase::Scheduled);
    assert_eq!(notice.id, NoticeId::new(&evicted.event_id));
    let not_before = notice.not_before.expect("a time");
    // The text has whole seconds, and the wall clock did not jump ahead with the runtime's.
    assert!(not_before >= announced + NOTICE - seconds(2), "{:?}", not_before - announced);
    assert!(not_before <= announced + NOTICE + seconds(2), "{:?}", not_before - announced);

    let started = noticed(&watcher, NOTICE + seconds(2)).await;
    check(&started, &NoticeKind::Preempt, Phase::Started);
    assert_eq!((started.id, started.not_before), (notice.id, None));
    assert_eq!(over(&watcher, seconds(12)).await, Ending::Completed);
    calm_for(&watcher, seconds(5)).await;
}

#[tokio::test(start_paused = true)]
async fn active_events_are_reported_before_the_first_answer() {
    let server = server().await;
    server.evict(ME, NOTICE).expect("a known VM");
    let watcher = watch(&server);
    check(&noticed(&watcher, seconds(2)).await, &NoticeKind::Preempt, Phase::Scheduled);
    assert_eq!(next(&watcher, seconds(1)).await, Change::Answered);
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_eviction_has_ended() {
    let (server, watcher) = calm().await;
    server.evict(ME, NOTICE).expect("a known VM");
    noticed(&watcher, seconds(2)).await;
    server.withdraw(&Which::Vm(ME.to_owned())).expect("an event");
    assert_eq!(over(&watcher, seconds(2)).await, Ending::Withdrawn);
}

#[tokio::test(start_paused = true)]
async fn an_event_may_be_first_seen_when_it_has_started() {
    let (server, watcher) = calm().await;
    server.announce(Announcement::new(EventType::Reboot, [ME], None)).expect("an event");
    let notice = noticed(&watcher, seconds(2)).await;
    check(&notice, &NoticeKind::Reboot, Phase::Started);
    assert_eq!(notice.not_before, None);
    assert_eq!(over(&watcher, seconds(12)).await, Ending::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_neighbours_eviction_is_reported_to_the_neighbour_only() {
    let (server, watcher) = calm().await;
    let neighbour = Watcher::spawn(Client::new(&server.vm_url(NEIGHBOUR)).expect("a base URL"), None);
    assert_eq!(next(&neighbour, seconds(2)).await, Change::Answered);
    server.evict(NEIGHBOUR, NOTICE).expect("a known VM");
    noticed(&neighbour, seconds(2)).await;
    calm_for(&watcher, NOTICE + seconds(15)).await;
}

#[tokio::test(start_paused = true)]
async fn two_events_at_once_are_both_reported() {
    let (server, watcher) = calm().await;
    server
        .announce(Announcement::new(EventType::Freeze, [ME, NEIGHBOUR], Some(seconds(900))))
        .expect("an event");
    server.evict(ME, NOTICE).expect("a known VM");
    let mut kinds = [noticed(&watcher, seconds(2)).await.kind, noticed(&watcher, seconds(1)).await.kind];
    kinds.sort_by_key(|kind| kind.as_str().to_owned());
    assert_eq!(kinds, [NoticeKind::Freeze, NoticeKind::Preempt]);
    assert_eq!(noticed(&watcher, NOTICE + seconds(2)).await.phase, Phase::Started);
    assert_eq!(over(&watcher, seconds(12)).await, Ending::Completed);
    calm_for(&watcher, seconds(60)).await;
}

#[tokio::test(start_paused = true)]
async fn an_approved_event_starts_at_once() {
    let (server, watcher) = calm().await;
    server.announce(Announcement::new(EventType::Redeploy, [ME], Some(seconds(600)))).expect("an event");
    let notice = noticed(&watcher, seconds(2)).await;
    watcher.approve(std::slice::from_ref(&notice.id), seconds(2)).await.expect("an approval");
    watcher.approve(std::slice::from_ref(&notice.id), seconds(2)).await.expect("an approval again");
    assert_eq!(noticed(&watcher, seconds(2)).await.phase, Phase::Started);
    assert_eq!(over(&watcher, seconds(12)).await, Ending::Completed);
    watcher.approve(std::slice::from_ref(&notice.id), seconds(2)).await.expect("nothing is left to approve");
}

#[tokio::test(start_paused = true)]
async fn one_vm_may_approve_an_event_that_names_several_vms() {
    let (server, watcher) = calm().await;
    server
        .announce(Announcement::new(EventType::Freeze, [ME, NEIGHBOUR], Some(seconds(600))))
        .expect("an event");
    let notice = noticed(&watcher, seconds(2)).await;
    assert_eq!(
        (&notice.resources[..], notice.machine.as_str()),
        (&[ME.to_owned(), NEIGHBOUR.to_owned()][..], ME)
    );
    watcher.approve(std::slice::from_ref(&notice.id), seconds(2)).await.expect("an approval");
    assert_eq!(watcher.stats().approvals, 1);
}

#[tokio::test(start_paused = true)]
async fn an_event_of_other_vms_and_an_advice_are_not_approved() {
    let (server, watcher) = calm().await;
    let theirs = server.evict(NEIGHBOUR, NOTICE).expect("a known VM");
    server
        .announce(Announcement::new(EventType::SpotRebalanceRecommendation, [ME], Some(seconds(600))))
        .expect("an event");
    let advice = noticed(&watcher, seconds(3)).await;
    check(&advice, &NoticeKind::Rebalance, Phase::Scheduled);
    for id in [advice.id, NoticeId::new(&theirs.event_id)] {
        let error = watcher.approve(std::slice::from_ref(&id), seconds(2)).await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    assert_eq!(watcher.stats().approvals, 0);
}

#[tokio::test(start_paused = true)]
async fn changes_cover_this_vm_and_separately_the_other_vms() {
    let (server, watcher) = calm().await;
    server.evict(NEIGHBOUR, NOTICE).expect("a known VM");
    server.announce(Announcement::new(EventType::Reboot, [ME], None)).expect("an event");
    noticed(&watcher, seconds(3)).await;
    let mut changes = watcher.changes();
    let mut seen = Vec::new();
    while seen.len() < 5 {
        let change = timeout(NOTICE + seconds(15), changes.next())
            .await
            .expect("a change")
            .expect("the watcher is there");
        seen.push((change.scope, change.event.event_type, change.kind));
    }
    let reboot = |what| (Scope::ThisVm, EventType::Reboot, what);
    let preempt = |what| (Scope::OtherVms, EventType::Preempt, what);
    let expected = [
        reboot(ChangeKind::Started),
        preempt(ChangeKind::Noticed),
        reboot(ChangeKind::Completed),
        preempt(ChangeKind::Started),
        preempt(ChangeKind::Completed),
    ];
    assert_eq!(seen, expected);
    drop(watcher);
    assert_eq!(timeout(seconds(5), changes.next()).await.expect("the end"), None);
}

#[tokio::test(start_paused = true)]
async fn a_given_name_is_used_and_not_requested() {
    let server = server().await;
    server.inject(Endpoint::Instance, &Fault::Status(500), 1000);
    let watcher = Watcher::spawn(client(&server), Some("WORKERS_1".to_owned()));
    assert_eq!(next(&watcher, seconds(2)).await, Change::Answered);
    server.evict(NEIGHBOUR, NOTICE).expect("a known VM");
    noticed(&watcher, seconds(2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_blank_name_is_no_name() {
    let server = server().await;
    let watcher = Watcher::spawn(client(&server), Some(" ".to_owned()));
    assert_eq!(next(&watcher, seconds(2)).await, Change::Answered);
    server.evict(ME, NOTICE).expect("a known VM");
    noticed(&watcher, seconds(2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_outlives_a_dropped_call_of_next() {
    let (server, watcher) = calm().await;
    server.evict(ME, NOTICE).expect("a known VM");
    let deadline = Instant::now() + seconds(3);
    let change = loop {
        assert!(Instant::now() < deadline, "the change was lost");
        if let Ok(change) = timeout(Duration::from_millis(7), watcher.next()).await {
            break change;
        }
    };
    assert!(matches!(change, Change::Noticed(_)), "{change:?}");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_watcher_sends_no_more_requests() {
    let (server, watcher) = calm().await;
    drop(watcher);
    tokio::time::sleep(seconds(2)).await;
    let polls = server.state().vms[0].polls;
    tokio::time::sleep(seconds(10)).await;
    assert_eq!(server.state().vms[0].polls, polls);
}

#[tokio::test(start_paused = true)]
async fn it_polls_once_per_second_in_each_of_two_versions() {
    let (server, watcher) = calm().await;
    let before = server.state().vms[0].polls;
    calm_for(&watcher, Duration::from_millis(20_500)).await;
    let polls = server.state().vms[0].polls - before;
    assert!((38..=42).contains(&polls), "{polls}");
    assert!(watcher.stats().answer_age.expect("an answer") < seconds(2));
    assert_eq!(watcher.stats().errors, 0);
}

/// In real time: the delay between an eviction and its notice. `cargo nextest run --no-capture`
/// shows the figures.
#[tokio::test]
async fn from_eviction_to_notice_takes_a_second_at_most() {
    const VMS: u32 = 20;
    let names: Vec<_> = (0..VMS).map(|n| format!("w_{n}")).collect();
    let server = MetadataServer::start(Config::with_vms(&names)).await.expect("a mock");
    let mut watchers = Vec::new();
    for name in &names {
        let watcher = Watcher::spawn(Client::new(&server.vm_url(name)).expect("a base URL"), None);
        assert_eq!(next(&watcher, seconds(5)).await, Change::Answered);
        watchers.push(watcher);
        // Spreads the announcements over the polling interval.
        tokio::time::sleep(seconds(1) / VMS).await;
    }
    let announced = Instant::now();
    for name in &names {
        server.evict(name, NOTICE).expect("a known VM");
    }
    let mut took = Vec::new();
    for watcher in &watchers {
        took.push(noticed(watcher, seconds(5)).await.received - announced);
    }
    took.sort();
    let mean = took.iter().sum::<Duration>() / VMS;
    println!("eviction to notice: min {:?}, mean {mean:?}, max {:?}", took[0], took[took.len() - 1]);
    assert!(took[took.len() - 1] < Duration::from_millis(1500), "{took:?}");
}

/// The clocks differ by 20 s, either way.
#[tokio::test(start_paused = true)]
async fn a_not_before_is_read_by_the_services_clock() {
    for ahead in [20, -20, 0] {
        let ahead = jiff::SignedDuration::from_secs(ahead);
        let server = MetadataServer::start(Config { ahead, ..Config::with_vms([ME]) }).await.expect("a mock");
        let watcher = watch(&server);
        assert_eq!(next(&watcher, seconds(2)).await, Change::Answered);
        let is_known = || (watcher.stats().ahead - ahead).abs() < jiff::SignedDuration::from_secs(1);
        until("the answers agree on the difference", is_known).await;
        let announced = Instant::now();
        server.evict(ME, seconds(40)).expect("a known VM");
        let notice = noticed(&watcher, seconds(2)).await;
        let left = notice.not_before.expect("a time") - announced;
        // The service's `Date` and `NotBefore` are whole seconds: half a second from the one, one from the
        // other, and half the time that the answer took.
        assert!((seconds(38)..=seconds(42)).contains(&left), "{left:?} with the service {ahead} ahead");
    }
}
