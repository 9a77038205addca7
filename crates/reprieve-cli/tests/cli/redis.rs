//! `reprieve redis`, on real Redis servers.

use std::io::{BufRead as _, BufReader};

use reprieve::redis::{CHANNEL, Redis, cmd};
use reprieve_testkit::{Process, RedisServer, Signal, until};

use crate::support::{LONG, Place};

/// How many are subscribed.
async fn subscribers(server: &RedisServer) -> u64 {
    let mut connection = Redis::open(&server.url()).expect("a URL").connect().await.expect("a connection");
    let count = cmd("PUBSUB").arg("NUMSUB").arg(CHANNEL).query_async(&mut connection).await;
    let (_, count): (String, u64) = count.expect("a count");
    count
}

/// Starts a watch and waits until it is subscribed.
async fn watch(place: &Place, server: &RedisServer, flags: &[&str]) -> Process {
    let watch = place.start(&[&["redis", "watch", &server.url()], flags].concat());
    until("the watch is subscribed", LONG, async || (subscribers(server).await == 1).then_some(())).await;
    watch
}

/// Ends a watch when it has printed a line with this, and returns what it printed.
fn printed(mut watch: Process, last: &str) -> String {
    let mut lines = BufReader::new(watch.stdout()).lines().map(|line| line.expect("text") + "\n");
    let mut printed = String::new();
    while let Some(line) = lines.next() {
        printed += &line;
        if line.contains(last) {
            watch.signal(Signal::TERM);
            printed.extend(lines);
            break;
        }
    }
    assert!(watch.wait(LONG).success(), "{printed}");
    printed
}

#[test]
fn help_explains_what_is_watched_and_rehearsed() {
    let place = Place::new();
    insta::assert_snapshot!("redis", place.succeeds(&["redis", "--help"]));
    insta::assert_snapshot!("redis_watch", place.succeeds(&["redis", "watch", "--help"]));
    insta::assert_snapshot!("redis_rehearse", place.succeeds(&["redis", "rehearse", "--help"]));
}

#[tokio::test]
async fn a_rehearsal_is_refused_where_others_listen_and_heard_by_them_if_they_may() {
    let Some(server) = RedisServer::start() else { return };
    let place = Place::new();
    let watch = watch(&place, &server, &["--json"]).await;
    let rehearse = ["redis", "rehearse", &server.url(), "--scenario", "scheduled-only"];
    let refused = place.run(&rehearse);
    assert_eq!((refused.code, refused.out.as_str()), (Some(2), ""), "{refused:?}");
    assert!(refused.err.contains("--allow-others") && refused.err.lines().count() == 1, "{refused:?}");
    let out = place.succeeds(&[&rehearse[..], &["--allow-others"]].concat());
    assert_eq!(out, "     0s  NodeMaintenanceScheduled, heard by 1\n");
    let printed = printed(watch, "NodeMaintenanceScheduled");
    let (first, second) = printed.split_once('\n').expect("two lines");
    assert!(first.contains(r#""what":"subscribed","deaf_ms":"#), "{first}");
    assert!(
        second.contains(r#""what":"notification","type":"NodeMaintenanceScheduled","starts_at":"2"#),
        "{second}"
    );
}

#[tokio::test]
async fn a_rehearsal_does_what_it_announces_and_the_watch_survives_it() {
    let (Some(server), Some(replica)) = (RedisServer::start(), RedisServer::start()) else { return };
    replica.replicate(&server);
    let place = Place::new();
    let watch = watch(&place, &server, &[]).await;
    let out = place.succeeds(&[
        "redis",
        "rehearse",
        &server.url(),
        "--scenario=primary",
        "--speed=100",
        "--allow-others",
        "--replica",
        &replica.url(),
    ]);
    let steps: Vec<_> = out.lines().filter_map(|line| line.get(9..)?.split(", ").next()).collect();
    assert_eq!(
        steps,
        [
            "NodeMaintenanceScheduled",
            "NodeMaintenanceStarting",
            "NodeMaintenanceStart",
            "closed the connections",
            "the replica is the primary",
            "NodeMaintenanceFailoverComplete",
            "the replica is a replica again",
            "NodeMaintenanceEnded",
        ],
        "{out}"
    );
    // The server takes writes again.
    server.command(&["SET", "a", "1"]);
    let printed = printed(watch, "NodeMaintenanceEnded");
    let words = |line: &str| line.get(21..).map(str::to_owned);
    let lines: Vec<_> = printed.lines().filter_map(words).collect();
    assert!(lines[0].starts_with("subscribed    after "), "{printed}");
    assert!(lines.contains(&"notification  NodeMaintenanceStart, primary".to_owned()), "{printed}");
    assert!(lines.contains(&"lost          the connection ended".to_owned()), "{printed}");
    let last = lines.last().expect("a line");
    assert!(last.starts_with("notification  NodeMaintenanceEnded, primary"), "{printed}");
}

#[test]
fn nothing_is_done_to_a_server_elsewhere() {
    let place = Place::new();
    let run = |args: &[&str]| place.run(&[&["redis", "rehearse"], args].concat());
    for (args, why) in [
        (&["redis://:hunter2@cache.example", "--scenario=silent"][..], "needs a server of this machine"),
        (
            &["redis://localhost", "--scenario=primary", "--replica=redis://:hunter2@cache.example"],
            "both servers must be on this machine",
        ),
        (&["http://:hunter2@localhost", "--scenario=primary"], "the URL can't be used"),
        (&["env:REPRIEVE_NO_URL", "--scenario=primary"], "REPRIEVE_NO_URL is not set"),
        (&["redis://cache.example", "--identity", "--scenario=primary"], "needs TLS"),
    ] {
        let ran = run(args);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains(why) && !ran.err.contains("hunter2"), "{ran:?}");
    }
    let ran = run(&["redis://:hunter2@127.0.0.1:1", "--scenario=primary"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("connection refused") && !ran.err.contains("hunter2"), "{ran:?}");
}

#[tokio::test]
async fn a_rehearsal_makes_no_server_the_replica_of_one_that_was_not_its_replica() {
    let (Some(server), Some(other)) = (RedisServer::start(), RedisServer::start()) else { return };
    let place = Place::new();
    for replica in [other.url(), server.url()] {
        let refused =
            place.run(&["redis", "rehearse", &server.url(), "--replica", &replica, "--scenario=primary"]);
        assert_eq!((refused.code, refused.out.as_str()), (Some(2), ""), "{refused:?}");
        assert!(refused.err.contains("--replica is no replica of the first server"), "{refused:?}");
    }
}
