//! A worker for a simulation with a large state. Its result is the same, bit for bit, however often
//! its machines are evicted.

mod grid;

use std::num::NonZero;
use std::process::ExitCode;
use std::time::Duration;

use reprieve::{Job, JobContext, JobError, Step, async_trait};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// How long a step computes. A kill costs at most this much and one checkpoint interval.
const STEP: Duration = Duration::from_millis(500);

/// The longest side of a plate: 800 MB of numbers.
const SIDE_MAX: usize = 10_000;

/// Heat that spreads over a square plate.
struct Heat {
    threads: usize,
}

#[derive(Deserialize)]
struct Plate {
    /// The cells along one side: 1600 for 20 MB of numbers.
    side: usize,
    /// The number of time steps.
    steps: u64,
    /// Determines the temperatures at the start.
    seed: u64,
}

/// The checkpoint is the whole state. MessagePack keeps every bit of an `f64`.
#[derive(Serialize, Deserialize)]
struct At {
    step: u64,
    grid: Vec<f64>,
}

#[async_trait]
impl Job for Heat {
    const KIND: &'static str = "heat";
    type Args = Plate;
    type Checkpoint = At;
    type Output = grid::Summary;

    // Allocates nothing: work belongs in steps.
    fn begin(&self, _: &Plate) -> At {
        At { step: 0, grid: Vec::new() }
    }

    async fn step(
        &self,
        cx: &JobContext,
        plate: &Plate,
        mut at: At,
    ) -> Result<Step<At, grid::Summary>, JobError> {
        if !(1..=SIDE_MAX).contains(&plate.side) {
            return Err(JobError::fatal(format!("side must be 1 to {SIDE_MAX}, not {}", plate.side)));
        }
        if at.grid.is_empty() {
            at.grid = grid::random(plate.side, plate.seed);
        }
        // The step ends when a save is due or the machine is evicted, and in any case soon. So it
        // ends at another time step in each run; the result does not depend on that.
        let (ends, mut next) = (Instant::now() + STEP, at.grid.clone());
        while at.step < plate.steps {
            grid::spread(&at.grid, &mut next, plate.side, self.threads);
            std::mem::swap(&mut at.grid, &mut next);
            at.step += 1;
            cx.progress(at.step, plate.steps);
            if cx.is_interrupted() || cx.is_checkpoint_due() || Instant::now() >= ends {
                return Ok(Step::Continue(at));
            }
        }
        Ok(Step::Done(grid::summary(&at.grid)))
    }
}

fn main() -> ExitCode {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    reprieve::run(|worker| worker.job(Heat { threads }))
}

#[cfg(test)]
mod tests {
    use reprieve::testing::Harness;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plate_is_the_same_however_often_its_machine_is_lost() {
        let plate = json!({"side": 30, "steps": 8, "seed": 7});
        let report = Harness::new(Heat { threads: 2 }).args(&plate).points(5).check();
        // In a test a save is always due, so each time step is a step of its own.
        assert!(report.steps() >= 8, "{report}");
    }
}
