//! `reprieve demo`: real processes, really killed.

use serde_json::Value;

use crate::support::{Place, Ran};

/// A small demo: about fifteen seconds.
const SMALL: [&str; 13] = [
    "demo",
    "--jobs",
    "4",
    "--vms",
    "2",
    "--evictions",
    "1",
    "--kills",
    "1",
    "--notice",
    "2s",
    "--seed",
    "1",
];

#[track_caller]
fn refused(place: &Place, args: &[&str], expected: &str) {
    let ran = place.run(&[&["demo"], args].concat());
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{args:?}: {}", ran.err);
    assert!(ran.err.contains(expected), "{args:?}: {}", ran.err);
}

#[test]
fn a_small_demo_loses_nothing_and_reports_it() {
    let place = Place::new();
    // The caller's settings do not apply.
    place.write("reprieve.toml", "nonsense = ");
    let mut command = place.command(&[&SMALL[..], &["--json"]].concat());
    command.env("REPRIEVE_STORE", "nonsense").env("REPRIEVE_QUEUE", "!").env("REPRIEVE_CONCURRENCY", "0");
    let Ran { code, out, err } = command.output().expect("it runs").into();
    assert_eq!(code, Some(0), "{err}");
    let last = out.lines().last().expect("a line");
    let summary: Value = serde_json::from_str(last).expect("JSON");
    for (what, count) in [
        ("jobs", 4),
        ("completed", 4),
        ("lost", 0),
        ("duplicated", 0),
        ("different", 0),
        ("evictions", 1),
        ("kills", 1),
        ("missed", 0),
        ("left_over", 0),
        ("steps_total", 160),
        ("seed", 1),
    ] {
        assert_eq!(summary[what], count, "{what}: {summary}");
    }
    assert_eq!(summary["output_digest"], summary["reference_digest"], "{summary}");
    // A kill costs at most a second of each of two frames, and the step in progress.
    assert!(summary["steps_redone"].as_u64().is_some_and(|redone| redone <= 14), "{summary}");
    assert!(summary["notice_to_released_ms"]["max"].is_u64(), "{summary}");
    assert!(summary["recovered_after_kill_ms"]["max"].is_u64(), "{summary}");
    assert!(err.contains("eviction announced") && err.contains("is killed without notice"), "{err}");

    let dir = place.path("reprieve-demo");
    for frame in 0..4 {
        let png = std::fs::read(dir.join(format!("frames/{frame:02}.png"))).expect("a frame");
        assert!(png.starts_with(b"\x89PNG"), "frame {frame}");
    }
    let kept: Value = serde_json::from_slice(&std::fs::read(dir.join("summary.json")).unwrap()).unwrap();
    assert_eq!(kept, summary);
    let report = std::fs::read_to_string(dir.join("report.html")).expect("a report");
    assert!(report.ends_with("</html>") || report.trim_end().ends_with("</html>"));
    std::fs::remove_file(place.path("reprieve.toml")).unwrap();
    let status = place.succeeds(&["status", "--store", "sqlite:reprieve-demo/store/reprieve.db"]);
    assert!(status.starts_with("0 jobs"), "{status}");
}

#[test]
fn wrong_numbers_are_refused_before_anything_is_made() {
    let place = Place::new();
    for args in [["--jobs", "0"], ["--jobs", "201"], ["--vms", "0"], ["--vms", "17"], ["--kills", "x"]] {
        refused(&place, &args, "invalid value");
    }
    refused(&place, &["--jobs", "1"], "6 evictions and kills are too many for 1 job; use 2 or fewer");
    refused(&place, &["--notice", "31s"], "is over 30s");
    refused(&place, &["--notice", "5"], "is not a number and a unit");
    assert!(!place.path("reprieve-demo").exists());
}

