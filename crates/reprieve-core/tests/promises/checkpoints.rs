//! Promises 4 and 6: a zombie can't corrupt its successor, and a checkpoint is never half a checkpoint.

use std::sync::Arc;

use reprieve_core::attempts::Baseline;
use reprieve_core::checkpoint::{Checkpoints, Header, open, seal};
use reprieve_core::memory::{self, Fault, Faults, Op};
use reprieve_core::ports::Store;
use reprieve_core::{ErrorKind, Fence, JobId, Writer};

use reprieve_core::ports::{NewMessage, Release};
use serde_json::json;

use crate::support::*;

fn hand(store: &Store, job: &JobId, dequeues: u32) -> Checkpoints {
    let writer = Writer { job: job.clone(), fence: Fence::new(0, dequeues) };
    Checkpoints::new(Arc::clone(&store.checkpoints), writer, "steps", 1)
}

/// The newest slot of `job` and what is in it.
async fn newest(store: &Store, job: &JobId) -> (String, Header, Vec<u8>) {
    let mut found = Vec::new();
    for slot in 0..2 {
        let key = format!("{job}/{slot}");
        if let Some(stored) = store.checkpoints.load(&key).await.unwrap() {
            let (header, payload) = open(&stored.bytes).unwrap();
            found.push((header.sequence, (key, header.clone(), payload.to_vec())));
        }
    }
    found.sort_by_key(|(sequence, _)| *sequence);
    found.pop().expect("there is a checkpoint").1
}

async fn overwrite(store: &Store, key: &str, bytes: Vec<u8>) {
    let stored = store.checkpoints.load(key).await.unwrap();
    store.checkpoints.save(key, stored.map(|stored| stored.version).as_ref(), bytes).await.unwrap();
}

/// Runs a job of 60 steps past some checkpoints and kills its worker.
async fn half_done(store: &Store, job: &Steps) -> JobId {
    let ids = enqueue(store, &[Plan::new(60, 500)]).await;
    let worker = start(store, job);
    within(secs(60), "half way", async || job.trace.steps(&ids[0]).len() == 40).await;
    worker.kill().await;
    ids[0].clone()
}

