//! The job: makes the thumbnails of a batch of pictures, one per step.

use reprieve::{ErrorKind, Job, JobContext, JobError, Step};
use serde::{Deserialize, Serialize};

use crate::picture::Thumbnail;

/// A job that makes the thumbnails of a batch of pictures.
pub(crate) struct Thumbnails;

/// The job's arguments.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Batch {
    /// The maximum width and height of a thumbnail, in pixels.
    pub(crate) size: u32,
    /// The names of the pictures; their blobs are [`input`]`(name)`.
    pub(crate) pictures: Vec<String>,
}

/// The job's checkpoint.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct State {
    /// The index of the next picture.
    next: usize,
    failed: Vec<Failure>,
}

/// The job's result.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BatchResult {
    /// The number of thumbnails made.
    pub(crate) done: usize,
    /// The pictures without a thumbnail.
    pub(crate) failed: Vec<Failure>,
}

/// A picture without a thumbnail, and why.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// Returns the name of the blob with the picture called `name`.
pub(crate) fn input(name: &str) -> String {
    format!("photos/{name}")
}

/// Returns the name of the blob with the thumbnail of the picture called `name`. It keeps the
/// picture's extension, so that `cat.jpg` and `cat.png` have different thumbnails.
pub(crate) fn output(name: &str, extension: &str) -> String {
    format!("thumbnails/{name}.{extension}")
}

#[reprieve::async_trait]
impl Job for Thumbnails {
    const KIND: &'static str = "thumbnails";
    type Args = Batch;
    type Checkpoint = State;
    type Output = BatchResult;

    fn begin(&self, _: &Batch) -> State {
        State::default()
    }

    async fn step(
        &self,
        cx: &JobContext,
        batch: &Batch,
        mut state: State,
    ) -> Result<Step<State, BatchResult>, JobError> {
        cx.progress(state.next as u64, batch.pictures.len() as u64);
        let Some(name) = batch.pictures.get(state.next) else {
            let done = state.next - state.failed.len();
            return Ok(Step::Done(BatchResult { done, failed: state.failed }));
        };
        match make_thumbnail(cx, name, batch.size).await? {
            Ok(()) => tracing::debug!(job = %cx.job(), name, "made a thumbnail"),
            Err(reason) => {
                tracing::warn!(job = %cx.job(), name, reason, "failed to make a thumbnail");
                state.failed.push(Failure { name: name.clone(), reason });
            }
        }
        state.next += 1;
        cx.progress(state.next as u64, batch.pictures.len() as u64);
        Ok(Step::Continue(state))
    }
}

/// Makes one thumbnail. The inner error is permanent and of this picture only, so the job continues
/// with the next one.
async fn make_thumbnail(cx: &JobContext, name: &str, size: u32) -> Result<Result<(), String>, JobError> {
    let picture = match cx.input(&input(name)).await {
        Ok(picture) => picture,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Invalid) => {
            return Ok(Err(error.to_string()));
        }
        Err(error) => return Err(JobError::retry(error)),
    };
    // Decoding may block the thread: jobs have threads of their own, apart from leases and notices.
    match Thumbnail::of(&picture, size) {
        Ok(Thumbnail { bytes, extension }) => {
            // An absolute name: all jobs' thumbnails are in one place.
            let output = format!("/{}", output(name, extension));
            Ok(Ok(cx.put_output(&output, bytes).await?))
        }
        Err(unreadable) => Ok(Err(unreadable.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use image::{ImageFormat, RgbImage};
    use reprieve::testing::Harness;

    use super::*;

    fn picture(side: u32) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        RgbImage::new(side, side).write_to(&mut bytes, ImageFormat::Png).expect("a picture");
        bytes.into_inner()
    }

    #[test]
    fn a_batch_survives_with_a_picture_that_is_missing_and_one_that_is_none() {
        let pictures = ["a.png", "missing.png", "none.png", "b.png"].map(str::to_owned).to_vec();
        let report = Harness::new(Thumbnails)
            .args(&Batch { size: 8, pictures })
            .input(input("a.png"), picture(20))
            .input(input("b.png"), picture(4))
            .input(input("none.png"), "not a picture")
            .points(5)
            .check();
        assert_eq!(report.steps(), 5, "{report}");
    }
}
