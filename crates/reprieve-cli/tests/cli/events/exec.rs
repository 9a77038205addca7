//! Commands for changes, and the approvals after them.

#![cfg(unix)]

use std::collections::HashMap;
use std::time::Duration;

use reprieve_azure::scheduled_events::document::EventType;
use reprieve_sim::metadata::{Announcement, Which};
use reprieve_testkit::{Lines, Process};
use serde_json::Value;

use super::support::{HOUR, ME, NEIGHBOUR, Watch, announce, has_begun, scene};
use crate::support::{Place, until};

const SECOND: Duration = Duration::from_secs(1);

/// Waits for a file, and returns its text.
async fn text(place: &Place, name: &str) -> String {
    let path = place.path(name);
    until(&format!("there is {name}"), async || std::fs::read_to_string(&path).ok()).await
}

#[tokio::test]
async fn a_command_is_run_for_each_change_with_the_event_in_its_environment() {
    let (place, server) = scene(3 * SECOND).await;
    // Renamed when it is complete, so that no reader sees half of it.
    let exec =
        "env | grep ^REPRIEVE_EVENT > part && mv part $REPRIEVE_EVENT.env; echo done with $REPRIEVE_EVENT";
    let watch = Watch::of(&place, &server.vm_url(ME), &["--json", "--exec", exec]).await;
    let freeze = Announcement {
        duration: Some(9 * SECOND),
        description: "Host server is undergoing maintenance.".to_owned(),
        ..Announcement::new(EventType::Freeze, [ME, NEIGHBOUR], Some(4 * SECOND))
    };
    let id = server.announce(freeze).expect("an event").event_id;
    for (what, status) in [("noticed", "Scheduled"), ("started", "Started"), ("completed", "Started")] {
        let text = text(&place, &format!("{what}.env")).await;
        let found: HashMap<_, _> = text.lines().filter_map(|line| line.split_once('=')).collect();
        for (name, expected) in [
            ("REPRIEVE_EVENT", what),
            ("REPRIEVE_EVENT_ID", &id),
            ("REPRIEVE_EVENT_TYPE", "Freeze"),
            ("REPRIEVE_EVENT_STATUS", status),
            ("REPRIEVE_EVENT_SOURCE", "Platform"),
            ("REPRIEVE_EVENT_RESOURCES", "a_0,a_1"),
            ("REPRIEVE_EVENT_DURATION_SECONDS", "9"),
            ("REPRIEVE_EVENT_DESCRIPTION", "Host server is undergoing maintenance."),
            ("REPRIEVE_EVENT_VM", ME),
            ("REPRIEVE_EVENT_WHOSE", "this"),
        ] {
            assert_eq!(found.get(name), Some(&expected), "{what}: {name}");
        }
        let (not_before, left) = (found["REPRIEVE_EVENT_NOT_BEFORE"], found["REPRIEVE_EVENT_SECONDS_LEFT"]);
        match what {
            "noticed" => {
                assert!(not_before.starts_with("20") && not_before.ends_with('Z'), "{not_before}");
                assert!(left.parse::<u64>().is_ok_and(|seconds| seconds <= 4), "{left}");
            }
            "started" => assert_eq!((not_before, left), ("", "0")),
            _ => assert_eq!((not_before, left), ("", "")),
        }
        let json: Value = serde_json::from_str(found["REPRIEVE_EVENT_JSON"]).expect("JSON");
        assert_eq!((&json["what"], &json["id"]), (&what.into(), &id.as_str().into()));
        // The command's output is no data of the watch.
        watch.prints(&format!("done with {what}")).await;
    }
    assert_eq!(watch.json(3).await.len(), 3, "stdout has nothing but the changes");
}

#[tokio::test]
async fn a_failed_command_is_reported_and_the_watch_continues() {
    let (place, server) = scene(HOUR).await;
    let exec = r#"test "$REPRIEVE_EVENT_TYPE" = Freeze && kill -9 $$; exit 3"#;
    let watch = Watch::of(&place, &server.vm_url(ME), &["--exec", exec]).await;
    let id = announce(&server, EventType::Reboot, &[ME], Some(HOUR));
    let line = watch.prints("exit code 3").await;
    assert_eq!(line, format!("the command for noticed Reboot {id} ended with exit code 3"));
    announce(&server, EventType::Freeze, &[ME], Some(HOUR));
    watch.prints("was ended by signal 9").await;
    assert_eq!(watch.lines(2).await.len(), 2);
}

