//! A mock with two VMs, and a watch of the first whose lines are read as they come.

use std::time::Duration;

use reprieve_azure::scheduled_events::document::{EventStatus, EventType};
use reprieve_sim::metadata::{Announcement, Config, MetadataServer};
use reprieve_testkit::{Lines, Process};

use crate::support::{LONG, Place, Ran, until};

pub(super) const ME: &str = "a_0";
pub(super) const NEIGHBOUR: &str = "a_1";

/// Longer than any test takes.
pub(super) const HOUR: Duration = Duration::from_secs(3_600);

/// A place, and a mock in which what has begun stays for `started_for`.
pub(super) async fn scene(started_for: Duration) -> (Place, MetadataServer) {
    let config = Config { started_for, ..Config::with_vms([ME, NEIGHBOUR]) };
    (Place::new(), MetadataServer::start(config).await.expect("a mock"))
}

/// Announces an event in an hour, or one that has begun, and returns its id.
pub(super) fn announce(
    server: &MetadataServer,
    event_type: EventType,
    vms: &[&str],
    notice: Option<Duration>,
) -> String {
    let announcement = Announcement::new(event_type, vms.iter().copied(), notice);
    server.announce(announcement).expect("an event").event_id
}

/// Whether the event has begun; `None` when it is not there.
pub(super) fn has_begun(server: &MetadataServer, id: &str) -> Option<bool> {
    let document = server.state().document;
    let event = document.events.into_iter().find(|event| event.event_id == id)?;
    Some(event.event_status == EventStatus::Started)
}

/// Runs `reprieve events …` to its end, while the mock goes on.
pub(super) async fn run(place: &Place, url: &str, args: &[&str]) -> Ran {
    let mut command = place.command(&[&["events"], args, &["--metadata-url", url]].concat());
    tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs").into()
}

/// A running `reprieve events watch`, killed at the latest when it is dropped.
pub(super) struct Watch {
    pub(super) process: Process,
    out: Lines,
    err: Lines,
}

impl Watch {
    /// Begins to watch, and waits until it says that it does.
    pub(super) async fn of(place: &Place, url: &str, args: &[&str]) -> Self {
        let watch = Self::started(place, &[args, &["--metadata-url", url]].concat());
        watch.says("watching the events of ").await;
        watch
    }

    pub(super) fn started(place: &Place, args: &[&str]) -> Self {
        let mut command = place.command(&[&["events", "watch"], args].concat());
        let mut process = Process::start(command.env("TZ", "UTC"));
        let (out, err) = (Lines::of(process.stdout()), Lines::of(process.stderr()));
        Self { process, out, err }
    }

    /// The first `count` lines of stdout, when they are there.
    pub(super) async fn lines(&self, count: usize) -> Vec<String> {
        let there = || {
            let out = self.out.all();
            (out.len() >= count).then_some(out)
        };
        until(&format!("there are {count} lines, not {:?} {:?}", self.out, self.err), async || there()).await
    }

    /// The first `count` lines of stdout as JSON.
    pub(super) async fn json(&self, count: usize) -> Vec<serde_json::Value> {
        let lines = self.lines(count).await;
        lines.iter().map(|line| serde_json::from_str(line).expect("a JSON object per line")).collect()
    }

    /// The first line of stderr with `words` in it, when it is there.
    pub(super) async fn says(&self, words: &str) -> String {
        until(&format!("it says {words:?}"), async || self.err.find(|line| line.contains(words))).await
    }

    /// All that it has said on stderr.
    pub(super) fn said(&self) -> String {
        self.err.all().join("\n")
    }

    /// Its exit code, when it has ended.
    #[cfg(unix)]
    pub(super) async fn code(&mut self) -> Option<i32> {
        self.process.ended(LONG).await.code()
    }
}
