//! Wrong usage, settings from every source, and the log.

use std::process::Stdio;
use std::time::Duration;

use reprieve_testkit::Signal;
use tokio::time::Instant;

use crate::support::{Place, Worker, until};

#[track_caller]
fn check(args: &[&str], code: i32, expected: &[&str]) {
    let place = Place::new();
    let (exits, stderr) = place.fails(args);
    assert_eq!(exits, Some(code), "{stderr}");
    for wanted in expected {
        assert!(stderr.contains(wanted), "{wanted:?} is missing: {stderr}");
    }
    assert!(stderr.starts_with("error: "), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    assert!(
        std::fs::read_dir(place.dir.path()).expect("a directory").next().is_none(),
        "wrong usage leaves nothing behind"
    );
}

#[test]
fn wrong_settings_exit_with_2_and_one_line() {
    check(&["--budget", "10", "--concurrency", "0"], 2, &["--budget: \"10\" is not", "concurrency is 0"]);
    check(&["--store", "azure:my-account"], 2, &["after azure: give an account's name"]);
    check(&["--store", "postgres://u:hunter2@h/d"], 2, &["there is no store postgres:…"]);
    check(&["--config", "missing.toml"], 2, &["the settings file missing.toml can't be read"]);
}

#[test]
fn an_unknown_flag_exits_with_2_and_suggests_the_right_one() {
    check(&["--concurency", "2"], 2, &["unexpected argument '--concurency'", "--concurrency"]);
}

#[test]
fn an_unusable_store_path_exits_with_2_and_is_named() {
    let off = ["--metadata-url", "off"];
    for (store, expected) in [
        ("sqlite:/nowhere/at/all/x.db", "the directory /nowhere/at/all doesn't exist"),
        ("sqlite:/proc/x.db", "/proc/x.db"),
    ] {
        check(&[&off[..], &["--store", store]].concat(), 2, &["failed to open the store: ", expected]);
    }
    check(&[&off[..], &["--store", "sqlite:."]].concat(), 2, &["is a directory; name a file in it"]);
}

#[test]
fn a_start_that_must_not_wait_ends_soon_when_the_store_is_silent() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    let store = format!(
        "AccountName=devstoreaccount1;AccountKey=aGk=;BlobEndpoint=http://{address}/devstoreaccount1;\
         QueueEndpoint=http://{address}/devstoreaccount1"
    );
    let place = Place::new();
    let mut command = place.command("hello", &["--metadata-url", "off", "--start-timeout", "0s"]);
    let began = Instant::now();
    let output = command.env("REPRIEVE_STORE", store).output().expect("the example runs");
    let (took, stderr) = (began.elapsed(), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("error: failed to open the store: it gave no answer within 5 s"), "{stderr}");
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn a_health_address_that_is_taken_exits_with_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    check(
        &["--metadata-url", "off", "--listen", &address],
        1,
        &[&address, "choose another address for --listen"],
    );
}

#[test]
fn a_secret_in_the_environment_or_the_file_is_never_repeated() {
    let secret = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=hunter2";
    let place = Place::new();
    let output = |command: &mut std::process::Command| {
        let output = command.output().unwrap();
        (
            output.status.code(),
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)),
        )
    };
    let (code, text) = output(place.command("hello", &[]).env("REPRIEVE_STORE", secret));
    assert!(code == Some(2) && text.contains("REPRIEVE_STORE: its AccountKey is not base64"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    let (code, text) = output(place.command("hello", &["--help"]).env("REPRIEVE_STORE", secret));
    assert!(code == Some(0) && !text.contains("hunter2"), "{text}");
    std::fs::write(place.dir.path().join("reprieve.toml"), format!("store = '{secret}'\nqueue = 1")).unwrap();
    let (code, text) = output(&mut place.command("hello", &[]));
    assert!(code == Some(2) && text.contains("queue must be text in quotes"), "{text}");
    assert!(text.contains("store in reprieve.toml: its AccountKey is not base64"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let place = Place::new();
    std::fs::write(
        place.dir.path().join("reprieve.toml"),
        "queue = 'from-file'\nvm-name = 'from-file'\nmetadata-url = 'off'\nlog-format = 'text'",
    )
    .unwrap();
    let mut command = place.command("hello", &["--queue", "from-flag"]);
    command.env("REPRIEVE_QUEUE", "from-env").env("REPRIEVE_LOG_FORMAT", "json").env("REPRIEVE_VM_NAME", "");
    let mut worker = Worker::start(command);
    let began = worker.logs("worker started");
    assert_eq!((&began["queue"], &began["vm"]), (&"from-flag".into(), &"from-file".into()), "{began}");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ends(), Some(0));
}

#[tokio::test]
async fn a_log_that_is_not_read_does_not_stop_the_work() {
    let place = Place::new();
    let client = place.client().await;
    let bad = || reprieve::ports::NewMessage { body: b"no job".to_vec(), delay: std::time::Duration::ZERO };
    client.store().queue.send((0..500).map(|_| bad()).collect()).await.unwrap();
    // Each is dead-lettered with a warning, and the pipe takes 64 KiB.
    let mut child = place.command("hello", &["--metadata-url=off"]).stderr(Stdio::piped()).spawn().unwrap();
    until("all are dead-lettered", async || {
        (client.store().queue.depth().await.unwrap().poisoned == Some(500)).then_some(())
    })
    .await;
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.stderr.len() > 60_000, "the pipe was full: {}", output.stderr.len());
}

#[test]
fn help_is_on_stdout_and_names_every_default() {
    let output = Place::new().command("hello", &["-h"]).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
    insta::assert_snapshot!(String::from_utf8(output.stdout).unwrap());
}
