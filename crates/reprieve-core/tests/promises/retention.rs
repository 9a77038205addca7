//! What nothing needs any more is removed from the store, and nothing else, whoever cleans.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::memory::{self, Fault, Faults, Op};
use reprieve_core::ports::{Page, Payload, RecordWrite, Store};
use reprieve_core::record::{Account, Company, Owner, Record, Status, seal};
use reprieve_core::retention::{Cleaner, Keep, Position, Removed};
use reprieve_core::worker::{Limits, Settings};
use reprieve_core::{
    BlobName, Cancel, ErrorKind, Job, JobContext, JobEnd, JobError, JobId, MessageId, NewJob, PayloadName,
    Producer, Step, WorkerId, clock,
};
use tokio::time::advance;

use crate::support::*;

const DAY: Duration = Duration::from_hours(24);

fn id(job: &str) -> JobId {
    JobId::parse(job).unwrap()
}

async fn put(store: &Store, name: &str) {
    store.blobs.put(&BlobName::parse(name).unwrap(), b"four".to_vec(), None).await.unwrap();
}

fn payload(number: u64) -> PayloadName {
    PayloadName::new(0, &MessageId::new("m"), 1, number)
}

async fn put_payload(store: &Store, job: &str, number: u64) {
    let payload = Payload { name: payload(number), bytes: b"four".to_vec().into() };
    store.records.store_payload(&id(job), payload).await.unwrap();
}

async fn put_record(store: &Store, job: &str, status: Status, expires_unix_ms: Option<i64>) {
    let owner = Owner {
        message: MessageId::new("m"),
        count: 1,
        worker: WorkerId::new("w"),
        nonce: "n".to_owned(),
        company: Company::Shared,
    };
    let record = Record {
        job: id(job),
        kind: "k".to_owned(),
        generation: 0,
        owner,
        status,
        account: Account::default(),
        history: Vec::new(),
        sequence: 1,
        checkpoints: Vec::new(),
        careful_steps: 0,
        went_back: 0,
        ran_ms: 0,
        changed_unix_ms: clock::unix_millis(),
        abandoned_after_ms: 60_000,
        expires_unix_ms,
        escalated: None,
        args_sha256: None,
        enqueued_unix_ms: 0,
    };
    put_bytes(store, job, seal(&record)).await;
}

async fn put_bytes(store: &Store, job: &str, record: Vec<u8>) {
    let write = RecordWrite { record, ..RecordWrite::default() };
    store.records.put(&id(job), None, write).await.unwrap();
}

async fn payloads(store: &Store) -> BTreeSet<(String, PayloadName)> {
    let payloads = Page::all(|at| async move { store.records.payload_page(at.as_deref()).await });
    payloads.await.unwrap().into_iter().map(|entry| (entry.job.to_string(), entry.name)).collect()
}

async fn blobs(store: &Store) -> BTreeSet<String> {
    store.blobs.list("").await.unwrap().iter().map(ToString::to_string).collect()
}

fn names<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> BTreeSet<String> {
    names.into_iter().map(|name| name.as_ref().to_owned()).collect()
}

/// A store with everything that retention looks at, and what must remain of it after the defaults.
struct Attic {
    store: Store,
    blobs: BTreeSet<String>,
    records: BTreeSet<String>,
    payloads: BTreeSet<(String, PayloadName)>,
    removed: Removed,
}

