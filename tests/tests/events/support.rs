//! Shared by these tests: VMs with events, and real workers on them.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use reprieve_azure::scheduled_events::document::EventType;
use reprieve_core::JobId;
use reprieve_core::clock::unix_millis;
use reprieve_core::record::Place;
use reprieve_sim::metadata::{Config, EventPlan, EventState, MetadataServer, Span, Which};
use reprieve_tests::{Line, Sandbox, Walked, Worker, until};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep};

/// The time limit of an undisturbed operation, on a machine that may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How long a test checks that nothing happens. A worker sees a change within a second, and acts at
/// once.
pub(crate) const QUIET: Duration = Duration::from_millis(1_500);

/// The default flags of every worker here. Its drains are quick, and only a notice makes it save.
const FLAGS: [(&str, &str); 3] = [("--concurrency", "2"), ("--budget", "1s"), ("--checkpoint-every", "24h")];

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A job with this number of steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walk {
    pub(crate) steps: u64,
    pub(crate) each_ms: u64,
    /// Whether it estimates its duration.
    pub(crate) tells: bool,
}

/// A walk of steps that take 50 ms, without an estimate.
pub(crate) const fn walk(steps: u64) -> Walk {
    Walk { steps, each_ms: 50, tells: false }
}

/// A walk that is longer than any test.
pub(crate) const ENDLESS: Walk = walk(100_000);

/// The approvals of an event that starts by itself.
pub(crate) const NO_APPROVERS: [&str; 0] = [];

/// The VMs of a set, and a queue.
#[derive(Debug)]
pub(crate) struct Set {
    pub(crate) sandbox: Sandbox,
    pub(crate) mock: MetadataServer,
}

/// An event of this type for these VMs, with this notice.
pub(crate) fn event(event_type: EventType, vms: &[&str], notice: Duration) -> EventPlan {
    EventPlan { notice: Some(Span(notice)), ..EventPlan::new(event_type, vms.iter().copied()) }
}

/// The same by a user.
pub(crate) fn by_a_user(plan: EventPlan) -> EventPlan {
    EventPlan { source: Some("User".to_owned()), ..plan }
}

/// A freeze of `vm` with this announced duration in seconds, or an unknown one.
pub(crate) fn freeze(vm: &str, seconds: Option<u64>, notice: Duration) -> EventPlan {
    EventPlan {
        duration: seconds.map(|seconds| Span(secs(seconds))),
        // Until the test completes it.
        started_for: Some(Span(Duration::from_hours(1))),
        ..event(EventType::Freeze, &[vm], notice)
    }
}

impl Set {
    /// Starts VMs with these names.
    pub(crate) async fn of(vms: &[&str]) -> Self {
        // A started event lasts until the test completes it.
        let config = Config { started_for: Duration::from_hours(1), ..Config::with_vms(vms.iter().copied()) };
        Self { sandbox: Sandbox::new().await, mock: MetadataServer::start(config).await.expect("a mock") }
    }

    /// Starts a worker on the VM called `vm`.
    pub(crate) fn worker(&self, vm: &str, flags: &[&str]) -> Worker {
        let url = self.mock.vm_url(vm);
        let defaults = FLAGS.iter().filter(|(flag, _)| !flags.contains(flag));
        let defaults = defaults.flat_map(|(flag, value)| [*flag, *value]);
        let arguments = ["--metadata-url", &url].into_iter().chain(defaults).chain(flags.iter().copied());
        Worker::start(&self.sandbox, Path::new(env!("CARGO_BIN_EXE_test-jobs")), arguments)
    }

    /// Enqueues a walk.
    pub(crate) async fn enqueue(&self, Walk { steps, each_ms, tells }: Walk) -> JobId {
        let journal = self.sandbox.journal();
        let args = json!({"steps": steps, "each_ms": each_ms, "journal": journal.path(), "tells": tells});
        self.sandbox.enqueue("walk", [args]).await.remove(0)
    }

    /// Returns the steps of `job` that process `pid` began, in order.
    pub(crate) fn steps_by(&self, job: &JobId, pid: u32) -> Vec<u64> {
        let steps = self.sandbox.journal().read().into_iter();
        steps.filter(|one| one.job == job.as_str() && one.pid == pid).map(|one| one.step).collect()
    }

    /// Waits until `worker` has begun this number of steps of `job`.
    pub(crate) async fn stepped(&self, job: &JobId, worker: &Worker, steps: usize) {
        let begun = async || (self.steps_by(job, worker.pid()).len() >= steps).then_some(());
        until(&format!("{steps} steps are begun"), PATIENCE, begun).await;
    }

    /// Waits for the result of `job`.
    pub(crate) async fn done(&self, job: &JobId) -> Walked {
        until("the job is done", PATIENCE, async || self.sandbox.result(job).await).await
    }

