//! The calls of jobs on a cache that fails over, on real Redis servers.
#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::join_all;
use redis::ServerErrorKind;
use reprieve_core::dependency::{Answer, BreakerState, CallError, DependencyHandle};
use reprieve_core::testing::dependency;
use reprieve_redis::{CHANNEL, Cmd, Redis, Value, cmd, pipe};
use reprieve_testkit::{Forwarder, RedisServer, Signal as UnixSignal, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, sleep_until, timeout};

const LIMIT: Duration = Duration::from_secs(20);

/// Runs a command beside the jobs.
async fn run(server: &RedisServer, command: &[&str]) -> Value {
    let mut connection = Redis::open(&server.url()).unwrap().connect().await.unwrap();
    command[1..]
        .iter()
        .fold(&mut cmd(command[0]), |cmd, word| cmd.arg(word))
        .query_async(&mut connection)
        .await
        .unwrap()
}

/// Publishes a notification when the worker listens.
async fn announce(server: &RedisServer, what: &str, is_replica: bool) {
    announce_to(1, server, what, is_replica).await;
}

/// The same when so many workers listen.
async fn announce_to(workers: i64, server: &RedisServer, what: &str, is_replica: bool) {
    until("the workers listen", LIMIT, async || {
        let listening = run(server, &["PUBSUB", "NUMSUB", CHANNEL]).await;
        (listening.as_sequence().unwrap()[1] == Value::Int(workers)).then_some(())
    })
    .await;
    let message = format!("NotificationType|{what}|IsReplica|{is_replica}");
    assert_eq!(run(server, &["PUBLISH", CHANNEL, &message]).await, Value::Int(workers));
}

/// The server's number of the connection on which the jobs call.
async fn connection(handle: &DependencyHandle) -> Result<i64, CallError<redis::RedisError>> {
    Redis::of(handle).query(cmd("CLIENT").arg("ID")).await
}

async fn closed(handle: &DependencyHandle) {
    until("the breaker is closed", LIMIT, async || (handle.state() == BreakerState::Closed).then_some(()))
        .await;
}

#[tokio::test]
async fn all_calls_share_a_connection_that_outlives_their_own_errors() {
    let Some(server) = RedisServer::start() else { return };
    let handle = dependency("cache", Arc::new(Redis::open(&server.url()).unwrap()));
    let ids = join_all((0..50).map(|_| connection(&handle))).await;
    let first = ids[0].as_ref().copied().unwrap();
    assert!(ids.iter().all(|id| *id == Ok(first)), "{ids:?}");

    let cache = Redis::of(&handle);
    let wrong = cache.query::<Value>(pipe().cmd("SET").arg("a").arg("b").cmd("INCR").arg("a")).await;
    assert!(matches!(wrong, Err(CallError::Failed(_))), "{wrong:?}");
    let wrong = cache.query::<Value>(&cmd("NONSENSE")).await;
    assert!(matches!(wrong, Err(CallError::Failed(_))), "{wrong:?}");
    assert_eq!(connection(&handle).await, Ok(first));
    assert_eq!(handle.state(), BreakerState::Closed);
}

#[tokio::test]
async fn a_connection_to_a_node_that_is_no_primary_any_more_is_dropped() {
    let (Some(server), Some(other)) = (RedisServer::start(), RedisServer::start()) else { return };
    let handle = dependency("cache", Arc::new(Redis::open(&server.url()).unwrap()));
    let first = connection(&handle).await.unwrap();
    server.replicate(&other);
    until("it is read-only", LIMIT, async || {
        let refused = Redis::of(&handle).query::<Value>(cmd("SET").arg("a").arg(1)).await;
        match refused {
            Err(CallError::Failed(error)) => {
                assert_eq!(error.kind(), redis::ErrorKind::Server(ServerErrorKind::ReadOnly), "{error}");
                Some(())
            }
            Err(CallError::Open) => panic!("no call has failed before"),
            Ok(_) => None,
        }
    })
    .await;
    handle.opened().await;
    assert_eq!(connection(&handle).await, Err(CallError::Open));
    server.promote();
    closed(&handle).await;
    assert!(connection(&handle).await.unwrap() > first, "it is another connection");

    // In a transaction, the first command that is refused gives up the rest.
    server.replicate(&other);
    until("a transaction is refused", LIMIT, async || {
        let refused =
            Redis::of(&handle).query::<Value>(pipe().atomic().cmd("SET").arg("a").arg(1)).await.err()?;
        matches!(refused, CallError::Failed(ref error) if reprieve_redis::is_failure(error)).then_some(())
    })
    .await;
}

