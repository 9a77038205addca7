//! Promises 4 and 6: a zombie can't corrupt its successor's state, and a checkpoint is never
//! partial.

use reprieve_core::memory::{self, Fault, Faults, Op};
use reprieve_core::ports::Store;
use reprieve_core::record::{Checkpoint, ContentHash, INLINE_BYTES_MAX, Place, Record, seal};
use reprieve_core::{ErrorKind, JobId, PayloadName};

use crate::support::*;

/// Runs a job of 60 steps past some checkpoints and kills its worker.
async fn half_done(store: &Store, job: &Steps) -> JobId {
    half_done_of(store, job, Plan::new(60, 500)).await
}

async fn half_done_of(store: &Store, job: &Steps, plan: Plan) -> JobId {
    let ids = enqueue(store, &[plan]).await;
    let worker = start(store, job);
    within(secs(60), "half way", async || job.trace.steps(&ids[0]).len() == 40).await;
    worker.kill().await;
    ids[0].clone()
}

/// Replaces the state of a checkpoint, with a matching hash or the old one.
fn with_state(checkpoint: &Checkpoint, state: &[u8], fits: bool) -> Checkpoint {
    let sha256 = if fits { ContentHash::of(state) } else { checkpoint.sha256 };
    Checkpoint {
        bytes: state.len() as u64,
        sha256,
        place: Place::Inside(state.to_vec()),
        ..checkpoint.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_checkpoint_costs_one_interval_not_the_job() {
    for state in [&b""[..], b"3", b"not what was saved"] {
        let (store, job) = (memory::store(), Steps::default());
        let id = half_done(&store, &job).await;
        rewrite(&store, &id, |record| {
            record.checkpoints[0] = with_state(&record.checkpoints[0], state, false);
        })
        .await;
        let _next = start(&store, &job);
        emptied(&store, secs(300)).await;
        assert!((1..=24).contains(&job.trace.redone()), "{} steps redone", job.trace.redone());
        assert_eq!(poisoned(&store).await, Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_checkpoint_that_is_missing_or_torn_costs_one_interval_not_the_job() {
    let torn: [fn(&mut Vec<u8>); 3] =
        [Vec::clear, |state| state.truncate(state.len() / 2), |state| state[0] ^= 1];
    for tear in torn {
        let (store, job) = (memory::store(), Steps::default());
        let id =
            half_done_of(&store, &job, Plan { padding: INLINE_BYTES_MAX * 3, ..Plan::new(60, 500) }).await;
        let newest = record(&store, &id).await.unwrap().checkpoints[0].clone();
        let Place::Payload(name) = &newest.place else { panic!("{newest:?} is a payload") };
        let mut state = store.records.payload(&id, name).await.unwrap().expect("it is there").to_vec();
        tear(&mut state);
        replace_payload(&store, &id, name, state).await;
        let _next = start(&store, &job);
        emptied(&store, secs(300)).await;
        assert!((1..=24).contains(&job.trace.redone()), "{} steps redone", job.trace.redone());
        assert_eq!(poisoned(&store).await, Vec::<String>::new());
    }
}

/// Replaces the bytes of a payload; `None` removes it.
async fn replace_payload(store: &Store, job: &JobId, name: &PayloadName, bytes: Vec<u8>) {
    use reprieve_core::ports::{Payload, RecordWrite};
    let record = seal(&record(store, job).await.unwrap());
    let put = async |payload, obsolete| {
        let version = store.records.load(job).await.unwrap().unwrap().version;
        let write = RecordWrite { record: record.clone(), payload, obsolete, ..RecordWrite::default() };
        store.records.put(job, Some(&version), write).await.unwrap();
    };
    put(None, vec![name.clone()]).await;
    if !bytes.is_empty() {
        put(Some(Payload { name: name.clone(), bytes: bytes.into() }), Vec::new()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn with_both_checkpoints_damaged_or_the_record_itself_the_job_begins_again() {
    for whole_record in [false, true] {
        let (store, job) = (memory::store(), Steps::default());
        let id = half_done(&store, &job).await;
        if whole_record {
            overwrite(&store, &id, b"not a record".to_vec()).await;
        } else {
            rewrite(&store, &id, |record| {
                let damaged = |checkpoint: &Checkpoint| with_state(checkpoint, b"not it", false);
                record.checkpoints = record.checkpoints.iter().map(damaged).collect();
            })
            .await;
        }
        let next = start(&store, &job);
        emptied(&store, secs(300)).await;
        assert_eq!(job.trace.redone(), 40);
        let metrics = next.monitor.telemetry().encode();
        assert!(!metrics.contains("reprieve_checkpoints_unreadable_total 0"), "the damage is counted");
    }
}

/// The checksum covers the format digit, so that one flipped bit is damage and no newer format.
#[tokio::test(start_paused = true)]
async fn a_flipped_bit_in_the_format_of_a_record_defers_nothing() {
    let (store, job) = (memory::store(), Steps::default());
    let id = half_done(&store, &job).await;
    let mut bytes = store.records.load(&id).await.unwrap().unwrap().bytes;
    let digit = bytes.iter().position(|byte| *byte == b'\n').map(|end| bytes[..end].to_vec()).unwrap();
    let digit = digit.windows(3).position(|window| window == b" 1 ").unwrap() + 1;
    bytes[digit] ^= 2;
    overwrite(&store, &id, bytes).await;
    let _next = start(&store, &job);
    emptied(&store, secs(120)).await;
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_of_a_newer_binary_is_left_for_one_and_not_poisoned() {
    let (store, job) = (memory::store(), Steps::default());
    let id = half_done(&store, &job).await;
    rewrite(&store, &id, |record| record.checkpoints[0].schema = 2).await;
    let worker = start(&store, &job);
    tokio::time::sleep(secs(3600)).await;
    assert_eq!((total(&store).await, poisoned(&store).await), (1, vec![]), "an hour of deferring it");
    assert_eq!(job.trace.redone(), 0);
    rewrite(&store, &id, |record| record.checkpoints[0].schema = 1).await;
    emptied(&store, secs(600)).await;
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_with_an_unannounced_format_is_deferred_then_dead_lettered_with_the_reason() {
    let (store, job) = (memory::store(), Steps::default());
    let id = half_done(&store, &job).await;
    let renamed = br#"{"renamed":3}"#;
    rewrite(&store, &id, |record| {
        record.checkpoints[0] = with_state(&record.checkpoints[0], renamed, true);
    })
    .await;
    let _next = start(&store, &job);
    tokio::time::sleep(secs(9 * 60)).await;
    assert_eq!(total(&store).await, 1, "a worker that can read it may come later");
    emptied(&store, secs(900)).await;
    let reasons = poisoned(&store).await;
    assert!(reasons[0].contains("does not fit kind \"steps\""), "{reasons:?}");
    let kept = record(&store, &id).await.unwrap().checkpoints[0].place.clone();
    assert_eq!(kept, Place::Inside(renamed.to_vec()), "progress is never discarded without a request");
}

/// A worker that is cut off from the queue loses its lease without noticing in time. Another worker
/// takes over the job and finishes it. Nothing that the first worker wrote afterwards counts.
#[tokio::test(start_paused = true)]
async fn a_worker_without_its_lease_never_replaces_its_successors_output() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let ids = enqueue(&inner, &[Plan::new(100, 500).habit(Habit::Publishes)]).await;
    let partitioned = start(&store, &job);
    tokio::time::sleep(secs(10)).await;
    // Its outputs are in progress for minutes, and its renewals get no response.
    faults.every_call(Op::Put, Fault::Delay(secs(90)));
    faults.every_call(Op::Save, Fault::Delay(secs(90)));
    faults.every_call(Op::Renew, Fault::Hang);
    faults.every_call(Op::Receive, Fault::Hang);
    tokio::time::sleep(secs(55)).await;
    let _successor = start(&inner, &job);
    emptied(&inner, secs(600)).await;
    tokio::time::sleep(secs(200)).await;
    drop(partitioned);
    for step in 0..100 {
        let name = reprieve_core::BlobName::parse(format!("out/{}/{step}", ids[0])).unwrap();
        let fence = inner.blobs.get(&name).await.unwrap().expect("every output is there");
        let fence = String::from_utf8(fence).unwrap();
        // The first owner saved twice in its ten seconds; the exact takeover step does not matter.
        match step {
            0..10 => assert_eq!(fence, "0.1", "output {step}"),
            22.. => assert_eq!(fence, "0.2", "output {step}"),
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_with_failing_saves_continues_and_saves_again_when_it_can() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    faults.every_call(Op::Save, Fault::Fail(ErrorKind::Full));
    let ids = enqueue(&inner, &[Plan::new(100, 500)]).await;
    let worker = start(&store, &job);
    tokio::time::sleep(secs(22)).await;
    assert!(job.trace.steps(&ids[0]).len() > 40);
    assert_eq!(faults.calls(Op::Save), 4, "one try an interval, not one a step");
    faults.clear_all();
    within(secs(10), "a save", async || record(&inner, &ids[0]).await.is_some()).await;
    worker.kill().await;
    let _next = start(&inner, &job);
    emptied(&inner, secs(300)).await;
    assert!(job.trace.redone() <= 11);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_cannot_save_at_its_interruption_is_released_on_its_last_checkpoint() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let ids = enqueue(&inner, &[Plan::new(100, 500)]).await;
    let worker = start(&store, &job);
    within(secs(60), "half way", async || job.trace.steps(&ids[0]).len() == 50).await;
    faults.every_call(Op::Save, Fault::Fail(ErrorKind::Full));
    let report = worker.evict(secs(30)).await;
    assert_eq!(report.released_cut, 1, "{report:?}");
    assert!((3000..4000).contains(&report.released_after_ms), "it tried until the soft mark: {report:?}");
    worker.kill().await;
    let _next = start(&inner, &job);
    emptied(&inner, secs(300)).await;
    assert!((1..=11).contains(&job.trace.redone()), "{} steps redone", job.trace.redone());
}

/// A save without a response at the soft mark may or may not have been applied.
#[tokio::test(start_paused = true)]
async fn a_save_without_an_answer_at_the_report_counts_as_unknown_and_not_as_lost() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let ids = enqueue(&inner, &[Plan::new(100, 500); 2]).await;
    let worker = start(&store, &job);
    within(secs(60), "half way", async || job.trace.steps(&ids[1]).len() == 44).await;
    faults.every_call(Op::Save, Fault::LoseAnswer);
    let report = worker.evict(secs(1)).await;
    assert_eq!(
        (report.released_unconfirmed, report.released_cut, report.work_lost_ms),
        (2, 0, 0),
        "{report:?}"
    );
    assert!(report.work_unconfirmed_ms > 0, "{report:?}");
    worker.kill().await;
    let _next = start(&inner, &job);
    emptied(&inner, secs(300)).await;
    assert_eq!(job.trace.redone(), 0, "the saves were applied");
}

#[tokio::test(start_paused = true)]
async fn a_finished_job_leaves_no_record_behind() {
    let (store, job) = (memory::store(), Steps::default());
    let id = half_done_of(&store, &job, Plan { padding: INLINE_BYTES_MAX * 3, ..Plan::new(60, 500) }).await;
    let saved: Record = record(&store, &id).await.unwrap();
    assert_eq!(saved.payloads().len(), 2);
    let worker = start(&store, &job);
    emptied(&store, secs(300)).await;
    worker.stop().await;
    assert_eq!(record(&store, &id).await, None);
    for payload in saved.payloads() {
        assert_eq!(store.records.payload(&id, &payload).await.unwrap(), None, "{payload}");
    }
}

/// The cost of a claim does not depend on the size of the state.
#[tokio::test(start_paused = true)]
async fn a_claim_at_twenty_megabytes_of_state_is_one_small_write() {
    let (inner, job) = (memory::store(), Steps::default());
    let plan = Plan { padding: 20 << 20, ..Plan::new(4, 6_000) };
    let ids = enqueue(&inner, &[plan]).await;
    let worker = start(&inner, &job);
    within(secs(60), "two saves", async || job.trace.steps(&ids[0]).len() == 2).await;
    tokio::time::sleep(secs(1)).await;
    worker.kill().await;
    let (store, faults) = Faults::wrap(inner.clone());
    let _next = start(&store, &job);
    faults.called(Op::Save, 1).await;
    tokio::time::sleep(ms(1)).await;
    let claimed = inner.records.load(&ids[0]).await.unwrap().unwrap().bytes;
    assert!(claimed.len() < 64 * 1024, "{} bytes", claimed.len());
    assert_eq!(faults.calls(Op::Save), 1);
    emptied(&inner, secs(300)).await;
}

#[tokio::test(start_paused = true)]
async fn a_newer_format_is_left_for_a_newer_binary() {
    let (store, job) = (memory::store(), Steps::default());
    let id = half_done(&store, &job).await;
    let rest = b" 2 whatever\n";
    let newer = [b"reprieve-record ", format!("{:08x}", crc32fast::hash(rest)).as_bytes(), rest].concat();
    overwrite(&store, &id, newer.clone()).await;
    let _worker = start(&store, &job);
    tokio::time::sleep(secs(7200)).await;
    assert_eq!((total(&store).await, poisoned(&store).await), (1, vec![]));
    assert_eq!(store.records.load(&id).await.unwrap().unwrap().bytes, newer, "the record is unchanged");
}