#[tokio::test]
async fn a_slow_command_delays_the_next_one_and_nothing_else() {
    let (place, server) = scene(HOUR).await;
    let exec = "echo $REPRIEVE_EVENT_TYPE >> order; until test -e go; do sleep 0.05; done";
    let watch = Watch::of(&place, &server.vm_url(ME), &["--exec", exec]).await;
    announce(&server, EventType::Reboot, &[ME], Some(HOUR));
    have_run(&place, "Reboot\n").await;
    let id = announce(&server, EventType::Redeploy, &[ME], Some(HOUR));
    watch.lines(2).await;
    let line = watch.prints("waits for the previous one to end").await;
    assert!(line.contains(&id), "{line}");
    assert_eq!(text(&place, "order").await, "Reboot\n", "one at a time");
    place.write("go", "");
    have_run(&place, "Reboot\nRedeploy\n").await;
}

#[tokio::test]
async fn no_slow_command_delays_the_one_for_an_eviction() {
    let (place, server) = scene(HOUR).await;
    let exec = "echo $REPRIEVE_EVENT_TYPE $REPRIEVE_EVENT >> order; \
                test $REPRIEVE_EVENT_TYPE = Preempt || until test -e go; do sleep 0.05; done";
    let watch = Watch::of(&place, &server.vm_url(ME), &["--exec", exec]).await;
    announce(&server, EventType::Redeploy, &[ME], Some(HOUR));
    have_run(&place, "Redeploy noticed\n").await;
    announce(&server, EventType::Freeze, &[ME], Some(HOUR));
    watch.prints("waits for the previous one to end").await;
    let evicted = server.evict(ME, HOUR).expect("a VM");
    have_run(&place, "Redeploy noticed\nPreempt noticed\n").await;
    server.withdraw(&Which::EventId(evicted.event_id)).expect("an event");
    have_run(&place, "Redeploy noticed\nPreempt noticed\nPreempt withdrawn\n").await;
    place.write("go", "");
    have_run(&place, "Redeploy noticed\nPreempt noticed\nPreempt withdrawn\nFreeze noticed\n").await;
}

/// Waits until the commands have written these lines, in this order.
async fn have_run(place: &Place, lines: &str) {
    until(&format!("the commands have written {lines:?}"), async || {
        (text(place, "order").await == lines).then_some(())
    })
    .await;
}