/// Their connection goes on, and none of their calls fails.
#[tokio::test]
async fn those_who_only_read_leave_a_node_that_a_probe_finds_to_be_no_primary_any_more() {
    let (Some(server), Some(other)) = (RedisServer::start(), RedisServer::start()) else { return };
    let forwarder = Forwarder::to(server.port());
    let url = format!("redis://:secret@127.0.0.1:{}", forwarder.port());
    let handle = dependency("cache", Arc::new(Redis::open(&url).unwrap()));
    let port = async || {
        let found: Vec<String> =
            Redis::of(&handle).query(cmd("CONFIG").arg("GET").arg("port")).await.unwrap();
        found[1].clone()
    };
    assert_eq!(port().await, server.port().to_string());
    until("it was probed", LIMIT, async || {
        (run(&server, &["EXISTS", "reprieve:probe"]).await == Value::Int(1)).then_some(())
    })
    .await;
    let nowhere = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    run(&server, &["REPLICAOF", "127.0.0.1", &nowhere.to_string()]).await;
    forwarder.lead(other.port());
    // It is probed for some reason.
    handle.report(&Answer::Failed("a call of another job failed".to_owned()));
    until("the new primary is read", LIMIT, async || {
        (port().await == other.port().to_string()).then_some(())
    })
    .await;
    assert_eq!((handle.state(), handle.topology()), (BreakerState::Closed, 1));
}

#[tokio::test]
async fn a_node_that_does_not_answer_costs_all_who_call_it_one_time_out() {
    let Some(server) = RedisServer::start() else { return };
    let handle = dependency("cache", Arc::new(Redis::open(&server.url()).unwrap()));
    let first = connection(&handle).await.unwrap();
    server.process.signal(UnixSignal::STOP);
    let began = Instant::now();
    let silent = join_all((0..50).map(|_| connection(&handle))).await;
    assert!(silent.iter().all(Result::is_err), "{silent:?}");
    // They connect, too, without an answer.
    let silent = join_all((0..50).map(|_| connection(&handle))).await;
    assert!(silent.iter().all(Result::is_err), "{silent:?}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    server.process.signal(UnixSignal::CONT);
    closed(&handle).await;
    assert!(connection(&handle).await.unwrap() > first, "it is another connection");
}

#[tokio::test]
async fn a_change_of_topology_replaces_a_connection_that_works_within_five_seconds() {
    let Some(server) = RedisServer::start() else { return };
    let handle = dependency("cache", Arc::new(Redis::open(&server.url()).unwrap()));
    let first = connection(&handle).await.unwrap();
    announce(&server, "NodeMaintenanceScaleComplete", false).await;
    handle.topology_changed(0).await;
    until("there is another connection", Duration::from_secs(8), async || {
        (connection(&handle).await.unwrap() != first).then_some(())
    })
    .await;
}

/// All have heard of the change at the same moment, and would connect in the same one.
#[tokio::test]
async fn a_fleet_takes_five_seconds_to_replace_its_connections() {
    const WORKERS: i64 = 60;
    let Some(server) = RedisServer::start() else { return };
    let cache = || dependency("cache", Arc::new(Redis::open(&server.url()).unwrap()));
    let fleet: Vec<_> = (0..WORKERS).map(|_| cache()).collect();
    let first = join_all(fleet.iter().map(connection)).await;
    announce_to(WORKERS, &server, "NodeMaintenanceScaleComplete", false).await;
    let announced = Instant::now();
    let replaced_after = async |(handle, first): (&DependencyHandle, i64)| {
        until("there is another connection", LIMIT, async || {
            (connection(handle).await.unwrap() != first).then(|| announced.elapsed().as_secs())
        })
        .await
    };
    let first = first.into_iter().map(Result::unwrap);
    let seconds = join_all(fleet.iter().zip(first).map(replaced_after)).await;
    let in_each: Vec<_> = (0..=6).map(|second| seconds.iter().filter(|at| **at == second).count()).collect();
    assert_eq!(in_each.iter().sum::<usize>(), fleet.len(), "all within six seconds: {seconds:?}");
    // Twelve are expected. More than thirty come about once in a billion runs.
    assert!(in_each.iter().all(|count| *count <= 30), "{in_each:?}");
}

#[tokio::test]
async fn a_connection_from_before_an_outage_is_not_used_after_it() {
    let Some(server) = RedisServer::start() else { return };
    let handle = dependency("cache", Arc::new(Redis::open(&server.url()).unwrap()));
    let first = connection(&handle).await.unwrap();
    announce(&server, "NodeMaintenanceStart", false).await;
    handle.opened().await;
    run(&server, &["CLIENT", "KILL", "TYPE", "normal"]).await;
    announce(&server, "NodeMaintenanceFailoverComplete", false).await;
    // Probes close it; nobody has called by the next change of the topology.
    closed(&handle).await;
    let known = handle.topology();
    announce(&server, "NodeMaintenanceEnded", false).await;
    handle.topology_changed(known).await;
    assert!(connection(&handle).await.unwrap() > first, "it is another connection");
}

#[tokio::test]
async fn those_who_read_a_replica_read_the_primary_while_that_is_in_maintenance_or_fails() {
    let (Some(primary), Some(replica)) = (RedisServer::start(), RedisServer::start()) else { return };
    replica.replicate(&primary);
    let cache = Redis::open(&primary.url()).unwrap().with_replica(&replica.url()).unwrap();
    let handle = dependency("cache", Arc::new(cache));
    let read_at = async || -> String {
        let command: Cmd = cmd("CONFIG").arg("GET").arg("port").take();
        let (_, port): (String, String) = Redis::of(&handle).read(&command).await.unwrap();
        port
    };
    let (of_primary, of_replica) = (primary.port().to_string(), replica.port().to_string());
    assert_eq!(read_at().await, of_replica);

    announce(&primary, "NodeMaintenanceStart", true).await;
    until("the replica is avoided", LIMIT, async || handle.avoids_replicas().then_some(())).await;
    assert_eq!((read_at().await, handle.state()), (of_primary.clone(), BreakerState::Closed));
    announce(&primary, "NodeMaintenanceEnded", true).await;
    until("the replica is back", LIMIT, async || (!handle.avoids_replicas()).then_some(())).await;
    assert_eq!(read_at().await, of_replica);

    replica.process.signal(UnixSignal::STOP);
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(read_at().await, of_primary);
    }
    assert!(began.elapsed() < Duration::from_secs(2), "only the first one waited: {:?}", began.elapsed());
    assert_eq!(handle.state(), BreakerState::Closed, "the cache itself serves");
    replica.process.signal(UnixSignal::CONT);
}

