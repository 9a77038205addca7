//! `reprieve redis`, on real Redis servers.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

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

/// Starts a server with users of an ACL, as the replica of another one if that is given.
fn with_users(of: Option<&RedisServer>) -> Option<RedisServer> {
    let server = RedisServer::start()?;
    server.command(&["ACL", "SETUSER", "admin", "on", ">pw", "~*", "&*", "+@all"]);
    server.command(&["ACL", "SETUSER", "copy", "on", ">copypw", "+psync", "+replconf", "+ping"]);
    server.command(&["CONFIG", "SET", "masteruser", "copy", "masterauth", "copypw"]);
    if let Some(of) = of {
        server.replicate(of);
        reprieve_testkit::eventually("it replicates", LONG, || is_up(&server));
    }
    Some(server)
}

fn is_up(server: &RedisServer) -> bool {
    server.command(&["INFO", "replication"]).contains("master_link_status:up")
}

/// The port of its primary, and how it signs in there.
async fn part(server: &RedisServer) -> (Option<String>, Vec<String>) {
    let info = server.command(&["INFO", "replication"]);
    let port = info.lines().find_map(|line| line.strip_prefix("master_port:"));
    let mut connection = Redis::open(&server.url()).expect("a URL").connect().await.expect("a connection");
    let settings = cmd("CONFIG").arg("GET").arg("master[ua]*").query_async(&mut connection).await;
    let mut settings: Vec<String> = settings.expect("the settings");
    settings.sort();
    (port.map(|port| port.trim().to_owned()), settings)
}

/// Also where the replica is that of another replica.
#[tokio::test]
async fn after_a_rehearsal_the_servers_have_their_parts_and_settings_again() {
    let Some(first) = with_users(None) else { return };
    let second = with_users(Some(&first)).expect("another server");
    let third = with_users(Some(&second)).expect("another server");
    let url = |server: &RedisServer| format!("redis://admin:pw@127.0.0.1:{}", server.port());
    let parts = async || [part(&first).await, part(&second).await, part(&third).await];
    let before = parts().await;
    assert_eq!(before[0].1, ["copy", "copypw", "masterauth", "masteruser"]);
    let place = Place::new();
    for replica in [&second, &third] {
        let flags = ["--scenario=primary", "--speed=100", "--replica", &url(replica)];
        place.succeeds(&[&["redis", "rehearse", &url(&first)], &flags[..]].concat());
        assert_eq!(parts().await, before);
        assert!(is_up(replica), "it has its primary's data");
    }
}

#[tokio::test]
async fn a_rehearsal_says_that_the_replica_is_cut_off_afterwards() {
    let Some(first) = with_users(None) else { return };
    let second = with_users(Some(&first)).expect("another server");
    let url = |server: &RedisServer| format!("redis://admin:pw@127.0.0.1:{}", server.port());
    // It is connected by a password that was changed since.
    second.command(&["CONFIG", "SET", "masterauth", "old"]);
    let flags = ["--scenario=primary", "--speed=100", "--replica", &url(&second)];
    let ran = Place::new().run(&[&["redis", "rehearse", &url(&first)], &flags[..]].concat());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("master_link_status is not up"), "{ran:?}");
}

/// What a user may not do is found before one of two servers has changed its part.
#[tokio::test]
async fn a_rehearsal_is_refused_if_the_servers_would_not_let_it_change_their_parts() {
    let Some(first) = with_users(None) else { return };
    let second = with_users(Some(&first)).expect("another server");
    let url = |server: &RedisServer| format!("redis://admin:pw@127.0.0.1:{}", server.port());
    let flags = ["--scenario=primary", "--speed=100", "--replica", &url(&second)];
    let before = (part(&first).await, part(&second).await);
    for (server, command) in [(&first, "config|set"), (&first, "replicaof"), (&second, "replicaof")] {
        server.command(&["ACL", "SETUSER", "admin", &format!("-{command}")]);
        let ran = Place::new().run(&[&["redis", "rehearse", &url(&first)], &flags[..]].concat());
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(
            ran.err.contains("parts can't be changed (failed to use the cache: NOPERM)")
                && ran.out.is_empty(),
            "{ran:?}"
        );
        server.command(&["ACL", "SETUSER", "admin", "+@all"]);
        assert_eq!((part(&first).await, part(&second).await), before, "{command}");
    }
}

