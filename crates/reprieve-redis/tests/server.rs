//! A cache's probe and its notifications, on a real Redis.
#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::net::TcpListener;
use std::time::Duration;

use reprieve_core::dependency::{Dependency, Signal};
use reprieve_redis::{CHANNEL, Redis};
use reprieve_testkit::{RedisPair, RedisServer, Signal as UnixSignal, until};
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
async fn a_cache_that_refuses_writes_is_not_away_because_it_answers_reads_and_says_what_it_refuses() {
    let Some(server) = RedisServer::start() else { return };
    let cache = Redis::open(&server.url()).unwrap();
    run(&server, &["SET", "kept", "1"]).await;
    assert_eq!((cache.probe().await, cache.refuses().await), (Ok(()), None));
    run(&server, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let too_few = "it refuses writes (NOREPLICAS)".to_owned();
    assert_eq!((cache.probe().await, cache.refuses().await), (Ok(()), Some(too_few)));
    run(&server, &["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    run(&server, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    run(&server, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let full = "it refuses writes (OOM)".to_owned();
    assert_eq!((cache.probe().await, cache.refuses().await), (Ok(()), Some(full)));
    // It goes after it was probed.
    drop(server);
    let refused = cache.refuses().await.unwrap();
    assert_eq!(refused, "a write fails (connection refused)");
}

#[tokio::test]
async fn a_command_that_waits_for_longer_than_calls_may_take_loses_nothing() {
    let Some(server) = RedisServer::start() else { return };
    let cache = Redis::open(&server.url()).unwrap();
    let mut connection = cache.connect_to_wait().await.unwrap();
    let mut wait = redis::cmd("BLPOP");
    wait.arg("work").arg(20);
    let pushed = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        run(&server, &["RPUSH", "work", "precious"]).await
    };
    let (popped, _) = tokio::join!(wait.query_async::<(String, String)>(&mut connection), pushed);
    assert_eq!(popped, Ok(("work".to_owned(), "precious".to_owned())));
}

#[tokio::test]
async fn a_node_of_a_cluster_and_a_replica_that_can_not_be_read_are_found() {
    let Some(server) = RedisServer::start() else { return };
    let cache = || Redis::open(&server.url()).unwrap();
    assert_eq!(cache().examine().await, Vec::<String>::new());
    let closed = cache().with_replica("redis://127.0.0.1:1").unwrap();
    assert_eq!(closed.examine().await, ["its replica can't be read: connection refused"]);
    // It keeps its slots there.
    let file = std::env::temp_dir().join(format!("reprieve-nodes-{}.conf", std::process::id()));
    let settings = ["--cluster-enabled", "yes", "--cluster-config-file", file.to_str().unwrap()];
    let Some(node) = RedisServer::start_with(&settings) else { return };
    let of_cluster = Redis::open(&node.url()).unwrap();
    let faults = of_cluster.examine().await;
    assert_eq!(faults, ["it is a node of a cluster, which is not supported: most calls fail"]);
    run(&node, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    until("it has all slots", LIMIT, async || of_cluster.probe().await.ok()).await;
    let faults = of_cluster.examine().await;
    assert_eq!(faults, ["it is the only node of a cluster: all calls are served until there is another one"]);
    drop(node);
    std::fs::remove_file(file).unwrap();
}

#[tokio::test]
async fn a_replica_that_connects_and_can_not_be_read_is_found_and_so_is_that_of_another_cache() {
    let Some(pair) = RedisPair::start() else { return };
    let (primary, replica) = (&pair.primary, &pair.replica);
    let at = |user: &str| format!("redis://{user}127.0.0.1:{}", replica.port());
    let faults = async |url: &str| {
        Redis::open(&primary.url()).unwrap().with_replica(url).unwrap().examine().await.join("; ")
    };
    assert_eq!(faults(&replica.url()).await, "");
    assert_eq!(faults(&at("")).await, "its replica can't be read: NOAUTH");
    run(replica, &["ACL", "SETUSER", "reader", "on", ">pw", "+ping", "+client", "~*"]).await;
    assert_eq!(faults(&at("reader:pw@")).await, "its replica can't be read: NOPERM");
    run(replica, &["REPLICAOF", "127.0.0.1", "1"]).await;
    let cut_off = faults(&replica.url()).await;
    assert!(cut_off.starts_with("its replica is not connected to its primary"), "{cut_off}");
    run(replica, &["CONFIG", "SET", "replica-serve-stale-data", "no"]).await;
    assert_eq!(faults(&replica.url()).await, "its replica can't be read: MASTERDOWN");
    let Some(other) = RedisServer::start() else { return };
    let others = faults(&other.url()).await;
    assert_eq!(others, "its replica has the data of another cache, or is not in step yet");
}

#[tokio::test]
async fn a_cache_with_little_room_that_removes_nothing_is_found() {
    let Some(server) = RedisServer::start() else { return };
    let cache = Redis::open(&server.url()).unwrap();
    run(&server, &["SETRANGE", "kept", "8000000", "x"]).await;
    let info = server.command(&["INFO", "memory"]);
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    let used: u64 = used.trim().parse().unwrap();
    run(&server, &["CONFIG", "SET", "maxmemory", &(used + used / 20).to_string()]).await;
    run(&server, &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    assert_eq!(cache.examine().await, Vec::<String>::new(), "it makes room");
    run(&server, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    let faults = cache.examine().await.join("; ");
    assert!(faults.contains("KiB are left") && faults.contains("noeviction"), "{faults}");
    run(&server, &["CONFIG", "SET", "maxmemory", "100mb"]).await;
    assert_eq!(cache.examine().await, Vec::<String>::new());
}

/// Keys of Azure are base64, so half of them have a slash.
#[tokio::test]
async fn a_key_may_stand_in_the_url_as_it_is() {
    const KEY: &str = "a/b+c==?#@:[ ]/";
    let Some(server) = RedisServer::start() else { return };
    run(&server, &["CONFIG", "SET", "requirepass", KEY]).await;
    let at = |user: &str| format!("redis://{user}@127.0.0.1:{}/0", server.port());
    let escaped = "a%2Fb+c==%3F%23%40:%5B%20%5D%2F";
    for user in [format!(":{KEY}"), format!("default:{KEY}"), format!(":{escaped}")] {
        assert_eq!(Redis::open(&at(&user)).unwrap().probe().await, Ok(()), "{user}");
    }
    let wrong = Redis::open(&at(":a")).unwrap().probe().await.unwrap_err();
    assert!(wrong.contains("authentication failed") || wrong.contains("WRONGPASS"), "{wrong}");
}

#[test]
fn a_connection_string_of_another_kind_is_told_apart() {
    let refused = |url| Redis::open(url).map(|_| ()).unwrap_err();
    let portal = refused("thumbs.redis.cache.windows.net:6380,password=hunter2=,ssl=True");
    assert!(portal.starts_with("this is no URL") && !portal.contains("hunter2"), "{portal}");
    for url in ["rediss://:hunter2@host:99999", "rediss://:hunter2@host/two", "http://:hunter2@host"] {
        let why = refused(url);
        assert!(why.starts_with("the URL can't be used") && !why.contains("hunter2"), "{url}: {why}");
    }
}

/// An identity that has no token, for a reason that comes late.
#[derive(Debug)]
struct Late;

#[async_trait::async_trait]
impl reprieve_redis::Identity for Late {
    async fn sign_in(&self) -> Result<reprieve_redis::SignIn, String> {
        tokio::time::sleep(Duration::from_secs(60)).await;
        Err("404".to_owned())
    }

    fn expires(&self) -> Option<std::time::SystemTime> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn an_identity_without_a_token_is_not_taken_for_a_cache_that_does_not_answer() {
    let cache = Redis::open("redis://127.0.0.1").unwrap().with_identity(Late).unwrap();
    let why = timeout(Duration::from_secs(2), cache.probe()).await.expect("a reason in time").unwrap_err();
    assert!(why.contains("the identity has no token"), "{why}");
}
