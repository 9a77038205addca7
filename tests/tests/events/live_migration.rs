//! The live migration of two VMs, exactly as in Azure's documentation.
//! <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#example-responses>

use std::time::Duration;

use reprieve_azure::scheduled_events::document::EventType;
use reprieve_core::clock::unix_millis;
use reprieve_sim::metadata::{EventPlan, Span};
use reprieve_tests::until;
use rustix::process::Signal;
use serde_json::Value;
use tokio::time::sleep;

use crate::support::{PATIENCE, Set, event, logs, secs, sees_the_start, stages, walk};

/// The documents as printed there, in order.
const DOCUMENTS: &str = include_str!("live_migration.txt");

const NAMES: [&str; 2] = ["WestNO_0", "WestNO_1"];

/// Long enough that a job is in flight in each phase.
const STEPS: u64 = 140;

/// The migration with the printed `NotBefore`, which has passed, so that it may start at any
/// moment. Or with one in the future, as it was when the document was printed.
async fn replayed(not_before_has_passed: bool) {
    let documents = serde_json::Deserializer::from_str(DOCUMENTS).into_iter::<Value>();
    let documents: Vec<_> = documents.collect::<Result<_, _>>().expect("JSON");
    let [idle, mut scheduled, started, over] = documents.try_into().expect("four documents");
    let printed = &scheduled["Events"][0];
    let text = |field: &str| printed[field].as_str().expect("text").to_owned();
    let plan = EventPlan {
        duration: Some(Span(secs(printed["DurationInSeconds"].as_u64().expect("a number")))),
        description: text("Description"),
        event_id: Some(text("EventId")),
        not_before: not_before_has_passed.then(|| text("NotBefore")),
        ..event(EventType::Freeze, &NAMES, Duration::from_mins(15))
    };

    let set = Set::of(&NAMES).await;
    let document = || serde_json::to_value(set.mock.state().document).expect("JSON");
    assert_eq!(document(), idle);
    let flags = ["--approve", "leader", "--concurrency", "1", "--lease", "3s"];
    let workers = NAMES.map(|vm| set.worker(vm, &flags));
    let jobs = [set.enqueue(walk(STEPS)).await, set.enqueue(walk(STEPS)).await];
    let begun = async || {
        let steps = set.sandbox.journal().read();
        workers
            .iter()
            .all(|worker| steps.iter().filter(|step| step.pid == worker.pid()).count() > 4)
            .then_some(())
    };
    until("each has a job", PATIENCE, begun).await;

    let id = set.announce(&plan);
    if !not_before_has_passed {
        scheduled["Events"][0]["NotBefore"] = document()["Events"][0]["NotBefore"].clone();
    }
    assert_eq!(document(), scheduled);
    set.were_ready(&id, &["westno_0", "westno_1"]).await;
    let approved = set.approved(&id).await;
    let leases = set.leases();
    assert!(leases.iter().all(|end| *end >= approved + 13_000), "{leases:?} from {approved} on");
    assert_eq!(document(), started, "it starts when approved");
    // This is the freeze. No lease would outlast it by itself, and the workers see its start only
    // after its end.
    for worker in &workers {
        worker.signal(Signal::STOP);
    }
    sleep(secs(4)).await;
    for worker in &workers {
        worker.signal(Signal::CONT);
    }
    for worker in &workers {
        sees_the_start(worker).await;
    }
    set.complete(&id);
    assert_eq!(document(), over);

    for worker in &workers {
        let verified = logs(worker, "the freeze has ended; verifying every lease").await;
        assert_eq!(verified.number("leases"), 1);
        assert_eq!(stages(worker), ["resume", "start"], "both worked all the time");
    }
    let mut by = Vec::new();
    for job in &jobs {
        let walked = set.done(job).await;
        assert_eq!((walked.sum, walked.delivery), (STEPS * (STEPS - 1) / 2, 1));
        by.push(walked.pid);
    }
    by.sort_unstable();
    let mut pids = workers.each_ref().map(reprieve_tests::Worker::pid);
    pids.sort_unstable();
    assert_eq!(by, pids);
    assert_eq!(set.sandbox.journal().redone(), 0);
    assert_eq!(set.approvers(&id), ["WestNO_0"], "the first named, for both");
    assert!(set.event(&id).ends_at_unix_ms.is_some_and(|end| end <= unix_millis()));
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test]
async fn two_machines_are_migrated_live_as_documented_and_neither_loses_its_job() {
    // Run the cases at the same time: they mostly wait.
    tokio::join!(replayed(true), replayed(false));
}
