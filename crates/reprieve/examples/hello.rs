//! A whole worker: counts, in steps between which it can be cut, saved and carried on elsewhere.
//!
//! ```text
//! reprieve enqueue count-to --args 1000
//! cargo run --example hello -- --metadata-url off
//! reprieve status --watch
//! ```

use std::time::Duration;

use reprieve::{Job, JobContext, JobError, Step, async_trait};

struct CountTo;

#[async_trait]
impl Job for CountTo {
    const KIND: &'static str = "count-to";
    type Args = u64;
    type Checkpoint = u64;
    type Output = u64;

    fn begin(&self, _to: &u64) -> u64 {
        0
    }

    async fn step(&self, cx: &JobContext, to: &u64, at: u64) -> Result<Step<u64, u64>, JobError> {
        cx.progress(at, *to);
        if at >= *to {
            return Ok(Step::Done(at));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        Ok(Step::Continue(at + 1))
    }
}

fn main() -> std::process::ExitCode {
    reprieve::run(|worker| worker.job(CountTo))
}