#[tokio::test]
async fn no_slow_urgent_command_delays_the_one_for_the_vms_end() {
    let (place, server) = scene(HOUR).await;
    let exec = "echo $REPRIEVE_EVENT_TYPE $REPRIEVE_EVENT >> order; until test -e go; do sleep 0.05; done";
    let watch = Watch::of(&place, &server.vm_url(ME), &["--exec", exec]).await;
    announce(&server, EventType::Reboot, &[ME], Some(50 * SECOND));
    have_run(&place, "Reboot noticed\n").await;
    announce(&server, EventType::Freeze, &[ME], None);
    watch.prints("waits for the previous one to end").await;
    announce(&server, EventType::Preempt, &[ME], Some(HOUR));
    have_run(&place, "Reboot noticed\nPreempt noticed\n").await;
    announce(&server, EventType::Terminate, &[ME], Some(HOUR));
    have_run(&place, "Reboot noticed\nPreempt noticed\nTerminate noticed\n").await;
    let second = announce(&server, EventType::Preempt, &[ME], Some(HOUR));
    have_run(&place, "Reboot noticed\nPreempt noticed\nTerminate noticed\nPreempt noticed\n").await;
    // The changes of one event stay in order.
    server.withdraw(&Which::EventId(second.clone())).expect("an event");
    watch.prints(&format!("the command for withdrawn Preempt {second} waits")).await;
    place.write("go", "");
    until("all have run", async || {
        let order = text(&place, "order").await;
        (order.contains("Freeze") && order.contains("Preempt withdrawn")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_command_over_its_time_is_ended_with_all_it_started() {
    let (place, server) = scene(HOUR).await;
    // The shell and its child would end in different ways if only one of them got the signal.
    let exec = "sh -c 'echo $$ > inner; exec sleep 1000' & wait";
    let args = ["--exec", exec, "--exec-timeout", "500ms"];
    let watch = Watch::of(&place, &server.vm_url(ME), &args).await;
    announce(&server, EventType::Reboot, &[ME], Some(HOUR));
    watch.prints("did not end within 500ms and was ended").await;
    let pid = text(&place, "inner")
        .await
        .trim()
        .parse()
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .expect("a pid");
    until("the command's child has ended", async || {
        rustix::process::test_kill_process(pid).is_err().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_command_that_ignores_its_end_is_killed_before_the_next_one_runs() {
    let (place, server) = scene(HOUR).await;
    // The outer shell ends at SIGTERM, the inner one does not.
    // Not without limit: a test that fails leaves it behind.
    let inner = "trap \"\" TERM; i=0; while test $i -lt 600; do echo > alive; i=$((i+1)); sleep 0.05; done";
    let exec = format!(
        "if test $REPRIEVE_EVENT_TYPE = Reboot; then sh -c '{inner}'; exit $?; fi; \
         rm alive; sleep 0.2; test -e alive; echo $? > new; mv new found"
    );
    let args = ["--exec", &exec, "--exec-timeout", "500ms"];
    let watch = Watch::of(&place, &server.vm_url(ME), &args).await;
    announce(&server, EventType::Reboot, &[ME], Some(HOUR));
    text(&place, "alive").await;
    announce(&server, EventType::Freeze, &[ME], Some(HOUR));
    watch.prints("did not end within 500ms and was ended").await;
    assert_eq!(text(&place, "found").await, "1\n", "the first command lives beside the second");
}

#[tokio::test]
async fn an_event_is_approved_when_its_command_has_succeeded() {
    let (place, server) = scene(HOUR).await;
    let args = ["--exec", "test $REPRIEVE_EVENT_TYPE != Reboot", "--approve-after-exec"];
    let watch = Watch::of(&place, &server.vm_url(ME), &args).await;
    let failed = announce(&server, EventType::Reboot, &[ME], Some(HOUR));
    watch.prints("exit code 1").await;
    let shared = announce(&server, EventType::Freeze, &[ME, NEIGHBOUR], Some(HOUR));
    let line = watch.prints(&shared).await;
    assert_eq!(
        line,
        format!(
            "not approved: Freeze {shared} does not name this VM alone; --approve-shared approves it for all"
        )
    );
    let preempt = server.evict(ME, HOUR).expect("a VM").event_id;
    watch.prints(&format!("not approved: Preempt {preempt} ")).await;
    let advice = announce(&server, EventType::SpotRebalanceRecommendation, &[ME], Some(HOUR));
    watch.prints(&format!("not approved: SpotRebalanceRecommendation {advice} is a recommendation")).await;

    let redeploy = announce(&server, EventType::Redeploy, &[ME], Some(HOUR));
    watch.prints(&format!("approved Redeploy {redeploy}")).await;
    assert_eq!(has_begun(&server, &redeploy), Some(true));
    for id in [failed, shared, preempt] {
        assert_eq!(has_begun(&server, &id), Some(false), "{id}");
    }
}

#[tokio::test]
async fn a_shared_event_is_approved_when_that_is_allowed_and_a_preempt_never() {
    let (place, server) = scene(HOUR).await;
    let args = ["--all", "--exec", "true", "--approve-after-exec", "--approve-shared"];
    let watch = Watch::of(&place, &server.vm_url(ME), &args).await;
    let theirs = announce(&server, EventType::Reboot, &[NEIGHBOUR], Some(HOUR));
    watch.lines(1).await;
    let preempt = server.evict(ME, HOUR).expect("a VM").event_id;
    watch.prints(&format!("not approved: Preempt {preempt} ")).await;
    let shared = announce(&server, EventType::Freeze, &[NEIGHBOUR, ME], Some(HOUR));
    watch.prints(&format!("approved Freeze {shared}")).await;
    // Commands run in order, so the one for the neighbour's event has ended by now.
    for (id, begun) in [(theirs, false), (preempt, false), (shared, true)] {
        assert_eq!(has_begun(&server, &id), Some(begun), "{id}");
    }
}

/// A pipe has 64 KiB; the hook fills it while nobody reads.
#[tokio::test]
async fn a_preempt_is_printed_and_its_command_run_when_nobody_reads_stderr() {
    let (place, server) = scene(HOUR).await;
    let exec = "touch $REPRIEVE_EVENT_TYPE.ran; [ $REPRIEVE_EVENT_TYPE = Preempt ] || \
                head -c 200000 /dev/zero | tr '\\0' x >&2";
    let mut command = place.command(&[
        "events",
        "watch",
        "--json",
        "--exec",
        exec,
        "--exec-timeout",
        "2s",
        "--metadata-url",
        &server.vm_url(ME),
    ]);
    let mut process = Process::start(&mut command);
    let (out, _unread) = (Lines::of(process.stdout()), process.stderr());
    for kind in [EventType::Freeze, EventType::Reboot, EventType::Redeploy] {
        announce(&server, kind.clone(), &[ME], Some(HOUR));
        text(&place, &format!("{}.ran", kind.as_str())).await;
    }
    tokio::time::sleep(9 * SECOND).await;
    announce(&server, EventType::Preempt, &[ME], Some(30 * SECOND));
    text(&place, "Preempt.ran").await;
    until("the Preempt is printed", async || out.find(|line| line.contains("Preempt"))).await;
}