#[tokio::test(start_paused = true)]
async fn a_torn_or_damaged_checkpoint_costs_one_interval_not_the_job() {
    let damages: [fn(Vec<u8>) -> Vec<u8>; 3] = [
        |mut bytes| {
            bytes.truncate(bytes.len() / 2);
            bytes
        },
        |mut bytes| {
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            bytes
        },
        |_| Vec::new(),
    ];
    for damage in damages {
        let (store, job) = (memory::store(), Steps::default());
        let id = half_done(&store, &job).await;
        let (key, ..) = newest(&store, &id).await;
        let whole = store.checkpoints.load(&key).await.unwrap().unwrap().bytes;
        overwrite(&store, &key, damage(whole)).await;
        let _next = start(&store, &job);
        emptied(&store, secs(300)).await;
        assert!((1..=24).contains(&job.trace.redone()), "{} steps redone", job.trace.redone());
        assert_eq!(poisoned(&store).await, Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn with_both_checkpoints_damaged_the_job_begins_again() {
    let (store, job) = (memory::store(), Steps::default());
    let id = half_done(&store, &job).await;
    for slot in 0..2 {
        overwrite(&store, &format!("{id}/{slot}"), b"not a checkpoint".to_vec()).await;
    }
    let _next = start(&store, &job);
    emptied(&store, secs(300)).await;
    assert_eq!(job.trace.redone(), 40);
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_of_a_newer_binary_is_left_for_one_and_not_poisoned() {
    let (store, job) = (memory::store(), Steps::default());
    let id = half_done(&store, &job).await;
    let (key, header, payload) = newest(&store, &id).await;
    overwrite(&store, &key, seal(&Header { schema: 2, ..header.clone() }, &payload)).await;
    let worker = start(&store, &job);
    tokio::time::sleep(secs(3600)).await;
    assert_eq!((total(&store).await, poisoned(&store).await), (1, vec![]), "an hour of putting it back");
    assert_eq!(job.trace.redone(), 0);
    overwrite(&store, &key, seal(&header, &payload)).await;
    emptied(&store, secs(300)).await;
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_whose_shape_changed_unannounced_fails_the_job_and_is_kept() {
    let (store, job) = (memory::store(), Steps::default());
    let id = half_done(&store, &job).await;
    let (key, header, _) = newest(&store, &id).await;
    overwrite(&store, &key, seal(&header, br#"{"renamed":3}"#)).await;
    let _next = start(&store, &job);
    emptied(&store, secs(900)).await;
    let reasons = poisoned(&store).await;
    assert!(reasons[0].contains("does not fit this binary"), "{reasons:?}");
    assert_eq!(newest(&store, &id).await.2, br#"{"renamed":3}"#, "progress is never thrown away unasked");
}

#[tokio::test(start_paused = true)]
async fn an_owner_before_the_newest_is_refused_whichever_slot_it_writes() {
    for saves_before in 0..5 {
        let store = memory::store();
        let id = JobId::unique();
        let mut zombie = hand(&store, &id, 1);
        for n in 0..saves_before {
            zombie.save(format!("old {n}").as_bytes(), Baseline::default()).await.unwrap();
        }
        let mut successor = hand(&store, &id, 2);
        successor.load().await.unwrap();
        successor.save(b"claimed", Baseline::default()).await.unwrap();

        let refused = zombie.save(b"zombie", Baseline::default()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Superseded, "after {saves_before} saves");
        assert_eq!(newest(&store, &id).await.2, b"claimed");
        successor.save(b"moved on", Baseline::default()).await.unwrap();
        assert_eq!(newest(&store, &id).await.2, b"moved on");
    }
}

#[tokio::test(start_paused = true)]
async fn an_older_owner_that_writes_between_a_load_and_a_claim_is_overruled() {
    let store = memory::store();
    let id = JobId::unique();
    let mut zombie = hand(&store, &id, 1);
    zombie.save(b"1", Baseline::default()).await.unwrap();
    let mut successor = hand(&store, &id, 2);
    successor.load().await.unwrap();
    zombie.save(b"2", Baseline::default()).await.unwrap();
    successor.save(b"claimed", Baseline::default()).await.unwrap();
    let found = hand(&store, &id, 3).load().await.unwrap().newest.unwrap();
    assert_eq!((found.payload.as_slice(), found.header.fence), (&b"claimed"[..], Fence::new(0, 2)));
}

#[tokio::test(start_paused = true)]
async fn a_save_whose_answer_was_lost_is_known_again_by_its_nonce() {
    let inner = memory::store();
    let (store, faults) = Faults::wrap(inner.clone());
    let id = JobId::unique();
    let mut owner = hand(&store, &id, 1);
    owner.save(b"1", Baseline::default()).await.unwrap();
    faults.next_calls(Op::Save, 1, Fault::LoseAnswer);
    assert_eq!(owner.save(b"2", Baseline::default()).await.unwrap_err().kind(), ErrorKind::TimedOut);
    owner.save(b"3", Baseline::default()).await.unwrap();
    assert_eq!(newest(&inner, &id).await.2, b"3");
}

#[tokio::test(start_paused = true)]
async fn two_owners_with_the_same_fence_do_not_both_go_on() {
    let store = memory::store();
    let id = JobId::unique();
    let (mut one, mut twin) = (hand(&store, &id, 1), hand(&store, &id, 1));
    one.save(b"one", Baseline::default()).await.unwrap();
    assert_eq!(twin.save(b"twin", Baseline::default()).await.unwrap_err().kind(), ErrorKind::Superseded);
}

/// The whole story: a worker cut off from the queue loses its lease unknowingly late, another takes the job over and
/// finishes it, and nothing the first one wrote afterwards counts.
#[tokio::test(start_paused = true)]
async fn what_a_worker_publishes_after_its_lease_is_lost_never_replaces_its_successors() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let ids = enqueue(&inner, &[Plan::new(100, 500).habit(Habit::Publishes)]).await;
    let partitioned = start(&store, &job);
    tokio::time::sleep(secs(10)).await;
    // Its outputs are under way for minutes, and its renewals get no answer.
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
        // The first owner saved twice in its ten seconds; where exactly the second took over is not the point.
        match step {
            0..10 => assert_eq!(fence, "0.1", "output {step}"),
            22.. => assert_eq!(fence, "0.2", "output {step}"),
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_saves_fail_goes_on_and_saves_again_when_it_can() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    faults.every_call(Op::Save, Fault::Fail(ErrorKind::Full));
    let ids = enqueue(&inner, &[Plan::new(100, 500)]).await;
    let worker = start(&store, &job);
    tokio::time::sleep(secs(22)).await;
    assert!(job.trace.steps(&ids[0]).len() > 40);
    assert_eq!(faults.calls(Op::Save), 4, "one try an interval, not one a step");
    faults.clear_all();
    within(secs(10), "a save", async || {
        inner.checkpoints.load(&format!("{}/0", ids[0])).await.unwrap().is_some()
    })
    .await;
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

#[tokio::test(start_paused = true)]
async fn a_finished_job_leaves_no_checkpoint_behind() {
    let (store, job) = (memory::store(), Steps::default());
    let id = half_done(&store, &job).await;
    let worker = start(&store, &job);
    emptied(&store, secs(300)).await;
    worker.stop().await;
    for slot in 0..2 {
        assert_eq!(store.checkpoints.load(&format!("{id}/{slot}")).await.unwrap(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_newer_format_is_left_for_a_newer_binary() {
    let (store, job) = (memory::store(), Steps::default());
    let id = JobId::parse("j").unwrap();
    let body = json!({"specversion":"1.0","id":"j","source":"reprieve","type":"steps","data":Plan::new(10, 10),"reprieveinterrupted":20}).to_string();
    store.queue.send(vec![NewMessage { body: body.into_bytes(), delay: secs(0) }]).await.unwrap();
    for _ in 0..21 {
        let held = store.queue.receive(1, secs(60)).await.unwrap();
        store.queue.release(&held[0].receipt, &Release::default()).await.unwrap();
    }
    for slot in 0..2 {
        store
            .checkpoints
            .save(&format!("{id}/{slot}"), None, b"reprieve-checkpoint 2 whatever\n".to_vec())
            .await
            .unwrap();
    }
    let _worker = start(&store, &job);
    tokio::time::sleep(secs(30)).await;
    assert_eq!(poisoned(&store).await, Vec::<String>::new());
}
