//! The end of a watch.

#![cfg(unix)]

use reprieve_azure::scheduled_events::document::EventType;
use reprieve_sim::metadata::Announcement;
use rustix::process::{Pid, Signal, test_kill_process};

use super::support::{HOUR, ME, Watch, announce, has_begun, scene};
use crate::support::{LONG, Place, until};

#[tokio::test]
async fn a_signal_ends_a_watch_with_0() {
    let (place, server) = scene(HOUR).await;
    for signal in [Signal::INT, Signal::TERM] {
        let mut watch = Watch::of(&place, &server.vm_url(ME), &["--exec", "true"]).await;
        watch.process.signal(signal);
        assert_eq!(watch.code().await, Some(0), "{}", watch.output());
    }
    // Also before it has an event to watch.
    let mut watch = Watch::started(&Place::new(), &["--metadata-url", "http://127.0.0.1:1"]);
    watch.prints("can't be reached").await;
    watch.process.signal(Signal::TERM);
    assert_eq!(watch.code().await, Some(0));
}

#[tokio::test]
async fn a_stop_waits_for_the_running_command_and_for_its_approval() {
    let (place, server) = scene(HOUR).await;
    let exec = "echo > $REPRIEVE_EVENT_TYPE; until test -e go; do sleep 0.05; done; echo > ended";
    let args = ["--exec", exec, "--approve-after-exec"];
    let mut watch = Watch::of(&place, &server.vm_url(ME), &args).await;
    let id = announce(&server, EventType::Reboot, &[ME], Some(HOUR));
    until("the command runs", async || place.path("Reboot").exists().then_some(())).await;
    announce(&server, EventType::Freeze, &[ME], Some(HOUR));
    watch.prints("waits for the previous one to end").await;
    // A Ctrl-C on a terminal would also reach the command, if it were in this process's group.
    watch.process.signal(Signal::INT);
    watch.prints("stopping; 1 change has not run the command").await;
    watch.prints("stopping; waiting up to 1m for the running command").await;
    assert!(watch.process.try_ended().is_none(), "the watch waits");
    place.write("go", "");
    assert_eq!(watch.code().await, Some(0), "{}", watch.output());
    assert!(place.path("ended").exists() && !place.path("Freeze").exists());
    assert_eq!(has_begun(&server, &id), Some(true), "{}", watch.output());
}

#[tokio::test]
async fn a_second_signal_ends_the_watch_and_the_command_at_once() {
    let (place, server) = scene(HOUR).await;
    let mut watch =
        Watch::of(&place, &server.vm_url(ME), &["--exec", "echo $$ > part; mv part pid; sleep 1000"]).await;
    announce(&server, EventType::Reboot, &[ME], Some(HOUR));
    let path = place.path("pid");
    let pid = until("the command runs", async || std::fs::read_to_string(&path).ok()).await;
    watch.process.signal(Signal::TERM);
    watch.prints("stopping; waiting up to 1m").await;
    watch.process.signal(Signal::TERM);
    assert_eq!(watch.code().await, Some(1));
    watch.prints("error: failed to wait for the command: ").await;
    let pid = pid.trim().parse().ok().and_then(Pid::from_raw).expect("a pid");
    until("the command has ended", async || test_kill_process(pid).is_err().then_some(())).await;
}

#[tokio::test]
async fn a_watch_without_a_command_ends_when_its_output_closes() {
    let (place, server) = scene(HOUR).await;
    let mut process = place.start(&["events", "watch", "--metadata-url", &server.vm_url(ME)]);
    drop(process.stdout());
    announce(&server, EventType::Reboot, &[ME], Some(HOUR));
    assert_eq!(process.ended(LONG).await.code(), Some(0));
}

#[tokio::test]
async fn a_blocked_reader_delays_neither_the_command_nor_the_stop() {
    let (place, server) = scene(HOUR).await;
    let url = server.vm_url(ME);
    let args = ["events", "watch", "--metadata-url", &url, "--exec", "echo > $REPRIEVE_EVENT_TYPE"];
    // Its stdout is a pipe without a reader, and each of these lines is more than it holds.
    let mut process = place.start(&args);
    for event_type in [EventType::Reboot, EventType::Freeze] {
        let file = place.path(event_type.as_str());
        let long = Announcement {
            description: "x".repeat(100_000),
            ..Announcement::new(event_type, [ME], Some(HOUR))
        };
        server.announce(long).expect("an event");
        until("the command has run", async || file.exists().then_some(())).await;
    }
    process.signal(Signal::TERM);
    assert_eq!(process.ended(LONG).await.code(), Some(0));
}
