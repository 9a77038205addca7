//! A complete worker. Its job counts, and can be stopped between steps and continued elsewhere.

use reprieve::{Job, JobContext, JobError, Step, async_trait};

// Its fields are shared by all jobs of a worker: a client, a loaded model.
struct CountTo;

#[async_trait]
impl Job for CountTo {
    const KIND: &'static str = "count-to"; // messages ask for it by name; once in use, keep it
    type Args = u64; // the arguments in the message; usually a struct that derives `Deserialize`
    type Checkpoint = u64; // everything the next step needs; a struct also derives `Serialize`
    type Output = u64; // stored as results/<job>.json; `()` stores nothing

    // Returns the initial state. Work belongs in steps: only steps can be stopped.
    fn begin(&self, _to: &u64) -> u64 {
        0
    }

    // Does a piece of work and returns the next state. A step may run again after a crash, so its
    // effects must be idempotent, as `cx.put_output` is. Return `JobError::retry` for a temporary
    // failure and `JobError::fatal` for a permanent one.
    async fn step(&self, cx: &JobContext, to: &u64, at: u64) -> Result<Step<u64, u64>, JobError> {
        cx.progress(at, *to); // shown by `reprieve status`
        tokio::time::sleep(std::time::Duration::from_millis(10)).await; // your work, at most 2 s
        Ok(if at >= *to { Step::Done(at) } else { Step::Continue(at + 1) })
    }
}

// Add a `.job(…)` for each kind of job that this worker runs.
fn main() -> std::process::ExitCode {
    reprieve::run(|worker| worker.job(CountTo))
}

#[test]
fn survives() {
    let report = reprieve::testing::Harness::new(CountTo).args(&5).points(5).check();
    assert_eq!(report.steps(), 6);
}
