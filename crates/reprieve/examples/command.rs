//! A worker for work that can't be divided: each job runs a program to its end, in one step that
//! blocks its thread.
//!
//! A job that an eviction interrupts runs its program again elsewhere, from the beginning. The
//! program must tolerate that.
//!
//! ```text
//! reprieve enqueue command --args '["sleep", "5"]'
//! cargo run --example command -- --metadata-url off
//! ```

use std::process::{Command, Stdio};

use reprieve::{Job, JobContext, JobError, Step, async_trait};

struct Run;

#[async_trait]
impl Job for Run {
    const KIND: &'static str = "command";
    type Args = Vec<String>;
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, _command: &Vec<String>) {}

    async fn step(&self, _: &JobContext, command: &Vec<String>, (): ()) -> Result<Step<(), ()>, JobError> {
        let (program, args) =
            command.split_first().ok_or_else(|| JobError::fatal("there is no program to run"))?;
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = command.status().map_err(JobError::retry)?;
        if status.success() {
            Ok(Step::Done(()))
        } else {
            Err(JobError::retry(format!("{program}: {status}")))
        }
    }
}

fn main() -> std::process::ExitCode {
    reprieve::run(|worker| worker.job(Run))
}
