//! `--help`: on stdout, with exit code 0, and as in the snapshots.

use crate::support::Place;

#[track_caller]
fn help(command: &[&str]) -> String {
    Place::new().succeeds(&[command, &["--help"]].concat())
}

#[test]
fn help_explains_every_command() {
    insta::assert_snapshot!("reprieve", help(&[]));
    insta::assert_snapshot!("demo", help(&["demo"]));
    insta::assert_snapshot!("enqueue", help(&["enqueue"]));
    insta::assert_snapshot!("status", help(&["status"]));
    insta::assert_snapshot!("clean", help(&["clean"]));
    insta::assert_snapshot!("cancel", help(&["cancel"]));
    insta::assert_snapshot!("redrive", help(&["redrive"]));
    insta::assert_snapshot!("report", help(&["report"]));
}
