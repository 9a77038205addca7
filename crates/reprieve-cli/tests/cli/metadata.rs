//! `reprieve metadata`.

use std::io::{BufRead, BufReader};
use std::process::Child;

use serde_json::Value;

use crate::support::Place;

/// A served mock and the URLs of its VMs.
struct Mock {
    child: Child,
    urls: Vec<(String, String)>,
}

impl Mock {
    fn serve(place: &Place) -> Self {
        let mut child = place
            .command(&["metadata", "serve", "--port", "0", "--vms", "a_0,a_1"])
            .spawn()
            .expect("it runs");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let vm = |line: String| line.split_once("  ").map(|(vm, url)| (vm.to_owned(), url.to_owned()));
        let urls =
            lines.map_while(Result::ok).take(2).map(|line| vm(line).expect("a VM and its URL")).collect();
        Self { child, urls }
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        // Both fail for one that has ended, which is as good.
        let _ended = (self.child.kill(), self.child.wait());
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
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.err.starts_with("error: failed to evict a VM: "), "{}", unknown.err);
    assert_eq!(evict(&["--vm", "a_0", "--withdraw", "--notice", "1s"]).code, Some(2));
}

#[cfg(unix)]
#[test]
fn a_signal_ends_the_mock_with_0() {
    use rustix::process::{Pid, Signal, kill_process};
    for signal in [Signal::INT, Signal::TERM] {
        let mut mock = Mock::serve(&Place::new());
        let pid = Pid::from_raw(mock.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        assert_eq!(mock.child.wait().unwrap().code(), Some(0));
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
    let ran = place.run(&["metadata", "serve", "--port", "0", "--vms", "no spaces"]);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
}
