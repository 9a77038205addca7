//! A worker's concurrency does not fall because storage was slow for a while.

use reprieve_core::memory::{self, Fault, Faults, ManualNotices, Op};
use reprieve_core::worker::Settings;
use tokio::time::Instant;

use crate::support::*;

/// Returns how long sixteen slots need for this number of one-minute jobs, with slow completions in
/// the first `slow_s` seconds.
async fn takes(jobs: usize, slow_s: u64) -> std::time::Duration {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    enqueue(&inner, &vec![Plan::new(1, 60_000); jobs]).await;
    let began = Instant::now();
    let wide = Settings { concurrency: 16, ..settings() };
    let worker = start_with(&store, &job, wide, ManualNotices::answered());
    if slow_s > 0 {
        tokio::time::sleep(secs(59)).await;
        faults.every_call(Op::Complete, Fault::Delay(secs(9)));
        tokio::time::sleep(secs(slow_s)).await;
        faults.clear_all();
    }
    emptied(&inner, secs(36_000)).await;
    let took = began.elapsed();
    worker.stop().await;
    took
}

#[tokio::test(start_paused = true)]
async fn completions_that_are_slow_for_a_while_do_not_lower_the_capacity() {
    let undisturbed = takes(320, 0).await;
    let disturbed = takes(320, 20).await;
    assert!(disturbed < undisturbed.mul_f64(1.1), "{disturbed:?} instead of {undisturbed:?}");
}
