//! The protocol of the [record](crate::record) on a whole store: the histories that broke its first
//! draft, each run by a real worker on the store under test.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::Fixture;
use crate::checkpoint::CheckpointEvery;
use crate::child_ids::GivenBefore;
use crate::clock::unix_millis;
use crate::codec::encode_state;
use crate::context::JobContext;
use crate::ids::{BlobName, Fence, JobId, MessageId, PayloadName, WorkerId, Writer};
use crate::job::{Job, JobError, Step};
use crate::names::result_blob;
use crate::ports::{DeadLetter, NewMessage, Payload, RecordWrite, Release, Store};
use crate::record::{
    Account, Checkpoint, Company, ContentHash, End, EndKind, INLINE_BYTES_MAX, Owner, Place, Record, Status,
    open, seal,
};
use crate::worker::{Settings, Stopped, Stopper, Worker, stopping};

/// The job of all histories.
const JOB: &str = "history";

/// The number of its steps.
const STEPS: u32 = 4;

/// The time limit for a required event, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a test waits for an event that must not happen.
const QUIET: Duration = Duration::from_secs(2);

/// A job of four steps with a large state. It records the steps that it runs.
#[derive(Debug, Clone, Default)]
struct History {
    /// The steps that were run.
    ran: Arc<Mutex<Vec<u32>>>,
    step_ms: u64,
}

#[async_trait]
impl Job for History {
    const KIND: &'static str = "history";
    type Args = ();
    type Checkpoint = (u32, String);
    type Output = u32;

    fn begin(&self, (): &()) -> (u32, String) {
        state(0)
    }

    async fn step(
        &self,
        _: &JobContext,
        (): &(),
        (at, _): (u32, String),
    ) -> Result<Step<(u32, String), u32>, JobError> {
        sleep(Duration::from_millis(self.step_ms)).await;
        self.ran.lock().unwrap_or_else(PoisonError::into_inner).push(at);
        Ok(if at + 1 == STEPS { Step::Done(STEPS) } else { Step::Continue(state(at + 1)) })
    }
}

