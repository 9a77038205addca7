//! The job: a batch of pictures, one per step.

use reprieve::{ErrorKind, Job, JobContext, JobError, Step};
use serde::{Deserialize, Serialize};

use crate::picture::Thumbnail;

/// Makes the thumbnails of a batch of pictures.
pub(crate) struct Thumbnails;

/// What a job is asked for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Batch {
    /// The side of the square that thumbnails fit into, in pixels.
    pub(crate) size: u32,
    /// The pictures' names, as [`input`] makes inputs of them.
    pub(crate) pictures: Vec<String>,
}

/// How far a batch is. What goes on after an eviction goes on from here.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct At {
    next: usize,
    failed: Vec<Failure>,
}

/// What became of a batch: its job's result.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Made {
    /// How many thumbnails there are.
    pub(crate) done: usize,
    /// The pictures that gave none.
    pub(crate) failed: Vec<Failure>,
}

/// A picture without a thumbnail, and why.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// The input blob with the picture called `name`.
pub(crate) fn input(name: &str) -> String {
    format!("photos/{name}")
}

/// The output blob with its thumbnail. The picture's own extension stays, so that `cat.jpg` and `cat.png` don't meet.
pub(crate) fn output(name: &str, extension: &str) -> String {
    format!("thumbnails/{name}.{extension}")
}

#[reprieve::async_trait]
impl Job for Thumbnails {
    const KIND: &'static str = "thumbnails";
    type Args = Batch;
    type Checkpoint = At;
    type Output = Made;

    fn begin(&self, _: &Batch) -> At {
        At::default()
    }

    async fn step(&self, cx: &JobContext, batch: &Batch, mut at: At) -> Result<Step<At, Made>, JobError> {
        cx.progress(at.next as u64, batch.pictures.len() as u64);
        let Some(name) = batch.pictures.get(at.next) else {
            return Ok(Step::Done(Made { done: at.next - at.failed.len(), failed: at.failed }));
        };
        match make(cx, name, batch.size).await? {
            Ok(()) => tracing::debug!(job = %cx.job(), name, "thumbnail"),
            Err(reason) => {
                tracing::warn!(job = %cx.job(), name, reason, "no thumbnail");
                at.failed.push(Failure { name: name.clone(), reason });
            }
        }
        at.next += 1;
        cx.progress(at.next as u64, batch.pictures.len() as u64);
        Ok(Step::Continue(at))
    }
}

/// Makes one thumbnail. The inner error is the picture's own fault: it will not pass, and must not stop the others.
async fn make(cx: &JobContext, name: &str, size: u32) -> Result<Result<(), String>, JobError> {
    let picture = match cx.input(&input(name)).await {
        Ok(picture) => picture,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Invalid) => {
            return Ok(Err(error.to_string()));
        }
        Err(error) => return Err(JobError::retry(error)),
    };
    // This keeps a thread for as long as it takes. Job threads are there for that: leases and notices have their own.
    match Thumbnail::of(&picture, size) {
        Ok(Thumbnail { bytes, extension }) => Ok(Ok(cx.put_output(&output(name, extension), bytes).await?)),
        Err(unreadable) => Ok(Err(unreadable.to_string())),
    }
}
