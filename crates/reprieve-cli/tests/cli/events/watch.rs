//! The output of a watch.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use reprieve_azure::scheduled_events::document::EventType;
use reprieve_sim::metadata::{Announcement, Config, Endpoint, Fault, MetadataServer, Which};
use serde_json::Value;

use super::support::{HOUR, ME, NEIGHBOUR, Watch, announce, run, scene};
use crate::support::Place;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn an_events_whole_life_is_printed_as_text_and_as_json() {
    let (place, server) = scene(3 * SECOND).await;
    let url = server.vm_url(ME);
    let words = Watch::of(&place, &url, &[]).await;
    let json = Watch::of(&place, &url, &["--json"]).await;
    let redeploy = Announcement {
        source: "User".to_owned(),
        description: "Virtual machine is going to be redeployed as requested by authorized user.".to_owned(),
        ..Announcement::new(EventType::Redeploy, [ME], Some(4 * SECOND))
    };
    let id = server.announce(redeploy).expect("an event").event_id;

    let words = words.lines(3).await;
    for (line, what, when) in [(0, "noticed", "in "), (1, "started", "now"), (2, "completed", "ended")] {
        let columns: Vec<_> =
            words[line].split("  ").map(str::trim).filter(|column| !column.is_empty()).collect();
        let [at, columns @ .., description] = &columns[..] else { panic!("{words:?}") };
        let [change, kind, source, event, vm, time, duration] = columns else { panic!("{words:?}") };
        assert!(at.starts_with("20") && at.len() == "2026-04-11 22:26:58".len(), "{at}");
        assert_eq!([*change, *kind, *source, *event, *vm], [what, "Redeploy", "User", id.as_str(), ME]);
        assert!(time.starts_with(when), "{words:?}");
        assert_eq!(*duration, "for unknown time");
        assert!(description.ends_with("requested by authorized user."), "{description}");
    }

    let json = json.json(3).await;
    let each = |key: &str| json.iter().map(|change| change[key].clone()).collect::<Vec<_>>();
    assert_eq!(each("what"), ["noticed", "started", "completed"]);
    assert_eq!(each("status"), ["Scheduled", "Started", "Started"]);
    assert_eq!(each("id"), vec![Value::from(id); 3]);
    assert_eq!(each("resources"), vec![serde_json::json!([ME]); 3]);
    assert!(json[0]["seconds_left"].as_u64().is_some_and(|seconds| seconds <= 4), "{json:?}");
    assert!(json[0]["not_before"].as_str().is_some_and(|time| time.ends_with('Z')), "{json:?}");
    assert_eq!(each("seconds_left")[1..], [Value::from(0), Value::Null]);
    assert_eq!(each("not_before")[1..], [Value::Null, Value::Null]);
}

#[tokio::test]
async fn events_of_other_vms_are_printed_only_on_request() {
    let (place, server) = scene(HOUR).await;
    let url = server.vm_url(ME);
    let all = Watch::of(&place, &url, &["--all", "--json"]).await;
    let mine = Watch::of(&place, &url, &["--json"]).await;
    let theirs = announce(&server, EventType::Reboot, &[NEIGHBOUR], Some(HOUR));
    assert_eq!(all.json(1).await[0]["id"], theirs);
    server.withdraw(&Which::EventId(theirs.clone())).expect("it has not begun");
    let changes = all.json(2).await;
    assert_eq!((&changes[1]["what"], &changes[1]["whose"]), (&"withdrawn".into(), &"rest".into()));

    let shared = announce(&server, EventType::Freeze, &[NEIGHBOUR, ME], Some(HOUR));
    let (all, mine) = (all.json(3).await, mine.json(1).await);
    assert_eq!((&all[2]["id"], &all[2]["whose"]), (&shared.as_str().into(), &"this".into()));
    assert_eq!((&mine[0]["id"], &mine[0]["vm"], mine.len()), (&shared.into(), &ME.into(), 1));
}