#[test]
fn an_emulator_that_is_not_there_or_no_emulator_is_refused_before_anything_is_made() {
    let place = Place::new();
    let refused = |store: &str, variable: &str, expected: &str| {
        let mut command = place.command(&["demo", "--store", store]);
        let ran = Ran::from(command.env("REPRIEVE_STORE", variable).output().expect("it runs"));
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{store}: {}", ran.err);
        assert!(ran.err.contains(expected) && ran.err.lines().count() == 1, "{store}: {}", ran.err);
        assert!(!ran.err.contains("aHVud"), "{}", ran.err);
    };
    // A port without a listener.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let free = listener.local_addr().expect("an address");
    drop(listener);
    let gone = format!(
        "AccountName=devstoreaccount1;AccountKey=aHVudGVyMg==;BlobEndpoint=http://{free}/devstoreaccount1;\
         QueueEndpoint=http://{free}/devstoreaccount1"
    );
    refused(
        "azurite",
        &gone,
        &format!("nothing listens at {free}; start Azurite with `cargo xtask azurite`"),
    );
    let real = "AccountName=production;AccountKey=aHVudGVyMg==";
    refused("azurite", real, "REPRIEVE_STORE is azure:production, but a demo never runs on a real account");
    refused("azure:production", "", "a demo never runs on a real account");
    refused(real, "", "a demo never runs on a real account");
    assert!(!place.path("reprieve-demo").exists());
}

#[test]
fn a_directory_with_other_things_in_it_is_refused_and_left_alone() {
    let place = Place::new();
    place.write("mine.txt", "mine");
    refused(&place, &["--dir", "."], "is not empty and holds no earlier demo; give another --dir");
    let names: Vec<_> =
        std::fs::read_dir(place.path(".")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["mine.txt"]);
}

/// The demo's processes, where they can be observed.
#[cfg(target_os = "linux")]
mod processes {
    use std::path::Path;

    use reprieve_testkit::{Process, Signal, eventually};

    use super::*;
    use crate::support::LONG;

    /// A running demo.
    struct Demo {
        place: Place,
        process: Process,
    }

    impl Demo {
        fn start() -> Self {
            Self::start_in(Place::new())
        }

        fn start_in(place: Place) -> Self {
            let process = place.start(&SMALL);
            let demo = Self { place, process };
            eventually("both workers work", LONG, || {
                demo.journal_lines() > 4 && workers(&demo.place).len() == 2
            });
            demo
        }

        fn kill(&mut self) {
            self.process.kill();
            eventually("the workers are gone", LONG, || workers(&self.place).is_empty());
        }

        fn journal_lines(&self) -> usize {
            let journal = std::fs::read_to_string(self.place.path("reprieve-demo/journal"));
            journal.map_or(0, |text| text.lines().count())
        }
    }

    /// Returns the directories of the worker processes of this demo.
    fn workers(place: &Place) -> Vec<u32> {
        let Ok(dir) = std::fs::canonicalize(place.path("reprieve-demo")) else { return Vec::new() };
        let runs_there = |pid: &u32| {
            let process = Path::new("/proc").join(pid.to_string());
            std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == dir)
        };
        let processes = std::fs::read_dir("/proc").expect("processes").flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(runs_there).collect()
    }

    #[test]
    fn ctrl_c_ends_all_processes_and_prints_where_the_files_are() {
        let demo = Demo::start();
        demo.process.signal(Signal::INT);
        let Demo { place, process } = demo;
        let ran = Ran::from(process.output());
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{}", ran.err);
        assert!(ran.err.ends_with("SIGINT stopped it; its files are in reprieve-demo\n"), "{}", ran.err);
        assert_eq!(workers(&place), [0; 0], "the workers ended before the demo");
    }

    #[test]
    fn no_worker_outlives_a_demo_that_is_killed() {
        Demo::start().kill();
    }

    #[test]
    fn two_demos_do_not_share_a_directory_and_the_next_replaces_the_last() {
        let mut first = Demo::start();
        refused(&first.place, &[], "another demo runs in reprieve-demo");
        first.kill();
        std::fs::write(first.place.path("reprieve-demo/report.html"), "old").unwrap();
        let mut second = Demo::start_in(first.place);
        assert!(!second.place.path("reprieve-demo/report.html").exists());
        second.kill();
    }
}
