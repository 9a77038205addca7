//! A cache's probe and its notifications, on a real Redis.
#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::net::TcpListener;
use std::time::Duration;

use reprieve_core::dependency::{Dependency, Signal};
use reprieve_redis::{CHANNEL, Redis};
use reprieve_testkit::{RedisServer, Signal as UnixSignal, until};
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(20);

async fn run(server: &RedisServer, command: &[&str]) -> redis::Value {
    let mut connection = Redis::open(&server.url()).unwrap().connect().await.unwrap();
    let mut words = redis::cmd(command[0]);
    for word in &command[1..] {
        words.arg(word);
    }
    words.query_async(&mut connection).await.unwrap()
}

/// Publishes a notification when somebody listens.
async fn announce(server: &RedisServer, what: &str) {
    let message = format!("NotificationType|{what}|StartTimeInUTC|2021-03-02T23:26:57|IsReplica|False");
    until("somebody listens", LIMIT, async || {
        (run(server, &["PUBLISH", CHANNEL, &message]).await == redis::Value::Int(1)).then_some(())
    })
    .await;
}

async fn next(cache: &Redis) -> Signal {
    timeout(LIMIT, cache.next_signal()).await.expect("a signal in time")
}

#[tokio::test]
async fn notifications_are_heard_again_after_the_failover_that_cuts_the_subscription() {
    let Some(server) = RedisServer::start() else { return };
    let cache = Redis::open(&server.url()).unwrap();
    assert_eq!(cache.deaf_for(), None, "it has not begun to listen");
    let (heard, ()) = tokio::join!(next(&cache), announce(&server, "NodeMaintenanceStarting"));
    assert_eq!((heard, cache.deaf_for()), (Signal::Begins, None));
    run(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    assert_eq!(next(&cache).await, Signal::Disconnected);
    let (heard, ()) = tokio::join!(next(&cache), announce(&server, "NodeMaintenanceFailoverComplete"));
    assert_eq!(heard, Signal::Switched);
    // What is dropped while it waits loses nothing.
    for _ in 0..3 {
        let waited = timeout(Duration::from_millis(1), cache.next_signal()).await;
        assert!(waited.is_err(), "{waited:?}");
    }
    announce(&server, "NodeMaintenanceSomethingNew").await;
    announce(&server, "NodeMaintenanceEnded").await;
    assert_eq!(next(&cache).await, Signal::Ended);
}

#[tokio::test]
async fn a_connection_that_the_server_closed_since_the_last_probe_is_no_failure() {
    let Some(server) = RedisServer::start() else { return };
    let cache = Redis::open(&server.url()).unwrap();
    assert_eq!(cache.probe().await, Ok(()));
    run(&server, &["CLIENT", "KILL", "TYPE", "normal"]).await;
    assert_eq!(cache.probe().await, Ok(()));
}

#[tokio::test]
async fn a_probe_wants_a_primary_that_answers() {
    let Some(server) = RedisServer::start() else { return };
    let cache = Redis::open(&server.url()).unwrap();
    assert_eq!(cache.probe().await, Ok(()));
    let others = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port().to_string();
    run(&server, &["REPLICAOF", "127.0.0.1", &others]).await;
    assert_eq!(cache.probe().await, Err("READONLY".to_owned()));
    run(&server, &["REPLICAOF", "NO", "ONE"]).await;
    assert_eq!(cache.probe().await, Ok(()));

    server.process.signal(UnixSignal::STOP);
    for _ in 0..2 {
        assert_eq!(cache.probe().await, Err("no answer in time".to_owned()));
    }
    server.process.signal(UnixSignal::CONT);
    until("it answers again", LIMIT, async || cache.probe().await.ok()).await;

    let wrong = Redis::open(&format!("redis://:hunter2@127.0.0.1:{}", server.port())).unwrap();
    let why = wrong.probe().await.unwrap_err();
    assert!(!why.contains("hunter2") && !why.contains("secret"), "{why}");
    assert_eq!(why, "authentication failed");
    drop(server);
    assert!(cache.probe().await.is_err());
    assert_eq!(cache.probe().await, Err("connection refused".to_owned()));
}

#[test]
fn a_bad_url_is_refused_without_its_password() {
    for url in ["", "hunter2", "redis://:hunter2@", "http://:hunter2@host", "rediss://:hunter2@host:99999"] {
        let why = Redis::open(url).expect_err(url);
        assert!(!why.contains("hunter2") && why.contains("rediss://"), "{url}: {why}");
    }
    let cache = Redis::open("rediss://:hunter2@host:6380/1").unwrap();
    assert!(!format!("{cache:?}").contains("hunter2"), "{cache:?}");
}

#[tokio::test]
async fn a_full_cache_is_not_away_because_it_answers_reads() {
    let Some(server) = RedisServer::start() else { return };
    let cache = Redis::open(&server.url()).unwrap();
    run(&server, &["SET", "kept", "1"]).await;
    run(&server, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    run(&server, &["CONFIG", "SET", "maxmemory", "1"]).await;
    assert_eq!(cache.probe().await, Ok(()));
}