#[tokio::test]
async fn a_withdrawn_event_is_printed_as_withdrawn() {
    let (place, server) = scene(HOUR).await;
    let id = announce(&server, EventType::Reboot, &[ME], Some(HOUR));
    let watch = Watch::of(&place, &server.vm_url(ME), &[]).await;
    assert!(watch.lines(1).await[0].contains("  in 59m "), "{}", watch.output());
    server.withdraw(&Which::EventId(id.clone())).expect("it has not begun");
    let line = watch.lines(2).await.remove(1);
    assert!(line.contains("  withdrawn  Reboot     Platform  ") && line.contains("  ended  "), "{line}");
}

#[tokio::test]
async fn types_choose_the_events() {
    let (place, server) = scene(HOUR).await;
    let watch = Watch::of(&place, &server.vm_url(ME), &["--json", "--type", "preempt,TERMINATE"]).await;
    announce(&server, EventType::Reboot, &[ME], Some(HOUR));
    announce(&server, EventType::Terminate, &[ME], Some(HOUR));
    assert_eq!(watch.json(1).await[0]["type"], "Terminate");
    server.evict(ME, HOUR).expect("a VM");
    let changes = watch.json(2).await;
    assert_eq!((&changes[1]["type"], changes.len()), (&"Preempt".into(), 2));
}

