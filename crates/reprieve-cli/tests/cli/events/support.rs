//! A mock with two VMs, and a watch of the first one's events. Its output is read as it comes.

use std::time::Duration;

use reprieve_azure::scheduled_events::document::{EventStatus, EventType};
use reprieve_sim::metadata::{Announcement, Config, MetadataServer};
use reprieve_testkit::{Lines, Process};

use crate::support::{LONG, Place, Ran, until};

pub(super) const ME: &str = "a_0";
pub(super) const NEIGHBOUR: &str = "a_1";

/// Longer than any test takes.
pub(super) const HOUR: Duration = Duration::from_secs(3_600);

/// A place, and a mock that keeps started events for `started_for`.
pub(super) async fn scene(started_for: Duration) -> (Place, MetadataServer) {
    let config = Config { started_for, ..Config::with_vms([ME, NEIGHBOUR]) };
    (Place::new(), MetadataServer::start(config).await.expect("a mock"))
}

/// Announces an event in an hour, or a started one, and returns its id.
pub(super) fn announce(
    server: &MetadataServer,
    event_type: EventType,
    vms: &[&str],
    notice: Option<Duration>,
) -> String {
    let announcement = Announcement::new(event_type, vms.iter().copied(), notice);
    server.announce(announcement).expect("an event").event_id
}

/// Returns whether the event has started; `None` when it is not in the document.
pub(super) fn has_begun(server: &MetadataServer, id: &str) -> Option<bool> {
    let document = server.state().document;
    let event = document.events.into_iter().find(|event| event.event_id == id)?;
    Some(event.event_status == EventStatus::Started)
}

/// Runs `reprieve events …` to its end, while the mock runs.
pub(super) async fn run(place: &Place, url: &str, args: &[&str]) -> Ran {
    let mut command = place.command(&[&["events"], args, &["--metadata-url", url]].concat());
    tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs").into()
}

/// A running `reprieve events watch`, killed when it is dropped.
pub(super) struct Watch {
    pub(super) process: Process,
    out: Lines,
    err: Lines,
}

impl Watch {
    /// Starts the watch, and waits until it logs that it watches.
    pub(super) async fn of(place: &Place, url: &str, args: &[&str]) -> Self {
        let watch = Self::started(place, &[args, &["--metadata-url", url]].concat());
        watch.prints("watching the events of ").await;
        watch
    }

    pub(super) fn started(place: &Place, args: &[&str]) -> Self {
        let mut command = place.command(&[&["events", "watch"], args].concat());
        let mut process = Process::start(command.env("TZ", "UTC"));
        let (out, err) = (Lines::of(process.stdout()), Lines::of(process.stderr()));
        Self { process, out, err }
    }

    /// Waits for the first `count` lines of stdout.
    pub(super) async fn lines(&self, count: usize) -> Vec<String> {
        let there = || {
            let out = self.out.all();
            (out.len() >= count).then_some(out)
        };
        until(&format!("there are {count} lines, not {:?} {:?}", self.out, self.err), async || there()).await
    }

    /// Waits for the first `count` lines of stdout, as JSON.
    pub(super) async fn json(&self, count: usize) -> Vec<serde_json::Value> {
        let lines = self.lines(count).await;
        lines.iter().map(|line| serde_json::from_str(line).expect("a JSON object per line")).collect()
    }

    /// Waits for the first line of stderr that contains `words`.
    pub(super) async fn prints(&self, words: &str) -> String {
        until(&format!("stderr has {words:?}"), async || self.err.find(|line| line.contains(words))).await
    }

    /// Returns all of stderr so far.
    pub(super) fn output(&self) -> String {
        self.err.all().join("\n")
    }

    /// Waits for its end, and returns the exit code.
    #[cfg(unix)]
    pub(super) async fn code(&mut self) -> Option<i32> {
        self.process.ended(LONG).await.code()
    }
}
