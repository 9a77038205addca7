//! The job: each step runs the simulator once, for minutes if need be, and can stop it early.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reprieve::{Job, JobContext, JobError, Step};
use serde::{Deserialize, Serialize};

use crate::program::{EXIT_SAVED, Program};
use crate::scratch::ScratchDir;
use crate::simulator::{Counts, STATE_FILE};

/// The longest grace period: the time that a program gets to save and exit.
///
/// It must end before [`reprieve::SOFT_MARK`], about three seconds after a notice: there the worker
/// drops a step that has not returned, and the program's saved state is lost with it.
const GRACE_MAX: Duration = Duration::from_secs(2);

/// A job that estimates pi by throwing darts at random.
pub(crate) struct EstimatePi {
    /// The program to run, followed by its first arguments.
    pub(crate) simulator: Vec<OsString>,
    /// The parent of the programs' working directories.
    pub(crate) scratch: PathBuf,
}

/// The job's arguments.
#[derive(Debug, Deserialize)]
pub(crate) struct Plan {
    /// The number of darts that each simulation throws.
    throws: u64,
    /// The seeds, one for each simulation.
    seeds: Vec<u64>,
}

/// The job's checkpoint.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct State {
    /// The number of finished simulations.
    simulations: usize,
    /// The total of the finished simulations.
    sum: Counts,
    /// The saved state of a simulation that was stopped early.
    ///
    /// A state of megabytes does not belong in a checkpoint: store it with
    /// [`JobContext::put_output`], and keep only its name here.
    partial: Option<Counts>,
}

/// The job's result.
#[derive(Debug, Serialize)]
pub(crate) struct Estimate {
    pi: f64,
    #[serde(flatten)]
    counts: Counts,
}

#[reprieve::async_trait]
impl Job for EstimatePi {
    const KIND: &'static str = "estimate-pi";
    type Args = Plan;
    type Checkpoint = State;
    type Output = Estimate;

    fn begin(&self, _: &Plan) -> State {
        State::default()
    }

    async fn step(
        &self,
        cx: &JobContext,
        plan: &Plan,
        mut state: State,
    ) -> Result<Step<State, Estimate>, JobError> {
        let Some(seed) = plan.seeds.get(state.simulations) else {
            return Ok(Step::Done(Estimate { pi: state.sum.pi(), counts: state.sum }));
        };
        // `scratch` and `program` clean up when they are dropped. No line of code may run after an
        // `.await`: the worker drops the step when the job's lease is lost, or when the step has
        // not returned in time. `program` is declared last, so it is dropped first.
        let scratch = ScratchDir::new(&self.scratch, cx).map_err(JobError::retry)?;
        if let Some(partial) = &state.partial {
            write(&scratch.path().join(STATE_FILE), partial).map_err(JobError::retry)?;
        }
        let arguments = [seed.to_string(), plan.throws.to_string()];
        let mut program =
            Program::start(&self.simulator, &arguments, scratch.path()).map_err(JobError::retry)?;
        let from = state.partial.as_ref().map_or(0, |partial| partial.thrown);
        tracing::info!(job = %cx.job(), seed, from, pid = program.pid(), "simulation started");

        let total = plan.throws.saturating_mul(plan.seeds.len() as u64);
        let exit = tokio::select! {
            exit = program.run(|done| cx.progress(state.sum.thrown.saturating_add(done), total)) => exit,
            () = cx.interrupted() => program.stop(grace_period(cx.time_left())).await,
        };
        let status = exit.map_err(JobError::retry)?;
        match status.code() {
            Some(0) => {
                state.sum.add(&read(&scratch.path().join(STATE_FILE)).map_err(JobError::retry)?);
                state.simulations += 1;
                state.partial = None;
                Ok(Step::Continue(state))
            }
            // The worker need not have stopped it: a machine that shuts down sends SIGTERM to all
            // processes, and the program's may arrive first.
            Some(code) if code == i32::from(EXIT_SAVED) => {
                let partial = Some(read(&scratch.path().join(STATE_FILE)).map_err(JobError::retry)?);
                if partial == state.partial && !cx.is_interrupted() {
                    return Err(JobError::retry(
                        "the simulator stopped without progress, and without a request to stop",
                    ));
                }
                state.partial = partial;
                Ok(Step::Continue(state))
            }
            // A killed program is no failure of the job. The next step starts from the same state.
            _ if cx.is_interrupted() => Ok(Step::Continue(state)),
            _ => Err(failure(status, &program.stderr_tail())),
        }
    }
}

/// Returns a quarter of the time left, so that the worker can still save the checkpoint and release
/// the job.
fn grace_period(time_left: Option<Duration>) -> Duration {
    time_left.map_or(GRACE_MAX, |left| GRACE_MAX.min(left / 4))
}

/// Maps an exit code to an error.
///
/// A retry can't help after 2 and 64 (wrong usage) and 65 (wrong input). The last two are from
/// `sysexits.h`; replace them by the exit codes of your own program.
fn failure(status: std::process::ExitStatus, stderr: &str) -> JobError {
    let error = format!("the simulator ended with {status}: {stderr}");
    match status.code() {
        Some(2 | 64 | 65) => JobError::fatal(error),
        _ => JobError::retry(error),
    }
}

fn write(path: &Path, counts: &Counts) -> std::io::Result<()> {
    fs::write(path, serde_json::to_vec(counts)?)
}

fn read(path: &Path) -> std::io::Result<Counts> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

#[cfg(all(test, unix))]
mod tests {
    use reprieve::testing::Harness;
    use serde_json::json;

    use super::*;

    /// A program like the simulator: counts from its saved state on, and saves on SIGTERM.
    const SCRIPT: &str = r#"
        thrown=0
        if [ -f state.json ]; then thrown=$(sed 's/.*"thrown":\([0-9]*\).*/\1/' state.json); fi
        save() { echo "{\"thrown\":$thrown,\"inside\":$((thrown * 3 / 4))}" > state.json; }
        trap 'save; exit 75' TERM
        while [ "$thrown" -lt "$2" ]; do
            thrown=$((thrown + 100))
            echo "$thrown"
            sleep 0.01
        done
        save
    "#;

    #[test]
    fn an_estimate_is_the_same_however_often_its_program_is_stopped() {
        let scratch = tempfile::tempdir().expect("a directory");
        let simulator = ["sh", "-c", SCRIPT, "simulator"].map(OsString::from).to_vec();
        let job = EstimatePi { simulator, scratch: scratch.path().to_owned() };
        let report = Harness::new(job)
            .args(&json!({"throws": 200, "seeds": [1, 2]}))
            .evicted_at_every_step()
            .killed_at_every_step()
            .frozen()
            .points(3)
            .check();
        assert_eq!(report.steps(), 3, "{report}");
    }
}