#[tokio::test]
async fn once_prints_the_active_events_and_exits() {
    let (place, server) = scene(HOUR).await;
    let url = server.vm_url(ME);
    let ran = run(&place, &url, &["watch", "--once"]).await;
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(0), "", "no event is active for a_0\n"));

    announce(&server, EventType::Reboot, &[NEIGHBOUR], None);
    announce(&server, EventType::Redeploy, &[ME], Some(HOUR));
    announce(&server, EventType::Freeze, &[ME], None);
    let ran = run(&place, &url, &["watch", "--once", "--json"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let changes: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let mut changes: Vec<_> =
        changes.iter().map(|change| format!("{} {}", change["what"], change["type"])).collect();
    changes.sort();
    assert_eq!(changes, [r#""noticed" "Redeploy""#, r#""started" "Freeze""#]);
    let ran = run(&place, &url, &["watch", "--once", "--all"]).await;
    assert_eq!((ran.code, ran.out.lines().count()), (Some(0), 3), "{}", ran.out);
    assert!(ran.out.lines().any(|line| line.contains("  rest  Reboot ")), "{}", ran.out);
}

/// The address is this test's own on the loopback network, so no other test takes its port
/// meanwhile. macOS has only one.
#[cfg(not(target_os = "macos"))]
#[tokio::test]
async fn an_unavailable_service_is_waited_for_and_reported() {
    let [.., high, low] = std::process::id().to_be_bytes();
    let addr =
        TcpListener::bind(SocketAddr::from(([127, high | 1, low, 77], 0))).and_then(|it| it.local_addr());
    let addr = addr.expect("a free port");
    let place = Place::new();
    let watch = Watch::started(&place, &["--json", "--metadata-url", &format!("http://{addr}/vm/{ME}")]);
    let line = watch.prints("can't be reached").await;
    assert!(line.contains(&addr.to_string()), "{line}");

    let server =
        MetadataServer::start(Config { addr, ..Config::with_vms([ME]) }).await.expect("the port is free");
    let id = announce(&server, EventType::Reboot, &[ME], Some(HOUR));
    assert_eq!(watch.json(1).await[0]["id"], id);
}

#[tokio::test]
async fn a_service_outage_and_its_end_are_reported() {
    let place = Place::new();
    let config = Config { first_answer_after: 7 * SECOND, ..Config::with_vms([ME]) };
    let server = MetadataServer::start(config).await.expect("a mock");
    let watch = Watch::of(&place, &server.vm_url(ME), &["--json"]).await;
    watch.prints("trying again every second; a new Azure VM may need two minutes").await;
    watch.prints("answers again").await;

    server.inject(Endpoint::ScheduledEvents, &Fault::Status(503), 1_000);
    let line = watch.prints("(server ").await;
    assert!(
        line.starts_with("no answer from http://127.0.0.1:") && line.ends_with("; trying again every second"),
        "{line}"
    );
    let id = announce(&server, EventType::Reboot, &[ME], Some(HOUR));
    server.clear_faults();
    assert_eq!(watch.json(1).await[0]["id"], id, "{}", watch.output());
}

#[tokio::test]
async fn the_service_and_the_vm_name_are_set_as_for_a_worker() {
    let (place, server) = scene(HOUR).await;
    announce(&server, EventType::Reboot, &[ME], Some(HOUR));
    let look = async |variables: &[(&str, &str)], args: &[&str]| {
        let mut command = place.command(&[&["events", "watch", "--once"], args].concat());
        command.envs(variables.iter().copied());
        tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs")
    };
    let (url, theirs) = (server.vm_url(ME), server.vm_url(NEIGHBOUR));
    let has_event = async |variables: &[(&str, &str)], args: &[&str]| {
        let output = look(variables, args).await;
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        !output.stdout.is_empty()
    };
    assert!(has_event(&[("REPRIEVE_METADATA_URL", &url)], &[]).await);
    assert!(!has_event(&[("REPRIEVE_METADATA_URL", &theirs)], &[]).await);
    assert!(has_event(&[("REPRIEVE_METADATA_URL", &theirs), ("REPRIEVE_VM_NAME", ME)], &[]).await);
    assert!(has_event(&[("REPRIEVE_METADATA_URL", &theirs)], &["--metadata-url", &url]).await);
    // This command ignores settings that only a worker needs.
    assert!(has_event(&[("REPRIEVE_METADATA_URL", &url), ("REPRIEVE_STORE", "nonsense")], &[]).await);
    place.write("reprieve.toml", format!("metadata-url = '{url}'\n"));
    assert!(has_event(&[], &[]).await);
    assert!(!has_event(&[("REPRIEVE_METADATA_URL", &theirs)], &[]).await);
}

#[test]
fn wrong_usage_exits_with_2() {
    let place = Place::new();
    for (args, expected) in [
        (&["watch", "--metadata-url", "off"][..], "--metadata-url: events need the metadata service"),
        (&["watch", "--metadata-url", "https://host"], "speaks http only"),
        (&["watch", "--vm-name", ""], "--vm-name: it is empty"),
        (&["watch", "--type", "Evict"], "known types: Freeze, Reboot, Redeploy, Preempt"),
        (&["watch", "--once", "--exec", "true"], "cannot be used with"),
        (&["watch", "--exec-timeout", "1s"], "--exec"),
        (&["watch", "--exec", "true", "--exec-timeout", "1"], "is not a number and a unit"),
        (&["watch", "--approve-after-exec"], "--exec"),
        (&["watch", "--exec", "true", "--approve-shared"], "--approve-after-exec"),
        (&["approve"], "required"),
        (&["approve", "a", "--within", "soon"], "is not a number and a unit"),
        (&["approve", "a", "--within", "61m"], "it is longer than 1h"),
        (&["list"], "unrecognized subcommand"),
    ] {
        let ran = place.run(&[&["events"], args].concat());
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{args:?}");
        assert!(ran.err.starts_with("error: ") && ran.err.contains(expected), "{args:?}: {}", ran.err);
    }
    let mut command = place.command(&["events", "watch", "--once"]);
    let ran: crate::support::Ran =
        command.env("REPRIEVE_METADATA_URL", "off").output().expect("it runs").into();
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("REPRIEVE_METADATA_URL: events need the metadata service"), "{}", ran.err);
}

#[test]
fn help_explains_both_commands() {
    insta::assert_snapshot!("events", Place::new().succeeds(&["events", "--help"]));
    insta::assert_snapshot!("watch", Place::new().succeeds(&["events", "watch", "--help"]));
    insta::assert_snapshot!("approve", Place::new().succeeds(&["events", "approve", "--help"]));
}
