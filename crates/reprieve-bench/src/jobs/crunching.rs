//! Jobs that compute, and one that measures what that does to its own timers.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Duration;

use reprieve::{Job, JobContext, JobError, Step, async_trait};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};

use super::large::next_float;
use super::note;

/// The work of a step: some 20 ms.
const FLOATS: u32 = 5_000_000;

/// Computes, step after step, until its worker ends.
#[derive(Debug)]
pub struct Crunches;

/// The arguments of [`Crunches`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CrunchesArgs {
    /// Whether it computes in the step itself, and not by [`JobContext::compute`].
    pub in_step: bool,
    /// The journal's path.
    pub journal: PathBuf,
}

/// Waits for 10 ms again and again. Its output is how much later each wait ended, and what a call of
/// [`JobContext::compute`] costs.
#[derive(Debug)]
pub struct Waits;

/// The arguments of [`Waits`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WaitsArgs {
    /// The number of waits.
    pub waits: u32,
    /// The number of calls.
    pub calls: u32,
}

/// The output of [`Waits`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Waited {
    /// How late each wait ended, in milliseconds.
    pub late_ms: Vec<f64>,
    /// The time of a call that does nothing, in microseconds.
    pub call_us: f64,
}

fn crunch() -> f64 {
    (0..FLOATS).fold(0.1, |float, _| next_float(black_box(float)))
}

#[async_trait]
impl Job for Crunches {
    const KIND: &'static str = "crunches";
    type Args = CrunchesArgs;
    type Checkpoint = u64;
    type Output = ();

    fn begin(&self, _: &CrunchesArgs) -> u64 {
        0
    }

    async fn step(&self, cx: &JobContext, args: &CrunchesArgs, at: u64) -> Result<Step<u64, ()>, JobError> {
        if at == 0 {
            note(&args.journal, 0).map_err(JobError::retry)?;
        }
        black_box(if args.in_step { crunch() } else { cx.compute(crunch).await });
        Ok(Step::Continue(at + 1))
    }
}

#[async_trait]
impl Job for Waits {
    const KIND: &'static str = "waits";
    type Args = WaitsArgs;
    type Checkpoint = ();
    type Output = Waited;

    fn begin(&self, _: &WaitsArgs) {}

    async fn step(&self, cx: &JobContext, args: &WaitsArgs, (): ()) -> Result<Step<(), Waited>, JobError> {
        let mut late_ms = Vec::new();
        for _ in 0..args.waits {
            let due = Instant::now() + Duration::from_millis(10);
            sleep_until(due).await;
            late_ms.push(due.elapsed().as_secs_f64() * 1e3);
        }
        let began = Instant::now();
        for _ in 0..args.calls {
            cx.compute(|| ()).await;
        }
        let call_us = began.elapsed().as_secs_f64() * 1e6 / f64::from(args.calls.max(1));
        Ok(Step::Done(Waited { late_ms, call_us }))
    }
}