/// Writes some objects thirty-one, nine and seven days ago, and now.
async fn attic() -> Attic {
    on_one_clock();
    let store = memory::store();
    let now = || clock::unix_millis();
    // Thirty-one days ago.
    for name in
        ["results/old.json", "drains/1690000000000-old.json", "outputs/old", "results-of-mine/old", "old"]
    {
        put(&store, name).await;
    }
    // Outputs of jobs, also under names that would be Reprieve's own elsewhere.
    for name in ["jobs/old/x.png", "jobs/old/results/old.json", "jobs/old/ready/event/vm/0"] {
        put(&store, name).await;
    }
    for name in ["drains/pumps.csv", "results/of-2025/all.csv", "ready/to-render.csv"] {
        put(&store, name).await;
    }
    put(&store, "args/forgotten.json").await;
    put(&store, "args/notes.txt").await;
    put_record(&store, "forgotten", Status::Running, None).await;
    put_payload(&store, "forgotten", 1).await;
    advance(22 * DAY).await;
    // Nine days ago. More marks than a part of a list has.
    for number in 0..20 {
        put(&store, &format!("ready/event/vm/{number}")).await;
    }
    for name in [
        "results/done.json",
        "results/frozen.json",
        "results/argued.json",
        "drains/1690000000000-recent.json",
    ] {
        put(&store, name).await;
    }
    for job in ["done", "argued", "waiting", "running", "remembered", "never-received", "cancelled"] {
        put(&store, &format!("args/{job}.json")).await;
    }
    put_record(&store, "done", Status::Done, None).await;
    put_record(&store, "expired", Status::Done, Some(now() + 1_000)).await;
    put_record(&store, "remembered", Status::Done, Some(now() + 3_600_000 * 24 * 365)).await;
    for name in ["cancelled/cancelled.json", "cancelled/remembered.json", "cancelled/notes.txt"] {
        put(&store, name).await;
    }
    put_record(&store, "cancelled", Status::Cancelled, Some(now() + 1_000)).await;
    put_record(&store, "frozen", Status::Running, None).await;
    put_record(&store, "running", Status::Running, None).await;
    put_record(&store, "waiting", Status::Waiting { due_unix_ms: now() }, None).await;
    put_record(&store, "poisoned", Status::DeadLettered { reason: "r".to_owned() }, None).await;
    put_bytes(&store, "damaged", b"reprieve-record ????".to_vec()).await;
    put_bytes(&store, "newer", newer_format()).await;
    for job in ["done", "nowhere", "poisoned", "damaged", "newer"] {
        put_payload(&store, job, 1).await;
    }
    advance(2 * DAY).await;
    // Seven days ago.
    for name in ["ready/event/vm/late", "args/argued-late.json", "results/argued-late.json"] {
        put(&store, name).await;
    }
    put_record(&store, "late", Status::Done, None).await;
    put_payload(&store, "nowhere", 2).await;
    advance(7 * DAY).await;
    let kept = [
        "jobs/old/x.png",
        "jobs/old/results/old.json",
        "jobs/old/ready/event/vm/0",
        "outputs/old",
        "results-of-mine/old",
        "old",
        "drains/pumps.csv",
        "results/of-2025/all.csv",
        "ready/to-render.csv",
        "args/forgotten.json",
        "args/notes.txt",
        "results/done.json",
        "results/frozen.json",
        "results/argued.json",
        "drains/1690000000000-recent.json",
        "args/waiting.json",
        "args/running.json",
        "args/never-received.json",
        "ready/event/vm/late",
        "args/argued-late.json",
        "results/argued-late.json",
        "cancelled/remembered.json",
        "cancelled/notes.txt",
    ];
    let records = ["forgotten", "remembered", "running", "waiting", "poisoned", "damaged", "newer", "late"];
    // No record of these was there from the first: nothing names them.
    let payloads = [("damaged", 1), ("newer", 1), ("nowhere", 2)];
    Attic {
        store,
        blobs: names(kept),
        records: names(records),
        payloads: payloads.map(|(job, number)| (job.to_owned(), payload(number))).into(),
        removed: removed_of_attic(),
    }
}

fn removed_of_attic() -> Removed {
    let removed = Removed { arguments: 4, records: 4, payloads: 4, results: 1, ..Removed::default() };
    Removed { drains: 1, marks: 21, bytes: 4 * 31, ..removed }
}

fn newer_format() -> Vec<u8> {
    let rest = b" 99 2\n{}";
    let mut bytes = format!("reprieve-record {:08x}", crc32fast::hash(rest)).into_bytes();
    bytes.extend_from_slice(rest);
    bytes
}

