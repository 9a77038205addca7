//! A whole worker: counts, in steps between which it can be cut, saved and carried on elsewhere.

use reprieve::{Job, JobContext, JobError, Step, async_trait};

// Fields of it are what all jobs of a worker share: a client, a model that was loaded once.
struct CountTo;

#[async_trait]
impl Job for CountTo {
    const KIND: &'static str = "count-to"; // what messages ask for; renaming it strands what is queued
    type Args = u64; // what a message says; a struct that derives `Deserialize`
    type Checkpoint = u64; // everything needed to go on, on another machine; a small struct with `Serialize` as well
    type Output = u64; // kept as results/<job>.json; `()` keeps nothing

    // Where a job begins. It does no work: that is for steps, which can be cut.
    fn begin(&self, _to: &u64) -> u64 {
        0
    }

    // From `at` to the next place worth saving. What it does outside may be done twice, after a crash; `cx.put_output`
    // bears that. An error is `JobError::retry` for what may pass, `JobError::fatal` for what will not.
    async fn step(&self, cx: &JobContext, to: &u64, at: u64) -> Result<Step<u64, u64>, JobError> {
        cx.progress(at, *to); // for `reprieve status`
        tokio::time::sleep(std::time::Duration::from_millis(10)).await; // your work, two seconds of it or less
        Ok(if at >= *to { Step::Done(at) } else { Step::Continue(at + 1) })
    }
}

// One `.job(…)` for each kind of job this worker can do.
fn main() -> std::process::ExitCode {
    reprieve::run(|worker| worker.job(CountTo))
}
