//! What people look at, looked at in a real browser: wide and narrow, in light and dark. Screenshots stay in
//! `target/artefacts`.
//!
//! Needs Node.js, Chromium and `npm ci --prefix tests/browser`. Without them nothing is looked at and the test says so,
//! unless `REPRIEVE_TESTS_NEED_BROWSER` is 1: then it fails.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use reprieve_tests::binary;
use serde::Deserialize;

/// What the scripts say they saw.
#[derive(Debug, Deserialize)]
struct Seen {
    views: Vec<View>,
}

#[derive(Debug, Deserialize)]
struct View {
    name: String,
    title: String,
    lang: String,
    images: usize,
    screenshot: PathBuf,
    faults: Vec<String>,
    inspected: Report,
}

/// What is on the demo's report.
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

/// What `demo --json` says.
#[derive(Debug, Deserialize)]
struct Summary {
    jobs: usize,
    evictions: usize,
    kills: usize,
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("browser")
}

/// What is not there of all that is needed to look, and how to get it.
fn missing() -> Option<&'static str> {
    let node = Command::new("node").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !node.is_ok_and(|status| status.success()) {
        return Some("there is no Node.js; install version 20 or later");
    }
    if !Path::new("/usr/bin/chromium").exists() {
        return Some("there is no /usr/bin/chromium; on Debian: apt-get install chromium fonts-dejavu-core");
    }
    if !scripts().join("node_modules/playwright-core").exists() {
        return Some("the scripts' packages are not there; run `npm ci --prefix tests/browser`");
    }
    None
}

/// Why a test can't look at anything; `None` when it can.
///
/// # Panics
/// When it must be able to.
fn blind() -> Option<&'static str> {
    let missing = missing()?;
    let needed = std::env::var_os("REPRIEVE_TESTS_NEED_BROWSER").is_some_and(|needed| needed == "1");
    assert!(!needed, "REPRIEVE_TESTS_NEED_BROWSER is 1, but {missing}");
    Some(missing)
}

/// Runs `script` with `arguments`; the screenshots go where they outlive the test.
fn look(script: &str, page: &Path) -> Seen {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory");
    let looked = Command::new("node")
        .arg(scripts().join(script))
        .arg(page)
        .arg(target.join("artefacts"))
        .stderr(Stdio::inherit())
        .output()
        .expect("node, which was there a moment ago");
    let said = String::from_utf8_lossy(&looked.stdout);
    serde_json::from_str(&said)
        .unwrap_or_else(|error| panic!("{script}: {}: {error} in {said:?}", looked.status))
}

/// Runs a small demo in `directory`.
fn demo(directory: &Path) -> Summary {
    let ran = Command::new(binary("reprieve-cli", "reprieve"))
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
    let told = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{}: {told}", ran.status);
    let said = String::from_utf8_lossy(&ran.stdout);
    let last = said.lines().next_back().expect("a line of JSON");
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error} in {last:?}"))
}

#[test]
fn the_demo_s_report_reads_well_wide_and_narrow_in_light_and_dark() {
    if let Some(missing) = blind() {
        println!("NOT LOOKED AT IN A BROWSER: {missing}");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let demo = demo(&directory.path().join("demo"));
    let seen = look("report.mjs", &directory.path().join("demo/report.html"));

    assert_eq!(seen.views.len(), 4);
    for View { name, title, lang, images, screenshot, faults, inspected } in seen.views {
        assert!(faults.is_empty(), "{name}: {faults:#?}");
        assert!(screenshot.is_file(), "{name}: {} is not there", screenshot.display());
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
        // Whoever is struck holds a job, which somebody else then goes on with.
        assert!(bars >= demo.jobs + demo.kills + dots, "{name}: {bars} bars, {dots} dots");
    }
}