#[tokio::test(start_paused = true)]
async fn only_what_nothing_needs_is_removed() {
    let attic = attic().await;
    let removed = clean(&attic.store, Keep::default(), false).await;
    assert_eq!(blobs(&attic.store).await, attic.blobs);
    assert_eq!(jobs_with_records(&attic.store).await, attic.records);
    assert_eq!(payloads(&attic.store).await, attic.payloads);
    assert_eq!(removed, attic.removed);
    assert!(clean(&attic.store, Keep::default(), false).await.is_nothing(), "a second round found more");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_counts_the_same_and_removes_nothing() {
    let attic = attic().await;
    let before =
        (blobs(&attic.store).await, jobs_with_records(&attic.store).await, payloads(&attic.store).await);
    assert_eq!(clean(&attic.store, Keep::default(), true).await, attic.removed);
    let after =
        (blobs(&attic.store).await, jobs_with_records(&attic.store).await, payloads(&attic.store).await);
    assert_eq!(before, after);
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_for_ever_stays() {
    let attic = attic().await;
    let removed = clean(&attic.store, Keep { results: None, drains: None, ..Keep::default() }, false).await;
    assert_eq!((removed.results, removed.drains, removed.records), (0, 0, 4));
    let also = ["results/old.json", "drains/1690000000000-old.json"];
    assert_eq!(blobs(&attic.store).await, &attic.blobs | &names(also));
}

/// Jobs that did not finish go with all they have, by the age that the operator names.
#[tokio::test(start_paused = true)]
async fn forgotten_jobs_go_after_the_time_that_the_operator_names() {
    let attic = attic().await;
    let keep = Keep { unfinished: Some(10 * DAY), ..Keep::default() };
    clean(&attic.store, keep, false).await;
    let gone = names(["args/forgotten.json"]);
    assert_eq!(blobs(&attic.store).await, &attic.blobs - &gone);
    assert_eq!(jobs_with_records(&attic.store).await, &attic.records - &names(["forgotten"]));
    let keep = Keep { unfinished: Some(8 * DAY), ..Keep::default() };
    let expected = clean(&attic.store, keep, true).await;
    assert_eq!(clean(&attic.store, keep, false).await, expected);
    let gone =
        names(["args/forgotten.json", "args/waiting.json", "args/running.json", "args/never-received.json"]);
    assert_eq!(blobs(&attic.store).await, &attic.blobs - &gone);
    assert_eq!(jobs_with_records(&attic.store).await, names(["remembered", "newer", "late"]));
    assert_eq!(
        payloads(&attic.store).await,
        [("newer".to_owned(), payload(1)), ("nowhere".to_owned(), payload(2))].into()
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_that_waits_for_its_time_is_not_forgotten_before_it() {
    on_one_clock();
    let store = memory::store();
    let due_unix_ms = clock::unix_millis() + 3_600_000 * 24 * 30;
    put_record(&store, "waiting", Status::Waiting { due_unix_ms }, None).await;
    let keep = Keep { unfinished: Some(8 * DAY), ..Keep::default() };
    advance(37 * DAY).await;
    assert!(clean(&store, keep, false).await.is_nothing());
    advance(2 * DAY).await;
    assert_eq!(clean(&store, keep, false).await.records, 1);
}

/// The round rested between the arguments, which were young then, and the records.
#[tokio::test(start_paused = true)]
async fn a_round_that_rests_for_days_leaves_no_arguments_for_ever() {
    on_one_clock();
    let (store, cleaner) = memory_and_cleaner();
    put(&store, "args/done.json").await;
    put_record(&store, "done", Status::Done, None).await;
    advance(7 * DAY + DAY / 2).await;
    let mut part = cleaner.clean(&Position::default()).await.unwrap();
    advance(3 * DAY).await;
    while let Some(next) = part.next {
        part = cleaner.clean(&next).await.unwrap();
    }
    assert_eq!(jobs_with_records(&store).await, names(["done"]), "it shows that the job is over");
    let removed = clean(&store, Keep::default(), false).await;
    assert_eq!((removed.arguments, removed.records), (1, 1));
}

fn memory_and_cleaner() -> (Store, Cleaner) {
    let store = memory::store();
    (store.clone(), Cleaner::new(store, Keep::default()))
}

/// A result settles any message of its job: a later job of the same id would never run.
#[tokio::test(start_paused = true)]
async fn an_own_id_is_remembered_until_its_result_is_removed() {
    on_one_clock();
    let (store, cleaner) = memory_and_cleaner();
    let steps = Steps::default();
    let run = async |count| {
        let new = NewJob::of::<Steps>(&Plan::new(count, 10)).unwrap().with_id(id("mine"));
        Producer::new(store.clone()).enqueue(vec![new]).await.unwrap();
        let worker = start(&store, &steps);
        emptied(&store, secs(60)).await;
        worker.stop().await;
    };
    run(1).await;
    let mut part = cleaner.clean(&Position::default()).await.unwrap();
    for hour in 0..24 * 40 {
        advance(DAY / 24).await;
        part = cleaner.clean(&part.next.unwrap_or_default()).await.unwrap();
        let has_record = jobs_with_records(&store).await.contains("mine");
        let has_result = blobs(&store).await.contains("results/mine.json");
        assert!(has_record || !has_result, "after {hour} hours a result would settle a new job");
    }
    assert_eq!(jobs_with_records(&store).await, names::<&str>([]));
    run(3).await;
    assert_eq!(steps.trace.steps(&id("mine")).len(), 1 + 3, "the id is not free again");
}

/// A round sees an outage as such, and leaves what it can't remove for another reason.
#[tokio::test(start_paused = true)]
async fn an_outage_ends_a_part_and_a_refusal_only_its_object() {
    let Attic { store, .. } = attic().await;
    let (store, faults) = Faults::wrap(store);
    let cleaner = Cleaner::new(store.clone(), Keep::default());
    faults.next_calls(Op::DeleteVersion, 1, Fault::Fail(ErrorKind::Unavailable));
    let error = cleaner.clean(&Position::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    faults.next_calls(Op::DeleteVersion, 1, Fault::Fail(ErrorKind::Corrupt));
    let first = cleaner.clean(&Position::default()).await.unwrap();
    assert!(first.removed.arguments < 4, "{first:?}");
    clean(&store, Keep::default(), false).await;
    assert!(!blobs(&store).await.contains("args/done.json"));
}

/// A round that another cleaner works at, too, removes nothing twice and fails at nothing.
#[tokio::test(start_paused = true)]
async fn several_cleaners_can_work_at_once() {
    let attic = attic().await;
    let rounds = (0..4).map(|_| clean(&attic.store, Keep::default(), false));
    let all = futures_util::future::join_all(rounds).await;
    let marks: u64 = all.iter().map(|removed| removed.marks).sum();
    assert_eq!(marks, attic.removed.marks, "{all:?}");
    assert_eq!(blobs(&attic.store).await, attic.blobs);
    assert_eq!(jobs_with_records(&attic.store).await, attic.records);
}

/// The state of a [`Hoarder`] is large, and it has an attachment.
#[derive(Debug, Clone, Default)]
struct Hoarder {
    found: Arc<Mutex<Vec<Found>>>,
}

/// The step and the attachment's length at the beginning of a delivery.
type Found = (u32, Option<u64>);

#[async_trait]
impl Job for Hoarder {
    const KIND: &'static str = "hoarder";
    type Args = String;
    type Checkpoint = (u32, Vec<u64>);
    type Output = usize;

    fn begin(&self, _: &String) -> (u32, Vec<u64>) {
        (0, (0..10_000).collect())
    }

    async fn step(
        &self,
        cx: &JobContext,
        args: &String,
        (at, state): (u32, Vec<u64>),
    ) -> Result<Step<(u32, Vec<u64>), usize>, JobError> {
        if cx.steps() == 0 {
            let size = cx.attach("data").size().await;
            self.found.lock().unwrap().push((at, size));
        }
        cx.attach("data").write(&vec![b'x'; 1000 + at as usize][..]).await?;
        tokio::time::sleep(ms(50)).await;
        Ok(if at < 200 { Step::Continue((at + 1, state)) } else { Step::Done(args.len()) })
    }
}

/// A job with long arguments waits for months between two deliveries, and is cleaned around every day.
#[tokio::test(start_paused = true)]
async fn a_job_that_waits_keeps_its_arguments_its_state_and_its_attachments() {
    on_one_clock();
    let (store, job) = (memory::store(), Hoarder::default());
    let args = "x".repeat(100_000);
    let new = || NewJob::of::<Hoarder>(&args).unwrap();
    let jobs = Producer::new(store.clone()).enqueue(vec![new()]).await.unwrap();
    let months = async || {
        for _ in 0..100 {
            advance(DAY).await;
            clean(&store, Keep::default(), false).await;
        }
    };
    months().await;
    let worker = start_job(&store, job.clone());
    within(secs(20), "a save", async || record(&store, &jobs[0]).await.is_some()).await;
    worker.evict(secs(30)).await;
    worker.stop().await;
    let before = (blobs(&store).await, payloads(&store).await);
    assert!(!before.1.is_empty());
    months().await;
    assert_eq!(names(before.0.iter().filter(|name| !name.starts_with("drains/"))), blobs(&store).await);
    assert_eq!(payloads(&store).await, before.1);
    let worker = start_job(&store, job.clone());
    emptied(&store, secs(60)).await;
    worker.stop().await;
    let found = job.found.lock().unwrap().clone();
    assert!(found.len() == 2 && found[0] == (0, None) && found[1].0 > 0, "{found:?}");
    assert_eq!(found[1].1, Some(1000 + u64::from(found[1].0) - 1), "{found:?}");
    let result =
        store.blobs.get(&BlobName::parse(format!("results/{}.json", jobs[0])).unwrap()).await.unwrap();
    assert_eq!(result.as_deref(), Some(&b"100000"[..]));
    // What proves that it is done goes in the end, too.
    months().await;
    assert_eq!((blobs(&store).await, payloads(&store).await), Default::default());
    assert_eq!(jobs_with_records(&store).await, names::<&str>([]));
}

/// Starts a worker for no job, and lets `hours` pass.
async fn idle_for(store: &Store, hours: u64) -> Running {
    let worker = start(store, &Steps::default());
    worker.started().await;
    for _ in 0..hours * 60 {
        advance(secs(60)).await;
        tokio::time::sleep(ms(2_000)).await;
    }
    worker
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_cleans_once_a_day() {
    let attic = attic().await;
    let (store, faults) = Faults::wrap(attic.store);
    let worker = idle_for(&store, 2).await;
    let cleaning = names(["cleaning.json"]);
    assert_eq!(blobs(&store).await, &attic.blobs | &cleaning);
    assert_eq!(jobs_with_records(&store).await, attic.records);
    let metrics = worker.monitor.telemetry().encode();
    assert!(metrics.contains("reprieve_cleaned_total{what=\"marks\"} 21"), "{metrics}");
    let lists = faults.calls(Op::PayloadPage);
    assert!(lists < 5, "{lists} lists of payloads");
    worker.stop().await;
    let worker = idle_for(&store, 3).await;
    assert_eq!(faults.calls(Op::PayloadPage), lists, "a second round came early");
    worker.stop().await;
    let worker = idle_for(&store, 24).await;
    assert!(faults.calls(Op::PayloadPage) > lists, "no second round came");
    worker.stop().await;
}

/// A worker is evicted in the middle of a round.
#[tokio::test(start_paused = true)]
async fn another_worker_continues_a_round_where_it_was_left() {
    let attic = attic().await;
    let (store, faults) = Faults::wrap(attic.store);
    faults.every_call(Op::PayloadPage, Fault::Hang);
    let worker = idle_for(&store, 2).await;
    assert!(blobs(&store).await.contains("ready/event/vm/1"), "the round is not at its end");
    worker.evict(secs(30)).await;
    worker.kill().await;
    faults.clear(Op::PayloadPage);
    let lists = faults.calls(Op::RecordPage);
    let worker = idle_for(&store, 2).await;
    assert_eq!(blobs(&store).await, &attic.blobs | &names(["cleaning.json"]));
    assert!(faults.calls(Op::RecordPage) <= lists + 4, "it began again more than once");
    worker.stop().await;
}

/// Lets these hours pass beside a worker with a job.
async fn busy_for(hours: u64) {
    for _ in 0..hours * 180 {
        tokio::time::sleep(secs(20)).await;
    }
}

async fn start_busy(store: &Store) -> Running {
    enqueue(store, &[Plan::new(4, 100_000_000).habit(Habit::Works)]).await;
    let settings = Settings { concurrency: 1, ..settings() };
    let worker = start_in(&reprieve_core::process::Gate::new(), store, &Steps::default(), settings);
    within(secs(20), "in flight", async || leased(store).await == 1).await;
    worker
}

async fn is_cleaned(store: &Store) -> bool {
    !blobs(store).await.contains("ready/event/vm/1")
}

/// Whether there was a round before or not.
#[tokio::test(start_paused = true)]
async fn a_worker_with_jobs_leaves_cleaning_to_others_unless_a_day_has_passed_without_any() {
    for was_cleaned in [false, true] {
        let store = attic().await.store;
        if was_cleaned {
            put_note(&store, clock::unix_millis(), None).await;
        }
        let worker = start_busy(&store).await;
        busy_for(46).await;
        assert!(!is_cleaned(&store).await, "a worker with jobs cleaned");
        busy_for(4).await;
        assert!(is_cleaned(&store).await, "nobody cleaned for two days");
        assert!(!jobs_with_records(&store).await.contains("done"));
        worker.kill().await;
    }
}

async fn put_note(store: &Store, since_unix_ms: i64, next: Option<&str>) {
    let next = next.map_or(String::new(), |subject| format!(",\"next\":{{\"subject\":\"{subject}\"}}"));
    let note = format!("{{\"at_unix_ms\":{since_unix_ms},\"since_unix_ms\":{since_unix_ms}{next}}}");
    store.blobs.put(&BlobName::parse("cleaning.json").unwrap(), note.into_bytes(), None).await.unwrap();
}

/// Workers are idle for a moment now and then, and each takes the round without getting to its end.
#[tokio::test(start_paused = true)]
async fn a_round_that_nobody_has_time_for_is_finished_beside_jobs_a_day_later() {
    let store = attic().await.store;
    let began = clock::unix_millis();
    put_note(&store, began, Some("arguments")).await;
    let worker = start_busy(&store).await;
    busy_for(46).await;
    assert!(!is_cleaned(&store).await, "a worker with jobs cleaned");
    busy_for(5).await;
    assert!(is_cleaned(&store).await, "the round was never finished");
    worker.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_note_that_is_damaged_or_from_the_future_stops_no_cleaning() {
    for note in ["{}", "\u{0}", "{\"at_unix_ms\":99999999999999,\"since_unix_ms\":0}"] {
        let store = attic().await.store;
        let name = BlobName::parse("cleaning.json").unwrap();
        store.blobs.put(&name, note.as_bytes().to_vec(), None).await.unwrap();
        let worker = idle_for(&store, 2).await;
        assert!(is_cleaned(&store).await, "{note}");
        worker.stop().await;
    }
}

/// A name that retention may remove is refused for what a producer or a job writes.
#[tokio::test(start_paused = true)]
async fn no_input_takes_a_name_that_is_removed_later() {
    let store = memory::store();
    let producer = Producer::new(store.clone());
    for name in ["ready/to-render.csv", "drains/pumps.csv", "results/all.csv", "args/a.json", "cleaning.json"]
    {
        let error = producer.put_input(name, Vec::new()).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.message().contains("Reprieve's own"), "{error}");
    }
    producer.put_input("inputs/all.csv", Vec::new()).await.unwrap();
}

/// A job that was done keeps its mark, and the record goes first where a round of cleaning rests between.
#[tokio::test(start_paused = true)]
async fn an_id_of_a_job_that_was_done_is_used_again() {
    let (inner, job) = (memory::store(), Steps::default());
    let (slow, faults) = Faults::wrap(inner.clone());
    let id = enqueue_as(&inner, "again", Plan::new(3, 1_000)).await;
    let worker = start(&inner, &job);
    within(secs(30), "two steps", async || job.trace.steps(&id).len() == 2).await;
    faults.next_calls(Op::Put, 1, Fault::Delay(secs(3)));
    assert_eq!(cancel(&slow, &id).await, Cancel::Over(JobEnd::Done(())));
    emptied(&inner, secs(60)).await;
    worker.stop().await;
    // Its result goes in an earlier round. Its record expires while this one is under way.
    tokio::time::advance(secs(30 * 86_400 - 2_000)).await;
    inner.blobs.delete(&BlobName::parse("results/again.json").unwrap(), None).await.unwrap();
    let cleaner = Cleaner::new(inner.clone(), Keep::default());
    let mut position = Some(Position::default());
    while let Some(at) = position {
        if serde_json::to_string(&at).unwrap().contains("records") {
            tokio::time::advance(secs(4_000)).await;
        }
        position = cleaner.clean(&at).await.unwrap().next;
    }
    assert!(record(&inner, &id).await.is_none());
    cancel(&inner, &JobId::parse("another").unwrap()).await;
    enqueue_as(&inner, "again", Plan::new(3, 1_000)).await;
    let _worker = start(&inner, &job);
    emptied(&inner, secs(60)).await;
    assert_eq!(end(&inner, &id).await, Some(JobEnd::Done(3)));
}

/// Its record can't be read any more. Its result would settle a later job of the id.
#[tokio::test(start_paused = true)]
async fn an_own_id_whose_record_is_damaged_is_remembered_while_its_result_exists() {
    on_one_clock();
    let (store, steps, id) = (memory::store(), Steps::default(), JobId::parse("mine").unwrap());
    let run = async |count| {
        let new = NewJob::of::<Steps>(&Plan::new(count, 10)).unwrap().with_id(id.clone());
        let enqueued = Producer::new(store.clone()).enqueue(vec![new]).await;
        let worker = start(&store, &steps);
        emptied(&store, secs(60)).await;
        worker.stop().await;
        enqueued
    };
    run(1).await.unwrap();
    overwrite(&store, &id, b"reprieve-record ????".to_vec()).await;
    run(3).await.unwrap_err();
    tokio::time::advance(secs(86_400 * 10)).await;
    clean(&store, Keep::default(), false).await;
    // Either it is still refused, or it is a new job.
    if run(3).await.is_ok() {
        assert_eq!(steps.trace.steps(&id).len(), 1 + 3, "the new job got the result of the old one");
    }
}

/// A worker with a slot of the fleet is killed, and its kind has no limit from then on.
#[tokio::test(start_paused = true)]
async fn no_slot_of_a_killed_worker_is_left_for_ever() {
    on_one_clock();
    let (store, steps) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(8, 1_000)]).await;
    let limits = Limits { in_fleet: Some(3), ..Limits::default() };
    let worker = start_built(limited(&store, &steps, limits));
    within(secs(20), "a slot", async || jobs_with_records(&store).await.iter().any(|it| it.contains("slot")))
        .await;
    worker.kill().await;
    tokio::time::sleep(secs(61)).await;
    let worker = start(&store, &steps);
    emptied(&store, secs(60)).await;
    worker.stop().await;
    let keep = Keep { unfinished: None, ..Keep::default() };
    for _ in 0..100 {
        tokio::time::advance(secs(10 * 86_400)).await;
        clean(&store, keep, false).await;
    }
    assert_eq!(jobs_with_records(&store).await, names::<&str>([]));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_counts_the_same_where_a_job_was_cancelled_again() {
    let (store, job) = (memory::store(), Steps::default());
    let id = enqueue_as(&store, "mine", Plan::new(3, 10)).await;
    cancel(&store, &id).await;
    let worker = start(&store, &job);
    emptied(&store, secs(60)).await;
    worker.stop().await;
    tokio::time::sleep(secs(29 * 86_400)).await;
    assert_eq!(cancel(&store, &id).await, Cancel::Cancelled);
    tokio::time::sleep(secs(3 * 86_400)).await;
    let dry = clean(&store, Keep::default(), true).await;
    let wet = clean(&store, Keep::default(), false).await;
    assert_eq!(dry, wet);
}
