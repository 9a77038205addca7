//! The demo's report is readable.

use std::path::Path;
use std::process::Command;

use reprieve_tests::binary;
use serde::Deserialize;

use crate::support::{View, can_look, look};

/// The script's observations.
#[derive(Debug, Deserialize)]
struct Seen {
    views: Vec<Looked>,
}

#[derive(Debug, Deserialize)]
struct Looked {
    #[serde(flatten)]
    view: View,
    inspected: Report,
}

/// The contents of the demo's report.
#[derive(Debug, Deserialize)]
struct Report {
    headline: String,
    figures: Vec<String>,
    lanes: Vec<Lane>,
    bars: usize,
    dots: usize,
}

#[derive(Debug, Deserialize)]
struct Lane {
    vm: String,
    width: f64,
    height: f64,
}

/// The output of `demo --json`.
#[derive(Debug, Deserialize)]
struct Summary {
    jobs: usize,
    evictions: usize,
    kills: usize,
}

/// Runs a small demo in `directory`.
fn demo(directory: &Path) -> Summary {
    let ran = Command::new(binary("reprieve"))
        .args([
            "demo",
            "--jobs",
            "4",
            "--evictions",
            "2",
            "--kills",
            "1",
            "--notice",
            "1s",
            "--seed",
            "1",
            "--json",
        ])
        .arg("--dir")
        .arg(directory)
        .output()
        .expect("the demo");
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{}: {stderr}", ran.status);
    let stdout = String::from_utf8_lossy(&ran.stdout);
    let last = stdout.lines().next_back().expect("a line of JSON");
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error} in {last:?}"))
}

#[test]
fn the_demo_s_report_reads_well_wide_and_narrow_in_light_and_dark() {
    if !can_look() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let demo = demo(&directory.path().join("demo"));
    let seen: Seen = look("report.mjs", directory.path().join("demo/report.html"));

    assert_eq!(seen.views.len(), 4);
    for Looked { view, inspected } in seen.views {
        view.check();
        let View { name, title, lang, images, .. } = view;
        assert_eq!((lang.as_str(), images), ("en", demo.jobs), "{name}");

        let Report { headline, figures, lanes, bars, dots } = inspected;
        let verdict =
            format!("{} frames, {} evictions, {} kill: nothing lost", demo.jobs, demo.evictions, demo.kills);
        assert!(
            headline.starts_with(&verdict) && title.contains(&verdict),
            "{name}: {title:?}, {headline:?}"
        );
        assert_eq!(figures.first(), Some(&format!("{0} of {0}", demo.jobs)), "{name}");
        assert_eq!(lanes.len(), 3 + demo.evictions + demo.kills, "{name}: {lanes:?}");
        for lane in &lanes {
            assert!(
                lane.vm.starts_with("vm-") && lane.width >= 3.0 && lane.height >= 3.0,
                "{name}: {lane:?}"
            );
        }
        // Each stopped VM holds a job, which another VM then resumes.
        assert!(bars >= demo.jobs + demo.kills + dots, "{name}: {bars} bars, {dots} dots");
    }
}
