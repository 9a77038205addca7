//! Every settlement is reported as what it was, whatever answers are lost or late.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reprieve_core::memory::{self, Fault, Faults, ManualNotices, Op};
use reprieve_core::process::Gate;
use reprieve_core::worker::Settings;

use crate::support::*;

fn random_fault(rng: &mut SmallRng, late_max_ms: u64) -> Fault {
    let late = ms(rng.random_range(1..late_max_ms));
    [Fault::LateAnswer(late), Fault::LoseAnswer, Fault::Delay(late)][rng.random_range(0..3)]
}

/// Only this worker receives, so a message that is gone was settled by it.
#[tokio::test(start_paused = true)]
async fn a_single_worker_counts_every_settlement_as_what_it_was() {
    for seed in 0..60 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        let habit = [Habit::Works, Habit::FatalAt(1), Habit::FailsAt(1)][rng.random_range(0..3)];
        let plan = Plan::new(2, rng.random_range(200..15_000)).habit(habit);
        enqueue(&inner, &[plan]).await;
        for op in [Op::Complete, Op::Release, Op::DeadLetter] {
            for _ in 0..rng.random_range(1..3) {
                faults.next_calls(op, 1, random_fault(&mut rng, 12_000));
            }
        }
        if rng.random_bool(0.5) {
            let late = ms(rng.random_range(100..14_000));
            faults.next_calls(
                Op::Renew,
                1,
                [Fault::LateAnswer(late), Fault::Delay(late)][rng.random_range(0..2)],
            );
        }
        let worker = start(&store, &job);
        tokio::time::sleep(ms(rng.random_range(0..40_000))).await;
        let report = worker.evict(secs(30)).await;
        tokio::time::sleep(secs(15)).await;
        let dead_lettered = poisoned(&inner).await.len() as u64;
        let is_completed = total(&inner).await == 0 && dead_lettered == 0;
        let counted = ["completed", "dead_lettered", "lease_lost", "abandoned"].map(|it| worker.ended(it));
        assert_eq!(
            counted,
            [u64::from(is_completed), dead_lettered, 0, 0],
            "seed {seed}, {plan:?}: {report:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_workers_one_counts_the_completion_also_around_a_freeze() {
    for seed in 0..40 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        enqueue(&inner, &[Plan::new(4, rng.random_range(200..3_000))]).await;
        let gate = Gate::new();
        let settings = Settings { lease: secs(6), budget: secs(3), ..settings() };
        let fault = if rng.random_bool(0.3) { Fault::Hang } else { random_fault(&mut rng, 3_000) };
        faults.next_calls(Op::Complete, 1, fault);
        let first = start_in(&gate, &store, &job, settings.clone());
        faults.called(Op::Complete, 1).await;
        tokio::time::sleep(ms(rng.random_range(0..2_000))).await;
        gate.freeze();
        let second = start_with(&inner, &job, settings, ManualNotices::answered());
        tokio::time::sleep(ms(rng.random_range(1_000..20_000))).await;
        gate.thaw();
        faults.clear(Op::Complete);
        emptied(&inner, secs(120)).await;
        tokio::time::sleep(secs(20)).await;
        let completed = first.ended("completed") + second.ended("completed");
        assert_eq!(completed, 1, "seed {seed}, {fault:?}");
    }
}

/// The poison queue takes the letter before the message is removed, so a second try sends a second one.
#[tokio::test(start_paused = true)]
async fn a_dead_letter_under_way_when_a_drain_begins_is_not_sent_again() {
    for (preempted, late) in
        [(false, 60), (false, 900), (false, 4_000), (true, 60), (true, 900), (true, 4_000)]
    {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        faults.every_call(Op::DeadLetter, Fault::LateAnswer(ms(late)));
        enqueue(&inner, &[Plan::new(2, 10).habit(Habit::FatalAt(0)); 16]).await;
        let worker =
            start_with(&store, &job, Settings { concurrency: 16, ..settings() }, ManualNotices::answered());
        faults.called(Op::DeadLetter, 16).await;
        if preempted {
            let report = worker.evict(secs(30)).await;
            assert_eq!(report.abandoned, 0, "{report:?}");
        } else {
            worker.stop().await;
        }
        let counts = (poisoned(&inner).await.len(), faults.calls(Op::DeadLetter));
        assert_eq!(counts, (16, 16), "preempted {preempted}, answered after {late} ms");
    }
}
