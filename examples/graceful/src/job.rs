//! The job: one run of the simulator per step, which may take minutes and can be stopped half way.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reprieve::{Job, JobContext, JobError, Step};
use serde::{Deserialize, Serialize};

use crate::program::{Program, SAVED};
use crate::scratch::Scratch;
use crate::simulator::{STATE, Thrown};

/// The longest a program may take to save and end when it is told to. A step that has not returned three seconds after
/// the notice is cut off, and what its program saved is lost with it; [`reprieve::SOFT_MARK`] says when exactly.
const GRACE: Duration = Duration::from_secs(2);

/// Estimates pi by throwing darts.
pub(crate) struct EstimatePi {
    /// The program to run, and its first arguments.
    pub(crate) simulator: Vec<OsString>,
    /// Where directories for its files are made.
    pub(crate) scratch: PathBuf,
}

/// What a job is asked for.
#[derive(Debug, Deserialize)]
pub(crate) struct Plan {
    /// How many darts each simulation throws.
    throws: u64,
    /// A simulation for each.
    seeds: Vec<u64>,
}

/// How far a job is.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct At {
    /// How many simulations are through, and what they came to.
    simulations: usize,
    sum: Thrown,
    /// What the one that was stopped half way had saved. Where that is megabytes, make it an output by
    /// [`JobContext::put_output`] and keep only its name here.
    partial: Option<Thrown>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Estimate {
    pi: f64,
    #[serde(flatten)]
    thrown: Thrown,
}

#[reprieve::async_trait]
impl Job for EstimatePi {
    const KIND: &'static str = "estimate-pi";
    type Args = Plan;
    type Checkpoint = At;
    type Output = Estimate;

    fn begin(&self, _: &Plan) -> At {
        At::default()
    }

    async fn step(&self, cx: &JobContext, plan: &Plan, mut at: At) -> Result<Step<At, Estimate>, JobError> {
        let Some(seed) = plan.seeds.get(at.simulations) else {
            return Ok(Step::Done(Estimate { pi: at.sum.pi(), thrown: at.sum }));
        };
        // These two clean up when they are dropped: at the end of this function, at every `?`, and at any `.await`, because
        // that is where a step is dropped whose lease is lost or that has not yielded in time, and no line after it runs.
        // The program, which is made last, goes first.
        let scratch = Scratch::new(&self.scratch, cx).map_err(JobError::retry)?;
        if let Some(partial) = &at.partial {
            write(&scratch.path().join(STATE), partial).map_err(JobError::retry)?;
        }
        let arguments = [seed.to_string(), plan.throws.to_string()];
        let mut program =
            Program::start(&self.simulator, &arguments, scratch.path()).map_err(JobError::retry)?;
        let from = at.partial.as_ref().map_or(0, |partial| partial.thrown);
        tracing::info!(job = %cx.job(), seed, from, pid = program.pid(), "a simulation runs");

        let total = plan.throws.saturating_mul(plan.seeds.len() as u64);
        let ended = tokio::select! {
            ended = program.run(|done| cx.progress(at.sum.thrown.saturating_add(done), total)) => ended,
            () = cx.interrupted() => program.stop(grace(cx.time_left())).await,
        };
        let status = ended.map_err(JobError::retry)?;
        match status.code() {
            Some(0) => {
                at.sum.add(&read(&scratch.path().join(STATE)).map_err(JobError::retry)?);
                at.simulations += 1;
                at.partial = None;
                Ok(Step::Continue(at))
            }
            // Also when this worker has not heard of it yet: a machine that shuts down tells all processes at once.
            Some(code) if code == i32::from(SAVED) => {
                let partial = Some(read(&scratch.path().join(STATE)).map_err(JobError::retry)?);
                if partial == at.partial && !cx.is_interrupted() {
                    return Err(JobError::retry(
                        "the simulator stopped where it had begun, and nobody asked it to",
                    ));
                }
                at.partial = partial;
                Ok(Step::Continue(at))
            }
            // A program that was stopped has not failed. It begins again where it began.
            _ if cx.is_interrupted() => Ok(Step::Continue(at)),
            _ => Err(failure(status, &program.last_words())),
        }
    }
}

/// A quarter of what is left, so that the checkpoint can still be saved and the job be released.
fn grace(left: Option<Duration>) -> Duration {
    left.map_or(GRACE, |left| GRACE.min(left / 4))
}

/// Whether another try helps, by the exit code: 2 (wrong usage), 64 (the same) and 65 (wrong input) are as wrong the
/// next time. Those of `sysexits.h`; put here what your program means by its own.
fn failure(status: std::process::ExitStatus, last_words: &str) -> JobError {
    let error = format!("the simulator ended with {status}: {last_words}");
    match status.code() {
        Some(2 | 64 | 65) => JobError::fatal(error),
        _ => JobError::retry(error),
    }
}

fn write(path: &Path, thrown: &Thrown) -> std::io::Result<()> {
    fs::write(path, serde_json::to_vec(thrown)?)
}

fn read(path: &Path) -> std::io::Result<Thrown> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}