#[tokio::test]
async fn the_password_is_in_no_error() {
    let cache = Redis::open("redis://:hunter2@127.0.0.1:1").unwrap();
    let handle = dependency("cache", Arc::new(cache));
    assert!(connection(&handle).await.is_err());
    handle.opened().await;
    let shown = format!("{handle:?} {:?}", connection(&handle).await);
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[tokio::test]
async fn a_connection_on_which_a_caller_gave_up_is_used_again_only_if_it_answers() {
    let Some(server) = RedisServer::start() else { return };
    let handle = dependency("cache", Arc::new(Redis::open(&server.url()).unwrap()));
    let first = connection(&handle).await.unwrap();
    let slow = Redis::of(&handle);
    // One that is dropped at once shows nothing.
    drop(timeout(Duration::ZERO, slow.query::<Value>(&cmd("PING"))).await);
    assert_eq!(connection(&handle).await.unwrap(), first);
    let wait = cmd("BLPOP").arg("a").arg(0).take();
    assert!(timeout(Duration::from_millis(100), slow.query::<Value>(&wait)).await.is_err());
    until("there is another one", LIMIT, async || {
        let now = timeout(Duration::from_millis(100), connection(&handle)).await;
        now.ok().and_then(Result::ok).filter(|now| *now != first)
    })
    .await;
}

/// Forwards to a server, whose answers come after a delay, until the connections of that time go silent. Returns its
/// URL, and how many connections there were.
async fn forwarder(
    server: &RedisServer,
    delay: Duration,
    epoch: &Arc<AtomicUsize>,
) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("redis://:secret@{}", listener.local_addr().unwrap());
    let (to, count, epoch) = (server.port(), Arc::new(AtomicUsize::new(0)), Arc::clone(epoch));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        loop {
            let (from, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Relaxed);
            let (begun, epoch) = (epoch.load(Relaxed), Arc::clone(&epoch));
            tokio::spawn(async move {
                let to = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                let ((mut calls, mut answers_to), (mut answers, mut calls_to)) =
                    (from.into_split(), to.into_split());
                // It ends with the connection.
                let forward = tokio::spawn(async move { copy(&mut calls, &mut calls_to).await });
                let (send, mut late) = tokio::sync::mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
                tokio::spawn(async move {
                    while let Some((at, bytes)) = late.recv().await {
                        sleep_until(at).await;
                        if epoch.load(Relaxed) == begun && answers_to.write_all(&bytes).await.is_err() {
                            return;
                        }
                    }
                });
                let mut bytes = [0; 4096];
                while let Ok(length @ 1..) = answers.read(&mut bytes).await {
                    let _sent = send.send((Instant::now() + delay, bytes[..length].to_vec()));
                }
                let _forwarded = forward.await;
            });
        }
    });
    (url, count)
}

