//! A worker with jobs for messages that other programs send.

use std::process::ExitCode;

use reprieve::{Job, JobContext, JobError, Step, async_trait};
use serde::{Deserialize, Serialize};
use serde_json::Value;

fn main() -> ExitCode {
    reprieve::run(|worker| worker.job(Echo).job(Shout).job(BlobCreated))
}

/// Returns its arguments, which have to be an object.
struct Echo;

#[async_trait]
impl Job for Echo {
    const KIND: &'static str = "echo";
    type Args = serde_json::Map<String, Value>;
    type Checkpoint = ();
    type Output = serde_json::Map<String, Value>;

    fn begin(&self, _: &Self::Args) {}

    async fn step(
        &self,
        _: &JobContext,
        args: &Self::Args,
        (): (),
    ) -> Result<Step<(), Self::Output>, JobError> {
        Ok(Step::Done(args.clone()))
    }
}

/// Reads a blob and writes it in capitals.
struct Shout;

#[derive(Deserialize)]
struct ShoutArgs {
    input: String,
    output: String,
}

#[async_trait]
impl Job for Shout {
    const KIND: &'static str = "shout";
    type Args = ShoutArgs;
    type Checkpoint = ();
    type Output = usize;

    fn begin(&self, _: &ShoutArgs) {}

    async fn step(&self, cx: &JobContext, args: &ShoutArgs, (): ()) -> Result<Step<(), usize>, JobError> {
        let text = String::from_utf8(cx.input(&args.input).await?).map_err(JobError::fatal)?;
        cx.put_output(&args.output, text.to_uppercase().into_bytes()).await?;
        Ok(Step::Done(text.len()))
    }
}

/// Handles an Event Grid event about an uploaded blob.
struct BlobCreated;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlobCreatedArgs {
    url: String,
    content_length: u64,
}

#[derive(Serialize)]
struct Created {
    url: String,
    bytes: u64,
}

#[async_trait]
impl Job for BlobCreated {
    const KIND: &'static str = "Microsoft.Storage.BlobCreated";
    type Args = BlobCreatedArgs;
    type Checkpoint = ();
    type Output = Created;

    fn begin(&self, _: &BlobCreatedArgs) {}

    async fn step(
        &self,
        _: &JobContext,
        args: &BlobCreatedArgs,
        (): (),
    ) -> Result<Step<(), Created>, JobError> {
        Ok(Step::Done(Created { url: args.url.clone(), bytes: args.content_length }))
    }
}
