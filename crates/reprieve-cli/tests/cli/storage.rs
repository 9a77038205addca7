//! `reprieve storage`.

use std::io::{BufRead, BufReader};

use reprieve_testkit::Process;
use serde_json::{Value, json};

use crate::support::{LONG, Place};

/// A served double.
struct Double {
    process: Process,
    served: Value,
}

impl Double {
    fn serve(place: &Place) -> Self {
        let ports = ["--blob-port", "0", "--queue-port", "0", "--json"];
        let mut process = place.start(&[&["storage", "serve"], &ports[..]].concat());
        let mut line = String::new();
        BufReader::new(process.stdout()).read_line(&mut line).expect("a line");
        Self { process, served: serde_json::from_str(&line).expect("JSON") }
    }

    fn queue_url(&self) -> &str {
        self.served["queue_url"].as_str().expect("a URL")
    }
}

#[test]
fn help_explains_every_command() {
    let help = |command: &[&str]| Place::new().succeeds(&[&["storage"], command, &["--help"]].concat());
    insta::assert_snapshot!("storage", help(&[]));
    insta::assert_snapshot!("storage_serve", help(&["serve"]));
    insta::assert_snapshot!("storage_fault", help(&["fault"]));
    insta::assert_snapshot!("storage_counts", help(&["counts"]));
}

#[test]
fn a_served_double_prints_its_address() {
    let double = Double::serve(&Place::new());
    let Value::String(connection) = &double.served["connection_string"] else { panic!("{}", double.served) };
    assert!(connection.contains("AccountName=devstoreaccount1;AccountKey="), "{connection}");
    for (part, url) in [("QueueEndpoint", "queue_url"), ("BlobEndpoint", "blob_url")] {
        let url = double.served[url].as_str().expect("a URL");
        assert!(connection.contains(&format!(";{part}={url};")), "{connection}");
        assert!(url.ends_with("/devstoreaccount1"), "{url}");
    }
}

#[test]
fn faults_and_counts_are_set_and_shown() {
    let place = Place::new();
    let double = Double::serve(&place);
    let storage =
        |args: &[&str]| place.succeeds(&[&["storage"], args, &["--url", double.queue_url()]].concat());
    let rule = r#"{"operation":"send","times":2,"action":{"kind":"server-busy","retry_after_seconds":1}}"#;
    let standing: Value = serde_json::from_str(&storage(&["fault", rule, "--json"])).unwrap();
    assert_eq!((&standing[0]["id"], &standing[0]["befell"]), (&json!(1), &json!(0)));
    assert_eq!(standing[0]["rule"]["action"]["kind"], "server-busy");
    let shown = storage(&["fault"]);
    assert!(
        shown.starts_with("ID  MATCHED  INJECTED  RULE\n1   0        0         {\"operation\":\"send\""),
        "{shown}"
    );
    assert_eq!(storage(&["fault", "--clear", "--json"]), "[]\n");

    let empty = "OPERATION  REQUESTS  ANSWERED\ntotal      0\n";
    assert_eq!(storage(&["counts", "--reset"]), empty);
    assert_eq!(storage(&["counts", "--json"]), "{\"operations\":{}}\n");
}

#[test]
fn a_wrong_rule_changes_nothing() {
    let place = Place::new();
    let double = Double::serve(&place);
    let at = ["--url", double.queue_url()];
    place.succeeds(&[&["storage", "fault", r#"{"action":{"kind":"reset"}}"#], &at[..]].concat());
    let wrong = [&["storage", "fault", "--clear", r#"{"action":{"kind":"explode"}}"#], &at[..]].concat();
    let ran = place.run(&wrong);
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""));
    assert!(ran.err.contains("unknown variant `explode`") && ran.err.contains("fault --help"), "{}", ran.err);
    let standing = place.succeeds(&[&["storage", "fault", "--json"], &at[..]].concat());
    assert!(standing.contains("reset"), "{standing}");
}

#[cfg(unix)]
#[test]
fn a_signal_ends_the_double_with_0() {
    use reprieve_testkit::Signal;
    let mut double = Double::serve(&Place::new());
    double.process.signal(Signal::INT);
    assert_eq!(double.process.wait(LONG).code(), Some(0));
}

#[test]
fn a_double_that_is_not_there_or_cannot_be_is_an_error() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ran = place.run(&["storage", "serve", "--blob-port", "0", "--queue-port", &port]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    assert!(ran.err.contains("choose another port"), "{}", ran.err);
    drop(taken);
    let ran = place.run(&["storage", "counts", "--url", &format!("http://127.0.0.1:{port}")]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("start one with `reprieve storage serve`"), "{}", ran.err);
    assert_eq!(place.run(&["storage", "counts", "--url", "nowhere"]).code, Some(2));
}
