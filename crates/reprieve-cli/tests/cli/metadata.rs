//! `reprieve metadata`.

use std::io::{BufRead, BufReader};

use reprieve_testkit::Process;
use serde_json::{Value, json};

use crate::support::{LONG, Place, Ran};

/// A served mock and the URLs of its VMs.
struct Mock {
    process: Process,
    urls: Vec<(String, String)>,
}

impl Mock {
    fn serve(place: &Place) -> Self {
        Self::serve_with(place, &["--port", "0", "--vms", "a_0,a_1"])
    }

    /// Starts a mock with two VMs.
    fn serve_with(place: &Place, args: &[&str]) -> Self {
        let mut process = place.start(&[&["metadata", "serve"], args].concat());
        let lines = BufReader::new(process.stdout()).lines();
        let vm = |line: String| line.split_once("  ").map(|(vm, url)| (vm.to_owned(), url.to_owned()));
        let urls =
            lines.map_while(Result::ok).take(2).map(|line| vm(line).expect("a VM and its URL")).collect();
        Self { process, urls }
    }

    /// Runs a command on it that must succeed, and parses its JSON.
    #[track_caller]
    fn json(&self, place: &Place, args: &[&str]) -> Value {
        let url = &self.urls[0].1;
        let out = place.succeeds(&[&["metadata"], args, &["--json", "--url", url]].concat());
        serde_json::from_str(&out).expect(&out)
    }

    /// Runs a command on it.
    fn run(&self, place: &Place, args: &[&str]) -> Ran {
        place.run(&[&["metadata"], args, &["--url", &self.urls[0].1]].concat())
    }
}

#[test]
fn a_served_mock_evicts_and_withdraws() {
    let place = Place::new();
    let mock = Mock::serve(&place);
    let [(first, url), (second, _)] = &mock.urls[..] else { panic!("{:?}", mock.urls) };
    assert_eq!((first.as_str(), second.as_str()), ("a_0", "a_1"));
    assert!(url.ends_with("/vm/a_0"), "{url}");

    let evict = |more: &[&str]| place.run(&[&["metadata", "evict", "--url", url], more].concat());
    let evicted: Value =
        serde_json::from_str(&evict(&["--vm", "a_1", "--notice", "10m", "--json"]).out).unwrap();
    assert_eq!(evicted["vm"], "a_1");
    let again = evict(&["--vm", "a_1"]);
    assert_eq!(again.code, Some(1), "{}", again.err);
    let withdrawn: Value =
        serde_json::from_str(&evict(&["--vm", "a_1", "--withdraw", "--json"]).out).unwrap();
    assert_eq!(withdrawn["withdrawn"][0], evicted["event_id"]);
    let plain = evict(&["--vm", "a_0", "--notice", "10m"]);
    assert_eq!((plain.code, plain.out.split("  ").nth(1)), (Some(0), Some("a_0")));
    assert_eq!(evict(&["--vm", "a_0", "--withdraw"]).out.trim(), plain.out.split("  ").next().unwrap());

    let unknown = evict(&["--vm", "a_9"]);
    assert_eq!(unknown.code, Some(2), "an invalid name is wrong usage");
    assert!(unknown.err.starts_with("error: failed to evict a VM: "), "{}", unknown.err);
    assert_eq!(evict(&["--vm", "a_0", "--withdraw", "--notice", "1s"]).code, Some(2));
}

#[cfg(unix)]
#[test]
fn a_signal_ends_the_mock_with_0() {
    use reprieve_testkit::Signal;
    for signal in [Signal::INT, Signal::TERM] {
        let mut mock = Mock::serve(&Place::new());
        mock.process.signal(signal);
        assert_eq!(mock.process.wait(LONG).code(), Some(0));
    }
}

