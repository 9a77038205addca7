//! The mock metadata service's page does what users click, shows what happens, and escapes all
//! foreign text.

use std::time::Duration;

use reprieve_sim::metadata::{Approval, Config, EventState, MetadataServer, Status};
use serde::Deserialize;

use crate::support::{View, can_look, look};

/// A started event stays active longer than the test runs.
const STARTED_FOR: Duration = Duration::from_secs(3600);

/// The script's observations.
#[derive(Debug, Deserialize)]
struct Seen {
    views: Vec<View>,
    /// The errors during its use.
    faults: Vec<String>,
    shown: Shown,
}

/// The texts that the page showed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    quiet: Quiet,
    asked: String,
    scenario: Scenario,
    eviction: Eviction,
    hostility: Hostility,
    faulty: Faulty,
    /// The number of polls while the page was hidden.
    polled_unseen: u32,
    sets: Sets,
    /// The log's lines, the newest first.
    lines: Vec<String>,
    /// The status codes for requests from another site's page.
    other_site: Vec<u16>,
}

/// Before any event.
#[derive(Debug, Deserialize)]
struct Quiet {
    vms: Vec<String>,
    hint: String,
}

/// An event that a click announced, its worker approved, and a click ended.
#[derive(Debug, Deserialize)]
struct Scenario {
    scheduled: String,
    started: String,
    /// The focused element after its buttons are gone.
    focused: String,
    drawn: Vec<String>,
    status: String,
}

#[derive(Debug, Deserialize)]
struct Eviction {
    card: String,
    vm: String,
}

#[derive(Debug, Deserialize)]
struct Hostility {
    description: String,
    elements: usize,
    title: String,
}

#[derive(Debug, Deserialize)]
struct Faulty {
    standing: Vec<String>,
    refused: String,
    away: String,
}

/// A set that is too large for the page, and an empty set.
#[derive(Debug, Deserialize)]
struct Sets {
    vms: Vec<String>,
    more: String,
    hint: String,
    cards: usize,
}

#[track_caller]
fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_mocks_page_shows_and_controls_events() {
    if !can_look() {
        return;
    }
    let config = Config { started_for: STARTED_FOR, ..Config::with_vms(["workers_0", "workers_1"]) };
    let server = MetadataServer::start(config).await.expect("a mock");
    let url = server.url();
    let looked = tokio::task::spawn_blocking(move || look::<Seen>("metadata.mjs", url)).await;
    let Seen { views, faults, shown } = looked.expect("the script's output");

    assert!(faults.is_empty(), "{faults:#?}");
    assert_eq!(views.len(), 10, "four views of a quiet day and of a busy one, and two in between");
    for view in views {
        view.check();
        assert_eq!((view.lang.as_str(), view.images), ("en", 0), "{}", view.name);
        assert!(view.title.ends_with("Mock metadata service"), "{}: {:?}", view.name, view.title);
    }
    check_texts(&shown, &server);
    check_state(&server);
    server.stop().await;
}

fn check_texts(shown: &Shown, server: &MetadataServer) {
    let [first, second] = &shown.quiet.vms[..] else { panic!("{:?}", shown.quiet) };
    assert_contains(first, &["workers_0", "no polls yet", &server.vm_url("workers_0")]);
    assert_contains(second, &["workers_1", "no polls yet", &server.vm_url("workers_1")]);
    assert_contains(
        &shown.quiet.hint,
        &["Start a worker", &format!("--metadata-url {}", server.vm_url("workers_0"))],
    );
    assert_contains(&shown.asked, &["polling: 1 poll"]);

    let scenario = &shown.scenario;
    assert_contains(
        &scenario.scheduled,
        &["Preempt", "Scheduled", "starts in ", "Not approved", "NotBefore", "Withdraw"],
    );
    assert_contains(
        &scenario.started,
        &["Started", "started ", " ago, ends in ", "by workers_1 at ", "End now"],
    );
    assert_eq!(scenario.focused, "events-title", "{scenario:?}");
    assert_eq!(scenario.drawn, ["scheduled", "started", "dot"]);
    assert_contains(&scenario.status, &["Preempt of workers_1 ended."]);
    assert_contains(&shown.eviction.card, &["starts in ", "workers_0"]);
    assert_contains(&shown.eviction.vm, &["Preempt in "]);

    let hostility = &shown.hostility;
    assert_eq!(hostility.description, "<script>document.title='owned'</script><b id=owned>Repair</b>");
    assert_eq!((hostility.elements, hostility.title.as_str()), (0, "(1) Mock metadata service"));

    let [by_time, by_number] = &shown.faulty.standing[..] else { panic!("{:?}", shown.faulty) };
    assert_contains(by_time, &["410", "requests for events of all VMs: until "]);
    assert_contains(by_number, &["hang", "2 more"]);
    assert_contains(&shown.faulty.refused, &["Failed: ", "\"soon\" is not a number and a unit"]);
    assert_contains(
        &shown.faulty.away,
        &["No answer: the mock does not answer.", "The page shows the state at "],
    );
    assert_eq!(shown.other_site, [403, 403]);
    assert_eq!(shown.polled_unseen, 0);
    check_sets(&shown.sets, server);

    let lines: Vec<_> = shown.lines.iter().map(String::as_str).rev().collect();
    assert_eq!(
        lines,
        [
            "workers_0 added",
            "workers_1 added",
            "Scenario preempt started for workers_1",
            "Preempt for workers_1 announced",
            "workers_1 approved Preempt",
            "Preempt of workers_1 started",
            "Preempt of workers_1 ended",
            "Preempt for workers_0 announced",
            "Preempt for workers_0 withdrawn",
            "Reboot for <img src=x onerror=\"document.title='owned'\">, workers_0 announced",
            "Fault added: 410 for events",
            "Fault added: hang for events",
        ]
    );
}

fn check_sets(sets: &Sets, server: &MetadataServer) {
    assert_eq!((sets.vms.as_slice(), sets.more.as_str()), (&["spare_7".to_owned()][..], "1 VM of 14"));
    let command = format!("reprieve metadata vm add spot-0 --url {}", server.url());
    assert_eq!(
        (sets.cards, sets.hint.as_str()),
        (0, format!("There are no VMs. Add one: {command}").as_str())
    );
}

/// Checks that the mock's state matches the page's texts.
fn check_state(server: &MetadataServer) {
    let state = server.state();
    let of = |vm: &str| {
        let evicts = |event: &&EventState| event.event_type == "Preempt" && event.vms == [vm];
        state.events.iter().find(evicts).unwrap_or_else(|| panic!("{vm} was not evicted: {state:#?}"))
    };
    let run = of("workers_1");
    assert_eq!(run.status, Status::Completed);
    assert!(matches!(&run.approvals[..], [Approval { vm, .. }] if vm == "workers_1"), "{run:?}");
    assert_eq!(of("workers_0").status, Status::Withdrawn);
    assert_eq!(state.speed.get(), 2);
    let faults: Vec<_> = state.faults.iter().map(|fault| fault.kind.as_str()).collect();
    assert_eq!(faults, ["410"]);
    let running: Vec<_> =
        state.running.iter().map(|run| (run.scenario.as_str(), run.target.as_str())).collect();
    assert_eq!(running, [("rebalance-then-preempt", "workers_1")]);
}
