//! `reprieve events approve`.

use reprieve_azure::scheduled_events::document::EventType;
use reprieve_sim::metadata::{Endpoint, Fault};
use serde_json::Value;

use super::support::{HOUR, ME, NEIGHBOUR, announce, has_begun, run, scene};

#[tokio::test]
async fn an_event_is_approved_by_its_id_in_any_case_and_again() {
    let (place, server) = scene(HOUR).await;
    let url = server.vm_url(ME);
    let id = announce(&server, EventType::Reboot, &[ME], Some(HOUR));
    let ran = run(&place, &url, &["approve", &id.to_lowercase()]).await;
    assert_eq!((ran.code, ran.out), (Some(0), format!("{id}  Reboot  a_0  approved\n")));
    assert_eq!(ran.err, format!("approving Reboot {id} for a_0\n"));
    assert_eq!(has_begun(&server, &id), Some(true));

    let again = run(&place, &url, &["approve", &id, "--json"]).await;
    assert_eq!((again.code, again.err.as_str()), (Some(0), ""));
    let report: Value = serde_json::from_str(&again.out).expect("JSON");
    let expected = serde_json::json!({
        "approved": [{"id": id, "type": "Reboot", "resources": [ME], "begun_already": true}]
    });
    assert_eq!(report, expected);
}

#[tokio::test]
async fn one_event_that_may_not_be_approved_refuses_the_whole_call_with_2() {
    let (place, server) = scene(HOUR).await;
    let url = server.vm_url(ME);
    let none = run(&place, &url, &["approve", "abc"]).await;
    assert_eq!((none.code, none.out.as_str()), (Some(2), ""));
    assert!(none.err.contains(r#"there is no event "abc"; no event is active"#), "{}", none.err);

    let mine = announce(&server, EventType::Reboot, &[ME], Some(HOUR));
    let shared = announce(&server, EventType::Freeze, &[ME, NEIGHBOUR], Some(HOUR));
    let theirs = announce(&server, EventType::Redeploy, &[NEIGHBOUR], Some(HOUR));
    let advice = announce(&server, EventType::SpotRebalanceRecommendation, &[ME], Some(HOUR));
    let preempt = server.evict(ME, HOUR).expect("a VM").event_id;
    for (id, expected) in [
        ("abc", format!("there is no event \"abc\"; active events: {mine} (Reboot), {shared} (Freeze), ")),
        (&shared, format!("Freeze {shared} does not name this VM alone; --shared approves it for a_0, a_1")),
        (&theirs, format!("Redeploy {theirs} does not name this VM alone; --shared approves it for a_1")),
        (
            &advice,
            format!("SpotRebalanceRecommendation {advice} is a recommendation, which can't be approved\n"),
        ),
        (&preempt, "; --surrender approves it anyway".to_owned()),
    ] {
        let ran = run(&place, &url, &["approve", &mine, id]).await;
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{id}");
        assert!(
            ran.err.starts_with("error: failed to approve an event: ") && ran.err.contains(&expected),
            "{}",
            ran.err
        );
    }
    for id in [mine, shared, theirs, preempt] {
        assert_eq!(has_begun(&server, &id), Some(false), "{id}");
    }
    let advised = run(&place, &url, &["approve", &advice, "--shared", "--surrender"]).await;
    assert_eq!(advised.code, Some(2), "no flag makes a recommendation approvable");
}

#[tokio::test]
async fn several_are_approved_at_once_when_that_is_asked_for() {
    let (place, server) = scene(HOUR).await;
    let shared = announce(&server, EventType::Freeze, &[ME, NEIGHBOUR], Some(HOUR));
    let preempt = server.evict(ME, HOUR).expect("a VM").event_id;
    let args = ["approve", &shared, &preempt, &shared, "--shared", "--surrender"];
    let ran = run(&place, &server.vm_url(ME), &args).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let expected = format!("{shared}  Freeze  a_0,a_1  approved\n{preempt}  Preempt  a_0  approved\n");
    assert_eq!(ran.out, expected);
    assert!(ran.err.contains(&format!("approving Freeze {shared} for a_0, a_1\n")), "{}", ran.err);
    assert_eq!([has_begun(&server, &shared), has_begun(&server, &preempt)], [Some(true), Some(true)]);
}

#[tokio::test]
async fn a_service_that_is_busy_is_asked_again_while_there_is_time() {
    let (place, server) = scene(HOUR).await;
    let url = server.vm_url(ME);
    let id = announce(&server, EventType::Reboot, &[ME], Some(HOUR));
    server.inject(Endpoint::ScheduledEvents, &Fault::Status(429), 1);
    server.inject(Endpoint::ScheduledEvents, &Fault::None, 1);
    server.inject(Endpoint::ScheduledEvents, &Fault::Status(503), 1);
    server.inject(Endpoint::Instance, &Fault::Status(500), 1);
    let ran = run(&place, &url, &["approve", &id, "--within", "20s"]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(has_begun(&server, &id), Some(true));

    server.inject(Endpoint::ScheduledEvents, &Fault::Status(503), 100);
    let ran = run(&place, &url, &["approve", &id, "--within", "1s"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{}", ran.err);
    assert!(ran.err.contains("503"), "{}", ran.err);
}

#[tokio::test]
async fn a_refusal_by_the_service_is_a_failure_and_no_wrong_usage() {
    let (place, server) = scene(HOUR).await;
    let id = announce(&server, EventType::Reboot, &[ME], Some(HOUR));
    server.inject(Endpoint::ScheduledEvents, &Fault::None, 2);
    server.inject(Endpoint::ScheduledEvents, &Fault::Status(400), 1);
    let ran = run(&place, &server.vm_url(ME), &["approve", &id]).await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{}", ran.err);
    assert!(
        ran.err.contains("400") && ran.err.contains("`reprieve events watch --once`, then try again"),
        "{}",
        ran.err
    );
}