#[test]
fn a_mock_that_is_not_there_or_cannot_be_is_an_error() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ran = place.run(&["metadata", "serve", "--port", &port]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    assert!(ran.err.contains("choose another port"), "{}", ran.err);
    drop(taken);
    let ran = place.run(&["metadata", "evict", "--vm", "a_0", "--url", &format!("http://127.0.0.1:{port}")]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("start one with `reprieve metadata serve`"), "{}", ran.err);
    let ran = place.run(&["metadata", "serve", "--listen", "192.0.2.1:8169"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.trim_end().ends_with("choose an address of this machine"), "{}", ran.err);
    for wrong in [
        &["--vms", "no spaces"][..],
        &["--vms", "a,a"],
        &["--vms", "a", "--size", "2"],
        &["--size", "0"],
        &["--speed", "0"],
        &["--started-for", "5"],
    ] {
        let ran = place.run(&[&["metadata", "serve", "--port", "0"], wrong].concat());
        assert_eq!(ran.code, Some(2), "{wrong:?}: {}", ran.err);
    }
    let ran = place.run(&["metadata", "serve", "--port", "0", "--listen", "127.0.0.1:0"]);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
}

#[test]
fn help_explains_every_command() {
    let help = |command: &[&str]| Place::new().succeeds(&[&["metadata"], command, &["--help"]].concat());
    insta::assert_snapshot!("metadata", help(&[]));
    for command in
        ["serve", "evict", "announce", "event", "scenario", "fault", "vm", "speed", "restart", "state"]
    {
        insta::assert_snapshot!(format!("metadata_{command}"), help(&[command]));
    }
}

#[test]
fn each_vm_may_have_a_port_and_the_hint_names_the_address() {
    let place = Place::new();
    let args = ["--listen", "127.0.0.1:0", "--size", "2", "--port-each"];
    let mut mock = Mock::serve_with(&place, &args);
    let [(first, one), (second, other)] = &mock.urls[..] else { panic!("{:?}", mock.urls) };
    assert_eq!((first.as_str(), second.as_str()), ("workers_0", "workers_1"));
    assert!(one != other && one.matches('/').count() == 2, "{one} {other}");
    let mut hint = String::new();
    let mut stderr = BufReader::new(mock.process.stderr());
    stderr.read_line(&mut hint).expect("a line");
    assert!(hint.contains(&format!("evict --url {one} --vm NAME`")), "{hint}");
}

#[test]
fn events_are_announced_begin_and_are_over() {
    let place = Place::new();
    let mock = Mock::serve(&place);
    let announce = [
        "announce",
        "--type",
        "reboot",
        "--vms",
        "@all",
        "--notice",
        "1h",
        "--source",
        "User",
        "--duration",
        "9s",
        "--description",
        "a test",
        "--other-tenants",
    ];
    let event = mock.json(&place, &announce);
    let id = event["EventId"].as_str().expect("an id");
    assert_eq!(event["Resources"], json!(["a_0", "a_1"]));
    assert_eq!((&event["EventSource"], &event["DurationInSeconds"]), (&json!("User"), &json!(9)));
    assert_eq!(mock.json(&place, &["event", "start", id])["event_ids"], json!([id]));
    let again = mock.run(&place, &["event", "start", id]);
    assert_eq!(again.code, Some(1), "{}", again.err);
    mock.json(&place, &["event", "complete", "--vm", "a_1"]);
    let state = mock.json(&place, &["state"]);
    assert_eq!(
        (&state["document"]["Events"], &state["events"][0]["status"]),
        (&json!([]), &json!("completed"))
    );
    let shown = mock.run(&place, &["state"]).out;
    for words in ["VM   POLLS", "a_1  0", "Reboot  completed  a_0,a_1", "WHAT"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }

    let short = mock.run(&place, &["announce", "--type", "Terminate", "--vms", "a_0"]);
    assert_eq!((short.code, short.out.split("  ").nth(1)), (Some(0), Some("Terminate")), "{}", short.err);
    let withdrawn = mock.run(&place, &["event", "withdraw", "--vm", "a_0"]);
    assert_eq!(withdrawn.out.trim_end(), short.out.split("  ").next().expect("an id"));
    for wrong in [
        &["announce", "--type", "Thaw", "--vms", "a_0"][..],
        &["announce", "--type", "Freeze", "--vms", "@nobody"],
        &["announce", "--type", "Freeze", "--vms", "a_0", "--source", "Me"],
        &["announce", "--type", "Freeze", "--vms", "a_0", "--started", "--notice", "5s"],
        &["event", "start", "no-such-event"],
        &["event", "start"],
    ] {
        assert_eq!(mock.run(&place, wrong).code, Some(2), "{wrong:?}");
    }
}

#[test]
fn scenarios_are_listed_shown_and_run() {
    let place = Place::new();
    let mock = Mock::serve_with(&place, &["--port", "0", "--vms", "a_0,a_1", "--speed", "60"]);
    let list = mock.json(&place, &["scenario"]);
    assert_eq!((list.as_array().map(Vec::len), &list[0]["name"]), (Some(10), &json!("live-migration")));
    assert!(mock.run(&place, &["scenario"]).out.contains("\npredicted-failure "));
    let ran = mock.json(&place, &["scenario", "predicted-failure", "--vm", "a_1"]);
    assert_eq!(ran, json!({ "scenario": "predicted-failure", "vm": "a_1" }));
    let state = mock.json(&place, &["state"]);
    let event = &state["events"][0];
    let notice = event["starts_at_unix_ms"].as_i64().zip(event["announced_at_unix_ms"].as_i64());
    assert_eq!(
        notice.map(|(starts, announced)| starts - announced),
        Some(7 * 24 * 60 * 1000),
        "60 times faster"
    );

    let text = mock.run(&place, &["scenario", "preempt", "--show"]).out;
    place.write("mine.toml", text.replace("\"preempt\"", "\"mine\"").replace("30s\"", "1h\""));
    assert_eq!(mock.run(&place, &["scenario", "--file", "mine.toml"]).out, "mine  a_0\n");
    place.write("wrong.toml", text.replace("notice", "notise"));
    for (wrong, expected) in [
        (&["scenario", "nothing"][..], "there is no scenario \"nothing\"; there are: live-migration"),
        (&["scenario", "preempt", "--vm", "a_9"], "there is no VM called \"a_9\""),
        (&["scenario", "--file", "wrong.toml"], "wrong.toml: "),
        (&["scenario", "--file", "absent.toml"], "absent.toml: "),
        (&["scenario", "--vm", "a_0"], "name the scenario"),
    ] {
        let ran = mock.run(&place, wrong);
        assert_eq!(ran.code, Some(2), "{wrong:?}: {}", ran.err);
        assert!(ran.err.contains(expected), "{}", ran.err);
    }
    let ran = place.run(&["metadata", "serve", "--port", "0", "--scenario", "wrong.toml"]);
    assert!(ran.code == Some(2) && ran.err.contains("unknown field `notise`"), "{}", ran.err);
}

#[test]
fn faults_are_added_listed_and_cleared() {
    let place = Place::new();
    let mock = Mock::serve(&place);
    let added = mock.json(&place, &["fault", "410", "--for", "70s", "--vm", "a_1", "--endpoint", "identity"]);
    let fault = &added[0];
    assert_eq!(
        (&fault["kind"], &fault["vm"], &fault["endpoint"]),
        (&json!("410"), &json!("a_1"), &json!("identity"))
    );
    let shown = mock.run(&place, &["fault", "slow", "--after", "2s", "--requests", "3"]).out;
    assert!(shown.contains("slow (2s)  events    all  3"), "{shown}");
    let wrong = mock.run(&place, &["fault", "explode"]);
    assert!(wrong.code == Some(2) && wrong.err.contains("no kind of fault"), "{}", wrong.err);
    assert_eq!(mock.json(&place, &["fault", "--clear"]), json!([]));
}

#[test]
fn the_set_its_speed_and_its_incarnation_are_changed() {
    let place = Place::new();
    let mock = Mock::serve(&place);
    assert_eq!(mock.json(&place, &["vm", "add", "a_2"]), json!({ "vm": "a_2" }));
    assert_eq!(mock.run(&place, &["vm", "add", "a_2"]).code, Some(1));
    assert_eq!(mock.run(&place, &["vm", "remove", "a_0"]).out, "a_0\n");
    assert_eq!(mock.run(&place, &["vm", "remove", "a_0"]).code, Some(2));
    assert_eq!(mock.run(&place, &["speed", "60"]).code, Some(0));
    mock.json(&place, &["evict", "--vm", "a_1", "--notice", "1h"]);
    assert_eq!(mock.run(&place, &["restart"]).code, Some(0));
    let state = mock.json(&place, &["state"]);
    assert_eq!((&state["speed"], &state["document"]["DocumentIncarnation"]), (&json!(60), &json!(1)));
    assert_eq!(state["vms"][1]["name"], "a_2");
    assert_eq!(mock.run(&place, &["speed", "0"]).code, Some(2));
}