/// How little patience a caller has says nothing of the connection.
#[tokio::test]
async fn a_connection_that_goes_silent_is_replaced_however_little_patience_its_callers_have() {
    let Some(server) = RedisServer::start() else { return };
    let epoch = Arc::default();
    let (url, connections) = forwarder(&server, Duration::ZERO, &epoch).await;
    let handle = dependency("cache", Arc::new(Redis::open(&url).unwrap()));
    let get = cmd("GET").arg("a").take();
    let call = async || timeout(Duration::from_millis(20), Redis::of(&handle).query::<Value>(&get)).await;
    for pause in [20, 700] {
        until("it is connected", LIMIT, async || call().await.ok()?.ok()).await;
        let before = connections.load(Relaxed);
        epoch.fetch_add(1, Relaxed);
        let began = Instant::now();
        while !call().await.is_ok_and(|answered| answered.is_ok()) {
            assert!(began.elapsed() < Duration::from_secs(5), "it is still silent");
            sleep(Duration::from_millis(pause)).await;
        }
        // The jobs', the probe's, and the watch's.
        assert!(
            connections.load(Relaxed) - before <= 4,
            "{} connections",
            connections.load(Relaxed) - before
        );
    }
}

#[tokio::test]
async fn a_cache_that_is_further_away_than_its_callers_have_patience_is_not_connected_to_again_and_again() {
    let Some(server) = RedisServer::start() else { return };
    let (url, connections) = forwarder(&server, Duration::from_millis(70), &Arc::default()).await;
    let handle = dependency("cache", Arc::new(Redis::open(&url).unwrap()));
    let get = cmd("GET").arg("a").take();
    let began = Instant::now();
    let calls = async || {
        while began.elapsed() < Duration::from_secs(4) {
            let _given_up = timeout(Duration::from_millis(60), Redis::of(&handle).query::<Value>(&get)).await;
        }
    };
    join_all((0..16).map(|_| calls())).await;
    // The jobs', the probe's, and the watch's.
    assert!(connections.load(Relaxed) <= 3, "{} connections", connections.load(Relaxed));
}

#[tokio::test]
async fn a_read_that_the_replica_refuses_is_answered_by_the_primary() {
    let (Some(primary), Some(replica)) = (RedisServer::start(), RedisServer::start()) else { return };
    replica.replicate(&primary);
    let cache = Redis::open(&primary.url()).unwrap().with_replica(&replica.url()).unwrap();
    let handle = dependency("cache", Arc::new(cache));
    until("it replicates", LIMIT, async || {
        replica.command(&["INFO", "replication"]).contains("master_link_status:up").then_some(())
    })
    .await;
    primary.command(&["SET", "a", "1"]);
    let read = async || Redis::of(&handle).read::<i64>(cmd("GET").arg("a")).await;
    replica.command(&["ACL", "SETUSER", "default", "-get"]);
    assert_eq!(read().await, Ok(1), "NOPERM");
    replica.command(&["ACL", "SETUSER", "default", "+get"]);
    sleep(Duration::from_millis(10_100)).await;

    let mut connection = Redis::open(&replica.url()).unwrap().connect_to_wait().await.unwrap();
    let busy = tokio::spawn(async move {
        let endless = cmd("EVAL").arg("while true do end").arg(0).take();
        endless.query_async::<Value>(&mut connection).await
    });
    replica.command(&["CONFIG", "SET", "busy-reply-threshold", "1"]);
    until("it is busy", LIMIT, async || {
        let mut other = Redis::open(&replica.url()).unwrap().connect().await.ok()?;
        cmd("GET")
            .arg("a")
            .query_async::<Value>(&mut other)
            .await
            .is_err_and(|error| error.code() == Some("BUSY"))
            .then_some(())
    })
    .await;
    assert_eq!(read().await, Ok(1), "BUSY");
    assert_eq!(handle.state(), BreakerState::Closed, "the cache itself serves");
    replica.command(&["SCRIPT", "KILL"]);
    assert!(busy.await.unwrap().is_err());
}

/// Forwards to a server after a delay, as of a TLS handshake over some distance. Returns its port.
async fn slow_to_connect(server: &RedisServer, delay: Duration) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (port, to) = (listener.local_addr().unwrap().port(), server.port());
    tokio::spawn(async move {
        loop {
            let (mut from, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                sleep(delay).await;
                let mut to = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                // It ends with the connection.
                let _ended = copy_bidirectional(&mut from, &mut to).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn callers_with_less_patience_than_connecting_takes_get_their_connection_nevertheless() {
    let Some(server) = RedisServer::start() else { return };
    let port = slow_to_connect(&server, Duration::from_millis(250)).await;
    let handle =
        dependency("cache", Arc::new(Redis::open(&format!("redis://:secret@127.0.0.1:{port}")).unwrap()));
    let mut given_up = 0;
    let first = loop {
        match timeout(Duration::from_millis(100), connection(&handle)).await {
            Ok(answered) => break answered.unwrap(),
            Err(_) => given_up += 1,
        }
        assert!(given_up < 20, "each call has begun anew to connect");
    };
    assert!(given_up > 0, "connecting was fast");
    assert_eq!(connection(&handle).await, Ok(first));
}