#[test]
fn a_rehearsal_that_fails_gives_the_servers_their_parts_again() {
    let Some(first) = with_users(None) else { return };
    let second = with_users(Some(&first)).expect("another server");
    let url = |server: &RedisServer| format!("redis://admin:pw@127.0.0.1:{}", server.port());
    let place = Place::new();
    let flags = ["--scenario=primary", "--speed=50", "--replica", &url(&second)];
    let is = |server: &RedisServer, role| server.command(&["INFO", "replication"]).contains(role);
    let ran = std::thread::scope(|scope| {
        let ran = scope.spawn(|| place.run(&[&["redis", "rehearse", &url(&first)], &flags[..]].concat()));
        reprieve_testkit::eventually("they have each other's part", LONG, || {
            is(&first, "role:slave") && is(&second, "role:master")
        });
        // At the end it gets this far with the first server, and no further.
        first.command(&["ACL", "SETUSER", "admin", "-config|set"]);
        ran.join().expect("it has run")
    });
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("set the first one's masteruser and masterauth"), "{ran:?}");
    assert!(is(&first, "role:master") && is(&second, "role:slave"), "{ran:?}");
}

#[test]
fn a_rehearsal_that_is_stopped_gives_the_servers_their_parts_again_and_is_not_done() {
    let Some(first) = with_users(None) else { return };
    let second = with_users(Some(&first)).expect("another server");
    let url = |server: &RedisServer| format!("redis://admin:pw@127.0.0.1:{}", server.port());
    // The rehearsal closes all connections, also one that asks.
    let is = |server: &RedisServer, role| {
        server.try_command(&["INFO", "replication"]).is_ok_and(|info| info.contains(role))
    };
    let flags = ["--scenario=primary", "--speed=50", "--replica", &url(&second)];
    let mut rehearsal = Place::new().start(&[&["redis", "rehearse", &url(&first)], &flags[..]].concat());
    reprieve_testkit::eventually("they have each other's part", LONG, || {
        is(&first, "role:slave") && is(&second, "role:master")
    });
    rehearsal.signal(Signal::INT);
    assert_eq!(rehearsal.wait(LONG).code(), Some(1));
    assert!(is(&first, "role:master") && is(&second, "role:slave"));
}

/// Answers as a server whose `INFO` has a part only, such as one before Redis 4.0.
fn old_server(info: &'static str) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().expect("a stream")).lines();
                while let Some(Ok(line)) = lines.next() {
                    let answer = match line.as_str() {
                        "INFO" => format!("${}\r\n{info}\r\n", info.len()),
                        "PUBSUB" => format!("*2\r\n${}\r\n{CHANNEL}\r\n:0\r\n", CHANNEL.len()),
                        // What the client says of itself is two commands.
                        "SETINFO" => "+OK\r\n".to_owned(),
                        "REPLICAOF" => panic!("it was made another's replica"),
                        _ => continue,
                    };
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[test]
fn servers_that_do_not_say_which_data_they_have_are_no_pair() {
    let primary = old_server("role:master\r\n");
    let replica =
        old_server("role:slave\r\nmaster_host:10.0.0.9\r\nmaster_port:1\r\nmaster_link_status:up\r\n");
    let url = |port: u16| format!("redis://127.0.0.1:{port}");
    let flags = ["--scenario=primary", "--speed=100", "--replica", &url(replica)];
    let ran = Place::new().run(&[&["redis", "rehearse", &url(primary)], &flags[..]].concat());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("no master_replid"), "{ran:?}");
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
        (&["env:redis://:hunter2@localhost", "--scenario=primary"], "name the environment variable"),
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