impl History {
    fn ran(&self) -> Vec<u32> {
        self.ran.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The job's state at `step`, larger than the limit for states inside a record.
fn state(step: u32) -> (u32, String) {
    (step, "x".repeat(INLINE_BYTES_MAX + 1))
}

fn job() -> JobId {
    JobId::parse(JOB).expect("the suite's job id is valid")
}

/// The body of a message of the job, with a generation and ends.
fn body(generation: u32, ends: &[End]) -> Vec<u8> {
    let mut body =
        json!({"specversion": "1.0", "id": JOB, "source": "reprieve", "type": History::KIND, "data": null});
    if generation > 0 {
        body["reprievegeneration"] = json!(generation);
    }
    if !ends.is_empty() {
        body["reprieveends"] = json!(serde_json::to_string(ends).expect("ends have a JSON form"));
    }
    body.to_string().into_bytes()
}

async fn send(store: &Store, generation: u32) -> MessageId {
    let message = NewMessage { body: body(generation, &[]), delay: Duration::ZERO };
    store.queue.send(vec![message]).await.expect("sends").remove(0)
}

/// Receives and releases the one message `times` times; the last release stores `last` as its body.
async fn pass(store: &Store, times: u32, last: Option<Vec<u8>>) {
    for time in 1..=times {
        let held = store.queue.receive(1, Duration::from_secs(60)).await.expect("receives").remove(0);
        let release = Release {
            body: last.clone().filter(|_| time == times),
            delay: Duration::ZERO,
            ..Release::default()
        };
        store.queue.release(&held.receipt, &release).await.expect("releases");
    }
}

/// A record written by delivery `count` of `message`, of a worker that is gone.
fn record(message: &MessageId, count: u32, generation: u32, status: Status) -> Record {
    let (message, worker) = (message.clone(), WorkerId::new("gone"));
    let owner = Owner { message, count, worker, nonce: "gone-1".to_owned(), company: Company::Shared };
    Record {
        job: job(),
        kind: History::KIND.to_owned(),
        generation,
        owner,
        status,
        account: Account::default(),
        history: Vec::new(),
        sequence: 1,
        checkpoints: Vec::new(),
        careful_steps: 0,
        went_back: 0,
        ran_ms: 0,
        changed_unix_ms: unix_millis(),
        abandoned_after_ms: 600_000,
        expires_unix_ms: None,
        escalated: None,
        args_sha256: None,
        enqueued_unix_ms: 0,
    }
}

/// Writes a record that names a payload with the job's state at `step`.
async fn put(store: &Store, mut record: Record, step: Option<u32>) {
    let payload = step.map(|step| {
        let bytes = encode_state(&state(step)).expect("a state can be encoded");
        let owner = &record.owner;
        let name = PayloadName::new(record.generation, &owner.message, owner.count, record.sequence);
        record.checkpoints = vec![Checkpoint {
            plain_bytes: None,
            waits: 0,
            children: GivenBefore::default(),
            children_in_step: GivenBefore::default(),
            attachments: None,
            sequence: record.sequence,
            schema: History::SCHEMA,
            bytes: bytes.bytes().len() as u64,
            sha256: ContentHash::of(bytes.bytes()),
            place: Place::Payload(name.clone()),
        }];
        Payload { name, bytes: bytes.bytes().clone() }
    });
    let write =
        RecordWrite { record: seal(&record), payload, obsolete: Vec::new(), ..RecordWrite::default() };
    let present = store.records.load(&job()).await.expect("loads").map(|stored| stored.version);
    store.records.put(&job(), present.as_ref(), write).await.expect("writes the record");
}

async fn look(store: &Store) -> Option<Record> {
    let stored = store.records.load(&job()).await.expect("loads");
    stored.map(|stored| open(&stored.bytes).expect("a whole record"))
}

fn result() -> BlobName {
    result_blob(&job()).expect("the suite's job id makes a name")
}

/// A worker that runs on the store.
struct Running {
    stopper: Stopper,
    worker: JoinHandle<Stopped>,
}

fn start(store: &Store, job: &History) -> Running {
    let settings = Settings {
        concurrency: 4,
        lease: Duration::from_secs(6),
        budget: Duration::from_secs(2),
        checkpoint_every: CheckpointEvery::Every(Duration::ZERO),
        ..Settings::default()
    };
    let worker = Worker::builder(store.clone()).job(job.clone()).settings(settings).build();
    let (stopper, stopping) = stopping();
    Running { stopper, worker: tokio::spawn(worker.expect("a worker").run(stopping)) }
}

impl Running {
    async fn stop(self) {
        self.stopper.stop();
        let stopped = self.worker.await.expect("no panic");
        assert_eq!(stopped.abandoned, 0, "{stopped:?}");
    }
}

/// Waits until no message is left, and checks that none was dead-lettered.
async fn emptied(store: &Store) {
    let end = Instant::now() + PATIENCE * 4;
    while store.queue.depth().await.expect("counts").total > 0 {
        assert!(Instant::now() < end, "the queue is not empty: {:?}", look(store).await);
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(store.queue.dead_letters(9).await.expect("looks"), []);
}

/// Runs a worker until no message is left; returns the steps that it ran.
async fn run(store: &Store) -> Vec<u32> {
    let job = History::default();
    let worker = start(store, &job);
    emptied(store).await;
    worker.stop().await;
    job.ran()
}

/// The record's generation applies to the owner's message, whatever its body contains.
pub async fn the_owners_message_is_never_taken_for_an_older_generation(fixture: &Fixture) {
    let store = &fixture.store;
    let message = send(store, 0).await;
    pass(store, 1, None).await;
    put(store, record(&message, 1, 1, Status::Running), Some(2)).await;
    assert_eq!(run(&fixture.another).await, [2, 3], "it resumes at the record's step");
    assert!(store.blobs.exists(&result()).await.expect("looks"));
}

/// Neither a redelivery nor a copy of a greater generation revives a cancelled job.
pub async fn a_cancelled_job_is_revived_by_nothing(fixture: &Fixture) {
    let store = &fixture.store;
    let message = send(store, 0).await;
    pass(store, 1, None).await;
    put(store, record(&message, 1, 0, Status::Cancelled), None).await;
    send(store, 1).await;
    assert_eq!(run(&fixture.another).await, [0; 0]);
    assert!(!store.blobs.exists(&result()).await.expect("looks"));
}

/// Two messages of one job never use the same payload name, though both are first deliveries.
pub async fn two_first_deliveries_never_overwrite_each_others_state(fixture: &Fixture) {
    let store = &fixture.store;
    send(store, 0).await;
    send(store, 0).await;
    let job = History { step_ms: 300, ..History::default() };
    let workers = [start(store, &job), start(&fixture.another, &job)];
    let end = Instant::now() + PATIENCE;
    while !store.blobs.exists(&result()).await.expect("looks") {
        // The checkpoint that the record names can be read at any moment.
        if let Some(record) = look(store).await
            && let Some(checkpoint) = record.checkpoints.first()
            && let Place::Payload(name) = &checkpoint.place
        {
            let state = store.records.payload(&self::job(), name).await.expect("loads");
            let unchanged = look(store).await.is_some_and(|now| now.sequence == record.sequence);
            assert!(!unchanged || state.is_some_and(|state| checkpoint.fits(&state)), "{record:?}");
        }
        assert!(Instant::now() < end, "it is not done");
        sleep(Duration::from_millis(50)).await;
    }
    for worker in workers {
        worker.stop().await;
    }
    let mut ran = job.ran();
    ran.sort_unstable();
    ran.dedup();
    assert_eq!(ran, [0, 1, 2, 3], "no step was left out");
}

/// A delivery that never wrote the record leaves it and its payloads to their owner.
pub async fn a_job_that_finishes_without_a_save_leaves_anothers_record_alone(fixture: &Fixture) {
    let store = &fixture.store;
    let other = MessageId::new("another-message");
    put(store, record(&other, 1, 0, Status::Running), Some(3)).await;
    let before = look(store).await;
    send(store, 0).await;
    // This job saves nothing: its steps take no time, and no save is due before the end.
    let job = History::default();
    let settings = Settings { concurrency: 1, ..Settings::default() };
    let worker = Worker::builder(fixture.another.clone()).job(job.clone()).settings(settings).build();
    let (stopper, stopping) = stopping();
    let worker = tokio::spawn(worker.expect("a worker").run(stopping));
    emptied(store).await;
    stopper.stop();
    worker.await.expect("no panic");
    assert_eq!(job.ran(), [0, 1, 2, 3]);
    assert_eq!(look(store).await, before);
    let name = before.expect("it is there").payloads().remove(0);
    assert!(store.records.payload(&self::job(), &name).await.expect("loads").is_some());
}

/// A job is done if its process died between the message's deletion and the record's removal.
pub async fn a_job_is_completed_though_its_worker_died_at_the_very_end(fixture: &Fixture) {
    let store = &fixture.store;
    let message = send(store, 0).await;
    pass(store, 1, None).await;
    put(store, record(&message, 1, 0, Status::Done), None).await;
    assert_eq!(run(&fixture.another).await, [0; 0]);
}

/// An end in the message's body is entered once, and hides no later death.
pub async fn an_end_in_the_body_counts_once_and_hides_no_death(fixture: &Fixture) {
    let store = &fixture.store;
    let message = send(store, 0).await;
    let failed = End {
        message: message.clone(),
        count: 1,
        kind: EndKind::Failed,
        worker: WorkerId::new("gone"),
        at_unix_ms: 1,
        why: "not today".to_owned(),
        unsaved_steps: 0,
        ran_ms: 0,
        blocked: true,
        excused: false,
        moved: false,
    };
    pass(store, 2, Some(body(0, std::slice::from_ref(&failed)))).await;
    let mut claimed = record(&message, 2, 0, Status::Running);
    claimed.account.enter(failed, Company::Shared);
    put(store, claimed, Some(1)).await;
    let job = History { step_ms: 60_000, ..History::default() };
    let worker = start(&fixture.another, &job);
    let end = Instant::now() + PATIENCE;
    let account = loop {
        match look(store).await {
            Some(record) if record.owner.count == 3 => break record.account,
            _ => assert!(Instant::now() < end, "it is not claimed"),
        }
        sleep(Duration::from_millis(50)).await;
    };
    assert_eq!((account.failed, account.vanished), (1, 1), "{account:?}");
    worker.worker.abort();
}

/// A job that was moved to another queue runs once, in its copy, even when its first message
/// is delivered again.
pub async fn a_job_that_was_moved_away_runs_only_in_its_copy(fixture: &Fixture) {
    let store = &fixture.store;
    let message = send(store, 0).await;
    pass(store, 1, None).await;
    put(
        store,
        record(
            &message,
            1,
            0,
            Status::Escalated { queue: "other".to_owned(), why: "it was interrupted".to_owned() },
        ),
        Some(1),
    )
    .await;
    // It is not known whether the owner sent the copy: with or without it the job runs, and never
    // twice.
    send(store, 1).await;
    assert_eq!(run(&fixture.another).await, [1, 2, 3], "once, from its checkpoint");
    assert!(store.blobs.exists(&result()).await.expect("looks"));
}

/// A message sent before the job was dead-lettered revives nothing; one sent later does.
pub async fn only_a_message_that_was_sent_after_the_dead_letter_revives_the_job(fixture: &Fixture) {
    let store = &fixture.store;
    send(store, 0).await;
    // Services have times in whole seconds.
    sleep(QUIET).await;
    let dead = Status::DeadLettered { reason: "it never ends".to_owned() };
    put(store, record(&MessageId::new("another-message"), 1, 0, dead), Some(2)).await;
    pass(store, 1, None).await;
    assert_eq!(run(&fixture.another).await, [0; 0], "older than the letter");
    sleep(QUIET).await;
    send(store, 0).await;
    // A first delivery reads nothing, so one delivery passes before the worker's.
    pass(store, 1, None).await;
    assert_eq!(run(&fixture.another).await, [2, 3], "sent again by hand");
    assert_eq!(look(store).await.map(|record| record.generation), Some(1));
}

/// A result settles every message of its job, of any generation.
pub async fn a_result_settles_a_message_of_any_generation(fixture: &Fixture) {
    let store = &fixture.store;
    let writer = Writer { job: job(), fence: Fence::new(0, 1) };
    assert!(store.blobs.create(&result(), b"4".to_vec(), &writer).await.expect("creates"));
    send(store, 1).await;
    put(store, record(&MessageId::new("another-message"), 1, 0, Status::Running), Some(1)).await;
    assert_eq!(run(&fixture.another).await, [0; 0]);
    let left = look(store).await;
    assert!(left.is_none_or(|record| record.status == Status::Done), "nothing seems to be running");
}

/// A complete result of an earlier owner is accepted even if it is late.
pub async fn a_late_but_complete_result_is_the_jobs(fixture: &Fixture) {
    let store = &fixture.store;
    let message = send(store, 0).await;
    pass(store, 2, None).await;
    put(store, record(&message, 2, 0, Status::Running), Some(1)).await;
    let first = Writer { job: job(), fence: Fence::new(0, 1) };
    assert!(store.blobs.create(&result(), b"\"late\"".to_vec(), &first).await.expect("creates"));
    assert_eq!(run(&fixture.another).await, [0; 0]);
    assert_eq!(store.blobs.get(&result()).await.expect("gets").as_deref(), Some(&b"\"late\""[..]));
}

/// A dead letter that any tool sends again, once or twice, is the same job: it continues from its
/// checkpoint, once.
pub async fn a_letter_that_is_sent_again_goes_on_from_its_checkpoint(fixture: &Fixture) {
    let store = &fixture.store;
    let message = send(store, 0).await;
    let held = store.queue.receive(1, Duration::from_secs(60)).await.expect("receives").remove(0);
    let dead = Status::DeadLettered { reason: "it never ends".to_owned() };
    put(store, record(&message, 1, 0, dead), Some(3)).await;
    let letter = DeadLetter { reason: "it never ends".to_owned() };
    store.queue.dead_letter(&held.receipt, &body(1, &[]), &letter).await.expect("dead-letters");
    let copy = store.queue.dead_letters(1).await.expect("looks").remove(0).body;
    for _ in 0..2 {
        let message = NewMessage { body: copy.clone(), delay: Duration::ZERO };
        store.queue.send(vec![message]).await.expect("sends");
    }
    let redriven = fixture.another.redrive(&crate::redrive::Redrive::All).await.expect("redrives");
    assert_eq!(redriven.jobs, [job()]);
    let job = History { step_ms: 100, ..History::default() };
    let worker = start(&fixture.another, &job);
    let end = Instant::now() + PATIENCE * 4;
    while store.queue.depth().await.expect("counts").total > 0 {
        assert!(Instant::now() < end, "{:?}", look(store).await);
        sleep(Duration::from_millis(100)).await;
    }
    worker.stop().await;
    assert_eq!(job.ran(), [3]);
    assert_eq!(store.queue.dead_letters(9).await.expect("looks"), []);
}

/// One test per history; see [`conformance`](crate::conformance).
#[macro_export]
macro_rules! protocol_conformance {
    ($fixture:ident $(, $($attribute:tt)*)?) => {
        $crate::__conformance! {
            protocol, protocol_conformance, $fixture, ($($($attribute)*)?),
            the_owners_message_is_never_taken_for_an_older_generation,
            a_cancelled_job_is_revived_by_nothing,
            two_first_deliveries_never_overwrite_each_others_state,
            a_job_that_finishes_without_a_save_leaves_anothers_record_alone,
            a_job_is_completed_though_its_worker_died_at_the_very_end,
            an_end_in_the_body_counts_once_and_hides_no_death,
            a_job_that_was_moved_away_runs_only_in_its_copy,
            only_a_message_that_was_sent_after_the_dead_letter_revives_the_job,
            a_result_settles_a_message_of_any_generation,
            a_late_but_complete_result_is_the_jobs,
            a_letter_that_is_sent_again_goes_on_from_its_checkpoint,
        }
    };
}
