//! When connections to a cache are made anew, and how often, on real Redis servers.
#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use reprieve_core::dependency::{Answer, BreakerState, CallError, DependencyHandle};
use reprieve_core::testing::dependency;
use reprieve_redis::{Redis, Value, cmd};
use reprieve_testkit::{Forwarder, RedisServer, Signal as UnixSignal, until};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};

const LIMIT: Duration = Duration::from_secs(20);

/// The port of the server that a call reaches.
async fn port(handle: &DependencyHandle) -> String {
    let mut found: Vec<String> = Redis::of(handle).query(cmd("CONFIG").arg("GET").arg("port")).await.unwrap();
    found.remove(1)
}

/// The server's number of a client whose last command was this.
fn client(server: &RedisServer, command: &str) -> Option<String> {
    let clients = server.command(&["CLIENT", "LIST"]);
    let line = clients.lines().find(|line| line.contains(&format!("cmd={command} ")))?.to_owned();
    Some(line.split(' ').next()?.trim_start_matches("id=").to_owned())
}

async fn probed(server: &RedisServer) -> String {
    until("it was probed", LIMIT, async || client(server, "set")).await
}

/// Those who read go on with the old primary, and none of their calls fails.
async fn leaves_the_old_primary(is_full: bool, is_cut: bool) {
    let (Some(server), Some(other)) = (RedisServer::start(), RedisServer::start()) else { return };
    if is_full {
        for it in [&server, &other] {
            it.command(&["CONFIG", "SET", "maxmemory", "1"]);
        }
    }
    let forwarder = Forwarder::to(server.port());
    let url = format!("redis://:secret@127.0.0.1:{}", forwarder.port());
    let handle = dependency("cache", Arc::new(Redis::open(&url).unwrap()));
    assert_eq!(port(&handle).await, server.port().to_string());
    let probe = probed(&server).await;
    forwarder.lead(other.port());
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    if is_cut {
        server.command(&["CLIENT", "KILL", "ID", &probe]);
    }
    // It is probed for some reason.
    handle.report(&Answer::Failed("a call of another job failed".to_owned()));
    until("the new primary is read", LIMIT, async || {
        (port(&handle).await == other.port().to_string()).then_some(())
    })
    .await;
    assert_eq!((handle.state(), handle.topology()), (BreakerState::Closed, 1));
}

#[tokio::test]
async fn those_who_only_read_a_full_cache_leave_a_node_that_is_no_primary_any_more() {
    leaves_the_old_primary(true, false).await;
}

#[tokio::test]
async fn those_who_only_read_leave_a_node_that_closed_the_probes_connection() {
    leaves_the_old_primary(false, true).await;
}

#[tokio::test]
async fn a_replica_that_hangs_while_it_is_connected_to_is_avoided_by_callers_with_less_patience_than_that_takes()
 {
    let (Some(primary), Some(replica)) = (RedisServer::start(), RedisServer::start()) else { return };
    replica.replicate(&primary);
    let cache = Redis::open(&primary.url()).unwrap().with_replica(&replica.url()).unwrap();
    let handle = dependency("cache", Arc::new(cache));
    // The primary is connected to.
    port(&handle).await;
    replica.process.signal(UnixSignal::STOP);
    let get = cmd("GET").arg("a").take();
    let read = async || timeout(Duration::from_millis(200), Redis::of(&handle).read::<Value>(&get)).await;
    assert!(read().await.is_err(), "it is connected to");
    sleep(Duration::from_millis(700)).await;
    for _ in 0..5 {
        assert!(read().await.is_ok_and(|answered| answered.is_ok()), "the replica is not avoided");
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(handle.state(), BreakerState::Closed, "the cache itself serves");
    replica.process.signal(UnixSignal::CONT);
}

/// A balancer that counts connections, and closes new ones at once while it is told to.
struct Balancer {
    url: String,
    count: Arc<AtomicUsize>,
    closes: Arc<AtomicBool>,
}

impl Balancer {
    async fn before(server: &RedisServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://:secret@{}", listener.local_addr().unwrap());
        let (count, closes) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (counted, closing, to) = (Arc::clone(&count), Arc::clone(&closes), server.port());
        tokio::spawn(async move {
            loop {
                let (mut from, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Relaxed);
                if closing.load(Relaxed) {
                    continue;
                }
                tokio::spawn(async move {
                    let mut to = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                    // It ends with either side.
                    let _copied = copy_bidirectional(&mut from, &mut to).await;
                });
            }
        });
        Self { url, count, closes }
    }
}

/// As at the most clients that a server takes, or after its key was changed: connections that are there go on.
#[tokio::test]
async fn a_cache_that_closes_new_connections_is_away_and_is_not_asked_for_thousands() {
    let Some(server) = RedisServer::start() else { return };
    let balancer = Balancer::before(&server).await;
    let handle = dependency("cache", Arc::new(Redis::open(&balancer.url).unwrap()));
    let (has_ended, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let (handle, has_ended, answered) =
                (handle.clone(), Arc::clone(&has_ended), Arc::clone(&answered));
            tokio::spawn(async move {
                while !has_ended.load(Relaxed) {
                    match Redis::of(&handle).query::<Value>(cmd("GET").arg("a")).await {
                        Ok(_) => drop(answered.fetch_add(1, Relaxed)),
                        Err(CallError::Open) => sleep(Duration::from_millis(5)).await,
                        Err(CallError::Failed(_)) => {}
                    }
                }
            })
        })
        .collect();
    // So many calls were answered that the rate of those that fail opens nothing.
    sleep(Duration::from_secs(3)).await;
    let jobs = client(&server, "get").unwrap();
    balancer.closes.store(true, Relaxed);
    let (before, cut) = (balancer.count.load(Relaxed), Instant::now());
    server.command(&["CLIENT", "KILL", "ID", &jobs]);
    until("it is away", LIMIT, async || (handle.state() == BreakerState::Open).then_some(())).await;
    assert!(cut.elapsed() < Duration::from_secs(5), "{:?}", cut.elapsed());
    sleep(Duration::from_secs(5)).await;
    let made = balancer.count.load(Relaxed) - before;
    assert!(made < 50, "{made} connections");
    assert_eq!(handle.state(), BreakerState::Open, "a connection that is there shows nothing");
    balancer.closes.store(false, Relaxed);
    until("it is back", LIMIT, async || (handle.state() == BreakerState::Closed).then_some(())).await;
    answered.store(0, Relaxed);
    until("it is called again", LIMIT, async || (answered.load(Relaxed) > 0).then_some(())).await;
    has_ended.store(true, Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
}
