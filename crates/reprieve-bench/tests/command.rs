//! Tests of the benchmarks: the shortest section runs with real workers, and the exit code shows
//! the result.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

fn bench(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_reprieve-bench"))
        .args(["--quick", "--no-peers", "--only", "recovery", "--dir"])
        .arg(directory.join("bench"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("the benchmarks run")
}

#[test]
fn a_run_is_kept_and_a_worse_one_fails() {
    let directory = tempfile::tempdir().unwrap();
    let first = bench(directory.path(), &["--json", "first.json", "--markdown", "first.md"]);
    assert!(first.status.success(), "{first:?}");
    let file = directory.path().join("first.json");
    let mut report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!((&report["quick"], &report["not_measured"]), (&true.into(), &json!([])), "{report}");
    let recovered = &mut report["measures"][0];
    assert_eq!(recovered["goal"], json!({"at_most": 60_000.0, "of": "worst", "met": true}), "{recovered}");
    assert!(recovered["median"].as_f64().unwrap() > 0.0, "{recovered}");
    let tables = std::fs::read_to_string(directory.path().join("first.md")).unwrap();
    assert!(tables.contains("### recovery"), "{tables}");

    // As if it had taken no time before.
    for figure in ["median", "min", "max"] {
        recovered[figure] = json!(1e-9);
    }
    std::fs::write(&file, report.to_string()).unwrap();
    let second = bench(directory.path(), &["--compare", "first.json"]);
    assert_eq!(second.status.code(), Some(1), "{second:?}");
    let shown = String::from_utf8_lossy(&second.stdout);
    assert_eq!(shown.lines().filter(|line| line.ends_with("REGRESSED")).count(), 1, "{shown}");
}

#[test]
fn wrong_usage_is_reported_before_anything_is_measured() {
    let directory = tempfile::tempdir().unwrap();
    for wrong in [&["--compare", "nowhere.json"][..], &["--rounds", "0"], &["--only", "speed"]] {
        let refused = bench(directory.path(), wrong);
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}: {refused:?}");
        assert!(refused.stdout.is_empty() && !refused.stderr.is_empty(), "{wrong:?}: {refused:?}");
    }
    assert!(!directory.path().join("bench").exists());
}