    /// Returns the next step of `job` in its newest checkpoint in the store; `None` while there is
    /// none.
    pub(crate) async fn saved(&self, job: &JobId) -> Option<u64> {
        #[derive(Deserialize)]
        struct At {
            next: u64,
        }
        let newest = self.sandbox.record(job).await?.checkpoints.into_iter().next()?;
        let Place::Inside(state) = newest.place else { panic!("where a walk is fits into its record") };
        let At { next } = rmp_serde::from_slice(&state).expect("where a walk is");
        Some(next)
    }

    /// Returns the ends of the held leases, in milliseconds since the Unix epoch.
    pub(crate) fn leases(&self) -> Vec<i64> {
        let store = rusqlite::Connection::open(self.sandbox.path("reprieve.db")).expect("the store's file");
        let mut held = store
            .prepare("SELECT visible_at FROM msg WHERE holder IS NOT NULL AND visible_at > ?1")
            .expect("the store's table");
        let ends = held.query_map([unix_millis()], |row| row.get(0)).expect("leases");
        ends.collect::<Result<_, _>>().expect("leases")
    }

    /// Announces an event and returns its id.
    pub(crate) fn announce(&self, plan: &EventPlan) -> String {
        self.mock.announce_plan(plan).expect("an event").event_id
    }

    /// Returns the event with this id, active or ended.
    pub(crate) fn event(&self, id: &str) -> EventState {
        let events = self.mock.state().events;
        events.into_iter().find(|event| event.event_id == id).expect("an event")
    }

    /// Returns the VMs that approved it, in order.
    pub(crate) fn approvers(&self, id: &str) -> Vec<String> {
        self.event(id).approvals.into_iter().map(|approval| approval.vm).collect()
    }

    /// Waits for its first approval, and returns its time, in milliseconds since the Unix epoch.
    pub(crate) async fn approved(&self, id: &str) -> i64 {
        let approval = async || self.event(id).approvals.into_iter().next();
        until("the event is approved", PATIENCE, approval).await.at_unix_ms
    }

    /// Returns the machines that are marked in the store as ready for the event.
    async fn ready_for(&self, id: &str) -> Vec<String> {
        let prefix = format!("ready/{}/", id.to_ascii_lowercase());
        let marks = self.sandbox.blobs(&prefix).await.into_keys();
        marks.filter_map(|mark| Some(mark.strip_prefix(&prefix)?.split_once('/')?.0.to_owned())).collect()
    }

    /// Waits until each of these machines was marked in the store as ready for the event. A worker
    /// removes its mark when it sees that the event has begun.
    pub(crate) async fn were_ready(&self, id: &str, machines: &[&str]) {
        let mut seen = BTreeSet::new();
        until("all are marked as ready in the store", PATIENCE, async || {
            seen.extend(self.ready_for(id).await);
            machines.iter().all(|machine| seen.contains(*machine)).then_some(())
        })
        .await;
    }

    pub(crate) fn begin(&self, id: &str) {
        self.mock.begin(&Which::EventId(id.to_owned())).expect("an event to begin");
    }

    pub(crate) fn complete(&self, id: &str) {
        self.mock.complete(&Which::EventId(id.to_owned())).expect("an event to complete");
    }

    pub(crate) fn withdraw(&self, id: &str) {
        self.mock.withdraw(&Which::EventId(id.to_owned())).expect("an event to withdraw");
    }
}

/// Waits for a line with this message in the worker's log.
pub(crate) async fn logs(worker: &Worker, message: &str) -> Line {
    until(&format!("the worker logs: {message}"), PATIENCE, async || worker.log().lines(message).pop()).await
}

/// Waits until the worker continues although it has seen that an event has started.
pub(crate) async fn sees_the_start(worker: &Worker) {
    until("the worker sees that the event has started", PATIENCE, async || {
        let heard = worker.log().lines("received a notice; continuing to work");
        heard.iter().any(|line| line.text("phase") == "Started").then_some(())
    })
    .await;
}

/// Waits for the report of a drain.
pub(crate) async fn drained(worker: &Worker) -> Line {
    logs(worker, "drained").await
}

/// Waits until the worker takes jobs.
pub(crate) async fn works(worker: &Worker) {
    until("the worker takes work", PATIENCE, async || (stages(worker).last()? == "start").then_some(()))
        .await;
}

/// Returns every stage of the worker after the first.
pub(crate) fn stages(worker: &Worker) -> Vec<String> {
    worker.log().lines("stage changed").iter().map(|line| line.text("to").to_owned()).collect()
}

/// Checks that `condition` holds for as long as `time`.
pub(crate) async fn stays(what: &str, time: Duration, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        assert!(condition(), "no longer so: {what}");
        sleep(Duration::from_millis(50)).await;
    }
}
